//! The commands of Redis that clients and tools send around id commands: HELLO, AUTH, CLIENT, COMMAND, INFO,
//! CONFIG, MULTI. The answers are those of Redis, since clients send these commands on their own and stop at
//! an unexpected answer. Ids have no rollback: ids that a transaction took are used up even if a later
//! command fails, as in Redis.

use std::fmt::Write as _;

use snowmint::utc::Utc;

use crate::access::Identity;
use crate::limits::resp::MAX_CLIENT_NAME;
use crate::protocol::Protocol;
use crate::resp::command::{Call, Outcome};
use crate::resp::command_table::{COMMANDS, CommandName, CommandSpec, find_command};
use crate::resp::reply::{self, Version};
use crate::resp::request_log;
use crate::resp::session::{Queued, Session, Transaction};
use crate::state::ServerState;
use crate::status::ErrorKind;

const NO_PASSWORD: &str = "AUTH <password> called without any password configured for the default user. Are you \
                           sure your configuration is correct?";
const WRONG_PASSWORD: &str = "invalid username-password pair or user is disabled.";
const HELLO_WITHOUT_AUTH: &str = "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can \
     be used to authenticate the client and select the RESP protocol version at the same time";
const BAD_NAME: &str = "Client names cannot contain spaces, newlines or special characters.";

/// The version of Redis that the answers follow; clients choose their commands by it.
const REDIS_VERSION: &str = "7.2.0";

/// Settings of Redis that some tools require.
const CONFIG: [(&str, &str); 4] =
    [("appendonly", "no"), ("databases", "1"), ("maxmemory", "0"), ("save", "")];

const SECTIONS: [&str; 5] = ["server", "clients", "stats", "replication", "snowmint"];

impl Call<'_> {
    /// `HELLO [2|3 [AUTH user password] [SETNAME name]]`. An invalid argument changes nothing.
    pub(super) fn hello(&mut self) -> Outcome {
        let mut version = self.session.version;
        if self.args.len() > 1 {
            version = match self.args.at(1) {
                b"2" => Version::Resp2,
                b"3" => Version::Resp3,
                other if other.iter().all(u8::is_ascii_digit) => return self.no_such_protocol(),
                _ => {
                    return self
                        .fail(ErrorKind::BadRequest, "Protocol version is not an integer or out of range");
                }
            };
        }
        let (mut index, mut name, mut identity) = (2, None, None);
        while index < self.args.len() {
            let more = self.args.len() - index - 1;
            let option = self.args.at(index);
            if option.eq_ignore_ascii_case(b"auth") && more >= 2 {
                match self.log_in(Some(self.args.at(index + 1)), self.args.at(index + 2)) {
                    Ok(logged_in) => identity = Some(logged_in),
                    Err(why) => return self.wrong_password(&why),
                }
                index += 3;
            } else if option.eq_ignore_ascii_case(b"setname") && more >= 1 {
                match client_text(self.args.at(index + 1)) {
                    Some(text) => name = Some(text.to_owned()),
                    None => return self.fail(ErrorKind::BadRequest, BAD_NAME),
                }
                index += 2;
            } else {
                let option = String::from_utf8_lossy(option);
                return self.fail(ErrorKind::BadRequest, &format!("Syntax error in HELLO option '{option}'"));
            }
        }
        match identity {
            Some(identity) => self.become_client(identity),
            None if self.session.identity.is_anonymous() => {
                return self.fail(ErrorKind::Unauthorized, HELLO_WITHOUT_AUTH);
            }
            None => {}
        }
        self.session.version = version;
        if let Some(name) = name {
            self.session.name = name;
        }
        self.greet();
        self.done()
    }

    fn greet(&mut self) {
        let (out, version) = (&mut *self.out, self.session.version);
        let store = self.server.store.text();
        reply::map(out, version, 7 + usize::from(store.is_some()));
        let mut text = |key: &str, value: &str| {
            reply::bulk(out, key.as_bytes());
            reply::bulk(out, value.as_bytes());
        };
        text("server", "snowmint");
        text("version", env!("CARGO_PKG_VERSION"));
        reply::bulk(out, b"proto");
        reply::integer(out, if version == Version::Resp3 { 3 } else { 2 });
        reply::bulk(out, b"id");
        reply::integer(out, self.session.id);
        let mut text = |key: &str, value: &str| {
            reply::bulk(out, key.as_bytes());
            reply::bulk(out, value.as_bytes());
        };
        text("mode", "standalone");
        text("role", "master");
        if let Some(store) = store {
            text("store", store);
        }
        reply::bulk(out, b"modules");
        reply::array(out, 0);
    }

    #[cold]
    fn no_such_protocol(&mut self) -> Outcome {
        self.fail_as(ErrorKind::BadRequest, "NOPROTO", "unsupported protocol version")
    }

    #[cold]
    fn wrong_password(&mut self, why: &str) -> Outcome {
        self.fail_as(ErrorKind::Unauthorized, "WRONGPASS", why)
    }

    /// `AUTH [user] token`. As in Redis, a wrong token leaves the earlier one in force.
    pub(super) fn auth(&mut self) -> Outcome {
        let (user, text) = match self.args.len() {
            2 if self.server.settings.access.is_none() => {
                return self.fail(ErrorKind::BadRequest, NO_PASSWORD);
            }
            2 => (None, self.args.at(1)),
            3 => (Some(self.args.at(1)), self.args.at(2)),
            _ => return self.fail(ErrorKind::BadRequest, "syntax error"),
        };
        match self.log_in(user, text) {
            Ok(identity) => {
                self.become_client(identity);
                self.ok()
            }
            Err(why) => self.wrong_password(&why),
        }
    }

    /// Returns the identity of a token. The user is the name of the token, or `default`, which clients with
    /// only a password send. Without tokens there is only the default user, with any password.
    fn log_in(&self, user: Option<&[u8]>, text: &[u8]) -> Result<Identity, String> {
        let identity = match &self.server.settings.access {
            None => Identity::anonymous(None),
            Some(access) => access.authenticate(text).map_err(|error| error.to_string())?,
        };
        match user {
            None | Some(b"default") => Ok(identity),
            Some(user) if identity.name().is_some_and(|name| name.as_bytes() == user) => Ok(identity),
            Some(_) if self.server.settings.access.is_none() => Err(WRONG_PASSWORD.to_owned()),
            Some(_) => Err("invalid user: expected `default` or the name of the token".to_owned()),
        }
    }

    fn become_client(&mut self, identity: Identity) {
        self.counts.count_for(&self.server.metrics, identity.usage());
        self.session.identity = identity;
    }

    pub(super) fn select(&mut self) -> Outcome {
        match self.args.at(1) {
            b"0" => self.ok(),
            other if !other.is_empty() && other.iter().all(u8::is_ascii_digit) => {
                self.fail(ErrorKind::BadRequest, "DB index is out of range")
            }
            _ => self.fail(ErrorKind::BadRequest, "value is not an integer or out of range"),
        }
    }

    pub(super) fn reset(&mut self) -> Outcome {
        self.session.discard();
        self.become_client(self.server.anonymous());
        *self.session = Session::new(self.session.id, self.server.anonymous());
        reply::simple(self.out, "RESET");
        self.done()
    }

    /// `CLIENT`: the subcommands that client libraries send when they connect, and `INFO`.
    pub(super) fn client(&mut self) -> Outcome {
        let sub = self.args.at(1).to_ascii_lowercase();
        match (&*sub, self.args.len()) {
            (b"id", 2) => {
                reply::integer(self.out, self.session.id);
                self.done()
            }
            (b"getname", 2) => {
                if self.session.name.is_empty() {
                    reply::null(self.out, self.session.version);
                } else {
                    reply::bulk(self.out, self.session.name.as_bytes());
                }
                self.done()
            }
            (b"setname", 3) => match client_text(self.args.at(2)) {
                Some(name) => {
                    name.clone_into(&mut self.session.name);
                    self.ok()
                }
                None => self.fail(ErrorKind::BadRequest, BAD_NAME),
            },
            (b"setinfo", 4) => self.client_setinfo(),
            (b"info", 2) => {
                let line = self.client_line();
                reply::verbatim(self.out, self.session.version, &line);
                self.done()
            }
            (b"no-evict" | b"no-touch", 3) => match &*self.args.at(2).to_ascii_lowercase() {
                b"on" | b"off" => self.ok(),
                _ => self.fail(ErrorKind::BadRequest, "syntax error"),
            },
            (b"id" | b"getname" | b"setname" | b"setinfo" | b"info" | b"no-evict" | b"no-touch", _) => {
                let sub = String::from_utf8_lossy(&sub);
                self.wrong_arity(&format!("client|{sub}"))
            }
            _ => self.unknown_subcommand("CLIENT"),
        }
    }

    fn client_setinfo(&mut self) -> Outcome {
        let attribute = self.args.at(2).to_ascii_lowercase();
        let Some(text) = client_text(self.args.at(3)) else {
            let attribute = String::from_utf8_lossy(&attribute);
            let why = format!("{attribute} cannot contain spaces, newlines or special characters.");
            return self.fail(ErrorKind::BadRequest, &why);
        };
        match &*attribute {
            b"lib-name" => text.clone_into(&mut self.session.library),
            b"lib-ver" => text.clone_into(&mut self.session.library_version),
            other => {
                let why = format!("Unrecognized option '{}'", String::from_utf8_lossy(other));
                return self.fail(ErrorKind::BadRequest, &why);
            }
        }
        self.ok()
    }

    fn client_line(&self) -> String {
        let Session { id, version, name, library, library_version, .. } = &*self.session;
        let proto = if *version == Version::Resp3 { 3 } else { 2 };
        format!("id={id} name={name} db=0 resp={proto} lib-name={library} lib-ver={library_version}\n")
    }

    pub(super) fn command(&mut self) -> Outcome {
        let (out, version) = (&mut *self.out, self.session.version);
        let sub = self.args.at(1).to_ascii_lowercase();
        match (&*sub, self.args.len()) {
            (b"", 1) | (b"info", 2) => {
                reply::array(out, COMMANDS.len());
                for spec in &COMMANDS {
                    spec.write_info(out);
                }
            }
            (b"count", 2) => reply::integer(out, COMMANDS.len() as u64),
            (b"list", 2) => {
                reply::array(out, COMMANDS.len());
                for spec in &COMMANDS {
                    reply::bulk(out, spec.text.as_bytes());
                }
            }
            (b"info", _) => {
                reply::array(out, self.args.len() - 2);
                for name in self.args.from(2) {
                    match find_command(name) {
                        Some(spec) => spec.write_info(out),
                        None => reply::null_array(out, version),
                    }
                }
            }
            (b"docs", _) => {
                let asked = |spec: &&CommandSpec| {
                    self.args.len() == 2
                        || self.args.from(2).any(|name| name.eq_ignore_ascii_case(spec.text.as_bytes()))
                };
                reply::map(out, version, COMMANDS.iter().filter(asked).count());
                for spec in COMMANDS.iter().filter(asked) {
                    spec.write_docs(out, version);
                }
            }
            _ => return self.unknown_subcommand("COMMAND"),
        }
        self.done()
    }

    pub(super) fn info(&mut self) -> Outcome {
        let text = info_text(self.server, &self.session.identity, self.args.from(1));
        reply::verbatim(self.out, self.session.version, &text);
        self.done()
    }

    pub(super) fn config(&mut self) -> Outcome {
        if !self.args.at(1).eq_ignore_ascii_case(b"get") {
            return self.unknown_subcommand("CONFIG");
        }
        if self.args.len() < 3 {
            return self.wrong_arity("config|get");
        }
        let found = config_values(self.server, self.args.from(2));
        reply::map(self.out, self.session.version, found.len());
        for (name, value) in found {
            reply::bulk(self.out, name.as_bytes());
            reply::bulk(self.out, value.as_bytes());
        }
        self.done()
    }

    pub(super) fn multi(&mut self) -> Outcome {
        self.session.transaction = Transaction::Open(Queued::new(&self.server.queued));
        self.ok()
    }

    pub(super) fn exec(&mut self) -> Outcome {
        match std::mem::take(&mut self.session.transaction) {
            Transaction::None => self.fail(ErrorKind::BadRequest, "EXEC without MULTI"),
            Transaction::Failed => self.fail_as(
                ErrorKind::BadRequest,
                "EXECABORT",
                "Transaction discarded because of previous errors.",
            ),
            Transaction::Open(queued) => {
                self.counts.succeeded += 1;
                Outcome::Execute(queued)
            }
        }
    }

    pub(super) fn discard(&mut self) -> Outcome {
        match self.session.discard() {
            Transaction::None => self.fail(ErrorKind::BadRequest, "DISCARD without MULTI"),
            _ => self.ok(),
        }
    }

    /// `WATCH` is rejected: a watch that never fails would be a false promise.
    pub(super) fn watch(&mut self) -> Outcome {
        self.fail(ErrorKind::BadRequest, "WATCH is not supported: namespaces have no value to watch; omit it")
    }

    /// Runs or queues a command between `MULTI` and `EXEC`.
    #[cold]
    pub(super) fn in_transaction(&mut self, spec: &CommandSpec) -> Outcome {
        match spec.name {
            CommandName::Exec => self.exec(),
            CommandName::Discard => self.discard(),
            CommandName::Reset => self.reset(),
            CommandName::Quit => self.quit(),
            CommandName::Multi => self.fail(ErrorKind::BadRequest, "MULTI calls can not be nested"),
            CommandName::Watch => self.fail(ErrorKind::BadRequest, "WATCH inside MULTI is not allowed"),
            _ => self.queue(),
        }
    }

    fn queue(&mut self) -> Outcome {
        if let Transaction::Open(queued) = &mut self.session.transaction {
            if let Err(error) = queued.push(&self.input[..self.len]) {
                self.fail_transaction();
                return self.fail(ErrorKind::BadRequest, &error.to_string());
            }
        } else {
            // The transaction has failed.
            request_log::discarded(&self.session.identity, &self.input[..self.len]);
        }
        reply::simple(self.out, "QUEUED");
        Outcome::Queued
    }

    /// Fails the transaction: `EXEC` will run none of its commands.
    #[cold]
    pub(super) fn fail_transaction(&mut self) {
        if !matches!(self.session.transaction, Transaction::None) {
            self.session.discard();
            self.session.transaction = Transaction::Failed;
        }
    }
}

/// Returns a name that a client sets: short and of visible ASCII, since it is printed in lines.
fn client_text(bytes: &[u8]) -> Option<&str> {
    let fits = bytes.len() <= MAX_CLIENT_NAME && bytes.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(bytes).ok().filter(|_| fits)
}

/// Returns the requested sections of `INFO`; by default all.
fn info_text<'a>(server: &ServerState, identity: &Identity, asked: impl Iterator<Item = &'a [u8]>) -> String {
    let asked: Vec<_> = asked.map(<[u8]>::to_ascii_lowercase).collect();
    let all =
        asked.is_empty() || asked.iter().any(|name| matches!(&**name, b"all" | b"default" | b"everything"));
    let mut text = String::new();
    for section in SECTIONS {
        if all || asked.iter().any(|name| name == section.as_bytes()) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            // Writing to a `String` never fails.
            let _ = write_section(&mut text, server, identity, section);
        }
    }
    text
}

fn write_section(
    text: &mut String,
    server: &ServerState,
    identity: &Identity,
    section: &str,
) -> std::fmt::Result {
    let (title, rest) = section.split_at(1);
    write!(text, "# {}{rest}\r\n", title.to_uppercase())?;
    match section {
        "server" => {
            write!(text, "redis_version:{REDIS_VERSION}\r\nserver_name:snowmint\r\n")?;
            write!(text, "snowmint_version:{}\r\nredis_mode:standalone\r\n", env!("CARGO_PKG_VERSION"))?;
            write!(text, "process_id:{}\r\n", std::process::id())?;
            let up_ms = server.settings.clock.unix_ms().saturating_sub(server.started_unix_ms);
            write!(text, "uptime_in_seconds:{}\r\n", up_ms / 1000)
        }
        "clients" => {
            let connected = server.metrics.open(Protocol::Resp).get();
            write!(
                text,
                "connected_clients:{connected}\r\nmaxclients:{}\r\n",
                server.settings.max_connections
            )
        }
        "stats" => {
            let requests = server.metrics.requests(Protocol::Resp);
            let ids =
                server.mint.table().namespaces().iter().map(|namespace| namespace.issued()).sum::<u64>();
            write!(text, "total_commands_processed:{requests}\r\nids_issued:{ids}\r\n")
        }
        "replication" => text.write_str("role:master\r\nconnected_slaves:0\r\nloading:0\r\n"),
        _ => write_snowmint(text, server, identity),
    }
}

fn write_snowmint(text: &mut String, server: &ServerState, identity: &Identity) -> std::fmt::Result {
    let mint = &server.mint;
    let status = mint.status();
    write!(text, "layout:{}\r\ndatacenter:{}\r\n", mint.layout(), mint.datacenter())?;
    if let Some(store) = server.store.text() {
        write!(text, "store:{store}\r\n")?;
    }
    text.write_str("namespaces:")?;
    let table = mint.table();
    let seen = table.namespaces().iter().filter(|it| identity.sees(it.name().as_str().as_bytes()));
    for (index, namespace) in seen.enumerate() {
        write!(text, "{}{}", if index == 0 { "" } else { "," }, namespace.name())?;
    }
    text.write_str("\r\n")?;
    if let Some(worker) = status.worker {
        write!(text, "worker:{worker}\r\n")?;
    }
    if let Some(until_unix_ms) = status.until_unix_ms {
        write!(text, "lease_until:{}\r\n", Utc(until_unix_ms))?;
    }
    for lease in mint.leases() {
        if let (Some(worker), Some(until_unix_ms)) = (lease.worker, lease.until_unix_ms) {
            write!(text, "lease_{worker}_until:{}\r\n", Utc(until_unix_ms))?;
        }
    }
    if let Some(why) = status.waiting {
        write!(text, "waiting:{}\r\n", why.replace(['\r', '\n'], " "))?;
    }
    write!(text, "lease_renewals:{}\r\nleases_lost:{}\r\n", status.renewals, status.lost)?;
    write!(text, "store_errors:{}\r\n", status.store_errors)
}

/// Returns the settings whose names match a pattern. Only `*` is a wildcard.
fn config_values<'a>(
    server: &ServerState,
    patterns: impl Iterator<Item = &'a [u8]>,
) -> Vec<(&'static str, String)> {
    let patterns: Vec<_> = patterns.map(<[u8]>::to_ascii_lowercase).collect();
    let idle = server.settings.timeouts.idle.map_or(0, |idle| idle.as_secs());
    let own = [("maxclients", server.settings.max_connections.to_string()), ("timeout", idle.to_string())];
    CONFIG
        .into_iter()
        .map(|(name, value)| (name, value.to_owned()))
        .chain(own)
        .filter(|(name, _)| patterns.iter().any(|pattern| &**pattern == b"*" || pattern == name.as_bytes()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn info_sections_are_selected_by_name() {
        let server = ServerState::for_tests(testing::mint());
        let all = info_text(&server, &server.anonymous(), std::iter::empty());
        for part in [
            "# Server\r\nredis_version:",
            "# Replication\r\nrole:master\r\n",
            "namespaces:default,orders\r\n",
        ] {
            assert!(all.contains(part), "{part} in {all}");
        }
        let one = info_text(&server, &server.anonymous(), [&b"SNOWMINT"[..]].into_iter());
        assert!(one.starts_with("# Snowmint\r\nlayout:time:41@1ms"), "{one}");
        assert_eq!(info_text(&server, &server.anonymous(), [&b"no-such"[..]].into_iter()), "");
    }

    #[test]
    fn config_has_what_redis_benchmark_reads() {
        let server = ServerState::for_tests(testing::mint());
        let config = |patterns: &[&'static [u8]]| config_values(&server, patterns.iter().copied());
        assert_eq!(config(&[b"save"]), [("save", String::new())]);
        assert_eq!(config(&[b"APPENDONLY", b"x"]), [("appendonly", "no".to_owned())]);
        assert_eq!(config(&[b"timeout"]), [("timeout", "600".to_owned())]);
        assert_eq!(config(&[b"*"]).len(), CONFIG.len() + 2);
    }
}
