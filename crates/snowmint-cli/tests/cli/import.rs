//! `snowmint import` on a real MariaDB and a real Redis: the listed counters, the new namespaces, and that
//! their numbers start above.

use snowmint_test_servers::{MariaDb, Redis};

use crate::support::{Sandbox, json};

const LEAF: &str = "CREATE TABLE test.leaf_alloc (biz_tag VARCHAR(128) NOT NULL DEFAULT '', max_id BIGINT NOT NULL \
    DEFAULT 1, step INT NOT NULL, description VARCHAR(256), update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP \
    ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (biz_tag)) ENGINE=InnoDB;
    INSERT INTO test.leaf_alloc (biz_tag, max_id, step) VALUES ('order', 5001, 1000), ('user', 1, 2000), \
    ('a b', 7, 10);";

/// Goal: a Leaf database is read without a change, and each tag continues above what Leaf may have returned.
/// Method: Leaf's own table with three tags, one of which is not a valid namespace name.
#[test]
fn a_leaf_becomes_namespaces_above_its_numbers() {
    let leaf = MariaDb::start();
    leaf.sql(LEAF);
    let url = format!("leaf:mysql://root@{}/test", leaf.address());
    let sandbox = Sandbox::new();
    let before = leaf.sql("SELECT * FROM test.leaf_alloc");

    let shown = sandbox.out(&["import", &url]);
    assert!(shown.contains("nothing was changed: stop the other system, then add --apply"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("order ") && line.ends_with("6,001  new")), "{shown}");
    assert!(!sandbox.path("snowmint").exists());

    let told = sandbox.refused(&["import", &url, "--apply"], 1);
    assert!(told.contains("snowmint store init"), "{told}");
    sandbox.out(&["store", "init"]);
    let applied = sandbox.run(&["import", &url, "--apply"]);
    assert_eq!(applied.code, 1, "{applied:?}");
    assert!(applied.out.contains("2 made in sqlite:/"), "{applied:?}");
    assert!(applied.err.contains("error: 1 of 3 were not made"), "{applied:?}");
    assert!(applied.out.contains("refused: invalid namespace name `a b`"), "{applied:?}");
    assert!(applied.out.contains("add --rename 'a b=a-b'"), "{applied:?}");
    assert_eq!(leaf.sql("SELECT * FROM test.leaf_alloc"), before, "nothing of Leaf is changed");

    let mut server = sandbox.serve(&[]);
    let (status, first) = server.http("/api/segment/get/order");
    assert_eq!((status, first.as_str()), (200, "6001"));
    sandbox.out(&["ns", "drop", "user"]);
    // The plan names the same rows as --apply.
    let outcomes = |args: &[&str]| -> Vec<(String, String)> {
        let ran = sandbox.run(&[&["import", &url, "--json"][..], args].concat());
        let text = |row: &serde_json::Value, member| row[member].as_str().unwrap_or_default().to_owned();
        ran.out.lines().map(json).map(|row| (text(&row, "state"), text(&row, "why"))).collect()
    };
    let plan = outcomes(&[]);
    let planned: Vec<_> = plan.iter().map(|(state, _)| state.as_str()).collect();
    assert_eq!(planned, ["refused", "there", "there"], "{plan:?}");
    assert!(plan[1].1.contains("namespace order already exists as `segment cached"), "{plan:?}");
    assert!(plan[2].1.contains("namespace user was dropped"), "{plan:?}");
    assert_eq!(outcomes(&["--apply"]), plan);

    // The plan names the command that goes on from a namespace which was dropped.
    let command = plan[2].1.rsplit('`').nth(1).unwrap();
    assert_eq!(command, "snowmint ns add user --scheme segment --start 2001 --start-over");
    let args: Vec<_> = command.split(' ').skip(1).collect();
    let added = sandbox.run(&args);
    assert!(added.out.contains("user is segment cached, all numbers, from 2001, series 2"), "{added:?}");
}

/// Goal: one command serves every tag of a Leaf side by side with it, also those whose names no namespace can
/// have. Method: a user with a password, which only a login may send; the rows of Leaf grow while Snowmint
/// draws; names that meet, or that no counter has, are refused before anything is made.
#[test]
fn every_tag_of_a_leaf_is_served_side_by_side_by_one_command() {
    let leaf = MariaDb::start();
    leaf.sql(&LEAF.replace("'a b'", "'pay/refund'"));
    leaf.sql("CREATE USER leaf IDENTIFIED BY 'p@ss/w'; GRANT SELECT, UPDATE ON test.leaf_alloc TO leaf;");
    let login = format!("leaf=mysql://leaf:p%40ss%2Fw@{}/test", leaf.address());
    let sandbox =
        Sandbox::new().with_env("SNOWMINT_STORE_PASSWORD", "p@ss/w").with_env("SNOWMINT_LOGINS", &login);
    sandbox.out(&["store", "init"]);
    let without_login = format!("leaf:mysql://leaf@{}/test", leaf.address());
    let unread = sandbox.refused(&["import", &without_login, "--side-by-side"], 1);
    assert!(unread.contains("add login=NAME to the source"), "{unread}");
    let with_password = format!("leaf:mysql://leaf:hunter2@{}/test", leaf.address());
    let shown = sandbox.refused(&["import", &with_password, "--side-by-side"], 2);
    assert!(shown.contains("add login=NAME to the URL") && !shown.contains("hunter2"), "{shown}");
    let url = format!("{without_login}?login=leaf");
    let import = |args: &[&str]| sandbox.run(&[&["import", &url, "--side-by-side"][..], args].concat());

    let plan = import(&[]).out;
    assert!(plan.contains(&format!("new, of {url}&tag=order\n")), "{plan}");
    assert!(plan.contains("refused: invalid namespace name `pay/refund`"), "{plan}");
    assert!(plan.contains("add --rename 'pay/refund=pay-refund'\n"), "{plan}");
    assert!(plan.contains("nothing was changed: add --apply to make the new ones\n"), "{plan}");
    let meet = import(&["--rename", "pay/refund=order"]).out;
    assert_eq!(meet.matches("refused: namespace order would be that of").count(), 2, "{meet}");
    let unknown = import(&["--rename", "pay/refunds=refunds"]);
    assert!(
        unknown.code == 2 && unknown.err.contains("`pay/refunds` is no counter of this list"),
        "{unknown:?}"
    );

    let made = import(&["--rename", "pay/refund=pay-refund", "--apply"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.out.contains(&format!("made as pay-refund, of {url}&tag=pay/refund\n")), "{made:?}");
    let mut server = sandbox.serve(&[]);
    for (tag, namespace, first) in [("order", "order", "5001"), ("pay/refund", "pay-refund", "7")] {
        let row = || -> u64 {
            leaf.sql(&format!("SELECT max_id FROM test.leaf_alloc WHERE biz_tag = '{tag}'")).parse().unwrap()
        };
        assert_eq!(server.http(&format!("/api/segment/get/{namespace}")), (200, first.to_owned()));
        assert!(row() > first.parse().unwrap(), "{tag}: {}", row());
    }
    let again = import(&["--apply"]);
    assert!(again.code == 1 && again.out.contains("namespace order already exists"), "{again:?}");
}

#[test]
fn keys_of_a_redis_become_namespaces() {
    let redis = Redis::start();
    let cli = |args: &[&str]| {
        let port = redis.port().to_string();
        let mut command = std::process::Command::new("redis-cli");
        assert!(command.args(["-p", &port]).args(args).output().unwrap().status.success());
    };
    cli(&["SET", "seq:orders", "41"]);
    cli(&["SET", "seq:name", "text"]);
    cli(&["SADD", "seq:set", "1"]);
    let sandbox = Sandbox::new();
    let url = format!("redis-counter:redis://{}/0?counter=seq:*", redis.address());
    let shown = sandbox.out(&["import", &url, "--json"]);
    let [rejected, row] = [0, 1].map(|nth| json(shown.lines().nth(nth).unwrap()));
    assert_eq!((&row["name"], &row["highest"]), (&"seq:orders".into(), &41.into()), "{shown}");
    let row = rejected;
    assert_eq!((&row["name"], &row["state"]), (&"seq:name".into(), &"refused".into()), "{shown}");
    assert!(row["highest"].is_null(), "{row}");
    assert!(
        row["why"].as_str().unwrap().contains("the key holds \"text\", expected a number from 0 to"),
        "{row}"
    );
    assert_eq!(shown.lines().count(), 2, "a set is no counter: {shown}");
    let told = sandbox.refused(&["import", "mongo://h/d"], 2);
    assert!(told.contains("leaf:mysql://"), "{told}");
}

/// Goal: no command reports success while a failover can still take back its writes. Method: every command
/// that writes, over a Redis that may lose 600 ms.
#[test]
#[expect(clippy::disallowed_methods, reason = "how long a process ran")]
fn what_a_command_wrote_has_settled_before_it_is_acknowledged() {
    let redis = Redis::start();
    let url = format!("redis-counter:redis://{}/1?counter=seq:*", redis.address());
    let port = redis.port().to_string();
    let set =
        std::process::Command::new("redis-cli").args(["-p", &port, "-n", "1", "SET", "seq:a", "41"]).output();
    assert!(set.unwrap().status.success());
    let store = format!("redis://{}/0?may_lose=600ms", redis.address());
    let sandbox = Sandbox::new().with_env("SNOWMINT_STORE", &store);
    sandbox.out(&["store", "init"]);
    for command in [
        &["import", &url, "--apply"][..],
        &["ns", "add", "n", "--scheme", "segment"],
        &["ns", "set", "n", "--maximum", "900000"],
        &["ns", "drop", "n"],
        &["store", "recover", "--add", "7", "--yes"],
    ] {
        let began = std::time::Instant::now();
        sandbox.out(command);
        assert!(began.elapsed().as_millis() >= 600, "{command:?}: {:?}", began.elapsed());
    }
}
