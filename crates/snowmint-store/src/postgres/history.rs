//! Which database a session is in, and on which timeline: each promotion begins a new one, with a greater number.
//! By it, a primary that was replaced is known also after its replacement is gone.

use sqlx::FromRow;
use sqlx::postgres::PgConnection;

use super::cause;
use crate::network::{Mark, Refusal};
use crate::statement::exactly_one;

/// Any user may ask this, unless somebody took that right away. The file of the log that is written now has the timeline
/// in its name; `pg_control_checkpoint()` shows the old one until the first checkpoint after a promotion.
const HISTORY: &str = "SELECT (SELECT system_identifier FROM pg_control_system()), \
    (SELECT oid::bigint FROM pg_database WHERE datname = current_database()), \
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint";

/// How far the history of a server goes; unknown where the server does not say.
#[derive(Default, Debug)]
pub(super) struct History {
    known: Option<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    system: i64,
    /// By its number: a copy may have been given the name.
    database: i64,
    timeline: i64,
}

impl History {
    /// Asks a primary. Databases that only speak the language of PostgreSQL may have no such thing.
    pub(super) async fn of(connection: &mut PgConnection) -> Result<Self, Refusal> {
        let row = exactly_one(sqlx::raw_sql(HISTORY).fetch_all(connection)).await;
        match row.and_then(|row| <(i64, i64, i64)>::from_row(&row)) {
            Ok((system, database, timeline)) => {
                Ok(Self { known: Some(Known { system, database, timeline }) })
            }
            Err(error) if cause::is_not_offered(&error) => Ok(Self::default()),
            Err(error) => Err(cause::refusal(&error)),
        }
    }
}

impl Mark for History {
    fn lacks(&self, seen: &Self) -> Option<String> {
        let seen = seen.known?;
        let Some(Known { system, database, timeline }) = self.known else {
            return Some(format!("does not show its timeline, and timeline {} was seen", seen.timeline));
        };
        if system != seen.system {
            let seen = seen.system;
            return Some(format!("holds another database (system {system}, and {seen} was seen)"));
        }
        if database != seen.database {
            let seen = seen.database;
            return Some(format!(
                "has another database of this name (number {database}, and {seen} was seen)"
            ));
        }
        (timeline < seen.timeline)
            .then(|| format!("is on timeline {timeline}, and timeline {} was seen", seen.timeline))
    }

    fn see(&mut self, mark: Self) {
        let before = self.known.map_or(0, |it| it.timeline);
        if let Some(Known { system, database, timeline }) = mark.known {
            self.known = Some(Known { system, database, timeline: timeline.max(before) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(system: i64, timeline: i64) -> History {
        History { known: Some(Known { system, database: 5, timeline }) }
    }

    #[test]
    fn a_lower_timeline_or_another_database_lacks_what_was_seen() {
        let mut seen = History::default();
        assert_eq!(history(7, 1).lacks(&seen), None);
        for timeline in [2, 1] {
            seen.see(history(7, timeline));
        }
        seen.see(History::default());
        assert_eq!(history(7, 2).lacks(&seen), None);
        assert_eq!(history(7, 3).lacks(&seen), None);
        let lack = history(7, 1).lacks(&seen).unwrap();
        assert_eq!(lack, "is on timeline 1, and timeline 2 was seen");
        assert!(history(8, 3).lacks(&seen).unwrap().contains("another database"));
        let copy = History { known: Some(Known { system: 7, database: 6, timeline: 2 }) };
        assert_eq!(
            copy.lacks(&seen).unwrap(),
            "has another database of this name (number 6, and 5 was seen)"
        );
        assert!(History::default().lacks(&seen).unwrap().contains("does not show"));
        assert_eq!(History::default().lacks(&History::default()), None);
    }
}
