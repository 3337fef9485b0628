//! Parses the URL, opens sessions on a primary, and prepares the table of the records.
//! A session keeps no settings: each message sets what its statement needs.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Connection, FromRow};

use super::error::FSYNC_OFF;
use super::session::{self, Guard, PostgresSession, STARTED};
use super::{PostgresSettings, TABLE, error};
use crate::error::Effect;
use crate::net::url::{Host, StoreUrl};
use crate::net::{Confirmation, HostRefusal, ServerHistory, Standing, Writable};
use crate::sql::failure::refusal;
use crate::sql::pool::{Connect, Connected, Pool};
use crate::sql::table::OPEN;
use crate::sql::{exactly_one, table};
use crate::{StoreError, StoreErrorKind, UrlError};

const PORT: u16 = 5432;
const PARAMETERS: &str =
    "password_file, may_lose, durable, sslmode, sslrootcert, sslcert, sslkey, socket and timeout_ms";

/// The variables of the environment that sqlx sends, or uses to authenticate.
const SENT: [&str; 3] = ["PGOPTIONS", "PGSSLCERT", "PGSSLKEY"];

/// Returns the first message to a server. Its settings end with this message, as another program may use the
/// session next.
///
/// A cancelled call leaves a session on the server that still waits for the standby. To limit their number,
/// each new session terminates those with its own name that have waited longer than a call may take. The name
/// includes that limit, so no call of any node still waits for them. A pooler may add the address of its
/// client to the name. Terminated reads wrote only the fence. The outcome of a write was unknown and stays
/// so: the end of its wait makes its row visible, and no read relies on a row before a standby has it.
///
/// The COMMIT only produces a warning, to check that warnings arrive. Everything is in one message, without
/// parameters.
fn begin(sessions: &str, limit: Duration) -> String {
    let limit = limit.as_millis();
    format!(
        "SET LOCAL client_min_messages = warning; \
        SELECT pg_backend_pid(), pg_is_in_recovery(), {STARTED}, current_setting('fsync'), \
        current_setting('synchronous_commit'), current_setting('synchronous_standby_names') <> '', \
        (SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
            WHERE (application_name = '{sessions}' OR application_name LIKE '{sessions} - %') \
            AND usename = session_user AND pid <> pg_backend_pid() \
            AND wait_event = 'SyncRep' AND query_start < clock_timestamp() - {limit} * interval '1 millisecond'); \
        COMMIT"
    )
}

/// The report of a server: the process of the session, whether it is a standby, when it started, whether it
/// syncs, how commits wait by default, and whether there are standbys to wait for.
type ServerReport = (i32, bool, i64, String, String, bool);

/// Reads the state of the table: the name with its schema, the other schemas in which nodes may find it,
/// kind, persistence, columns, and whether names are unique.
const INSPECT: &str = "SELECT format('%I.%I', s.nspname, c.relname), \
    (SELECT coalesce(string_agg(quote_ident(n.nspname), ', ' ORDER BY n.nspname), '') \
        FROM pg_class b JOIN pg_namespace n ON n.oid = b.relnamespace \
        WHERE b.relname = c.relname AND b.oid <> c.oid AND n.nspname = ANY (current_schemas(false))), \
    c.relkind::text, c.relpersistence::text, \
    (SELECT coalesce(string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), \
            CASE WHEN a.attname = 'name' THEN o.collname END), ', ' ORDER BY a.attname), '') \
        FROM pg_attribute a LEFT JOIN pg_collation o ON o.oid = a.attcollation \
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), \
    EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] \
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL \
        AND i.indnkeyatts = 1 AND a.attname = 'name') \
    FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE c.oid = to_regclass('snowmint_records')";
const COLUMNS: &str = "name text C, revision bigint, value bytea";

impl PostgresSettings {
    /// Parses `postgres://...` of a store.
    pub(super) fn parse(url: &str) -> Result<Pool<Self>, UrlError> {
        let mut location = StoreUrl::of_url(url, &["postgres"], PORT)?;
        let limit = location.take_timeout()?;
        let sessions = format!("snowmint-{}ms", limit.as_millis());
        // Some poolers refuse extra_float_digits, which is not needed here.
        let mut options = PgConnectOptions::new_without_pgpass()
            .application_name(&sessions)
            .extra_float_digits(None)
            .disable_statement_logging();
        if let Some(socket) = location.take_socket(PORT) {
            options = options.socket(socket);
        }
        location.require_host("postgres://10.0.0.7/snowmint")?;
        let database = table::database(&location)?;
        let name = format!("postgres://{}/{database}", location.shown_hosts());
        options = options.database(&database);
        if let Some(user) = location.user.take() {
            options = options.username(&user);
        }
        let password = location.take_password()?;
        if !location.uses_environment {
            // sqlx has read the variables of libpq. The password can be replaced, but these cannot.
            if let Some(name) = SENT.into_iter().find(|name| std::env::var_os(name).is_some()) {
                return Err(
                    location.malformed(&format!("{name} is set, which a source must not get: unset it"))
                );
            }
            options = options.password("");
        }
        options = tls(&mut location, options)?;
        let may_lose = location.take_may_lose(Duration::ZERO)?;
        let must_keep = location.take_durable()?;
        location.finish(PARAMETERS)?;
        let settings = Self { options, password, sessions, limit, must_keep };
        Ok(Pool::new(settings, name, location.hosts, limit, may_lose))
    }
}

fn tls(location: &mut StoreUrl, mut options: PgConnectOptions) -> Result<PgConnectOptions, UrlError> {
    let mode = match location.take("sslmode").as_deref() {
        // As in libpq: a CA that the URL names is checked.
        Some("require") if location.has("sslrootcert") => PgSslMode::VerifyCa,
        Some(text) => text.parse().map_err(|_| {
            location.malformed(
                "invalid sslmode: expected disable, allow, prefer, require, verify-ca or verify-full",
            )
        })?,
        // A user who names a CA wants it to be checked.
        None if location.has("sslrootcert") => PgSslMode::VerifyFull,
        None => PgSslMode::Prefer,
    };
    let files = location.read_tls(["sslrootcert", "sslcert", "sslkey"], None)?;
    let strict = matches!(mode, PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    if strict && cfg!(not(feature = "tls")) {
        return Err(location.malformed("this build has no TLS: enable the feature `tls`"));
    }
    options = options.ssl_mode(mode);
    if let Some(ca) = files.ca {
        options = options.ssl_root_cert_from_pem(ca.pem);
    }
    if let Some((cert, key)) = files.client {
        options = options.ssl_client_cert_from_pem(cert.pem).ssl_client_key_from_pem(key.pem);
    }
    Ok(options)
}

impl Connect for PostgresSettings {
    const CONFIRMED_BY: &str = "set synchronous_standby_names on it";
    type Connection = PostgresSession;
    type History = PostgresHistory;

    async fn connect(&self, host: Host) -> Connected<Self> {
        let mut options = self.options.clone().host(host.name()).port(host.port());
        if let Some(password) = self.password.current()? {
            options = options.password(password.expose());
        }
        let mut connection = options.connect().await.map_err(|error| refusal::<Self>(&error))?;
        let begin = sqlx::raw_sql(sqlx::AssertSqlSafe(begin(&self.sessions, self.limit)));
        let row = session::hearing(exactly_one(begin.fetch_all(&mut connection))).await?;
        let (process, in_recovery, started, fsync, commit, has_standbys) =
            ServerReport::from_row(&row).map_err(|error| refusal::<Self>(&error))?;
        // Its answers may lag behind the primary, so it must not be read either.
        if in_recovery {
            let text = "is a read-only standby; use the primary, or name both hosts, separated by a comma";
            return Err(HostRefusal::new(StoreErrorKind::ReadOnly, text));
        }
        if fsync == "off" && self.must_keep {
            return Err(HostRefusal::new(StoreErrorKind::Other, FSYNC_OFF));
        }
        let history = PostgresHistory::of(&mut connection).await?;
        // No two servers start in the same microsecond. Everything else is equal on a standby and its
        // primary.
        let confirmation = super::confirmation(has_standbys);
        let guard = Guard { process, started, must_keep: self.must_keep };
        let connection = PostgresSession::new(connection, guard, &commit, self.limit, confirmation);
        Ok(Writable { connection, server: Some(started.to_string()), history, standing: Standing::Kept })
    }

    async fn answers(session: &mut PostgresSession) -> bool {
        session.sql.ping().await.is_ok()
    }

    fn confirmation(session: &mut PostgresSession) -> Option<Confirmation> {
        session.confirmation.take()
    }
}

/// Creates the table if it is missing, checks that it belongs to Snowmint, and returns its name with the
/// schema.
pub(super) async fn prepare_table(pool: &Pool<PostgresSettings>) -> Result<String, StoreError> {
    let inspect = async || Ok(super::rows(pool, OPEN, Effect::Reads, INSPECT).await?.into_iter().next());
    let create = async |mut session: PostgresSession| {
        session.execute(TABLE).await?;
        Ok(((), session))
    };
    check(&pool.name, table::ensure(pool, inspect, create).await?)
}

/// Name with schema, other schemas, kind, persistence, columns, whether names are unique.
type Inspected = (String, String, String, String, String, bool);

fn check(store: &str, found: Inspected) -> Result<String, StoreError> {
    let refuse = |found: String| Err(table::refuse(store, found));
    let (table, others, kind, persistence, columns, unique) = found;
    if columns != COLUMNS || !matches!(&*kind, "r" | "p") {
        return refuse(format!(
            "the table snowmint_records belongs to another program: it has ({columns}), expected ({COLUMNS}); it was not changed; \
             use another database, or another schema by the search_path of the user"
        ));
    }
    if !unique {
        return refuse("the table snowmint_records has no primary key; add one on (name)".to_owned());
    }
    if persistence != "p" {
        let found = "the table snowmint_records is unlogged or temporary: a crash would empty it; \
            ALTER TABLE snowmint_records SET LOGGED";
        return refuse(found.to_owned());
    }
    if !others.is_empty() {
        return refuse(format!(
            "the search_path of the user finds {table}, and a table of that name in {others} too: nodes may use different \
             tables and produce duplicates; drop or rename the unused table, or limit the search_path to one schema: \
             ALTER ROLE ... SET search_path = ..."
        ));
    }
    Ok(table)
}

/// Any user may run this, unless that right was revoked. The name of the current log file contains the
/// timeline; `pg_control_checkpoint()` shows the old one until the first checkpoint after a promotion.
const HISTORY: &str = "SELECT (SELECT system_identifier FROM pg_control_system()), \
    (SELECT oid::bigint FROM pg_database WHERE datname = current_database()), \
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint";

/// The extent of a server's history; unknown if the server does not show it.
#[derive(Default, Debug)]
pub(super) struct PostgresHistory {
    known: Option<KnownTimeline>,
}

#[derive(Clone, Copy, Debug)]
struct KnownTimeline {
    system: i64,
    /// The number of the database, since a copy may have the same name.
    database: i64,
    timeline: i64,
}

impl PostgresHistory {
    /// Queries a primary. A database that only speaks the PostgreSQL protocol may have no timeline.
    pub(super) async fn of(connection: &mut PgConnection) -> Result<Self, HostRefusal> {
        let row = exactly_one(sqlx::raw_sql(HISTORY).fetch_all(connection)).await;
        match row.and_then(|row| <(i64, i64, i64)>::from_row(&row)) {
            Ok((system, database, timeline)) => {
                Ok(Self { known: Some(KnownTimeline { system, database, timeline }) })
            }
            Err(error) if error::is_not_offered(&error) => Ok(Self::default()),
            Err(error) => Err(refusal::<PostgresSettings>(&error)),
        }
    }
}

impl ServerHistory for PostgresHistory {
    fn lacks(&self, seen: &Self) -> Option<String> {
        let seen = seen.known?;
        let Some(KnownTimeline { system, database, timeline }) = self.known else {
            return Some(format!(
                "does not show its timeline, and this node has seen timeline {}",
                seen.timeline
            ));
        };
        if system != seen.system {
            let seen = seen.system;
            return Some(format!("has another database (system {system}, and this node has seen {seen})"));
        }
        if database != seen.database {
            let seen = seen.database;
            return Some(format!(
                "has another database of this name (number {database}, and this node has seen {seen})"
            ));
        }
        (timeline < seen.timeline)
            .then(|| format!("is on timeline {timeline}, and this node has seen timeline {}", seen.timeline))
    }

    fn merge(&mut self, other: Self) {
        let before = self.known.map_or(0, |it| it.timeline);
        if let Some(KnownTimeline { system, database, timeline }) = other.known {
            self.known = Some(KnownTimeline { system, database, timeline: timeline.max(before) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_a_url_is_told_without_its_password() {
        let cases = [
            ("postgres://u:hunter2@h", "missing database"),
            ("postgres://u:hunter2@h/a/b", "missing database"),
            ("postgres:///db", "missing host"),
            ("postgres://u:hunter2@h/db?sslmode=on", "invalid sslmode"),
            ("postgres://u:hunter2@h/db?sslrootcert=/nowhere", "sslrootcert=/nowhere: No such file"),
            ("postgres://u:hunter2@h/db?sslcert=/nowhere", "require each other"),
            ("postgres://u:hunter2@h/db?durable=maybe", "invalid durable"),
            ("postgres://u:hunter2@h/db?ssl=1", "unknown parameter `ssl`"),
            ("postgres://u@h/db?password_file=/nowhere", "password_file /nowhere: No such file"),
        ];
        for (url, wanted) in cases {
            let error = PostgresSettings::parse(url).map(|it| it.name).unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn a_name_for_logs_has_no_password() {
        let name = |url| PostgresSettings::parse(url).map(|it| it.name).unwrap();
        assert_eq!(name("postgres://u:hunter2@h1,h2:1/db"), "postgres://h1:5432,h2:1/db");
        assert_eq!(name("postgres:///db?socket=/run"), "postgres://localhost:5432/db");
    }

    fn history(system: i64, timeline: i64) -> PostgresHistory {
        PostgresHistory { known: Some(KnownTimeline { system, database: 5, timeline }) }
    }

    #[test]
    fn a_lower_timeline_or_another_database_lacks_what_was_seen() {
        let mut seen = PostgresHistory::default();
        assert_eq!(history(7, 1).lacks(&seen), None);
        for timeline in [2, 1] {
            seen.merge(history(7, timeline));
        }
        seen.merge(PostgresHistory::default());
        assert_eq!(history(7, 2).lacks(&seen), None);
        assert_eq!(history(7, 3).lacks(&seen), None);
        let lack = history(7, 1).lacks(&seen).unwrap();
        assert_eq!(lack, "is on timeline 1, and this node has seen timeline 2");
        assert!(history(8, 3).lacks(&seen).unwrap().contains("another database"));
        let copy = PostgresHistory { known: Some(KnownTimeline { system: 7, database: 6, timeline: 2 }) };
        assert_eq!(
            copy.lacks(&seen).unwrap(),
            "has another database of this name (number 6, and this node has seen 5)"
        );
        assert!(PostgresHistory::default().lacks(&seen).unwrap().contains("does not show"));
        assert_eq!(PostgresHistory::default().lacks(&PostgresHistory::default()), None);
    }
}
