//! A web service that stores orders in several PostgreSQL databases. An order's id contains its shard, so
//! every instance finds an order without a lookup table. See README.md.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::json;
use snowmint::utc::Utc;
use snowmint::{AnchoredClock, DatacenterId, Id, Layout};
use snowmint_cluster::lease::WorkerPool;
use snowmint_cluster::{Holder, LeaseConfig, Leases, NodeClock};
use sqlx::postgres::{PgPool, PgPoolOptions};

/// The field `datacenter` is the shard: 16 shards, up to 64 instances, 4,096 ids per millisecond from each
/// instance in each shard.
const LAYOUT: &str = "time:41@1ms datacenter:4 worker:6 sequence:12 epoch:2026-01-01";
/// More shards than databases: if a database is full, move some of its shards, which are schemas, to a new
/// one.
const SHARDS: u32 = 16;

type Error = Box<dyn std::error::Error>;

/// One shard: the schema `shard_N` of a database, and the lease for ids with this number.
struct Shard {
    number: u32,
    database: PgPool,
    ids: Leases,
}

struct Orders {
    layout: Layout,
    shards: Vec<Shard>,
}

impl Orders {
    /// Returns the one shard for all orders of a customer.
    fn of_customer(&self, customer: u64) -> &Shard {
        #[expect(clippy::cast_possible_truncation, reason = "the rest of a division by a u32")]
        let number = (customer % u64::from(SHARDS)) as usize;
        &self.shards[number]
    }

    /// Returns the shard in an id.
    fn of_id(&self, id: Id) -> Option<&Shard> {
        let shard = self.layout.split(id).ok()?.datacenter;
        self.shards.get(usize::try_from(shard.0).ok()?)
    }
}

type Answer = Result<String, (StatusCode, String)>;

fn unavailable(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
}

/// Handles `POST /customers/7/orders` with the article as the body; answers with the new id.
async fn create(State(orders): State<Arc<Orders>>, Path(customer): Path<u64>, article: String) -> Answer {
    let shard = orders.of_customer(customer);
    // No database call: the lease states which ids this instance may make.
    let id = shard.ids.handle().next_id().await.map_err(unavailable)?;
    let insert =
        format!("INSERT INTO shard_{}.orders (id, customer, article) VALUES ($1, $2, $3)", shard.number);
    let insert = sqlx::query(sqlx::AssertSqlSafe(insert)).bind(id).bind(customer.cast_signed()).bind(article);
    insert.execute(&shard.database).await.map_err(unavailable)?;
    Ok(format!("{id}\n"))
}

/// Handles `GET /orders/ID`: finds the order in the one database that has it.
async fn find(State(orders): State<Arc<Orders>>, Path(text): Path<String>) -> Answer {
    let none = || (StatusCode::NOT_FOUND, format!("no order {text}\n"));
    let id: Id = text.parse().map_err(|_| none())?;
    let shard = orders.of_id(id).ok_or_else(none)?;
    let select = format!("SELECT customer, article FROM shard_{}.orders WHERE id = $1", shard.number);
    let select = sqlx::query_as(sqlx::AssertSqlSafe(select)).bind(id);
    let mut found: Vec<(i64, String)> = select.fetch_all(&shard.database).await.map_err(unavailable)?;
    let (customer, article) = found.pop().ok_or_else(none)?;
    let parts = orders.layout.split(id).map_err(|_| none())?;
    let made_at_ms = orders.layout.unix_ms(parts.timestamp);
    // The id is text: JavaScript keeps 53 bits of a number.
    Ok(json!({ "id": id.to_string(), "customer": customer, "article": article, "made_at_ms": made_at_ms })
        .to_string())
}

/// Handles `GET /customers/7/orders/since/1790000000000`: reads a range of the primary key, without a column
/// or index for the time.
async fn since(State(orders): State<Arc<Orders>>, Path((customer, unix_ms)): Path<(u64, u64)>) -> Answer {
    let shard = orders.of_customer(customer);
    let first = orders.layout.first_id_at(Utc(unix_ms));
    let first = first.ok_or((StatusCode::BAD_REQUEST, "no id has this time\n".to_owned()))?;
    let select = format!(
        "SELECT id FROM shard_{}.orders WHERE customer = $1 AND id >= $2 ORDER BY id LIMIT 1000",
        shard.number
    );
    let select = sqlx::query_scalar(sqlx::AssertSqlSafe(select)).bind(customer.cast_signed()).bind(first);
    let ids: Vec<Id> = select.fetch_all(&shard.database).await.map_err(unavailable)?;
    let lines: Vec<_> = ids.iter().map(|id| format!("{id}\n")).collect();
    Ok(lines.concat())
}

/// Parses `0-7=URL,8-15=URL`: returns the URL of each shard's database. Every shard is named exactly once,
/// because a shard that changes its database unnoticed would lose its orders.
fn databases_of_shards(text: &str) -> Result<Vec<&str>, String> {
    let mut of_shard = vec![None; SHARDS as usize];
    for part in text.split(',') {
        let named = part.split_once('=').filter(|(shards, _)| !shards.contains("://"));
        let (shards, url) = named
            .ok_or("DATABASES: expected SHARDS=URL, such as 0-15=postgres://db1/shop, for each database")?;
        if url.is_empty() {
            return Err(format!("DATABASES: no URL for shards {shards:?}: expected SHARDS=URL"));
        }
        for shard in range(shards)? {
            if of_shard[shard].replace(url).is_some() {
                return Err(format!("DATABASES: two databases for shard {shard}: name each shard once"));
            }
        }
    }
    let known = of_shard.into_iter().enumerate().map(|(shard, url)| {
        url.ok_or_else(|| format!("DATABASES: no database for shard {shard}: name each shard once"))
    });
    known.collect()
}

/// Parses `7` or `0-7`.
fn range(shards: &str) -> Result<RangeInclusive<usize>, String> {
    let (first, last) = shards.split_once('-').unwrap_or((shards, shards));
    let number = |text: &str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<usize>().ok().filter(|shard| is_number && *shard < SHARDS as usize)
    };
    let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
    let range = range.map(|(first, last)| first..=last);
    range.ok_or_else(|| {
        let last = SHARDS - 1;
        format!("DATABASES: invalid shards {shards:?}: expected 0 to {last}, or a range such as 0-7")
    })
}

/// Takes a lease for each shard, all in one store: other stores would grant the same workers at the same
/// time.
async fn open(leases: &str, databases: &[&str], holder: &Holder) -> Result<Orders, Error> {
    let layout: Layout = LAYOUT.parse()?;
    let store = snowmint_store::open(leases).await?;
    let clock = Arc::new(AnchoredClock::new());
    let mut pools: HashMap<&str, PgPool> = HashMap::new();
    let mut shards = Vec::new();
    for (number, url) in (0..SHARDS).zip(databases.iter().copied()) {
        let database = match pools.get(url) {
            Some(pool) => pool.clone(),
            None => PgPoolOptions::new().max_connections(8).connect(url).await?,
        };
        pools.insert(url, database.clone());
        // One transaction with a lock: otherwise two instances that start at the same time would both create
        // the schema.
        let make = format!(
            "SELECT pg_advisory_xact_lock(1); CREATE SCHEMA IF NOT EXISTS shard_{number}; CREATE TABLE IF NOT EXISTS shard_{number}.orders \
             (id bigint PRIMARY KEY, customer bigint NOT NULL, article text NOT NULL)"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(make)).execute(&database).await?;
        let pool = WorkerPool::new(layout, DatacenterId(number));
        let config = LeaseConfig::new(pool, holder.clone()).clock(NodeClock::from(Arc::clone(&clock)));
        shards.push(Shard { number, database, ids: Leases::start(Arc::clone(&store), config)? });
    }
    for shard in &shards {
        shard.ids.ready().await?;
    }
    Ok(Orders { layout, shards })
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let databases = std::env::var("DATABASES").map_err(
        |_| "set DATABASES to the database of each shard, such as 0-7=postgres://db1/shop,8-15=postgres://db2/shop",
    )?;
    let databases = databases_of_shards(&databases)?;
    let leases = std::env::var("LEASES")
        .map_err(|_| "set LEASES to the one store of all leases, such as postgres://db1/shop")?;
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let orders = Arc::new(open(&leases, &databases, &Holder::of_this_host(&address)).await?);
    let app = Router::new()
        .route("/customers/{customer}/orders", post(create))
        .route("/customers/{customer}/orders/since/{unix_ms}", get(since))
        .route("/orders/{id}", get(find))
        .with_state(Arc::clone(&orders));
    axum::serve(listener, app).with_graceful_shutdown(stopped()).await?;
    // Without this release, these workers would stay taken for one window (10 s).
    for shard in &orders.shards {
        shard.ids.release(Duration::from_secs(1)).await;
    }
    Ok(())
}

async fn stopped() {
    let stop = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
    match stop {
        Ok(mut stop) => drop(stop.recv().await),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each shard has exactly one database, whatever the order in which they are named.
    #[test]
    fn each_shard_has_one_database() {
        let databases = databases_of_shards("8-14=b?sslmode=require,0-7=a,15=c").unwrap();
        assert_eq!(databases.len(), 16);
        assert_eq!((databases[0], databases[7], databases[8]), ("a", "a", "b?sslmode=require"));
        assert_eq!((databases[14], databases[15]), ("b?sslmode=require", "c"));
        for (text, wanted) in [
            ("0-14=a", "no database for shard 15"),
            ("0-15=a,7=b", "two databases for shard 7"),
            ("0-16=a", "invalid shards \"0-16\": expected 0 to 15"),
            ("7-0=a", "invalid shards \"7-0\""),
            ("+1-15=a", "invalid shards \"+1-15\""),
            ("0-15=", "no URL for shards \"0-15\""),
            ("postgres://u:secret@h/db,postgres://h2/db", "expected SHARDS=URL"),
            ("postgres://u:secret@h/db?sslmode=require", "expected SHARDS=URL"),
            ("", "expected SHARDS=URL"),
        ] {
            let told = databases_of_shards(text).unwrap_err();
            assert!(told.contains(wanted) && !told.contains("secret"), "{text}: {told}");
        }
    }
}
