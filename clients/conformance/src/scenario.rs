//! Scenarios, as their files say them. `scenarios/README.md` explains each member.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What servers do, what the client does, and what must come out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The name, unique among all files.
    pub name: String,
    /// The rules of SPEC.md that it tests.
    pub rules: Vec<String>,
    /// What it shows, for people.
    pub why: String,
    /// Whether the namespaces have a text form.
    #[serde(default)]
    pub(crate) texts: bool,
    #[serde(default)]
    pub(crate) options: Map<String, Value>,
    #[serde(default)]
    pub(crate) open: Option<Expect>,
    pub(crate) servers: BTreeMap<String, ServerScript>,
    pub(crate) steps: Vec<Step>,
}

/// What one server does.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum ServerScript {
    /// One reply a request; the last one repeats.
    Plain(Vec<Reply>),
    /// The same over TLS.
    Tls { tls: Vec<Reply> },
    /// Nothing listens on its port.
    Dead(Dead),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Dead {
    Dead,
}

/// The reply to one request. Without a `status` or `body` it has as many new ids as requested.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a member of a scenario")]
pub(crate) struct Reply {
    /// For how many requests it is used.
    pub(crate) times: usize,
    pub(crate) delay_ms: u64,
    pub(crate) status: u16,
    /// The text after the status.
    pub(crate) reason: String,
    /// The last part of the type of a problem document.
    pub(crate) problem: Option<String>,
    pub(crate) detail: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    /// Two servers of one scenario have the same store unless they name another one; `null`: no header.
    #[serde(deserialize_with = "some")]
    #[expect(clippy::option_option, reason = "absent and `null` differ")]
    pub(crate) store: Option<Option<String>>,
    /// The number of ranges that the ids are in, and the difference between two ids.
    pub(crate) ranges: u64,
    pub(crate) step: u64,
    /// How many ids more than requested.
    pub(crate) surplus: i64,
    /// A text is sent as it is, except that U+FFFF becomes a byte that is not UTF-8; other values as JSON.
    pub(crate) body: Option<Value>,
    /// Sent instead of the status line and all else.
    pub(crate) raw: Option<String>,
    /// Closes the connection after this share of the body, in percent.
    pub(crate) cut_at_percent: Option<usize>,
    /// Absent: the `Snowmint-Request` of the request; `null`: none.
    #[serde(deserialize_with = "some")]
    #[expect(clippy::option_option, reason = "absent and `null` differ")]
    pub(crate) request_id: Option<Option<String>>,
    /// Sends the previous answer of the connection once more, before this one.
    pub(crate) again: bool,
    /// Closes the connection without an answer.
    pub(crate) close: bool,
    /// Never answers.
    pub(crate) silent: bool,
    /// No client may return ids of this reply.
    pub(crate) bad: bool,
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            times: 1,
            delay_ms: 0,
            status: 200,
            reason: "Scripted".to_owned(),
            problem: None,
            detail: None,
            headers: BTreeMap::new(),
            store: None,
            ranges: 1,
            step: 1,
            surplus: 0,
            body: None,
            raw: None,
            request_id: None,
            again: false,
            cut_at_percent: None,
            close: false,
            silent: false,
            bad: false,
        }
    }
}

/// Reads a member that may be `null`, unlike one that is absent.
fn some<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// A number, or the minimum and maximum.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Bound {
    Exactly(u64),
    Within(u64, u64),
}

impl Bound {
    pub(crate) const fn contains(self, value: u64) -> bool {
        match self {
            Self::Exactly(expected) => value == expected,
            Self::Within(least, most) => least <= value && value <= most,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exactly(expected) => write!(f, "{expected}"),
            Self::Within(least, most) => write!(f, "{least} to {most}"),
        }
    }
}

/// One step of the client. Exactly one of `op`, `finish`, `sleep_ms`, `until`, `until_buffered`, `requests` and `token_file` is set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) op: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) count: Option<u64>,
    /// How many equal commands run at the same time.
    pub(crate) calls: Option<usize>,
    /// Does not wait for the answer; a later step finishes the command by this name.
    pub(crate) start: Option<String>,
    pub(crate) finish: Option<String>,
    pub(crate) expect: Expect,
    pub(crate) sleep_ms: Option<u64>,
    /// Waits until each server has had so many requests.
    pub(crate) until: Option<BTreeMap<String, usize>>,
    /// Waits until so many ids are in memory.
    pub(crate) until_buffered: Option<u64>,
    /// What servers must have been asked by now.
    pub(crate) requests: Option<BTreeMap<String, Requests>>,
    /// Writes the token file.
    pub(crate) token_file: Option<String>,
}

/// What must come out of a command.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Expect {
    pub(crate) ids: Option<Vec<String>>,
    /// The ids that come first.
    pub(crate) first_ids: Vec<String>,
    /// The number of ids; as many as the command asks for if this is absent.
    pub(crate) count: Option<u64>,
    /// The servers whose ids they may be.
    pub(crate) from: Option<Vec<String>>,
    pub(crate) error: Option<ExpectError>,
    pub(crate) at_least_ms: Option<u64>,
    pub(crate) at_most_ms: Option<u64>,
    pub(crate) buffered: Option<Bound>,
    /// Members of the answer, as they are.
    pub(crate) answer: Option<Map<String, Value>>,
    /// Numbers of the answer.
    pub(crate) numbers: BTreeMap<String, Bound>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ExpectError {
    pub(crate) kind: Option<String>,
    pub(crate) temporary: Option<bool>,
    pub(crate) status: Option<u16>,
    /// The server that the error names.
    pub(crate) server: Option<String>,
    pub(crate) retry_after_ms: Option<Bound>,
    /// Texts in the message, each once.
    pub(crate) says: Vec<String>,
}

/// What one server must have been asked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Requests {
    pub(crate) number: Option<Bound>,
    /// The `count` of each request.
    pub(crate) counts: Option<Vec<Bound>>,
    /// The minimum time between a request and the one before it, for each but the first.
    pub(crate) at_least_ms_apart: Vec<u64>,
    /// The first request came at least this long after the first one to another server.
    pub(crate) at_least_ms_after: BTreeMap<String, u64>,
    /// The first request came after the first one to another server.
    pub(crate) after: Vec<String>,
    /// The `Authorization` of each request.
    pub(crate) authorization: Option<Vec<Option<String>>>,
    /// How many requests were on their way at the same time, at most.
    pub(crate) at_once: Option<u64>,
    /// The path of each request up to the query.
    pub(crate) paths: Option<Vec<String>>,
    /// How long each request allows the server, in milliseconds.
    pub(crate) waits_ms: Option<Bound>,
}

const FILES: [&str; 6] = [
    include_str!("../scenarios/answers.json"),
    include_str!("../scenarios/texts.json"),
    include_str!("../scenarios/errors.json"),
    include_str!("../scenarios/servers.json"),
    include_str!("../scenarios/memory.json"),
    include_str!("../scenarios/process.json"),
];

/// The table of errors, from which a scenario for each row is made.
const ERRORS: &str = include_str!("../../errors.json");

/// Returns all scenarios.
///
/// # Errors
///
/// If a file is invalid.
pub fn all() -> Result<Vec<Scenario>, serde_json::Error> {
    let mut all = Vec::new();
    for file in FILES {
        all.extend(serde_json::from_str::<Vec<Scenario>>(file)?);
    }
    all.extend(of_errors(&serde_json::from_str(ERRORS)?)?);
    Ok(all)
}

/// Returns a scenario for each row of the table of errors: the first server sends the error, the second one ids.
fn of_errors(table: &Value) -> Result<Vec<Scenario>, serde_json::Error> {
    let rows = table["errors"].as_array().into_iter().flatten();
    rows.map(|row| {
        let (status, problem) = (&row["status"], row["problem"].as_str());
        let name = match problem {
            Some(problem) => format!("error-{problem}"),
            None => format!("error-{status}"),
        };
        let mut reply = json!({"status": status});
        if let Some(problem) = problem {
            reply["problem"] = json!(problem);
        }
        let (step, a, b) = match row["retry"].as_str() {
            Some("never") => {
                let kind = &row["kind"];
                let error = json!({"kind": kind, "temporary": false, "status": status, "server": "a"});
                (json!({"op": "next", "count": 8, "expect": {"error": error}}), json!([8]), json!([]))
            }
            Some("fewer") => (
                json!({"op": "next", "count": 8, "expect": {"from": ["a"]}}),
                json!([8, 2, [1, 8], [1, 8], [1, 8]]),
                json!([]),
            ),
            _ => (json!({"op": "next", "count": 8, "expect": {"from": ["b"]}}), json!([8]), json!([8])),
        };
        let mut requests = json!({"a": {"counts": a}, "b": {"counts": b}});
        if row["retry"] == "fewer" {
            // How the rest is divided is up to the client.
            requests["a"] = json!({"number": [2, 5]});
        }
        serde_json::from_value(json!({
            "name": name,
            "rules": ["E1"],
            "why": format!("{} is retried: {}", name, row["retry"].as_str().unwrap_or_default()),
            "options": {"buffer": [0, 0]},
            "servers": {"a": [reply, {}], "b": [{}]},
            "steps": [step, {"requests": requests}],
        }))
    })
    .collect()
}
