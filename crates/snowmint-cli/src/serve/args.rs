//! The flags of `snowmint serve`, and their checks. Nothing is opened before all of them have passed.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction};
use snowmint::error::Chain;
use snowmint::field::Field;
use snowmint::{
    AnchoredClock, DatacenterId, Generator, Layout, ManualClock, Rule, Start, WallClock, WorkerId,
};
use snowmint_admin::node_reports;
use snowmint_cluster::{
    Holder, IdentityError, NamespaceName, NodeClock, WorkerChoice, WorkerCount, WorkerSource,
};
use snowmint_server::access::secret::TokenName;
use snowmint_server::access::{Access, TokensSource};
use snowmint_server::namespace_sync::{
    NamespaceConfig, NamespaceConfigError, NamespaceFlags, NamespaceSource,
};
use snowmint_server::{AllowedHosts, CorsOrigins, Settings, ThriftExceptions, Timeouts, Tls, TlsFiles};
use snowmint_store::StoreId;

use super::logging::{Filter, Format, LogSettings, SettingFile};
use super::systemd::Sockets;
use super::trace_flags;
use crate::data_directory::data_directory;
use crate::error::Failure;
use crate::flag_values::{self, Listen};
use crate::hide_key::{Outsiders, warning_of_readers};

const EXAMPLES: &str = "\
Examples:
  snowmint serve
      HTTP on 127.0.0.1:8080, the Redis protocol on 127.0.0.1:6380, one
      SQLite file in the data directory. Then:
      curl 'localhost:8080/v1/ids/default?count=3'
      redis-cli -p 6380 ID.NEXT default COUNT 3
  snowmint serve --http 0.0.0.0:8080 --resp off --data /var/lib/snowmint \\
      --tls-cert server.pem --tls-key server.key --tls-client-ca clients.pem
      For clients on other machines that have a certificate, HTTP only. With
      --tokens-file instead of --tls-client-ca, for clients that have a token
      (see `snowmint token --help`). The SQLite file coordinates the nodes of
      this machine: nodes on several machines need a common --store.
  snowmint serve --http unix:/run/snowmint/http --resp unix:/run/snowmint/resp
      For processes of this machine that may open the sockets: owner and group.
      curl --unix-socket /run/snowmint/http localhost/v1/ids/default
      redis-cli -s /run/snowmint/resp ID.NEXT default
  snowmint serve --http 127.0.0.1:8081 --resp 127.0.0.1:6381
      A second node on this machine. It shares the file and takes another
      worker.
  snowmint serve --namespaces orders,users \\
      --layout 'time:41 worker:10 sequence:12 epoch:2026-01-01'
      A layout of your own. The store pins each namespace to it: no node can
      make ids there with another layout.
  snowmint serve --namespaces-file namespaces.toml
      Numbers, UUIDs and ids with a text form, each under its name: see
      `snowmint ns --help`. SIGHUP reads the file again. Namespaces added with
      `snowmint ns add` are served without a restart.
  snowmint serve --config snowmint.toml
      All settings and namespaces in one file: see `snowmint config --help`.
  snowmint serve --worker 7
      Require this worker: if another node holds it, this node exits and names
      that node.
  snowmint serve --workers 1..8
      More ids a second than one worker makes: up to eight workers while the
      load needs them.

Workers need no configuration: each node takes a lease on a free worker from the
store, and prefers its earlier worker after a restart. SIGTERM and SIGINT finish
the requests in flight and give the lease back; a second signal exits at once.
Behind a load balancer, set --drain-delay 5s: /readyz answers 503 while requests
are still served, until the balancer notices. SIGHUP reads --namespaces-file,
--hide-keys-file, --tokens-file and the TLS files again, and of --config the
namespaces, tokens, log level and access log; SIGUSR1 and SIGUSR2 do nothing.
After a crash, the worker is free again when its lease has expired, within one
window.

With --http systemd, the socket is the one that systemd passes under the name
http (FileDescriptorName=http in the .socket unit); likewise for the others.

If the store is unreachable, serve waits for it before it opens its ports (but
see --start-without-store). Once the ports are open, /healthz answers 200; until
the node holds a lease, /readyz and requests for ids report the reason.

Exit codes. 0: stopped on request. 1: the store, a port or the lease failed, or
a second signal arrived. 2: invalid flag or setting.";

/// Run the service: ids over HTTP, the Redis protocol, Thrift and gRPC
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.", disable_help_flag = true)]
#[command(mut_args(with_variable))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Args {
    /// Address for HTTP, and for gRPC over HTTP/2: HOST:PORT (port 0 for any free port), unix:PATH, off, or
    /// systemd (a socket that systemd opens: see below)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = flag_values::listen_or_unix, help_heading = "Addresses")]
    pub(super) http: Listen,
    /// Address for the Redis protocol: HOST:PORT (port 0 for any free port), unix:PATH, off, or systemd
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6380", value_parser = flag_values::listen_or_unix, help_heading = "Addresses")]
    pub(super) resp: Listen,
    /// Address for Thrift, Twitter's Snowflake service (its port was 7609): HOST:PORT (port 0 for any free
    /// port), off, or systemd
    #[arg(long, value_name = "ADDR", default_value = "off", value_parser = flag_values::listen, help_heading = "Addresses")]
    pub(super) thrift: Listen,
    /// Namespace whose ids Thrift clients get; default: the first of --namespaces
    #[arg(long, value_name = "NAME", help_heading = "Addresses")]
    pub(super) thrift_namespace: Option<NamespaceName>,
    /// How Thrift clients learn of an invalid user agent or a clock that went back: `application` suits
    /// clients of Twitter's interface, `declared` those of an interface whose `get_id` throws
    /// `InvalidUserAgentError` and `InvalidSystemClock`
    #[arg(long, value_name = "KIND", value_enum, default_value_t = ThriftErrors::Application, help_heading = "Addresses")]
    pub(super) thrift_exceptions: ThriftErrors,
    /// Address for gRPC alone, the service snowmint.v1 with health and reflection: HOST:PORT (port 0 for any
    /// free port), off, or systemd
    #[arg(long, value_name = "ADDR", default_value = "off", value_parser = flag_values::listen, help_heading = "Addresses")]
    pub(super) grpc: Listen,
    /// Address for health checks and Prometheus: /healthz, /readyz and /metrics over HTTP, without TLS,
    /// certificates or tokens. It serves no ids; clients see the names of namespaces and tokens. HOST:PORT
    /// (port 0 for any free port), unix:PATH, off, or systemd
    #[arg(long, value_name = "ADDR", default_value = "off", value_parser = flag_values::listen_or_unix, help_heading = "Addresses")]
    pub(super) probe: Listen,
    /// Store of leases and namespaces: sqlite:PATH, redis://, postgres://, mysql://, etcd://, zookeeper://,
    /// kubernetes: or memory:; default: the file snowmint.db in the data directory
    #[arg(long, value_name = "URL", hide_env_values = true, help_heading = "Store and namespaces")]
    pub(super) store: Option<String>,
    /// Identity that the store must have, as `snowmint doctor` shows it, such as
    /// `smst_2hs8sknr1g0v9aqz5ffk4twv3c`: this node does not start on another store; default: any
    #[arg(long, value_name = "ID", help_heading = "Store and namespaces")]
    pub(super) expect_store: Option<StoreId>,
    /// Data directory; default: `$XDG_STATE_HOME/snowmint`, or `~/.local/state/snowmint`; for root
    /// /var/lib/snowmint
    #[arg(long, alias = "data-dir", value_name = "DIR", help_heading = "Store and namespaces")]
    pub(super) data: Option<String>,
    /// Configuration file (TOML): any of these flags, namespaces and tokens (`snowmint config --help` shows
    /// one). Flags and environment variables win over it
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub(crate) config: Option<PathBuf>,
    #[arg(skip)]
    pub(crate) from_config: FromConfig,
    /// Certificate for TLS on every TCP port but that of --probe, followed by those of intermediate
    /// authorities (PEM). The TLS files are loaded again when they change, and at SIGHUP
    #[arg(long, value_name = "FILE", help_heading = "TLS, tokens and web pages")]
    pub(super) tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM, not encrypted)
    #[arg(long, value_name = "FILE", help_heading = "TLS, tokens and web pages")]
    pub(super) tls_key: Option<PathBuf>,
    /// Require client certificates of these authorities (PEM), on every TCP port but that of --probe
    #[arg(long, value_name = "FILE", help_heading = "TLS, tokens and web pages")]
    pub(super) tls_client_ca: Option<PathBuf>,
    /// File of tokens (TOML; `snowmint token --help` shows how it is made). Every client then needs one,
    /// except for /healthz, /readyz, /metrics, /openapi.json, the page of the console, and gRPC health and
    /// reflection. The file is read again when it changes, and at SIGHUP
    #[arg(long, value_name = "FILE", help_heading = "TLS, tokens and web pages")]
    pub(super) tokens_file: Option<PathBuf>,
    /// Token whose rights and quotas Thrift clients have, by its name: Thrift has no way to send one
    #[arg(long, value_name = "NAME", help_heading = "TLS, tokens and web pages")]
    pub(super) thrift_token: Option<TokenName>,
    /// Accept every client on addresses that other machines can reach, and tokens without TLS. Otherwise
    /// these addresses require --tls-client-ca, or --tokens-file with TLS
    #[arg(long, value_parser = BoolishValueParser::new(), help_heading = "TLS, tokens and web pages")]
    pub(super) insecure: bool,
    /// Layout of ids: a name (see `snowmint layouts`) or its text form (see `snowmint layout --help`)
    #[arg(long, value_name = "SPEC|NAME", default_value = "twitter", help_heading = "Ids and leases")]
    pub(super) layout: Layout,
    /// Datacenter, if the layout has one
    #[arg(long, value_name = "N", default_value = "0", value_parser = flag_values::node_number, allow_negative_numbers = true, help_heading = "Ids and leases")]
    pub(super) datacenter: u32,
    /// Require this worker: a number, `ordinal` (after the last `-` of the host name), `ipv4` or
    /// `ipv4:NETWORK`, such as ipv4:10.244.0.0/16 (the low bits of this host's address, as wide as the worker
    /// field). Without a network, hosts of two subnets can get the same worker, and the store rejects the
    /// second one. Default: any free worker
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Ids and leases")]
    pub(super) worker: Option<WorkerSource>,
    /// Number of workers to hold, 1 to 8, or a range such as 1..8. The node takes another worker when
    /// sequences run out for a second, and gives it back when it was not needed for three windows
    #[arg(long, value_name = "N|MIN..MAX", default_value = "1", help_heading = "Ids and leases")]
    pub(super) workers: WorkerCount,
    /// After a restart while the store is down, continue under the lease saved in the data directory, until
    /// it expires. Each node then needs its own data directory on a local disk. Do not use this option if the
    /// disks of running nodes may be cloned
    #[arg(long, value_parser = BoolishValueParser::new(), help_heading = "Store and namespaces")]
    pub(super) start_without_store: bool,
    /// Namespaces to serve, separated by commas
    #[arg(
        long,
        alias = "namespace",
        value_name = "NAME,...",
        default_value = "default",
        value_delimiter = ',',
        help_heading = "Store and namespaces"
    )]
    pub(super) namespaces: Vec<NamespaceName>,
    /// File of namespaces of any scheme (TOML; `snowmint ns --help` shows one); SIGHUP reads it again
    #[arg(long, value_name = "FILE", help_heading = "Store and namespaces")]
    pub(crate) namespaces_file: Option<PathBuf>,
    /// File of the keys that hide the ids of namespaces (TOML: `NAME = "32 hex digits"`; `snowmint hide-key`
    /// makes one). This node serves no namespace whose key it lacks; SIGHUP reads it again
    #[arg(long, value_name = "FILE", help_heading = "Store and namespaces")]
    pub(crate) hide_keys_file: Option<PathBuf>,
    /// Passwords and certificates for sources of namespaces: NAME=URL, such as
    /// `shop=mysql://leaf:PASSWORD@db/leaf`. A source with `login=NAME` and the same scheme, user, hosts and
    /// database uses it; no other source gets a password. Separate several by spaces. A file has a table
    /// [logins] instead (see `snowmint ns --help`), which SIGHUP reads again
    #[arg(long, value_name = "NAME=URL", hide_env_values = true, help_heading = "Store and namespaces")]
    pub(super) logins: Vec<String>,
    /// Interval at which this node looks for namespaces that were added, changed or dropped in the store
    #[arg(long, value_name = "TIME", default_value = flag_values::NAMESPACES_POLL, value_parser = flag_values::poll, help_heading = "Store and namespaces")]
    pub(super) namespaces_poll: Duration,
    /// Length of a lease. Ids continue through a store outage of up to two thirds of it, and the worker of a
    /// crashed node is free again after it
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = flag_values::window, help_heading = "Ids and leases")]
    pub(super) window: Duration,
    /// Limit on how far this clock may be ahead of the store's clock to take a lease, or to renew one after a
    /// clock step. If the store has no clock: the largest step forward that this node follows at once
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = flag_values::skew, help_heading = "Ids and leases")]
    pub(super) max_skew: Duration,
    /// Clock of the timestamps. With `anchored`, a clock step never interrupts id generation. With `wall`,
    /// ids show the wall clock's time after each step; a step forward that nothing confirms stops ids until
    /// the clock is corrected or the step has lasted. Neither can repeat an id
    #[arg(long, value_name = "CLOCK", value_enum, default_value_t = ClockChoice::Anchored, help_heading = "Ids and leases")]
    pub(super) clock: ClockChoice,
    /// Rule for a clock that goes back and for a tick that is used up: reject, wait(TIME), borrow(TIME),
    /// generation, or several joined by ` then `. The clock goes back only with `--clock wall`
    #[arg(long, value_name = "RULE", default_value = "wait(10ms)", help_heading = "Ids and leases")]
    pub(super) rule: Rule,
    /// Start of the sequence in each new millisecond: rolling (after the last one, in order), zero (Twitter's
    /// bits), random or random(N) (below N). With zero, an id that is alone in its millisecond has sequence
    /// 0: rare ids are even, and `id % n` sends them to one shard. With random, the ids of a connection
    /// increase only from one millisecond to the next
    #[arg(long, value_name = "START", default_value = "rolling", help_heading = "Ids and leases")]
    pub(super) sequence_start: Start,
    /// Limit of client connections over all protocols. At the limit, new clients are rejected; /healthz,
    /// /readyz and /metrics are still answered, on 64 reserved connections. Lowered with a warning if the
    /// system allows fewer open files (ulimit -n)
    #[arg(long, value_name = "N", default_value = "10000", value_parser = flag_values::connections, help_heading = "Limits and shutdown")]
    pub(super) max_connections: usize,
    /// Threads that serve requests, 1 to 64. auto: half of the CPUs, at least 1 and at most 2. Each further
    /// thread costs CPU time for each request, and adds throughput only while CPUs are idle
    #[arg(long, value_name = "N", default_value = "auto", value_parser = flag_values::threads, help_heading = "Limits and shutdown")]
    pub(super) threads: NonZeroUsize,
    /// Close connections without a request for this long; 0s disables it. Keep it longer than the idle
    /// timeout of load balancers and connection pools, so that they close first
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = flag_values::idle_timeout, help_heading = "Limits and shutdown")]
    pub(super) idle_timeout: Duration,
    /// Time limit for a request to arrive completely: the head of an HTTP request, or a whole Redis command
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = flag_values::timeout, help_heading = "Limits and shutdown")]
    pub(super) request_timeout: Duration,
    /// Close connections whose client reads nothing of its answers for this long. Over HTTP/2 and gRPC, an
    /// answer that is not read is reset, if the client reads others
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = flag_values::timeout, help_heading = "Limits and shutdown")]
    pub(super) write_timeout: Duration,
    /// Hosts to accept besides localhost and loopback addresses (beyond loopback: any address); * accepts
    /// any. Checked if --http (or --probe) is a loopback address, against web pages that point a name of
    /// their own at it (DNS rebinding), or if this flag is set. A reverse proxy that passes on the client's
    /// Host header needs it
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', help_heading = "TLS, tokens and web pages")]
    pub(super) allowed_hosts: Vec<String>,
    /// Origins of web pages that may send requests over HTTP and read the answers (CORS), such as
    /// `https://app.example.com`; default: none
    #[arg(
        long,
        value_name = "ORIGIN,...",
        value_delimiter = ',',
        help_heading = "TLS, tokens and web pages"
    )]
    pub(super) cors_origin: Vec<String>,
    /// HTTP addresses of nodes of the same store: http://HOST:PORT,... The console and `doctor --server`
    /// report which of them do not answer, and /readyz, the log and a metric which of them use another store.
    /// The admin API asks these, and no others, for /metrics and /readyz. For nodes with TLS, the port of
    /// their --probe; default: none
    #[arg(long, value_name = "URL,...", value_delimiter = ',', help_heading = "Store and namespaces")]
    pub(super) peers: Vec<String>,
    /// Serve the console, a page for browsers that explains ids and shows the fleet, at / of the HTTP port:
    /// true or false
    #[arg(long, value_name = "BOOL", default_value = "true", action = ArgAction::Set, value_parser = BoolishValueParser::new(), help_heading = "TLS, tokens and web pages")]
    pub(super) console: bool,
    /// Do not serve the console; the same as --console false
    #[arg(long, help_heading = "TLS, tokens and web pages")]
    pub(super) no_console: bool,
    /// Time limit for requests in flight after SIGTERM and the drain delay; then their connections are cut
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = flag_values::drain, help_heading = "Limits and shutdown")]
    pub(super) drain_timeout: Duration,
    /// Time to keep serving after SIGTERM while `/readyz` answers 503, so that a load balancer notices; about
    /// 5s behind one
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = flag_values::drain, help_heading = "Limits and shutdown")]
    pub(super) drain_delay: Duration,
    /// Name that holds the lease of this node; default: the host name and the first open port
    #[arg(long, value_name = "NAME", value_parser = holder, help_heading = "Ids and leases")]
    pub(super) holder: Option<Holder>,
    /// Format of log lines on standard error
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text, help_heading = "Log")]
    pub(super) log_format: Format,
    /// Log level: off, error, warn, info, debug or trace; also per module, as in
    /// `warn,snowmint_cluster=debug`. SIGHUP reads it again if it is set in --config
    #[arg(long, alias = "log-level", value_name = "LEVEL", default_value = "info", help_heading = "Log")]
    pub(super) log: Filter,
    /// Log each request: protocol, client, request, namespace, count, outcome and duration, at target
    /// `snowmint::access`. SIGHUP reads it again if it is set in --config
    #[arg(long, value_parser = BoolishValueParser::new(), help_heading = "Log")]
    pub(super) access_log: bool,
    /// OpenTelemetry collector for traces of requests (OTLP over HTTP), such as `http://localhost:4318`;
    /// default: `OTEL_EXPORTER_OTLP_ENDPOINT`
    #[arg(long, value_name = "URL", help_heading = "Log")]
    pub(super) otlp_endpoint: Option<String>,
    /// Share of requests to trace, from 0 to 1, of those without a trace context; otherwise the caller
    /// decides
    #[arg(long, value_name = "RATIO", default_value = "0", value_parser = trace_flags::ratio, help_heading = "Log")]
    pub(super) otlp_sample_ratio: f64,
    /// Print help (`--help` has examples)
    // Not the one of clap: it would be alone under a heading of its own, before the addresses.
    #[arg(short, long, action = ArgAction::Help, help_heading = "Global options")]
    help: Option<bool>,
}

/// Adds the environment variable of a flag: its name in capitals, after `SNOWMINT_`.
fn with_variable(flag: Arg) -> Arg {
    let name = flag.get_id().as_str().to_uppercase();
    if matches!(&*name, "HELP" | "NO_CONSOLE") {
        return flag;
    }
    flag.env(format!("SNOWMINT_{name}"))
}

/// The path of the configuration file, for each part of it that the node reads again or watches.
#[derive(Debug, Default)]
pub(crate) struct FromConfig {
    /// Set unless another file defines namespaces.
    pub(crate) namespaces: Option<NamespaceSource>,
    /// Set if it defines tokens.
    pub(crate) tokens: Option<TokensSource>,
    /// Set if no file defines tokens: the first ones may appear in it.
    pub(crate) first_tokens: Option<TokensSource>,
    /// Set unless a flag or variable sets the log level.
    pub(crate) log: Option<SettingFile>,
    /// Set unless a flag or variable sets the access log.
    pub(crate) access_log: Option<SettingFile>,
}

impl Args {
    /// Returns the settings of the server that do not depend on the running process. Reads the TLS files and
    /// the tokens.
    fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = Settings {
            max_connections: self.max_connections,
            timeouts: Timeouts {
                idle: Some(self.idle_timeout).filter(|idle| !idle.is_zero()),
                request: self.request_timeout,
                write: self.write_timeout,
            },
            probe_hosts: allowed_hosts(&self.probe, &self.allowed_hosts)?,
            allowed_hosts: allowed_hosts(&self.http, &self.allowed_hosts)?,
            cors_origins: cors_origins(&self.cors_origin)?,
            tls: load_tls(self.tls_cert.clone(), self.tls_key.clone(), self.tls_client_ca.clone())?,
            access: load_tokens(self.tokens_file.clone(), self.from_config.tokens.clone())?,
            console: self.console && !self.no_console,
            drain: self.drain_timeout,
            drain_delay: self.drain_delay,
            ..Settings::default()
        };
        trace_flags::apply(&mut settings, self.otlp_endpoint.as_deref(), self.otlp_sample_ratio)?;
        Ok(settings)
    }

    /// Returns the ports for ids, each with its flag.
    pub(super) const fn ports(&self) -> [(&'static str, &Listen); 4] {
        [("--http", &self.http), ("--resp", &self.resp), ("--thrift", &self.thrift), ("--grpc", &self.grpc)]
    }

    fn namespace_flags(&self) -> Result<NamespaceFlags, Failure> {
        let file = || self.namespaces_file.clone().map(NamespaceSource::from);
        Ok(NamespaceFlags {
            names: self.namespaces.clone(),
            file: self.from_config.namespaces.clone().or_else(file),
            hide_keys: self.hide_keys_file.clone(),
            logins: flag_values::logins(&self.logins)?,
            layout: self.layout,
        })
    }

    /// Names the flag that an invalid setting of the namespaces came from.
    fn namespaces_failure(&self, error: NamespaceConfigError) -> Failure {
        let flag = if self.from_config.namespaces.is_some() { "--config" } else { "--namespaces-file" };
        match error {
            // These errors name their own flag.
            error @ (NamespaceConfigError::HideKeysUnread { .. } | NamespaceConfigError::HideKeys { .. }) => {
                Failure::usage(Chain(&error))
            }
            error => Failure::flag(flag, Chain(&error)),
        }
    }

    pub(super) fn log(&self) -> LogSettings {
        LogSettings {
            format: self.log_format,
            filter: self.log.clone(),
            access: self.access_log.into(),
            filter_file: self.from_config.log.clone(),
            access_file: self.from_config.access_log.clone(),
        }
    }

    /// Returns the warnings about valid settings.
    fn warnings(&self, store: &str, access: Option<&Access>) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(file) = access.and_then(Access::empty_file) {
            let file = file.display();
            warnings.push(format!(
                "{file} has no tokens, so that every client is rejected: create one with `snowmint token create NAME --namespaces \
                 NAMES --file tokens.toml`"
            ));
        }
        if store.starts_with("memory:") {
            warnings.push(
                "--store memory: leases are lost when this process ends, and no other process sees them: ids are unique only \
                 while this process runs alone"
                    .to_owned(),
            );
        }
        let mut outside = self.ports().into_iter().filter(|(_, listen)| !listen.is_loopback());
        if let (None, Some((_, listen))) = (&self.store, outside.next()) {
            warnings.push(format!(
                "listening on {listen} without --store: {store} coordinates the processes of this machine only, and a node on \
                 another machine would produce duplicates; set one --store for all nodes, or use one machine only"
            ));
        }
        let hide_keys = self.hide_keys_file.as_deref();
        warnings.extend(hide_keys.and_then(|file| warning_of_readers(file, Outsiders::AllButGroup)));
        warnings
    }

    /// Replaces `systemd` in each listener by the address of its socket.
    pub(super) fn resolve_sockets(&mut self, sockets: &Sockets) -> Result<(), Failure> {
        sockets.resolve(&mut [
            ("--http", &mut self.http),
            ("--resp", &mut self.resp),
            ("--thrift", &mut self.thrift),
            ("--grpc", &mut self.grpc),
            ("--probe", &mut self.probe),
        ])
    }

    /// Resets a worker that is read from the host: a file may be checked on another machine than the one that
    /// serves. Returns the worker on this machine as a text; `None` if it does not depend on the machine.
    pub(super) fn detach_from_host(&mut self) -> Result<Option<String>, Failure> {
        let Some(source @ (WorkerSource::Ordinal | WorkerSource::Ipv4(_))) = self.worker else {
            return Ok(None);
        };
        if self.workers.max() > 1 {
            return Err(Failure::usage(format!(
                "--worker requires one worker, --workers {} several: remove one of the two flags",
                self.workers
            )));
        }
        let here = match source.worker(&self.layout) {
            Ok(worker) => format!("it is {worker} here"),
            // This error occurs on every machine.
            Err(error @ IdentityError::NoWorkerBits { .. }) => return Err(Failure::flag("--worker", error)),
            Err(error) => format!("it has none here: {}", Chain(&error)),
        };
        self.worker = Some(WorkerSource::Number(0));
        Ok(Some(format!("--worker depends on the machine that serves; {here}")))
    }
}

/// The clock of a node's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ClockChoice {
    /// The wall clock at the start, then boot time, corrected towards the wall clock by 0.5 ms per second. A
    /// step of the wall clock is only logged. A node that fell behind catches up once the store or another
    /// node confirms the time
    Anchored,
    /// The wall clock with each of its steps. One wrong step forward takes the worker until that time, even
    /// after the clock is corrected. After a step forward, there are no ids for up to about a second (twice
    /// `may_lose`, if longer), until the lease is renewed. After a step back, --rule decides: reject
    /// (errors), wait, borrow (continue ahead of the clock) or generation (another backup worker id or
    /// sequence base, by the layout, and back to the start of this node's lease at most)
    Wall,
}

impl ClockChoice {
    pub(super) fn start(self) -> NodeClock {
        match self {
            Self::Anchored => NodeClock::from(Arc::new(AnchoredClock::new())),
            Self::Wall => NodeClock::wall(),
        }
    }
}

fn holder(text: &str) -> Result<Holder, String> {
    Holder::new(text).map_err(|error| error.to_string())
}

/// How Thrift clients receive the exceptions that their interface may declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ThriftErrors {
    /// An application exception with the reason
    Application,
    /// `InvalidUserAgentError` and `InvalidSystemClock`
    Declared,
}

impl From<ThriftErrors> for ThriftExceptions {
    fn from(errors: ThriftErrors) -> Self {
        match errors {
            ThriftErrors::Application => Self::Application,
            ThriftErrors::Declared => Self::Declared,
        }
    }
}

/// The checked configuration of a service: its flags, and what was computed from them.
#[derive(Debug)]
pub(super) struct ServePlan {
    pub(super) args: Args,
    pub(super) thrift_namespace: NamespaceName,
    pub(super) store_url: String,
    pub(super) datacenter: DatacenterId,
    pub(super) choice: WorkerChoice,
    pub(super) namespace_flags: NamespaceFlags,
    pub(super) namespaces: NamespaceConfig,
    /// Without the parts that exist only in a running process: clock, log and admin API.
    pub(super) settings: Settings,
    /// Where the first tokens may appear, if there are none.
    pub(super) first_tokens: Option<TokensSource>,
    /// Warnings about valid settings.
    pub(super) warnings: Vec<String>,
}

impl ServePlan {
    pub(super) fn check(args: Args, now_unix_ms: u64) -> Result<Self, Failure> {
        let layout = args.layout;
        let (worker, datacenter) = flag_values::check_node(&layout, args.worker, args.datacenter)?;
        check_ports(&args.ports())?;
        check_addresses(&args)?;
        check_times(&layout, args.window, args.rule)?;
        check_workers(&layout, worker, args.workers)?;
        for peer in &args.peers {
            node_reports::address(peer).map_err(|error| Failure::flag("--peers", error))?;
        }
        // clap guarantees at least one name.
        let first =
            args.namespaces.first().cloned().ok_or_else(|| Failure::usage("--namespaces: no name"))?;
        let thrift_namespace = args.thrift_namespace.clone().unwrap_or(first);
        let namespace_flags = args.namespace_flags()?;
        let namespaces = namespace_flags.read().map_err(|error| args.namespaces_failure(error))?;
        // The saved lease is in the data directory too.
        if args.start_without_store {
            data_directory(args.data.as_deref())?;
        }
        let store_url = flag_values::store_url(args.store.as_deref(), args.data.as_deref())?;
        flag_values::check_window(args.window, &store_url)?;
        // A layout that ends soon is reported for each namespace once it is served.
        flag_values::check_lifetime(&layout, now_unix_ms)?;
        let settings = args.settings()?;
        check_thrift_token(&args.thrift, settings.access.as_ref(), args.thrift_token.as_ref())?;
        if !args.insecure {
            check_outside(&args.ports(), &settings)?;
        }
        Ok(Self {
            thrift_namespace,
            datacenter,
            choice: worker.map_or(WorkerChoice::Any, WorkerChoice::Only),
            namespace_flags,
            namespaces,
            first_tokens: args.from_config.first_tokens.clone(),
            warnings: args.warnings(&store_url, settings.access.as_deref()),
            store_url,
            settings,
            args,
        })
    }
}

/// Returns the accepted host names of a listener. Without the flag, a listener for other machines accepts any
/// name, since its names are unknown.
fn allowed_hosts(listen: &Listen, names: &[String]) -> Result<AllowedHosts, Failure> {
    if names.is_empty() && !listen.is_loopback() {
        return Ok(AllowedHosts::Any);
    }
    let hosts = AllowedHosts::new(names.iter().map(String::as_str))
        .map_err(|error| Failure::flag("--allowed-hosts", error))?;
    Ok(if listen.is_loopback() && !listen.is_unix() { hosts.on_loopback() } else { hosts })
}

/// Loads the TLS files, if TLS is on.
fn load_tls(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_authority: Option<PathBuf>,
) -> Result<Option<Arc<Tls>>, Failure> {
    let (certificate, key) = match (certificate, key, &client_authority) {
        (Some(certificate), Some(key), _) => (certificate, key),
        (None, None, None) => return Ok(None),
        (Some(_), None, _) => {
            return Err(Failure::flag("--tls-cert", "requires --tls-key FILE, its private key"));
        }
        (None, Some(_), _) => {
            return Err(Failure::flag("--tls-key", "requires --tls-cert FILE, its certificate"));
        }
        (None, None, Some(_)) => {
            return Err(Failure::flag("--tls-client-ca", "requires --tls-cert FILE and --tls-key FILE"));
        }
    };
    let tls = Tls::load(TlsFiles { certificate, key, client_authority }).map_err(Failure::usage)?;
    Ok(Some(Arc::new(tls)))
}

fn cors_origins(given: &[String]) -> Result<CorsOrigins, Failure> {
    CorsOrigins::new(given.iter().map(String::as_str)).map_err(|error| Failure::flag("--cors-origin", error))
}

/// Reads the tokens, if a file has some.
fn load_tokens(file: Option<PathBuf>, config: Option<TokensSource>) -> Result<Option<Arc<Access>>, Failure> {
    let source = file.map(TokensSource::File).or(config);
    let load = |source| Access::load(source, Arc::new(WallClock)).map(Arc::new);
    source.map(load).transpose().map_err(Failure::usage)
}

/// Checks that Thrift clients have a configured token if tokens are required.
fn check_thrift_token(
    thrift: &Listen,
    access: Option<&Arc<Access>>,
    token: Option<&TokenName>,
) -> Result<(), Failure> {
    match (access, token) {
        (None, Some(_)) => {
            Err(Failure::flag("--thrift-token", "requires --tokens-file FILE, which has the token"))
        }
        (Some(_), None) if *thrift != Listen::Off => Err(Failure::flag(
            "--thrift",
            "with --tokens-file every client needs a token, and Thrift cannot send one; name the token whose rights and quotas \
             its clients have: --thrift-token NAME",
        )),
        (Some(access), Some(token)) => access
            .identity_of(token)
            .map(|_| ())
            .map_err(|error| Failure::flag("--thrift-token", format!("{token}: {error}"))),
        _ => Ok(()),
    }
}

/// Rejects addresses on which other machines could draw ids without explicit permission, or could read
/// tokens.
fn check_outside(ports: &[(&str, &Listen)], settings: &Settings) -> Result<(), Failure> {
    let (tls, has_tokens) = (settings.tls.as_deref(), settings.access.is_some());
    if tls.is_some_and(Tls::requires_client_certificates) {
        return Ok(());
    }
    for (flag, listen) in ports.iter().filter(|(_, listen)| !listen.is_loopback()) {
        let certificates = "--tls-cert FILE --tls-key FILE --tls-client-ca FILE";
        let serve = format!("`snowmint serve {flag} {listen}");
        let why = match (*flag, has_tokens, tls.is_some()) {
            ("--thrift", ..) => format!(
                "other machines can connect, and Thrift cannot send a token; require client certificates: {serve} {certificates}`, \
                 or accept every client: {serve} --insecure`"
            ),
            (_, true, true) => continue,
            (_, true, false) => format!(
                "tokens would cross the network in plain text; use TLS: {serve} --tokens-file FILE --tls-cert FILE --tls-key FILE`, \
                 or, in a network that nobody can listen to, {serve} --tokens-file FILE --insecure`"
            ),
            (_, false, _) => format!(
                "other machines can connect, and nothing checks who they are; make a token: `snowmint token create NAME \
                 --namespaces NAMES --file tokens.toml`, and require it: {serve} --tokens-file tokens.toml --tls-cert FILE --tls-key \
                 FILE`; or require client certificates: {serve} {certificates}`, or accept every client: {serve} --insecure`"
            ),
        };
        return Err(Failure::flag(&format!("{flag} {listen}"), why));
    }
    Ok(())
}

fn check_ports(ports: &[(&str, &Listen)]) -> Result<(), Failure> {
    if ports.iter().all(|(_, listen)| matches!(listen, Listen::Off)) {
        let off: Vec<_> = ports.iter().map(|(flag, _)| format!("{flag} off")).collect();
        return Err(Failure::usage(format!(
            "{}: nothing to serve; give one of them an address",
            off.join(" and ")
        )));
    }
    Ok(())
}

/// Rejects two listeners on one address.
fn check_addresses(args: &Args) -> Result<(), Failure> {
    let ports = [&args.ports()[..], &[("--probe", &args.probe)]].concat();
    for (index, (flag, listen)) in ports.iter().enumerate() {
        if let Listen::Off | Listen::Systemd | Listen::At { port: 0, .. } = listen {
            continue;
        }
        let same = ports[..index].iter().find(|(_, other)| other == listen);
        if let Some((other, _)) = same {
            return Err(Failure::usage(format!(
                "{other} and {flag} are both {listen}: give each its own address"
            )));
        }
    }
    Ok(())
}

fn check_workers(layout: &Layout, worker: Option<WorkerId>, workers: WorkerCount) -> Result<(), Failure> {
    if let (Some(worker), true) = (worker, workers.max() > 1) {
        return Err(Failure::usage(format!(
            "--worker {worker} requires one worker, --workers {workers} several: remove one of the two flags"
        )));
    }
    let limit = layout.max(Field::Worker) + 1;
    if u64::from(workers.max()) > limit {
        let why = format!(
            "{workers} is above the limit: the layout `{layout}` has {limit} workers in a datacenter"
        );
        return Err(Failure::flag("--workers", why));
    }
    Ok(())
}

/// Checks the times that a lease or a generator would reject later.
fn check_times(layout: &Layout, window: Duration, rule: Rule) -> Result<(), Failure> {
    let tick = layout.tick();
    if window < tick * 3 {
        return Err(Failure::flag(
            "--window",
            format!("{window:?} is shorter than three ticks of {tick:?}: expected at least {:?}", tick * 3),
        ));
    }
    let generator =
        Generator::builder(*layout).worker(WorkerId(0)).rule(rule).build(ManualClock::at_unix_ms(0));
    generator.map(|_| ()).map_err(|error| Failure::flag("--rule", error))
}
