//! The MySQL store against real MariaDB servers: the suite, crashes, bad networks, permissions, read-only,
//! TLS.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::{Expected, StoreErrorKind, conformance};
use snowmint_test_servers::{MariaDb, Proxy, Server, is_mysql};
use sqlx::{Connection, MySqlConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::support::outages;
use crate::support::{SECRET, key, open, put, refused};

fn url(server: &Server) -> String {
    format!("mysql://root@{}/test", server.address())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract() {
    let server = MariaDb::start();
    let url = url(&server);
    conformance::run(async || open(&url).await).await.unwrap();
}

/// Goal: an invalid row does not hide the other records, and is reported. Method: rows that another program
/// wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_no_record_is_skipped_and_told() {
    let server = MariaDb::start();
    let store = open(&url(&server)).await;
    put(&*store, "workers/a/1", b"ours").await;
    server.sql("INSERT INTO test.snowmint_records VALUES ('what is this?', 7, ''), ('workers/a/2', -7, '')");
    let listed = store.list("").await.unwrap();
    assert!(matches!(&listed[..], [(found, _)] if *found == key("workers/a/1")), "{listed:?}");
    let skipped = store.skipped();
    assert!(skipped.len() == 2 && skipped[0].contains("what is this?"), "{skipped:?}");
    assert!(skipped[1].contains("workers/a/2") && skipped[1].contains("revision -7"), "{skipped:?}");
    assert_eq!(store.load(&key("workers/a/2")).await.unwrap_err().kind(), StoreErrorKind::Corrupt);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_other_programs_are_skipped_and_told() {
    let server = MariaDb::start();
    let url = url(&server);
    let put = async |name: &[u8]| {
        let name = name.iter().fold(String::new(), |text, it| text + &format!("{it:02x}"));
        server.sql(&format!("INSERT INTO test.snowmint_records VALUES (x'{name}', 7, '')"));
        true
    };
    conformance::skips_foreign_names(async || open(&url).await, put).await.unwrap();
}

/// Goal: the contract holds whatever the defaults of the server are. Method: the least suitable ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_under_strange_defaults() {
    let server = MariaDb::with(&[
        "--autocommit=0",
        "--transaction-isolation=SERIALIZABLE",
        "--character-set-server=utf8mb4",
        "--collation-server=utf8mb4_general_ci",
        "--default-storage-engine=MyISAM",
        "--lower-case-table-names=1",
        "--loose-sql-require-primary-key=ON",
    ]);
    let url = url(&server).replace("mysql:", "mariadb:").replace("/test", "/Test");
    for modes in ["", "ANSI,TRADITIONAL,NO_BACKSLASH_ESCAPES,NO_UNSIGNED_SUBTRACTION"] {
        server.sql(&format!("SET GLOBAL sql_mode = '{modes}'; DROP TABLE IF EXISTS test.snowmint_records"));
        conformance::run(async || open(&url).await).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_survives_crashes_pauses_and_bad_networks() {
    let server = MariaDb::start();
    let direct = open(&url(&server)).await;
    let proxy = Proxy::start(server.address());
    let store = open(&format!("mysql://root@{}/test?timeout_ms=1000", proxy.address())).await;
    outages::survives_a_bad_network(store, Arc::clone(&direct), &proxy).await;
    let store = open(&format!("{}?timeout_ms=1000", url(&server))).await;
    outages::survives_a_pause(Arc::clone(&store), &server).await;
    outages::survives_a_crash(store, &server).await;
    drop(direct);
}

/// Goal: a crash keeps what a read has returned. Without a binary log, `InnoDB` shows a commit before it is
/// on the disk, and a server with READ-UNCOMMITTED as its default shows statements that have not committed.
/// Method: the disk hangs while a write waits for it; then the server is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_returns_only_what_a_crash_keeps() {
    let with_binary_log =
        ["--log-bin=binlog", "--server-id=1", "--transaction-isolation=READ-UNCOMMITTED"].as_slice();
    let beside_the_binary_log = ["--log-bin=binlog", "--server-id=1", "--binlog-ignore-db=test"].as_slice();
    for settings in [&[], with_binary_log, beside_the_binary_log] {
        let server = MariaDb::with_disk_that_hangs(settings);
        let store = open(&format!("{}?timeout_ms=1500", url(&server))).await;
        let first = put(&*store, "a", b"first").await;
        server.hang_disk();
        let write = store.compare_and_set(&key("a"), Expected::Revision(first.revision), b"second").await;
        assert_eq!(write.unwrap_err().kind(), StoreErrorKind::OutcomeUnknown);
        let shown = "SELECT value FROM test.snowmint_records WHERE name = 'a'";
        assert_eq!(server.sql(shown), "second", "the server shows it, or this test proves nothing");
        let loaded = store.load(&key("a")).await.map(|found| found.unwrap().value);
        let listed = store.list("").await.map(|found| found[0].1.value.clone());
        server.kill9();
        server.free_disk();
        server.restart();
        assert_eq!(server.sql(shown), "first", "the crash undid it");
        for read in [loaded, listed] {
            assert!(read.as_ref().is_ok_and(|value| value == b"first") || read.is_err(), "{read:?}");
        }
        assert_eq!(store.load(&key("a")).await.unwrap().unwrap().revision, first.revision);
    }
}

/// Goal: `may_lose` bounds the loss of a server that syncs later, even if its disk hangs. Such a server
/// acknowledges commits for as long as the disk hangs, and a crash loses them. Method: the disk hangs, and
/// the server is killed; with 2, only syncs hang, which loses something only if the machine fails too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_syncs_later_is_not_trusted_while_its_disk_hangs() {
    let shown = "SELECT value FROM test.snowmint_records WHERE name = 'a'";
    for flush in [0, 2] {
        let server = MariaDb::with_disk_that_hangs(&[&format!("--innodb-flush-log-at-trx-commit={flush}")]);
        let store = open(&format!("{}?may_lose=2s", url(&server))).await;
        put(&*store, "a", b"first").await;
        // Until it is on the disk.
        sleep(Duration::from_millis(1500)).await;
        if flush == 0 {
            server.hang_disk();
        } else {
            server.hang_syncs();
        }
        let written = Instant::now();
        put(&*store, "a", b"second").await;
        assert_eq!(server.sql(shown), "second");
        while store.load(&key("a")).await.is_ok() {
            sleep(Duration::from_millis(50)).await;
            assert!(written.elapsed() < Duration::from_secs(10), "it would settle, and the crash undoes it");
        }
        let error = store.load(&key("a")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("not on the disk after"), "{error}");
        let write = store.compare_and_set(&key("b"), Expected::Absent, b"1").await;
        assert_eq!(write.unwrap_err().kind(), StoreErrorKind::OutcomeUnknown);
        server.kill9();
        server.free_disk();
        server.restart();
        let kept = if flush == 0 { "first" } else { "second" };
        assert_eq!(server.sql(shown), kept);
        while store.load(&key("a")).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(store.load(&key("a")).await.unwrap().unwrap().value, kept.as_bytes());
    }
}

/// Goal: a tool that only looks needs no right to write, and shows the records while the disk hangs. A write
/// names the missing right, and no warning does so again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_only_looks_writes_nothing() {
    let server = MariaDb::with_disk_that_hangs(&[]);
    put(&*open(&url(&server)).await, "a", b"1").await;
    server.sql("CREATE USER looker@'%'; GRANT SELECT ON test.* TO looker@'%'");
    let looker = format!("mysql://looker@{}/test?timeout_ms=1500", server.address());
    let (kind, error) = refused(&looker).await;
    assert!(kind == Some(StoreErrorKind::Other) && error.contains("grant SELECT, INSERT"), "{error}");
    for hangs in [false, true] {
        if hangs {
            server.hang_disk();
        }
        let store = snowmint_store::open_to_read(&looker).await.unwrap();
        assert_eq!(store.list("").await.unwrap().len(), 1);
        let record = store.load(&key("a")).await.unwrap().unwrap();
        assert_eq!(record.value, b"1");
        if hangs {
            continue;
        }
        assert_eq!(store.warnings().await, [""; 0]);
        let write = store.compare_and_set(&key("a"), Expected::Revision(record.revision), b"2").await;
        let write = write.unwrap_err();
        assert_eq!(write.kind(), StoreErrorKind::ReadOnly, "{write}");
        assert!(write.to_string().contains("grant SELECT, INSERT"), "{write}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_tells_the_time_and_opens_in_a_race() {
    let server = MariaDb::start();
    outages::opens_in_a_race(&url(&server)).await;
    let store = open(&url(&server)).await;
    outages::tells_the_time(&*store).await;
    assert_eq!(store.describe(), format!("mysql://{}/test", server.address()));
    open(&format!("mysql://root@localhost/test?socket={}/socket", server.folder().display())).await;
}

#[tokio::test]
async fn passwords_databases_and_rights() {
    let server = MariaDb::start();
    server.sql(&format!(
        "CREATE USER node@'%' IDENTIFIED BY '{SECRET}'; GRANT SELECT, INSERT, UPDATE ON test.* TO node@'%'"
    ));
    let address = server.address();
    let good = format!("mysql://node:{SECRET}@{address}/test");

    // For a user who may not create tables, the error contains the SQL to run.
    let (kind, error) = refused(&good).await;
    assert_eq!(kind, Some(StoreErrorKind::ReadOnly), "{error}");
    assert!(error.contains("CREATE TABLE"), "{error}");
    server.sql(&format!("USE test; {}", snowmint_store::schema(&good).unwrap()));
    let store = open(&good).await;
    let revision = put(&*store, "a", b"1").await.revision;
    assert!(!format!("{store:?} {}", store.describe()).contains(SECRET));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    open(&format!("mysql://node@{address}/test?password_file={}", file.display())).await;

    // A session reads the permissions on a database when it selects it.
    server.sql("REVOKE UPDATE ON test.* FROM node@'%'");
    server.end_sessions("node");
    let (kind, error) = refused(&good).await;
    assert!(
        kind == Some(StoreErrorKind::Other) && error.contains("grant SELECT, INSERT and UPDATE"),
        "{error}"
    );
    // On a new session: a read is retried if its connection was cut.
    let error = store.load(&key("a")).await.unwrap_err();
    assert!(error.kind() == StoreErrorKind::Other && error.to_string().contains("grant"), "{error}");
    let error = store.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().contains("grant"), "{error}");

    let cases = [
        (format!("mysql://node:{SECRET}x@{address}/test"), "check user and password"),
        (format!("mysql://root@{address}/nothing"), "create the database"),
        (format!("mysql://node:{SECRET}@{address}/nothing"), "grant"),
    ];
    for (url, says) in cases {
        let (kind, error) = refused(&url).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        assert!(error.contains(says), "{error}");
    }
}

/// Goal: a login that the client does not support is no outage, and says what to do. Method: a plugin that
/// the server has and the client does not; a server that asks for the password itself, as `caching_sha2_password`
/// does if it is not cached; a user who needs a password, and a URL that has none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsupported_login_says_what_to_do() {
    let server = MariaDb::start();
    server.sql(
        "INSTALL SONAME 'auth_ed25519'; CREATE USER node@'%' IDENTIFIED VIA ed25519 USING PASSWORD('secret'); \
         GRANT ALL ON test.* TO node@'%'",
    );
    let (full, empty) = (login_server(&[1, 4]).await, login_server(&[1, 3]).await);
    for (url, says) in [
        (
            format!("mysql://node:secret@{}/test", server.address()),
            "the plugin client_ed25519, which this client does not",
        ),
        (format!("mysql://node:secret@{full}/test"), "let every server offer TLS"),
        (format!("mysql://node:secret@{full}/test?ssl-mode=disabled"), "need TLS, also over a local socket"),
        (format!("mysql://node@{empty}/test"), "the URL has none"),
    ] {
        let (kind, error) = refused(&url).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        assert!(error.contains(says) && !error.contains("sqlx") && !error.contains("feature"), "{error}");
    }
    // A server that supports the plugin takes the request for its key for the password.
    let (_, error) =
        refused(&format!("mysql://root:wrong@{}/test?ssl-mode=disabled", server.address())).await;
    assert!(error.contains("check user and password") && error.contains("need TLS"), "{error}");
    let (_, error) = refused(&format!("mysql://root:wrong@{}/test", server.address())).await;
    assert!(error.contains("check user and password") && !error.contains("need TLS"), "{error}");
}

/// Starts a server without TLS that answers the login of a user with `caching_sha2_password`, and then sends
/// its key. Returns its address.
async fn login_server(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // Protocol 10, a version, a session, and the capabilities 4.1, secure connection and plugin.
            let mut greeting = b"\x0a9.7.4\0\x01\0\0\0".to_vec();
            greeting.extend(b"12345678\0\x08\x82\x2d\x02\0\x08\0\x15");
            greeting.extend([0; 10]);
            greeting.extend(b"901234567890\0caching_sha2_password\0");
            for (nth, message) in
                [&*greeting, answer, b"\x01-----BEGIN PUBLIC KEY-----"].into_iter().enumerate()
            {
                let [length, ..] = u32::try_from(message.len()).unwrap().to_le_bytes();
                let head = [length, 0, 0, u8::try_from(2 * nth).unwrap()];
                if stream.write_all(&[&head, message].concat()).await.is_err()
                    || stream.read(&mut [0; 1024]).await.is_err()
                {
                    break;
                }
            }
        }
    });
    address
}

/// Goal: replacing a password while a node runs causes no errors. Method: change it on the server and in the
/// file, then end all sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_password_is_read_from_its_file() {
    let server = MariaDb::start();
    server.sql(&format!("CREATE USER node@'%' IDENTIFIED BY '{SECRET}'; GRANT ALL ON test.* TO node@'%'"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let store =
        open(&format!("mysql://node@{}/test?password_file={}", server.address(), file.display())).await;
    put(&*store, "a", b"1").await;
    server.sql("ALTER USER node@'%' IDENTIFIED BY 'another'");
    server.end_sessions("node");
    let error = store.load(&key("a")).await.unwrap_err();
    assert!(error.to_string().contains("check user and password"), "{error}");
    std::fs::write(&file, "another\n").unwrap();
    assert_eq!(store.load(&key("a")).await.unwrap().unwrap().value, b"1");
}

/// Goal: a server that never syncs is refused, whatever loss the user has stated; a tool that looks all the
/// same says why.
#[tokio::test]
async fn a_server_that_never_syncs_is_refused() {
    let server = MariaDb::with(&["--innodb-flush-method=nosync"]);
    for parameter in ["", "?may_lose=300s"] {
        let (kind, error) = refused(&format!("{}{parameter}", url(&server))).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        assert!(error.contains("innodb_flush_method is nosync"), "{error}");
    }
    server.sql(&format!("USE test; {}", snowmint_store::schema(&url(&server)).unwrap()));
    let warnings = snowmint_store::open_to_read(&url(&server)).await.unwrap().warnings().await;
    assert!(matches!(&warnings[..], [one] if one.contains("innodb_flush_method is nosync")), "{warnings:?}");
}

/// Goal: a server that acknowledges commits before they are on its disk is refused, unless the user has
/// stated the loss.
#[tokio::test]
async fn a_server_that_syncs_later_is_refused() {
    let server = MariaDb::start();
    for (value, ends) in [(0, "server"), (2, "machine")] {
        server.sql(&format!("SET GLOBAL innodb_flush_log_at_trx_commit = {value}"));
        for parameter in ["", "?may_lose=1900ms"] {
            let (kind, error) = refused(&format!("{}{parameter}", url(&server))).await;
            assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
            assert!(error.contains(&format!("innodb_flush_log_at_trx_commit is {value}")), "{error}");
            assert!(
                error.contains(&format!("crash of the {ends}")) && error.contains("may_lose=2s"),
                "{error}"
            );
        }
        open(&format!("{}?may_lose=2s", url(&server))).await;
    }
    server.sql("SET GLOBAL innodb_flush_log_at_timeout = 10");
    refused(&format!("{}?may_lose=10s", url(&server))).await;
    open(&format!("{}?may_lose=11s", url(&server))).await;
    if !is_mysql() {
        server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 3");
        open(&url(&server)).await;
    }
}

/// Goal: a server whose commits are durable only with its binary log, but that syncs this log later, is
/// refused too.
#[tokio::test]
async fn a_binary_log_that_is_synced_later_is_refused() {
    let server = MariaDb::with(&["--log-bin=binlog", "--sync-binlog=0"]);
    for value in [0, 100] {
        server.sql(&format!("SET GLOBAL sync_binlog = {value}"));
        for parameter in ["", "?may_lose=1900ms"] {
            let (kind, error) = refused(&format!("{}{parameter}", url(&server))).await;
            assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
            assert!(error.contains(&format!("sync_binlog is {value}")), "{error}");
            assert!(error.contains("SET GLOBAL sync_binlog = 1") && error.contains("may_lose=2s"), "{error}");
        }
        open(&format!("{}?may_lose=2s", url(&server))).await;
    }
    server.sql("SET GLOBAL sync_binlog = 1");
    open(&url(&server)).await;
    let server = MariaDb::with(&["--sync-binlog=0"]);
    open(&url(&server)).await;
}

#[tokio::test]
async fn a_foreign_table_is_left_alone() {
    let server = MariaDb::start();
    let ours =
        "name VARBINARY(200) NOT NULL PRIMARY KEY, revision BIGINT NOT NULL, value MEDIUMBLOB NOT NULL";
    let tables = [
        ("TABLE test.snowmint_records (id INT)".to_owned(), "belongs to another program"),
        ("VIEW test.snowmint_records AS SELECT 1 AS name".to_owned(), "belongs to another program"),
        (format!("TABLE test.snowmint_records ({})", ours.replace("VARBINARY", "VARCHAR")), "name varchar"),
        (format!("TABLE test.snowmint_records ({})", ours.replace("PRIMARY KEY", "")), "primary key"),
        (format!("TABLE test.snowmint_records ({ours}) ENGINE=MyISAM"), "ENGINE = InnoDB"),
    ];
    for (table, says) in tables {
        server.sql(&format!("CREATE {table}"));
        let (kind, error) = refused(&url(&server)).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        assert!(error.contains(says), "{error}");
        let what = table.split_whitespace().next().unwrap();
        server.sql(&format!("DROP {what} test.snowmint_records"));
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_written_is_told() {
    let server = MariaDb::start();
    let store = open(&url(&server)).await;
    let revision = put(&*store, "a", b"1").await.revision;
    // As when a primary is demoted while nodes are connected: neither reads nor writes may continue, even for
    // a user who could write despite `read_only`.
    server.sql("SET GLOBAL read_only = 1");
    for error in [store.load(&key("a")).await.unwrap_err(), store.list("").await.unwrap_err()] {
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    }
    let (kind, error) = refused(&url(&server)).await;
    assert_eq!(kind, Some(StoreErrorKind::ReadOnly), "{error}");
    server.sql("SET GLOBAL read_only = 0");
    let rows = "SELECT name, revision, value FROM test.snowmint_records WHERE name < '~' ORDER BY name";
    store.add(&key("sum"), NonZeroU64::MIN).await.unwrap();
    let before = server.sql(rows);
    for write in 0..4 {
        // On a connection that was made while the server was writable.
        store.load(&key("a")).await.unwrap();
        server.sql("SET GLOBAL read_only = 1");
        let error = match write {
            0 => store.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await.unwrap_err(),
            1 => store.compare_and_set(&key("b"), Expected::Absent, b"2").await.unwrap_err(),
            2 => store.add(&key("sum"), NonZeroU64::MIN).await.unwrap_err(),
            _ => store.add(&key("other"), NonZeroU64::MIN).await.unwrap_err(),
        };
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
        assert_eq!(server.sql(rows), before, "write {write}");
        server.sql("SET GLOBAL read_only = 0");
    }

    server.sql(&format!("CREATE USER node@'%' IDENTIFIED BY '{SECRET}'; GRANT ALL ON test.* TO node@'%'"));
    let node = open(&format!("mysql://node:{SECRET}@{}/test", server.address())).await;
    server.sql("SET GLOBAL read_only = 1");
    let error = node.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    let other = MariaDb::start();
    let several = format!("mysql://root@{},{}/test", server.address(), other.address());
    let store = open(&several).await;
    assert!(store.load(&key("a")).await.unwrap().is_none(), "the writable server is used");
}

/// Goal: replicas never skip a write that depends on whether the server is writable. Method: the log format
/// in which replicas execute statements again, on servers with and without a log.
#[tokio::test]
async fn a_log_of_statements_is_refused() {
    let server = MariaDb::with(&["--log-bin=binlog", "--binlog-format=STATEMENT"]);
    let (kind, error) = refused(&url(&server)).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    assert!(error.contains("set binlog_format to MIXED or ROW"), "{error}");
    let server = MariaDb::with(&["--binlog-format=STATEMENT"]);
    open(&url(&server)).await;
}

/// Goal: a full disk is reported as such, a refused write leaves nothing, and earlier records stay. Method: a
/// data file that may not grow.
#[tokio::test]
async fn a_full_disk_is_told() {
    let server = MariaDb::with(&["--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M"]);
    let store = open(&url(&server)).await;
    let (value, mut written) = (vec![7; 64 * 1024], 0);
    let error = loop {
        let name = key(format!("filler/{written}"));
        match store.compare_and_set(&name, Expected::Absent, &value).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1000, "a file of 12 MiB holds all of this");
    };
    assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
    assert!(error.to_string().contains("free space"), "{error}");
    // A read commits a row too, because this server has no binary log. MySQL keeps the space for that elsewhere.
    if !is_mysql() {
        let error = store.list("filler/").await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
    }
    let kept = format!("SELECT COUNT(*) FROM test.snowmint_records WHERE LENGTH(value) = {}", value.len());
    assert_eq!(server.sql(&kept), written.to_string());
}

/// Goal: a write that waits for another gives up in time, and has written nothing. Method: lock the row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_is_not_waited_for_for_ever() {
    let server = MariaDb::start();
    let store = open(&format!("{}?timeout_ms=1500", url(&server))).await;
    let revision = put(&*store, "a", b"1").await.revision;
    put(&*store, "sum", b"1").await;
    let mut locker = MySqlConnection::connect(&url(&server)).await.unwrap();
    let mut lock = locker.begin().await.unwrap();
    let rows = sqlx::query("SELECT 1 FROM snowmint_records WHERE name < '~' FOR UPDATE")
        .fetch_all(&mut *lock)
        .await
        .unwrap();
    assert_eq!(rows.len(), 2);
    let error = store.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    let error = store.add(&key("sum"), NonZeroU64::MIN).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    lock.rollback().await.unwrap();
    assert_eq!(store.load(&key("a")).await.unwrap().unwrap().revision, revision);
    assert_eq!(store.add(&key("sum"), NonZeroU64::MIN).await.unwrap(), 1);
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_is_checked() {
    use snowmint_test_servers::Certificates;
    let (certificates, others) = (Certificates::make(), Certificates::make());
    let server = MariaDb::with_tls(&certificates, &[]);
    server.sql(&format!(
        "CREATE USER node@'%' IDENTIFIED BY '{SECRET}' REQUIRE SSL; GRANT ALL ON test.* TO node@'%'"
    ));
    let port = server.port();
    let url = |host: &str, parameters: &str| {
        format!("mysql://node:{SECRET}@{host}:{port}/test?timeout_ms=2000&{parameters}")
    };
    let root = |it: &Certificates| format!("ssl-ca={}", it.authority().display());
    let store = open(&url("localhost", &root(&certificates))).await;
    put(&*store, "a", b"1").await;
    open(&url("127.0.0.1", "ssl-mode=required")).await;
    for parameters in [root(&others), "ssl-mode=verify_identity".to_owned()] {
        let (kind, error) = refused(&url("localhost", &parameters)).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        assert!(error.contains("name its file with ssl-ca="), "{error}");
    }
    let (kind, error) = refused(&url("localhost", "ssl-mode=disabled")).await;
    assert!(kind == Some(StoreErrorKind::Other) && error.contains("may require TLS"), "{error}");
}
