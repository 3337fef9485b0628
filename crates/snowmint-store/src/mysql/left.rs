//! Sessions that this process has left, and that may still run a statement.
//!
//! A server notices only after a statement that its client is gone, and a statement may wait for longer than
//! a call: a commit for a replica, which no timeout of a session ends and MySQL's KILL does not either, or
//! for the disk. If each call left one, they would take all connections of the server. So while a few hang,
//! there are no new ones.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use tokio::time::Instant;

use crate::StoreErrorKind;
use crate::net::HostRefusal;

/// Number of sessions that may hang on one server: as many as there are calls at once.
const MOST_HANGING: usize = 4;
/// Number of sessions that are remembered.
const MOST_KNOWN: usize = 64;

/// The sessions that this process has left and that may still run.
#[derive(Debug, Default)]
pub(super) struct LeftSessions(Mutex<VecDeque<Left>>);

#[derive(Debug)]
struct Left {
    server: String,
    id: u64,
    since: Instant,
}

/// An open session, by its number on the server. When dropped, it counts as left.
#[derive(Debug)]
pub(super) struct OpenSession {
    pub(super) all: Arc<LeftSessions>,
    pub(super) server: String,
    pub(super) id: u64,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        let server = std::mem::take(&mut self.server);
        let mut left = self.all.all();
        left.push_back(Left { server, id: self.id, since: Instant::now() });
        if left.len() > MOST_KNOWN {
            left.pop_front();
        }
    }
}

impl LeftSessions {
    /// Refuses a server on which too many sessions hang, and forgets those that have ended.
    pub(super) async fn check(&self, sql: &mut MySqlConnection, server: &str) -> Result<(), HostRefusal> {
        let left = self.on(server);
        // Most have ended: asking costs the server a look at all of its sessions.
        if left.len() < MOST_HANGING {
            return Ok(());
        }
        // After a restart of the server, their numbers may belong to others, which have not run for that
        // long.
        let each: Vec<_> =
            left.iter().map(|(id, seconds)| format!("id = {id} AND time + 1 >= {seconds}")).collect();
        let query = format!(
            "SELECT CAST(id AS UNSIGNED), CAST(COALESCE(state, '') AS CHAR) FROM information_schema.processlist \
             WHERE command IN ('Query', 'Execute', 'Killed') AND ({})",
            each.join(" OR ")
        );
        let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(query)).fetch_all(sql).await;
        let hanging = rows.and_then(|rows| {
            let session = |row: &MySqlRow| Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?));
            rows.iter().map(session).collect::<Result<Vec<(u64, String)>, sqlx::Error>>()
        });
        // A server that does not tell is used.
        let Ok(hanging) = hanging else { return Ok(()) };
        let has_ended = |id| left.iter().any(|it| it.0 == id) && !hanging.iter().any(|it| it.0 == id);
        self.all().retain(|it| it.server != server || !has_ended(it.id));
        match &*hanging {
            [(_, state), ..] if hanging.len() >= MOST_HANGING => {
                let text = format!(
                    "{} calls of this node still hang there (\"{state}\"), and more would take all connections of the \
                     server: they wait for a replica, for a lock on the table, or for the disk",
                    hanging.len()
                );
                Err(HostRefusal::new(StoreErrorKind::Unavailable, text))
            }
            _ => Ok(()),
        }
    }

    /// Returns the numbers of the sessions that were left on a server, and for how many seconds.
    fn on(&self, server: &str) -> Vec<(u64, u64)> {
        let all = self.all();
        let of_server = all.iter().filter(|it| it.server == server);
        of_server.map(|it| (it.id, it.since.elapsed().as_secs())).collect()
    }

    /// Each change leaves the list consistent, so a panic elsewhere does no harm.
    fn all(&self) -> MutexGuard<'_, VecDeque<Left>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
