//! Whether a server that acknowledges commits before it syncs them syncs them in time.
//!
//! `may_lose` bounds what a crash undoes only while the disk works: if it hangs, the server acknowledges
//! commits for as long as it hangs, and a crash loses all of them. So each call looks at both ends of the
//! redo log, which is flushed in order. A commit that this process made longer than `may_lose` ago, and that
//! is still not flushed, makes the server unusable.
//!
//! With a binary log too, only the redo log counts: after a crash the engine keeps what that log has as
//! committed.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Commits count as made at the start of their part of `may_lose`; it has this many.
const PARTS: u32 = 32;

/// The ends of the redo log, in bytes since it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct RedoLog {
    pub(super) written: u64,
    pub(super) flushed: u64,
}

/// The commits of this process that are not known to be flushed, over all its sessions.
#[derive(Debug)]
pub(super) struct FlushWatch {
    may_lose: Duration,
    state: Mutex<ServerFlushes>,
}

#[derive(Debug, Default)]
struct ServerFlushes {
    server: String,
    /// In the order of the answers.
    unflushed: VecDeque<Unflushed>,
}

/// What was written, and was not flushed when a server said so.
#[derive(Debug)]
struct Unflushed {
    end: u64,
    /// When the server was asked.
    since: Instant,
    /// When its answer had come.
    heard: Instant,
}

impl FlushWatch {
    pub(super) fn new(may_lose: Duration) -> Self {
        Self { may_lose, state: Mutex::default() }
    }

    /// Takes the ends of the log of a server, as it said after a commit; `asked` is when it was asked.
    /// Returns how long a commit is not flushed, if that is as long as `may_lose`.
    pub(super) fn check(&self, server: &str, asked: Instant, log: RedoLog) -> Result<(), Duration> {
        // Each change leaves the state consistent, so a panic elsewhere does no harm.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ServerFlushes { server: known, unflushed } = &mut *state;
        let mut since = asked;
        if known != server {
            // What was found on another server before may not be on the disk of this one, whenever it was
            // written.
            if !known.is_empty() {
                since = asked.checked_sub(self.may_lose).unwrap_or(asked);
            }
            server.clone_into(known);
            unflushed.clear();
        }
        // After a crash the log may end earlier: the commits beyond it are lost, and nobody waits for them.
        // An answer to an earlier question shows no crash, only that it was heard late.
        let is_lost = |it: &Unflushed| it.end > log.written && asked >= it.heard;
        unflushed.retain(|it| it.end > log.flushed && !is_lost(it));
        if log.written > log.flushed {
            let heard = Instant::now();
            match unflushed.back_mut() {
                Some(last) if since < last.since + self.may_lose / PARTS => {
                    let end = log.written.max(last.end);
                    *last = Unflushed { end, since: since.min(last.since), heard };
                }
                _ => unflushed.push_back(Unflushed { end: log.written, since, heard }),
            }
        }
        let oldest = unflushed.iter().map(|it| it.since.elapsed()).max().unwrap_or_default();
        if oldest < self.may_lose { Ok(()) } else { Err(oldest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAY_LOSE: Duration = Duration::from_secs(2);

    fn log(flushed: u64, written: u64) -> RedoLog {
        RedoLog { written, flushed }
    }

    /// Goal: a server is used while each commit is flushed within `may_lose`, and not after that. Method:
    /// paused time; a server that flushes every second, then hangs, and then works again.
    #[tokio::test(start_paused = true)]
    async fn a_commit_that_is_not_flushed_in_time_is_noticed() {
        let watch = FlushWatch::new(MAY_LOSE);
        let (mut written, mut flushed) = (0, 0);
        let mut commit = async |flushes: bool| {
            tokio::time::advance(Duration::from_millis(10)).await;
            written += 7;
            if flushes && written % 700 == 0 {
                flushed = written;
            }
            watch.check("a", Instant::now(), log(flushed, written))
        };
        for _ in 0..1000 {
            assert_eq!(commit(true).await, Ok(()));
        }
        let mut trusted = 0;
        while commit(false).await.is_ok() {
            trusted += 1;
        }
        // Commits of the same part count as its oldest.
        assert!((190..=200).contains(&trusted), "{trusted}");
        while commit(true).await.is_err() {}
        for _ in 0..1000 {
            assert_eq!(commit(true).await, Ok(()));
        }
    }

    /// Goal: what the next call finds was written before by this process, however long ago, and is then on
    /// the disk.
    #[tokio::test(start_paused = true)]
    async fn a_commit_of_long_ago_counts() {
        let watch = FlushWatch::new(MAY_LOSE);
        assert_eq!(watch.check("a", Instant::now(), log(10, 20)), Ok(()));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(watch.check("a", Instant::now(), log(19, 30)), Err(Duration::from_mins(1)));
        assert_eq!(watch.check("a", Instant::now(), log(20, 30)), Ok(()));
    }

    /// Goal: an answer that comes late forgets no commit of another session. Method: two sessions ask at
    /// once, and the one that was answered first is heard last.
    #[tokio::test(start_paused = true)]
    async fn sessions_may_be_heard_in_another_order() {
        let watch = FlushWatch::new(MAY_LOSE);
        let asked = Instant::now();
        tokio::time::advance(Duration::from_millis(5)).await;
        assert_eq!(watch.check("a", asked, log(10, 90)), Ok(()));
        assert_eq!(watch.check("a", asked, log(10, 50)), Ok(()));
        tokio::time::advance(MAY_LOSE).await;
        assert_eq!(watch.check("a", Instant::now(), log(60, 95)), Err(MAY_LOSE + Duration::from_millis(5)));
        assert_eq!(watch.check("a", Instant::now(), log(90, 95)), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_crashed_or_was_replaced_is_used_once_it_has_flushed() {
        let watch = FlushWatch::new(MAY_LOSE);
        assert_eq!(watch.check("a", Instant::now(), log(10, 90)), Ok(()));
        tokio::time::advance(MAY_LOSE).await;
        // It has lost the end of its log.
        assert_eq!(watch.check("a", Instant::now(), log(40, 50)), Ok(()));
        assert_eq!(watch.check("b", Instant::now(), log(5, 6)), Err(MAY_LOSE));
        assert_eq!(watch.check("b", Instant::now(), log(6, 9)), Ok(()));
    }
}
