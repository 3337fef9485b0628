//! Parses the URL of an etcd cluster and sends calls: one channel to each member, and the next member when
//! one fails. Distinguishes failures before a call was sent from later ones: a write that fails later may
//! have happened.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::ClientConfig;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};

use super::clock::{EtcdClock, MemberClock};
use super::error::{EtcdFailure, EtcdProtocol};
use super::wire::auth_client::AuthClient;
use super::wire::kv_client::KvClient;
use super::wire::maintenance_client::MaintenanceClient;
use super::{CONNECT, wire};
use crate::UrlError;
use crate::error::chain;
use crate::net::tls::{self, DefaultRoots};
use crate::net::url::{Host, Login, StoreUrl};

/// The limit for one member to answer a read, before the next one is asked; an election takes 1 to 2 s.
const READ: Duration = Duration::from_secs(2);
/// The limit for a read with all its retries.
const READS: Duration = Duration::from_secs(6);
/// The limit for a write to get a connection.
const WRITE_CONNECT: Duration = Duration::from_secs(4);
/// The limit for the answer to a write; etcd itself gives up after 7 s.
const WRITE: Duration = Duration::from_secs(5);
/// The maximum bytes of one answer: a page of records of 64 KiB.
pub(super) const LARGEST_ANSWER: usize = 64 << 20;

/// The token of a login.
type Token = MetadataValue<Ascii>;

/// Connections to the members of a cluster.
pub(super) struct EtcdClient {
    members: Vec<EtcdMember>,
    /// The member to try first.
    current: AtomicUsize,
    shown_hosts: String,
    login: Option<Login>,
    protocol: EtcdProtocol,
    token: Mutex<Option<Token>>,
}

struct EtcdMember {
    endpoint: Endpoint,
    channel: Mutex<Option<Channel>>,
}

impl fmt::Debug for EtcdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdClient").field("hosts", &self.shown_hosts).finish_non_exhaustive()
    }
}

impl EtcdClient {
    pub(super) fn new(
        endpoints: Vec<Endpoint>,
        shown_hosts: String,
        login: Option<Login>,
        protocol: EtcdProtocol,
    ) -> Self {
        let member = |endpoint: Endpoint| {
            let endpoint = endpoint.connect_timeout(CONNECT).tcp_keepalive(Some(Duration::from_secs(10)));
            EtcdMember { endpoint, channel: Mutex::new(None) }
        };
        let members = endpoints.into_iter().map(member).collect();
        Self { members, current: AtomicUsize::new(0), shown_hosts, login, protocol, token: Mutex::new(None) }
    }

    pub(super) fn shown_hosts(&self) -> &str {
        &self.shown_hosts
    }

    /// Sends a read to one member after the other until one answers.
    pub(super) async fn range(
        &self,
        request: &wire::RangeRequest,
    ) -> Result<wire::RangeResponse, EtcdFailure> {
        let deadline = Instant::now() + READS;
        let mut failure = EtcdFailure::NoConnection("no member was asked".to_owned());
        // One try more than there are members: a broken connection is noticed only when it is used.
        for _ in 0..=self.members.len() {
            let read = self.call(READS, READ, |channel, token| range(channel, token, request.clone()));
            match timeout_at(deadline, read).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(EtcdFailure::Status(status))) if !is_about_the_member(&status) => {
                    return Err(EtcdFailure::Status(status));
                }
                Ok(Err(EtcdFailure::Login(status))) if !is_about_the_member(&status) => {
                    return Err(EtcdFailure::Login(status));
                }
                Ok(Err(failed)) => failure = failed,
                Err(_) => return Err(EtcdFailure::NoAnswer(READS)),
            }
        }
        Err(failure)
    }

    /// Checks that all members belong to one cluster: a URL with members of two would be two stores. A member
    /// that does not answer now is not checked.
    pub(super) async fn check_cluster(&self, probe: &wire::RangeRequest) -> Result<(), EtcdFailure> {
        let mut first: Option<(u64, String)> = None;
        for member in &self.members {
            let ask = async {
                // Dropped after the check: calls need one connection, not one to each member.
                let channel = member.endpoint.connect().await.ok()?;
                let token = self.token(&channel).await.ok()?;
                range(channel, token, probe.clone()).await.ok()?.into_inner().header
            };
            let Ok(Some(header)) = timeout(CONNECT, ask).await else { continue };
            let host = member.host();
            match &first {
                Some((id, other)) if *id != header.cluster_id => {
                    return Err(EtcdFailure::TwoClusters(other.clone(), host));
                }
                Some(_) => {}
                None => first = Some((header.cluster_id, host)),
            }
        }
        Ok(())
    }

    /// Returns the status of each member that answers, with its host.
    pub(super) async fn statuses(&self) -> Vec<(String, wire::StatusResponse)> {
        let mut statuses = Vec::new();
        for member in &self.members {
            let ask = async {
                let channel = member.endpoint.connect().await.ok()?;
                let token = self.token(&channel).await.ok()?;
                let request = with_token(wire::StatusRequest {}, token);
                Some(MaintenanceClient::new(channel).status(request).await.ok()?.into_inner())
            };
            if let Ok(Some(status)) = timeout(READ, ask).await {
                statuses.push((member.host(), status));
            }
        }
        statuses
    }

    /// Sends a write, once.
    pub(super) async fn transact(
        &self,
        request: &wire::TxnRequest,
    ) -> Result<wire::TxnResponse, EtcdFailure> {
        self.call(WRITE_CONNECT, WRITE, |channel, token| transact(channel, token, request.clone())).await
    }

    /// Makes a call on the current member, and retries it with a new token if etcd refused the old one.
    async fn call<T, F>(
        &self,
        connect: Duration,
        answer: Duration,
        send: impl Fn(Channel, Option<Token>) -> F,
    ) -> Result<T, EtcdFailure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let (index, channel, token) = self.ready(connect).await?;
        let unanswered = UnansweredCall { link: self, member: index };
        let mut answered = timeout(answer, send(channel, token.clone())).await;
        if let (Ok(Err(status)), Some(token)) = (&answered, &token)
            && wants_new_token(status)
        {
            self.forget_token(token).await;
            let (_, channel, token) = self.ready(connect).await?;
            answered = timeout(answer, send(channel, token)).await;
        }
        match answered {
            Ok(Ok(answer)) => {
                unanswered.settled();
                Ok(answer.into_inner())
            }
            Ok(Err(status)) => {
                if !is_about_the_member(&status) {
                    unanswered.settled();
                }
                Err(match status.source() {
                    Some(error) if is_connect_error(&status) => EtcdFailure::NoConnection(chain(error)),
                    Some(error) => EtcdFailure::Broken(chain(error), self.protocol),
                    None => EtcdFailure::Status(Box::new(status)),
                })
            }
            Err(_) => Err(EtcdFailure::NoAnswer(answer)),
        }
    }

    /// Prepares everything that a call needs before it is sent. A failure up to here has written nothing.
    async fn ready(&self, within: Duration) -> Result<(usize, Channel, Option<Token>), EtcdFailure> {
        let ready = async {
            let (index, channel) = self.channel().await?;
            let unanswered = UnansweredCall { link: self, member: index };
            let token = timeout(READ, self.token(&channel)).await;
            let token =
                token.map_err(|_| EtcdFailure::NoConnection("no answer to the login".to_owned()))??;
            unanswered.settled();
            Ok((index, channel, token))
        };
        let late = |_| EtcdFailure::NoConnection(format!("no connection in {} s", within.as_secs()));
        timeout(within, ready).await.map_err(late)?
    }

    /// Returns a channel to the first reachable member, from the current one on.
    async fn channel(&self) -> Result<(usize, Channel), EtcdFailure> {
        let first = self.current.load(Ordering::Relaxed);
        let mut failed = Vec::new();
        for step in 0..self.members.len() {
            let index = (first + step) % self.members.len();
            match self.members[index].channel().await {
                Ok(channel) => {
                    self.current.store(index, Ordering::Relaxed);
                    return Ok((index, channel));
                }
                Err(error) => failed.push(error),
            }
        }
        failed.dedup();
        Err(EtcdFailure::to_connect(&failed, self.protocol))
    }

    /// Moves on from a member that failed: its channel is reopened when its turn comes again.
    fn move_on(&self, from: usize) {
        // If it is locked, another call is reopening it.
        if let Ok(mut channel) = self.members[from].channel.try_lock() {
            *channel = None;
        }
        let next = (from + 1) % self.members.len();
        // If many calls fail at once, only one of them moves on.
        let _ = self.current.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the token of the login; fetches it if there is none.
    async fn token(&self, channel: &Channel) -> Result<Option<Token>, EtcdFailure> {
        let Some(login) = &self.login else {
            return Ok(None);
        };
        let mut token = self.token.lock().await;
        if token.is_some() {
            return Ok(token.clone());
        }
        let password = login.password().map_err(|error| EtcdFailure::NoConnection(error.to_string()))?;
        let request =
            wire::AuthenticateRequest { name: login.user.clone(), password: password.expose().to_owned() };
        match AuthClient::new(channel.clone()).authenticate(request).await {
            Ok(answer) => {
                let fresh = MetadataValue::try_from(answer.into_inner().token);
                *token = Some(
                    fresh.map_err(|_| EtcdFailure::NoConnection("etcd sent an invalid token".to_owned()))?,
                );
                Ok(token.clone())
            }
            // A cluster without authentication accepts any call, as its own clients assume.
            Err(status) if status.code() == Code::FailedPrecondition => Ok(None),
            Err(status) => Err(EtcdFailure::Login(Box::new(status))),
        }
    }

    /// Drops a token unless another call has already fetched a new one.
    async fn forget_token(&self, refused: &Token) {
        let mut token = self.token.lock().await;
        if token.as_ref() == Some(refused) {
            *token = None;
        }
    }
}

/// A call that a member has not answered yet. If it is dropped without an answer, also by a caller with a
/// shorter limit, the client moves on: otherwise it would keep calling an unresponsive member.
struct UnansweredCall<'a> {
    link: &'a EtcdClient,
    member: usize,
}

impl UnansweredCall<'_> {
    /// The member has answered.
    fn settled(self) {
        std::mem::forget(self);
    }
}

impl Drop for UnansweredCall<'_> {
    fn drop(&mut self) {
        self.link.move_on(self.member);
    }
}

/// Reads a range of keys.
async fn range(
    channel: Channel,
    token: Option<Token>,
    request: wire::RangeRequest,
) -> Result<Response<wire::RangeResponse>, Status> {
    let mut client = KvClient::new(channel).max_decoding_message_size(LARGEST_ANSWER);
    client.range(with_token(request, token)).await
}

/// Makes a transaction.
async fn transact(
    channel: Channel,
    token: Option<Token>,
    request: wire::TxnRequest,
) -> Result<Response<wire::TxnResponse>, Status> {
    KvClient::new(channel).txn(with_token(request, token)).await
}

impl EtcdMember {
    fn host(&self) -> String {
        self.endpoint.uri().authority().map(ToString::to_string).unwrap_or_default()
    }

    async fn channel(&self) -> Result<Channel, String> {
        let mut channel = self.channel.lock().await;
        if let Some(channel) = &*channel {
            return Ok(channel.clone());
        }
        let host = self.host();
        match timeout(CONNECT, self.endpoint.connect()).await {
            Ok(Ok(opened)) => Ok(channel.insert(opened).clone()),
            Ok(Err(error)) => Err(format!("{host}: {}", chain(&error))),
            Err(_) => Err(format!("{host}: no connection in {} ms", CONNECT.as_millis())),
        }
    }
}

fn with_token<T>(message: T, token: Option<Token>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}

/// Returns whether another member may succeed: the connection failed, or the member is partitioned or
/// stopping.
fn is_about_the_member(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::Unknown
            | Code::Internal
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
    )
}

/// Returns whether the request was never sent: the channel had lost its connection and could not reconnect.
fn is_connect_error(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Returns whether etcd refused the token before it read the request: expired, lost in a restart, or older
/// than a change of users.
fn wants_new_token(status: &Status) -> bool {
    status.code() == Code::Unauthenticated || status.message().contains("revision of auth store is old")
}

const PORT: u16 = 2379;
const PREFIX: &str = "snowmint/";
const PARAMETERS: &str = "prefix, password_file, tls, ca, cert and key";

/// Returns the prefix of all keys of the store: never empty, ends with `/`.
fn prefix(location: &mut StoreUrl) -> Result<String, UrlError> {
    let Some(prefix) = location.take("prefix") else {
        return Ok(PREFIX.to_owned());
    };
    match prefix.trim_end_matches('/') {
        "" => Err(location.malformed("invalid prefix: expected text, such as snowmint/")),
        prefix => Ok(format!("{prefix}/")),
    }
}

/// Parses `etcd://...` or `etcds://...`.
fn location(url: &str) -> Result<StoreUrl, UrlError> {
    let location = StoreUrl::of_url(url, &["etcd", "etcds"], PORT)?;
    location.require_host("etcd://10.0.0.7:2379")?;
    if !location.path.is_empty() {
        return Err(location
            .malformed("unexpected path after the hosts: use ?prefix=TEXT for another prefix of the keys"));
    }
    Ok(location)
}

/// What a URL says.
#[derive(Debug)]
pub(super) struct EtcdSettings {
    pub(super) link: EtcdClient,
    pub(super) clock: EtcdClock,
    /// Of all keys.
    pub(super) prefix: String,
}

pub(super) fn settings(url: &str) -> Result<EtcdSettings, UrlError> {
    let mut location = location(url)?;
    let login = location.take_login()?;
    let prefix = prefix(&mut location)?;
    let EtcdTls { grpc: tls, http, protocol } = tls(&mut location)?;
    location.finish(PARAMETERS)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let member_clock = |host: &Host| {
        let clock = MemberClock::of(scheme, &host.to_string());
        clock.map_err(|error| location.malformed(&error.to_string()))
    };
    let endpoint = |host: &Host| {
        let refuse = |error: tonic::transport::Error| location.malformed(&chain(&error));
        let endpoint = Endpoint::from_shared(format!("{scheme}://{host}")).map_err(refuse)?;
        match &tls {
            Some(tls) => endpoint.tls_config(tls.clone()).map_err(refuse),
            None => Ok(endpoint),
        }
    };
    let endpoints: Result<Vec<_>, _> = location.hosts.iter().map(endpoint).collect();
    let clocks: Result<Vec<_>, _> = location.hosts.iter().map(member_clock).collect();
    Ok(EtcdSettings {
        link: EtcdClient::new(endpoints?, location.shown_hosts(), login, protocol),
        clock: EtcdClock::new(clocks?, http, protocol),
        prefix,
    })
}

/// The same settings of TLS for both protocols.
struct EtcdTls {
    /// `None` without TLS.
    grpc: Option<ClientTlsConfig>,
    http: ClientConfig,
    protocol: EtcdProtocol,
}

fn tls(location: &mut StoreUrl) -> Result<EtcdTls, UrlError> {
    let said = location.take_switch("tls")?;
    let wanted = location.scheme == "etcds" || tls::PARAMETERS.into_iter().any(|it| location.has(it));
    if said == Some(false) && wanted {
        return Err(location.malformed("tls=false excludes etcds:, ca=, cert= and key="));
    }
    let uses_tls = wanted || said == Some(true);
    let default = if uses_tls { DefaultRoots::System } else { DefaultRoots::Nobody };
    let (http, files) = tls::take(location, None, default)?;
    if !uses_tls {
        return Ok(EtcdTls { grpc: None, http, protocol: EtcdProtocol::Plain });
    }
    let config = match files.ca {
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca.pem)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    Ok(match files.client {
        None => EtcdTls { grpc: Some(config), http, protocol: EtcdProtocol::Tls },
        Some((cert, key)) => {
            let grpc = Some(config.identity(Identity::from_pem(cert.pem, key.pem)));
            EtcdTls { grpc, http, protocol: EtcdProtocol::TlsWithCertificate }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_url_gives_hosts_and_a_prefix() {
        let EtcdSettings { link, prefix, .. } = settings("etcd://h1,h2:1?prefix=/team/a").unwrap();
        assert_eq!((link.shown_hosts(), &*prefix), ("h1:2379,h2:1", "/team/a/"));
        assert_eq!(settings("etcd://h").unwrap().prefix, "snowmint/");
        assert_eq!(settings("etcds://h?prefix=a/").unwrap().prefix, "a/");
    }

    #[test]
    fn a_switch_takes_each_word_that_is_usual() {
        for (word, uses_tls) in
            [("1", true), ("true", true), ("on", true), ("0", false), ("false", false), ("no", false)]
        {
            let url = format!("etcd://h?tls={word}");
            let mut location = location(&url).unwrap();
            assert_eq!(tls(&mut location).unwrap().grpc.is_some(), uses_tls, "{word}");
        }
    }

    #[test]
    fn a_mistake_in_a_url_is_told() {
        let cases = [
            ("etcd:h1", "missing `//`"),
            ("etcd://", "missing host"),
            ("etcd://h/path", "?prefix=TEXT"),
            ("etcd://h?prefix=/", "invalid prefix"),
            ("etcd://h?tsl=true", "unknown parameter `tsl`"),
            ("etcd://h?tls=maybe", "invalid tls: expected true or false"),
            ("etcds://h?tls=false", "excludes"),
            ("etcd://h?ca=/nowhere/ca.pem", "ca=/nowhere/ca.pem: No such file"),
            ("etcd://u@h?password_file=/nowhere", "password_file /nowhere: No such file"),
            ("etcd://:hunter2@h", "password without a user"),
        ];
        for (url, wanted) in cases {
            let error = settings(url).unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
