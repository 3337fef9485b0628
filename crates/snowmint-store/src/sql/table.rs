//! The parts that PostgreSQL and MySQL share for the table `snowmint_records`: keys as ranges of bytes, and
//! rows as records. Each database has its own statements and error codes.

use super::failure::{self, ServerErrors, SqlFailure};
use super::pool::{Connect, Pool};
use crate::error::Effect;
use crate::net::url::StoreUrl;
use crate::store::SkippedRecords;
use crate::{Key, Revision, StoreError, StoreErrorKind, UrlError, Versioned};

/// A row of an outer join with the table: name, revision, value; all empty if there is no record. Another
/// program may have written a name that is not UTF-8.
type Row = (Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>);

/// The name in errors of the call that opens a store.
pub(crate) const OPEN: &str = "open";

/// Creates the table if it is missing, and returns what `inspect` finds of it.
pub(crate) async fn ensure<D, T, I, C>(
    pool: &Pool<D>,
    inspect: impl Fn() -> I,
    create: impl Fn(D::Connection) -> C + Send + Sync,
) -> Result<T, StoreError>
where
    D: Connect + ServerErrors,
    I: Future<Output = Result<Option<T>, StoreError>>,
    C: Future<Output = Result<((), D::Connection), SqlFailure>> + Send,
{
    if let Some(found) = inspect().await? {
        return Ok(found);
    }
    // Another node may have been faster, so inspect again before reporting a failure.
    let created = pool.run(Effect::Reads, create).await;
    match (inspect().await?, created) {
        (Some(found), _) => Ok(found),
        (None, Err(failure)) => {
            let (kind, text) = match failure::refused_table::<D>(&failure) {
                Some(text) => (StoreErrorKind::ReadOnly, text),
                None => failure::meaning::<D>(failure, Effect::Reads, |_| None),
            };
            Err(StoreError::new(kind, OPEN, &*pool.name, text))
        }
        (None, Ok(())) => {
            let found =
                "the table snowmint_records was created and is missing again; check which program drops it";
            Err(refuse(&pool.name, found))
        }
    }
}

/// Returns the error for a table that nodes must not use.
pub(crate) fn refuse(store: &str, found: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Other, OPEN, store, found.into())
}

/// Returns the bounds of all keys with a prefix, the first inclusive and the last exclusive; or `None` if no
/// key can have it.
pub(crate) fn bounds(prefix: &str) -> Option<(String, String)> {
    Key::may_begin_with(prefix).then(|| (prefix.to_owned(), Key::end_of(prefix)))
}

/// Builds a record from a row. The database has checked its types but not its ranges.
pub(crate) fn record(
    store: &str,
    operation: &'static str,
    revision: i64,
    value: Vec<u8>,
) -> Result<Versioned, StoreError> {
    let Some(revision) = Revision::from_database(revision) else {
        return Err(invalid(store, operation, &format!("a record has revision {revision}")));
    };
    Ok(Versioned { value, revision })
}

/// Builds a list from its rows, and records invalid rows as skipped.
pub(crate) fn records(
    store: &str,
    operation: &'static str,
    skipped: &SkippedRecords,
    rows: impl IntoIterator<Item = Row>,
) -> Vec<(Key, Versioned)> {
    let mut records = Vec::new();
    for row in rows {
        let (Some(name), Some(revision), Some(value)) = row else { continue };
        let key = Key::of_bytes(&name).map_err(|error| invalid(store, operation, &error.to_string()));
        match key.and_then(|key| Ok((key, record(store, operation, revision, value)?))) {
            Ok(record) => records.push(record),
            Err(error) => skipped.note(&name, &error.to_string()),
        }
    }
    records
}

fn invalid(store: &str, operation: &'static str, found: &str) -> StoreError {
    let text = format!("{found} in the table snowmint_records: another program writes there; stop it");
    StoreError::new(StoreErrorKind::Corrupt, operation, store, text)
}

/// Returns the name of the database, which is the path of the URL.
pub(crate) fn database(location: &StoreUrl) -> Result<String, UrlError> {
    match location.path.strip_prefix('/') {
        Some(name) if !name.is_empty() && !name.contains('/') => Ok(name.to_owned()),
        _ => {
            let problem = format!(
                "missing database: expected one after the hosts, such as {}://10.0.0.7/snowmint",
                location.scheme
            );
            Err(location.malformed(&problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_the_keys_with_the_prefix_and_no_others() {
        let (from, to) = bounds("workers/a").unwrap();
        for inside in ["workers/a", "workers/a/1", "workers/az", "workers/aZ", "workers/a:", "workers/a_"] {
            assert!(*inside >= *from && *inside < *to, "{inside}");
        }
        for outside in ["workers/", "workers/A", "workers/b", "workers"] {
            assert!(*outside < *from || *outside >= *to, "{outside}");
        }
        assert_eq!(bounds(""), Some((String::new(), "~".to_owned())));
        assert_eq!(bounds("a\0"), None);
    }
}
