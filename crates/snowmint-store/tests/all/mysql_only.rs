//! What only MySQL has, and MariaDB does not: `./check newest` runs these tests.

mod group;

use std::num::NonZeroU64;

use snowmint_store::StoreErrorKind;
use snowmint_test_servers::{Certificates, MariaDb, is_mysql};

use crate::support::{Log, SECRET, key, open, put, refused};

fn start(settings: &[&str]) -> MariaDb {
    assert!(is_mysql(), "this test needs MySQL: see ./check newest");
    let server = MariaDb::with_tls(&Certificates::make(), settings);
    server.sql(&format!("CREATE USER node@'%' IDENTIFIED BY '{SECRET}'; GRANT ALL ON test.* TO node@'%'"));
    server
}

/// Goal: a login with `caching_sha2_password` that needs TLS says so, and one that will need it after a restart
/// is warned of. Method: over TCP and over a local socket; with the password in the cache of the server, and
/// without.
#[tokio::test]
#[ignore = "needs MySQL"]
async fn a_password_that_is_not_cached_needs_tls() {
    let server = start(&[]);
    let socket = format!("mysql://node:{SECRET}@localhost/test?socket={}/socket", server.folder().display());
    let address = format!("mysql://node:{SECRET}@{}/test?timeout_ms=3000", server.address());
    for (url, hosts) in [(socket, "localhost:3306"), (address, &*server.address().to_string())] {
        let log = Log::listen(&format!("mysql://{hosts}/test"));
        let warnings = || log.lines("will fail after a restart of the server or a failover").len();
        let without = format!("{url}&ssl-mode=disabled");
        let (kind, error) = refused(&without).await;
        assert!(
            kind == Some(StoreErrorKind::Other) && error.contains("need TLS, also over a local socket"),
            "{error}"
        );
        put(&*open(&url).await, "a", b"1").await;
        assert_eq!(warnings(), 0, "with TLS");
        // The server has the password now.
        put(&*open(&without).await, "a", b"2").await;
        assert_eq!(warnings(), 1, "without TLS");
        server.sql("FLUSH PRIVILEGES");
        refused(&without).await;
    }
}

/// Goal: a login that waiting does not mend ends with what to do.
#[tokio::test]
#[ignore = "needs MySQL"]
async fn an_expired_password_and_a_locked_user_are_told() {
    let server = start(&[]);
    let url = format!("mysql://node:{SECRET}@{}/test?timeout_ms=3000", server.address());
    for (change, says) in [
        ("ALTER USER node@'%' PASSWORD EXPIRE", "the password has expired"),
        ("ALTER USER node@'%' IDENTIFIED BY 'hunter2-s3cret' ACCOUNT LOCK", "ACCOUNT UNLOCK"),
    ] {
        server.sql(change);
        let (kind, error) = refused(&url).await;
        assert!(kind == Some(StoreErrorKind::Other) && error.contains(says), "{error}");
    }
    server.sql("ALTER USER node@'%' ACCOUNT UNLOCK; SET GLOBAL require_secure_transport = ON");
    let (kind, error) = refused(&format!("{url}&ssl-mode=disabled")).await;
    assert!(kind == Some(StoreErrorKind::Other) && error.contains("remove ssl-mode=disabled"), "{error}");
    server.sql("ALTER USER node@'%' FAILED_LOGIN_ATTEMPTS 1 PASSWORD_LOCK_TIME UNBOUNDED");
    refused(&url.replace(SECRET, "wrong")).await;
    let (kind, error) = refused(&url).await;
    assert!(kind == Some(StoreErrorKind::Other) && error.contains("ACCOUNT UNLOCK"), "{error}");
}

/// Goal: transactions with a tag neither lock a node out of its server nor hide lost ones. Method: a tagged
/// transaction before and between connections, then a server that has lost transactions beside the tag.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MySQL"]
async fn tagged_transactions_count_by_themselves() {
    let server = start(&["--log-bin=binlog", "--server-id=7", "--gtid-mode=ON"]);
    let tagged = |name: &str| {
        server.sql(&format!("SET GTID_NEXT = 'AUTOMATIC:backup'; CREATE TABLE test.{name} (id INT)"))
    };
    let url = format!("mysql://root@{}/test?timeout_ms=3000", server.address());
    let store = open(&url).await;
    let add = async || store.add(&key("sum"), NonZeroU64::MIN).await;
    for _ in 0..20 {
        add().await.unwrap();
    }
    for name in ["one", "two"] {
        tagged(name);
        server.end_sessions("root");
        while let Err(error) = add().await {
            assert!(error.is_temporary() || error.kind() == StoreErrorKind::OutcomeUnknown, "{error}");
        }
    }
    assert!(server.sql("SELECT @@gtid_executed").contains(":backup:1-2"));
    // The tag stays, and half of the other transactions is lost.
    let uuid = server.sql("SELECT @@server_uuid");
    server.sql(&format!("RESET BINARY LOGS AND GTIDS; SET GLOBAL gtid_purged = '{uuid}:1-10:backup:1-2'"));
    server.restart();
    let error = loop {
        match add().await {
            Err(error) if error.kind() == StoreErrorKind::Other => break error,
            Err(error) => {
                assert!(error.is_temporary() || error.kind() == StoreErrorKind::OutcomeUnknown, "{error}");
            }
            Ok(_) => panic!("the server lacks transactions and is used"),
        }
    };
    assert!(error.to_string().contains(&format!("{uuid}, and this node has seen")), "{error}");
}
