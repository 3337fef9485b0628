//! The systems that a page migrates from, with one counter each that has returned 5,000 numbers, for users with only the rights
//! that the page names.

use snowmint_test_servers::{MariaDb, Redis};

/// The host names that the pages use.
const DATABASE: &str = "@db/";
const CACHE: &str = "redis://cache/";

const LEAF: &str = "CREATE DATABASE leaf; CREATE TABLE leaf.leaf_alloc (biz_tag VARCHAR(128) NOT NULL DEFAULT '', \
    max_id BIGINT NOT NULL DEFAULT 1, step INT NOT NULL, description VARCHAR(256), update_time TIMESTAMP NOT NULL DEFAULT \
    CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (biz_tag)) ENGINE=InnoDB; \
    INSERT INTO leaf.leaf_alloc (biz_tag, max_id, step) VALUES ('order', 5001, 1000), ('user', 1, 2000); \
    CREATE USER leaf@'%'; GRANT SELECT, UPDATE ON leaf.leaf_alloc TO leaf@'%'";
const TINYID: &str = "CREATE DATABASE tinyid; CREATE TABLE tinyid.tiny_id_info (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, \
    biz_type VARCHAR(63) NOT NULL DEFAULT '', begin_id BIGINT NOT NULL DEFAULT 0, max_id BIGINT NOT NULL DEFAULT 0, \
    step INT DEFAULT 0, delta INT NOT NULL DEFAULT 1, remainder INT NOT NULL DEFAULT 0, create_time TIMESTAMP NOT NULL \
    DEFAULT '2010-01-01 00:00:00', update_time TIMESTAMP NOT NULL DEFAULT '2010-01-01 00:00:00', version BIGINT NOT NULL \
    DEFAULT 0, PRIMARY KEY (id), UNIQUE KEY (biz_type)) ENGINE=InnoDB; \
    INSERT INTO tinyid.tiny_id_info (biz_type, max_id, step) VALUES ('order', 5000, 1000); \
    CREATE USER tinyid@'%'; GRANT SELECT, UPDATE ON tinyid.tiny_id_info TO tinyid@'%'";
const TICKETS: &str = "CREATE DATABASE tickets; CREATE TABLE tickets.Tickets64 (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, \
    stub CHAR(1) NOT NULL DEFAULT '', PRIMARY KEY (id), UNIQUE KEY stub (stub)) ENGINE=InnoDB; \
    INSERT INTO tickets.Tickets64 VALUES (5000, 'a'); \
    CREATE USER mint@'%'; GRANT SELECT, INSERT, UPDATE, DELETE ON tickets.Tickets64 TO mint@'%'";

/// The systems that a page has started; they end with the page.
#[derive(Debug, Default)]
pub(super) struct OtherSystems {
    databases: Option<MariaDb>,
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
            "redis-counter" => {
                let redis = self.cache.insert(Redis::start());
                for key in ["seq:orders", "cosid:{shop.order}.adder"] {
                    assert_eq!(redis.command(&["SET", key, "5000"]), "OK");
                }
            }
            _ => panic!("unknown system `{system}`"),
        }
    }

    fn database(&mut self, sql: &str) {
        self.databases.get_or_insert_with(MariaDb::start).sql(sql);
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
