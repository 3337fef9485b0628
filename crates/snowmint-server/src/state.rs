//! The state that all connections of all protocols share. It holds no connection.

pub(crate) mod shutdown;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use snowmint_cluster::LeaseStatus;

use crate::access::Identity;
use crate::access::secret::TokenName;
use crate::admin::NodeAdmin;
use crate::admin::refusals::AdminRefusals;
use crate::history::History;
use crate::known_peers::KnownPeers;
use crate::load::answer_memory::AnswerMemory;
use crate::load::fairness::Turns;
use crate::load::memory_trimmer::MemoryTrimmer;
use crate::metrics::Metrics;
use crate::mint::Mint;
use crate::protocol::{Admission, Protocol};
use crate::settings::{AllowedHosts, Settings};
use crate::state::shutdown::Shutdown;
use crate::status::ErrorKind;
use crate::store_label::StoreLabel;
use crate::telemetry::access_log;
#[cfg(feature = "otlp")]
use crate::telemetry::otlp::Tracer;
use crate::tls::HandshakeLog;

/// The state that all connections share: the mint and everything around it.
pub(crate) struct ServerState {
    pub(crate) mint: Arc<Mint>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) settings: Settings,
    pub(crate) started_unix_ms: u64,
    pub(crate) store: Arc<StoreLabel>,
    /// A text that tells this process from every other, so that a node knows itself among its peers.
    pub(crate) instance: String,
    pub(crate) peers: KnownPeers,
    /// What this node remembers, which the console draws.
    pub(crate) history: History,
    /// The address of the Redis protocol, which the console shows; `None` if it is off.
    pub(crate) resp: Option<String>,
    #[cfg(feature = "otlp")]
    pub(crate) tracer: Option<Tracer>,
    pub(crate) shutdown: Shutdown,
    /// Bytes of commands between `MULTI` and `EXEC`, over all connections.
    pub(crate) queued: Arc<AtomicUsize>,
    pub(crate) memory: Arc<MemoryTrimmer>,
    pub(crate) answers: Arc<AnswerMemory>,
    pub(crate) turns: Turns,
    pub(crate) handshakes: HandshakeLog,
    pub(crate) admin_refusals: AdminRefusals,
    clients: AtomicU64,
}

impl ServerState {
    pub(crate) fn new(mint: Arc<Mint>, settings: Settings) -> Self {
        let memory: Arc<MemoryTrimmer> = Arc::default();
        let store = Arc::new(StoreLabel::new(settings.admin.as_ref().map(NodeAdmin::store)));
        let metrics = Arc::new(Metrics::new(&mint, &settings, &memory, &store));
        Self {
            #[cfg(feature = "otlp")]
            tracer: settings
                .traces
                .as_ref()
                .zip(metrics.spans.as_ref())
                .map(|(it, spans)| Tracer::start(it, spans)),
            mint,
            metrics,
            started_unix_ms: settings.clock.unix_ms(),
            store,
            instance: random_text(),
            settings,
            peers: KnownPeers::default(),
            history: History::default(),
            resp: None,
            shutdown: Shutdown::new(),
            queued: Arc::default(),
            answers: AnswerMemory::new(Arc::clone(&memory)),
            memory,
            turns: Turns::new(),
            handshakes: HandshakeLog::default(),
            admin_refusals: AdminRefusals::default(),
            clients: AtomicU64::new(0),
        }
    }

    /// Returns the hosts that requests of an HTTP connection may be addressed to.
    pub(crate) fn hosts_of(&self, admission: Admission) -> &AllowedHosts {
        if admission == Admission::Probe { &self.settings.probe_hosts } else { &self.settings.allowed_hosts }
    }

    /// Returns the workers that this node holds, each with its pool, as `/readyz` shows them.
    pub(crate) fn workers_held(&self) -> Vec<(String, u32)> {
        let now_unix_ms = self.settings.clock.unix_ms();
        let held = |lease: LeaseStatus| Some((lease.pool.clone(), lease.held_at(now_unix_ms)?.0.0));
        self.mint.leases().into_iter().filter_map(held).collect()
    }

    /// Counts a failed handshake and logs it.
    #[cold]
    pub(crate) fn handshake_failed(&self, protocol: Protocol, error: &dyn Error) {
        self.refused(protocol, ErrorKind::BadTls);
        tracing::debug!(protocol = protocol.name(), %error, "TLS handshake failed");
        self.handshakes.failed(protocol, error);
    }

    /// Counts and logs a client that sent no request, or none that can be read.
    #[cold]
    pub(crate) fn refused(&self, protocol: Protocol, kind: ErrorKind) {
        self.metrics.failed(protocol, kind);
        access_log::refused(protocol, kind.status().name);
    }

    /// Returns the identity of a client that has not sent a token.
    pub(crate) fn anonymous(&self) -> Identity {
        Identity::anonymous(self.settings.access.as_ref())
    }

    /// Returns the identity of a client that cannot send a token and uses the rights of this one.
    pub(crate) fn identity_of(&self, token: Option<&TokenName>) -> Identity {
        let identity =
            self.settings.access.as_ref().zip(token).map(|(access, token)| access.identity_of(token));
        // Without a valid token its requests are rejected, with the reason.
        identity.and_then(Result::ok).unwrap_or_else(|| self.anonymous())
    }

    /// Returns the number of a new RESP connection; the first is 1.
    pub(crate) fn next_client(&self) -> u64 {
        // Numbers only have to differ, so no ordering is needed.
        self.clients.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Returns 64 random bits. Without random bits, every node is another one.
fn random_text() -> String {
    let mut bits = [0; 8];
    getrandom::fill(&mut bits)
        .map_or_else(|_| String::new(), |()| format!("{:016x}", u64::from_ne_bytes(bits)))
}

#[cfg(test)]
impl ServerState {
    /// A server for unit tests, under a clock that stands still.
    pub(crate) fn for_tests(mint: Mint) -> Self {
        let clock = snowmint::ManualClock::at_unix_ms(crate::testing::START_UNIX_MS);
        Self::new(Arc::new(mint), Settings { clock: Arc::new(clock), ..Settings::default() })
    }
}
