//! A counter in a plain key of Redis, also while others INCR it.

use std::process::Command;
use std::sync::Arc;

use redis::AsyncCommands;
use snowmint_store::{Counter, MAX_NUMBER, StoreErrorKind, survey};
use snowmint_test_servers::{Redis, Server};
use tokio::task::JoinSet;

use super::{assert_distinct, draw, joined, open, refused, some, surveyed};
use crate::support::SECRET;

fn url(server: &Server, key: &str) -> String {
    format!("redis-counter:redis://{}/0?counter={key}", server.address())
}

/// Queries the server itself, without the counter.
fn cli(server: &Server, command: &[&str]) -> String {
    let mut cli = Command::new("redis-cli");
    cli.args(["-h", "127.0.0.1", "-p", &server.port().to_string()]).args(command);
    let output = cli.output().expect("redis-cli: apt-get install redis-tools");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[tokio::test]
async fn numbers_are_those_above_the_value() {
    let server = Redis::start();
    cli(&server, &["MSET", "orders", "41", "orders:eu", "7", "orders:us", "9", "orders:name", "text"]);
    cli(&server, &["SADD", "orders:set", "1"]);
    let counter = open(&url(&server, "orders")).await;
    assert_eq!(counter.describe(), format!("redis-counter:redis://{}/0?counter=orders", server.address()));
    assert_eq!(counter.peek().await.unwrap().unwrap().first(), 42);
    let segments = [counter.reserve(some(10)).await.unwrap(), counter.reserve(some(1)).await.unwrap()];
    assert_eq!(segments.map(|it| (it.first(), it.last())), [(42, 51), (52, 52)]);
    assert_eq!(cli(&server, &["INCR", "orders"]), "53");
    for (number, after) in [(7, "53"), (53, "53"), (60, "60")] {
        assert!(counter.raise_above(number).await.unwrap());
        assert_eq!(cli(&server, &["GET", "orders"]), after, "raised above {number}");
    }
    // Numbers beyond 2^53 are exact.
    cli(&server, &["SET", "orders", "9007199254740993"]);
    assert_eq!(counter.reserve(some(2)).await.unwrap().first(), 9_007_199_254_740_994);

    assert_eq!(surveyed(&url(&server, "orders")).await, ["orders 9007199254740995 1 0/1"]);
    assert_eq!(surveyed(&url(&server, "orders:*")).await, ["orders:eu 7 1 0/1", "orders:us 9 1 0/1"]);
    let rejected = survey(&url(&server, "orders:*")).await.unwrap().rejected;
    let rejected: Vec<_> = rejected.iter().map(|it| (&*it.name, &*it.why)).collect();
    let expected = format!("the key holds \"text\", expected a number from 0 to {MAX_NUMBER}");
    assert_eq!(rejected, [("orders:name", &*expected)], "a set is no counter");
    assert_eq!(
        surveyed(&url(&server, "o*:?u*")).await,
        Vec::<String>::new(),
        "`*` alone stands for other text"
    );
    cli(&server, &["EVAL", "for i = 1, 2500 do redis.call('SET', 'many:' .. i, i) end", "0"]);
    assert_eq!(surveyed(&url(&server, "many:*")).await.len(), 2500);
}

/// Goal: one script counts and marks on a cluster, whatever braces a key has. Method: a cluster of one node,
/// which refuses keys of two slots.
#[tokio::test]
async fn a_mark_is_on_the_node_of_its_counter() {
    let server = Redis::with(&["--cluster-enabled", "yes"]);
    cli(&server, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    while !cli(&server, &["CLUSTER", "INFO"]).contains("cluster_state:ok") {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for key in ["orders", "a}b", "a{}b", "}", "seq:{eu}:a}"] {
        cli(&server, &["SET", key, "7"]);
        let encoded = key.replace('{', "%7B").replace('}', "%7D");
        let counter = open(&url(&server, &encoded)).await;
        let (segment, mark) = counter.reserve_marked(some(3)).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((segment.first(), counter.holds(mark).await.unwrap()), (8, true), "{key}");
    }
}

/// Goal: other programs that INCR the key and Snowmint share no number. Method: 8 tasks draw, and 2 INCR and
/// INCRBY.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn others_may_go_on_beside() {
    let server = Redis::start();
    cli(&server, &["SET", "orders", "0"]);
    let mut counters: Vec<Arc<dyn Counter>> = Vec::new();
    for _ in 0..4 {
        let counter = open(&url(&server, "orders")).await;
        counters.extend([Arc::clone(&counter), counter]);
    }
    let client = redis::Client::open(format!("redis://{}", server.address())).unwrap();
    let mut others = JoinSet::new();
    for _ in 0..2 {
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        others.spawn(async move {
            let mut all = Vec::new();
            for nth in 0..300_u64 {
                let count = 1 + nth % 3;
                let after: u64 = connection.incr("orders", count).await.unwrap();
                all.extend(after - count + 1..=after);
            }
            all
        });
    }
    let ours = draw(&counters, 300).await;
    let all = [ours, joined(others).await].concat();
    assert_distinct(&all);
    assert_eq!(cli(&server, &["GET", "orders"]), all.len().to_string());
}

/// Goal: no mark leaves before its reservation has settled; if there is no room for another mark, nothing is
/// counted. Method: more marks at once than the limit.
#[tokio::test]
async fn a_full_list_of_marks_holds_the_next_reservation_back() {
    const MOST: usize = 1024;
    let server = Redis::start();
    cli(&server, &["SET", "orders", "0"]);
    // Long enough that none settles meanwhile, even on a slow machine.
    let counter = open(&format!("{}&may_lose=300s", url(&server, "orders"))).await;
    let mut marks = Vec::new();
    for _ in 0..MOST {
        marks.push(counter.reserve_marked(some(1)).await.unwrap().1);
    }
    let error = counter.reserve_marked(some(1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(
        error.to_string().contains("1024 reservations of orders have not settled (may_lose=300s)"),
        "{error}"
    );
    assert_eq!(cli(&server, &["GET", "orders"]), "1024");
    assert!(counter.holds(marks[0]).await.unwrap());

    // Of the settled marks, all but the newest 256 leave, 64 with each reservation.
    let counter = open(&format!("{}&may_lose=1ms", url(&server, "orders"))).await;
    while counter.reserve_marked(some(1)).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(cli(&server, &["LLEN", "snowmint:marks:{orders}"]), "961");
    for _ in 0..20 {
        counter.holds(marks[0]).await.unwrap();
        marks.push(counter.reserve_marked(some(1)).await.unwrap().1);
    }
    let held: usize = cli(&server, &["LLEN", "snowmint:marks:{orders}"]).parse().unwrap();
    assert!((256..300).contains(&held), "{held}");
    assert!(!counter.holds(marks[0]).await.unwrap());
    assert!(
        counter.holds(marks[marks.len() - 1]).await.unwrap() && counter.holds(marks[MOST - 1]).await.unwrap()
    );
}

#[tokio::test]
async fn what_is_no_counter_is_told_and_left_alone() {
    let server = Redis::start();
    cli(&server, &["SET", "orders", "1"]);
    let counter = open(&url(&server, "orders")).await;
    for (value, says) in [("text", "\"text\""), ("-5", "\"-5\""), ("1.5", "\"1.5\""), ("", "\"\"")] {
        cli(&server, &["SET", "orders", value]);
        let (kind, error) = refused(&url(&server, "orders")).await;
        assert_eq!(kind, Some(StoreErrorKind::Corrupt), "{error}");
        assert!(error.contains(says), "{error}");
        let error = counter.reserve(some(1)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
        assert!(survey(&url(&server, "orders")).await.is_err());
        assert_eq!(cli(&server, &["GET", "orders"]), value);
    }
    cli(&server, &["DEL", "orders"]);
    let error = counter.reserve(some(1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Other, "{error}");
    assert!(error.to_string().contains("SET orders 0"), "{error}");
    assert_eq!(refused(&url(&server, "orders")).await.0, Some(StoreErrorKind::Other));
    assert_eq!(cli(&server, &["EXISTS", "orders"]), "0", "a lost key does not restart");

    cli(&server, &["RPUSH", "orders", "1"]);
    let (kind, error) = refused(&url(&server, "orders")).await;
    assert_eq!(kind, Some(StoreErrorKind::Corrupt), "{error}");
    assert!(error.contains("holds a list"), "{error}");
    let error = counter.reserve(some(1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    assert_eq!(cli(&server, &["LRANGE", "orders", "0", "-1"]), "1");
    cli(&server, &["DEL", "orders"]);

    cli(&server, &["SET", "orders", "9223372036854775800"]);
    for count in [8, 1 << 63, u64::MAX] {
        let error = counter.reserve(some(count)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
    }
    assert_eq!(counter.reserve(some(7)).await.unwrap().last(), MAX_NUMBER);
}

#[tokio::test]
async fn passwords_durability_and_copies() {
    let server = Redis::with(&["--requirepass", SECRET]);
    let address = server.address();
    let login = |password: &str| format!("redis-counter:redis://:{password}@{address}?counter=orders");
    let (kind, error) = refused(&login(&format!("{SECRET}x"))).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    cli(&server, &["-a", SECRET, "SET", "orders", "1"]);
    let counter = open(&login(SECRET)).await;
    assert!(!format!("{counter:?} {}", counter.describe()).contains(SECRET));

    let forgetful = Redis::with(&["--appendonly", "no"]);
    cli(&forgetful, &["SET", "orders", "1"]);
    let (_, error) = refused(&url(&forgetful, "orders")).await;
    assert!(error.contains("appendonly yes"), "{error}");
    // Without replicas, a number is not known to be durable.
    let copied = format!("{}&wait_replicas=1&wait_ms=100", url(&forgetful, "orders"));
    let (_, error) = refused(&copied).await;
    assert!(error.contains("appendonly yes"), "its replicas forget with it: {error}");
    let counter = open(&format!("{copied}&durable=no")).await;
    let error = counter.reserve(some(1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
}
