//! Parses the URL, opens sessions on a server that accepts writes, and prepares the table of the records.
//! A read-only server counts as a replica, whose answers may lag.

use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use sqlx::{ConnectOptions, Connection, Row};

use super::error::{self, MissingRight, NEEDS_TLS};
use super::flush_watch::FlushWatch;
use super::history::ClusterHistory;
use super::session::{self, CrashLoss, MySqlSession};
use super::{MySqlSettings, TABLE};
use crate::error::Effect;
use crate::net::url::{Host, StoreUrl};
use crate::net::{Confirmation, HostRefusal, Standing, Writable};
use crate::sql::failure::refusal;
use crate::sql::pool::{Connect, Connected, Pool};
use crate::sql::table::OPEN;
use crate::sql::{at_most_one, table};
use crate::{StoreError, UrlError};

const PORT: u16 = 3306;
/// The parameters of a connection.
pub(crate) const PARAMETERS: &str =
    "password_file, may_lose, ssl-mode, ssl-ca, ssl-cert, ssl-key, socket and timeout_ms";

/// Reads the engine, the columns and the primary key of the table. Each part names the table: otherwise the
/// server would read the metadata of all tables.
const INSPECT: &str = "SELECT CAST(t.engine AS CHAR), \
    (SELECT CAST(GROUP_CONCAT(CONCAT_WS(' ', c.column_name, c.data_type, \
            CASE c.data_type WHEN 'varbinary' THEN c.character_maximum_length END) \
            ORDER BY c.column_name SEPARATOR ', ') AS CHAR) FROM information_schema.columns c \
        WHERE c.table_schema = DATABASE() AND c.table_name = 'snowmint_records'), \
    (SELECT CAST(GROUP_CONCAT(k.column_name SEPARATOR ', ') AS CHAR) FROM information_schema.columns k \
        WHERE k.table_schema = DATABASE() AND k.table_name = 'snowmint_records' AND k.column_key = 'PRI') \
    FROM information_schema.tables t WHERE t.table_schema = DATABASE() AND t.table_name = 'snowmint_records'";
const COLUMNS: &str = "name varbinary 200, revision bigint, value mediumblob";

impl MySqlSettings {
    /// Parses `mysql://...` of a store.
    pub(super) fn parse(url: &str, crashes: CrashLoss) -> Result<Pool<Self>, UrlError> {
        let mut location = Self::location(url)?;
        let parsed = Self::take(&mut location, crashes)?;
        location.finish(PARAMETERS)?;
        Ok(parsed)
    }

    /// Parses a URL whose scheme is known to be `mysql` or `mariadb`.
    pub(crate) fn location(url: &str) -> Result<StoreUrl, UrlError> {
        StoreUrl::of_url(url, &["mysql"], PORT)
    }

    /// Takes the connection parameters out of a location, which stays without them. Other parameters stay.
    pub(crate) fn take(location: &mut StoreUrl, crashes: CrashLoss) -> Result<Pool<Self>, UrlError> {
        let mut options = MySqlConnectOptions::new().disable_statement_logging();
        if let Some(socket) = location.take_socket(PORT) {
            options = options.socket(socket);
        }
        location.require_host("mysql://10.0.0.7/snowmint")?;
        let database = table::database(location)?;
        let name = format!("mysql://{}/{database}", location.shown_hosts());
        options = options.database(&database);
        if let Some(user) = location.user.take() {
            options = options.username(&user);
        }
        let password = location.take_password()?;
        options = tls(location, options)?;
        let limit = location.take_timeout()?;
        let may_lose = location.take_may_lose(Duration::ZERO)?;
        let flushes = Arc::new(FlushWatch::new(may_lose));
        let left = Arc::default();
        let settings = Self { options, password, limit, may_lose, flushes, left, crashes };
        Ok(Pool::new(settings, name, location.hosts.clone(), limit, may_lose))
    }
}

fn tls(location: &mut StoreUrl, mut options: MySqlConnectOptions) -> Result<MySqlConnectOptions, UrlError> {
    let mode = match location.take("ssl-mode").as_deref() {
        Some(text) => text.parse().map_err(|_| {
            location.malformed(
                "invalid ssl-mode: expected disabled, preferred, required, verify_ca or verify_identity",
            )
        })?,
        // A user who names an authority wants it to be checked.
        None if location.has("ssl-ca") => MySqlSslMode::VerifyIdentity,
        None => MySqlSslMode::Preferred,
    };
    let files = location.read_tls(["ssl-ca", "ssl-cert", "ssl-key"], None)?;
    let strict = !matches!(mode, MySqlSslMode::Disabled | MySqlSslMode::Preferred);
    if strict && cfg!(not(feature = "tls")) {
        return Err(location.malformed("this build has no TLS: enable the feature `tls`"));
    }
    options = options.ssl_mode(mode);
    if let Some(ca) = files.ca {
        options = options.ssl_ca_from_pem(ca.pem);
    }
    if let Some((cert, key)) = files.client {
        options = options.ssl_client_cert_from_pem(cert.pem).ssl_client_key_from_pem(key.pem);
    }
    Ok(options)
}

impl MySqlSettings {
    /// Returns why the server refused the login.
    fn refused_login(&self, error: &sqlx::Error) -> HostRefusal {
        let HostRefusal { kind, mut text } = refusal::<Self>(error);
        // A server takes the request for its key, which it expects without TLS only, for a wrong password.
        if self.is_without_tls() && error::is_denied(error) {
            text = format!("{text}; the server may require TLS; on MySQL, {NEEDS_TLS}");
        }
        HostRefusal { kind, text }
    }

    fn is_without_tls(&self) -> bool {
        matches!(self.options.get_ssl_mode(), MySqlSslMode::Disabled)
    }
}

impl Connect for MySqlSettings {
    const CONFIRMED_BY: &str = "enable semi-synchronous replication on it";
    type Connection = MySqlSession;
    type History = ClusterHistory;

    async fn connect(&self, host: Host) -> Connected<Self> {
        let mut options = self.options.clone().host(host.name()).port(host.port());
        if let Some(password) = self.password.current()? {
            options = options.password(password.expose());
        }
        let mut connection = options.connect().await.map_err(|error| self.refused_login(&error))?;
        set_up(&mut connection, self.limit, self.crashes.accepted(self.may_lose))
            .await
            .map_err(|error| refusal::<Self>(&error))?;
        let (flushes, left) = (Arc::clone(&self.flushes), Arc::clone(&self.left));
        let (session, history) =
            session::begin(connection, self.may_lose, self.crashes, flushes, left).await?;
        let (server, standing) = (Some(session.server.clone()), session.standing);
        Ok(Writable { connection: session, server, history, standing })
    }

    async fn answers(session: &mut MySqlSession) -> bool {
        session.sql.ping().await.is_ok()
    }

    fn standing(session: &MySqlSession) -> Standing {
        session.standing
    }

    fn confirmation(session: &mut MySqlSession) -> Option<Confirmation> {
        session.confirmation.take()
    }
}

/// Sets the variables that every session needs.
async fn set_up(connection: &mut MySqlConnection, limit: Duration, accepted: u64) -> Result<(), sqlx::Error> {
    // Under READ-UNCOMMITTED, which may be the default of the server, a read shows what is not committed.
    let isolation = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";
    sqlx::raw_sql(isolation).execute(&mut *connection).await?;
    // Some servers turn autocommit off for everybody. No call waits longer for a lock than its limit,
    // be it of a row or of the table (LOCK TABLES, FLUSH TABLES WITH READ LOCK).
    // A number out of the range of a column is an error rather than clipped.
    // MySQL shows the AUTO_INCREMENT of a table up to a day late; MariaDB reads the last part as a comment.
    let set = format!(
        "SET SESSION autocommit = 1, innodb_lock_wait_timeout = {0}, lock_wait_timeout = {0}, @snowmint_accepts = {accepted}, \
         sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES') \
         /*!80000 , information_schema_stats_expiry = 0 */",
        limit.as_secs().max(1)
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(set)).execute(connection).await?;
    Ok(())
}

/// Creates the table if it is missing, checks that it is ours, and makes the rows that reads commit.
pub(super) async fn prepare_table(pool: &Pool<MySqlSettings>) -> Result<(), StoreError> {
    let create = async |mut session: MySqlSession| {
        sqlx::raw_sql(TABLE).execute(&mut session.sql).await?;
        Ok(((), session))
    };
    check(pool, &table::ensure(pool, || inspect(pool), create).await?)?;
    let fence = async |mut session: MySqlSession| Ok((session.fence().await?, session));
    pool.run(Effect::Reads, fence).await.map_err(|failure| {
        let is_about_rights = error::is_missing_right(&failure);
        let error = pool.error(OPEN, Effect::Reads, failure, |_| None);
        if !is_about_rights {
            return error;
        }
        StoreError::new(error.kind(), OPEN, &*pool.name, MissingRight(error.cause().to_string()))
    })
}

/// Returns the cipher of the session; empty without TLS.
const CIPHER: &str = "SHOW SESSION STATUS LIKE 'Ssl_cipher'";
/// Every user may see their own plugin.
const LOGIN: &str = "SHOW CREATE USER CURRENT_USER()";

/// Warns of a login that fails once the server has restarted.
///
/// Without TLS, `caching_sha2_password` works only while the password is in the cache of the server, each of
/// which has its own: after a login over TLS, until the server restarts.
pub(super) async fn warn_of_cached_password(pool: &Pool<MySqlSettings>) {
    let ask = async |mut session: MySqlSession| {
        let cipher = sqlx::raw_sql(CIPHER).fetch_all(&mut session.sql).await?;
        let has_tls =
            cipher.iter().any(|row| row.try_get_unchecked::<String, _>(1).is_ok_and(|it| !it.is_empty()));
        let login =
            if has_tls { Vec::new() } else { sqlx::raw_sql(LOGIN).fetch_all(&mut session.sql).await? };
        let logins = login.iter().filter_map(|row| row.try_get_unchecked::<String, _>(0).ok());
        Ok((logins.collect::<Vec<_>>().join(" "), session))
    };
    // A server that does not answer this is no reason to fail.
    if let Ok(login) = pool.run(Effect::Reads, ask).await
        && login.contains("'caching_sha2_password'")
    {
        tracing::warn!(store = %pool.name, "the login of this node will fail after a restart of the server or a failover: {NEEDS_TLS}");
    }
}

/// Checks that the table exists and is ours, without writing.
pub(super) async fn check_table(pool: &Pool<MySqlSettings>) -> Result<(), StoreError> {
    let Some(found) = inspect(pool).await? else {
        let found = "the table snowmint_records is missing; a server creates it at its first start";
        return Err(table::refuse(&pool.name, found));
    };
    check(pool, &found)
}

/// Engine, columns, primary key; all three are `None` for a view.
type Inspected = (Option<String>, Option<String>, Option<String>);

async fn inspect(pool: &Pool<MySqlSettings>) -> Result<Option<Inspected>, StoreError> {
    let ask = async |mut session: MySqlSession| {
        Ok((at_most_one(sqlx::query_as(INSPECT).fetch_all(&mut session.sql)).await?, session))
    };
    pool.call(OPEN, Effect::Reads, ask).await
}

fn check(pool: &Pool<MySqlSettings>, (engine, columns, key): &Inspected) -> Result<(), StoreError> {
    let refuse = |found: String| Err(table::refuse(&pool.name, found));
    let columns = columns.as_deref().unwrap_or_default();
    if columns != COLUMNS {
        return refuse(format!(
            "the table snowmint_records belongs to another program: it has ({columns}), expected ({COLUMNS}); it was not changed; \
             use another database"
        ));
    }
    if key.as_deref() != Some("name") {
        return refuse("the table snowmint_records has no primary key; add one on (name)".to_owned());
    }
    if engine.as_deref() != Some("InnoDB") {
        let engine = engine.as_deref().unwrap_or("unknown");
        return refuse(format!(
            "the engine of the table snowmint_records is {engine}, which a crash may empty; \
             ALTER TABLE snowmint_records ENGINE = InnoDB"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_a_url_is_told_without_its_password() {
        let cases = [
            ("mysql://u:hunter2@h", "missing database"),
            ("mysql:///db", "missing host"),
            ("mysql://u:hunter2@h/db?ssl-mode=on", "invalid ssl-mode"),
            ("mysql://u:hunter2@h/db?ssl-ca=/nowhere", "ssl-ca=/nowhere: No such file"),
            ("mysql://u:hunter2@h/db?ssl-key=/nowhere", "require each other"),
            ("mysql://u:hunter2@h/db?ssl=1", "unknown parameter `ssl`"),
            ("mysql://u@h/db?password_file=/nowhere", "password_file /nowhere: No such file"),
        ];
        for (url, wanted) in cases {
            let error =
                MySqlSettings::parse(url, CrashLoss::AsStated).map(|it| it.name).unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn a_name_for_logs_has_no_password() {
        let name = |url| MySqlSettings::parse(url, CrashLoss::AsStated).map(|it| it.name).unwrap();
        assert_eq!(name("mariadb://u:hunter2@h1,h2:1/db"), "mysql://h1:3306,h2:1/db");
    }
}
