//! Tests of commands without sockets: what is written for what is asked, in both versions of the protocol.
//! Texts of errors are those of Redis 7.2, byte for byte, where Redis has them.

use super::*;
use crate::resp::codec::{Parser, Step};
use crate::testing;

struct Client {
    server: Server,
    session: Session,
    connection: ConnectionState,
    tally: Tally,
}

impl Client {
    fn new() -> Self {
        let server = Server::for_tests(testing::mint());
        let connection = server.mint.connection_state();
        Self { server, session: Session::new(7), connection, tally: Tally::default() }
    }

    /// Sends a plain line; the reply, with what the connection would do about it after that.
    fn call(&mut self, line: &str) -> (String, Flow) {
        let (mut parser, mut out) = (Parser::default(), Vec::new());
        let line = format!("{line}\n");
        let Ok(Step::Command { args, .. }) = parser.next(line.as_bytes()) else {
            panic!("{line} is not a command")
        };
        let Self { server, session, connection, tally } = self;
        let flow =
            Call { server, session, connection, tally, args, bytes: line.as_bytes(), out: &mut out }.run();
        (String::from_utf8(out).unwrap(), flow)
    }

    fn reply(&mut self, line: &str) -> String {
        let (reply, flow) = self.call(line);
        assert!(matches!(flow, Flow::Done), "{line}: {flow:?}");
        reply
    }
}

/// Goal: no client rounds an id, whichever version of the protocol it chose: an id is text unless it asks for an integer.
#[test]
fn one_id_is_a_bulk_string_and_an_integer_only_on_request() {
    let mut client = Client::new();
    let first = client.reply("ID.NEXT default");
    client.reply("HELLO 3");
    let second = client.reply("id.next orders");
    let number = |reply: &str| {
        let digits = reply.trim_end().strip_prefix("$19\r\n").unwrap_or_else(|| panic!("{reply}"));
        digits.parse::<u64>().unwrap()
    };
    assert!(number(&first) < number(&second));
    for (line, array) in [
        ("ID.NEXT default INTEGER", false),
        ("ID.NEXT default integer COUNT 1", true),
        ("ID.NEXT default COUNT 1 INTEGER", true),
    ] {
        let Flow::Ids(Request { answer, .. }, mut ids) = client.call(line).1 else { panic!("{line}") };
        assert_eq!(answer, Answer { array, id: Written::Integer }, "{line}");
        let (mut out, id) = (Vec::new(), ids.next().unwrap());
        write_id(&mut out, &ids, id, answer.id, &mut Vec::new());
        assert!(out.starts_with(b":") && out.len() == 22, "{line}: {}", String::from_utf8_lossy(&out));
    }
}

#[test]
fn a_count_makes_an_array_even_of_one() {
    let mut client = Client::new();
    for (line, len) in [("ID.NEXT default COUNT 1", 1), ("Id.Next default cOuNt 0010", 10)] {
        let (reply, flow) = client.call(line);
        let Flow::Ids(Request { answer: Answer { array: true, id: Written::Text }, .. }, ids) = flow else {
            panic!("{flow:?}")
        };
        assert_eq!((reply.as_str(), ids.len()), ("", len));
    }
    // More than the tick has: the rest has to be waited for.
    assert!(matches!(
        client.call("ID.NEXT default COUNT 100000").1,
        Flow::Wait(Request { answer: Answer { array: true, .. }, .. }, _)
    ));
}

#[test]
fn what_is_wrong_with_id_next_is_told() {
    let mut client = Client::new();
    for (line, wanted) in [
        ("ID.NEXT", "-ERR wrong number of arguments for 'id.next' command\r\n"),
        ("ID.NEXT default COUNT", "-ERR syntax error\r\n"),
        ("ID.NEXT default LIMIT 5", "-ERR syntax error\r\n"),
        ("ID.NEXT default COUNT 5 6", "-ERR syntax error\r\n"),
        ("ID.NEXT default COUNT 5 COUNT 6", "-ERR syntax error\r\n"),
        ("ID.NEXT default INTEGER INTEGER", "-ERR syntax error\r\n"),
        ("ID.NEXT default INTEGER COUNT", "-ERR syntax error\r\n"),
        ("ID.NEXT nope INTEGER", "-NONAMESPACE "),
        ("ID.NEXT default COUNT 0", "-ERR invalid count 0: expected 1 to 100000\r\n"),
        ("ID.NEXT default COUNT -1", "-ERR invalid count -1: "),
        ("ID.NEXT default COUNT 100001", "-ERR invalid count 100001: "),
        ("ID.NEXT default COUNT 1e9", "-ERR invalid count `1e9`: "),
        ("ID.NEXT default COUNT abc", "-ERR invalid count `abc`: "),
        ("ID.NEXT default COUNT \"\"", "-ERR invalid count ``: "),
        ("ID.NEXT nope", "-NONAMESPACE unknown namespace `nope`: this server has default, orders; "),
        ("ID.NEXT nope COUNT 0", "-NONAMESPACE "),
        ("ID.NEXT \"a\\r\\n+OK\"", "-ERR invalid namespace name `a\\r\\n+OK`: "),
        ("ID.INSPECT x", "-ERR invalid id `x`: "),
        ("ID.INSPECT x NAMESPACE default", "-ERR `x` is not an id of namespace `default`: "),
        ("ID.INSPECT 7 NAMESPACE nope", "-NONAMESPACE unknown namespace `nope`: "),
        ("ID.INSPECT 7 LAYOUT time:99", "-ERR invalid layout `time:99`: "),
        ("ID.INSPECT 7 LAYOUT", "-ERR syntax error"),
        ("ID.INSPECT 7 NAMESPACE default x", "-ERR syntax error"),
        ("ID.INSPECT 7 OF default", "-ERR syntax error"),
        ("ID.INSPECT", "-ERR wrong number of arguments for 'id.inspect' command\r\n"),
    ] {
        let reply = client.reply(line);
        assert!(reply.starts_with(wanted), "{line}: {reply}");
        assert!(reply.ends_with("\r\n") && reply.matches('\n').count() == 1, "{line}: {reply}");
    }
}

#[test]
fn unknown_commands_are_told_as_redis_does() {
    let mut client = Client::new();
    assert_eq!(client.reply("foo a b"), "-ERR unknown command 'foo', with args beginning with: 'a' 'b' \r\n");
    assert_eq!(client.reply("Foo"), "-ERR unknown command 'Foo', with args beginning with: \r\n");
    let long = client.reply(&format!("{} {} more", "x".repeat(300), "y".repeat(300)));
    let (name, arg) = ("x".repeat(128), "y".repeat(128));
    assert_eq!(long, format!("-ERR unknown command '{name}', with args beginning with: '{arg}' \r\n"));
    assert!(!client.reply("\"a\\r\\nb\" \"c\\nd\"").trim_end().contains(['\r', '\n']));
    for http in ["POST / HTTP/1.1", "Host: localhost"] {
        assert!(matches!(client.call(http), (reply, Flow::Abandon) if reply.is_empty()), "{http}");
    }
}

#[test]
fn inspect_in_both_versions() {
    let mut client = Client::new();
    let resp2 = client.reply("ID.INSPECT 1541815603606036480 NAMESPACE default");
    assert!(
        resp2.starts_with("*18\r\n$2\r\nid\r\n$19\r\n1541815603606036480\r\n$6\r\nlayout\r\n"),
        "{resp2}"
    );
    assert!(resp2.contains("$6\r\nworker\r\n:26\r\n"), "{resp2}");
    assert_eq!(client.reply("id.inspect 1541815603606036480 layout twitter"), resp2);
    let spec = "time:41 datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z";
    assert_eq!(client.reply(&format!("id.inspect 1541815603606036480 layout {spec}")), resp2);
    let all = client.reply("ID.INSPECT 1541815603606036480");
    let (head, guesses) = all.split_once("$7\r\nguesses\r\n").unwrap();
    assert_eq!(head.replacen("*20", "*18", 1), resp2);
    let first = "*14\r\n$4\r\nname\r\n$7\r\ntwitter\r\n$4\r\nform\r\n$7\r\ndecimal\r\n";
    let owners = "$10\r\nnamespaces\r\n*2\r\n$7\r\ndefault\r\n$6\r\norders\r\n";
    assert!(
        guesses.contains(first) && guesses.contains(owners) && guesses.contains("$4\r\nleaf\r\n"),
        "{guesses}"
    );
    client.reply("HELLO 3");
    let resp3 = client.reply("ID.INSPECT 1541815603606036480 NAMESPACE default");
    assert_eq!(resp3, resp2.replacen("*18", "%9", 1));
    let all = client.reply("ID.INSPECT 1541815603606036480");
    assert!(all.starts_with("%10\r\n") && all.contains("\r\n%7\r\n$4\r\nname\r\n$7\r\ntwitter\r\n"), "{all}");
}

/// Goal: what a client calls itself is held as long as it is connected, so it is bounded.
#[test]
fn the_name_of_a_client_is_bounded() {
    use crate::limits::resp::MAX_CLIENT_NAME;
    let mut client = Client::new();
    let name = |bytes| format!("CLIENT SETNAME {}", "n".repeat(bytes));
    assert_eq!(client.reply(&name(MAX_CLIENT_NAME)), "+OK\r\n");
    let refused = client.reply(&name(MAX_CLIENT_NAME + 1));
    assert!(refused.starts_with("-ERR "), "{refused}");
}

#[test]
fn hello_answers_and_changes_all_or_nothing() {
    let mut client = Client::new();
    let resp2 = client.reply("HELLO");
    assert!(resp2.starts_with("*14\r\n$6\r\nserver\r\n$8\r\nsnowmint\r\n$7\r\nversion\r\n"), "{resp2}");
    assert!(
        resp2.contains("$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:7\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n"),
        "{resp2}"
    );
    for (line, wanted) in [
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"),
        ("HELLO 3 AUTH bob secret", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
        ("HELLO 3 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'\r\n"),
        ("HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'\r\n"),
        (
            "HELLO 3 SETNAME 'a b'",
            "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
        ),
    ] {
        assert_eq!(client.reply(line), wanted);
    }
    assert!(client.reply("HELLO").starts_with("*14"), "a refused HELLO changes nothing");
    assert!(client.reply("HELLO 3 AUTH default x SETNAME app").starts_with("%7\r\n"));
    assert_eq!(client.reply("CLIENT GETNAME"), "$3\r\napp\r\n");
    assert_eq!(client.reply("RESET"), "+RESET\r\n");
    assert_eq!(client.reply("CLIENT GETNAME"), "$-1\r\n");
}

#[test]
fn what_clients_send_when_they_connect() {
    let mut client = Client::new();
    for (line, wanted) in [
        ("PING", "+PONG\r\n"),
        ("PING hi", "$2\r\nhi\r\n"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command\r\n"),
        ("ECHO hi", "$2\r\nhi\r\n"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n"),
        ("client setinfo lib-ver 7.0.1", "+OK\r\n"),
        ("CLIENT SETINFO LIB-X 1", "-ERR Unrecognized option 'lib-x'\r\n"),
        (
            "CLIENT SETINFO LIB-NAME 'a b'",
            "-ERR lib-name cannot contain spaces, newlines or special characters.\r\n",
        ),
        ("CLIENT SETNAME worker-1", "+OK\r\n"),
        ("CLIENT SETNAME", "-ERR wrong number of arguments for 'client|setname' command\r\n"),
        ("CLIENT GETNAME", "$8\r\nworker-1\r\n"),
        ("CLIENT ID", ":7\r\n"),
        ("CLIENT NO-EVICT ON", "+OK\r\n"),
        ("CLIENT NO-EVICT maybe", "-ERR syntax error\r\n"),
        ("CLIENT KILL x", "-ERR unknown subcommand 'KILL'. Try CLIENT HELP.\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        ("SELECT x", "-ERR value is not an integer or out of range\r\n"),
        (
            "AUTH secret",
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure \
                         your configuration is correct?\r\n",
        ),
        ("AUTH default x", "+OK\r\n"),
        ("AUTH bob x", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CONFIG GET nope", "*0\r\n"),
        ("CONFIG SET save x", "-ERR unknown subcommand 'SET'. Try CONFIG HELP.\r\n"),
        ("COMMAND COUNT", ":20\r\n"),
        ("COMMAND INFO nope", "*1\r\n*-1\r\n"),
        (
            "COMMAND INFO echo",
            "*1\r\n*10\r\n$4\r\necho\r\n:2\r\n*1\r\n+fast\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
        ),
        ("COMMAND NOPE", "-ERR unknown subcommand 'NOPE'. Try COMMAND HELP.\r\n"),
    ] {
        assert_eq!(client.reply(line), wanted, "{line}");
    }
    assert!(client.reply("COMMAND").starts_with("*20\r\n*10\r\n$7\r\nid.next\r\n:-2\r\n"));
    assert!(client.reply("COMMAND LIST").starts_with("*20\r\n$7\r\nid.next\r\n"));
    assert!(
        client.reply("COMMAND DOCS id.next").starts_with("*2\r\n$7\r\nid.next\r\n*8\r\n$7\r\nsummary\r\n")
    );
    assert!(
        client.reply("CLIENT INFO").contains("name=worker-1 db=0 resp=2 lib-name=redis-py lib-ver=7.0.1")
    );
    assert!(client.reply("INFO server").contains("\r\n# Server\r\nredis_version:7.2.0\r\n"));
    assert!(matches!(client.call("QUIT"), (reply, Flow::Close) if reply == "+OK\r\n"));
}

#[test]
fn the_tally_reaches_the_metrics_by_namespace() {
    let mut client = Client::new();
    for line in ["ID.NEXT default", "ID.NEXT default", "ID.NEXT orders", "PING", "ID.NEXT nope"] {
        client.reply(line);
    }
    client.tally.add_up(&client.server.metrics);
    let text = client.server.metrics.text(crate::metrics::Exposition::OpenMetrics).unwrap();
    for wanted in [
        "snowmint_ids_issued_total{namespace=\"default\"} 2\n",
        "snowmint_ids_issued_total{namespace=\"orders\"} 1\n",
        "snowmint_requests_total{protocol=\"resp\",outcome=\"ok\"} 4\n",
        "snowmint_requests_total{protocol=\"resp\",outcome=\"unknown-namespace\"} 1\n",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}
