//! Compares answers of the driver, and the requests that the servers got, with what a scenario expects.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;

use crate::scenario::{Bound, Expect, ExpectError, Requests};
use crate::server::{Log, server_of};

/// What a scenario has seen so far, and what was wrong.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) problems: Vec<String>,
    returned: HashSet<String>,
    /// The index of the last id of each answer that came out.
    last: HashMap<usize, usize>,
}

/// A command whose answer is compared.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) op: &'a str,
    pub(crate) count: Option<u64>,
    /// Whether other commands ran at the same time, so that ids come out in any order.
    pub(crate) is_concurrent: bool,
    pub(crate) took: Duration,
}

impl Findings {
    pub(crate) fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    /// Compares an answer with what is expected, and its ids with those that servers gave.
    pub(crate) fn compare(
        &mut self,
        asked: &Asked<'_>,
        answer: &Value,
        expect: &Expect,
        urls: &BTreeMap<String, String>,
        log: &Log,
    ) {
        let took_ms = u64::try_from(asked.took.as_millis()).unwrap_or(u64::MAX);
        if expect.at_least_ms.is_some_and(|least| took_ms < least) {
            self.problem(format!("`{}` took {took_ms} ms only: {answer}", asked.op));
        }
        if expect.at_most_ms.is_some_and(|most| took_ms > most) {
            self.problem(format!("`{}` took {took_ms} ms: {answer}", asked.op));
        }
        let ids = self.ids(asked, answer, log);
        if asked.op == "fork" {
            // Ids of the child, if it has any, were checked like all others.
            let kind = &answer["error"]["kind"];
            if answer["unsupported"] != true && ids.is_empty() && kind != "Forked" {
                self.problem(format!("a forked child got {answer}: expected ids of its own, or `Forked`"));
            }
            return;
        }
        match (&expect.error, answer.get("error")) {
            (Some(expected), Some(error)) => self.compare_error(expected, error, urls),
            (Some(expected), None) => {
                self.problem(format!(
                    "`{}` returned {answer}: expected the error {}",
                    asked.op,
                    expected.kind.as_deref().unwrap_or_default()
                ));
            }
            (None, Some(_)) => self.problem(format!("`{}` returned {answer}: expected no error", asked.op)),
            (None, None) => self.compare_value(asked, answer, &ids, expect, urls),
        }
    }

    fn compare_value(
        &mut self,
        asked: &Asked<'_>,
        answer: &Value,
        ids: &[&str],
        expect: &Expect,
        urls: &BTreeMap<String, String>,
    ) {
        if ["next", "try_next"].contains(&asked.op) {
            let expected = expect.count.or(asked.count).unwrap_or(1);
            if ids.len() as u64 != expected && expect.ids.is_none() {
                self.problem(format!("`{}` returned {} ids: expected {expected}", asked.op, ids.len()));
            }
        }
        if let Some(expected) = &expect.ids
            && ids != expected
        {
            self.problem(format!("`{}` returned {ids:?}: expected {expected:?}", asked.op));
        }
        if !ids.iter().zip(&expect.first_ids).all(|(id, first)| id == first)
            || ids.len() < expect.first_ids.len()
        {
            self.problem(format!("`{}` returned {ids:?}: expected {:?} first", asked.op, expect.first_ids));
        }
        if let Some(from) = &expect.from {
            for id in ids {
                let server = server_of(id, urls).unwrap_or("no server");
                if !from.iter().any(|it| it == server) {
                    self.problem(format!("id {id} is of {server}: expected {from:?}"));
                    break;
                }
            }
        }
        let mut number = |name: &str, bound: Bound| {
            if !answer[name].as_u64().is_some_and(|value| bound.contains(value)) {
                self.problem(format!("`{}`: {name} is {}: expected {bound}", asked.op, answer[name]));
            }
        };
        if let Some(bound) = expect.buffered {
            number("buffered", bound);
        }
        for (name, bound) in &expect.numbers {
            number(name, *bound);
        }
        for (name, value) in expect.answer.iter().flatten() {
            if answer.get(name) != Some(value) {
                self.problem(format!("`{}`: {name} is {}: expected {value}", asked.op, answer[name]));
            }
        }
    }

    /// Reads the ids of an answer: each was given by a server, in this order, and none came out before.
    fn ids<'a>(&mut self, asked: &Asked<'_>, answer: &'a Value, log: &Log) -> Vec<&'a str> {
        let mut ids = Vec::new();
        for text in answer["ids"].as_array().into_iter().flatten() {
            let Some(id) = text.as_str() else {
                self.problem(format!("{text} is no id: expected a text"));
                continue;
            };
            ids.push(id);
            if !self.returned.insert(id.to_owned()) {
                self.problem(format!("id {id} was returned twice"));
            }
            match log.given.get(id) {
                Some(&(answer, index)) => {
                    let last = self.last.insert(answer, index);
                    if !asked.is_concurrent && last.is_some_and(|last| last >= index) {
                        self.problem(format!("id {id} came out after a later one of its answer"));
                    }
                }
                None if log.bad.contains(id) => {
                    self.problem(format!("id {id} is of an answer that is to be dropped"));
                }
                None => self.problem(format!("id {id} was given by no server")),
            }
        }
        ids
    }

    fn compare_error(&mut self, expected: &ExpectError, error: &Value, urls: &BTreeMap<String, String>) {
        let message = error["message"].as_str().unwrap_or_default();
        let mut compare = |name: &str, value: Value| {
            if error[name] != value {
                self.problems
                    .push(format!("{name} of the error is {}: expected {value}: {error}", error[name]));
            }
        };
        if let Some(kind) = &expected.kind {
            compare("kind", kind.clone().into());
        }
        if let Some(temporary) = expected.temporary {
            compare("temporary", temporary.into());
        }
        if let Some(status) = expected.status {
            compare("status", status.into());
        }
        if let Some(server) = &expected.server {
            let url = urls.get(server).cloned().unwrap_or_default();
            compare("server", url.clone().into());
            if !message.contains(&url) {
                self.problem(format!("the message does not name {url}: {message}"));
            }
        }
        if let Some(bound) = expected.retry_after_ms
            && !error["retry_after_ms"].as_u64().is_some_and(|value| bound.contains(value))
        {
            self.problem(format!("retry_after_ms is {}: expected {bound}", error["retry_after_ms"]));
        }
        if message.is_empty() {
            self.problem(format!("the error has no message: {error}"));
        }
        if message.contains("hunter2") {
            self.problem(format!("the message contains a token or a password: {message}"));
        }
        if message.chars().any(char::is_control) {
            self.problem(format!("the message has control characters: {message:?}"));
        }
        for text in &expected.says {
            let times = message.matches(text).count();
            if times != 1 {
                self.problem(format!(
                    "the message contains {text:?} {times} times: expected once: {message}"
                ));
            }
        }
    }

    /// Compares what servers were asked.
    pub(crate) fn compare_requests(&mut self, expected: &BTreeMap<String, Requests>, log: &Log) {
        for (server, expected) in expected {
            self.compare_server(server, expected, log);
        }
    }

    fn compare_server(&mut self, server: &str, expected: &Requests, log: &Log) {
        let got = log.of(server);
        let mut problem = |text: String| self.problems.push(format!("requests to {server}: {text}"));
        if let Some(number) = expected.number
            && !number.contains(got.len() as u64)
        {
            problem(format!("{} requests: expected {number}", got.len()));
        }
        if let Some(bounds) = &expected.counts {
            let counts: Vec<_> = got.iter().map(|it| it.count.unwrap_or_default()).collect();
            let matches = bounds.iter().zip(&counts).all(|(bound, count)| bound.contains(*count));
            if !matches || counts.len() != bounds.len() {
                let bounds: Vec<_> = bounds.iter().map(Bound::to_string).collect();
                problem(format!("counts {counts:?}: expected {bounds:?}"));
            }
        }
        for (pair, least) in got.windows(2).zip(&expected.at_least_ms_apart) {
            let apart = pair[1].at.saturating_duration_since(pair[0].at);
            if apart < Duration::from_millis(*least) {
                problem(format!("{apart:?} after the one before: expected at least {least} ms"));
            }
        }
        let after = expected.after.iter().map(|other| (other, 0));
        for (other, least) in after.chain(expected.at_least_ms_after.iter().map(|(other, ms)| (other, *ms))) {
            let (first, before) = (got.first(), log.of(other).first());
            let apart = first.zip(before).and_then(|(a, b)| a.at.checked_duration_since(b.at));
            if apart.is_none_or(|apart| apart < Duration::from_millis(least)) {
                problem(format!(
                    "the first one came {apart:?} after the first to {other}: expected {least} ms"
                ));
            }
        }
        if let Some(expected) = &expected.authorization {
            let got: Vec<_> = got.iter().map(|it| it.authorization.clone()).collect();
            if got != *expected {
                problem(format!("authorization {got:?}: expected {expected:?}"));
            }
        }
        if let Some(most) = expected.at_once
            && let Some(request) = got.iter().find(|it| it.at_once > most)
        {
            problem(format!("{} requests at once: expected {most}", request.at_once));
        }
        if let Some(paths) = &expected.paths {
            let got: Vec<_> = got.iter().map(|it| it.path.clone()).collect();
            if got != *paths {
                problem(format!("paths {got:?}: expected {paths:?}"));
            }
        }
        if let Some(bound) = expected.waits_ms
            && let Some(request) = got.iter().find(|it| !bound.contains(it.wait_ms.unwrap_or_default()))
        {
            problem(format!("wait is {:?} ms: expected {bound}", request.wait_ms));
        }
    }

    /// Checks what applies to every request of every scenario.
    pub(crate) fn compare_all_requests(&mut self, log: &Log, texts: bool) {
        let mut request_ids = HashSet::new();
        for (server, requests) in &log.requests {
            for request in requests {
                if !request.own_id.as_ref().is_some_and(|id| request_ids.insert(id)) {
                    self.problem(format!(
                        "{server} got a request with Snowmint-Request {:?}: expected a new one",
                        request.own_id
                    ));
                }
                let line = format!("{} {}", request.method, request.path);
                let (form, most) =
                    if request.is_for_texts { ("ids", 100_000) } else { ("ranges", 1_000_000) };
                if request.method != "POST"
                    || !request.path.ends_with(&format!("/v1/{form}/{}", request.namespace))
                    || request.is_for_texts != texts
                {
                    self.problem(format!("{server} got `{line}`: expected POST …/v1/ranges/NAMESPACE, or …/v1/ids/NAMESPACE for texts"));
                }
                if !request.count.is_some_and(|count| (1..=most).contains(&count)) {
                    self.problem(format!("{server} got `{line}` with count {:?}", request.count));
                }
                // 80 % of 2 s at most.
                if request.wait_ms.is_none_or(|wait| wait > 1600) {
                    self.problem(format!("{server} got `{line}` with wait {:?} ms", request.wait_ms));
                }
                // The clock of a client may run a little ahead of ours.
                if let Some(early) = request.too_early.filter(|early| *early > Duration::from_millis(10)) {
                    self.problem(format!("{server} got a request {early:?} before its Retry-After"));
                }
            }
        }
    }
}
