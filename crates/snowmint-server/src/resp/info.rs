//! What tools ask of a Redis server: `INFO` and `CONFIG GET`.
//! Answered as far as there is an answer here, so that they start, and with what Snowmint has to tell.

use std::fmt::Write as _;

use snowmint::utc::Utc;

use crate::metrics::Protocol;
use crate::server::Server;

/// The version of Redis whose commands and answers these are; clients choose their commands by it.
const REDIS_VERSION: &str = "7.2.0";

/// Settings of Redis that tools ask for and stumble over when there are none.
const CONFIG: [(&str, &str); 4] =
    [("appendonly", "no"), ("databases", "1"), ("maxmemory", "0"), ("save", "")];

const SECTIONS: [&str; 5] = ["server", "clients", "stats", "replication", "snowmint"];

/// The sections that were asked for, all of them when none was.
pub(super) fn text<'a>(server: &Server, asked: impl Iterator<Item = &'a [u8]>) -> String {
    let asked: Vec<_> = asked.map(<[u8]>::to_ascii_lowercase).collect();
    let all =
        asked.is_empty() || asked.iter().any(|name| matches!(&**name, b"all" | b"default" | b"everything"));
    let mut text = String::new();
    for section in SECTIONS {
        if all || asked.iter().any(|name| name == section.as_bytes()) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            // A `String` takes whatever is written to it.
            let _ = write_section(&mut text, server, section);
        }
    }
    text
}

fn write_section(text: &mut String, server: &Server, section: &str) -> std::fmt::Result {
    let (title, rest) = section.split_at(1);
    write!(text, "# {}{rest}\r\n", title.to_uppercase())?;
    match section {
        "server" => {
            write!(text, "redis_version:{REDIS_VERSION}\r\nserver_name:snowmint\r\n")?;
            write!(text, "snowmint_version:{}\r\nredis_mode:standalone\r\n", env!("CARGO_PKG_VERSION"))?;
            write!(text, "process_id:{}\r\n", std::process::id())?;
            let up_ms = server.clock.unix_ms().saturating_sub(server.started_unix_ms);
            write!(text, "uptime_in_seconds:{}\r\n", up_ms / 1000)
        }
        "clients" => {
            let connected = server.metrics.open(Protocol::Resp).get();
            write!(text, "connected_clients:{connected}\r\nmaxclients:{}\r\n", server.max_connections)
        }
        "stats" => {
            let requests = server.metrics.requests(Protocol::Resp);
            let ids =
                server.mint.table().namespaces().iter().map(|namespace| namespace.issued()).sum::<u64>();
            write!(text, "total_commands_processed:{requests}\r\nids_issued:{ids}\r\n")
        }
        "replication" => text.write_str("role:master\r\nconnected_slaves:0\r\nloading:0\r\n"),
        _ => write_snowmint(text, server),
    }
}

fn write_snowmint(text: &mut String, server: &Server) -> std::fmt::Result {
    let mint = &server.mint;
    let status = mint.status();
    write!(text, "layout:{}\r\ndatacenter:{}\r\n", mint.layout(), mint.datacenter())?;
    text.write_str("namespaces:")?;
    for (index, namespace) in mint.table().namespaces().iter().enumerate() {
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

/// The settings whose names match one of the patterns; `*` stands for any text.
pub(super) fn config<'a>(
    server: &Server,
    patterns: impl Iterator<Item = &'a [u8]>,
) -> Vec<(&'static str, String)> {
    let patterns: Vec<_> = patterns.map(<[u8]>::to_ascii_lowercase).collect();
    let idle = server.timeouts.idle.map_or(0, |idle| idle.as_secs());
    let own = [("maxclients", server.max_connections.to_string()), ("timeout", idle.to_string())];
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
    fn sections_are_chosen_by_name() {
        let server = Server::for_tests(testing::mint());
        let all = text(&server, std::iter::empty());
        for part in [
            "# Server\r\nredis_version:",
            "# Replication\r\nrole:master\r\n",
            "namespaces:default,orders\r\n",
        ] {
            assert!(all.contains(part), "{part} in {all}");
        }
        let one = text(&server, [&b"SNOWMINT"[..]].into_iter());
        assert!(one.starts_with("# Snowmint\r\nlayout:time:41@1ms"), "{one}");
        assert_eq!(text(&server, [&b"no-such"[..]].into_iter()), "");
    }

    #[test]
    fn what_redis_benchmark_asks() {
        let server = Server::for_tests(testing::mint());
        let config = |patterns: &[&'static [u8]]| config(&server, patterns.iter().copied());
        assert_eq!(config(&[b"save"]), [("save", String::new())]);
        assert_eq!(config(&[b"APPENDONLY", b"x"]), [("appendonly", "no".to_owned())]);
        assert_eq!(config(&[b"timeout"]), [("timeout", "600".to_owned())]);
        assert_eq!(config(&[b"*"]).len(), CONFIG.len() + 2);
    }
}
