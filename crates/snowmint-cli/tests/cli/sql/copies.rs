//! A dump of a database with the printed SQL restores, and the copy draws from its own generator, never from
//! the original's.

use std::path::Path;
use std::process::Command;

use snowmint::{Id, Layout, WorkerId};
use snowmint_test_servers::{MariaDb, Postgres};

use super::generators::feed;
use super::script;

/// Runs a program and returns its output.
fn run(program: &str, args: &[&str], input: &str) -> String {
    let output = feed(Command::new(program).args(args), input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("ERROR"), "{program} {args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The ids of an output, one per line.
fn ids(rows: &str) -> Vec<u64> {
    rows.lines().map(|it| it.parse().unwrap()).collect()
}

fn worker(id: u64) -> WorkerId {
    Layout::TWITTER.split(Id::new(id).unwrap()).unwrap().worker
}

/// The SQL in the head of a script, for a table with a number in each row.
fn shown(script: &str) -> String {
    let lines = script.lines().filter_map(|line| line.strip_prefix("--   "));
    let sql: String = lines.skip_while(|line| !line.starts_with("CREATE TABLE")).collect();
    sql.replace(", ...", ", number INT")
}

/// Goal: a dump of MariaDB with the generator restores under another name, also if the generator was
/// installed by schema, and the copy never draws from the original. Method: the statements of the script's
/// head; a dump without the functions, which makes ids once the script was run with another worker, and one
/// with them.
#[test]
fn mariadb_dump_restores_with_a_generator_of_its_own() {
    let server = MariaDb::start();
    let socket = format!("--socket={}", server.folder().join("socket").display());
    let dump = |more: &[&str], schema: &str| {
        let common = ["--no-defaults", "--user=root", &socket];
        run("mariadb-dump", &[&common[..], more, &[schema]].concat(), "")
    };
    let restore = |sql: &str, schema: &str| {
        server.sql(&format!("CREATE DATABASE {schema}"));
        run("mariadb", &["--no-defaults", "--user=root", &socket, schema], sql)
    };
    for (shop, by_schema) in [("shop", ""), ("market", " --schema market")] {
        let install = script(&format!("mariadb --layout twitter --worker 7{by_schema}"));
        // By its schema, it needs no current database.
        let go = if by_schema.is_empty() { format!("USE {shop};") } else { String::new() };
        server.sql(&format!("CREATE DATABASE {shop}; {go} {install}"));
        server.sql(&format!("USE {shop}; {}", shown(&install)));
        server.sql(&format!(
            "INSERT INTO {shop}.orders (number) VALUES (1), (2); INSERT INTO {shop}.orders VALUES (NULL, 3), (0, 4), (DEFAULT, 5); \
             INSERT INTO {shop}.orders (number) SELECT seq FROM {shop}.seq_6_to_7; INSERT INTO {shop}.orders VALUES (5, 8)"
        ));
        let orders = |shop: &str| ids(&server.sql(&format!("SELECT id FROM {shop}.orders ORDER BY number")));
        let original = orders(shop);
        assert!(original.len() == 8 && original[7] == 5, "{original:?}");
        assert!(original[..7].iter().all(|id| worker(*id) == WorkerId(7)), "{original:?}");
        let cursor = || server.sql(&format!("SELECT next_not_cached_value FROM {shop}.snowmint_cursor"));
        let before = cursor();

        // Without the functions: nothing makes ids until the script is run.
        let copy = format!("{shop}_copy");
        restore(&dump(&[], shop), &copy);
        assert_eq!(orders(&copy), original);
        let insert = "INSERT INTO orders (number) VALUES (9)";
        let mut client = Command::new("mariadb");
        let output = feed(client.args(["--no-defaults", "--user=root", &socket, &copy]), insert);
        let refused = String::from_utf8(output.stderr).unwrap();
        assert!(refused.contains(&format!("FUNCTION {copy}.snowmint_next_id does not exist")), "{refused}");
        let other = script("mariadb --layout twitter --worker 8");
        server.sql(&format!("USE {copy}; {other} {insert}"));
        let added = *orders(&copy).last().unwrap();
        assert!(worker(added) == WorkerId(8) && added > original[6], "{added}");

        // With them: from the copied cursor.
        let whole = format!("{shop}_whole");
        restore(&dump(&["--routines", "--events"], shop), &whole);
        server.sql(&format!(
            "INSERT INTO {whole}.orders (number) VALUES (9); CALL {whole}.snowmint_catch_up()"
        ));
        let added = *orders(&whole).last().unwrap();
        assert!(worker(added) == WorkerId(7) && added > original[6], "{added}");
        assert_eq!(cursor(), before, "a copy drew from the original");
    }
}

/// As for MariaDB. A dump of PostgreSQL always has the functions.
#[test]
fn postgres_dump_restores_with_a_generator_of_its_own() {
    let server = Postgres::start();
    let (folder, port) = (server.folder().to_str().unwrap(), server.port().to_string());
    let at = |database| ["-U", "postgres", "-h", folder, "-p", &port, "-d", database];
    let psql = |database, sql: &str| {
        run("psql", &[&["-XAtq", "-v", "ON_ERROR_STOP=1"][..], &at(database)].concat(), sql)
    };
    server.sql(&script("postgres --layout twitter --worker 7"));
    server.sql(
        "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowmint_next_id(), number int,
             made timestamptz GENERATED ALWAYS AS (snowmint_time(id)) STORED);
         INSERT INTO orders (number) SELECT generate_series(1, 1000)",
    );
    server.sql("CREATE DATABASE copy");
    let state = "SELECT last_value FROM snowmint_cursor UNION ALL SELECT last_value FROM snowmint_edge \
        UNION ALL SELECT last_value FROM snowmint_logged";
    let (before, orders) = (server.sql(state), "SELECT * FROM orders ORDER BY id");
    psql("copy", &run("pg_dump", &at("postgres"), ""));
    assert_eq!(psql("copy", orders).trim_end(), server.sql(orders));
    let insert = "INSERT INTO orders (number) VALUES (1001) RETURNING id;";
    let last = *ids(&server.sql("SELECT max(id) FROM orders")).last().unwrap();
    let [copied] = ids(&psql("copy", insert))[..] else { panic!("one row") };
    assert!(worker(copied) == WorkerId(7) && copied > last, "{copied} after {last}");
    psql("copy", &script("postgres --layout twitter --worker 8"));
    let [other] = ids(&psql("copy", insert))[..] else { panic!("one row") };
    assert!(worker(other) == WorkerId(8) && other > copied, "{other} after {copied}");
    assert_eq!(server.sql(state), before, "the copy drew from the original");
}

/// As for MariaDB. SQLite has computed columns and no generator.
#[test]
fn sqlite_dump_restores_with_its_columns() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = |file: &Path, sql: &str| run("sqlite3", &["-bail", file.to_str().unwrap()], sql);
    let (shop, copy) = (folder.path().join("shop.db"), folder.path().join("copy.db"));
    sqlite(&shop, "CREATE TABLE orders (id INTEGER PRIMARY KEY, number INT);");
    sqlite(&shop, &script("sqlite --layout twitter --table orders"));
    sqlite(&shop, "INSERT INTO orders (id, number) VALUES (1541815603606036480, 1);");
    sqlite(&copy, &sqlite(&shop, ".dump\n"));
    sqlite(&copy, "INSERT INTO orders (id, number) VALUES (1541815603606040576, 2);");
    let read = "SELECT snowmint_time, snowmint_worker, number FROM orders;";
    assert_eq!(sqlite(&copy, read), "2022-06-28T16:07:40.105Z|26|1\n2022-06-28T16:07:40.105Z|27|2\n");
}
