//! `TinyID`'s `tiny_id_info`, also while `TinyID` draws from it.

use std::sync::Arc;

use snowmint_store::{Counter, StoreErrorKind};
use snowmint_test_servers::MariaDb;
use sqlx::{Connection, MySqlConnection};
use tokio::task::JoinSet;

use super::{
    assert_distinct, assert_drawn_from_only_on_request, draw, joined, numbers, open, refused, some, surveyed,
};

/// The table as `TinyID`'s `db.sql` creates it.
const TABLE: &str = "CREATE TABLE test.tiny_id_info (
    id bigint(20) unsigned NOT NULL AUTO_INCREMENT,
    biz_type varchar(63) NOT NULL DEFAULT '',
    begin_id bigint(20) NOT NULL DEFAULT '0',
    max_id bigint(20) NOT NULL DEFAULT '0',
    step int(11) DEFAULT '0',
    delta int(11) NOT NULL DEFAULT '1',
    remainder int(11) NOT NULL DEFAULT '0',
    create_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00',
    update_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00',
    version bigint(20) NOT NULL DEFAULT '0',
    PRIMARY KEY (id), UNIQUE KEY uniq_biz_type (biz_type)
) ENGINE=InnoDB";

fn server() -> MariaDb {
    server_with(&[])
}

fn server_with(settings: &[&str]) -> MariaDb {
    let server = MariaDb::with(settings);
    server.sql(TABLE);
    server.sql(
        "INSERT INTO test.tiny_id_info (biz_type, max_id, step, delta, remainder, version) \
         VALUES ('odd', 100, 10, 2, 1, 1), ('plain', 0, 100000, 1, 0, 1)",
    );
    server
}

fn url(server: &MariaDb, biz_type: &str) -> String {
    format!("tinyid:mysql://root@{}/test?biz_type={biz_type}", server.address())
}

/// Runs `TinyID`'s own statements and its rule: the numbers above the old `max_id` that fit, up to the new
/// one.
async fn draw_as_tinyid(address: String, draws: u64) -> Vec<u64> {
    let mut connection = MySqlConnection::connect(&format!("mysql://root@{address}/test")).await.unwrap();
    let (mut all, mut done) = (Vec::new(), 0);
    while done < draws {
        let select = "SELECT CAST(id AS SIGNED), max_id, step, delta, remainder, version FROM tiny_id_info \
            WHERE biz_type = 'odd'";
        let (id, max_id, step, delta, remainder, version): (i64, i64, i32, i32, i32, i64) =
            sqlx::query_as(select).fetch_one(&mut connection).await.unwrap();
        let update = "UPDATE tiny_id_info SET max_id = ?, update_time = now(), version = version + 1 \
            WHERE id = ? AND max_id = ? AND version = ? AND biz_type = 'odd'";
        let new = max_id + i64::from(step);
        let query = sqlx::query(update).bind(new).bind(id).bind(max_id).bind(version);
        if query.execute(&mut connection).await.unwrap().rows_affected() == 1 {
            let fits = |it: &i64| it % i64::from(delta) == i64::from(remainder);
            all.extend((max_id + 1..=new).filter(fits).map(i64::cast_unsigned));
            done += 1;
        }
    }
    all
}

#[tokio::test]
async fn numbers_are_those_that_tinyid_would_give() {
    let server = server();
    let odd = open(&url(&server, "odd")).await;
    assert_eq!(odd.suggested_count(), Some(some(10)));
    assert_eq!(odd.describe(), format!("tinyid:mysql://{}/test?biz_type=odd", server.address()));
    let segment = odd.reserve(some(3)).await.unwrap();
    assert_eq!(numbers(segment).collect::<Vec<_>>(), [101, 103, 105]);
    let row = "SELECT max_id, version FROM test.tiny_id_info WHERE biz_type = 'odd'";
    assert_eq!(server.sql(row), "106\t2");
    let plain = open(&url(&server, "plain")).await;
    assert_eq!(numbers(plain.reserve(some(2)).await.unwrap()).collect::<Vec<_>>(), [1, 2]);
    let all = format!("tinyid:mysql://root@{}/test", server.address());
    assert_eq!(surveyed(&all).await, ["odd 106 10 1/2", "plain 2 100000 0/1"]);
    assert_eq!(surveyed(&url(&server, "odd")).await, ["odd 106 10 1/2"]);
}

/// Goal: `TinyID` and Snowmint share a row without sharing a number. Method: 8 tasks draw, and 2 run
/// `TinyID`'s statements.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tinyid_may_go_on_beside() {
    let server = server();
    let mut counters: Vec<Arc<dyn Counter>> = Vec::new();
    for _ in 0..4 {
        let counter = open(&url(&server, "odd")).await;
        counters.extend([Arc::clone(&counter), counter]);
    }
    let mut tinyid = JoinSet::new();
    for _ in 0..2 {
        tinyid.spawn(draw_as_tinyid(server.address().to_string(), 60));
    }
    let ours = draw(&counters, 60).await;
    let theirs = joined(tinyid).await;
    assert_eq!(theirs.len(), 2 * 60 * 5);
    let all = [ours, theirs].concat();
    assert!(all.iter().all(|it| it % 2 == 1), "all are odd");
    assert_distinct(&all);
    let max_id = server.sql("SELECT max_id FROM test.tiny_id_info WHERE biz_type = 'odd'");
    assert_eq!(all.len(), (max_id.parse::<usize>().unwrap() - 100) / 2);
}

#[tokio::test]
async fn what_is_no_counter_is_told_and_left_alone() {
    let server = server();
    let (kind, error) = refused(&url(&server, "nobody")).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    assert!(error.contains("`nobody`") && error.contains("INSERT INTO tiny_id_info"), "{error}");
    for (set, says) in [
        ("delta = 0", "delta 0"),
        ("delta = 2, remainder = 2", "remainder 2"),
        ("delta = 2, remainder = -1", "remainder -1"),
        ("delta = 1, remainder = 0, max_id = -1", "max_id -1"),
    ] {
        server.sql(&format!("UPDATE test.tiny_id_info SET {set} WHERE biz_type = 'odd'"));
        let (kind, error) = refused(&url(&server, "odd")).await;
        assert_eq!(kind, Some(StoreErrorKind::Corrupt), "{error}");
        assert!(error.contains(says), "{error}");
    }
    server.sql("UPDATE test.tiny_id_info SET max_id = 9223372036854775800 WHERE biz_type = 'odd'");
    let counter = open(&url(&server, "odd")).await;
    for count in [8, u64::MAX] {
        let error = counter.reserve(some(count)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
    }
    assert_eq!(counter.reserve(some(7)).await.unwrap().last(), snowmint_store::MAX_NUMBER);

    server.sql("DROP TABLE test.tiny_id_info");
    let (_, error) = refused(&url(&server, "odd")).await;
    assert!(error.contains("no table tiny_id_info"), "{error}");
}

/// Goal: a call that always loses gives up in bounded time, and has reserved nothing. Method: a `max_id` that
/// is one number when it is read and another when it is compared.
#[tokio::test]
async fn a_row_that_is_always_another_is_given_up() {
    let server = server();
    server.sql("ALTER TABLE test.tiny_id_info MODIFY max_id DECIMAL(20, 1) NOT NULL");
    server.sql("UPDATE test.tiny_id_info SET max_id = 0.4 WHERE biz_type = 'plain'");
    let counter = open(&url(&server, "plain")).await;
    let error = counter.reserve(some(1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("tries for 5 s"), "{error}");
    assert_eq!(
        server.sql("SELECT max_id, version FROM test.tiny_id_info WHERE biz_type = 'plain'"),
        "0.4\t1"
    );
}

/// Goal: a crash takes back no returned number, unless the user accepts that. Method: settings that may lose
/// commits.
#[tokio::test]
async fn a_server_that_syncs_later_is_drawn_from_only_on_request() {
    let server = server_with(&["--log-bin=binlog"]);
    assert_drawn_from_only_on_request(&server, &url(&server, "odd")).await;
}
