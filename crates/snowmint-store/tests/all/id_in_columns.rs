//! Goal: the library's ids go into the columns of real databases as BIGINT, and come back. Method: the
//! smallest and the largest id through SQLite, PostgreSQL and MariaDB, beside a negative number and a NULL.
//! The library's own tests link no database.

#![allow(clippy::disallowed_methods, reason = "the rows of reads that fit into one page")]

use snowmint::Id;
use snowmint_test_servers::{MariaDb, Postgres};
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};

macro_rules! ids_go_in_and_come_back {
    ($connection:ty, $url:expr, $place:literal) => {
        let mut connection = <$connection>::connect($url).await.unwrap();
        sqlx::query("CREATE TABLE orders (id BIGINT PRIMARY KEY, parent BIGINT NULL)")
            .execute(&mut connection)
            .await
            .unwrap();
        let ids = [0, 1_541_815_603_606_036_480, i64::MAX as u64].map(|id| Id::new(id).unwrap());
        for id in ids {
            let insert = concat!("INSERT INTO orders (id) VALUES (", $place, ")");
            sqlx::query(insert).bind(id).execute(&mut connection).await.unwrap();
        }
        let read: Vec<(Id, Option<Id>)> = sqlx::query_as("SELECT id, parent FROM orders ORDER BY id")
            .fetch_all(&mut connection)
            .await
            .unwrap();
        assert_eq!(read, ids.map(|id| (id, None)));
        let found: i64 = sqlx::query_scalar(concat!("SELECT id FROM orders WHERE id = ", $place))
            .bind(Id::MAX)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(found, i64::MAX);
        sqlx::query("UPDATE orders SET id = -1 WHERE id = 0").execute(&mut connection).await.unwrap();
        let refused = sqlx::query_scalar::<_, Id>("SELECT id FROM orders WHERE id < 0")
            .fetch_one(&mut connection)
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("invalid id -1: the smallest id is 0"), "{refused}");
    };
}

#[tokio::test]
async fn sqlite() {
    ids_go_in_and_come_back!(SqliteConnection, "sqlite::memory:", "?");
}

#[tokio::test]
async fn postgres() {
    let server = Postgres::start();
    let url = format!("postgres://postgres@{}/postgres", server.address());
    ids_go_in_and_come_back!(PgConnection, &url, "$1");

    let mut connection = PgConnection::connect(&url).await.unwrap();
    let wanted = vec![Id::MAX, Id::new(7).unwrap()];
    let found: Vec<Id> = sqlx::query_scalar("SELECT id FROM orders WHERE id = ANY($1)")
        .bind(&wanted)
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert_eq!(found, [Id::MAX]);
    let array: Vec<Id> =
        sqlx::query_scalar("SELECT $1::bigint[]").bind(&wanted).fetch_one(&mut connection).await.unwrap();
    assert_eq!(array, wanted);
}

#[tokio::test]
async fn mariadb() {
    let server = MariaDb::start();
    let url = format!("mysql://root@{}/test", server.address());
    ids_go_in_and_come_back!(MySqlConnection, &url, "?");

    // An unsigned column is another type; the documented cast reads it.
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    sqlx::query("CREATE TABLE wide (id BIGINT UNSIGNED PRIMARY KEY)").execute(&mut connection).await.unwrap();
    sqlx::query("INSERT INTO wide VALUES (?)").bind(Id::MAX).execute(&mut connection).await.unwrap();
    let read = sqlx::query_scalar::<_, Id>("SELECT id FROM wide").fetch_one(&mut connection).await;
    assert!(read.unwrap_err().to_string().contains("BIGINT UNSIGNED"));
    let read: Id =
        sqlx::query_scalar("SELECT CAST(id AS SIGNED) FROM wide").fetch_one(&mut connection).await.unwrap();
    assert_eq!(read, Id::MAX);
}
