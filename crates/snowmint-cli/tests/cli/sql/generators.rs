//! The generators that `snowmint sql` prints: no id twice, whatever clocks, sessions and servers do.
//! `SNOWMINT_SQL=long` runs the long form.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use snowmint::field::Field;
use snowmint::{Id, Layout};
use snowmint_test_servers::time::{eventually, now, unix_ms};
use snowmint_test_servers::{MariaDb, PgBouncer, Postgres};

use super::script;

const SESSIONS: usize = 16;
const HOUR_MS: i64 = 3_600_000;

/// Lets the sessions of a test draw for a while, and for longer on a busy machine: until there are `least`
/// ids in all.
fn draw(least: usize, drawn: impl Fn() -> usize) {
    let long = std::env::var("SNOWMINT_SQL").is_ok_and(|it| it == "long");
    sleep(if long { Duration::from_mins(2) } else { Duration::from_secs(2) });
    eventually("the sessions draw", Duration::from_mins(1), || (drawn() >= least).then_some(()));
}

/// Runs a client with SQL on its standard input. It continues after an error.
pub(super) fn feed(client: &mut Command, sql: &str) -> Output {
    let client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = client.spawn().unwrap();
    // The pipe breaks if the server dies.
    let _ = child.stdin.take().unwrap().write_all(sql.as_bytes());
    child.wait_with_output().unwrap()
}

fn psql(host: &str, port: u16) -> Command {
    let mut psql = Command::new("psql");
    psql.args(["-XAtq", "-U", "postgres", "-d", "postgres", "-h", host, "-p", &port.to_string()]);
    psql
}

/// Runs SQL in a separate session, and returns its rows and errors.
pub(super) fn session(server: &Postgres, sql: &str) -> (String, String) {
    let output = feed(&mut psql(server.folder().to_str().unwrap(), server.port()), sql);
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Returns the complete numbers of an output, one per line. The last line of a client that died may be cut.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().filter_map(|line| line.parse().ok())
}

/// Returns the number of duplicate ids.
fn duplicates(ids: &mut Vec<u64>) -> usize {
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    all - ids.len()
}

/// A server with a generator of worker 7 whose clock the test controls: `test_clock` holds the offset to the
/// real clock in milliseconds, or the Unix milliseconds at which the clock stands still.
fn generator(server: &Postgres) {
    let install = script("postgres --layout twitter --datacenter 3 --worker 7");
    server.sql(&format!("{install}{install}"));
    server.sql(
        "CREATE SEQUENCE test_clock MINVALUE -9000000000000 START 0;
         SELECT setval('test_clock', 0);
         CREATE OR REPLACE FUNCTION snowmint_clock() RETURNS bigint LANGUAGE plpgsql AS $$
         DECLARE
            read bigint := pg_sequence_last_value('public.test_clock');
            began bigint := pg_sequence_last_value('public.snowmint_cursor');
         BEGIN
            IF read < 1000000000000 THEN read := read + floor(date_part('epoch', clock_timestamp()) * 1000)::bigint; END IF;
            -- Paused within a jump, after it has read the clock, until another session waits for its lock or has drawn far past its
            -- target.
            IF current_setting('test.pause', true) = 'on' AND EXISTS (
                SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
            ) THEN
                FOR naps IN 1..2000 LOOP
                    PERFORM pg_sleep(0.01);
                    EXIT WHEN pg_sequence_last_value('public.snowmint_cursor') > began + 200000
                        OR EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted);
                END LOOP;
            END IF;
            RETURN read;
         END $$;
         CREATE TABLE drawn (id bigint DEFAULT snowmint_next_id())",
    );
}

fn set_clock(server: &Postgres, ms: i64) {
    server.sql(&format!("SELECT setval('test_clock', {ms})"));
}

/// Returns the time of an id of the layout `twitter`.
fn unix_ms_of(id: u64) -> i64 {
    let layout = Layout::TWITTER;
    i64::try_from(layout.unix_ms(layout.split(Id::new(id).unwrap()).unwrap().timestamp)).unwrap()
}

/// The draws of one session, in order: single draws, rows, bulk draws that are cancelled, and draws that are
/// rolled back.
fn postgres_work(nth: usize) -> String {
    match nth % 4 {
        0 => "SELECT snowmint_next_id();\n".repeat(300),
        1 => "INSERT INTO drawn VALUES (DEFAULT), (DEFAULT) RETURNING id;\n".repeat(60),
        2 => format!(
            "SET statement_timeout = '4ms';\n{}",
            "SELECT * FROM snowmint_next_ids(3000);\n".repeat(20)
        ),
        _ => "BEGIN; SELECT snowmint_next_id(); SAVEPOINT a; SELECT snowmint_next_id(); ROLLBACK TO a; \
              SELECT snowmint_next_id(); ROLLBACK;\n"
            .repeat(100),
    }
}

/// Goal: no id repeats. Method: sixteen sessions, four of them through a pooler, draw one by one and in bulk,
/// are cancelled and rolled back, while the clock goes back and forth by 1 h and the server is killed twice,
/// once with the clock set back. Every id that a client has seen counts, even if it was rolled back.
#[test]
fn postgres_gives_no_id_twice() {
    // On a busy machine, a session that has the lock can be delayed: the pooler must not give up.
    let server = Postgres::with(&["max_connections=50"]);
    generator(&server);
    let pooler = PgBouncer::start(&server, "transaction", 4);
    let (stop, drawn, began) = (AtomicBool::new(false), AtomicUsize::new(0), unix_ms());
    let mut ids: Vec<u64> = thread::scope(|scope| {
        let (server, pooler, stop, drawn) = (&server, &pooler, &stop, &drawn);
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|nth| {
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let folder = server.folder().to_str().unwrap();
                        // In this mode a pooler keeps no session settings.
                        let through_pooler = nth >= 12 && nth % 4 != 2;
                        let mut client = if through_pooler {
                            psql("127.0.0.1", pooler.port())
                        } else {
                            psql(folder, server.port())
                        };
                        let output = feed(&mut client, &postgres_work(nth));
                        let before = seen.len();
                        seen.extend(numbers(&String::from_utf8(output.stdout).unwrap()));
                        drawn.fetch_add(seen.len() - before, Ordering::Relaxed);
                    }
                    seen
                })
            })
            .collect();
        for (nth, offset) in [0, -HOUR_MS, HOUR_MS, 0].into_iter().enumerate() {
            set_clock(server, offset);
            draw(2_000 * (nth + 1), || drawn.load(Ordering::Relaxed));
            if offset != 0 {
                set_clock(server, offset - HOUR_MS);
                server.kill9();
                server.restart();
            }
        }
        stop.store(true, Ordering::Relaxed);
        sessions.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    assert_eq!(
        server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
        "0",
        "a lock was left behind"
    );
    let layout = Layout::TWITTER;
    for id in &ids {
        let parts = layout.split(Id::new(*id).unwrap()).unwrap();
        assert_eq!((parts.datacenter.0, parts.worker.0), (3, 7));
        let time = layout.unix_ms(parts.timestamp);
        assert!(time.abs_diff(began) < 3 * HOUR_MS.unsigned_abs(), "{time} is far from {began}");
    }
    let all = ids.len();
    println!("{all} ids");
    assert_eq!(duplicates(&mut ids), 0);
}

/// Draws while a session is paused within a jump, just before it sets the sequence: the clock steps back, and
/// others draw past its target. Returns the number of duplicates.
fn paused_jump(server: &Postgres) -> usize {
    let start = i64::try_from(unix_ms()).unwrap();
    set_clock(server, start);
    server.sql("INSERT INTO drawn SELECT snowmint_next_id()");
    set_clock(server, start + 30);
    thread::scope(|scope| {
        let paused = scope
            .spawn(|| session(server, "SET test.pause = 'on'; INSERT INTO drawn SELECT snowmint_next_id();"));
        eventually("a session that sleeps with the lock", Duration::from_secs(20), || {
            let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
            (server.sql(asleep) == "1").then_some(())
        });
        set_clock(server, start - HOUR_MS);
        // 30 ms are 122,880 cursors.
        server.sql("INSERT INTO drawn SELECT snowmint_next_ids(400000)");
        paused.join().unwrap();
    });
    server.sql("INSERT INTO drawn SELECT snowmint_next_ids(400000)");
    server.sql("SELECT count(*) - count(DISTINCT id) FROM drawn").parse().unwrap()
}

/// Goal: a jump that was paused repeats no id. Method: also with a generator that does not compare with the
/// limit, like published ones; there the same steps produce duplicates.
#[test]
fn postgres_survives_a_jump_that_was_paused() {
    let server = Postgres::start();
    generator(&server);
    assert_eq!(paused_jump(&server), 0);

    let careless = Postgres::start();
    generator(&careless);
    let install = script("postgres --layout twitter --datacenter 3 --worker 7");
    let (_, functions) = install.split_once("CREATE OR REPLACE FUNCTION public.snowmint_next_ids").unwrap();
    let (functions, _) = functions.split_once("$snowmint$;").unwrap();
    let functions = functions.replace("WHERE drawn >= lowest AND drawn < edge", "WHERE drawn >= lowest");
    let functions = functions.replace("edge - 20480,", "0,");
    careless.sql(&format!("CREATE OR REPLACE FUNCTION public.snowmint_next_ids{functions}$snowmint$"));
    assert!(paused_jump(&careless) > 0, "this test finds no duplicates");
}

/// Goal: a standby refuses to make ids, and repeats none after it took over with a clock that is 1 h behind.
#[test]
fn postgres_standby_continues_above_all_ids() {
    let primary = Postgres::start();
    generator(&primary);
    let standby = Postgres::standby_of(&primary);
    primary.sql("INSERT INTO drawn SELECT snowmint_next_ids(100000)");
    let last: u64 = primary.sql("SELECT snowmint_next_id()").parse().unwrap();
    set_clock(&primary, -HOUR_MS);
    let (rows, error) = eventually("the standby has the clock", Duration::from_secs(20), || {
        let behind = standby.sql("SELECT last_value FROM test_clock") != "0";
        behind.then(|| session(&standby, "SELECT snowmint_next_id();"))
    });
    assert!(
        rows.is_empty() && error.contains("cannot execute nextval() in a read-only transaction"),
        "{error}"
    );
    primary.kill9();
    standby.promote();
    let next: u64 = standby.sql("SELECT snowmint_next_id()").parse().unwrap();
    assert!(next > last, "{next} is not above {last}");
    let ahead = (next >> 22) - (last >> 22);
    assert!((5_000..12_000).contains(&ahead), "{ahead} ms ahead, for what was lost");
}

/// Goal: few draws write to the log, and yet a crash repeats nothing. Method: over 1 s of a clock that the
/// test moves, count the draws that get a transaction id, as those do that log a sequence and sync it. Then
/// the server is killed, and the clock is set back by 1 h.
#[test]
fn postgres_logs_few_draws_and_loses_none() {
    let server = Postgres::start();
    generator(&server);
    let start = i64::try_from(unix_ms()).unwrap();
    let steps = (0..100).map(|nth| {
        format!(
            "SELECT setval('test_clock', {});
             BEGIN; SELECT snowmint_next_id(); SELECT pg_current_xact_id_if_assigned() IS NOT NULL; COMMIT;\n",
            start + nth * 10
        )
    });
    let (rows, error) = session(&server, &steps.collect::<String>());
    let logged = rows.lines().filter(|row| *row == "t").count();
    assert_eq!((rows.lines().count(), &*error), (300, ""), "{rows}");
    assert!((1..=2).contains(&logged), "{logged} of 100 draws were logged");

    let draw = || -> u64 { server.sql("INSERT INTO drawn VALUES (DEFAULT) RETURNING id").parse().unwrap() };
    set_clock(&server, start + 60_000);
    let mut last = draw();
    // The logged limit is now 1 s ahead; 990 ms later, ids have almost reached it.
    for (later, skipped) in [(0, 11_000..11_010), (990, 10_000..10_020)] {
        set_clock(&server, unix_ms_of(last) + later);
        last = draw();
        set_clock(&server, start - HOUR_MS);
        server.kill9();
        server.restart();
        let next = draw();
        let ahead = unix_ms_of(next) - unix_ms_of(last);
        assert!(skipped.contains(&ahead), "{ahead} ms ahead, {later} ms after the limit was logged");
        last = next;
    }
    assert_eq!(server.sql("SELECT count(*) - count(DISTINCT id) FROM drawn"), "0");
}

/// Goal: draws continue after a crash, with the shortest `--max-ahead` that is accepted. Method: a server is
/// killed while its clock stands still, so that everything that the crash skips is ahead of the clock.
#[test]
fn postgres_draws_after_a_crash_within_max_ahead() {
    let server = Postgres::start();
    generator(&server);
    let install =
        script("postgres --layout twitter --datacenter 3 --worker 7 --max-ahead 12s --may-lose 10s");
    let clock = server.sql("SELECT pg_get_functiondef('snowmint_clock'::regproc)");
    server.sql(&format!("{install}{clock}"));
    set_clock(&server, i64::try_from(unix_ms()).unwrap());
    let last: u64 = server.sql("SELECT snowmint_next_id()").parse().unwrap();
    server.kill9();
    server.restart();
    let next: u64 = server.sql("SELECT snowmint_next_id()").parse().unwrap();
    let ahead = unix_ms_of(next) - unix_ms_of(last);
    assert!((11_000..11_010).contains(&ahead), "{ahead} ms ahead");
}

/// Goal: at the limits of the clock, errors say what to do, and a client with few rights cannot break the
/// generator.
#[test]
fn postgres_refuses_what_would_break_it() {
    let server = Postgres::start();
    server.sql(
        "CREATE ROLE client; CREATE SCHEMA app; GRANT USAGE ON SCHEMA app TO client;
         ALTER DEFAULT PRIVILEGES IN SCHEMA app GRANT ALL ON SEQUENCES TO client;
         CREATE SEQUENCE app.order_id_logged; ALTER SEQUENCE app.order_id_logged OWNER TO client;
         CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO client;
         CREATE FUNCTION evil.yes(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'hijacked'; END$$;
         CREATE FUNCTION evil.no(bigint, bigint) RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RAISE 'hijacked'; END$$;
         CREATE OPERATOR evil.< (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.yes);
         CREATE OPERATOR evil.>= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.yes);
         CREATE OPERATOR evil.- (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.no);
         CREATE OPERATOR evil.| (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.no);
         CREATE FUNCTION evil.no(double precision, int) RETURNS double precision LANGUAGE plpgsql AS $$BEGIN RAISE 'hijacked'; END$$;
         CREATE OPERATOR evil.* (LEFTARG = double precision, RIGHTARG = int, FUNCTION = evil.no);
         CREATE FUNCTION evil.no(bigint, int) RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RAISE 'hijacked'; END$$;
         CREATE OPERATOR evil.& (LEFTARG = bigint, RIGHTARG = int, FUNCTION = evil.no);",
    );
    let install =
        script("postgres --layout twitter --worker 7 --schema app --prefix order_id --max-ahead 12s");
    let install = format!("SET search_path = evil, pg_catalog;\n{install}SHOW search_path;\n");
    let (_, error) = session(&server, &install);
    assert!(error.contains("app.order_id_logged exists and belongs to client, not to postgres"), "{error}");
    server.sql("DROP SEQUENCE app.order_id_logged");
    assert_eq!(session(&server, &install), ("evil, pg_catalog\n".to_owned(), String::new()));
    assert_eq!(server.sql("SELECT app.order_id_worker(7 << 12)"), "7", "operators of the installer's path");
    server.sql(
        "CREATE TABLE app.orders (id bigint PRIMARY KEY DEFAULT app.order_id_next_id(), number int);
         GRANT INSERT, SELECT ON app.orders TO client",
    );
    let as_client = "SET ROLE client; SET search_path = evil, pg_catalog;\n";
    let (rows, error) = session(
        &server,
        &format!(
            "{as_client} SET standard_conforming_strings = off;
             INSERT INTO app.orders (number) SELECT generate_series(1, 30000);
             PREPARE draw AS SELECT app.order_id_next_id(); EXECUTE draw; EXECUTE draw;
             SELECT count(DISTINCT id) FROM app.orders;"
        ),
    );
    assert!(error.is_empty() && rows.ends_with("30000\n"), "{rows}{error}");
    for denied in [
        "SELECT setval('app.order_id_cursor', 1)",
        "SELECT nextval('app.order_id_edge')",
        "SELECT nextval('app.order_id_logged')",
        "SELECT app.order_id_jump()",
        "UPDATE app.order_id_logged SET last_value = 1",
    ] {
        let (_, error) = session(&server, &format!("{as_client}{denied};"));
        assert!(
            error.contains("permission denied") || error.contains("cannot change sequence"),
            "{denied}: {error}"
        );
    }
    let (rows, error) = session(&server, "SELECT count(*) FROM app.order_id_next_ids(0);");
    assert!(rows.is_empty() && error.contains("invalid number 0: expected 1 to 10000000"), "{error}");

    // A parallel plan repeats no id: the functions run in the leader only.
    let (rows, error) = session(
        &server,
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
         ANALYZE app.orders;
         SELECT count(DISTINCT app.order_id_next_id()) FROM app.orders;",
    );
    assert_eq!((&*rows, &*error), ("30000\n", ""));

    let clock = |at: &str| {
        server.sql(&format!(
            "CREATE OR REPLACE FUNCTION app.order_id_clock() RETURNS bigint LANGUAGE sql VOLATILE \
             RETURN floor(date_part('epoch', {at}) * 1000)::bigint"
        ));
        session(&server, "SELECT count(*) FROM app.order_id_next_ids(100000);").1
    };
    assert_eq!(clock("clock_timestamp()"), "");
    let error = clock("clock_timestamp() - interval '1 hour'");
    assert!(
        error.contains("s ahead of the clock, more than --max-ahead 12s")
            && error.contains("The clock went back"),
        "{error}"
    );
    assert_eq!(clock("clock_timestamp()"), "", "it continues once the clock is right");
    let error = clock("timestamptz '2009-01-01'");
    assert!(
        error.contains("the clock is before the epoch of the layout, 2010-11-04T01:42:54.657Z"),
        "{error}"
    );
    let error = clock("timestamptz '2080-07-11'");
    assert!(error.contains("no timestamps left: the layout ends on 2080-07-10T17:30:30.208Z"), "{error}");

    let install = script("postgres --layout twitter --worker 7 --schema app --prefix order_id");
    server.sql("CREATE SEQUENCE app.order_id_limit");
    let (_, error) = session(&server, &install);
    assert!(error.contains("order_id_limit is of an older version of these functions"), "{error}");
    server.sql("DROP SEQUENCE app.order_id_limit");

    let drop = script("postgres --layout twitter --worker 7 --schema app --prefix order_id --drop");
    let (_, error) = session(&server, &drop);
    assert!(error.contains("other objects depend on it"), "a table still uses it: {error}");
    assert_eq!(
        server.sql("SELECT count(*) FROM pg_class WHERE relname LIKE 'order_id%'"),
        "3",
        "half dropped"
    );
    server.sql(&format!("DROP TABLE app.orders; {drop}"));
    assert_eq!(server.sql("SELECT count(*) FROM pg_class WHERE relname LIKE 'order_id%'"), "0");
    assert_eq!(server.sql("SELECT count(*) FROM pg_proc WHERE proname LIKE 'order_id%'"), "0");
}

/// Goal: the generator makes ids for layouts with other ticks and orders of fields, at the clock, with evenly
/// distributed low bits.
#[test]
fn postgres_makes_ids_of_every_layout_with_time_left() {
    let server = Postgres::start();
    for layout in super::layouts() {
        if layout.left_at(unix_ms()).is_zero() {
            continue;
        }
        let worker = layout.max(Field::Worker);
        let text = layout.to_string();
        let worker_text = worker.to_string();
        let args = ["sql", "postgres", "--layout", &text, "--worker", &worker_text];
        let install = crate::support::Sandbox::new().run(&args).out;
        let drop = crate::support::Sandbox::new().out(&[&args[..], &["--drop"]].concat());
        server.sql(&install);
        // Longer than a tick, also for slow layouts.
        let count = (layout.max(Field::Sequence) + 1).min(20_000) * 3;
        let before = unix_ms();
        let rows = server.sql(&format!(
            "SELECT snowmint_next_id() FROM generate_series(1, 5); SELECT * FROM snowmint_next_ids({count})"
        ));
        let ids: Vec<u64> = rows.lines().map(|it| it.parse().unwrap()).collect();
        assert_eq!(ids.len() as u64, count + 5, "{layout}");
        let mut distinct = ids.clone();
        assert_eq!(duplicates(&mut distinct), 0, "{layout}");
        let sorts = layout.shift(Field::Timestamp) > layout.shift(Field::Sequence);
        assert!(!sorts || ids == distinct, "{layout}: ids of one session increase");
        let tick_ms = u64::try_from(layout.tick().as_millis()).unwrap();
        for id in ids {
            let parts = layout.split(Id::new(id).unwrap()).unwrap();
            assert_eq!((u64::from(parts.worker.0), parts.generation.0), (worker, 0), "{layout}");
            let time = layout.unix_ms(parts.timestamp);
            let ahead = 8 * tick_ms + 10_000;
            assert!((before - tick_ms - 10..before + ahead).contains(&time), "{layout}: {time} at {before}");
        }
        server.sql(&drop);
    }
    // Without a pause and with one, the low bits differ: `id % n` picks each of n shards.
    server.sql(&script("postgres --layout twitter --worker 1"));
    let slow = "SELECT snowmint_next_id(); SELECT pg_sleep(0.006);\n".repeat(64);
    let (rows, _) = session(&server, &slow);
    let mut low: Vec<u64> = numbers(&rows).map(|id| id % 64).collect();
    assert!(low.len() == 64 && duplicates(&mut low) < 8, "{low:?}");
}

/// A session of MariaDB: rows by the trigger, single draws, and the event's work with a clock that is 1 h
/// off.
fn mariadb_work(nth: usize) -> String {
    let seconds = i64::try_from(unix_ms() / 1000).unwrap();
    match nth % 4 {
        0 => "INSERT INTO drawn (number) VALUES (1), (2);\n".repeat(60),
        1 => "INSERT INTO drawn (id) VALUES (snowmint_next_id());\n".repeat(100),
        2 => "START TRANSACTION; INSERT INTO drawn (number) SELECT seq FROM seq_1_to_500; ROLLBACK;\n\
              INSERT INTO drawn (number) SELECT seq FROM seq_1_to_500;\n"
            .repeat(4),
        _ => format!(
            "SET timestamp = {}; CALL snowmint_catch_up(); INSERT INTO drawn (number) VALUES (3); \
             SET timestamp = {}; CALL snowmint_catch_up(); INSERT INTO drawn (number) VALUES (4);\n",
            seconds - 3600,
            seconds + i64::try_from(nth).unwrap()
        )
        .repeat(20),
    }
}

/// Goal: no id of a committed row repeats. Method: sixteen sessions with clocks that differ by 1 h, and a
/// server that is killed.
#[test]
fn mariadb_gives_no_id_twice() {
    let server = MariaDb::with(&["--event-scheduler=ON"]);
    let install = script("mariadb --layout twitter --datacenter 3 --worker 7");
    server.sql(&format!("USE test; {install}{install}"));
    // With a key of its own, and with what tells afterwards how an id came twice: not unique, since the
    // session that draws an id again would only get an error.
    server.sql(
        "USE test; CREATE TABLE drawn (nth BIGINT AUTO_INCREMENT PRIMARY KEY, id BIGINT DEFAULT 0, number INT, \
         drawn_cursor BIGINT DEFAULT 0, session BIGINT DEFAULT (CONNECTION_ID()), at DATETIME(6) DEFAULT (SYSDATE(6)), INDEX (id)); \
         CREATE TRIGGER drawn_id BEFORE INSERT ON drawn FOR EACH ROW SET NEW.id = COALESCE(NULLIF(NEW.id, 0), \
         snowmint_next_id()), NEW.drawn_cursor = LASTVAL(snowmint_cursor)",
    );
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for nth in 0..SESSIONS {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let work = mariadb_work(nth);
                    let mut client = Command::new("mariadb");
                    client.args(["--no-defaults", "--batch", "--force", "--user=root", "--database=test"]);
                    client.arg(format!("--socket={}", server.folder().join("socket").display()));
                    feed(&mut client, &work);
                }
            });
        }
        let drawn = || server.sql("SELECT COUNT(*) FROM test.drawn").parse().unwrap();
        for nth in 1..3 {
            draw(1_000 * nth, drawn);
            server.kill9();
            server.restart();
            println!("restarted at {}", server.sql("SELECT SYSDATE(6)"));
        }
        draw(3_000, drawn);
        stop.store(true, Ordering::Relaxed);
    });
    let repeated = server.sql(
        "SELECT * FROM test.drawn WHERE id IN (SELECT id FROM test.drawn GROUP BY id HAVING COUNT(*) > 1) ORDER BY id, nth",
    );
    let rows = server.sql("SELECT id FROM test.drawn");
    let mut ids: Vec<u64> = numbers(&format!("{rows}\n")).collect();
    let (all, began) = (ids.len(), now());
    println!("{all} ids");
    assert!(ids.iter().all(|id| id >> 12 & 1023 == (3 << 5 | 7)));
    assert_eq!(duplicates(&mut ids), 0, "row, id, number, cursor, session, time:\n{repeated}");
    // The event follows the clock; nothing else calls it now.
    eventually("the event catches up", Duration::from_secs(30), || {
        let late = "SELECT TIMESTAMPDIFF(MICROSECOND, test.snowmint_time(test.snowmint_next_id()), UTC_TIMESTAMP(6)) < 3000000";
        (server.sql(late) == "1").then_some(())
    });
    assert!(began.elapsed() < Duration::from_mins(1));
    // The rights that the docs name are sufficient and necessary.
    server.sql("CREATE USER client@localhost; GRANT INSERT ON test.drawn TO client@localhost");
    let as_client = |sql: &str| {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--user=client", "--database=test"]);
        client.arg(format!("--socket={}", server.folder().join("socket").display()));
        String::from_utf8(feed(&mut client, sql).stderr).unwrap()
    };
    assert_eq!(as_client("INSERT INTO drawn (number) VALUES (9)"), "");
    assert!(as_client("SELECT snowmint_next_id()").contains("denied"));
    assert!(as_client("DO SETVAL(snowmint_cursor, 1)").contains("denied"));
    server.sql("GRANT EXECUTE ON FUNCTION test.snowmint_next_id TO client@localhost");
    assert_eq!(as_client("SELECT snowmint_next_id()"), "");
    server.sql(&format!(
        "USE test; DROP TABLE drawn; {}",
        script("mariadb --layout twitter --worker 7 --drop")
    ));
    assert_eq!(
        server.sql("SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = 'test'"),
        "0"
    );
}
