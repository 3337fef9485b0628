//! The systems that a page migrates from, with the defaults of each server. Counters have returned 5,000
//! numbers, for users with only the rights that the page names.

use std::fmt::Write as _;

use snowmint_test_servers::{MariaDb, Postgres, Redis};

/// The host names that the pages use.
const DATABASE: &str = "@db/";
const CACHE: &str = "redis://cache/";

const LEAF: &str = "CREATE DATABASE leaf; CREATE TABLE leaf.leaf_alloc (biz_tag VARCHAR(128) NOT NULL DEFAULT '', \
    max_id BIGINT NOT NULL DEFAULT 1, step INT NOT NULL, description VARCHAR(256), update_time TIMESTAMP NOT NULL DEFAULT \
    CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (biz_tag)) ENGINE=InnoDB; \
    INSERT INTO leaf.leaf_alloc (biz_tag, max_id, step) VALUES ('order', 5001, 1000), ('user', 1, 2000), \
    ('pay/refund', 1, 1000); \
    CREATE USER leaf@'%'; GRANT SELECT, UPDATE ON leaf.leaf_alloc TO leaf@'%'";
const TINYID: &str = "CREATE DATABASE tinyid; CREATE TABLE tinyid.tiny_id_info (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, \
    biz_type VARCHAR(63) NOT NULL DEFAULT '', begin_id BIGINT NOT NULL DEFAULT 0, max_id BIGINT NOT NULL DEFAULT 0, \
    step INT DEFAULT 0, delta INT NOT NULL DEFAULT 1, remainder INT NOT NULL DEFAULT 0, create_time TIMESTAMP NOT NULL \
    DEFAULT '2010-01-01 00:00:00', update_time TIMESTAMP NOT NULL DEFAULT '2010-01-01 00:00:00', version BIGINT NOT NULL \
    DEFAULT 0, PRIMARY KEY (id), UNIQUE KEY (biz_type)) ENGINE=InnoDB; \
    INSERT INTO tinyid.tiny_id_info (biz_type, max_id, step) VALUES ('order', 5000, 1000); \
    CREATE USER tinyid@'%'; GRANT SELECT, UPDATE ON tinyid.tiny_id_info TO tinyid@'%'";
const TICKETS: &str = "CREATE DATABASE tickets; CREATE TABLE tickets.Tickets64 (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, \
    stub CHAR(1) NOT NULL DEFAULT '', PRIMARY KEY (id), UNIQUE KEY stub (stub)) ENGINE=MyISAM; \
    INSERT INTO tickets.Tickets64 VALUES (5000, 'a'); \
    CREATE USER mint@'%'; GRANT SELECT, INSERT, UPDATE, DELETE ON tickets.Tickets64 TO mint@'%'";

const COSID: &str = "CREATE DATABASE cosid; CREATE TABLE cosid.cosid (name VARCHAR(100) NOT NULL, \
    last_max_id BIGINT NOT NULL DEFAULT 0, last_fetch_time BIGINT NOT NULL, PRIMARY KEY (name)) ENGINE=InnoDB; \
    INSERT INTO cosid.cosid VALUES ('shop.order', 5000, 1700000000)";
/// Tables whose ids come from the database, one of which references the other.
const SHOP: &str = "CREATE TABLE users (id INT KEY, name VARCHAR(20)); \
    CREATE TABLE orders (id INT KEY, user_id INT NOT NULL, CONSTRAINT orders_user FOREIGN KEY (user_id) REFERENCES users (id)); \
    INSERT INTO users (id, name) VALUES (1200000, 'Grace'); INSERT INTO orders (user_id) VALUES (1200000)";
const DOCUMENTS: &str = "CREATE DATABASE archive; CREATE TABLE archive.documents (id CHAR(36) PRIMARY KEY, \
    created_at DATETIME(6) NOT NULL DEFAULT SYSDATE(6)); INSERT INTO archive.documents (id) SELECT UUID() FROM mysql.seq_1_to_1500";

/// The systems that a page has started; they end with the page.
#[derive(Debug, Default)]
pub(super) struct OtherSystems {
    databases: Option<MariaDb>,
    postgres: Option<Postgres>,
    cache: Option<Redis>,
    started: Vec<String>,
}

impl OtherSystems {
    /// Starts a system, unless the page has already started it.
    pub(super) fn start(&mut self, system: &str) {
        if self.started.iter().any(|it| it == system) {
            return;
        }
        self.started.push(system.to_owned());
        match system {
            "leaf" => self.database(LEAF),
            "tinyid" => self.database(TINYID),
            "tickets" => self.database(TICKETS),
            "cosid" => self.database(COSID),
            "documents" => self.database(DOCUMENTS),
            "mariadb" => {
                let tables = SHOP.replace("INT KEY", "INT AUTO_INCREMENT PRIMARY KEY");
                self.database(&format!("CREATE DATABASE shop; USE shop; {tables}"));
            }
            "postgres" => {
                // In the default database of its test user, under the name of the page.
                let tables = SHOP.replacen("INT KEY", "INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", 1);
                let tables = tables.replace("INT KEY", "SERIAL PRIMARY KEY");
                let server = self.postgres.insert(Postgres::start());
                server.sql(&tables.replace("(id, name) VALUES", "(id, name) OVERRIDING SYSTEM VALUE VALUES"));
            }
            "redis-counter" => {
                let stock = ["--appendonly", "no", "--appendfsync", "everysec", "--save", "3600", "1"];
                let redis = self.cache.insert(Redis::with(&stock));
                for key in ["seq:orders", "cosid:{shop.order}.adder"] {
                    assert_eq!(redis.command(&["SET", key, "5000"]), "OK");
                }
            }
            _ => panic!("unknown system `{system}`"),
        }
    }

    fn database(&mut self, sql: &str) {
        // The other settings of the tests are MariaDB's defaults.
        self.databases.get_or_insert_with(|| MariaDb::with(&["--sync-binlog=0"])).sql(sql);
    }

    /// Returns the shell functions by which the clients of the databases reach the servers of this test.
    pub(super) fn clients(&self) -> String {
        let mut functions = String::new();
        if let Some(server) = &self.databases {
            let socket = server.folder().join("socket");
            let flags = format!("--no-defaults --user=root --socket={}", socket.display());
            _ = writeln!(functions, "mariadb() {{ command mariadb {flags} \"$@\"; }}");
        }
        if let Some(server) = &self.postgres {
            let place = format!("-h {} -p {}", server.folder().display(), server.port());
            _ = writeln!(
                functions,
                "psql() {{ shift; command psql -X -U postgres {place} -d postgres \"$@\"; }}"
            );
        }
        functions
    }

    /// Returns a command with the addresses of this test instead of the page's.
    pub(super) fn with_addresses(&self, command: &str) -> String {
        self.pairs().iter().fold(command.to_owned(), |text, (name, address)| text.replace(name, address))
    }

    /// Returns the output of a command, with the names of the page.
    pub(super) fn with_names(&self, printed: &str) -> String {
        self.pairs().iter().fold(printed.to_owned(), |text, (name, address)| text.replace(address, name))
    }

    fn pairs(&self) -> Vec<(&'static str, String)> {
        let database = self.databases.as_ref().map(|it| (DATABASE, format!("@{}/", it.address())));
        let cache = self.cache.as_ref().map(|it| (CACHE, format!("redis://{}/", it.address())));
        database.into_iter().chain(cache).collect()
    }
}
