//! `snowmint sql`: real databases run the printed SQL. The tests of generators are in [`generators`], those of
//! conversions in [`conversion`], those of dumps in [`copies`].

mod conversion;
mod copies;
mod generators;

use std::process::{Command, Stdio};
use std::{io::Write as _, iter};

use snowmint::field::Field;
use snowmint::layout::PRESETS;
use snowmint::utc::{MAX_UNIX_MS, Utc};
use snowmint::{Id, Layout};
use snowmint_test_servers::{MariaDb, Postgres};

use crate::support::Sandbox;

/// Runs `snowmint sql` with flags.
fn script(args: &str) -> String {
    let args: Vec<_> = iter::once("sql").chain(args.split(' ')).collect();
    Sandbox::new().out(&args)
}

/// Pseudo-random numbers that are the same in each run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The named layouts, and orders of fields that none of them has.
fn layouts() -> Vec<Layout> {
    let other = [
        "worker:10 sequence:12 time:41 epoch:2020-01-01",
        "time:30@7s generation:2 sequence:3 worker:9 epoch:2001-02-03",
    ];
    PRESETS.iter().map(|it| it.layout).chain(other.map(|text| text.parse().unwrap())).collect()
}

/// Ids of a layout: the first and last, random ones, and some from the years until 2100.
fn ids(layout: &Layout, numbers: &mut Numbers) -> Vec<u64> {
    let mask = u64::MAX >> (64 - layout.bits());
    let time = layout.shift(Field::Timestamp);
    let mut ids = vec![0, mask];
    for _ in 0..60 {
        let any = numbers.next() & mask;
        let years =
            (4_102_444_800_000 - layout.epoch_unix_ms()) / u64::try_from(layout.tick().as_millis()).unwrap();
        let ticks = numbers.below(years.min(layout.max(Field::Timestamp)));
        ids.extend([any, any & !(layout.max(Field::Timestamp) << time) | ticks << time]);
    }
    ids
}

/// The values that the functions must return for an id, as the databases print them.
fn expected(layout: &Layout, id: u64, last_unix_ms: u64) -> Vec<String> {
    let parts = layout.split(Id::new(id).unwrap()).unwrap();
    let unix_ms = layout.unix_ms(parts.timestamp);
    let time = if unix_ms > last_unix_ms { "NULL".to_owned() } else { unix_ms.to_string() };
    let others =
        layout.fields().filter(|it| *it != Field::Timestamp).map(|field| parts.value(field).to_string());
    iter::once(time).chain(others).collect()
}

/// The calls of the functions for all fields except the timestamp.
fn calls(layout: &Layout) -> String {
    let fields = layout.fields().filter(|it| *it != Field::Timestamp);
    let calls: Vec<_> = fields.map(|field| format!(", snowmint_{}(id)", field.name())).collect();
    calls.concat()
}

/// Instants of a layout until the year 9999, and one inside a tick.
fn instants(layout: &Layout, numbers: &mut Numbers) -> Vec<u64> {
    let (begin, end) = (layout.epoch_unix_ms(), layout.ends_at_unix_ms().min(MAX_UNIX_MS));
    let any = (0..30).map(|_| begin + numbers.below(end - begin)).collect::<Vec<_>>();
    [begin, begin + 1, end - 1].into_iter().chain(any).collect()
}

fn bounds(layout: &Layout, unix_ms: u64) -> String {
    let id = |id: Option<Id>| id.unwrap().get();
    format!("{}|{}", id(layout.first_id_at(Utc(unix_ms))), id(layout.last_id_at(Utc(unix_ms))))
}

/// Goal: the functions agree with the library to the millisecond. Method: ids and instants of every layout,
/// including the first and last.
#[test]
fn postgres_reads_every_layout_as_the_library_does() {
    let (server, mut numbers) = (Postgres::start(), Numbers(1));
    for layout in layouts() {
        let install = Sandbox::new().out(&["sql", "postgres", "--layout", &layout.to_string()]);
        let ids = ids(&layout, &mut numbers);
        let list = ids.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let read = format!(
            "SELECT coalesce((extract(epoch FROM snowmint_time(id)) * 1000)::bigint::text, 'NULL'){} \
             FROM unnest(ARRAY[{list}]::bigint[]) AS id",
            calls(&layout)
        );
        let rows = server.sql(&format!("{install}{read}"));
        let drop = Sandbox::new().out(&["sql", "postgres", "--layout", &layout.to_string(), "--drop"]);
        let wanted = ids.iter().map(|id| expected(&layout, *id, u64::MAX).join("|"));
        assert_eq!(
            rows.lines().map(str::to_owned).collect::<Vec<_>>(),
            wanted.collect::<Vec<_>>(),
            "{layout}"
        );
        if !layout.sorts_by_time() {
            assert!(!install.contains("first_id("), "{install}");
            server.sql(&drop);
            continue;
        }
        // A fraction of a millisecond is truncated.
        let instants = instants(&layout, &mut numbers);
        let list = instants.iter().map(|it| format!("'{}'", Utc(*it).to_string().replace('Z', "999Z")));
        let list = list.collect::<Vec<_>>().join(",");
        let rows = server.sql(&format!(
            "SELECT snowmint_first_id(at), snowmint_last_id(at) FROM unnest(ARRAY[{list}]::timestamptz[]) AS at"
        ));
        server.sql(&drop);
        let wanted = instants.iter().map(|it| bounds(&layout, *it));
        assert_eq!(
            rows.lines().map(str::to_owned).collect::<Vec<_>>(),
            wanted.collect::<Vec<_>>(),
            "{layout}"
        );
    }
}

/// Goal: queries by time use the index, columns are computed, and values outside the layout give an error or
/// NULL.
#[test]
fn postgres_uses_the_functions_in_indexes_and_columns() {
    let server = Postgres::start();
    let install = script("postgres --layout twitter");
    server.sql(&format!("{install}{install}"));
    server.sql(
        "CREATE TABLE orders (id bigint PRIMARY KEY, made timestamptz GENERATED ALWAYS AS (snowmint_time(id)) STORED);
         CREATE INDEX ON orders (snowmint_worker(id));
         INSERT INTO orders SELECT snowmint_first_id(timestamptz '2026-11-01Z' + minutes * interval '1 minute') FROM generate_series(1, 20000) AS minutes;
         ANALYZE orders",
    );
    let plan =
        server.sql("EXPLAIN SELECT * FROM orders WHERE id >= snowmint_first_id(now() - interval '1 day')");
    assert!(
        plan.contains("Index Cond: (id >= ") && !plan.contains("snowmint_first_id"),
        "inlined, by the index: {plan}"
    );
    let plan = server.sql("EXPLAIN VERBOSE SELECT snowmint_time(id) FROM orders");
    assert!(!plan.contains("snowmint_time"), "inlined: {plan}");
    let count = "SELECT count(*) FROM orders WHERE id BETWEEN snowmint_first_id('2026-11-02Z') AND snowmint_last_id('2026-11-02 00:59Z')";
    assert_eq!(server.sql(count), "60");
    assert_eq!(server.sql("SELECT count(*) FROM orders WHERE made IS DISTINCT FROM snowmint_time(id)"), "0");
    let marks = "SELECT DISTINCT provolatile, proparallel FROM pg_proc WHERE proname LIKE 'snowmint%'";
    assert_eq!(server.sql(marks), "i|s", "immutable and parallel safe");

    let nulls =
        "SELECT snowmint_time(-1) IS NULL, snowmint_worker(NULL) IS NULL, snowmint_first_id(NULL) IS NULL";
    assert_eq!(server.sql(nulls), "t|t|t");
    for outside in ["2000-01-01", "2080-07-10 17:30:30.209+00", "infinity", "-infinity"] {
        let error =
            "WHEN datetime_field_overflow THEN RAISE NOTICE 'outside'; RETURN; END; RAISE 'accepted'; END";
        server
            .sql(&format!("DO $$ BEGIN BEGIN PERFORM snowmint_first_id('{outside}'); EXCEPTION {error} $$"));
    }
    server.sql(&script("postgres --layout js53 --prefix other"));
    assert_eq!(server.sql("SELECT other_time(1::bigint << 53) IS NULL"), "t", "no id of this layout");

    server.sql("DROP TABLE orders");
    server.sql(&script("postgres --layout twitter --drop"));
    assert_eq!(server.sql("SELECT count(*) FROM pg_proc WHERE proname LIKE 'snowmint%'"), "0");
}

/// As for PostgreSQL, with the SQL for MySQL and for MariaDB.
#[test]
fn mariadb_reads_every_layout_as_the_library_does() {
    let (server, mut numbers) = (MariaDb::start(), Numbers(2));
    for (nth, layout) in layouts().into_iter().enumerate() {
        let dialect = ["mysql", "mariadb"][nth % 2];
        let install =
            Sandbox::new().out(&["sql", dialect, "--layout", &layout.to_string(), "--schema", "test"]);
        let drop = Sandbox::new().out(&["sql", dialect, "--layout", &layout.to_string(), "--drop"]);
        let ids = ids(&layout, &mut numbers);
        let rows = ids.iter().map(|id| {
            let time = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', snowmint_time(id)) DIV 1000";
            format!("SELECT {time}{} FROM (SELECT {id} AS id) AS one;", calls(&layout))
        });
        let rows = server.sql(&format!("{install} USE test; {}", rows.collect::<String>()));
        let wanted = ids.iter().map(|id| expected(&layout, *id, MAX_UNIX_MS).join("\t"));
        assert_eq!(
            rows.lines().map(str::to_owned).collect::<Vec<_>>(),
            wanted.collect::<Vec<_>>(),
            "{layout}"
        );
        if !layout.sorts_by_time() {
            server.sql(&format!("USE test; {drop}"));
            continue;
        }
        let instants = instants(&layout, &mut numbers);
        let rows = instants.iter().map(|it| {
            let at = Utc(*it).to_string().replace('T', " ").replace('Z', "999");
            format!("SELECT CONCAT(snowmint_first_id('{at}'), '|', snowmint_last_id('{at}'));")
        });
        let rows = server.sql(&format!("USE test; {} {drop}", rows.collect::<String>()));
        let wanted = instants.iter().map(|it| bounds(&layout, *it));
        assert_eq!(
            rows.lines().map(str::to_owned).collect::<Vec<_>>(),
            wanted.collect::<Vec<_>>(),
            "{layout}"
        );
    }
}

/// As for PostgreSQL: by the index, in columns, NULL outside the layout, and removed again.
#[test]
fn mariadb_uses_the_functions_with_indexes() {
    let server = MariaDb::start();
    let sql = |sql: &str| server.sql(&format!("USE test; {sql}"));
    sql(&script("mysql --layout twitter").repeat(2));
    sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, worker INT AS (id >> 12 & 31) STORED);
         INSERT INTO orders (id) SELECT snowmint_first_id(UTC_TIMESTAMP() - INTERVAL seq MINUTE) FROM seq_1_to_20000;
         ANALYZE TABLE orders");
    let plan =
        sql("EXPLAIN SELECT * FROM orders WHERE id >= snowmint_first_id(UTC_TIMESTAMP() - INTERVAL 1 DAY)");
    assert!(plan.contains("range\tPRIMARY"), "by the index: {plan}");
    let outside = sql(
        "SELECT snowmint_time(-1), snowmint_first_id('2000-01-01'), snowmint_last_id('2080-07-10 17:30:30.209')",
    );
    assert_eq!(outside, "NULL\tNULL\tNULL");
    let made = sql(
        "SELECT DISTINCT is_deterministic, sql_data_access FROM information_schema.routines WHERE routine_schema = 'test'",
    );
    assert_eq!(made, "YES\tNO SQL");
    sql(&script("mysql --layout twitter --drop"));
    assert_eq!(sql("SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = 'test'"), "0");
}

/// Goal: the script of another layout changes nothing, so that ids are still read by the layout that made
/// them. Method: with and without a generator, and after the functions alone were removed; then beside it,
/// and after its removal.
#[test]
fn postgres_refuses_another_layout() {
    let server = Postgres::start();
    let read = "SELECT snowmint_time(1541815603606036480), snowmint_worker(1541815603606036480)";
    let other = script("postgres --layout sonyflake");
    let other_generator = script("postgres --layout sonyflake --worker 7");
    for install in ["postgres --layout twitter", "postgres --layout twitter --worker 7"] {
        server.sql(&script(install));
        let before = server.sql(read);
        for other in [&other, &other_generator] {
            let error = generators::session(&server, other).1;
            assert!(
                error.contains(&format!(
                    "snowmint_time(bigint) has the layout `{}`, not `{}`",
                    Layout::TWITTER,
                    "sonyflake".parse::<Layout>().unwrap()
                )) && error.contains("HINT:  Install with another --prefix and another worker"),
                "{install}: {error}"
            );
            assert_eq!(server.sql(read), before, "{install}");
        }
        server.sql(&script(install));
    }
    server.sql("SELECT snowmint_next_id()");
    // A comment of somebody else says nothing about the layout.
    server.sql("COMMENT ON FUNCTION snowmint_time(bigint) IS 'when it was made'");
    let error = generators::session(&server, &other).1;
    assert!(error.contains("snowmint_cursor has the layout `time:41@1ms datacenter:5"), "{error}");
    server.sql(&script("postgres --layout twitter --worker 7"));
    server.sql(&script("postgres --layout sonyflake --worker 7 --prefix sony"));
    server.sql(&script("postgres --layout twitter --worker 7 --drop"));
    server.sql(&other_generator);
    server.sql("SELECT snowmint_next_id()");
}

/// As for PostgreSQL. A client in batch mode stops at the first error.
#[test]
fn mariadb_refuses_another_layout() {
    let server = MariaDb::start();
    let sql = |sql: &str| server.sql(&format!("USE test; {sql}"));
    let refused = |script: &str| {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--user=root", "--database=test"]);
        client.arg(format!("--socket={}", server.folder().join("socket").display()));
        String::from_utf8(generators::feed(&mut client, script).stderr).unwrap()
    };
    let read = "SELECT snowmint_time(1541815603606036480), snowmint_worker(1541815603606036480)";
    for (installed, schema) in
        [("mysql", ""), ("mariadb", ""), ("mariadb", " --schema test"), ("mariadb", " --worker 7")]
    {
        sql(&script(&format!("{installed} --layout twitter{schema}")));
        let before = sql(read);
        let error = refused(&script(&format!("mysql --layout sonyflake{schema}").replace(" --worker 7", "")));
        assert!(
            error.contains("'another layout is installed: use another --prefix, or remove it with --drop'"),
            "{installed}{schema}: {error}"
        );
        let error = refused(&script(&format!("mariadb --layout sonyflake{schema}")));
        assert!(
            error.contains(&format!(
                "snowmint has the layout `{}`: use another --prefix and worker, or first remove it with --drop",
                Layout::TWITTER
            )),
            "{installed}{schema}: {error}"
        );
        assert_eq!(sql(read), before, "{installed}{schema}");
        sql(&script(&format!("{installed} --layout twitter{schema}")));
    }
    sql(&script("mariadb --layout twitter --drop"));
    let error = refused(&script("mariadb --layout sonyflake"));
    assert!(
        error.contains("snowmint has the layout `time:41@1ms datacenter:5"),
        "the cursor is left: {error}"
    );
    assert_eq!(
        sql("SELECT COUNT(*) FROM information_schema.routines WHERE routine_name = 'snowmint_time'"),
        "0"
    );
    sql(&script("mariadb --layout sonyflake --worker 7 --prefix sony"));
    sql(&script("mariadb --layout twitter --worker 7 --drop"));
    sql(&script("mariadb --layout sonyflake --worker 7"));
}

/// Goal: a server that refuses the function that makes ids gets all of the script or nothing. Method: a binary
/// log, with and without the setting that the error names.
#[test]
fn mariadb_with_a_binary_log_gets_all_or_nothing() {
    let server = MariaDb::with(&["--log-bin=binlog", "--server-id=1"]);
    let installed = || {
        server.sql(
            "SELECT (SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = 'test') \
                + (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'test') \
                + (SELECT COUNT(*) FROM information_schema.events WHERE event_schema = 'test')",
        )
    };
    let install = script("mariadb --layout twitter --worker 7");
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "--user=root", "--database=test"]);
    client.arg(format!("--socket={}", server.folder().join("socket").display()));
    let error = String::from_utf8(generators::feed(&mut client, &install).stderr).unwrap();
    assert!(error.contains("first SET GLOBAL log_bin_trust_function_creators = ON"), "{error}");
    assert_eq!(installed(), "0");
    // Functions that only read ids need no setting.
    server.sql(&format!("USE test; {}", script("mariadb --layout twitter")));
    server.sql(&format!("SET GLOBAL log_bin_trust_function_creators = ON; USE test; {install}"));
    server.sql("SET GLOBAL log_bin_trust_function_creators = OFF");
    assert_eq!(installed(), "10", "seven functions, a procedure, a sequence and an event");
    server.sql(
        "USE test; CREATE TABLE orders (id BIGINT DEFAULT 0 PRIMARY KEY, number INT); \
         CREATE TRIGGER orders_id BEFORE INSERT ON orders FOR EACH ROW SET NEW.id = snowmint_next_id(); \
         INSERT INTO orders (number) VALUES (1)",
    );
    assert_eq!(server.sql("SELECT test.snowmint_worker(id) FROM test.orders"), "7");
}

/// Goal: functions that are installed stay if the server does not admit new ones. Method: an owner who is no
/// administrator, and a binary log.
#[test]
fn mysql_functions_stay_if_they_cannot_be_replaced() {
    let server = MariaDb::with(&["--log-bin=binlog", "--server-id=1"]);
    server.sql("CREATE USER owner@localhost; GRANT ALL ON test.* TO owner@localhost");
    let install = |trusts: &str| {
        server.sql(&format!("SET GLOBAL log_bin_trust_function_creators = {trusts}"));
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--user=owner", "--database=test"]);
        client.arg(format!("--socket={}", server.folder().join("socket").display()));
        String::from_utf8(generators::feed(&mut client, &script("mysql --layout twitter")).stderr).unwrap()
    };
    assert_eq!(install("ON"), "");
    let error = install("OFF");
    assert!(error.contains("1419"), "{error}");
    assert_eq!(server.sql("SELECT test.snowmint_worker(4096)"), "1");
    assert_eq!(server.sql("SELECT test.snowmint_time(0)"), "2010-11-04 01:42:54.657");
}

/// Runs SQL with the program `sqlite3`.
fn sqlite(sql: &str) -> String {
    let mut command = Command::new("sqlite3");
    command.args(["-bail", "-separator", "\t", ":memory:"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child =
        command.spawn().unwrap_or_else(|error| panic!("sqlite3: {error}: apt-get install sqlite3"));
    child.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{sql}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// As for PostgreSQL; the columns are added to a table.
#[test]
fn sqlite_reads_every_layout_as_the_library_does() {
    let mut numbers = Numbers(3);
    for layout in layouts() {
        let install =
            Sandbox::new().out(&["sql", "sqlite", "--layout", &layout.to_string(), "--table", "orders"]);
        let ids = ids(&layout, &mut numbers);
        let list = ids.iter().map(|id| format!("({id})")).collect::<Vec<_>>().join(",");
        let columns = calls(&layout).replace("(id)", "");
        let rows = sqlite(&format!(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY); {install}
             CREATE TABLE numbered (nth INTEGER PRIMARY KEY, id INTEGER); INSERT INTO numbered (id) VALUES {list};
             INSERT OR IGNORE INTO orders (id) SELECT id FROM numbered;
             SELECT snowmint_time{columns} FROM numbered JOIN orders USING (id) ORDER BY nth;"
        ));
        for (id, row) in ids.iter().zip(rows.lines()) {
            let mut wanted = expected(&layout, *id, MAX_UNIX_MS);
            let unix_ms = layout.unix_ms(layout.split(Id::new(*id).unwrap()).unwrap().timestamp);
            wanted[0] = if unix_ms > MAX_UNIX_MS { String::new() } else { Utc(unix_ms).to_string() };
            let row = row.split('\t').map(str::to_owned).collect::<Vec<_>>();
            // Its calendar ends with the year 9999.
            assert_eq!(row[1..], wanted[1..], "{layout}: {id}");
            assert!(row[0] == wanted[0] || unix_ms > MAX_UNIX_MS, "{layout}: {id}: {row:?}");
        }
        assert_eq!(rows.lines().count(), ids.len(), "{layout}");
    }
    let install = script("sqlite --layout twitter --table orders");
    let bound = install.lines().find(|line| line.contains("'2026-11-01'")).unwrap();
    let bound = bound.split_once(">= ").unwrap().1;
    let wanted = Layout::TWITTER.first_id_at(Utc(1_793_491_200_000)).unwrap();
    assert_eq!(sqlite(&format!("SELECT {bound};")), wanted.to_string());
    let drop = script("sqlite --layout twitter --table orders --drop");
    assert_eq!(
        sqlite(&format!("CREATE TABLE orders (id INTEGER PRIMARY KEY); {install} {drop} {install}")),
        ""
    );
}

/// Goal: a flag that does not apply to the database is rejected, with advice.
#[test]
fn flags_that_do_not_fit_are_refused() {
    let sandbox = Sandbox::new();
    for (args, wanted) in [
        ("mysql --layout leaf --worker 1", "--worker: MySQL has no sequences"),
        ("sqlite --layout leaf --table t --worker 1", "--worker: SQLite has no stored functions"),
        ("sqlite --layout leaf", "--table: "),
        ("postgres --layout leaf --table t", "--table: expected with sqlite only"),
        ("mariadb --layout leaf --max-ahead 1s", "--max-ahead: expected with postgres only"),
        ("postgres --layout leaf --convert id", "--convert: "),
        ("mariadb --layout leaf --convert t.id", "--convert: expected with postgres only"),
        ("postgres --layout leaf --convert t.id --worker 1", "--worker: expected without --convert"),
        ("postgres --layout leaf --convert t.id --max-ahead 1d", "--max-ahead: expected without --convert"),
        (
            "postgres --layout leaf --convert t.id --drop",
            "--drop: expected without --convert: --revert prints its way back",
        ),
        (
            "postgres --layout worker:10,sequence:12,time:41,epoch:2020-01-01 --convert t.id",
            "--convert: the timestamp of the layout is not on top",
        ),
        ("postgres --layout leaf --revert", "--convert"),
        ("postgres --layout leaf --convert t.id --rewrite --revert", "--rewrite"),
        ("postgres --layout leaf --worker 1024", "--worker: "),
        ("postgres --layout leaf --worker 1 --datacenter 1", "--datacenter: the layout"),
        ("postgres --layout baidu --worker 1", "--layout: layout `time:28@1s"),
        ("postgres --layout leaf --schema a;b", "--schema: "),
        ("postgres --layout leaf --prefix App", "--prefix: "),
        ("postgres --layout leaf --max-ahead 0s", "--max-ahead: "),
        (
            "postgres --layout leaf --worker 1 --max-ahead 11s",
            "--max-ahead: 11s is shorter than what a crash may skip, so that draws would fail after it: expected at least 12 s",
        ),
        ("oracle --layout leaf", "oracle"),
        ("postgres", "--layout"),
    ] {
        let args: Vec<_> = iter::once("sql").chain(args.split(' ')).collect();
        let error = sandbox.refused(&args, 2);
        assert!(error.contains(wanted), "{args:?}: {error}");
    }
    // As the help writes the default.
    let one_day = script("postgres --layout twitter --worker 1 --max-ahead 1d");
    assert_eq!(one_day, script("postgres --layout twitter --worker 1"));
}
