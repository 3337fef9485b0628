//! Leaf's `leaf_alloc`, also while Leaf draws from it.

use std::sync::Arc;

use snowmint_store::{Counter, StoreErrorKind, open_counter, survey};
use snowmint_test_servers::MariaDb;
use sqlx::{Connection, MySqlConnection};
use tokio::task::JoinSet;

use super::{
    SECRET, assert_distinct, assert_drawn_from_only_on_request, draw, joined, open, refused, some, surveyed,
};

/// The table as Leaf's README creates it.
const TABLE: &str = "CREATE TABLE test.leaf_alloc (
    biz_tag varchar(128) NOT NULL DEFAULT '',
    max_id bigint(20) NOT NULL DEFAULT '1',
    step int(11) NOT NULL,
    description varchar(256) DEFAULT NULL,
    update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
    PRIMARY KEY (biz_tag)
) ENGINE=InnoDB";

fn server() -> MariaDb {
    server_with(&[])
}

fn server_with(settings: &[&str]) -> MariaDb {
    let server = MariaDb::with(settings);
    server.sql(TABLE);
    server.sql("INSERT INTO test.leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 2000), ('user', 500001, 100)");
    server
}

fn url(server: &MariaDb, tag: &str) -> String {
    format!("leaf:mysql://root@{}/test?tag={tag}", server.address())
}

/// Leaf's own two statements, in one transaction, with its own step.
async fn draw_as_leaf(address: String, draws: u64) -> Vec<u64> {
    let mut connection = MySqlConnection::connect(&format!("mysql://root@{address}/test")).await.unwrap();
    let mut all = Vec::new();
    for _ in 0..draws {
        let mut transaction = connection.begin().await.unwrap();
        let update = "UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'order'";
        sqlx::query(update).execute(&mut *transaction).await.unwrap();
        let select = "SELECT max_id, step FROM leaf_alloc WHERE biz_tag = 'order'";
        let (max_id, step): (i64, i32) = sqlx::query_as(select).fetch_one(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
        all.extend((max_id - i64::from(step)..max_id).map(i64::cast_unsigned));
    }
    all
}

#[tokio::test]
async fn numbers_are_those_that_leaf_would_give() {
    let server = server();
    let counter = open(&url(&server, "order")).await;
    assert_eq!(counter.suggested_count(), Some(some(2000)));
    assert_eq!(counter.describe(), format!("leaf:mysql://{}/test?tag=order", server.address()));
    let next = counter.peek().await.unwrap().unwrap().first();
    let segments = [counter.reserve(some(2000)).await.unwrap(), counter.reserve(some(1)).await.unwrap()];
    assert_eq!(next, segments[0].first());
    assert_eq!(
        segments.map(|it| (it.first(), it.last(), it.step())),
        [(1, 2000, some(1)), (2001, 2001, some(1))]
    );
    assert_eq!(server.sql("SELECT max_id FROM test.leaf_alloc ORDER BY biz_tag"), "2002\n500001");
    assert!(!counter.give_back(segments[1]).await.unwrap(), "Leaf may have drawn since");

    let address = server.address();
    let all = format!("leaf:mariadb://root@{address}/test");
    assert_eq!(surveyed(&all).await, ["order 2001 2000 0/1", "user 500000 100 0/1"]);
    assert_eq!(surveyed(&url(&server, "user")).await, ["user 500000 100 0/1"]);
    assert!(surveyed(&url(&server, "none")).await.is_empty());
}

/// Goal: Leaf and Snowmint share a row without sharing a number. Method: 8 tasks draw, and 2 run Leaf's
/// transactions.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leaf_may_go_on_beside() {
    let server = server();
    let mut counters: Vec<Arc<dyn Counter>> = Vec::new();
    for _ in 0..4 {
        let counter = open(&url(&server, "order")).await;
        counters.extend([Arc::clone(&counter), counter]);
    }
    server.sql("UPDATE test.leaf_alloc SET step = 5 WHERE biz_tag = 'order'");
    let mut leaf = JoinSet::new();
    for _ in 0..2 {
        leaf.spawn(draw_as_leaf(server.address().to_string(), 150));
    }
    let ours = draw(&counters, 250).await;
    let theirs = joined(leaf).await;
    assert_eq!(theirs.len(), 2 * 150 * 5);
    let all = [ours, theirs].concat();
    assert_distinct(&all);
    // No number is skipped: every number below the new max_id was returned.
    let max_id = server.sql("SELECT max_id FROM test.leaf_alloc WHERE biz_tag = 'order'");
    assert_eq!(all.len() + 1, max_id.parse::<usize>().unwrap());
}

#[tokio::test]
async fn what_is_no_counter_is_told_and_left_alone() {
    let server = server();
    let (kind, error) = refused(&url(&server, "nobody")).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    assert!(error.contains("`nobody`") && error.contains("INSERT INTO leaf_alloc"), "{error}");

    let counter = open(&url(&server, "user")).await;
    server.sql("UPDATE test.leaf_alloc SET max_id = -5 WHERE biz_tag = 'user'");
    let error = counter.reserve(some(3)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("-5"), "{error}");
    let error = survey(&url(&server, "user")).await.unwrap_err();
    assert!(error.to_string().contains("invalid max_id -5 in leaf_alloc at biz_tag `user`"), "{error}");
    server.sql("UPDATE test.leaf_alloc SET max_id = 9223372036854775805 WHERE biz_tag = 'user'");
    for count in [3, 1 << 63, u64::MAX] {
        let error = counter.reserve(some(count)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
    }
    assert_eq!(counter.reserve(some(2)).await.unwrap().last(), 9_223_372_036_854_775_806);
    assert_eq!(
        server.sql("SELECT max_id FROM test.leaf_alloc WHERE biz_tag = 'user'"),
        "9223372036854775807"
    );

    // A column too narrow for the sum, on a server that truncates numbers.
    server.sql("UPDATE test.leaf_alloc SET max_id = 2147483640 WHERE biz_tag = 'user'");
    server.sql("SET GLOBAL sql_mode = ''; ALTER TABLE test.leaf_alloc MODIFY max_id int NOT NULL DEFAULT 1");
    let narrow = open(&url(&server, "user")).await;
    let error = narrow.reserve(some(100)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
    assert!(error.to_string().contains("too narrow"), "{error}");
    assert_eq!(narrow.reserve(some(7)).await.unwrap().last(), 2_147_483_646);

    server.sql("DELETE FROM test.leaf_alloc WHERE biz_tag = 'user'");
    let error = counter.reserve(some(2)).await.unwrap_err();
    assert!(error.to_string().contains("no row with the tag `user`"), "{error}");
}

#[tokio::test]
async fn tables_databases_rights_and_passwords() {
    let server = MariaDb::start();
    let (kind, error) = refused(&url(&server, "order")).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    assert!(error.contains("no table leaf_alloc"), "{error}");
    let (kind, error) = refused(&url(&server, "order").replace("/test", "/nothing")).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");

    server.sql("CREATE TABLE test.leaf_alloc (biz_tag varchar(128), highest bigint)");
    let (kind, error) = refused(&url(&server, "order")).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    assert!(error.contains("other columns"), "{error}");
    server.sql("DROP TABLE test.leaf_alloc");

    server.sql(TABLE);
    server.sql("INSERT INTO test.leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 2000)");
    server.sql(&format!("CREATE USER node@'%' IDENTIFIED BY '{SECRET}'; GRANT SELECT ON test.* TO node@'%'"));
    let login = |password: &str| url(&server, "order").replace("root@", &format!("node:{password}@"));
    let (kind, error) = refused(&login(&format!("{SECRET}x"))).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    let counter = open(&login(SECRET)).await;
    assert!(!format!("{counter:?} {}", counter.describe()).contains(SECRET));
    let error = counter.reserve(some(1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().contains("grant the user SELECT and UPDATE on leaf_alloc"), "{error}");
    assert_eq!(surveyed(&login(SECRET)).await.len(), 1, "a survey only reads");

    server.kill9();
    let error = counter.reserve(some(1)).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    assert!(open_counter(&login(SECRET)).await.is_err());
    server.restart();
}

/// Goal: a crash takes back no returned number, unless the user accepts that. Method: settings that may lose
/// commits.
#[tokio::test]
async fn a_server_that_syncs_later_is_drawn_from_only_on_request() {
    let server = server_with(&["--log-bin=binlog"]);
    assert_drawn_from_only_on_request(&server, &url(&server, "order")).await;
}
