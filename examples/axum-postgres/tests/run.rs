//! Goal: two instances of the example share the databases, find each other's orders by the shard in the id,
//! and repeat no id. Method: two or three PostgreSQL servers, the instances as processes, and plain HTTP.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what all tests use too")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::Duration;

use snowmint_test_servers::snowmint::third_party::output;
use snowmint_test_servers::{Postgres, port, time};

/// The epoch of the example's layout, 2026-01-01: no id is older.
const EPOCH_MS: u64 = 1_767_225_600_000;

struct Instance {
    child: Child,
    address: SocketAddr,
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn url(server: &Postgres) -> String {
    format!("postgres://postgres@{}/postgres", server.address())
}

impl Instance {
    /// Starts an instance with leases in the first server, and the shards in the given ranges in these
    /// servers.
    fn start(leases: &Postgres, shards: &[(&str, &Postgres)]) -> Self {
        let databases: Vec<_> =
            shards.iter().map(|(range, server)| format!("{range}={}", url(server))).collect();
        let address = SocketAddr::from(port::free());
        let mut command = Command::new(env!("CARGO_BIN_EXE_axum-postgres"));
        command.env("LEASES", url(leases)).env("DATABASES", databases.join(","));
        let child = command.env("ADDRESS", address.to_string()).spawn().unwrap();
        let instance = Self { child, address };
        time::eventually("an order is taken", Duration::from_mins(1), || {
            let ran = Command::new("curl")
                .args(["-sf", "-d", "first", &instance.url("customers/0/orders")])
                .output();
            ran.unwrap().status.success().then_some(())
        });
        instance
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    fn order(&self, customer: u64, article: &str) -> u64 {
        let answer =
            output("curl", ["-sf", "-d", article, &self.url(&format!("customers/{customer}/orders"))]);
        answer.trim().parse().unwrap()
    }
}

#[test]
fn two_instances_find_each_others_orders_in_the_shard_that_the_id_names() {
    let servers = [Postgres::start(), Postgres::start()];
    let shards = [("0-7", &servers[0]), ("8-15", &servers[1])];
    let instances = [(); 2].map(|()| Instance::start(&servers[0], &shards));
    let mut ids = BTreeSet::new();
    for customer in 0..20 {
        let id = instances[0].order(customer, "apple");
        // Time, 4 bits of shard, 6 of worker, 12 of sequence.
        assert_eq!((id >> 18) & 15, customer % 16, "{id}");
        assert!(ids.insert(id) && ids.insert(instances[1].order(customer, "pear")), "{id} came twice");
        let found = output("curl", ["-sf", &instances[1].url(&format!("orders/{id}"))]);
        assert!(
            found.contains("\"apple\"") && found.contains(&format!("\"customer\":{customer},")),
            "{found}"
        );
    }
    let rows: usize = servers
        .iter()
        .flat_map(|server| (0..16).map(move |shard| (server, shard)))
        .filter(|(server, shard)| !server.sql(&format!("SELECT to_regnamespace('shard_{shard}')")).is_empty())
        .map(|(server, shard)| {
            server.sql(&format!("SELECT count(*) FROM shard_{shard}.orders")).parse::<usize>().unwrap()
        })
        .sum();
    // Each instance started with an order of customer 0.
    assert_eq!(rows, ids.len() + 2, "every order is in one shard");
    let of_seven =
        |since: u64| output("curl", ["-sf", &instances[0].url(&format!("customers/7/orders/since/{since}"))]);
    assert_eq!(of_seven(EPOCH_MS).lines().count(), 2, "{}", of_seven(EPOCH_MS));
    let last: serde_json::Value = serde_json::from_str(&output(
        "curl",
        ["-sf", &instances[0].url(&format!("orders/{}", of_seven(EPOCH_MS).lines().last().unwrap()))],
    ))
    .unwrap();
    let made_at = last["made_at_ms"].as_u64().unwrap();
    assert_eq!(
        of_seven(made_at).lines().last(),
        of_seven(EPOCH_MS).lines().last(),
        "its own millisecond is in the range"
    );
    assert_eq!(of_seven(made_at + 60_000), "", "none is from the future");
}

/// Goal: a database is added as README.md says: no order is lost, and no id comes twice. Method: move some
/// shards to a third server, name the servers in another order, and look for every order.
#[test]
fn a_database_is_added_and_every_order_is_found() {
    let servers = [Postgres::start(), Postgres::start(), Postgres::start()];
    let [one, two, three] = &servers;
    let mut ids = BTreeSet::new();
    {
        let before = Instance::start(one, &[("0-7", one), ("8-15", two)]);
        ids.extend((0..16).map(|customer| before.order(customer, "apple")));
    }
    for shard in 12..16 {
        let row = "SELECT id || ', ' || customer || ', ' || quote_literal(article) FROM shard_";
        let row = two.sql(&format!("{row}{shard}.orders"));
        three.sql(&format!("CREATE SCHEMA shard_{shard}"));
        three.sql(&format!(
            "CREATE TABLE shard_{shard}.orders (id bigint PRIMARY KEY, customer bigint NOT NULL, article text NOT NULL)"
        ));
        three.sql(&format!("INSERT INTO shard_{shard}.orders VALUES ({row})"));
        two.sql(&format!("DROP SCHEMA shard_{shard} CASCADE"));
    }
    let after = Instance::start(one, &[("12-15", three), ("8-11", two), ("0-7", one)]);
    for id in &ids {
        let found = output("curl", ["-sf", &after.url(&format!("orders/{id}"))]);
        assert!(found.contains("\"apple\""), "{id}: {found}");
    }
    assert!((0..16).all(|customer| ids.insert(after.order(customer, "pear"))), "an id came twice");
    for (server, shards) in [(one, "0,1,2,3,4,5,6,7"), (two, "8,9,10,11"), (three, "12,13,14,15")] {
        let has = "SELECT string_agg(s::text, ',' ORDER BY s) FROM generate_series(0, 15) s \
                   WHERE to_regnamespace('shard_' || s) IS NOT NULL";
        assert_eq!(server.sql(has), shards);
    }
}
