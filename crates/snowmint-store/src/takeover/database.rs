//! A table of another system in MySQL or MariaDB: its URL, its statements, and its errors.
//! The session is the same as for our own store: strict, on a server that accepts writes.

use super::Source;
use crate::error::{Effect, Retries};
use crate::mysql::MySqlSettings;
use crate::mysql::connect::PARAMETERS;
use crate::mysql::error;
use crate::mysql::session::{CrashLoss, MySqlSession};
use crate::net::url::StoreUrl;
use crate::sql::at_most_one;
use crate::sql::failure::SqlFailure;
use crate::sql::pool::Pool;
use crate::{OpenError, StoreError, StoreErrorKind, UrlError};

/// The name in errors of the call that reserves numbers.
pub(super) const RESERVE: &str = "reserve";

/// The engine of a table; a view has none.
const ENGINE: &str = "SELECT CAST(engine AS CHAR) FROM information_schema.tables \
    WHERE table_schema = DATABASE() AND table_name = ?";

/// The properties of a system that are known before a URL is read.
pub(super) struct ForeignSystem {
    pub(super) source: Source,
    /// The parameters besides those of the connection.
    pub(super) parameters: &'static str,
    /// The rights on its table that counting needs.
    pub(super) rights: &'static str,
}

/// The purpose of opening a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TablePurpose {
    /// To count in it.
    Draw,
    /// To read its position.
    Survey,
}

/// A table of a system, and the connections to its database.
pub(super) struct ForeignTable {
    /// Its name lacks the part that distinguishes the counters in the table.
    pool: Pool<MySqlSettings>,
    system: &'static ForeignSystem,
    pub(super) table: String,
    /// Whether a server that may lose commits in a crash is refused.
    must_keep: bool,
}

impl ForeignTable {
    /// Parses a URL as [`parse`](Self::parse) does, to count in the table. Refuses a table that may lose
    /// commits in a crash.
    pub(super) async fn open<T>(
        system: &'static ForeignSystem,
        url: &str,
        take: impl FnOnce(&mut StoreUrl) -> Result<(String, T), UrlError>,
    ) -> Result<(Self, T), OpenError> {
        let (database, taken) = Self::parse(system, TablePurpose::Draw, url, take)?;
        if database.must_keep {
            database.check_engine().await?;
        }
        Ok((database, taken))
    }

    /// Refuses a table whose engine may lose what it acknowledges. A missing table is reported by later
    /// calls.
    async fn check_engine(&self) -> Result<(), StoreError> {
        const OPERATION: &str = "open";
        let ask = async |mut session: MySqlSession| {
            let query = sqlx::query_scalar::<_, Option<String>>(ENGINE).bind(&self.table);
            Ok((at_most_one(query.fetch_all(&mut session.sql)).await?, session))
        };
        let table = &self.table;
        let found = match self.run(OPERATION, Effect::Reads, ask).await? {
            None => return Ok(()),
            Some(Some(engine)) if engine.eq_ignore_ascii_case("InnoDB") => return Ok(()),
            Some(Some(engine)) => format!(
                "the engine of the table {table} is {engine}, which may lose acknowledged writes in a crash and cause \
                 duplicates; ALTER TABLE {table} ENGINE = InnoDB, or accept the loss with durable=no"
            ),
            Some(None) => format!(
                "{table} is a view of unknown engine, and one other than InnoDB may lose acknowledged writes in a crash; \
                 use the database that has the table, or accept the loss with durable=no"
            ),
        };
        Err(self.error(StoreErrorKind::Other, OPERATION, found))
    }

    /// Parses a URL; `take` takes the parameters of the system out of it, and returns the name of its table.
    pub(super) fn parse<T>(
        system: &'static ForeignSystem,
        purpose: TablePurpose,
        url: &str,
        take: impl FnOnce(&mut StoreUrl) -> Result<(String, T), UrlError>,
    ) -> Result<(Self, T), UrlError> {
        let url = super::inner(&system.source, url, &["mysql", "mariadb"])?;
        let mut location = MySqlSettings::location(url)?;
        let (table, taken) = take(&mut location)?;
        let is_durable = location.take_durable()?;
        let crashes = match purpose {
            TablePurpose::Survey => CrashLoss::Unused,
            TablePurpose::Draw if is_durable => CrashLoss::Nothing,
            TablePurpose::Draw => CrashLoss::Anything,
        };
        let mut pool = MySqlSettings::take(&mut location, crashes)?;
        if !pool.may_lose.is_zero() {
            return Err(location.malformed(
                "invalid may_lose: expected 0, since this table has no room for marks that show which reservations survived a \
                 failover; let the database wait for its replicas, or move the numbers with snowmint import",
            ));
        }
        location.finish(&format!("{}, durable, {PARAMETERS}", system.parameters))?;
        pool.name = format!("{}:{}", system.source.name, pool.name);
        let must_keep = crashes == CrashLoss::Nothing;
        Ok((Self { pool, system, table, must_keep }, taken))
    }

    /// Runs a statement, and retries it after a deadlock: the server ended the statement, which wrote
    /// nothing.
    pub(super) async fn run<T, F>(
        &self,
        operation: &'static str,
        effect: Effect,
        ask: impl Fn(MySqlSession) -> F + Send + Sync,
    ) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<(T, MySqlSession), SqlFailure>> + Send,
    {
        let advice = |said: &_| error::foreign_advice(said, &self.table, self.system.rights);
        let mut retries = Retries::new();
        loop {
            match self.pool.run(effect, &ask).await {
                Err(failure) if error::is_deadlock(&failure) && retries.pause().await.is_ok() => {}
                answer => {
                    return answer.map_err(|failure| self.pool.error(operation, effect, failure, advice));
                }
            }
        }
    }

    /// Waits after other writers of a row were faster, or fails when the call has retried for too long.
    pub(super) async fn pause(
        &self,
        retries: &mut Retries,
        operation: &'static str,
        row: &str,
    ) -> Result<(), StoreError> {
        retries.pause_call(operation, &self.pool.name, row).await
    }

    /// See [`Store::server`](crate::Store::server).
    pub(super) fn server(&self) -> Option<String> {
        self.pool.server()
    }

    pub(super) fn error(&self, kind: StoreErrorKind, operation: &'static str, found: String) -> StoreError {
        StoreError::new(kind, operation, &*self.pool.name, found)
    }

    /// Returns the name with the part that distinguishes this counter in the table.
    pub(super) fn shown(&self, which: &str) -> String {
        format!("{}?{which}", self.pool.name)
    }

    /// Checks a number of the table.
    pub(super) fn number(
        &self,
        operation: &'static str,
        row: &str,
        column: &str,
        found: i64,
    ) -> Result<u64, StoreError> {
        u64::try_from(found).map_err(|_| {
            let found = format!("invalid {column} {found} in {} at {row}: expected at least 0", self.table);
            self.error(StoreErrorKind::Corrupt, operation, found)
        })
    }

    /// Returns the error for a number above the maximum.
    pub(super) fn spent(&self, operation: &'static str, row: &str, at: u64) -> StoreError {
        let found = format!("{} is at {at} at {row}: it would exceed {}", self.table, crate::MAX_NUMBER);
        self.error(StoreErrorKind::Full, operation, found)
    }
}

/// Removes a parameter that is required.
pub(super) fn required(
    location: &mut StoreUrl,
    system: &ForeignSystem,
    name: &str,
) -> Result<String, UrlError> {
    match location.take(name).filter(|it| !it.is_empty()) {
        Some(value) => Ok(value),
        None => Err(location.malformed(&format!("missing {name}: expected {}", system.source.form))),
    }
}
