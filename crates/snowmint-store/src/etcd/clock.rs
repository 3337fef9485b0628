//! The clock of an etcd cluster: the `Date` with which its members answer HTTP requests. gRPC shows no time.
//!
//! The client port of etcd also answers HTTP, unless `--listen-client-http-urls` moves that to another port.
//! Then the store has no clock. A short silence is a failure instead: it must not hide the clock from a node
//! that starts.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::DATE;
use hyper::http::uri::InvalidUri;
use hyper::{Request, Uri};
use rustls::ClientConfig;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::CONNECT;
use super::error::{EtcdFailure, EtcdProtocol};
use crate::error::chain;
use crate::net::https::{self, HttpsClient, date_unix_ms};

/// The limit for an answer, which costs a member no work.
const ANSWER: Duration = Duration::from_secs(1);
/// The limit for the other answers, once a member has answered with its time.
const AFTER_THE_FIRST: Duration = Duration::from_millis(100);
/// Questions without a time, and the time since the first of them, after which etcd has no clock.
const SILENT: (u32, Duration) = (3, Duration::from_millis(500));
/// The time after which a clock that was there before is gone.
const SILENT_LATER: Duration = Duration::from_mins(1);
/// The pause before the next question.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long the store then has no clock, before the next question.
const NO_CLOCK: Duration = Duration::from_mins(1);
/// The limit for the rest of an answer whose time was read.
const REST: Duration = Duration::from_millis(100);
/// The page to request. Every version has it, for every user, and makes it from memory.
const PAGE: &str = "/version";
/// The maximum bytes of that page, which are not used: another program may answer.
const LARGEST_PAGE: usize = 64 << 10;
/// Clocks of members that differ by this are reported. They show whole seconds, and are read within one.
const APART_MS: u64 = 5_000;

/// The clocks of all members.
pub(super) struct EtcdClock {
    http: HttpsClient,
    members: Vec<MemberClock>,
    protocol: EtcdProtocol,
    silence: Mutex<Silence>,
}

/// The page of a member that shows its time.
pub(super) struct MemberClock {
    host: String,
    page: Uri,
}

/// What is known about members that show no time.
#[derive(Debug, Default)]
struct Silence {
    /// Whether a member has shown its time since etcd was found to have no clock.
    has_clock: bool,
    /// When the first question was asked since then.
    since: Option<Instant>,
    /// Questions that were answered without a time.
    in_vain: u32,
    /// The newest questions, whose answers the caller did not wait for.
    unheard: u32,
    /// When it was found that etcd has no clock, and why.
    no_clock: Option<(Instant, String)>,
}

/// What follows from an answer without a time.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    NoClock,
    Failure,
    AskAgain,
}

impl Silence {
    /// Begins a question. Returns `false` if etcd has no clock.
    fn ask(&mut self) -> bool {
        if self.no_clock.as_ref().is_some_and(|(found, _)| found.elapsed() < NO_CLOCK) {
            return false;
        }
        self.since.get_or_insert_with(Instant::now);
        if !self.has_clock && self.unheard >= SILENT.0 && self.lasts(SILENT.1) {
            self.found_no_clock("no answer to an HTTP request".to_owned());
            return false;
        }
        self.unheard += 1;
        true
    }

    /// Ends a question without a time. `is_sure` says that every member answered.
    fn answered(&mut self, why: String, is_sure: bool) -> Verdict {
        self.unheard = 0;
        self.in_vain += 1;
        match self.has_clock {
            true if is_sure && self.lasts(SILENT_LATER) => {}
            true => return Verdict::Failure,
            false if self.in_vain >= SILENT.0 && self.lasts(SILENT.1) => {}
            false => return Verdict::AskAgain,
        }
        self.found_no_clock(why);
        Verdict::NoClock
    }

    fn found_no_clock(&mut self, why: String) {
        *self = Self { no_clock: Some((Instant::now(), why)), ..Self::default() };
    }

    fn lasts(&self, least: Duration) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= least)
    }
}

/// The answers of the members, each with its host.
#[derive(Default)]
struct MemberAnswers {
    times: Vec<(String, u64)>,
    without_time: Vec<String>,
    late: Vec<String>,
    unreachable: Vec<String>,
}

/// The reason why a member did not show its time.
enum NoTime {
    Unreachable(String),
    Late,
    /// It answers, but without a time.
    Without(String),
}

impl fmt::Debug for EtcdClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdClock").field("silence", &*self.silence()).finish_non_exhaustive()
    }
}

impl EtcdClock {
    pub(super) fn new(members: Vec<MemberClock>, tls: ClientConfig, protocol: EtcdProtocol) -> Self {
        Self { http: https::client(tls, CONNECT), members, protocol, silence: Mutex::default() }
    }

    /// Returns the time in Unix milliseconds, or `None` if the members answer gRPC alone.
    ///
    /// Of the members that answer about as fast as the first, the middle clock counts: one wrong clock
    /// refuses no node.
    pub(super) async fn unix_ms(&self) -> Result<Option<u64>, EtcdFailure> {
        loop {
            // Counted before the answer: a caller may have a shorter limit.
            if !self.silence().ask() {
                return Ok(None);
            }
            let MemberAnswers { times, without_time, late, unreachable } = self.ask().await;
            if let Some(unix_ms) = middle(times) {
                *self.silence() = Silence { has_clock: true, ..Silence::default() };
                return Ok(Some(unix_ms));
            }
            if without_time.is_empty() && late.is_empty() {
                // An outage says nothing about a clock.
                self.silence().unheard = 0;
                return Err(EtcdFailure::to_connect(&unreachable, self.protocol));
            }
            let is_sure = late.is_empty() && unreachable.is_empty();
            let why = [without_time, late, unreachable].concat().join("; ");
            let verdict = self.silence().answered(why.clone(), is_sure);
            match verdict {
                Verdict::NoClock => return Ok(None),
                Verdict::Failure => {
                    return Err(EtcdFailure::NoConnection(format!(
                        "no member showed its time over HTTP: {why}"
                    )));
                }
                Verdict::AskAgain => sleep(ASK_AGAIN).await,
            }
        }
    }

    /// Returns why the last question found no clock.
    pub(super) fn missing(&self) -> Option<String> {
        self.silence().no_clock.as_ref().map(|(_, why)| why.clone())
    }

    /// Returns which members have clocks that differ.
    pub(super) async fn apart(&self) -> Option<String> {
        apart(&self.ask().await.times)
    }

    fn silence(&self) -> MutexGuard<'_, Silence> {
        // Each change is complete when the lock is released.
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all members at once.
    async fn ask(&self) -> MemberAnswers {
        let deadline = Instant::now() + ANSWER;
        let ask = async |member: &MemberClock| {
            let answer = timeout_at(deadline, member.unix_ms(&self.http)).await;
            (member.host.clone(), answer.unwrap_or(Err(NoTime::Late)))
        };
        let mut asked: FuturesUnordered<_> = self.members.iter().map(ask).collect();
        let (mut answers, mut until) = (MemberAnswers::default(), None);
        loop {
            let next = match until {
                None => asked.next().await,
                Some(until) => timeout_at(until, asked.next()).await.ok().flatten(),
            };
            let Some((host, answer)) = next else { return answers };
            match answer {
                Ok(unix_ms) => {
                    answers.times.push((host, unix_ms));
                    until.get_or_insert(Instant::now() + AFTER_THE_FIRST);
                }
                Err(NoTime::Without(why)) => answers.without_time.push(format!("{host}: {why}")),
                Err(NoTime::Late) => {
                    answers.late.push(format!("{host}: no answer within {} ms", ANSWER.as_millis()));
                }
                Err(NoTime::Unreachable(why)) => answers.unreachable.push(format!("{host}: {why}")),
            }
        }
    }
}

impl MemberClock {
    pub(super) fn of(scheme: &str, host: &str) -> Result<Self, InvalidUri> {
        Ok(Self { host: host.to_owned(), page: format!("{scheme}://{host}{PAGE}").parse()? })
    }

    async fn unix_ms(&self, http: &HttpsClient) -> Result<u64, NoTime> {
        let mut request = Request::new(Full::<Bytes>::default());
        *request.uri_mut() = self.page.clone();
        let response = match http.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Err(NoTime::Unreachable(chain(&error))),
            Err(error) => return Err(NoTime::Without(chain(&error))),
        };
        // A proxy's, for example.
        if !response.status().is_success() {
            return Err(NoTime::Without(format!("HTTP status {}", response.status())));
        }
        let date = response.headers().get(DATE).and_then(|date| date_unix_ms(date.to_str().ok()?));
        // Read to its end, so that the connection can be used again.
        let _ = timeout(REST, Limited::new(response.into_body(), LARGEST_PAGE).collect()).await;
        date.ok_or_else(|| NoTime::Without("an HTTP answer without a Date".to_owned()))
    }
}

/// Returns the middle time; of two, the later one.
fn middle(mut times: Vec<(String, u64)>) -> Option<u64> {
    times.sort_by_key(|(_, unix_ms)| *unix_ms);
    times.get(times.len() / 2).map(|(_, unix_ms)| *unix_ms)
}

fn apart(times: &[(String, u64)]) -> Option<String> {
    let (first, first_ms) = times.iter().min_by_key(|(_, unix_ms)| *unix_ms)?;
    let (last, last_ms) = times.iter().max_by_key(|(_, unix_ms)| *unix_ms)?;
    let apart_ms = last_ms - first_ms;
    (apart_ms >= APART_MS).then(|| {
        format!(
            "the clock of the etcd member {last} is {} s ahead of that of {first}: nodes compare theirs with the middle one; \
             correct the wrong one",
            apart_ms / 1000
        )
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::net::tls;
    use crate::net::url::TlsFiles;

    fn why() -> String {
        "closed".to_owned()
    }

    /// Goal: a short silence is not taken for a store without a clock, a long one is, and for a minute nobody
    /// asks again.
    #[tokio::test(start_paused = true)]
    async fn only_a_long_silence_shows_that_there_is_no_clock() {
        let mut silence = Silence::default();
        for _ in 0..10 {
            assert!(silence.ask());
            assert_eq!(silence.answered(why(), false), Verdict::AskAgain, "all within an instant");
        }
        tokio::time::advance(SILENT.1).await;
        assert!(silence.ask());
        assert_eq!(silence.answered(why(), false), Verdict::NoClock);
        assert!(!silence.ask() && silence.no_clock.is_some());
        tokio::time::advance(NO_CLOCK).await;
        assert!(silence.ask());
    }

    /// Goal: callers with a shorter limit than an answer takes get `None` too, after each pause.
    #[tokio::test(start_paused = true)]
    async fn callers_that_wait_for_no_answer_are_not_stopped() {
        let mut silence = Silence::default();
        for _ in 0..3 {
            for _ in 0..SILENT.0 {
                assert!(silence.ask());
                tokio::time::advance(SILENT.1).await;
            }
            assert!(!silence.ask());
            tokio::time::advance(NO_CLOCK).await;
        }
    }

    /// Goal: a clock that was there is gone only if every member answers without a time for a while; then a
    /// node goes on.
    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_there_is_not_given_up_soon() {
        let mut silence = Silence { has_clock: true, ..Silence::default() };
        assert!(silence.ask());
        assert_eq!(silence.answered(why(), true), Verdict::Failure);
        tokio::time::advance(SILENT_LATER).await;
        assert!(silence.ask());
        assert_eq!(silence.answered(why(), false), Verdict::Failure, "one was late");
        assert_eq!(silence.answered(why(), true), Verdict::NoClock);
        tokio::time::advance(NO_CLOCK).await;
        assert!(silence.ask());
        assert_eq!(silence.answered(why(), true), Verdict::AskAgain, "no minute of failures");
    }

    #[test]
    fn one_wrong_clock_of_three_does_not_count_and_is_named() {
        let times = |last_ms| ["a", "b", "c"].map(str::to_owned).into_iter().zip([7_500, 8_500, last_ms]);
        for wrong_ms in [500, 3_600_500] {
            assert!(middle(times(wrong_ms).collect()).is_some_and(|it| (7_500..=8_500).contains(&it)));
            let text = apart(&times(wrong_ms).collect::<Vec<_>>()).unwrap_or_default();
            assert_eq!(text.contains("member c is 3593 s ahead of that of a"), wrong_ms > 8_500, "{text}");
        }
        assert_eq!((middle(Vec::new()), apart(&[])), (None, None));
    }

    /// Goal: the `Date` of a refusal, such as a proxy's, is no clock.
    #[tokio::test]
    async fn a_refusal_tells_no_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let _ = client.read(&mut [0; 1024]).await;
                let date = "date: Thu, 01 Jan 1970 00:00:07 GMT";
                let answer = format!(
                    "HTTP/1.1 404 Not Found\r\n{date}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                );
                let _ = client.write_all(answer.as_bytes()).await;
            }
        });
        let files = TlsFiles { ca: None, client: None };
        let tls = tls::config(&files, tls::DefaultRoots::Nobody).unwrap();
        let clock = EtcdClock::new(vec![MemberClock::of("http", &host).unwrap()], tls, EtcdProtocol::Plain);
        assert_eq!(clock.unix_ms().await.unwrap(), None);
        assert!(clock.missing().is_some_and(|why| why.contains(&host) && why.contains("404")));
    }
}
