//! The server as stores and counters use it: scripts that write once, and the copies that have to confirm it.
//! Its errors bear the name of whoever asks.

use std::time::Duration;

use redis::{FromRedisValue, Pipeline, Value, from_redis_value};

use super::cause;
use super::link::{Failure, Link};
use super::scripts::{self, Request};
use crate::network::Effect;
use crate::{StoreError, StoreErrorKind};

/// How many replicas have to have what was written, and how long to wait for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Copies {
    pub(super) wanted: u64,
    pub(super) wait_ms: u64,
}

/// What a walk through all keys of a server found.
#[derive(Default)]
pub(crate) struct Found {
    /// What the server calls this run of itself.
    pub(super) server: String,
    pub(crate) keys: Vec<String>,
}

/// A connection to the primary, and what it is called in logs.
pub(crate) struct Server {
    link: Link,
    copies: Option<Copies>,
    pub(crate) may_lose: Duration,
    pub(crate) name: String,
}

impl Server {
    pub(super) const fn new(link: Link, copies: Option<Copies>, may_lose: Duration, name: String) -> Self {
        Self { link, copies, may_lose, name }
    }

    /// Runs a script and, where copies are asked for, waits for them.
    pub(crate) async fn call(
        &self,
        operation: &'static str,
        effect: Effect,
        request: &Request,
    ) -> Result<Value, StoreError> {
        let answers = self.link.call(effect, &|by_hash| request.pipeline(by_hash, self.copies)).await;
        let (answers, sent) = answers.map_err(|failure| self.error(operation, effect, failure))?;
        let mut answers = answers.into_iter();
        let (Some(answer), copies) = (answers.next(), answers.next()) else {
            return Err(self.error(operation, effect, Failure::Strange("no answer at all".to_owned())));
        };
        // A conflict or a refused addition changed nothing that could be lost. Not all of these get as far as a write, so
        // a server that takes none may answer them.
        let changed = effect == Effect::Reads || !matches!(answer, Value::Int(..=0));
        if let Some(wanted) = self.copies.map(|it| it.wanted).filter(|_| changed) {
            confirmed(copies, wanted).map_err(|failure| self.error(operation, effect, failure))?;
        }
        if changed {
            self.link.acknowledged(sent);
        }
        Ok(answer)
    }

    /// Sends commands that change nothing, and returns their answers.
    pub(crate) async fn ask(
        &self,
        operation: &'static str,
        commands: impl Fn() -> Pipeline + Sync,
    ) -> Result<Vec<Value>, StoreError> {
        let answers = self.link.call(Effect::Reads, &|_| commands()).await;
        // Says nothing of writes, which the server may refuse meanwhile.
        answers.map(|(answers, _)| answers).map_err(|failure| self.error(operation, Effect::Reads, failure))
    }

    /// The line of writes that the primary in use adds to, which no other server does. `None` for clusters.
    pub(crate) fn line(&self) -> Option<String> {
        self.link.line()
    }

    /// All keys that fit a pattern, some of them twice.
    ///
    /// A walk that began on one server and ended on another may have missed some, and is an error.
    pub(crate) async fn scan(&self, operation: &'static str, pattern: &str) -> Result<Found, StoreError> {
        let (mut cursor, mut found) = ("0".to_owned(), None::<Found>);
        loop {
            let answers = self.ask(operation, || scripts::scan(&cursor, pattern)).await?;
            let mut answers = answers.into_iter();
            let (next, page): (String, Vec<String>) =
                self.parse(operation, Effect::Reads, answers.next().unwrap_or(Value::Nil))?;
            let told: String = answers.next().and_then(|it| from_redis_value(it).ok()).unwrap_or_default();
            let server =
                told.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default().trim();
            let found = found.get_or_insert_with(|| Found { server: server.to_owned(), keys: Vec::new() });
            if found.server != server {
                return Err(self.moved_on(operation));
            }
            found.keys.extend(page);
            if next == "0" {
                return Ok(std::mem::take(found));
            }
            cursor = next;
        }
    }

    /// The error of a call in several steps whose steps were not all on one server.
    pub(super) fn moved_on(&self, operation: &'static str) -> StoreError {
        let text = "another server took over during the call; retry";
        StoreError::new(StoreErrorKind::Unavailable, operation, &*self.name, text)
    }

    pub(crate) fn parse<T: FromRedisValue>(
        &self,
        operation: &'static str,
        effect: Effect,
        value: Value,
    ) -> Result<T, StoreError> {
        from_redis_value(value)
            .map_err(|error| self.error(operation, effect, Failure::Strange(error.to_string())))
    }

    pub(super) fn error(&self, operation: &'static str, effect: Effect, failure: Failure) -> StoreError {
        cause::store_error(&self.name, operation, effect, failure)
    }
}

/// Whether the answer to `WAIT` names enough replicas.
fn confirmed(answer: Option<Value>, wanted: u64) -> Result<(), Failure> {
    match answer.map(from_redis_value::<u64>) {
        Some(Ok(found)) if found >= wanted => Ok(()),
        Some(Ok(found)) => Err(Failure::NotConfirmed(format!(
            "{found} replicas have confirmed this, and wait_replicas asks for {wanted}"
        ))),
        Some(Err(error)) => Err(Failure::NotConfirmed(format!("Redis did not wait for replicas: {error}"))),
        None => Err(Failure::NotConfirmed("Redis did not wait for replicas".to_owned())),
    }
}
