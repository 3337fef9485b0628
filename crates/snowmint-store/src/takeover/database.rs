//! A table of another system in a MySQL or MariaDB: how it is named, asked, and complained about.
//! The session is that of our own store there: strict, on a server that can be written.

use crate::error::Effect;
use crate::mysql::connect::{PARAMETERS, Settings};
use crate::mysql::error;
use crate::mysql::session::{CrashLoss, Session};
use crate::net::url::Location;
use crate::retry::Retries;
use crate::sql::at_most_one;
use crate::sql::{Failure, Pool};
use crate::{OpenError, StoreError, StoreErrorKind, UrlError};

/// The call that takes numbers, as errors name it.
pub(super) const RESERVE: &str = "reserve";

/// The engine of a table; none in a view.
const ENGINE: &str = "SELECT CAST(engine AS CHAR) FROM information_schema.tables \
    WHERE table_schema = DATABASE() AND table_name = ?";

/// What is known of a system before a URL is looked at.
pub(super) struct System {
    /// Its name, which begins its URLs.
    pub(super) source: &'static str,
    /// What a URL of it looks like.
    pub(super) form: &'static str,
    /// The parameters besides those of the connection.
    pub(super) parameters: &'static str,
    /// The rights that it takes to count in its table.
    pub(super) rights: &'static str,
}

/// What a table is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// To count in it.
    Draw,
    /// To see where it is.
    Survey,
}

/// A table of a system, and the connections to its database.
pub(super) struct Database {
    pool: Pool<Settings>,
    /// The URL without what nobody may see, and without what tells one counter from another.
    name: String,
    system: &'static System,
    pub(super) table: String,
    /// Whether a crash may take nothing back.
    must_keep: bool,
}

impl Database {
    /// Takes a URL apart as [`parse`](Self::parse) does, to count in the table: one that a crash may set back is refused.
    pub(super) async fn open<T>(
        system: &'static System,
        url: &str,
        take: impl FnOnce(&mut Location) -> Result<(String, T), UrlError>,
    ) -> Result<(Self, T), OpenError> {
        let (database, taken) = Self::parse(system, Purpose::Draw, url, take)?;
        if database.must_keep {
            database.check_engine().await?;
        }
        Ok((database, taken))
    }

    /// Refuses a table whose engine keeps less than it acknowledges. One that is not there is for others to tell.
    async fn check_engine(&self) -> Result<(), StoreError> {
        const OPERATION: &str = "open";
        let ask = async |mut session: Session| {
            let query = sqlx::query_scalar::<_, Option<String>>(ENGINE).bind(&self.table);
            let row = at_most_one(query.fetch_all(&mut session.sql)).await;
            (session, row)
        };
        let table = &self.table;
        let found = match self.run(OPERATION, Effect::Reads, ask).await? {
            None => return Ok(()),
            Some(Some(engine)) if engine.eq_ignore_ascii_case("InnoDB") => return Ok(()),
            Some(Some(engine)) => format!(
                "the engine of the table {table} is {engine}, which may lose acknowledged writes in a crash and then \
                 produce duplicates; ALTER TABLE {table} ENGINE = InnoDB, or accept the loss with durable=no"
            ),
            Some(None) => format!(
                "{table} is a view, so its engine is unknown, and one other than InnoDB may lose acknowledged writes in a \
                 crash; use the database that has the table, or accept the loss with durable=no"
            ),
        };
        Err(self.error(StoreErrorKind::Other, OPERATION, found))
    }

    /// Takes a URL apart; `take` takes out the parameters of the system and the name of its table.
    pub(super) fn parse<T>(
        system: &'static System,
        purpose: Purpose,
        url: &str,
        take: impl FnOnce(&mut Location) -> Result<(String, T), UrlError>,
    ) -> Result<(Self, T), UrlError> {
        let url = super::inner(system.source, system.form, url, &["mysql", "mariadb"])?;
        let mut location = Settings::location(url)?;
        let (table, taken) = take(&mut location)?;
        let is_durable = location.take_durable()?;
        let crashes = match purpose {
            Purpose::Survey => CrashLoss::Unused,
            Purpose::Draw if is_durable => CrashLoss::Nothing,
            Purpose::Draw => CrashLoss::Anything,
        };
        let (pool, name) = Settings::take(&mut location, crashes)?;
        if !pool.may_lose.is_zero() {
            return Err(location.malformed(
                "invalid may_lose: expected 0, since this table has no place for the marks that show which reservations \
                 survived a failover; let the database wait for its replicas, or move the numbers with snowmint import",
            ));
        }
        location.finish(&format!("{}, {PARAMETERS} and durable", system.parameters))?;
        let name = format!("{}:{name}", system.source);
        let must_keep = crashes == CrashLoss::Nothing;
        Ok((Self { pool, name, system, table, must_keep }, taken))
    }

    /// Runs a statement. One that met others in a deadlock is run again: the server ended it, and it wrote nothing.
    pub(super) async fn run<T, E, F>(
        &self,
        operation: &'static str,
        effect: Effect,
        ask: impl Fn(Session) -> F + Send + Sync,
    ) -> Result<T, StoreError>
    where
        T: Send,
        E: Into<Failure> + Send,
        F: Future<Output = (Session, Result<T, E>)> + Send,
    {
        let about = (&*self.name, &*self.table, self.system.rights);
        let mut retries = Retries::new();
        loop {
            match self.pool.run(effect, &ask).await {
                Err(failure) if error::is_deadlock(&failure) && retries.pause().await.is_ok() => {}
                answer => {
                    return answer.map_err(|failure| error::foreign_error(about, operation, effect, failure));
                }
            }
        }
    }

    /// See [`Store::server`](crate::Store::server).
    pub(super) fn server(&self) -> Option<String> {
        self.pool.server()
    }

    pub(super) fn error(&self, kind: StoreErrorKind, operation: &'static str, found: String) -> StoreError {
        StoreError::new(kind, operation, &*self.name, found)
    }

    /// The name with what tells this counter from others in the same table.
    pub(super) fn shown(&self, which: &str) -> String {
        format!("{}?{which}", self.name)
    }

    /// A number of the table that has to be one of ours.
    pub(super) fn number(
        &self,
        operation: &'static str,
        row: &str,
        column: &str,
        found: i64,
    ) -> Result<u64, StoreError> {
        u64::try_from(found).map_err(|_| {
            let found = format!("{} has {column} {found} at {row}, and numbers begin at 0", self.table);
            self.error(StoreErrorKind::Corrupt, operation, found)
        })
    }

    /// The refusal of a number beyond the last one.
    pub(super) fn spent(&self, row: &str, at: u64) -> StoreError {
        let found = format!(
            "{} is at {at} at {row}, and as many more would go beyond {}",
            self.table,
            crate::MAX_NUMBER
        );
        self.error(StoreErrorKind::Full, RESERVE, found)
    }
}

/// A parameter that has to be there.
pub(super) fn required(location: &mut Location, system: &System, name: &str) -> Result<String, UrlError> {
    match location.take(name).filter(|it| !it.is_empty()) {
        Some(value) => Ok(value),
        None => Err(location.malformed(&format!("needs {name}=, such as {}", system.form))),
    }
}
