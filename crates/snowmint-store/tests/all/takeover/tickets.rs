//! Flickr's tickets, on one server and on two.

use std::sync::Arc;

use snowmint_store::{Counter, StoreErrorKind, open_counter, survey};
use snowmint_test_servers::MariaDb;
use sqlx::{Connection, MySqlConnection};
use tokio::task::JoinSet;

use super::{
    assert_distinct, assert_drawn_from_only_on_request, draw, joined, open, refused, some, surveyed,
};

/// The table as on Flickr's page, except for the engine.
const TABLE: &str = "CREATE TABLE test.Tickets64 (
    id bigint(20) unsigned NOT NULL auto_increment,
    stub char(1) NOT NULL default '',
    PRIMARY KEY (id), UNIQUE KEY stub (stub)
) ENGINE=InnoDB";

fn url(server: &MariaDb) -> String {
    format!("tickets:mysql://root@{}/test", server.address())
}

/// Runs Flickr's own two statements. `InnoDB` may end the first one in a deadlock with others who draw, and
/// then has undone it.
async fn draw_as_flickr(address: String, draws: u64) -> Vec<u64> {
    let mut connection = MySqlConnection::connect(&format!("mysql://root@{address}/test")).await.unwrap();
    let mut all = Vec::new();
    for _ in 0..draws {
        let replace = "REPLACE INTO Tickets64 (stub) VALUES ('a')";
        while let Err(error) = sqlx::query(replace).execute(&mut connection).await {
            assert!(error.to_string().contains("Deadlock found"), "{error}");
        }
        all.push(sqlx::query_scalar("SELECT LAST_INSERT_ID()").fetch_one(&mut connection).await.unwrap());
    }
    all
}

/// Goal: two servers, one odd and one even, and programs that draw from them in the old way, share no number.
/// Method: all at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_servers_share_no_ticket() {
    let settings = |offset| format!("--auto-increment-offset={offset}");
    let servers = [1, 2].map(|offset| MariaDb::with(&["--auto-increment-increment=2", &settings(offset)]));
    let (mut counters, mut flickr): (Vec<Arc<dyn Counter>>, _) = (Vec::new(), JoinSet::new());
    for server in &servers {
        server.sql(TABLE);
        assert_eq!(surveyed(&url(server)).await[0].split(' ').nth(1), Some("0"));
        let counter = open(&url(server)).await;
        counters.extend([Arc::clone(&counter), counter]);
        flickr.spawn(draw_as_flickr(server.address().to_string(), 200));
    }
    let ours = draw(&counters, 200).await;
    let theirs = joined(flickr).await;
    assert_eq!((ours.len(), theirs.len()), (4 * 200, 2 * 200));
    assert_distinct(&[ours, theirs].concat());
    for (nth, server) in servers.iter().enumerate() {
        let counter = open(&url(server)).await;
        let segment = counter.reserve(some(100)).await.unwrap();
        assert_eq!((segment.count(), segment.step()), (some(1), some(2)));
        let ticket = segment.first();
        assert_eq!(ticket % 2, 1 - nth as u64);
        assert_eq!(surveyed(&url(server)).await, [format!("Tickets64 {ticket} 1 {}/2", 1 - nth)]);
        assert_eq!(server.sql("SELECT COUNT(*) FROM test.Tickets64"), "1");
    }
}

/// Goal: a raised counter never goes down, even if the server continues from its greatest row after a
/// restart. Method: a row above the raise, and rows of other stubs.
#[tokio::test]
async fn a_row_is_never_lowered() {
    let server = MariaDb::start();
    server.sql(&TABLE.replace("char(1)", "varchar(20)"));
    server.sql("INSERT INTO test.Tickets64 VALUES (500, 'a'), (700, 'b')");
    let counter = open(&url(&server)).await;
    let rows = || server.sql("SELECT GROUP_CONCAT(id, stub ORDER BY id) FROM test.Tickets64");
    // Each of these changes no row, and so draws a ticket, whose commit shows that the row is on the disk.
    for (number, then) in [(100, "700b,701a"), (500, "700b,702a"), (700, "700b,703a")] {
        assert!(counter.raise_above(number).await.unwrap());
        assert_eq!(rows(), then, "{number}");
    }
    assert_eq!(counter.reserve(some(1)).await.unwrap().first(), 704);
    assert!(counter.raise_above(2000).await.unwrap());
    assert_eq!(rows(), "700b,2000a");
    assert_eq!(counter.reserve(some(1)).await.unwrap().first(), 2001);
    let other = open(&format!("{}?stub=c", url(&server))).await;
    assert!(other.raise_above(3000).await.unwrap());
    assert_eq!((other.reserve(some(1)).await.unwrap().first(), &*rows()), (3002, "700b,2001a,3002c"));
}

/// Goal: a deadlock with others who draw is not a failure, since the server undid the statement. Method: a
/// transaction that is heavier than a ticket, so that the server ends the ticket, locks the row first and the
/// stub after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_that_met_a_deadlock_is_drawn_again() {
    let server = MariaDb::start();
    server.sql(TABLE);
    server.sql("CREATE TABLE test.heavy (n int) ENGINE=InnoDB");
    let counter = open(&url(&server)).await;
    assert_eq!(counter.reserve(some(1)).await.unwrap().first(), 1);
    let mut other =
        MySqlConnection::connect(&format!("mysql://root@{}/test", server.address())).await.unwrap();
    sqlx::raw_sql("BEGIN; INSERT INTO heavy SELECT seq FROM seq_1_to_1000; SELECT * FROM Tickets64 WHERE id = 1 FOR UPDATE")
        .fetch_all(&mut other)
        .await
        .unwrap();
    let drawing = tokio::spawn(async move { counter.reserve(some(1)).await });
    server.wait_until(
        "the ticket waits for the row",
        "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    );
    sqlx::raw_sql("SELECT * FROM Tickets64 FORCE INDEX (stub) WHERE stub = 'a' FOR UPDATE; COMMIT")
        .fetch_all(&mut other)
        .await
        .unwrap();
    let deadlocks = server.sql("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'");
    assert_eq!(deadlocks, "Innodb_deadlocks\t1");
    assert!(drawing.await.unwrap().unwrap().first() > 1);
}

/// Goal: the survey states which numbers a server gives, also with an offset above the increment.
#[tokio::test]
async fn an_offset_above_the_increment_counts() {
    for (increment, offset) in [(5, 10), (2, 4), (5, 7)] {
        let settings = [("increment", increment), ("offset", offset)];
        let settings = settings.map(|(name, value)| format!("--auto-increment-{name}={value}"));
        let server = MariaDb::with(&settings.each_ref().map(|it| &**it));
        server.sql(TABLE);
        let url = url(&server);
        let counter = open(&url).await;
        let mut given = 0;
        for _ in 0..6 {
            given = counter.reserve(some(1)).await.unwrap().first();
        }
        let remainder = given % increment;
        assert_eq!(surveyed(&url).await, [format!("Tickets64 {given} 1 {remainder}/{increment}")]);
    }
}

/// Goal: the survey never reports less than what was returned. Method: an emptied table, on servers with each
/// offset.
#[tokio::test]
async fn an_emptied_table_is_where_the_server_goes_on() {
    for (offset, highest) in [(1, "9"), (2, "10")] {
        let offset = format!("--auto-increment-offset={offset}");
        let server = MariaDb::with(&["--auto-increment-increment=2", &offset]);
        server.sql(&format!("{TABLE} AUTO_INCREMENT=11"));
        let found = surveyed(&url(&server)).await.remove(0);
        assert_eq!(found.split(' ').nth(1), Some(highest), "{found}");
        let counter = open(&url(&server)).await;
        let given = counter.reserve(some(1)).await.unwrap().first();
        assert!(given > highest.parse().unwrap());
        server.sql("DELETE FROM test.Tickets64");
        let found = surveyed(&url(&server)).await.remove(0);
        assert_eq!(found.split(' ').nth(1), Some(&*given.to_string()), "{found}");
    }
}

#[tokio::test]
async fn tables_and_stubs_may_have_other_names() {
    let server = MariaDb::start();
    server.sql(&TABLE.replace("Tickets64", "Tickets32").replace("char(1)", "varchar(20)"));
    let url = format!("{}?table=Tickets32&stub=photos", url(&server));
    let counter = open(&url).await;
    assert_eq!(
        counter.describe(),
        format!("tickets:mysql://{}/test?table=Tickets32&stub=photos", server.address())
    );
    assert_eq!(counter.suggested_count(), Some(some(1)));
    assert_eq!(counter.reserve(some(9)).await.unwrap().last(), 1);
    assert_eq!(server.sql("SELECT id, stub FROM test.Tickets32"), "1\tphotos");
    for bad in ["table=a%60b", "stub=a'b", "table=", "stub=%5C"] {
        let (kind, error) = refused(&format!("tickets:mysql://root@{}/test?{bad}", server.address())).await;
        assert_eq!(kind, None, "{error}");
        assert!(error.contains("letters, digits"), "{error}");
    }
}

#[tokio::test]
async fn what_gives_no_tickets_is_told() {
    let server = MariaDb::start();
    let (kind, error) = refused(&url(&server)).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    assert!(error.contains("no table Tickets64") && error.contains("CREATE TABLE Tickets64"), "{error}");
    server.sql("CREATE TABLE test.Tickets64 (id bigint PRIMARY KEY, stub char(1) UNIQUE)");
    let (kind, error) = refused(&url(&server)).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    assert!(error.contains("no AUTO_INCREMENT column"), "{error}");
    assert!(survey(&url(&server)).await.is_err());
    assert!(open_counter(&url(&server).replace("/test", "/nothing")).await.is_err());
    server.sql("DROP TABLE test.Tickets64");

    server.sql(TABLE);
    let counter = open(&url(&server)).await;
    counter.reserve(some(1)).await.unwrap();
    // A ticket of an earlier call must not count as a new one.
    server.sql("ALTER TABLE test.Tickets64 MODIFY id bigint unsigned NOT NULL DEFAULT 7");
    let error = counter.reserve(some(1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
}

/// Goal: at the end of its type, a table returns no ticket twice. Method: a TINYINT, up to its end and
/// beyond.
#[tokio::test]
async fn the_last_number_of_a_column_is_not_given_again_and_again() {
    let server = MariaDb::start();
    server.sql(&TABLE.replace("bigint(20) unsigned", "tinyint"));
    server.sql("ALTER TABLE test.Tickets64 AUTO_INCREMENT = 120");
    let counter = open(&url(&server)).await;
    let mut tickets = Vec::new();
    let error = loop {
        match counter.reserve(some(1)).await {
            Ok(segment) => tickets.push(segment.first()),
            Err(error) => break error,
        }
    };
    assert_eq!(tickets, (120..127).collect::<Vec<_>>());
    for error in [error, counter.reserve(some(1)).await.unwrap_err()] {
        println!("{error}");
        assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
    }
}

/// Goal: a crash takes back no returned ticket, unless the user accepts that. Method: settings that may lose
/// commits.
#[tokio::test]
async fn a_server_that_syncs_later_is_drawn_from_only_on_request() {
    let server = MariaDb::with(&["--log-bin=binlog"]);
    server.sql(TABLE);
    assert_drawn_from_only_on_request(&server, &format!("{}?stub=a", url(&server))).await;
}

/// Goal: a raise that succeeds is on the disk, also one that finds the row already raised by an attempt that
/// is not. Method: no sync of the disk ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_that_succeeds_is_on_the_disk() {
    let server = MariaDb::with_disk_that_hangs(&[]);
    server.sql(TABLE);
    let counter = open(&format!("{}?timeout_ms=1500", url(&server))).await;
    counter.reserve(some(1)).await.unwrap();
    server.hang_syncs();
    for attempt in ["the first", "one that finds the row raised"] {
        let error = counter.raise_above(500).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{attempt}: {error}");
    }
}
