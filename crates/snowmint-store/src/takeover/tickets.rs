//! A ticket table: one row that is replaced for each number, which comes from the server's `AUTO_INCREMENT`.
//! As at Flickr:
//! <https://code.flickr.net/2010/02/08/ticket-servers-distributed-unique-primary-keys-on-the-cheap/>.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::AssertSqlSafe;

use super::database::{ForeignSystem, ForeignTable, RESERVE, TablePurpose};
use super::{Source, Survey, Surveyed};
use crate::error::Effect;
use crate::mysql::error;
use crate::mysql::session::{MySqlSession, may_write};
use crate::net::url::StoreUrl;
use crate::sql::failure::SqlFailure;
use crate::sql::{at_most_one, exactly_one};
use crate::{Counter, MAX_NUMBER, OpenError, Segment, StoreError, StoreErrorKind, UrlError};

pub(super) const SOURCE: Source = Source {
    name: "tickets",
    form: "tickets:mysql://HOST/DATABASE?table=Tickets64&stub=a",
    open: |url| Box::pin(async move { Ok(Arc::new(TicketsCounter::open(url).await?) as Arc<dyn Counter>) }),
    survey: |url| Box::pin(async move { Ok(Survey::of(survey(url).await?)) }),
};
static SYSTEM: ForeignSystem =
    ForeignSystem { source: SOURCE, parameters: "table, stub", rights: "SELECT, INSERT, UPDATE and DELETE" };
const TABLE: &str = "Tickets64";
const STUB: &str = "a";

/// The counting column, and its type.
const COLUMN: &str = "SELECT CAST(column_name AS CHAR), CAST(column_type AS CHAR) FROM information_schema.columns \
    WHERE table_schema = DATABASE() AND table_name = ? AND extra LIKE '%auto_increment%'";
const EXISTS: &str = "SELECT COUNT(*) FROM information_schema.tables \
    WHERE table_schema = DATABASE() AND table_name = ?";
/// The affected rows of an `INSERT ... ON DUPLICATE KEY UPDATE` that changed a row. A new row counts as 1,
/// and so does one that stays as it is, because sqlx makes the server count found rows.
const CHANGED: u64 = 2;

/// A counter in a table of tickets: `REPLACE INTO Tickets64 (stub)` and `LAST_INSERT_ID()`.
///
/// Each server returns the numbers that its `auto_increment_increment` and `auto_increment_offset` allow: two
/// servers with increment 2 and offsets 1 and 2 are two counters without a common number. Other programs may
/// draw tickets from the same table at the same time.
///
/// Tickets are drawn one at a time, whatever the count: no server promises consecutive numbers for several
/// rows of one `REPLACE`.
///
/// The counter never returns the greatest number of the column's type. A server that has reached it may
/// return it again for the next ticket: where `INSERT` fails, `REPLACE` replaces the row that has it.
///
/// # URL
///
/// `tickets:mysql://USER@HOST:PORT/DATABASE?table=Tickets64&stub=a&...`, with the parameters of
/// [`MySqlStore`](crate::MySqlStore). The default table is `Tickets64`, and the default stub `a`.
pub struct TicketsCounter {
    database: ForeignTable,
    stub: String,
    /// The counting column.
    column: String,
    /// All tickets are below this number.
    end: u64,
}

/// The counting column.
struct TicketColumn {
    name: String,
    /// The greatest number of its type.
    greatest: u64,
}

impl TicketsCounter {
    /// Parses the URL, connects, and inspects the table. Nothing is written.
    ///
    /// # Errors
    ///
    /// - [`OpenError::Url`]: a mistake in the URL.
    /// - [`OpenError::Store`], [`StoreErrorKind::Other`]: no such table, or one without an `AUTO_INCREMENT`
    ///   column.
    /// - [`OpenError::Store`], other kinds: as for [`MySqlStore::open`](crate::MySqlStore::open).
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let (database, stub) = ForeignTable::open(&SYSTEM, url, parameters).await?;
        let column = column(&database, "open").await?;
        let end = column.greatest.min(MAX_NUMBER + 1);
        let stub = stub.unwrap_or_else(|| STUB.to_owned());
        Ok(Self { database, stub, column: column.name, end })
    }

    /// Draws a ticket. Returns it, and the distance to the next one; ticket 0 means that the table does not
    /// count.
    async fn draw(&self, session: &mut MySqlSession) -> Result<(u64, u64), SqlFailure> {
        // Set to 0 first: if REPLACE counts nothing, an older number would still be there. Uses VALUES with a
        // sum that fails, because REPLACE ... SELECT would lock the counter of the table until it ends.
        let sql = format!(
            "DO LAST_INSERT_ID(0); REPLACE INTO `{}` (stub) VALUES (CASE WHEN {} THEN '{}' ELSE ~0 + 1 END); \
             SELECT LAST_INSERT_ID(), CAST(@@auto_increment_increment AS UNSIGNED)",
            self.database.table,
            may_write!(),
            self.stub
        );
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut session.sql).await;
        let numbers = rows.and_then(|rows| match &*rows {
            [row] => <(u64, u64) as sqlx::FromRow<_>>::from_row(row),
            _ => Err(sqlx::Error::RowNotFound),
        });
        match numbers {
            Err(error) if error::is_out_of_range(&error) => Err(session.refusal().await),
            numbers => session.settle(numbers, |(ticket, _)| *ticket > 0).await,
        }
    }
}

#[async_trait]
impl Counter for TicketsCounter {
    async fn reserve(&self, _count: NonZeroU64) -> Result<Segment, StoreError> {
        let ask = async |mut session: MySqlSession| Ok((self.draw(&mut session).await?, session));
        let (ticket, step) = self.database.run(RESERVE, Effect::Writes, ask).await?;
        let table = &self.database.table;
        if ticket == 0 {
            let found = format!("the table {table} no longer has an AUTO_INCREMENT column");
            return Err(self.database.error(StoreErrorKind::Corrupt, RESERVE, found));
        }
        let step = NonZeroU64::new(step).unwrap_or(NonZeroU64::MIN);
        let segment = Segment::new(ticket, step, NonZeroU64::MIN).filter(|_| ticket < self.end);
        segment.ok_or_else(|| {
            let found = format!(
                "{table} gave ticket {ticket}, and the server may repeat tickets above {}; make the column a BIGINT \
                 UNSIGNED if it is narrower",
                self.end - 1
            );
            self.database.error(StoreErrorKind::Full, RESERVE, found)
        })
    }

    /// Gives the row of the stub this number, unless it has a greater one: the server continues from the
    /// greatest number that it has seen. Some servers forget that in a restart and continue from the greatest
    /// row, so no row is ever lowered.
    async fn raise_above(&self, number: u64) -> Result<bool, StoreError> {
        if number >= self.end {
            return Ok(false);
        }
        let ForeignTable { table, .. } = &self.database;
        let sql = format!(
            "INSERT INTO `{table}` (`{column}`, stub) VALUES (CASE WHEN {} THEN {number} ELSE ~0 + 1 END, '{}') \
             ON DUPLICATE KEY UPDATE `{column}` = GREATEST(`{column}`, {number})",
            may_write!(),
            self.stub,
            column = self.column,
        );
        let ask = async |mut session: MySqlSession| {
            let done = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut session.sql).await;
            let done = match done {
                Err(error) if error::is_out_of_range(&error) => return Err(session.refusal().await),
                done => session.settle(done, |_| true).await?,
            };
            // If the row was already above the number, nothing was committed: only another commit shows that
            // the row is on the disk, and on a replica. So draw a ticket, unless the server says that it
            // changed a row.
            if done.rows_affected() != CHANGED && session.needs_a_commit() {
                self.draw(&mut session).await?;
            }
            Ok(((), session))
        };
        self.database.run("raise", Effect::Writes, ask).await?;
        Ok(true)
    }

    fn suggested_count(&self) -> Option<NonZeroU64> {
        Some(NonZeroU64::MIN)
    }

    fn server(&self) -> Option<String> {
        self.database.server()
    }

    fn describe(&self) -> String {
        self.database.shown(&format!("table={}&stub={}", self.database.table, self.stub))
    }
}

impl fmt::Debug for TicketsCounter {
    /// Omits the settings, which contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketsCounter({})", self.describe())
    }
}

/// Returns the table's one counter.
async fn survey(url: &str) -> Result<Vec<Surveyed>, OpenError> {
    const OPERATION: &str = "survey";
    let (database, _) = ForeignTable::parse(&SYSTEM, TablePurpose::Survey, url, parameters)?;
    let column = column(&database, OPERATION).await?;
    // An emptied table has no greatest row, and the server continues from its counter. Some servers forget
    // the counter in a restart, and then the greatest row counts.
    let sql = format!(
        "SELECT CAST(COALESCE(MAX(`{}`), 0) AS UNSIGNED), CAST(COALESCE((SELECT auto_increment FROM \
         information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{table}'), 1) AS UNSIGNED), \
         CAST(@@auto_increment_increment AS UNSIGNED), CAST(@@auto_increment_offset AS UNSIGNED) FROM `{table}`",
        column.name,
        table = database.table
    );
    let ask = async |mut session: MySqlSession| {
        let query = sqlx::query_as::<_, (u64, u64, u64, u64)>(AssertSqlSafe(sql.clone()));
        Ok((exactly_one(query.fetch_all(&mut session.sql)).await?, session))
    };
    let (highest_row, next, increment, offset) = database.run(OPERATION, Effect::Reads, ask).await?;
    let delta = NonZeroU64::new(increment).unwrap_or(NonZeroU64::MIN);
    // Also for an offset above the increment: the manuals say that it is ignored, but only the first few
    // numbers differ.
    let remainder = offset % delta;
    let highest_number = highest_row.max(last_below(next, delta, remainder));
    let (name, step) = (database.table, NonZeroU64::MIN);
    Ok(vec![Surveyed { name, highest_number, step, delta, remainder }])
}

/// Returns the greatest number below another that is `remainder` modulo `delta`; 0 if there is none.
fn last_below(next: u64, delta: NonZeroU64, remainder: u64) -> u64 {
    let last = next.saturating_sub(1);
    last.checked_sub(remainder).map_or(0, |above| last - above % delta)
}

/// Takes the table and the stub out of a URL. Both become part of a statement, so only letters, digits and
/// `_` are allowed.
fn parameters(location: &mut StoreUrl) -> Result<(String, Option<String>), UrlError> {
    let mut plain = |name: &str| match location.take(name) {
        Some(text) if text.is_empty() || !text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_') => {
            Err(location.malformed(&format!(
                "invalid {name}: expected letters, digits and _, such as {}",
                SOURCE.form
            )))
        }
        taken => Ok(taken),
    };
    let (table, stub) = (plain("table")?, plain("stub")?);
    Ok((table.unwrap_or_else(|| TABLE.to_owned()), stub))
}

async fn column(database: &ForeignTable, operation: &'static str) -> Result<TicketColumn, StoreError> {
    let ask = async |mut session: MySqlSession| {
        let query = sqlx::query_as::<_, (String, String)>(COLUMN).bind(&database.table);
        Ok((at_most_one(query.fetch_all(&mut session.sql)).await?, session))
    };
    let Some((name, kind)) = database.run(operation, Effect::Reads, ask).await? else {
        return Err(no_counter(database, operation).await?);
    };
    match greatest(&kind) {
        Some(greatest) if !name.contains('`') => Ok(TicketColumn { name, greatest }),
        _ => {
            let found =
                format!("{} counts in the column {name} of type {kind}, expected an integer", database.table);
            Err(database.error(StoreErrorKind::Other, operation, found))
        }
    }
}

/// Returns the reason why there is no counting column.
async fn no_counter(database: &ForeignTable, operation: &'static str) -> Result<StoreError, StoreError> {
    let ask = async |mut session: MySqlSession| {
        let query = sqlx::query_scalar::<_, i64>(EXISTS).bind(&database.table);
        Ok((exactly_one(query.fetch_all(&mut session.sql)).await?, session))
    };
    let table = &database.table;
    let found = match database.run(operation, Effect::Reads, ask).await? {
        0 => format!(
            "this database has no table {table}; create one: CREATE TABLE {table} (id BIGINT UNSIGNED NOT \
             NULL AUTO_INCREMENT PRIMARY KEY, stub CHAR(1) NOT NULL UNIQUE) ENGINE = InnoDB"
        ),
        _ => format!("the table {table} has no AUTO_INCREMENT column, expected one that counts tickets"),
    };
    Ok(database.error(StoreErrorKind::Other, operation, found))
}

/// Returns the greatest number of a type, such as `bigint(20) unsigned`.
fn greatest(kind: &str) -> Option<u64> {
    let bits = match kind.split(['(', ' ']).next()? {
        "tinyint" => 8,
        "smallint" => 16,
        "mediumint" => 24,
        "int" => 32,
        "bigint" => 64,
        _ => return None,
    };
    let bits = if kind.contains("unsigned") { bits } else { bits - 1 };
    Some(u64::MAX >> (64 - bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the last number that a server may have returned is correct. Method: number by number.
    #[test]
    fn the_last_number_below_the_next_one() {
        for delta in 1..=4 {
            for remainder in 0..delta {
                for next in 1..12 {
                    let last = (1..next).rev().find(|it| it % delta == remainder).unwrap_or(0);
                    let found = last_below(next, NonZeroU64::new(delta).unwrap(), remainder);
                    assert_eq!(found, last, "below {next}, {remainder} modulo {delta}");
                }
            }
        }
    }

    #[test]
    fn a_type_has_a_greatest_number() {
        assert_eq!(greatest("bigint(20) unsigned"), Some(u64::MAX));
        assert_eq!(greatest("bigint unsigned"), Some(u64::MAX));
        assert_eq!(greatest("bigint"), Some(MAX_NUMBER));
        assert_eq!(greatest("int(11)"), Some(0x7fff_ffff));
        assert_eq!(greatest("mediumint unsigned"), Some(0xff_ffff));
        assert_eq!((greatest("smallint"), greatest("tinyint(4)")), (Some(0x7fff), Some(127)));
        assert_eq!(greatest("double"), None);
    }
}
