//! The Redis protocol over real sockets: limits, pipelines, and misbehaving clients.
//! No test depends on time: each waits for bytes.

use std::time::Duration;

use snowmint_server::limits::MAX_COUNT;
use snowmint_server::limits::resp::{MAX_BULK, MAX_INLINE, MAX_QUEUED_IN_ALL};
use snowmint_server::{Settings, Timeouts};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use crate::support::running_service::{Running, settings};

#[tokio::test]
async fn ids_one_by_one_and_many_at_once_strictly_increase() {
    let server = Running::start().await;
    let mut client = server.resp().await;
    client.send(b"*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\n").await;
    let mut ids = client.ids(1).await;
    for count in [1, 4097, MAX_COUNT] {
        assert_eq!(client.ask(&format!("ID.NEXT orders COUNT {count}")).await, format!("*{count}"));
        ids.extend(client.ids(count).await);
    }
    assert_eq!(ids.len(), 1 + 1 + 4097 + MAX_COUNT);
    assert!(ids.is_sorted_by(|a, b| a < b));
}

#[tokio::test]
async fn bad_commands_leave_the_connection_alive() {
    let server = Running::start().await;
    let mut client = server.resp().await;
    for (line, wanted) in [
        ("foo a b", "-ERR unknown command 'foo', with args beginning with: 'a' 'b' "),
        (
            "ID.NEXT",
            "-ERR wrong number of arguments for 'id.next' command: expected ID.NEXT namespace [COUNT n] [INTEGER]",
        ),
        ("ID.NEXT nope", "-NONAMESPACE unknown namespace `nope`: "),
        ("ID.NEXT default COUNT 0", "-ERR invalid count 0: expected 1 to 100000"),
        ("ID.NEXT default COUNT -1", "-ERR invalid count -1: expected 1 to 100000"),
        ("ID.NEXT default COUNT 1e9", "-ERR invalid count `1e9`: "),
        ("ID.NEXT default COUNT 100001", "-ERR invalid count 100001: expected 1 to 100000"),
        (
            "ID.NEXT default COUNT 99999999999999999999",
            "-ERR invalid count 99999999999999999999: expected 1 to 100000",
        ),
        ("ID.NEXT default COUNT ids", "-ERR invalid count `ids`: "),
        ("ID.NEXT default COUNT", "-ERR syntax error"),
    ] {
        let reply = client.ask(line).await;
        assert!(reply.starts_with(wanted), "{line}: {reply}");
    }
    assert_eq!(client.ask("PING").await, "+PONG");
}

#[tokio::test]
async fn without_a_lease_the_error_says_why_and_ids_come_back_with_it() {
    let server = Running::start().await;
    let mut client = server.resp().await;
    server.source.set_lease(false);
    let reply = client.ask("ID.NEXT default").await;
    assert_eq!(reply, "-NOTREADY no ids can be made now: no lease is held: the store does not answer");
    server.source.set_lease(true);
    assert!(client.ask("ID.NEXT default INTEGER").await.starts_with(':'));
}

/// Goal: a client that breaks the protocol gets an error and is disconnected; others are not affected.
#[tokio::test]
async fn a_protocol_error_is_answered_and_closes_the_connection() {
    let server = Running::start().await;
    let mut other = server.resp().await;
    let mut nested = b"*1\r\n".repeat(10_000);
    nested.extend_from_slice(b"$4\r\nPING\r\n");
    let huge_bulk = format!("*1\r\n${}\r\n", MAX_BULK + 1).into_bytes();
    let huge_line = vec![b'a'; 1024 * 1024];
    let long_line = [vec![b'a'; MAX_INLINE + 1], b"\r\n".to_vec()].concat();
    for (bytes, wanted) in [
        (&nested[..], "-ERR Protocol error: expected '$', got '*'\r\n"),
        (&huge_bulk, "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$5000000000\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*100000\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"PING\r\n*x\r\n", "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"),
        (&huge_line, "-ERR Protocol error: too big inline request\r\n"),
        (&long_line, "-ERR Protocol error: too big inline request\r\n"),
        (b"ECHO \"x\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"POST / HTTP/1.1\r\n", ""),
    ] {
        let mut client = server.resp().await;
        client.send(bytes).await;
        client.stream.shutdown().await.unwrap();
        assert_eq!(String::from_utf8(client.rest().await).unwrap(), wanted);
    }
    assert_eq!(other.ask("PING").await, "+PONG");
}

#[tokio::test]
async fn a_command_may_arrive_byte_by_byte() {
    let server = Running::start().await;
    let mut client = server.resp().await;
    for byte in b"*4\r\n$7\r\nid.next\r\n$7\r\ndefault\r\n$5\r\nCOUNT\r\n$1\r\n3\r\n" {
        client.send(&[*byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.line().await, "*3");
    assert_eq!(client.ids(3).await.len(), 3);
}

#[tokio::test]
async fn ten_thousand_commands_in_one_write() {
    let server = Running::start().await;
    let client = server.resp().await;
    let (mut read, mut write) = client.stream.into_split();
    let sending = tokio::spawn(async move {
        write.write_all(&b"*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\n".repeat(10_000)).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut replies = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut read, &mut replies).await.unwrap();
    sending.await.unwrap();
    let ids: Vec<u64> = replies.lines().skip(1).step_by(2).map(|digits| digits.parse().unwrap()).collect();
    assert_eq!(ids.len(), 10_000);
    assert!(ids.is_sorted_by(|a, b| a < b));
}

/// Goal: a client that never reads blocks only itself. Method: it sends 64 MiB of the largest request; all
/// output of the server must fit into the socket buffers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_stops_only_itself() {
    let server = Running::start().await;
    let mut deaf = server.resp().await;
    let sending = tokio::spawn(async move {
        let requests = format!("ID.NEXT default COUNT {MAX_COUNT}\r\n").repeat(2000);
        for _ in 0..1000 {
            deaf.stream.write_all(requests.as_bytes()).await.unwrap();
        }
    });
    let mut other = server.resp().await;
    for _ in 0..2000 {
        assert!(other.ask("ID.NEXT orders INTEGER").await.starts_with(':'));
    }
    assert!(!sending.is_finished(), "64 MiB were taken from a client that reads nothing");
    let (_, metrics) = server.get("/metrics").await;
    let line =
        metrics.lines().find(|line| line.starts_with("snowmint_ids_issued_total{namespace=\"default\"}"));
    let issued: u64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    // 26 bytes each: far more than two sockets hold, far fewer than the 200,000,000,000 requested ids.
    assert!(issued <= 30 * MAX_COUNT as u64, "{issued} ids were made for it");
    sending.abort();
}

/// Goal: a client that reads nothing is disconnected after the write timeout, and not before. Method: answers
/// of 26 MB, of which it reads the first line; paused time.
#[tokio::test]
async fn a_client_that_takes_nothing_is_disconnected() {
    tokio::time::pause();
    let write = Duration::from_mins(1);
    let timeouts = Timeouts { idle: None, write, ..Timeouts::default() };
    let server = Running::with(Settings { timeouts, ..settings() }).await;
    let open = async || {
        let (_, metrics) = server.get("/metrics").await;
        let mut lines = metrics.lines();
        lines.any(|line| line == "snowmint_connections{protocol=\"resp\"} 1")
    };
    let mut deaf = server.resp().await;
    deaf.send(format!("ID.NEXT default COUNT {MAX_COUNT}\r\n").repeat(10).as_bytes()).await;
    assert_eq!(deaf.line().await, format!("*{MAX_COUNT}"));
    tokio::time::sleep(write / 2).await;
    assert!(open().await, "it had half a minute more");
    tokio::time::sleep(write).await;
    assert!(!open().await);
}

/// Goal: an idle connection is closed after the idle timeout, and an incomplete command after the shorter
/// request timeout. Method: paused time.
#[tokio::test(start_paused = true)]
async fn idle_connections_and_half_commands_are_closed() {
    let timeouts = Timeouts {
        idle: Some(Duration::from_mins(10)),
        request: Duration::from_secs(30),
        ..Timeouts::default()
    };
    let server = Running::with(Settings { timeouts, ..settings() }).await;
    let late = "-ERR Protocol error: incomplete command after 30s\r\n";
    for (bytes, within, said) in [
        ("", 600, String::new()),
        ("PING\r\n", 600, "+PONG\r\n".to_owned()),
        ("PIN", 30, late.to_owned()),
        ("PING\r\n*1\r\n$4\r\nPI", 30, format!("+PONG\r\n{late}")),
    ] {
        let mut client = server.resp().await;
        let began = Instant::now();
        client.send(bytes.as_bytes()).await;
        assert_eq!(String::from_utf8(client.rest().await).unwrap(), said);
        let took = began.elapsed().as_secs();
        assert!(took >= within && took <= within + 2, "{bytes:?}: {took} s");
    }
    // Single bytes do not extend the deadline; commands do.
    let mut client = server.resp().await;
    let began = Instant::now();
    for _ in 0..40 {
        assert_eq!(client.ask("PING").await, "+PONG");
        tokio::time::sleep(Duration::from_mins(5)).await;
    }
    for byte in b"*4\r\n$7\r\nid.next\r\n$7\r\ndefa" {
        client.send(&[*byte]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(String::from_utf8(client.rest().await).unwrap(), late);
    assert!(began.elapsed().as_secs() <= 40 * 300 + 32, "{:?}", began.elapsed());
}

#[tokio::test]
async fn idle_for_ever_where_that_is_wanted() {
    tokio::time::pause();
    let timeouts = Timeouts { idle: None, ..Timeouts::default() };
    let server = Running::with(Settings { timeouts, ..settings() }).await;
    let (mut resp, mut http) = (server.resp().await, server.http().await);
    let health = b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n";
    http.send(health).await;
    assert_eq!(http.line().await, "HTTP/1.1 200 OK");
    tokio::time::sleep(Duration::from_hours(3)).await;
    assert_eq!(resp.ask("PING").await, "+PONG");
    http.send(health).await;
    // After the body of the first answer.
    while !http.line().await.ends_with("HTTP/1.1 200 OK") {}
}

/// Goal: a request for one id does not compete with all waiting requests for many. Method: a blocked
/// generator; of three requests for many ids only one waits at the generator, beside a request for one id.
#[tokio::test]
async fn requests_for_many_ids_wait_in_line() {
    let server = Running::start().await;
    let source = server.source.clone();
    source.set_stuck(true);
    let mut many = [server.resp().await, server.resp().await, server.resp().await];
    for client in &mut many {
        // The answer to the first shows that the second has begun to wait.
        client.send(b"PING\r\nID.NEXT default COUNT 50000\r\n").await;
        assert_eq!(client.line().await, "+PONG");
    }
    source.waiting(1).await;
    assert_eq!(source.waits(), 1);
    let mut one = server.resp().await;
    one.send(b"ID.NEXT default\r\n").await;
    source.waiting(2).await;
    assert_eq!(source.waits(), 2);
    source.set_stuck(false);
    assert_eq!(one.ids(1).await.len(), 1);
    for client in &mut many {
        assert_eq!(client.line().await, "*50000");
        assert_eq!(client.ids(50_000).await.len(), 50_000);
    }
}

/// Goal: MULTI to EXEC as in Redis: commands are queued, then run in order, with errors among the replies. If
/// a command could not be queued, none runs.
#[tokio::test]
async fn transactions_are_done_in_a_row() {
    let server = Running::start().await;
    let mut client = server.resp().await;
    for (line, reply) in [
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("UNWATCH", "+OK"),
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH default", "-ERR WATCH inside MULTI is not allowed"),
        ("PING", "+QUEUED"),
        ("ID.NEXT default", "+QUEUED"),
        ("ID.NEXT nope", "+QUEUED"),
        ("ID.NEXT default COUNT 2", "+QUEUED"),
        ("EXEC", "*4"),
    ] {
        assert_eq!(client.ask(line).await, reply, "{line}");
    }
    assert_eq!(client.line().await, "+PONG");
    let first = client.ids(1).await;
    assert!(client.line().await.starts_with("-NONAMESPACE"));
    assert_eq!(client.line().await, "*2");
    let all = [first, client.ids(2).await].concat();
    assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
    for (line, reply) in [
        ("MULTI", "+OK"),
        ("PING", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("MULTI", "+OK"),
        (
            "ID.NEXT",
            "-ERR wrong number of arguments for 'id.next' command: expected ID.NEXT namespace [COUNT n] [INTEGER]",
        ),
        ("PING", "+QUEUED"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("MULTI", "+OK"),
        ("EXEC", "*0"),
        ("MULTI", "+OK"),
        ("PING", "+QUEUED"),
        ("RESET", "+RESET"),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("PING", "+PONG"),
    ] {
        assert_eq!(client.ask(line).await, reply, "{line}");
    }
    assert!(client.ask("WATCH default").await.starts_with("-ERR WATCH is not supported"));
    // More ids than are available at once: some replies have to wait between others.
    let lines = format!("MULTI\r\nID.NEXT default COUNT {MAX_COUNT}\r\nPING\r\nEXEC\r\n");
    client.send(lines.as_bytes()).await;
    for reply in ["+OK", "+QUEUED", "+QUEUED", "*2", &format!("*{MAX_COUNT}")] {
        assert_eq!(client.line().await, reply);
    }
    assert_eq!(client.ids(MAX_COUNT).await.len(), MAX_COUNT);
    assert_eq!(client.line().await, "+PONG");
}

/// Goal: queued commands are limited for each connection and for all, and released however a transaction
/// ends.
#[tokio::test]
async fn transactions_hold_a_bounded_number_of_bytes() {
    let server = Running::start().await;
    let echo = format!("ECHO {}", "x".repeat(60_000));
    let mut held = Vec::new();
    // As many as fit for all connections, and one more, which is rejected.
    for _ in 0..MAX_QUEUED_IN_ALL / (4 * 60_007) {
        let mut client = server.resp().await;
        assert_eq!(client.ask("MULTI").await, "+OK");
        for _ in 0..4 {
            assert_eq!(client.ask(&echo).await, "+QUEUED");
        }
        held.push(client);
    }
    let mut other = server.resp().await;
    assert_eq!(other.ask("MULTI").await, "+OK");
    let mut refused = false;
    for _ in 0..4 {
        refused |= other.ask(&echo).await.starts_with("-ERR transactions of all clients too large");
    }
    assert!(refused);
    assert!(other.ask("EXEC").await.starts_with("-EXECABORT"));
    // The commands of a transaction count until the client has its answers.
    let mut slow = held.pop().unwrap();
    assert_eq!(slow.ask("DISCARD").await, "+OK");
    assert_eq!(slow.ask("MULTI").await, "+OK");
    for _ in 0..40 {
        assert_eq!(slow.ask(&format!("ID.NEXT default COUNT {MAX_COUNT}")).await, "+QUEUED");
    }
    for _ in 0..4 {
        assert_eq!(slow.ask(&echo).await, "+QUEUED");
    }
    assert_eq!(slow.ask("EXEC").await, "*44");
    assert_eq!(other.ask("MULTI").await, "+OK");
    let mut refused = false;
    for _ in 0..4 {
        refused |= other.ask(&echo).await.starts_with("-ERR transactions of all clients too large");
    }
    assert!(refused);
    assert!(other.ask("EXEC").await.starts_with("-EXECABORT"));
    held.push(slow);
    // One connection has its own limit.
    let first = &mut held[0];
    assert!(first.ask(&echo).await.starts_with("-ERR transaction too large"));
    assert!(first.ask("PING").await == "+QUEUED" && first.ask("EXEC").await.starts_with("-EXECABORT"));
    drop(held);
    loop {
        assert_eq!(other.ask("MULTI").await, "+OK");
        let queued = other.ask(&echo).await;
        if queued == "+QUEUED" && other.ask(&echo).await == "+QUEUED" && other.ask(&echo).await == "+QUEUED" {
            break;
        }
        other.ask("DISCARD").await;
    }
}

#[tokio::test]
async fn the_last_place_is_taken_and_given_back() {
    let server = Running::with(Settings { max_connections: 1, ..settings() }).await;
    let mut first = server.resp().await;
    assert_eq!(first.ask("PING").await, "+PONG");
    let refused = String::from_utf8(server.resp().await.rest().await).unwrap();
    assert_eq!(refused, "-ERR max number of clients reached\r\n");
    assert_eq!(first.ask("QUIT").await, "+OK");
    assert!(first.rest().await.is_empty());
    drop(first);
    // A connection is free once the server has seen the close. Until then clients get an error, never
    // silence.
    loop {
        let mut next = server.resp().await;
        if next
            .stream
            .write_all(
                b"PING
",
            )
            .await
            .is_ok()
            && next.line().await == "+PONG"
        {
            break;
        }
    }
}

#[tokio::test]
async fn the_end_closes_idle_connections_and_refuses_new_ones() {
    let server = Running::start().await;
    let (resp, mut idle, mut fresh) = (server.resp, server.resp().await, server.resp().await);
    assert_eq!(idle.ask("PING").await, "+PONG");
    assert_eq!(fresh.ask("PING").await, "+PONG");
    let ended = server.end().await.unwrap();
    assert_eq!(ended.cut, 0);
    assert!(idle.rest().await.is_empty() && fresh.rest().await.is_empty());
    assert!(tokio::net::TcpStream::connect(resp).await.is_err());
}

/// Goal: a request that waits at shutdown is answered before the connection closes.
#[tokio::test]
async fn the_end_lets_a_waiting_request_finish() {
    let server = Running::start().await;
    let (source, mut client) = (server.source.clone(), server.resp().await);
    source.set_stuck(true);
    client.send(b"PING\r\nID.NEXT default COUNT 50000\r\n").await;
    assert_eq!(client.line().await, "+PONG", "what is ready does not wait with what is not");
    source.waiting(1).await;
    let ending = server.end();
    source.set_stuck(false);
    assert_eq!(client.line().await, "*50000");
    assert_eq!(client.ids(50_000).await.len(), 50_000);
    assert!(client.rest().await.is_empty());
    assert_eq!(ending.await.unwrap().cut, 0);
}

#[tokio::test]
async fn a_shutdown_closes_what_does_not_finish() {
    let drain = Duration::from_millis(50);
    let server = Running::with(Settings { drain, ..settings() }).await;
    let (source, mut client) = (server.source.clone(), server.resp().await);
    source.set_stuck(true);
    client.send(b"ID.NEXT default COUNT 50000\r\n").await;
    source.waiting(1).await;
    assert_eq!(server.end().await.unwrap().cut, 1);
    assert!(client.rest().await.is_empty());
}

/// Goal: ranges hold the ids between two lists, and more than a list may have.
#[tokio::test]
async fn ranges_are_first_count_and_step() {
    let server = Running::start().await;
    let mut client = server.resp().await;
    for (command, error) in [
        (
            "ID.RANGE default",
            "-ERR wrong number of arguments for 'id.range' command: expected ID.RANGE namespace COUNT n",
        ),
        ("ID.RANGE default TIMES 3", "-ERR syntax error near `TIMES`: expected ID.RANGE NAMESPACE COUNT n"),
        ("ID.RANGE default COUNT 1000001", "-ERR invalid count 1000001: expected 1 to 1000000"),
    ] {
        assert_eq!(client.ask(command).await, error);
    }
    assert!(client.ask("ID.RANGE nope COUNT 3").await.starts_with("-NONAMESPACE "));
    client.send(b"ID.NEXT default\r\n").await;
    let mut last = client.ids(1).await[0];
    for count in [1_u64, 4096, 1_000_000] {
        let ranges = client.ask(&format!("ID.RANGE default COUNT {count}")).await;
        let ranges: usize = ranges.strip_prefix('*').unwrap().parse().unwrap();
        let mut seen = 0;
        for _ in 0..ranges {
            assert_eq!(client.line().await, "*3");
            let first = client.ids(1).await[0];
            let counted: u64 = client.line().await.strip_prefix(':').unwrap().parse().unwrap();
            assert_eq!(client.line().await, ":1");
            assert!(first > last);
            (last, seen) = (first + counted - 1, seen + counted);
        }
        assert_eq!(seen, count);
    }
    client.send(b"ID.NEXT default\r\n").await;
    assert!(client.ids(1).await[0] > last);
}
