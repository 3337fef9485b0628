//! Which primary a store uses, and which replication histories it has left behind.
//! Redis names the history of a primary by `master_replid`; here it is a *line* of writes. A primary that is replaced without
//! knowing it continues its line; its successor starts another.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::net::url::Host;

/// How many positions are remembered within the time that the newest writes may be lost.
const SAMPLES: u32 = 8;
/// How many are remembered at most, also if nothing is acknowledged.
const MOST_SAMPLES: usize = 2 * SAMPLES as usize;

/// The line of writes of one server.
///
/// Redis names a line at random, again at each start and each promotion, so a name that was left comes back only with a
/// process that has been running since then.
#[derive(Clone, Default, Debug)]
pub(super) struct Line {
    /// `master_replid`.
    pub(super) now: String,
    /// `master_replid2`: the line that it continues, as after a promotion; empty if none.
    pub(super) before: String,
    /// `second_repl_offset`: the first position that it does not share with the line before.
    pub(super) branched: u64,
    /// `master_repl_offset`: its current position. A line continues the positions of the line before.
    pub(super) position: u64,
}

/// What a store knows of its primaries.
#[derive(Default, Debug)]
pub(super) struct History {
    /// The primary in use, and its line.
    primary: Option<(Host, Used)>,
    left: Vec<Used>,
    /// Whether its host has said that it is no primary any more.
    is_gone: bool,
    /// Whether a server that continues its line was seen, and the two have not been one again since.
    is_doubted: bool,
}

/// A line that is or was used.
#[derive(Default, Debug)]
struct Used {
    name: String,
    /// Its positions, and when they were heard.
    samples: VecDeque<(Instant, u64)>,
    /// The position that no failover may lose: the line had reached it `may_lose` before a call that it acknowledged.
    settled: Option<u64>,
}

impl Used {
    fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// Notes the position of the line. Nobody relies on it yet: a primary that refuses writes goes on counting.
    fn note(&mut self, position: u64, heard: Instant, may_lose: Duration) {
        let is_due =
            |(last, _): &(Instant, u64)| heard.saturating_duration_since(*last) >= may_lose / SAMPLES;
        // The oldest stay: they settle first.
        if self.samples.len() < MOST_SAMPLES && self.samples.back().is_none_or(is_due) {
            self.samples.push_back((heard, position));
        }
    }
}

impl History {
    /// Starts a round of asking all hosts.
    pub(super) fn begin(&mut self) {
        self.is_gone = false;
    }

    /// Notes that a host is a replica, or nobody listens there. An unresponsive host may still be a primary.
    pub(super) fn not_primary(&mut self, host: &Host) {
        self.is_gone |= self.primary.as_ref().is_some_and(|(at, _)| at == host);
    }

    /// Whether a primary was used, and its host has said that it is none any more.
    pub(super) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Whether a primary is in use, by which others can be judged.
    pub(super) const fn is_known(&self) -> bool {
        self.primary.is_some()
    }

    /// Returns the line of the primary in use.
    pub(super) fn line(&self) -> Option<&str> {
        self.primary.as_ref().map(|(_, line)| &*line.name)
    }

    /// Returns whether a server that accepts writes may be the primary, or a second one; if not, why.
    ///
    /// One that continues a line of ours may. An unrelated one may not, such as an old primary that comes back before it
    /// becomes a replica: a process that was connected while there was only one primary knows the right one. It may once the one
    /// in use is gone.
    pub(super) fn judge(&mut self, host: &Host, line: &Line) -> Result<(), String> {
        let Some((at, Used { name: now, .. })) = &self.primary else {
            return Ok(());
        };
        let was_left = |name: &str| self.left.iter().any(|it| it.name == name);
        if was_left(&line.now) {
            return Err(format!(
                "is a primary that another has replaced (replication id {}) and lacks what was written since; make it a \
                 replica of {at}",
                line.now
            ));
        }
        let continues = *now == line.before || was_left(&line.before);
        self.is_doubted |= continues && *now != line.now;
        if self.is_doubted || self.is_gone || at == host || *now == line.now {
            return Ok(());
        }
        Err(format!(
            "is a primary that does not continue {at} (replication id {now}); make it a replica of the right primary, or \
             restart the nodes if it is the right one"
        ))
    }

    /// Returns what the only server that accepts writes lacks of what has settled; `None` if nothing is known of that.
    ///
    /// Only called once it is certain that it is the only one: until then it counts as a second primary. An unrelated line says
    /// nothing, as after a restart.
    pub(super) fn lacks(&self, line: &Line) -> Option<String> {
        let (_, now) = self.primary.as_ref().filter(|(_, now)| now.name != line.now)?;
        let mut lines = self.left.iter().chain([now]);
        let before = lines.find(|it| it.name == line.before)?;
        let lost = |at: u64, name: &str| {
            format!(
                "has the writes of replication id {} up to {} only, and {at} of {name} was seen longer ago than may_lose: \
                 it lost writes in a failover; return to the server that has them, or run `snowmint store recover` \
                 before you restart nodes",
                line.before,
                line.branched.saturating_sub(1)
            )
        };
        match before.settled {
            Some(settled) if line.branched <= settled => return Some(lost(settled, &before.name)),
            _ => {}
        }
        // It left the line before those that followed.
        lines.find_map(|later| Some(lost(later.settled?, &later.name)))
    }

    /// Goes on with a primary that was judged and lacks nothing.
    pub(super) fn accept(&mut self, host: &Host, line: Line, heard: Instant, may_lose: Duration) {
        let mut used = match self.primary.take() {
            Some((_, used)) if used.name == line.now => used,
            before => {
                self.left.extend(before.map(|(_, used)| Used { samples: VecDeque::new(), ..used }));
                Used::new(line.now)
            }
        };
        used.note(line.position, heard, may_lose);
        self.primary = Some((host.clone(), used));
        self.is_doubted = false;
    }

    /// Goes on with a member of a cluster, which decides by itself who is the primary. Keys that move to another member may come
    /// back to one that was left.
    pub(super) fn accept_member(&mut self, host: &Host, line: Line, heard: Instant, may_lose: Duration) {
        self.accept(host, line, heard, may_lose);
        self.left.clear();
    }

    /// Notes that the primary acknowledged a write that was sent then, with its copies if they are required: what it had written
    /// long enough before has settled.
    pub(super) fn acknowledged(&mut self, sent: Instant, may_lose: Duration) {
        let Some((_, used)) = &mut self.primary else {
            return;
        };
        while let Some((heard, old)) = used.samples.front().copied()
            && sent.saturating_duration_since(heard) >= may_lose
        {
            used.settled = used.settled.max(Some(old));
            used.samples.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        Host::new(name.to_owned(), 1)
    }

    fn line(now: &str, before: &str) -> Line {
        Line { now: now.to_owned(), before: before.to_owned(), ..Line::default() }
    }

    const MAY_LOSE: Duration = Duration::from_secs(2);

    fn accept(history: &mut History, at: &str, line: Line) {
        history.accept(&host(at), line, Instant::now(), MAY_LOSE);
    }

    /// A line that has come that far, and left the one before at a position.
    fn grown(now: &str, before: &str, branched: u64, position: u64) -> Line {
        Line { branched, position, ..line(now, before) }
    }

    /// Whether a server may be the primary, which is used then.
    fn used(history: &mut History, at: &str, now: &str, before: &str) -> bool {
        let accepted = history.judge(&host(at), &line(now, before)).is_ok();
        if accepted {
            accept(history, at, line(now, before));
        }
        accepted
    }

    /// A store that went from `a` on host A to `b` on host B, which was promoted.
    fn failed_over() -> History {
        let mut history = History::default();
        for (at, now, before) in [("A", "a", ""), ("A", "a", ""), ("B", "b", "a")] {
            history.begin();
            assert!(used(&mut history, at, now, before));
        }
        history
    }

    #[test]
    fn a_line_that_was_left_is_never_used_again() {
        let mut history = failed_over();
        let error = history.judge(&host("A"), &line("a", "")).unwrap_err();
        assert!(error.contains("another has replaced") && error.contains("replica of B:1"), "{error}");
        history.not_primary(&host("B"));
        assert!(!used(&mut history, "A", "a", ""), "not even when it is all there is");
        assert!(used(&mut history, "A", "c", "b"));
        assert!(!used(&mut history, "B", "b", "a"));
    }

    #[test]
    fn a_second_primary_is_seen_unless_it_has_nothing_to_do_with_the_first() {
        let judged =
            |history: &mut History, at, now, before| history.judge(&host(at), &line(now, before)).is_ok();
        assert!(judged(&mut History::default(), "A", "x", ""), "nobody knows which is the right one");
        let mut history = failed_over();
        assert!(!judged(&mut history, "A", "x", ""), "an old primary that was restarted");
        assert!(judged(&mut history, "B", "b", "a") && !history.is_doubted);
        assert!(judged(&mut history, "B", "x", ""), "the primary was restarted");
        assert!(judged(&mut history, "C", "c", "a"), "another has continued a line of ours");
        assert!(judged(&mut history, "D", "x", ""), "nobody knows any more");
        accept(&mut history, "B", line("b", "a"));
        assert!(!judged(&mut history, "D", "x", ""));
        assert!(judged(&mut history, "C", "c", "b"), "another was promoted");
    }

    #[test]
    fn a_line_of_its_own_may_follow_a_primary_that_is_gone() {
        let mut history = failed_over();
        let stranger = (host("A"), line("x", ""));
        history.not_primary(&host("A"));
        assert!(!history.is_gone() && history.judge(&stranger.0, &stranger.1).is_err());
        history.not_primary(&host("B"));
        assert!(history.is_gone() && history.judge(&stranger.0, &stranger.1).is_ok());
        accept(&mut history, "A", stranger.1);
        history.begin();
        assert!(history.judge(&host("B"), &line("z", "")).is_err(), "what was gone was asked before");
    }

    /// Goal: a failover that lost more than it may is refused, and no other. Method: a line that grows by 10 a second,
    /// and successors that left it earlier and later; `may_lose` is 2 s.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_lost_what_has_settled_is_refused() {
        let mut history = History::default();
        for second in 0..10_u64 {
            accept(&mut history, "A", grown("a", "", 0, second * 10));
            history.acknowledged(Instant::now(), MAY_LOSE);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // The last answer said 90; 70 was there 2 s before.
        for branched in [71, 80, 91] {
            assert_eq!(history.lacks(&grown("b", "a", branched, 200)), None, "{branched}");
        }
        for branched in [1, 70] {
            let lack = history.lacks(&grown("b", "a", branched, 200)).unwrap();
            assert!(
                lack.contains("lost writes in a failover") && lack.contains("70 of a"),
                "{branched}: {lack}"
            );
        }
        assert_eq!(history.lacks(&grown("x", "", 0, 0)), None, "a restart");
        accept(&mut history, "B", grown("b", "a", 91, 91));
        // Nothing of that has settled.
        assert_eq!(history.lacks(&grown("c", "a", 71, 71)), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        accept(&mut history, "B", grown("b", "a", 91, 95));
        history.acknowledged(Instant::now(), MAY_LOSE);
        assert_eq!(history.lacks(&grown("b", "a", 91, 95)), None, "the one that is used");
        let lack = history.lacks(&grown("c", "a", 91, 300)).unwrap();
        assert!(lack.contains("id a up to 90 only, and 91 of b"), "{lack}");
        assert_eq!(history.lacks(&grown("c", "b", 92, 92)), None);
        assert!(history.lacks(&grown("c", "b", 91, 91)).is_some());
    }

    /// Goal: what a primary counts while it acknowledges nothing may be lost. Method: a line that grows by 10 a second,
    /// by heartbeats alone since the last call, for much longer than `may_lose`.
    #[tokio::test(start_paused = true)]
    async fn only_an_acknowledged_call_settles_what_was_there() {
        let mut history = History::default();
        history.acknowledged(Instant::now(), MAY_LOSE);
        let begun = Instant::now();
        for second in 0..30_u64 {
            accept(&mut history, "A", grown("a", "", 0, second * 10));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(history.lacks(&grown("b", "a", 1, 1)), None, "nobody was promised anything");
        // The answer came late; what counts is when the call was sent.
        history.acknowledged(begun + Duration::from_millis(4999), MAY_LOSE);
        assert!(history.lacks(&grown("b", "a", 20, 20)).is_some());
        assert_eq!(history.lacks(&grown("b", "a", 21, 21)), None);
        // Of what was heard in the pause the oldest was kept.
        assert_eq!(history.primary.as_ref().map(|(_, used)| used.samples.len()), Some(MOST_SAMPLES - 3));
        history.acknowledged(Instant::now(), MAY_LOSE);
        assert!(history.lacks(&grown("b", "a", 150, 150)).is_some());
        assert_eq!(history.lacks(&grown("b", "a", 151, 151)), None);
    }
}
