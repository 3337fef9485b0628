//! A row of `TinyID`'s table `tiny_id_info`, advanced in the same way as `TinyID` does, so that `TinyID` can
//! keep using it at the same time. `TinyID`: <https://github.com/didi/tinyid>.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use async_trait::async_trait;

use super::database::{ForeignSystem, ForeignTable, RESERVE, TablePurpose, required};
use super::{Source, Survey, Surveyed};
use crate::error::{Effect, Retries};
use crate::mysql::session::{MySqlSession, may_write};
use crate::{Counter, MAX_NUMBER, OpenError, Segment, StoreError, StoreErrorKind};

pub(super) const SOURCE: Source = Source {
    name: "tinyid",
    form: "tinyid:mysql://HOST/DATABASE?biz_type=TYPE",
    open: |url| Box::pin(async move { Ok(Arc::new(TinyIdCounter::open(url).await?) as Arc<dyn Counter>) }),
    survey: |url| Box::pin(async move { Ok(Survey::of(survey(url).await?)) }),
};
static SYSTEM: ForeignSystem =
    ForeignSystem { source: SOURCE, parameters: "biz_type", rights: "SELECT and UPDATE" };
const TABLE: &str = "tiny_id_info";

/// NULL in the last two columns means 1 and 0.
const ROWS: &str = "SELECT CAST(biz_type AS CHAR), CAST(id AS SIGNED), CAST(max_id AS SIGNED), \
    CAST(version AS SIGNED), CAST(step AS SIGNED), CAST(COALESCE(delta, 1) AS SIGNED), \
    CAST(COALESCE(remainder, 0) AS SIGNED) \
    FROM tiny_id_info WHERE biz_type = ? OR ? IS NULL ORDER BY biz_type";
const TAKE: &str = concat!(
    "UPDATE tiny_id_info SET max_id = ?, update_time = NOW(), version = version + 1 \
    WHERE id = ? AND max_id = ? AND version = ? AND biz_type = ? AND ",
    may_write!()
);

type Columns = (String, i64, i64, i64, i64, i64, i64);

/// A counter in the table `tiny_id_info` that `TinyID` created.
///
/// To reserve n numbers, the counter reads the row and writes it with a greater `max_id` if no other writer
/// was faster, as `TinyID` does; otherwise it retries for some seconds. The numbers are those above the old
/// `max_id`, up to the new one, that are `remainder` modulo `delta`. `TinyID`'s own servers may draw from the
/// same row at the same time.
///
/// # URL
///
/// `tinyid:mysql://USER@HOST:PORT/DATABASE?biz_type=TYPE&...`, with the parameters of
/// [`MySqlStore`](crate::MySqlStore).
pub struct TinyIdCounter {
    database: ForeignTable,
    biz_type: String,
    step: NonZeroU64,
}

/// A row with valid numbers.
struct TinyIdRow {
    biz_type: String,
    id: i64,
    max_id: u64,
    version: i64,
    step: NonZeroU64,
    delta: NonZeroU64,
    remainder: u64,
}

impl TinyIdCounter {
    /// Parses the URL, connects, and looks for the row. Nothing is written.
    ///
    /// # Errors
    ///
    /// - [`OpenError::Url`]: a mistake in the URL.
    /// - [`OpenError::Store`], [`StoreErrorKind::Other`]: no such table, or no such row, with the statement
    ///   that inserts it.
    /// - [`OpenError::Store`], [`StoreErrorKind::Corrupt`]: a row with invalid numbers.
    /// - [`OpenError::Store`], other kinds: as for [`MySqlStore::open`](crate::MySqlStore::open).
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let (database, biz_type) = ForeignTable::open(&SYSTEM, url, |location| {
            Ok((TABLE.to_owned(), required(location, &SYSTEM, "biz_type")?))
        })
        .await?;
        let mut counter = Self { database, biz_type, step: NonZeroU64::MIN };
        counter.step = counter.row("open").await?.step;
        Ok(counter)
    }

    async fn row(&self, operation: &'static str) -> Result<TinyIdRow, StoreError> {
        let mut found = rows(&self.database, operation, Some(&self.biz_type)).await?;
        found.pop().ok_or_else(|| {
            let found = format!(
                "{TABLE} has no row with the biz_type `{name}`; insert one: INSERT INTO {TABLE} (biz_type, \
                 begin_id, max_id, step, delta, remainder, create_time, update_time, version) VALUES ('{name}', 0, 0, \
                 100000, 1, 0, NOW(), NOW(), 1)",
                name = self.biz_type
            );
            self.database.error(StoreErrorKind::Other, operation, found)
        })
    }

    /// Writes the row if it still is as it was read. Returns whether it was.
    async fn advance(
        &self,
        operation: &'static str,
        row: &TinyIdRow,
        max_id: i64,
    ) -> Result<bool, StoreError> {
        let ask = async |mut session: MySqlSession| {
            let query = sqlx::query(TAKE).bind(max_id).bind(row.id).bind(row.max_id.cast_signed());
            Ok((session.write(query.bind(row.version).bind(&row.biz_type)).await?, session))
        };
        Ok(self.database.run(operation, Effect::Writes, ask).await?.rows_affected() == 1)
    }
}

impl TinyIdRow {
    fn shown(&self) -> String {
        format!("biz_type `{}`", self.biz_type)
    }

    /// Returns the next `count` numbers, and the `max_id` after them.
    fn next(&self, count: NonZeroU64) -> Option<(Segment, i64)> {
        let after = count.checked_mul(self.delta)?.checked_add(self.max_id)?;
        let after = i64::try_from(after.get()).ok()?;
        let (above, delta) = (self.max_id + 1, self.delta.get());
        let first = above + (self.remainder + delta - above % delta) % delta;
        Some((Segment::new(first, self.delta, count)?, after))
    }
}

#[async_trait]
impl Counter for TinyIdCounter {
    async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError> {
        let mut retries = Retries::new();
        loop {
            let row = self.row(RESERVE).await?;
            let Some((segment, max_id)) = row.next(count) else {
                return Err(self.database.spent(RESERVE, &row.shown(), row.max_id));
            };
            if self.advance(RESERVE, &row, max_id).await? {
                return Ok(segment);
            }
            self.database.pause(&mut retries, RESERVE, &row.shown()).await?;
        }
    }

    async fn peek(&self) -> Result<Option<Segment>, StoreError> {
        Ok(self.row("look").await?.next(NonZeroU64::MIN).map(|(segment, _)| segment))
    }

    async fn raise_above(&self, number: u64) -> Result<bool, StoreError> {
        const OPERATION: &str = "raise";
        let mut retries = Retries::new();
        loop {
            let row = self.row(OPERATION).await?;
            let raised = row.max_id.max(number.min(MAX_NUMBER));
            // Write even if it is above already: a read alone may come from a server that was replaced, or
            // show rows that no replica has.
            if self.advance(OPERATION, &row, raised.cast_signed()).await? {
                return Ok(true);
            }
            self.database.pause(&mut retries, OPERATION, &row.shown()).await?;
        }
    }

    fn suggested_count(&self) -> Option<NonZeroU64> {
        Some(self.step)
    }

    fn server(&self) -> Option<String> {
        self.database.server()
    }

    fn describe(&self) -> String {
        self.database.shown(&format!("biz_type={}", self.biz_type))
    }
}

impl fmt::Debug for TinyIdCounter {
    /// Omits the settings, which contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TinyIdCounter({})", self.describe())
    }
}

/// Returns all rows, or the one with the `biz_type` that the URL names.
async fn survey(url: &str) -> Result<Vec<Surveyed>, OpenError> {
    let (database, biz_type) = ForeignTable::parse(&SYSTEM, TablePurpose::Survey, url, |location| {
        Ok((TABLE.to_owned(), location.take("biz_type")))
    })?;
    let surveyed = |TinyIdRow { biz_type, max_id, step, delta, remainder, .. }| Surveyed {
        name: biz_type,
        highest_number: max_id,
        step,
        delta,
        remainder,
    };
    Ok(rows(&database, "survey", biz_type.as_deref()).await?.into_iter().map(surveyed).collect())
}

async fn rows(
    database: &ForeignTable,
    operation: &'static str,
    biz_type: Option<&str>,
) -> Result<Vec<TinyIdRow>, StoreError> {
    let ask = async |mut session: MySqlSession| {
        let query = sqlx::query_as::<_, Columns>(ROWS).bind(biz_type).bind(biz_type);
        Ok((query.fetch_all(&mut session.sql).await?, session))
    };
    let rows = database.run(operation, Effect::Reads, ask).await?;
    rows.into_iter().map(|columns| row(database, operation, columns)).collect()
}

fn row(database: &ForeignTable, operation: &'static str, columns: Columns) -> Result<TinyIdRow, StoreError> {
    let (biz_type, id, max_id, version, step, delta, remainder) = columns;
    let max_id = database.number(operation, &format!("biz_type `{biz_type}`"), "max_id", max_id)?;
    let positive = |number: i64| u64::try_from(number).ok().and_then(NonZeroU64::new);
    let step = positive(step).unwrap_or(NonZeroU64::MIN);
    let rest = u64::try_from(remainder).ok();
    match (positive(delta), rest) {
        (Some(by), Some(rest)) if rest < by.get() => {
            Ok(TinyIdRow { biz_type, id, max_id, version, step, delta: by, remainder: rest })
        }
        _ => {
            let found = format!(
                "{TABLE} has delta {delta} and remainder {remainder} at biz_type `{biz_type}`, which no number has; \
                 expected a remainder from 0 to delta - 1"
            );
            Err(database.error(StoreErrorKind::Corrupt, operation, found))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the numbers are those that `TinyID` itself would return. Method: its own rule, number by number.
    #[test]
    fn numbers_are_aligned_as_in_tinyid() {
        for delta in 1..=4_u64 {
            for remainder in 0..delta {
                for max_id in 0..10 {
                    let some = |number| NonZeroU64::new(number).unwrap();
                    let row = TinyIdRow {
                        biz_type: String::new(),
                        id: 1,
                        max_id,
                        version: 1,
                        step: some(100),
                        delta: some(delta),
                        remainder,
                    };
                    let (segment, after) = row.next(some(3)).unwrap();
                    let last = u64::try_from(after).unwrap();
                    let given: Vec<u64> = (max_id + 1..=last).filter(|it| it % delta == remainder).collect();
                    let ours: Vec<u64> = (0..3).map(|nth| segment.first() + nth * delta).collect();
                    assert_eq!(ours, given, "above {max_id}, {remainder} modulo {delta}");
                }
            }
        }
    }
}
