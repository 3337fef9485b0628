//! Unmodified third-party clients: redis-cli, redis-benchmark, redis-py, node-redis, ioredis and curl.
//!
//! Each test draws ids with one client in the ways its users do, and checks shape, order and uniqueness.

use serde_json::Value;
use snowmint_test_servers::snowmint::ids::increase;
use snowmint_test_servers::snowmint::resp::command;
use snowmint_test_servers::snowmint::third_party::{node, output, python, run, run_with_input};
use snowmint_test_servers::snowmint::{self, Ids, Serve, Server};

/// The ids in a text, one per line.
fn lines(text: &str) -> Vec<u64> {
    text.lines().map(|line| line.trim().parse().unwrap_or_else(|_| panic!("no id: {line:?}"))).collect()
}

fn port(server: &Server) -> String {
    server.resp().port().to_string()
}

#[test]
fn redis_cli() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let port = port(&server);
    let cli = |args: &[&str]| output("redis-cli", ["-p", &port].into_iter().chain(args.iter().copied()));
    let mut ids = Ids::new();

    let three = lines(&cli(&["ID.NEXT", "default", "COUNT", "3"]));
    assert_eq!(three.len(), 3);
    let resp3 = lines(&cli(&["-3", "ID.NEXT", "default", "COUNT", "3"]));
    let one = lines(&cli(&["id.next", "default"]));
    let repeated = lines(&cli(&["-r", "50", "ID.NEXT", "default"]));
    let all: Vec<u64> = [&three[..], &resp3, &one, &repeated].concat();
    assert!(increase(&all), "{all:?}");
    ids.add(&all);

    assert_eq!(cli(&["PING"]).trim(), "PONG");
    assert_eq!(cli(&["-n", "0", "PING", "hello"]).trim(), "hello");
    let json: Value =
        serde_json::from_str(&cli(&["--json", "-3", "ID.INSPECT", &one[0].to_string()])).unwrap();
    assert!(json.to_string().contains("worker"), "{json}");
    let worker = server.get("/readyz").json()["worker"].as_u64();
    let parts = cli(&["ID.INSPECT", &one[0].to_string()]);
    let after_worker = parts.lines().skip_while(|line| line.trim() != "worker").nth(1);
    assert_eq!(after_worker.and_then(|it| it.trim().parse().ok()), worker, "{parts}");

    // Rejected as Redis does it; with -e, redis-cli exits with 1 after an error reply.
    for (bad, word) in [
        (&["ID.NEXT"][..], "wrong number of arguments"),
        (&["ID.NEXT", "nope"], "NONAMESPACE"),
        (&["FLUSHALL"], "unknown command"),
    ] {
        let refused = run("redis-cli", ["-e", "-p", &port].into_iter().chain(bad.iter().copied()));
        let text = snowmint::text(&refused);
        assert!(!refused.status.success() && text.contains(word), "{bad:?}: {text}");
    }

    // Commands from its standard input, as scripts use it.
    let many = "ID.NEXT default\n".repeat(500);
    let many = run_with_input("redis-cli", ["-p", &port], &many);
    ids.add(&lines(&String::from_utf8(many.stdout).unwrap()));
    ids.assert_unique();
}

/// Goal: redis-cli's mass insertion works, which pipelines raw protocol and counts the replies.
#[test]
fn redis_cli_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let input = String::from_utf8(command(&["ID.NEXT", "default"]).repeat(10_000)).unwrap();
    let piped = run_with_input("redis-cli", ["-p", &port(&server), "--pipe"], &input);
    let text = snowmint::text(&piped);
    assert!(piped.status.success() && text.contains("errors: 0, replies: 10000"), "{text}");
    assert!(server.metric("snowmint_ids_issued_total") >= 10_000.0);
}

#[test]
fn redis_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let port = port(&server);
    let bench = |args: &[&str]| {
        let common = ["-p", &port, "--csv"];
        let done = run("redis-benchmark", common.into_iter().chain(args.iter().copied()));
        let text = snowmint::text(&done);
        assert!(done.status.success(), "{text}");
        for word in ["Error", "ERR", "WARNING"] {
            assert!(!text.contains(word), "{text}");
        }
        text
    };
    for args in [
        &["-c", "50", "-n", "20000", "-P", "16", "ID.NEXT", "default"][..],
        &["-3", "-c", "8", "-n", "5000", "ID.NEXT", "default", "COUNT", "10"],
        &["--threads", "2", "-c", "50", "-n", "20000", "ID.NEXT", "default"],
    ] {
        let text = bench(args);
        assert!(text.contains("ID.NEXT default"), "{text}");
    }
    let ping = bench(&["-t", "ping", "-n", "20000", "-P", "16"]);
    assert!(ping.contains("PING_INLINE") && ping.contains("PING_MBULK"), "{ping}");
    assert!(server.metric("snowmint_ids_issued_total") >= 90_000.0);
}

const REDIS_PY: &str = r#"
import sys, threading, redis
port = int(sys.argv[1])
ids, lock = [], threading.Lock()
def add(new):
    new = [int(id) for id in new]
    for a, b in zip(new, new[1:]):
        assert a < b, (a, b)
    with lock:
        ids.extend(new)
for protocol in (2, 3):
    for decode in (False, True):
        r = redis.Redis(port=port, protocol=protocol, decode_responses=decode, client_name="blackbox")
        assert r.ping() is True
        one = r.execute_command("ID.NEXT", "default")
        assert type(one) is (str if decode else bytes), one
        one = int(one)
        many = r.execute_command("ID.NEXT", "default", "COUNT", 1000)
        assert type(many) is list and len(many) == 1000, many
        whole = r.execute_command("ID.NEXT", "default", "INTEGER")
        wholes = r.execute_command("ID.NEXT", "default", "COUNT", 3, "INTEGER")
        assert all(type(id) is int for id in [whole] + wholes), wholes
        add([one] + many + [whole] + wholes)
        with r.pipeline(transaction=False) as pipe:
            for i in range(200):
                pipe.execute_command("ID.NEXT", "default")
            pipe.execute_command("ID.NEXT", "default", "COUNT", 3)
            pipe.execute_command("ID.NEXT", "nope")
            pipe.execute_command("ID.NEXT", "default")
            out = pipe.execute(raise_on_error=False)
        assert isinstance(out[201], redis.ResponseError) and "nope" in str(out[201]), out[201]
        add(out[:200] + out[200] + out[202:])
        # Its default: MULTI, the commands, EXEC.
        with r.pipeline() as pipe:
            for i in range(200):
                pipe.execute_command("ID.NEXT", "default")
            pipe.execute_command("ID.NEXT", "default", "COUNT", 3)
            pipe.execute_command("ID.NEXT", "nope")
            pipe.ping()
            out = pipe.execute(raise_on_error=False)
        assert isinstance(out[201], redis.ResponseError) and "nope" in str(out[201]), out[201]
        assert out[202] is True, out
        add(out[:200] + out[200])
        with r.pipeline() as pipe:
            pipe.execute_command("NO.SUCH")
            try:
                pipe.execute()
                raise SystemExit("an unknown command was done")
            except redis.ResponseError as e:
                assert "NO.SUCH" in str(e) or "discarded" in str(e), e
        add(r.transaction(lambda pipe: pipe.execute_command("ID.NEXT", "default")))
        parts = r.execute_command("ID.INSPECT", str(one))
        if type(parts) is list:
            parts = dict(zip(parts[::2], parts[1::2]))
        key = "worker" if decode else b"worker"
        assert parts[key] == (one >> 12) & 31, parts
        for bad in (0, -1, 10**9, "x"):
            try:
                r.execute_command("ID.NEXT", "default", "COUNT", bad)
                raise SystemExit("count %r was taken" % bad)
            except redis.ResponseError as e:
                assert "100000" in str(e), e
        assert r.info()["redis_version"]
        r.close()
    pool = redis.ConnectionPool(port=port, protocol=protocol, max_connections=8)
    def work():
        r = redis.Redis(connection_pool=pool)
        for i in range(100):
            add(r.execute_command("ID.NEXT", "default", "COUNT", 10))
    threads = [threading.Thread(target=work) for i in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    pool.disconnect()
    url = redis.from_url("redis://127.0.0.1:%d/0?protocol=%d" % (port, protocol))
    add(url.execute_command("ID.NEXT", "default", "COUNT", 5))
print("\n".join(map(str, ids)))
"#;

#[test]
fn redis_py_with_both_protocols_pipelines_and_pools() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let printed = lines(&python("redis", REDIS_PY, &[&port(&server)]));
    assert!(printed.len() > 20_000);
    let mut ids = Ids::new();
    ids.add(&printed);
    ids.assert_unique();
}

const NODE_REDIS: &str = r"
const { createClient } = require('redis');
(async () => {
  for (const RESP of [2, 3]) {
    const client = createClient({ url: `redis://127.0.0.1:${process.argv[1]}`, RESP });
    client.on('error', (error) => { throw error; });
    await client.connect();
    await check((words) => client.sendCommand(words));
    await client.quit();
  }
})();
";

const IOREDIS: &str = r"
const Redis = require('ioredis');
(async () => {
  const client = new Redis(Number(process.argv[1]), '127.0.0.1');
  client.on('error', (error) => { throw error; });
  await check(([command, ...words]) => client.call(command, ...words));
  await client.quit();
})();
";

/// The script part that both clients share. JavaScript's numbers hold 53 bits, so each id has to arrive as a
/// string of digits.
const CHECK: &str = r"
const assert = require('assert');
async function check(call) {
  const ids = [];
  for (let i = 0; i < 1000; i++) ids.push(await call(['ID.NEXT', 'default']));
  ids.push(...await call(['ID.NEXT', 'default', 'COUNT', '1000']));
  assert(ids.every((id) => typeof id === 'string'), `not strings: ${ids[0]}`);
  assert.strictEqual(new Set(ids).size, 2000);
  console.log(ids.join('\n'));
  // Small numbers are integers on request, and INCR answers as in Redis.
  const number = await call(['ID.NEXT', 'n', 'INTEGER']);
  assert.strictEqual(await call(['INCR', 'n']), number + 1);
  assert.deepStrictEqual(await call(['ID.NEXT', 'n', 'COUNT', '2', 'INTEGER']), [number + 2, number + 3]);
  assert.strictEqual(await call(['ID.NEXT', 'n']), String(number + 4));
  await assert.rejects(call(['ID.NEXT', 'keys', 'INTEGER']), /WRONGTYPE.*omit INTEGER/);
}
";

/// Goal: JavaScript clients keep every digit. Method: node-redis in both versions of the protocol and
/// ioredis, unmodified; 1,000 ids one by one and 1,000 at once.
#[test]
fn javascript_clients_keep_every_digit() {
    let folder = tempfile::tempdir().unwrap();
    snowmint::run(folder.path(), ["store", "init", "--data", "data"]);
    for args in [&["n", "--scheme", "segment"][..], &["keys", "--scheme", "uuid7"]] {
        let ran = snowmint::run(folder.path(), [&["ns", "add"], args, &["--data", "data"]].concat());
        assert!(ran.status.success(), "{}", snowmint::text(&ran));
    }
    let server = Serve::new(folder.path()).start();
    let mut ids = Ids::new();
    for script in [NODE_REDIS, IOREDIS] {
        ids.add(&lines(&node(&format!("{CHECK}{script}"), &[&port(&server)])));
    }
    assert_eq!(ids.len(), 3 * 2000);
    ids.assert_unique();
}

#[test]
fn curl_over_http_1() {
    curl_with("--http1.1", "1.1");
}

#[test]
fn curl_over_http_2() {
    curl_with("--http2-prior-knowledge", "2");
}

/// Goal: HEAD is answered like GET without the body, over either version. curl fails if a body follows.
#[test]
fn curl_asks_with_head() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    for flag in ["--http1.1", "--http2-prior-knowledge"] {
        for (path, status) in [("/readyz", " 200"), ("/console", " 200"), ("/nope", " 404")] {
            let url = format!("http://{}{path}", server.http());
            let answer = output("curl", ["-sS", flag, "-I", &url]).to_ascii_lowercase();
            assert!(answer.contains(status), "{flag} {path}: {answer}");
            let length = answer.lines().find_map(|line| line.strip_prefix("content-length: "));
            let body = output("curl", ["-sS", flag, &url]);
            assert_eq!(length, Some(&*body.len().to_string()), "{flag} {path}: {answer}");
        }
    }
}

const POSTS_OF_NODE: &str = r"
const http = require('node:http'), http2 = require('node:http2');
const [, address] = process.argv;
const path = '/v1/ids/default?count=2';
const text = async (stream) => { let all = ''; for await (const part of stream.setEncoding('utf8')) all += part; return all; };
const http1 = (send) => new Promise((done, fail) => {
  const request = http.request(`${address}${path}`, { method: 'POST', agent: false });
  request.on('response', async (answer) => done([answer.statusCode, await text(answer)])).on('error', fail);
  send(request);
});
const session = http2.connect(address);
const second = (bytes) => new Promise((done, fail) => {
  const stream = session.request({ ':method': 'POST', ':path': path });
  stream.on('response', async (head) => done([head[':status'], await text(stream)])).on('error', fail);
  stream.end(bytes);
});
(async () => {
  const fetched = await fetch(`${address}${path}`, { method: 'POST' });
  const empty = [
    [fetched.status, await fetched.text()],
    await http1((request) => request.end()),
    await http1((request) => { request.flushHeaders(); request.end(); }),
    await second(),
    await second(''),
  ];
  const full = [await http1((request) => { request.flushHeaders(); request.end('{}'); }), await second('{}')];
  session.close();
  console.log(JSON.stringify({ empty, full }));
})();
";

/// Goal: a POST without a body draws ids, whether or not its client says at once that there is none; a body
/// with bytes is refused. Method: curl in each version and with chunks, and Node.js, whose HTTP/2 ends the
/// request in a frame of its own.
#[test]
fn a_post_without_a_body_draws_ids() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let address = format!("http://{}", server.http());
    let url = format!("{address}/v1/ids/default?count=2");
    let curl = |args: &[&str]| {
        let common = ["-sS", "-w", "\n%{http_code}", "-X", "POST", &url];
        output("curl", common.into_iter().chain(args.iter().copied()))
    };
    let chunked = ["-H", "Transfer-Encoding: chunked", "--http1.1"];
    for args in [
        &["--http1.1"][..],
        &["--http1.1", "-d", ""],
        &[&chunked[..], &["-d", ""]].concat(),
        &["--http2-prior-knowledge"],
        &["--http2-prior-knowledge", "-d", ""],
        // It offers h2c, and gets the answer over HTTP/1.1.
        &["--http2", "-d", ""],
    ] {
        let answer = curl(args);
        assert!(answer.ends_with("\n200") && answer.contains("\"ids\""), "{args:?}: {answer}");
    }
    for args in [
        &["--http1.1", "-d", "{}"][..],
        &[&chunked[..], &["-d", "{}"]].concat(),
        &["--http2-prior-knowledge", "-d", "{}"],
    ] {
        let answer = curl(args);
        assert!(answer.ends_with("\n400") && answer.contains("unexpected body"), "{args:?}: {answer}");
    }
    let done: Value = serde_json::from_str(&node(POSTS_OF_NODE, &[&address])).unwrap();
    for (kind, status, word) in [("empty", 200, "\"ids\""), ("full", 400, "unexpected body")] {
        for answer in done[kind].as_array().unwrap() {
            assert!(answer[0] == status && answer[1].as_str().unwrap().contains(word), "{done}");
        }
    }
    assert_eq!(server.metric("snowmint_ids_issued_total").to_string(), "22");
}

/// Goal: a page of an allowed origin may send requests and read answers over either version, and a repeated
/// POST gets the same ids.
#[test]
fn curl_as_a_web_page() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path())
        .args(["--cors-origin", "https://app.example,http://localhost:3000"])
        .start();
    for (nth, flag) in ["--http1.1", "--http2-prior-knowledge"].into_iter().enumerate() {
        let curl = |args: &[&str], path: &str| {
            let url = format!("http://{}{path}", server.http());
            output("curl", ["-sS", "-i", flag, &url].into_iter().chain(args.iter().copied()))
                .to_ascii_lowercase()
        };
        let page = ["-H", "Origin: https://app.example", "-H", "Sec-Fetch-Site: cross-site"];
        let asks = ["-X", "OPTIONS", "-H", "Access-Control-Request-Method: POST"];
        let answer = curl(&[&page[..], &asks].concat(), "/v1/ids/default");
        assert!(
            answer.contains(" 204") && answer.contains("access-control-allow-methods: get, head, post"),
            "{answer}"
        );
        let key = format!("Idempotency-Key: \"8e03978e-40d5-43e8-bc93-{nth}\"");
        let post = [&page[..], &["-X", "POST", "-H", &key]].concat();
        let [first, again] = [(); 2].map(|()| curl(&post, "/v1/ids/default?count=5"));
        assert!(
            first.contains(" 200") && first.contains("access-control-allow-origin: https://app.example"),
            "{first}"
        );
        let is_replayed = |answer: &str| answer.contains("idempotency-replayed: true");
        assert!(is_replayed(&again) && !is_replayed(&first), "{again}");
        let body = |answer: &str| answer.split_once("\r\n\r\n").unwrap().1.to_owned();
        assert_eq!(body(&first), body(&again));
        let other = curl(
            &["-H", "Origin: https://evil.example", "-H", "Sec-Fetch-Site: cross-site"],
            "/v1/ids/default",
        );
        assert!(other.contains(" 403") && !other.contains("access-control"), "{other}");
    }
    let refused = snowmint::run(folder.path(), ["serve", "--cors-origin", "*"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = snowmint::text(&refused);
    assert!(
        said.contains("--cors-origin") && said.contains("invalid origin `*`: expected scheme, host and port"),
        "{said}"
    );
}

fn curl_with(flag: &str, version: &str) {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let base = format!("http://{}", server.http());
    // Body, then the status and the type on a separate line.
    let curl = |args: &[&str], path: &str| -> (String, String, String) {
        let url = format!("{base}{path}");
        let common = ["-sS", flag, "-w", "\n%{http_version} %{http_code} %{content_type}", &url];
        let text = output("curl", common.into_iter().chain(args.iter().copied()));
        let (body, end) = text.rsplit_once('\n').unwrap();
        let (used, end) = end.split_once(' ').unwrap();
        assert_eq!(used, version);
        let (status, kind) = end.split_once(' ').unwrap();
        (body.to_owned(), status.to_owned(), kind.to_owned())
    };
    let json_ids = |body: &str| -> Vec<u64> {
        let json: Value = serde_json::from_str(body).unwrap();
        json["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().parse().unwrap()).collect()
    };
    let mut ids = Ids::new();

    let (body, status, kind) = curl(&[], "/v1/ids/default?count=3");
    assert_eq!((status.as_str(), kind.as_str()), ("200", "application/json"));
    let three = json_ids(&body);
    let one = json_ids(&curl(&[], "/v1/ids/default").0);
    let (body, _, kind) = curl(&["-H", "Accept: text/plain"], "/v1/ids/default?count=1000");
    assert!(kind.starts_with("text/plain"), "{kind}");
    let plain = lines(&body);
    let most = json_ids(&curl(&["--compressed"], "/v1/ids/default?count=100000").0);
    assert_eq!((three.len(), one.len(), plain.len(), most.len()), (3, 1, 1000, 100_000));
    let all = [&three[..], &one, &plain, &most].concat();
    assert!(increase(&all));
    ids.add(&all);

    let (body, status, kind) = curl(&[], "/v1/ranges/default?count=20000");
    assert_eq!((status.as_str(), kind.as_str()), ("200", "application/json"), "{body}");
    let ranges: Value = serde_json::from_str(&body).unwrap();
    let mut in_ranges = Vec::new();
    for range in ranges["ranges"].as_array().unwrap() {
        let number = |name: &str| range[name].as_str().unwrap().parse::<u64>().unwrap();
        let count = range["count"].as_u64().unwrap();
        in_ranges.extend((0..count).map(|nth| number("first") + nth * number("step")));
    }
    assert!(in_ranges.len() == 20_000 && increase(&in_ranges));
    ids.add(&in_ranges);
    let plain = lines(&curl(&[], "/v1/ids/default?count=5&format=text&wait=1").0);
    let tinyid = curl(&["-X", "POST"], "/tinyid/id/nextIdSimple?bizType=default&batchSize=3").0;
    let tinyid: Vec<u64> = tinyid.split(',').map(|id| id.parse().unwrap()).collect();
    assert_eq!((plain.len(), tinyid.len()), (5, 3));
    ids.add(&plain);
    ids.add(&tinyid);

    let (head, status, _) = curl(&["-I"], "/v1/ids/default");
    assert!(status == "200" && head.to_ascii_lowercase().contains("cache-control: no-store"), "{head}");
    let (body, status, kind) = curl(&[], "/nowhere");
    assert_eq!((status.as_str(), kind.as_str()), ("404", "application/problem+json"), "{body}");
    let (body, status, kind) = curl(&[], "/v1/ids/nope");
    assert_eq!((status.as_str(), kind.as_str()), ("404", "application/problem+json"), "{body}");
    let problem: Value = serde_json::from_str(&body).unwrap();
    assert!(problem["status"] == 404 && problem["detail"].as_str().unwrap().contains("nope"), "{body}");
    let (body, status, _) = curl(&["-X", "DELETE"], "/v1/ids/default");
    assert_eq!(status, "405", "{body}");

    let (body, status, _) = curl(&[], &format!("/v1/inspect/{}", one[0]));
    let parts: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, "200");
    assert_eq!(parts["id"], one[0].to_string());
    assert_eq!(
        (&parts["worker"], &parts["sequence"]),
        (&((one[0] >> 12) & 31).into(), &(one[0] & 4095).into())
    );
    for path in ["/healthz", "/readyz"] {
        assert_eq!(curl(&[], path).1, "200", "{path}");
    }
    let (metrics, status, _) = curl(&[], "/metrics");
    assert_eq!(status, "200");
    for name in
        ["snowmint_ids_issued_total{namespace=\"default\"}", "snowmint_lease_held 1", "process_open_fds "]
    {
        assert!(metrics.contains(name), "{name} is missing:\n{metrics}");
    }

    // Several requests over one connection, as `curl url url` does.
    let url = format!("{base}/v1/ids/default");
    let reused = output("curl", ["-sS", "-w", "\n%{num_connects}\n", &url, &url, &url]);
    let connects: u32 =
        reused.lines().filter(|line| line.len() == 1).map(|line| line.parse::<u32>().unwrap()).sum();
    assert_eq!(connects, 1, "{reused}");
    ids.assert_unique();
}
