//! A row of Leaf's table `leaf_alloc`, advanced in the same way as Leaf does, so that Leaf can keep using it
//! at the same time. Leaf: <https://github.com/Meituan-Dianping/Leaf>, segment mode.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use async_trait::async_trait;

use super::database::{ForeignSystem, ForeignTable, RESERVE, TablePurpose, required};
use super::{Source, Survey, Surveyed};
use crate::error::Effect;
use crate::mysql::session::{MySqlSession, may_write};
use crate::sql::at_most_one;
use crate::{Counter, MAX_NUMBER, OpenError, Segment, StoreError, StoreErrorKind};

pub(super) const SOURCE: Source = Source {
    name: "leaf",
    form: "leaf:mysql://HOST/DATABASE?tag=TAG",
    open: |url| Box::pin(async move { Ok(Arc::new(LeafCounter::open(url).await?) as Arc<dyn Counter>) }),
    survey: |url| Box::pin(async move { Ok(Survey::of(survey(url).await?)) }),
};
static SYSTEM: ForeignSystem =
    ForeignSystem { source: SOURCE, parameters: "tag", rights: "SELECT and UPDATE" };
const TABLE: &str = "leaf_alloc";

/// Does in one statement what Leaf does in a transaction of UPDATE and SELECT: the insert id of the answer is
/// the new `max_id`. A row out of range is not changed.
const TAKE: &str = concat!(
    "UPDATE leaf_alloc SET max_id = LAST_INSERT_ID(max_id + ?) WHERE biz_tag = ? AND max_id BETWEEN 0 AND ? AND ",
    may_write!()
);
/// Raises by at least 1, even if others reserve numbers meanwhile: a statement that changes nothing does not
/// commit, and replicas confirm only commits.
const RAISE: &str = concat!(
    "UPDATE leaf_alloc SET max_id = GREATEST(max_id + 1, ?) WHERE biz_tag = ? AND max_id < ? AND ",
    may_write!()
);
const ROW: &str = "SELECT CAST(max_id AS SIGNED), CAST(step AS SIGNED) FROM leaf_alloc WHERE biz_tag = ?";
const ROWS: &str = "SELECT CAST(biz_tag AS CHAR), CAST(max_id AS SIGNED), CAST(step AS SIGNED) FROM leaf_alloc \
    WHERE biz_tag = ? OR ? IS NULL ORDER BY biz_tag";

/// A counter in the table `leaf_alloc` that Leaf created.
///
/// To reserve n numbers, Leaf runs `UPDATE leaf_alloc SET max_id = max_id + n WHERE biz_tag = ?` and reads
/// `max_id` in one transaction: the numbers are from the old `max_id` (inclusive) to the new one (exclusive).
/// This counter does the same, so Leaf's own servers may draw from the same row at the same time.
///
/// The row must exist: a missing tag is most likely a mistake, and its numbers would restart at 1.
///
/// # URL
///
/// `leaf:mysql://USER@HOST:PORT/DATABASE?tag=TAG&...`, with the parameters of
/// [`MySqlStore`](crate::MySqlStore), and `durable=no` to accept a server that syncs commits later than it
/// acknowledges them.
pub struct LeafCounter {
    database: ForeignTable,
    tag: String,
    step: Option<NonZeroU64>,
}

impl LeafCounter {
    /// Parses the URL, connects, and looks for the row. Nothing is written.
    ///
    /// # Errors
    ///
    /// - [`OpenError::Url`]: a mistake in the URL.
    /// - [`OpenError::Store`], [`StoreErrorKind::Other`]: no such table, or no such row, with the statement
    ///   that inserts it.
    /// - [`OpenError::Store`], other kinds: as for [`MySqlStore::open`](crate::MySqlStore::open).
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let (database, tag) = ForeignTable::open(&SYSTEM, url, |location| {
            Ok((TABLE.to_owned(), required(location, &SYSTEM, "tag")?))
        })
        .await?;
        let mut counter = Self { database, tag, step: None };
        let (_, step) = counter.row("open").await?;
        counter.step = u64::try_from(step).ok().and_then(NonZeroU64::new);
        Ok(counter)
    }

    /// Returns `max_id`, at least 0, and `step`, unchecked.
    async fn row(&self, operation: &'static str) -> Result<(u64, i64), StoreError> {
        let ask = async |mut session: MySqlSession| {
            let query = sqlx::query_as::<_, (i64, i64)>(ROW).bind(&self.tag);
            Ok((at_most_one(query.fetch_all(&mut session.sql)).await?, session))
        };
        let row = self.database.run(operation, Effect::Reads, ask).await?;
        let (max_id, step) = row.ok_or_else(|| {
            let found = format!(
                "{TABLE} has no row with the tag `{tag}`; insert one: INSERT INTO {TABLE} (biz_tag, max_id, step, \
                 description) VALUES ('{tag}', 1, 2000, '')",
                tag = self.tag
            );
            self.database.error(StoreErrorKind::Other, operation, found)
        })?;
        Ok((self.database.number(operation, &self.shown_row(), "max_id", max_id)?, step))
    }

    fn shown_row(&self) -> String {
        format!("biz_tag `{}`", self.tag)
    }
}

#[async_trait]
impl Counter for LeafCounter {
    async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError> {
        let spent = |at| self.database.spent(RESERVE, &self.shown_row(), at);
        let Ok(addend) = i64::try_from(count.get()) else {
            return Err(spent(self.row(RESERVE).await?.0));
        };
        let ask = async |mut session: MySqlSession| {
            let query = sqlx::query(TAKE).bind(addend).bind(&self.tag).bind(i64::MAX - addend);
            Ok((session.write(query).await?, session))
        };
        let done = self.database.run(RESERVE, Effect::Writes, ask).await?;
        if done.rows_affected() > 1 {
            let found =
                format!("{TABLE} has {} rows with the tag `{}`, expected 1", done.rows_affected(), self.tag);
            return Err(self.database.error(StoreErrorKind::Corrupt, RESERVE, found));
        }
        let first = done.last_insert_id().checked_sub(count.get());
        match first.and_then(|first| Segment::new(first, NonZeroU64::MIN, count)) {
            Some(segment) if done.rows_affected() == 1 => Ok(segment),
            _ => Err(spent(self.row(RESERVE).await?.0)),
        }
    }

    async fn peek(&self) -> Result<Option<Segment>, StoreError> {
        Ok(Segment::new(self.row("look").await?.0, NonZeroU64::MIN, NonZeroU64::MIN))
    }

    async fn raise_above(&self, number: u64) -> Result<bool, StoreError> {
        const OPERATION: &str = "raise";
        let least = number.saturating_add(1).min(MAX_NUMBER);
        let ask = async |mut session: MySqlSession| {
            let query = sqlx::query(RAISE).bind(least.cast_signed()).bind(&self.tag).bind(i64::MAX);
            Ok((session.write(query).await?, session))
        };
        let done = self.database.run(OPERATION, Effect::Writes, ask).await?;
        if done.rows_affected() == 0 {
            // The row was deleted meanwhile, or has no number left.
            return Err(self.database.spent(OPERATION, &self.shown_row(), self.row(OPERATION).await?.0));
        }
        Ok(least > number)
    }

    fn suggested_count(&self) -> Option<NonZeroU64> {
        self.step
    }

    fn server(&self) -> Option<String> {
        self.database.server()
    }

    fn describe(&self) -> String {
        self.database.shown(&format!("tag={}", self.tag))
    }
}

impl fmt::Debug for LeafCounter {
    /// Omits the settings, which contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeafCounter({})", self.describe())
    }
}

/// Returns all rows, or the one with the tag that the URL names.
async fn survey(url: &str) -> Result<Vec<Surveyed>, OpenError> {
    let (database, tag) = ForeignTable::parse(&SYSTEM, TablePurpose::Survey, url, |location| {
        Ok((TABLE.to_owned(), location.take("tag")))
    })?;
    let ask = async |mut session: MySqlSession| {
        let query = sqlx::query_as::<_, (String, i64, i64)>(ROWS).bind(&tag).bind(&tag);
        Ok((query.fetch_all(&mut session.sql).await?, session))
    };
    let rows = database.run("survey", Effect::Reads, ask).await?;
    let surveyed = |(name, max_id, step): (String, i64, i64)| {
        let max_id = database.number("survey", &format!("biz_tag `{name}`"), "max_id", max_id)?;
        let step = u64::try_from(step).ok().and_then(NonZeroU64::new).unwrap_or(NonZeroU64::MIN);
        let highest_number = max_id.saturating_sub(1);
        Ok(Surveyed { name, highest_number, step, ..Surveyed::numbers(0, NonZeroU64::MIN) })
    };
    Ok(rows.into_iter().map(surveyed).collect::<Result<_, StoreError>>()?)
}
