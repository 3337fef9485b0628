//! `snowmint explain`: for each error of the service and of this command, its cause, its meaning for ids, and
//! advice.

use serde::Serialize;
use snowmint_server::status::{ErrorKind, Status};

use crate::error::Failure;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  snowmint explain
      Lists every code.
  snowmint explain not-ready
  snowmint explain TRYAGAIN
      Also by the word of the Redis protocol, the HTTP status, the gRPC code or
      the type of a problem document: what the client shows.
  snowmint explain 'NOTREADY the lease has ended'
      Also by the line of an error: its first word counts.
  snowmint explain urn:snowmint:over-quota
  snowmint explain exit-1 --json

JSON, one object a line: code, title, http, resp and grpc (how the protocols
answer; null for an exit code of this command), cause, ids and remedy.";

/// Explain an error: its cause, what it means for ids, and what to do
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    /// Code of the error, or what a client shows: a word such as TRYAGAIN, an HTTP status, a gRPC code;
    /// default: list all
    #[arg(value_name = "CODE")]
    code: Option<String>,
    /// Print one JSON object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut out = Output::new();
    let Some(code) = &args.code else {
        for entry in all() {
            if args.json {
                out.json(&entry)?;
            } else {
                let code = out.paint.bold(&format!("{:<20}", entry.code));
                let answer = entry.answers.as_ref().map_or_else(String::new, ProtocolAnswers::short);
                out.line(&format!("{code} {answer:<17} {}", entry.title))?;
            }
        }
        return out.flush();
    };
    let found = find(code);
    if found.is_empty() {
        let known = all().map(|entry| entry.code).collect::<Vec<_>>();
        let nearest = snowmint_admin::nearest::nearest(code, known.iter().copied());
        let hint = nearest.map_or_else(
            || "`snowmint explain` lists them".to_owned(),
            |code| format!("did you mean `{code}`? `snowmint explain` lists all"),
        );
        return Err(Failure::usage(format!(
            "unknown error code {}: {hint}",
            snowmint::error::Snippet::of(code)
        )));
    }
    for (nth, entry) in found.iter().enumerate() {
        if args.json {
            out.json(entry)?;
            continue;
        }
        if nth > 0 {
            out.line("")?;
        }
        let title = format!("{}  {}", out.paint.bold(entry.code), entry.title);
        out.line(&title)?;
        let answers = entry.answers.as_ref().map(|answers| ("answer", answers.long()));
        let facts = [("cause", entry.cause), ("ids", entry.ids), ("do", entry.remedy)];
        for (name, value) in answers.into_iter().chain(facts.map(|(name, value)| (name, value.to_owned()))) {
            let name = out.paint.faint(&format!("{name:<7}"));
            for (nth, line) in wrapped(&value).iter().enumerate() {
                out.line(&if nth == 0 { format!("  {name} {line}") } else { format!("          {line}") })?;
            }
        }
    }
    out.flush()
}

/// Columns of a line of text.
const WIDTH: usize = 88;

/// Returns the lines of a text.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= WIDTH {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// An error with its explanation.
#[derive(Serialize)]
struct Explanation {
    code: &'static str,
    title: &'static str,
    #[serde(flatten)]
    answers: Option<ProtocolAnswers>,
    cause: &'static str,
    /// The meaning for ids: handed out, lost, repeated.
    ids: &'static str,
    remedy: &'static str,
}

/// The answers of the protocols.
#[derive(Serialize)]
struct ProtocolAnswers {
    http: u16,
    resp: &'static str,
    grpc: String,
}

impl ProtocolAnswers {
    fn of(status: &Status) -> Self {
        // `NotFound` is NOT_FOUND on the wire.
        let mut grpc = String::new();
        for letter in format!("{:?}", status.grpc).chars() {
            if letter.is_ascii_uppercase() && !grpc.is_empty() {
                grpc.push('_');
            }
            grpc.push(letter.to_ascii_uppercase());
        }
        Self { http: status.http, resp: status.resp, grpc }
    }

    fn short(&self) -> String {
        format!("{} {}", self.http, self.resp)
    }

    fn long(&self) -> String {
        format!("HTTP {}, Redis protocol and Thrift {}, gRPC {}", self.http, self.resp, self.grpc)
    }
}

impl Explanation {
    fn is_called(&self, code: &str) -> bool {
        let plain = |text: &str| text.trim().to_ascii_lowercase().replace(['-', '_', ' '], "");
        let code = plain(code.strip_prefix("urn:snowmint:").unwrap_or(code));
        let code = match code.as_str() {
            // The Redis protocol has a separate word for a wrong token.
            "wrongpass" => "noauth",
            // The text of Redis itself, which its clients know.
            "maxnumberofclientsreached" | "errmaxnumberofclientsreached" => "toomanyclients",
            other => other,
        };
        let of_answers = self.answers.as_ref().is_some_and(|answers| {
            plain(answers.resp) == code || plain(&answers.grpc) == code || answers.http.to_string() == code
        });
        plain(self.code) == code || of_answers
    }
}

/// Returns the entries for what a client shows: a code, a text that means one, or a line that begins with a
/// code.
fn find(shown: &str) -> Vec<Explanation> {
    let called = |code: &str| all().filter(|entry| entry.is_called(code)).collect::<Vec<_>>();
    let line = ["(error)", "error:", "-"]
        .iter()
        .find_map(|sign| shown.trim_start().strip_prefix(sign))
        .map_or(shown, str::trim_start);
    for text in [shown, line] {
        let found = called(text);
        if !found.is_empty() {
            return found;
        }
    }
    // Clients show the line of an error, some with the sign of the protocol or their own words before it.
    let mut words = line.split_whitespace().map(|word| word.trim_matches(['(', ')', '-', ':', ',', '"']));
    let word = words.find(|word| !["", "error"].contains(word) && !word.starts_with("HTTP"));
    word.map(called).unwrap_or_default()
}

/// Returns whether a code has an explanation.
pub(crate) fn knows(code: &str) -> bool {
    all().any(|entry| entry.is_called(code))
}

fn all() -> impl Iterator<Item = Explanation> {
    let of_service = ErrorKind::ALL.into_iter().filter_map(|kind| {
        let status = kind.status();
        let [code, cause, ids, remedy] = SERVICE.into_iter().find(|[code, ..]| *code == status.name)?;
        Some(Explanation {
            code,
            title: status.title,
            answers: Some(ProtocolAnswers::of(&status)),
            cause,
            ids,
            remedy,
        })
    });
    let of_command = COMMAND.into_iter().map(|[code, title, cause, ids, remedy]| Explanation {
        code,
        title,
        answers: None,
        cause,
        ids,
        remedy,
    });
    of_service.chain(of_command)
}

/// The meaning of most errors for ids: no id was given and nothing changed.
const NONE_GIVEN: &str = "No id was given and nothing changed.";

/// The errors of the service: code (its name in `status.rs`), cause, meaning for ids, remedy.
const SERVICE: [[&str; 4]; 35] = [
    [
        "unknown-namespace",
        "No namespace of this server has this name. The node may not have seen a new namespace yet: it looks every few seconds \
         (--namespaces-poll).",
        NONE_GIVEN,
        "Check the spelling. List the namespaces with `snowmint ns list`, add one with `snowmint ns add NAME`.",
    ],
    [
        "outcome-unknown",
        "The store did not confirm a change in time: it may have happened, or may still happen.",
        "No id was given. Ids of the namespace follow the record that the store has.",
        "Look at the current state (`snowmint ns list`, `snowmint workers`) before you repeat the change. `snowmint audit` \
         shows it as possibly made.",
    ],
    [
        "bad-namespace",
        "The name is not valid: 1 to 64 letters, digits, `.`, `_`, `-` or `:`.",
        NONE_GIVEN,
        "Correct the name in the request.",
    ],
    [
        "bad-count",
        "The number of ids is not a number, is 0, is above the limit of the request, or is more than the namespace has left.",
        NONE_GIVEN,
        "Ask for fewer ids, or for ranges: GET /v1/ranges/NAMESPACE or ID.RANGE give up to 1,000,000 a request.",
    ],
    [
        "bad-id",
        "The text is not an id, or has bits that the named layout or namespace does not have.",
        "The text may be an id of another namespace, or have lost digits: JavaScript keeps only 53 bits of a number.",
        "Check that the id was copied whole and travels as a string. `snowmint inspect ID` lists what it may be.",
    ],
    [
        "not-ready",
        "The node holds no lease on a worker, or has no reserved numbers: it has just started, its store does not answer, or \
         every worker is held by another node.",
        "No id was given. Ids that were given before stay unique.",
        "Retry with another node, or in a second. /readyz and the log name the reason; `snowmint doctor` checks the store, \
         `snowmint workers` shows who holds the workers.",
    ],
    [
        "store-not-writable",
        "The store accepts no writes: it is read-only (a standby, a read-only disk, a user without the right), or has no space \
         left.",
        "Nothing was changed. Ids that were given before stay unique. Nodes give ids until their leases and reserved numbers \
         end.",
        "A retry does not help. Free space, or make the store writable again: name its primary in --store, mount the disk for \
         writing, grant the right. `snowmint doctor` shows when it accepts writes.",
    ],
    [
        "clock-behind",
        "The clock of the node went back further than its rule (--rule) covers.",
        "No id was given: with an earlier timestamp it could equal an old one.",
        "Retry with another node. Correct the clock of this one (NTP, chrony). With `--clock anchored`, the default, steps of \
         the clock stop no ids.",
    ],
    [
        "busy",
        "The workers of the node cannot make this many ids within the time that a request may wait.",
        NONE_GIVEN,
        "Retry after the time that the answer names. For good: fewer ids a request, more workers (`serve --workers 1..8`), more \
         nodes, or a layout with more sequence bits.",
    ],
    [
        "layout-ended",
        "The timestamp field of the layout is used up: there is no later id.",
        "All ids given so far stay unique. No further id of this layout will ever be given.",
        "Add a namespace with another layout. If the old one has fewer than 63 bits, `snowmint layout OLD --successor auto` finds \
         one whose ids are greater. After 63 bits none are: keep the new ids in a column or table of their own.",
    ],
    [
        "too-many-namespaces",
        "The store already has as many namespaces as may be added: 10,000 that every node serves, or fewer for [auto_create] \
         (at_most) and for tokens for some namespaces.",
        NONE_GIVEN,
        "Check the name. Drop namespaces that nobody uses, or raise at_most, up to 10,000.",
    ],
    [
        "not-counting",
        "INCR and INCRBY count numbers of a segment namespace, one after the other. This one has another scheme, a stripe, \
         several sources, a reset period or hidden ids. INTEGER and ranges need ids that are plain numbers.",
        NONE_GIVEN,
        "Use ID.NEXT without INTEGER for it, or add a namespace with `--scheme segment` and without the settings named in \
         the error.",
    ],
    [
        "wrong-scheme",
        "The path or command is for namespaces of another scheme, such as ranges for ids that are not numbers.",
        NONE_GIVEN,
        "Use /v1/ids/NAMESPACE, which serves every scheme.",
    ],
    [
        "numbers-ended",
        "The namespace has given every number up to its maximum.",
        "All numbers given so far stay unique. No further number will be given.",
        "Raise it with `snowmint ns set NAME --maximum N`, if the columns that hold the numbers have room.",
    ],
    [
        "unknown",
        "No path or command of this server has this name.",
        NONE_GIVEN,
        "Check the address and the port: HTTP, the Redis protocol, Thrift and gRPC have their own. docs/protocols.md and \
         /openapi.json list the paths.",
    ],
    [
        "bad-method",
        "The path exists, but not for this HTTP method.",
        NONE_GIVEN,
        "Use a method that the Allow header of the answer names: GET or POST for ids.",
    ],
    [
        "bad-request",
        "An argument, a parameter, a header or the encoding of the request is invalid.",
        NONE_GIVEN,
        "The detail of the error names the part, the value and what is expected. The same request will fail again.",
    ],
    [
        "expired",
        "The deadline of the request passed before the node had the ids.",
        "The client got no id. Ids made for the request are lost, never repeated.",
        "Retry with a longer deadline, or with fewer ids.",
    ],
    [
        "too-many-clients",
        "The node has as many connections as --max-connections, or as the system's limit of open files, allows.",
        NONE_GIVEN,
        "Reuse connections, or add a node. Raise --max-connections and `ulimit -n`.",
    ],
    [
        "too-many-unread",
        "Clients left answers unread that use the memory for answers: 4 MiB of one connection, or 12 MiB of all \
         connections beyond the first 32 KiB of each.",
        NONE_GIVEN,
        "Read answers while you send. Send fewer requests at once over one connection, or ask for less at a \
         time.",
    ],
    [
        "unknown-host",
        "The request names a host that this server does not serve. A loopback address checks this, against web pages that point a \
         name of their own at it, or use an address that browsers do not know as loopback.",
        NONE_GIVEN,
        "Use localhost or 127.0.0.1, or add the name or address: `serve --allowed-hosts HOST`.",
    ],
    [
        "bad-tls",
        "The TLS handshake failed, or only one side speaks TLS.",
        NONE_GIVEN,
        "Check https:// or rediss:// against --tls-cert of the server, the certificate's name and end, and the client \
         certificate if the server requires one.",
    ],
    [
        "cross-site",
        "A page of another web site sent the request, or it is a WebSocket handshake, which any page can send.",
        NONE_GIVEN,
        "If the page may use the service, start it with `--cors-origin https://PAGE`.",
    ],
    [
        "unauthorized",
        "The server requires a token, and the request has none, or one that is unknown, expired or revoked.",
        NONE_GIVEN,
        "Send `Authorization: Bearer TOKEN`, or AUTH over the Redis protocol. Make a token with `snowmint token create`.",
    ],
    [
        "forbidden",
        "The token is valid, but does not have this right, or does not cover this namespace.",
        NONE_GIVEN,
        "Use a token that does: `snowmint token list` shows the rights and namespaces of each.",
    ],
    [
        "over-quota",
        "The token has used its quota of ids for this second or this day on this node.",
        NONE_GIVEN,
        "Retry after the time that the answer names. Raise --rate or --per-day of the token, if the client needs more.",
    ],
    [
        "conflict",
        "The operation does not fit what the store has: a fixed setting would change, or the record already exists.",
        "No setting changed: a change of layout, scheme, stripe or key could repeat ids.",
        "The detail names both values. Choose another name for the namespace, or leave the setting as it is.",
    ],
    [
        "changed",
        "The record changed between the read and the write: another operator was faster.",
        "This operation changed nothing.",
        "Read the record again, check that the change still makes sense, and retry.",
    ],
    [
        "in-use",
        "A node still uses the worker or the namespace that the operation would take from it.",
        "Nothing changed: to take it now could repeat ids.",
        "Stop that node or wait until its lease has ended; the detail names both.",
    ],
    [
        "unknown-worker",
        "The store has no record of this worker.",
        "Nothing changed. A worker without a record is free.",
        "List the workers with `snowmint workers`; name the pool if there are several.",
    ],
    [
        "unreadable",
        "A record of the store is damaged, or was written by a newer version.",
        "The node gives no ids that depend on this record, and never guesses its content.",
        "Run `snowmint doctor`: it names the record. Upgrade all nodes, or restore the record from a backup and run `snowmint \
         store recover`.",
    ],
    [
        "too-large",
        "The body of the request is larger than the server accepts.",
        NONE_GIVEN,
        "Send a smaller body; see the limits in docs/protocols.md.",
    ],
    [
        "bad-media-type",
        "The body of the request has a media type that the path does not take.",
        NONE_GIVEN,
        "Send `Content-Type: application/json`.",
    ],
    [
        "key-in-use",
        "The first request with this Idempotency-Key is still running.",
        "This request got no id. The first one gets its ids, and a retry gets the same ones.",
        "Retry with the same key after a moment.",
    ],
    [
        "key-reused",
        "This Idempotency-Key was sent with another request before.",
        NONE_GIVEN,
        "Use a fresh key for each request; a retry keeps the key and the request.",
    ],
];

/// The exit codes of this command: code, title, cause, meaning for ids, remedy.
const COMMAND: [[&str; 5]; 2] = [
    [
        "exit-1",
        "Something outside failed",
        "A store, a port, a lease, a disk or a server failed, or a check of `snowmint doctor` found a problem.",
        "Ids that were written to standard output stay valid and unique. A change that was reported as failed may have taken \
         place if the answer was lost: `snowmint audit` and `snowmint ns list` show it.",
        "The error names what failed. The same command may succeed later.",
    ],
    [
        "exit-2",
        "Invalid input or settings",
        "A flag, an argument, a file or an id is invalid.",
        "Nothing changed. Of several ids, the valid ones were written.",
        "The error names the value and what is expected. The same command fails again.",
    ],
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every error has an explanation, and every explanation an error. Method: the table of the
    /// service.
    #[test]
    fn every_kind_has_a_text() {
        for kind in ErrorKind::ALL {
            let name = kind.status().name;
            let texts: Vec<_> = SERVICE.iter().filter(|[code, ..]| *code == name).collect();
            assert_eq!(texts.len(), 1, "{name}: expected one text");
        }
        assert_eq!(SERVICE.len(), ErrorKind::ALL.len());
        assert_eq!(all().count(), SERVICE.len() + COMMAND.len());
        for entry in all() {
            for part in [entry.cause, entry.ids, entry.remedy] {
                assert!(
                    part.len() > 15 && part.ends_with('.') && !part.contains("  "),
                    "{}: {part}",
                    entry.code
                );
            }
        }
    }

    #[test]
    fn an_error_is_found_by_what_clients_show() {
        let found = |shown: &str| find(shown).into_iter().map(|it| it.code).collect::<Vec<_>>();
        for code in ["not-ready", "NOT_READY", "urn:snowmint:not-ready", "NOTREADY"] {
            assert_eq!(found(code), ["not-ready"], "{code}");
        }
        assert_eq!(found("TRYAGAIN"), ["busy", "expired", "too-many-unread", "over-quota", "key-in-use"]);
        assert_eq!(found("429"), ["over-quota"]);
        assert_eq!(found("WRONGPASS"), ["unauthorized"]);
        assert_eq!(found("DATA_LOSS"), ["unreadable"]);
        assert_eq!(found("deadline exceeded"), ["expired", "outcome-unknown"]);
        assert!(found("503").contains(&"busy") && found("nothing").is_empty());
        for line in [
            "NOTREADY the lease has ended",
            "-NOTREADY the lease has ended",
            "(error) NOTREADY the lease has ended",
            "error: not-ready: the lease has ended",
        ] {
            assert_eq!(found(line), ["not-ready"], "{line}");
        }
        assert_eq!(found("HTTP 429 Too Many Requests"), ["over-quota"]);
        assert_eq!(found("HTTP/1.1 429 Too Many Requests"), ["over-quota"]);
        for line in [
            "max number of clients reached",
            "ERR max number of clients reached",
            "(error) ERR max number of clients reached",
            "-ERR max number of clients reached",
        ] {
            assert_eq!(found(line), ["too-many-clients"], "{line}");
        }
        assert!(found("no such thing").is_empty() && found("").is_empty());
    }

    #[test]
    fn lines_are_wrapped_at_words() {
        let text = "word ".repeat(60);
        let lines = wrapped(text.trim());
        assert!(lines.len() == 4 && lines.iter().all(|line| line.len() <= WIDTH), "{lines:?}");
        assert_eq!(lines.join(" "), text.trim());
    }
}
