//! The PostgreSQL store against real servers: the suite, crashes, bad networks, permissions, standbys, full
//! disks, TLS.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use snowmint_store::{Expected, StoreErrorKind, Swap, conformance};
use snowmint_test_servers::{PgBouncer, Postgres, Proxy, Server};
use sqlx::{Connection, FromRow, PgConnection};

use crate::support::outages;
use crate::support::{SECRET, key, open, put, refused};

fn url(server: &Server) -> String {
    format!("postgres://postgres@{}/postgres", server.address())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract() {
    let server = Postgres::start();
    let url = url(&server);
    conformance::run(async || open(&url).await).await.unwrap();
}

/// Goal: an invalid row does not hide the other records, and is reported. Method: rows that another program
/// wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_no_record_is_skipped_and_told() {
    let server = Postgres::start();
    let store = open(&url(&server)).await;
    put(&*store, "workers/a/1", b"ours").await;
    server.sql("INSERT INTO snowmint_records VALUES ('what is this?', 7, ''), ('workers/a/2', -7, '')");
    let listed = store.list("").await.unwrap();
    assert!(matches!(&listed[..], [(found, _)] if *found == key("workers/a/1")), "{listed:?}");
    let skipped = store.skipped();
    assert!(skipped.len() == 2 && skipped[0].contains("what is this?"), "{skipped:?}");
    assert!(skipped[1].contains("workers/a/2") && skipped[1].contains("revision -7"), "{skipped:?}");
    assert_eq!(store.load(&key("workers/a/2")).await.unwrap_err().kind(), StoreErrorKind::Corrupt);
}

/// Goal: names of other programs are skipped, also in a database without an encoding, whose server accepts
/// any bytes. Method: a database of each kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_other_programs_are_skipped_and_told() {
    let server = Postgres::start();
    for (database, encoding) in [("bytes", "SQL_ASCII"), ("latin", "LATIN1"), ("utf", "UTF8")] {
        server.sql(&format!(
            "CREATE DATABASE {database} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        ));
        let url = format!("postgres://postgres@{}/{database}", server.address());
        let put = async |name: &[u8]| {
            // The server of an encoding refuses bytes that are no text in it.
            if encoding == "UTF8" && str::from_utf8(name).is_err() {
                return false;
            }
            let name = name.iter().fold(String::new(), |text, it| text + &format!("\\x{it:02x}"));
            // Escapes are in the encoding of the server.
            server.sql_in(
                database,
                &format!("SET client_encoding TO '{encoding}'; INSERT INTO snowmint_records VALUES (E'{name}', 7, '')"),
            );
            true
        };
        conformance::skips_foreign_names(async || open(&url).await, put).await.unwrap();
    }
}

/// Goal: the contract holds whatever the defaults of the database are. Method: the least suitable ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_under_strange_defaults() {
    let server = Postgres::with(&[
        "synchronous_commit=off",
        "default_transaction_isolation=serializable",
        "statement_timeout=200",
        "max_connections=40",
    ]);
    let url = url(&server);
    conformance::run(async || open(&url).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_survives_crashes_pauses_and_bad_networks() {
    let server = Postgres::start();
    let direct = open(&url(&server)).await;
    let proxy = Proxy::start(server.address());
    let store = open(&format!("postgres://postgres@{}/postgres?timeout_ms=1000", proxy.address())).await;
    outages::survives_a_bad_network(store, Arc::clone(&direct), &proxy).await;
    let store = open(&format!("{}?timeout_ms=1000", url(&server))).await;
    outages::survives_a_pause(Arc::clone(&store), &server).await;
    outages::survives_a_crash(store, &server).await;
    drop(direct);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_tells_the_time_and_opens_in_a_race() {
    let server = Postgres::start();
    outages::opens_in_a_race(&url(&server)).await;
    let store = open(&url(&server)).await;
    outages::tells_the_time(&*store).await;
    assert_eq!(store.describe(), format!("postgres://{}/postgres", server.address()));
    let (port, folder) = (server.port(), server.folder().display());
    open(&format!("postgres://postgres@localhost:{port}/postgres?socket={folder}")).await;
}

#[tokio::test]
async fn passwords_databases_and_rights() {
    let server = Postgres::start();
    server.sql(&format!("CREATE USER node PASSWORD '{SECRET}'"));
    server.set_logins("host all all 127.0.0.1/32 scram-sha-256");
    let address = server.address();
    let good = format!("postgres://node:{SECRET}@{address}/postgres");

    // Since version 15 users may not create tables by default: the error contains the SQL to run.
    let (kind, error) = refused(&good).await;
    assert_eq!(kind, Some(StoreErrorKind::ReadOnly), "{error}");
    assert!(error.contains("CREATE TABLE snowmint_records"), "{error}");
    server.sql(&snowmint_store::schema(&good).unwrap());
    server.sql("GRANT SELECT, INSERT, UPDATE ON snowmint_records TO node");
    let store = open(&good).await;
    let revision = put(&*store, "a", b"1").await.revision;
    assert!(!format!("{store:?} {}", store.describe()).contains(SECRET));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    open(&format!("postgres://node@{address}/postgres?password_file={}", file.display())).await;

    server.sql("REVOKE UPDATE ON snowmint_records FROM node");
    let error = store.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().contains("grant"), "{error}");

    let cases = [
        (format!("postgres://node:{SECRET}x@{address}/postgres"), "check user and password"),
        (format!("postgres://nobody:{SECRET}@{address}/postgres"), "check user and password"),
        (format!("postgres://node:{SECRET}@{address}/nothing"), "create the database"),
    ];
    for (url, says) in cases {
        let (kind, error) = refused(&url).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        assert!(error.contains(says), "{error}");
    }
}

/// Goal: replacing a password while a node runs causes no errors. Method: change it on the server and in the
/// file, then end all sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_password_is_read_from_its_file() {
    let server = Postgres::start();
    server.sql(&format!("CREATE USER node SUPERUSER PASSWORD '{SECRET}'"));
    server.set_logins("host all all 127.0.0.1/32 scram-sha-256");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let url = format!("postgres://node@{}/postgres?password_file={}", server.address(), file.display());
    let store = open(&url).await;
    put(&*store, "a", b"1").await;
    server.sql("ALTER USER node PASSWORD 'another'");
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'node'");
    // The first call may find the session ended.
    let error = match store.load(&key("a")).await.unwrap_err() {
        error if error.kind() == StoreErrorKind::Unavailable => store.load(&key("a")).await.unwrap_err(),
        error => error,
    };
    assert!(error.to_string().contains("check user and password"), "{error}");
    std::fs::remove_file(&file).unwrap();
    let error = store.load(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("password_file"), "{error}");
    std::fs::write(&file, "another\n").unwrap();
    assert_eq!(store.load(&key("a")).await.unwrap().unwrap().value, b"1");
    let names = server.sql("SELECT DISTINCT application_name FROM pg_stat_activity WHERE usename = 'node'");
    assert_eq!(names, "snowmint-5000ms");
}

/// Goal: a server is recognised at any address, and two servers are told apart. Method: a proxy and a pooler
/// in front of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_known_by_any_address() {
    let (server, another) = (Postgres::start(), Postgres::start());
    let (proxy, pooler) = (Proxy::start(server.address()), PgBouncer::start(&server, "session", 10));
    let known = async |address: &dyn std::fmt::Display| {
        open(&format!("postgres://postgres@{address}/postgres")).await.server().unwrap()
    };
    let it = known(&server.address()).await;
    assert_eq!([known(&proxy.address()).await, known(&pooler.address()).await], [it.clone(), it.clone()]);
    assert_ne!(known(&another.address()).await, it);
}

/// Goal: the contract holds through a pooler of sessions. Method: the suite.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_through_a_pooler_of_sessions() {
    let server = Postgres::start();
    let pooler = PgBouncer::start(&server, "session", 60);
    let url = format!("postgres://postgres@{}/postgres", pooler.address());
    conformance::run(async || open(&url).await).await.unwrap();
}

/// Goal: a pooler that gives transactions to other sessions is refused, with the reason, before it
/// acknowledges a write in a session without the settings. Method: a server whose default is not to wait for
/// its disk, sessions of another program between ours, and two nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_pooler_of_transactions_is_refused() {
    let server = Postgres::with(&["synchronous_commit=off"]);
    for mode in ["transaction", "statement"] {
        let pooler = PgBouncer::start(&server, mode, 3);
        let url = format!("postgres://postgres@{}/postgres?timeout_ms=2000", pooler.address());
        let opened = (snowmint_store::open_backend(&url).await, snowmint_store::open(&url).await);
        let mut refused = None;
        for (nth, store) in [opened.0, opened.1].into_iter().enumerate() {
            match store {
                Err(error) => refused = Some(error.to_string()),
                Ok(store) => {
                    let calls = (0..16).map(|call| {
                        let store = Arc::clone(&store);
                        tokio::spawn(async move {
                            store.add(&key(format!("{nth}/{call}")), NonZeroU64::MIN).await
                        })
                    });
                    for call in calls.collect::<Vec<_>>() {
                        refused = call.await.unwrap().err().map(|it| it.to_string()).or(refused);
                    }
                }
            }
        }
        let refused = refused.expect("no call was refused");
        println!("{mode}: {refused}");
        assert!(refused.contains("pool_mode = session"), "{mode}: {refused}");
    }
}

/// Returns the settings of a session, except the program's name, which a pooler sets for each client.
async fn settings(session: &mut PgConnection) -> BTreeSet<(String, String)> {
    const SETTINGS: &str = "SELECT name, setting FROM pg_settings WHERE name <> 'application_name'";
    let rows = sqlx::raw_sql(SETTINGS).fetch_all(session).await.unwrap();
    rows.iter().map(|row| FromRow::from_row(row).unwrap()).collect()
}

/// Goal: the store leaves the sessions that a pooler shares unchanged, and no call depends on what others
/// have set in one. Method: one session behind the pooler for the store and another program; its settings
/// before and after each call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_shared_is_left_as_it_was() {
    let server = Postgres::with(&["synchronous_commit=off", "default_transaction_isolation=serializable"]);
    for mode in ["transaction", "statement"] {
        let pooler = PgBouncer::start(&server, mode, 1);
        let url = format!("postgres://postgres@{}/postgres?timeout_ms=2000", pooler.address());
        let options: sqlx::postgres::PgConnectOptions = url.split('?').next().unwrap().parse().unwrap();
        let mut other = PgConnection::connect_with(&options.extra_float_digits(None)).await.unwrap();
        let before = settings(&mut other).await;
        let store = open(&url).await;
        let left = settings(&mut other).await;
        assert!(left == before, "{mode}: {:?} was {:?}", &left - &before, &before - &left);
        for set in ["synchronous_commit = off", "client_min_messages = error", "bytea_output = escape"] {
            sqlx::raw_sql(sqlx::AssertSqlSafe(format!("SET {set}"))).execute(&mut other).await.unwrap();
            let before = settings(&mut other).await;
            let name = format!("{mode}/{}", &set[..4]);
            let revision = put(&*store, &name, b"1").await.revision;
            let swap = store.compare_and_set(&key(&*name), Expected::Revision(revision), b"2").await;
            assert!(matches!(swap.unwrap(), Swap::Done(_)), "{name}");
            store.add(&key("sum"), NonZeroU64::MIN).await.unwrap();
            assert_eq!(store.load(&key(&*name)).await.unwrap().unwrap().value, b"2");
            assert!(!store.list("").await.unwrap().is_empty() && store.unix_ms().await.unwrap().is_some());
            let left = settings(&mut other).await;
            assert!(left == before, "{name}: {:?} was {:?}", &left - &before, &before - &left);
        }
    }
}

/// Goal: a server that does not wait for its disk is refused, unless the user accepts that.
#[tokio::test]
async fn a_server_that_does_not_sync_is_refused() {
    let server = Postgres::with(&["fsync=off"]);
    let (kind, error) = refused(&url(&server)).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    assert!(error.contains("set fsync on, or accept the loss with durable=no"), "{error}");
    open(&format!("{}?durable=no", url(&server))).await;
}

/// Goal: no write is acknowledged that a crash would take back. Method: turn `fsync` off while a connection
/// is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_syncing_takes_no_write() {
    let server = Postgres::start();
    let url = format!("postgres://postgres@{}/postgres", server.address());
    let (store, careless) = (open(&url).await, open(&format!("{url}?durable=no")).await);
    let revision = put(&*store, "a", b"1").await.revision;
    let fsync = |value: &str| {
        server.sql(&format!("ALTER SYSTEM SET fsync = {value}"));
        server.sql("SELECT pg_reload_conf()");
    };
    let rows = "SELECT name, revision, encode(value, 'escape') FROM snowmint_records ORDER BY name";
    for write in 0..4 {
        // On a connection that was made while the server synced.
        while store.load(&key("a")).await.is_err() {}
        fsync("off");
        // A session notices it at its next message or the one after.
        for _ in 0..1000 {
            if careless.load(&key("a")).await.is_ok() && store.load(&key("a")).await.is_err() {
                break;
            }
        }
        let before = server.sql(rows);
        let error = match write {
            0 => store.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await.unwrap_err(),
            1 => store.compare_and_set(&key("b"), Expected::Absent, b"2").await.unwrap_err(),
            2 => store.add(&key("sum"), NonZeroU64::MIN).await.unwrap_err(),
            _ => store.list("").await.unwrap_err(),
        };
        assert_eq!(error.kind(), StoreErrorKind::Other, "{error}");
        assert!(error.to_string().contains("set fsync on, or accept the loss with durable=no"), "{error}");
        assert_eq!(server.sql(rows), before, "{write}");
        careless.add(&key("careless"), NonZeroU64::MIN).await.unwrap();
        fsync("on");
    }
    while store.add(&key("sum"), NonZeroU64::MIN).await.is_err() {}
}

/// Goal: a copy that is given the name of the database is not mistaken for it. Method: swap the names of the
/// two while a store is open; a store that is opened afterwards uses the copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_database_is_not_used() {
    let server = Postgres::start();
    server.sql("CREATE DATABASE ids");
    let url = format!("postgres://postgres@{}/ids", server.address());
    let store = open(&url).await;
    let one = NonZeroU64::MIN;
    store.add(&key("sum"), one).await.unwrap();
    server.sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'ids'");
    for sql in [
        "CREATE DATABASE copy TEMPLATE ids",
        "ALTER DATABASE ids RENAME TO original",
        "ALTER DATABASE copy RENAME TO ids",
    ] {
        server.sql(sql);
    }
    // The first call finds the connection broken.
    let error = loop {
        match store.load(&key("sum")).await {
            Err(error) if error.is_temporary() => {}
            answer => break answer.unwrap_err(),
        }
    };
    assert_eq!(error.kind(), StoreErrorKind::Other, "{error}");
    assert!(error.to_string().contains("another database of this name"), "{error}");
    assert_eq!(open(&url).await.add(&key("sum"), one).await.unwrap(), 1);
    server.sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'ids'");
    for sql in ["ALTER DATABASE ids RENAME TO copy", "ALTER DATABASE original RENAME TO ids"] {
        server.sql(sql);
    }
    assert_eq!(store.add(&key("sum"), one).await.unwrap(), 1);
}

/// Goal: all nodes of one URL and one user use one table. Method: a schema of that user appears, with a copy
/// of the table, before the one that nodes use, on open connections and on new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_hides_another_is_not_used() {
    let server = Postgres::start();
    server.sql("CREATE ROLE mint LOGIN; GRANT CREATE ON SCHEMA public TO mint");
    let url = format!("postgres://mint@{}/postgres", server.address());
    let stores = [open(&url).await, open(&url).await];
    let one = NonZeroU64::MIN;
    stores[0].add(&key("sum"), one).await.unwrap();
    let revision = put(&*stores[0], "a", b"1").await.revision;
    server.sql(
        "CREATE SCHEMA mint AUTHORIZATION mint; \
         CREATE TABLE mint.snowmint_records (LIKE public.snowmint_records INCLUDING ALL); \
         INSERT INTO mint.snowmint_records SELECT * FROM public.snowmint_records; \
         GRANT ALL ON ALL TABLES IN SCHEMA mint TO mint",
    );
    let end_sessions = || {
        server.sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'mint'");
    };
    for (nth, store) in (1..).zip([&stores[0], &stores[1]]) {
        assert_eq!(store.add(&key("sum"), one).await.unwrap(), nth);
    }
    end_sessions();
    for (nth, store) in (3..).zip([&stores[1], &stores[0]]) {
        // Finds the connection broken, and opens another.
        while store.load(&key("sum")).await.is_err() {}
        assert_eq!(store.add(&key("sum"), one).await.unwrap(), nth);
    }
    let swap = stores[0].compare_and_set(&key("a"), Expected::Revision(revision), b"2").await.unwrap();
    assert!(matches!(swap, Swap::Done(_)));
    assert_eq!(stores[1].load(&key("a")).await.unwrap().unwrap().value, b"2");
    assert_eq!(stores[1].list("").await.unwrap().len(), 2);
    assert_eq!(server.sql("SELECT encode(value, 'escape') FROM mint.snowmint_records ORDER BY name"), "1\n1");

    // A node that starts now cannot know which table the others use.
    let (kind, error) = refused(&url).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    assert!(error.contains("finds mint.snowmint_records") && error.contains("in public too"), "{error}");
    server.sql("ALTER ROLE mint SET search_path = public");
    assert_eq!(open(&url).await.add(&key("sum"), one).await.unwrap(), 5);
    // Tables in other schemas are ignored.
    server.sql(
        "ALTER ROLE mint RESET search_path; DROP TABLE public.snowmint_records; CREATE SCHEMA \"Other one\"; \
        CREATE TABLE \"Other one\".snowmint_records (LIKE mint.snowmint_records INCLUDING ALL)",
    );
    assert_eq!(open(&url).await.add(&key("sum"), one).await.unwrap(), 1);
    server.sql(
        "ALTER ROLE mint SET search_path = 'Other one'; GRANT ALL ON SCHEMA \"Other one\" TO mint; \
        GRANT ALL ON ALL TABLES IN SCHEMA \"Other one\" TO mint",
    );
    assert_eq!(open(&url).await.add(&key("sum"), one).await.unwrap(), 0);
}

#[tokio::test]
async fn a_foreign_table_is_left_alone() {
    let server = Postgres::start();
    let tables = [
        ("CREATE TABLE snowmint_records (id int)", "belongs to another program"),
        (
            "CREATE VIEW snowmint_records AS SELECT 'a' AS name, 1::bigint AS revision, ''::bytea AS value",
            "another",
        ),
        (
            "CREATE TABLE snowmint_records (name text PRIMARY KEY, revision bigint, value bytea)",
            "name text default",
        ),
        (
            r#"CREATE TABLE snowmint_records (name text COLLATE "C", revision bigint, value bytea)"#,
            "primary key",
        ),
        (
            r#"CREATE UNLOGGED TABLE snowmint_records (name text COLLATE "C" PRIMARY KEY, revision bigint, value bytea)"#,
            "SET LOGGED",
        ),
    ];
    for (table, says) in tables {
        server.sql(table);
        let (kind, error) = refused(&url(&server)).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        assert!(error.contains(says), "{error}");
        server
            .sql(&format!("DROP {} snowmint_records", if table.contains("VIEW") { "VIEW" } else { "TABLE" }));
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_written_is_told() {
    let primary = Postgres::start();
    let store = open(&url(&primary)).await;
    let mut revision = put(&*store, "a", b"1").await.revision;
    let standby = Postgres::standby_of(&primary);
    let (kind, error) = refused(&url(&standby)).await;
    assert_eq!(kind, Some(StoreErrorKind::ReadOnly), "{error}");
    assert!(error.contains("is a read-only standby"), "{error}");
    // Of several hosts, the primary is found.
    open(&format!("postgres://postgres@{},{}/postgres", standby.address(), primary.address())).await;

    primary.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    primary.sql("SELECT pg_reload_conf()");
    // The session notices it after a while; until then it writes.
    let started = tokio::time::Instant::now();
    let error = loop {
        match store.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await {
            Ok(Swap::Done(after)) => revision = after,
            Ok(Swap::Conflict) => panic!("an unexpected conflict"),
            Err(error) => break error,
        }
        assert!(started.elapsed().as_secs() < 60, "the server is still written");
    };
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    assert_eq!(store.load(&key("a")).await.unwrap().unwrap().revision, revision);
}

/// Goal: a write that waits for another gives up in time, and has written nothing. Method: lock the row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_is_not_waited_for_for_ever() {
    let server = Postgres::start();
    let store = open(&format!("{}?timeout_ms=5000", url(&server))).await;
    let revision = put(&*store, "a", b"1").await.revision;
    put(&*store, "sum", b"1").await;
    let mut locker = PgConnection::connect(&url(&server)).await.unwrap();
    let mut lock = locker.begin().await.unwrap();
    let rows = sqlx::query("SELECT 1 FROM snowmint_records FOR UPDATE").fetch_all(&mut *lock).await.unwrap();
    assert_eq!(rows.len(), 2);
    let error = store.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    let error = store.add(&key("sum"), NonZeroU64::MIN).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    lock.rollback().await.unwrap();
    assert_eq!(store.load(&key("a")).await.unwrap().unwrap().revision, revision);
    assert_eq!(store.add(&key("sum"), NonZeroU64::MIN).await.unwrap(), 1);
}

/// Goal: a database that only speaks the protocol is no outage. Method: a function that hides a setting, as
/// `CockroachDB` does not have it.
#[tokio::test]
async fn another_database_with_the_protocol_is_told() {
    let server = Postgres::start();
    server.sql(
        "CREATE SCHEMA other; CREATE FUNCTION other.current_setting(text) RETURNS text LANGUAGE plpgsql AS \
         'BEGIN RAISE undefined_object USING MESSAGE = ''unrecognized configuration parameter''; END'; \
         CREATE USER node SUPERUSER; ALTER USER node SET search_path = other, pg_catalog, public",
    );
    let (kind, error) = refused(&format!("postgres://node@{}/postgres", server.address())).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    assert!(error.contains("not PostgreSQL"), "{error}");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_is_checked() {
    use snowmint_test_servers::Certificates;
    let (certificates, others) = (Certificates::make(), Certificates::make());
    let server = Postgres::with_tls(&certificates, &[]);
    server.sql(&format!("CREATE USER node SUPERUSER PASSWORD '{SECRET}'"));
    server.set_logins("hostssl all all 127.0.0.1/32 scram-sha-256");
    let port = server.port();
    let url = |host: &str, parameters: &str| {
        format!("postgres://node:{SECRET}@{host}:{port}/postgres?timeout_ms=2000&{parameters}")
    };
    let root = |it: &Certificates| format!("sslrootcert={}", it.authority().display());
    let store = open(&url("localhost", &root(&certificates))).await;
    put(&*store, "a", b"1").await;
    open(&url("127.0.0.1", "sslmode=require")).await;
    open(&url("127.0.0.1", &format!("sslmode=verify-full&{}", root(&certificates)))).await;
    // As in libpq: a CA that the URL names is checked, but not the host.
    open(&url("127.0.0.1", &format!("sslmode=require&{}", root(&certificates)))).await;
    let foreign = format!("sslmode=require&{}", root(&others));
    for parameters in [root(&others), foreign, "sslmode=verify-full".to_owned()] {
        let (kind, error) = refused(&url("localhost", &parameters)).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        assert!(error.contains("name its file with sslrootcert="), "{error}");
    }
    let (kind, error) = refused(&url("localhost", "sslmode=disable")).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
}
