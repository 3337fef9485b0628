//! MySQL group replication: which member of a group is used.

use std::net::SocketAddrV4;
use std::num::NonZeroU64;

use snowmint_store::StoreErrorKind;
use snowmint_test_servers::{MariaDb, is_mysql, port};

use crate::support::{SECRET, key, open, refused};

const NAME: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";

/// Starts a server that could be a member, and is none yet. It has a user `node` with the rights of a node.
fn start(id: usize, ports: &[SocketAddrV4]) -> MariaDb {
    assert!(is_mysql(), "this test needs MySQL: see ./check newest");
    let seeds: Vec<_> = ports.iter().map(ToString::to_string).collect();
    let server = MariaDb::with(&[
        &format!("--server-id={id}"),
        "--log-bin=binlog",
        "--gtid-mode=ON",
        "--report-host=127.0.0.1",
        "--plugin-load-add=group_replication.so",
        &format!("--group-replication-group-name={NAME}"),
        "--group-replication-start-on-boot=OFF",
        &format!("--group-replication-local-address={}", ports[id - 1]),
        &format!("--group-replication-group-seeds={}", seeds.join(",")),
        // A member that is gone stays in the group, and counts against its majority.
        "--group-replication-member-expel-timeout=3600",
    ]);
    server.sql(&format!(
        "SET sql_log_bin = 0; CREATE USER node@'%' IDENTIFIED BY '{SECRET}'; \
         GRANT SELECT, INSERT, UPDATE, CREATE ON test.* TO node@'%'; RESET BINARY LOGS AND GTIDS"
    ));
    server
}

fn url(server: &MariaDb) -> String {
    format!("mysql://node:{SECRET}@{}/test?timeout_ms=3000", server.address())
}

/// Goal: an old primary that restarts outside of its group is not used, and a user without the right to see
/// the group learns which one to grant.
#[tokio::test]
#[ignore = "needs MySQL"]
async fn a_server_outside_of_its_group_is_refused() {
    let server = start(1, &[port::free()]);
    let (kind, error) = refused(&url(&server)).await;
    assert!(
        kind == Some(StoreErrorKind::Other)
            && error.contains("GRANT SELECT ON performance_schema.replication_group_members"),
        "{error}"
    );
    server.sql("GRANT SELECT ON performance_schema.replication_group_members TO node@'%'");
    let (kind, error) = refused(&url(&server)).await;
    assert!(
        kind == Some(StoreErrorKind::Unavailable) && error.contains("is not the primary of that group"),
        "{error}"
    );
    server.sql("SET GLOBAL group_replication_bootstrap_group = ON; START GROUP_REPLICATION");
    open(&url(&server)).await.add(&key("sum"), NonZeroU64::MIN).await.unwrap();
    server.sql("STOP GROUP_REPLICATION; SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF");
    let (_, error) = refused(&url(&server)).await;
    assert!(error.contains("is not the primary of that group (member_state 'OFFLINE'"), "{error}");
}

/// Goal: a primary that has lost the majority of its group is not used, although it stays writable by its
/// settings: the others may have elected another one. Method: kill the two others of three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MySQL"]
async fn a_primary_without_a_majority_is_refused() {
    let ports = [(); 3].map(|()| port::free());
    let [first, second, third] = [1, 2, 3].map(|id| start(id, &ports));
    first.sql(
        "SET GLOBAL group_replication_bootstrap_group = ON; START GROUP_REPLICATION; \
         SET GLOBAL group_replication_bootstrap_group = OFF; \
         GRANT SELECT ON performance_schema.replication_group_members TO node@'%'",
    );
    let online = |count| {
        format!(
            "SELECT COUNT(*) = {count} FROM performance_schema.replication_group_members WHERE member_state = 'ONLINE'"
        )
    };
    for (joins, count) in [(&second, 2), (&third, 3)] {
        joins.sql(
            "CHANGE REPLICATION SOURCE TO source_user = 'root' FOR CHANNEL 'group_replication_recovery'; \
             START GROUP_REPLICATION",
        );
        first.wait_until("another member", &online(count));
    }
    let store = open(&url(&first)).await;
    store.add(&key("sum"), NonZeroU64::MIN).await.unwrap();
    third.kill9();
    first.wait_until("one that is gone", &online(2));
    open(&url(&first)).await.add(&key("sum"), NonZeroU64::MIN).await.unwrap();
    second.kill9();
    first.wait_until("being alone", &online(1));
    assert_eq!(first.sql("SELECT @@global.read_only"), "0", "or this test proves nothing");
    let (kind, error) = refused(&url(&first)).await;
    assert!(kind == Some(StoreErrorKind::Unavailable) && error.contains("reaches 1 of 3 members"), "{error}");
}
