//! Tokens with third-party clients: curl, redis-cli, redis-py, node-redis, ioredis and grpcio.

use std::fs;
use std::path::Path;
use std::time::Duration;

use snowmint_test_servers::snowmint::third_party::{node, output, python, run};
use snowmint_test_servers::snowmint::{self, Serve, Server};
use snowmint_test_servers::{port, time};

const PATIENCE: Duration = Duration::from_mins(1);

/// Creates a token with the command.
fn create(folder: &Path, name: &str, args: &[&str]) -> String {
    let ran = snowmint::run(folder, [&["token", "create", name, "--file", "tokens.toml"], args].concat());
    assert!(ran.status.success(), "{}", snowmint::text(&ran));
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

fn serve(folder: &Path, args: &[&str]) -> Server {
    let server = Serve::new(folder).args(["--tokens-file", "tokens.toml"]).args(args).spawn();
    server.log_with("ready: ids are served", PATIENCE);
    server
}

fn curl(server: &Server, path: &str, token: &str) -> (String, String) {
    let (url, header) = (format!("http://{}{path}", server.http()), format!("authorization: Bearer {token}"));
    let words = ["-sS", "-w", "\n%{http_code}", "-H", &header, &url];
    let text = output("curl", words);
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

/// Goal: one file may hold everything. Method: settings, namespaces and tokens in one, its tokens changed
/// while the node runs.
#[test]
fn tokens_may_be_in_the_configuration_file() {
    let folder = tempfile::tempdir().unwrap();
    let (web, ops) = (
        create(folder.path(), "web", &["--namespaces", "orders"]),
        create(folder.path(), "ops", &["--namespaces", "*"]),
    );
    let tokens = fs::read_to_string(folder.path().join("tokens.toml")).unwrap();
    let config = folder.path().join("all.toml");
    let settings = "log_format = 'text'\n\n[namespaces.orders]\nscheme = 'segment'\n\n";
    fs::write(&config, format!("{settings}{tokens}\n[auto_create]\nlike = 'orders'\nat_most = 5\n")).unwrap();
    let checked = snowmint::run(folder.path(), ["config", "check", "all.toml"]);
    assert!(checked.status.success(), "{}", snowmint::text(&checked));
    let printed = snowmint::text(&snowmint::run(folder.path(), ["config", "print", "--config", "all.toml"]));
    assert!(printed.contains("[tokens.web]") && printed.contains("[namespaces.orders]"), "{printed}");
    let both = ["config", "print", "--config", "all.toml", "--tokens-file", "tokens.toml"];
    let both = snowmint::text(&snowmint::run(folder.path(), both));
    assert!(both.contains("keep them in one file"), "{both}");

    let server = Serve::new(folder.path()).args(["--config", "all.toml"]).spawn();
    server.log_with("ready: ids are served", PATIENCE);
    assert_eq!(curl(&server, "/v1/ids/orders", &web).0, "200");
    assert_eq!(curl(&server, "/v1/ids/orders", "x").0, "401");
    assert_eq!(curl(&server, "/v1/ids/default", &web).0, "403");
    assert_eq!(curl(&server, "/v1/ids/created", &ops).0, "200");
    let (web_alone, _) = tokens.split_at(tokens.find("[tokens.ops]").unwrap());
    let web_alone = if web_alone.contains("[tokens.web]") {
        web_alone
    } else {
        &tokens[tokens.find("[tokens.web]").unwrap()..]
    };
    fs::write(&config, format!("{settings}{web_alone}")).unwrap();
    server.hang_up();
    server.log_with("tokens reloaded", PATIENCE);
    assert_eq!(
        (curl(&server, "/v1/ids/orders", &web).0, curl(&server, "/v1/ids/orders", &ops).0),
        ("200".to_owned(), "401".to_owned())
    );
}

/// Goal: the first tokens of a configuration file do not end the access of running clients without notice:
/// the log says that they need a restart. Method: tokens added to the file of a running node, and a restart.
#[test]
fn the_first_tokens_in_the_configuration_file_need_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    create(folder.path(), "web", &["--namespaces", "*"]);
    let tokens = fs::read_to_string(folder.path().join("tokens.toml")).unwrap();
    let config = folder.path().join("all.toml");
    fs::write(&config, "log_format = 'text'\n").unwrap();
    let serve = || Serve::new(folder.path()).args(["--config", "all.toml"]);
    let server = serve().start();
    server.hang_up();
    server.log_with("SIGHUP", PATIENCE);
    // The node notices the change by itself, and repeats the warning at each SIGHUP.
    fs::write(&config, format!("log_format = 'text'\n{tokens}")).unwrap();
    let warned = || server.log().matches("tokens are not in use, and clients need none").count();
    // Twice, if the first SIGHUP is handled as late as the change.
    let first = time::eventually("the warning", PATIENCE, || Some(warned()).filter(|&it| it > 0));
    server.hang_up();
    time::eventually("the warning again", PATIENCE, || (warned() > first).then_some(()));
    assert_eq!(server.get("/v1/ids/default").status, 200);
    server.stop();
    let server = serve().spawn();
    server.log_with("ready: ids are served", PATIENCE);
    assert_eq!(server.get("/v1/ids/default").status, 401);
}

/// Goal: the log names who was refused by the admin API, what they tried and from where, without the text of
/// a token, and attempts cannot fill it. Method: several attempts without a token, with an unknown one,
/// without the right, and for another namespace.
#[test]
fn refused_admin_requests_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let web = create(folder.path(), "web", &["--namespaces", "*"]);
    let team = create(folder.path(), "team", &["--namespaces", "a-*", "--rights", "admin"]);
    let server = serve(folder.path(), &["--log-format", "json"]);
    for _ in 0..3 {
        assert_eq!(curl(&server, "/v1/admin/workers", "smt_web_nonsense").0, "401");
        assert_eq!(curl(&server, "/v1/admin/drain", &web).0, "403");
        assert_eq!(curl(&server, "/v1/admin/audit?namespace=b-1", &team).0, "403");
        assert_eq!(curl(&server, "/v1/admin/namespaces/a-1", &team).0, "404");
    }
    let log = server.log();
    let lines = log.lines().filter(|it| it.contains("admin request refused"));
    let lines = lines.map(|it| serde_json::from_str::<serde_json::Value>(it).unwrap());
    // On a machine so slow that this took a minute, there are later lines, which count the attempts.
    let lines: Vec<_> = lines.filter(|line| line["attempts"] == 1).collect();
    let of = |line: &serde_json::Value, name: &str| line[name].as_str().unwrap().to_owned();
    let shown: Vec<_> =
        lines.iter().map(|line| format!("{} {}", of(line, "token"), of(line, "action"))).collect();
    let wanted = ["- GET /v1/admin/workers", "web GET /v1/admin/drain", "team GET /v1/admin/audit"];
    assert_eq!(shown, wanted, "{log}");
    for (line, why) in
        lines.iter().zip(["invalid token", "does not have the right admin", "does not cover namespace `b-1`"])
    {
        assert!(of(line, "error").contains(why) && of(line, "from") == "127.0.0.1", "{line}");
        assert_eq!(line["level"], "WARN");
    }
    assert!(!log.contains(&web) && !log.contains(&team));
}

/// Goal: unmodified clients use a token as a password. Method: each of them with a right and a wrong one.
#[test]
fn unmodified_clients_send_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let token = create(folder.path(), "web", &["--namespaces", "default"]);
    let grpc = port::free().to_string();
    let server = serve(folder.path(), &["--grpc", &grpc]);
    let port = server.resp().port().to_string();

    assert_eq!(curl(&server, "/v1/ids/default", &token).0, "200");
    assert_eq!(curl(&server, "/v1/ids/default", "x").0, "401");
    assert_eq!(curl(&server, "/v1/ids/other", &token).0, "403");
    let redis_cli = |token: &str| {
        let words = ["-p", &port, "--no-auth-warning", "-a", token, "ID.NEXT", "default"];
        snowmint::text(&run("redis-cli", words))
    };
    assert!(redis_cli(&token).trim().parse::<u64>().is_ok());
    assert!(redis_cli("x").contains("WRONGPASS") && redis_cli("x").contains("NOAUTH"));

    let script = "import redis, sys\n\
        port, token = int(sys.argv[1]), sys.argv[2]\n\
        for protocol in (2, 3):\n\
        \x20   for user in (None, 'default', 'web'):\n\
        \x20       client = redis.Redis(port=port, username=user, password=token, protocol=protocol)\n\
        \x20       assert int(client.execute_command('ID.NEXT', 'default')) > 0\n\
        \x20       pipe = client.pipeline(transaction=True)\n\
        \x20       for _ in range(10): pipe.execute_command('ID.NEXT', 'default')\n\
        \x20       assert len(set(pipe.execute())) == 10\n\
        \x20       try:\n\
        \x20           client.execute_command('ID.NEXT', 'other')\n\
        \x20           raise SystemExit('allowed')\n\
        \x20       except redis.exceptions.NoPermissionError: pass\n\
        \x20   for wrong in ({'password': 'x'}, {}):\n\
        \x20       try:\n\
        \x20           redis.Redis(port=port, protocol=protocol, **wrong).execute_command('ID.NEXT', 'default')\n\
        \x20           raise SystemExit('allowed')\n\
        \x20       except redis.exceptions.AuthenticationError: pass\n\
        print('done')\n";
    assert_eq!(python("redis", script, &[&port, &token]).trim(), "done");

    let script = "import grpc, sys\n\
        channel = grpc.insecure_channel('127.0.0.1:' + sys.argv[1])\n\
        call = channel.unary_unary('/snowmint.v1.Snowmint/Next')\n\
        request = b'\\x0a\\x07default'\n\
        answer = call(request, metadata=(('authorization', 'Bearer ' + sys.argv[2]),))\n\
        assert len(answer) == 10, answer\n\
        for metadata in ((), (('authorization', 'Bearer x'),)):\n\
        \x20   try:\n\
        \x20       call(request, metadata=metadata)\n\
        \x20       raise SystemExit('allowed')\n\
        \x20   except grpc.RpcError as error:\n\
        \x20       assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error\n\
        print('done')\n";
    let grpc_port = grpc.rsplit(':').next().unwrap();
    assert_eq!(python("grpc", script, &[grpc_port, &token]).trim(), "done");
}

#[test]
fn javascript_clients_send_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let token = create(folder.path(), "web", &["--namespaces", "default"]);
    let server = serve(folder.path(), &[]);
    let script = r"
const assert = require('assert');
const { createClient } = require('redis');
const Redis = require('ioredis');
const [, port, token] = process.argv;
(async () => {
  for (const RESP of [2, 3]) {
    const client = createClient({ url: `redis://127.0.0.1:${port}`, password: token, RESP });
    await client.connect();
    assert.match(await client.sendCommand(['ID.NEXT', 'default']), /^\d+$/);
    await assert.rejects(client.sendCommand(['ID.NEXT', 'other']), /NOPERM/);
    await client.quit();
    const wrong = createClient({ url: `redis://127.0.0.1:${port}`, password: 'x', RESP, socket: { reconnectStrategy: false } });
    wrong.on('error', () => {});
    await assert.rejects(wrong.connect(), /WRONGPASS/);
  }
  const client = new Redis({ port: Number(port), username: 'web', password: token });
  assert.match(await client.call('ID.NEXT', 'default'), /^\d+$/);
  await client.quit();
  console.log('done');
})();
";
    assert_eq!(node(script, &[&server.resp().port().to_string(), &token]).trim(), "done");
}

/// Goal: tokens change without a restart, and an invalid file changes nothing. Method: the commands on the
/// file of a running server; SIGHUP is not needed.
#[test]
fn a_running_server_follows_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, old) = (
        create(folder.path(), "kept", &["--namespaces", "*"]),
        create(folder.path(), "old", &["--namespaces", "*"]),
    );
    let server = serve(folder.path(), &[]);
    let status = |token: &str| curl(&server, "/v1/ids/default", token).0;
    assert_eq!((&*status(&kept), &*status(&old)), ("200", "200"));
    let revoked = snowmint::run(folder.path(), ["token", "revoke", "old", "--file", "tokens.toml"]);
    assert!(revoked.status.success(), "{}", snowmint::text(&revoked));
    let new = create(folder.path(), "new", &["--namespaces", "*"]);
    time::eventually("the server has read the file", PATIENCE, || (status(&new) == "200").then_some(()));
    assert_eq!((&*status(&kept), &*status(&old)), ("200", "401"));
    fs::write(folder.path().join("tokens.toml"), "[tokens.web]\nsha = 1\n").unwrap();
    server.log_with("tokens not reloaded; the previous tokens stay in use", PATIENCE);
    assert_eq!((&*status(&kept), &*status(&new)), ("200", "200"));
}
