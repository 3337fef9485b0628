//! Which primary a store uses, and which lines of writes it has left behind. Several hosts may accept writes
//! after a failover; a line that was left lacks later writes and is never used again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::server_info::{Replica, ReplicationLine};
use crate::net::url::Host;

/// Number of positions to remember within the time that the newest writes may be lost.
const SAMPLES: u32 = 8;
/// Maximum number of positions to remember, also if nothing is acknowledged.
const MOST_SAMPLES: usize = 2 * SAMPLES as usize;

/// What a store knows of its primaries.
#[derive(Default, Debug)]
pub(super) struct PrimaryHistory {
    /// The primary in use, and its line.
    primary: Option<(Host, Used)>,
    left: Vec<Used>,
    /// Whether its host has reported that it is no longer a primary.
    is_gone: bool,
    /// The replicas that have answered in this round.
    seen: Vec<(Host, Replica)>,
    /// Whether a server that continues the line in use was seen, and the two have not been one again since.
    is_doubted: bool,
}

/// A line that is or was used.
#[derive(Default, Debug)]
struct Used {
    name: String,
    /// Its positions, and the times at which they were reported.
    samples: VecDeque<(Instant, u64)>,
    /// The position that no failover may lose: the line had reached it `may_lose` before a call that it
    /// acknowledged.
    settled: Option<u64>,
    /// The hosts that were replicas of it lately.
    replicas: Vec<NotedReplica>,
}

/// A replica of the primary in use, when it was last seen connected.
#[derive(Debug)]
struct NotedReplica {
    host: Host,
    position: u64,
    seen: Instant,
}

impl Used {
    fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// Records the position of the line. Nothing relies on it yet, since a primary that rejects writes still
    /// increases it.
    fn note(&mut self, position: u64, heard: Instant, may_lose: Duration) {
        let is_due =
            |(last, _): &(Instant, u64)| heard.saturating_duration_since(*last) >= may_lose / SAMPLES;
        // The oldest stay, since they settle first.
        if self.samples.len() < MOST_SAMPLES && self.samples.back().is_none_or(is_due) {
            self.samples.push_back((heard, position));
        }
    }

    /// Notes the replicas of this line that were seen in a round. One that is missing in it may be down, and
    /// lacks more and more that settles; it is forgotten after half of `may_lose`, since the other half may
    /// pass until the primary dies.
    fn note_replicas(&mut self, seen: &[(Host, Replica)], heard: Instant, may_lose: Duration) {
        let is_seen = |host: &Host| seen.iter().any(|(at, _)| at == host);
        self.replicas
            .retain(|it| !is_seen(&it.host) && heard.saturating_duration_since(it.seen) < may_lose / 2);
        let of_this_line = seen.iter().filter(|(_, replica)| replica.line == self.name);
        self.replicas.extend(of_this_line.map(|(host, replica)| NotedReplica {
            host: host.clone(),
            position: replica.position,
            seen: heard,
        }));
    }

    /// Returns whether a host was a replica with all that has settled until the primary was last heard.
    fn was_on(&self, host: &Host) -> bool {
        let had_all = |it: &NotedReplica| self.settled.is_none_or(|settled| it.position >= settled);
        self.replicas.iter().any(|it| it.host == *host && had_all(it))
    }
}

impl PrimaryHistory {
    /// Starts a round of asking all hosts.
    pub(super) fn begin(&mut self) {
        self.is_gone = false;
        self.seen.clear();
    }

    /// Records that a host is a replica, or that its port is closed. An unresponsive host may still be a
    /// primary.
    pub(super) fn not_primary(&mut self, host: &Host) {
        self.is_gone |= self.primary.as_ref().is_some_and(|(at, _)| at == host);
    }

    /// Notes what a replica has.
    pub(super) fn follows(&mut self, host: &Host, replica: Replica) {
        self.seen.retain(|(at, _)| at != host);
        self.seen.push((host.clone(), replica));
    }

    /// Returns whether a replica of the primary in use was noted.
    #[cfg(test)]
    pub(super) fn has_replica(&self) -> bool {
        self.primary.as_ref().is_some_and(|(_, used)| !used.replicas.is_empty())
    }

    /// Returns whether a primary was used, and its host has said that it is none any more.
    pub(super) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Returns whether a primary is in use, by which others can be judged.
    pub(super) const fn is_known(&self) -> bool {
        self.primary.is_some()
    }

    /// Returns the line of the primary in use.
    pub(super) fn line(&self) -> Option<&str> {
        self.primary.as_ref().map(|(_, line)| &*line.name)
    }

    /// Returns whether a server that accepts writes may be the primary, or a second one; otherwise the
    /// reason.
    ///
    /// One that continues a line of ours may. Once there is such a server beside the primary in use, any
    /// other counts as a second one too, since nobody knows which is the right one.
    pub(super) fn judge(&mut self, host: &Host, line: &ReplicationLine) -> Result<(), String> {
        let Some((at, Used { name: now, .. })) = &self.primary else {
            return Ok(());
        };
        if self.was_left(&line.now) {
            return Err(format!(
                "is a primary that another has replaced (replication id {}) and lacks later writes; make it a \
                 replica of {at}",
                line.now
            ));
        }
        self.is_doubted |= self.continues(line) && *now != line.now;
        if self.is_doubted { Ok(()) } else { self.check_origin(host, line) }
    }

    /// Refuses a primary whose line shows nothing of what it has, unless it had everything: the primary in
    /// use after a restart, a replica of the primary in use to its end, or a server that the primary in use
    /// now follows. A replica returns from a crash as a replica, so it was promoted.
    ///
    /// Any other may be an old primary that came back before it becomes a replica. That the one in use is
    /// gone, as during a restart, does not make the other one right.
    pub(super) fn check_origin(&self, host: &Host, line: &ReplicationLine) -> Result<(), String> {
        let Some((at, used)) = &self.primary else {
            return Ok(());
        };
        let is_related = used.name == line.now || self.continues(line);
        let had_all =
            || at == host || (self.is_gone || self.is_doubted) && used.was_on(host) || self.is_heir(line);
        if is_related || had_all() {
            return Ok(());
        }
        Err(format!(
            "is a primary that does not continue {at} (replication id {}), so it may lack writes; start {at}, or make this \
             server a replica of the right primary; if it is the right one, restart the nodes, after `snowmint store recover` \
             if it lacks writes",
            used.name
        ))
    }

    /// Returns whether the primary in use became a replica of this one, which was a replica with all that has
    /// settled.
    ///
    /// The two may have no id in common: Redis names a line again when the first replica connects, and after
    /// an hour without any. It continues the positions. Position 0 says nothing: some servers count only
    /// while they have replicas.
    fn is_heir(&self, line: &ReplicationLine) -> bool {
        let Some((at, used)) = &self.primary else {
            return false;
        };
        let had_all = match used.settled {
            Some(settled) => (1..line.branched).contains(&settled),
            // Nobody relies on anything, as at a start.
            None => self.left.iter().all(|it| it.settled.is_none()),
        };
        let is_followed = self.seen.iter().any(|(host, replica)| host == at && replica.line == line.now);
        is_followed && !line.before.is_empty() && had_all
    }

    fn was_left(&self, name: &str) -> bool {
        self.left.iter().any(|it| it.name == name)
    }

    /// Returns whether a line left one of ours.
    fn continues(&self, line: &ReplicationLine) -> bool {
        self.line() == Some(&line.before) || self.was_left(&line.before)
    }

    /// Returns what the only server that accepts writes lacks of what has settled; `None` if nothing is known
    /// of that.
    ///
    /// Only called once it is certain that it is the only one: until then it counts as a second primary. An
    /// unrelated line says nothing, as after a restart; see [`check_origin`](Self::check_origin).
    pub(super) fn lacks(&self, line: &ReplicationLine) -> Option<String> {
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
        // It left the line before the later lines began.
        lines.find_map(|later| Some(lost(later.settled?, &later.name)))
    }

    /// Continues with a primary that was judged and lacks nothing.
    pub(super) fn accept(&mut self, host: &Host, line: ReplicationLine, heard: Instant, may_lose: Duration) {
        let mut used = match self.primary.take() {
            Some((_, used)) if used.name == line.now => used,
            before => {
                let left = |used| Used { samples: VecDeque::new(), replicas: Vec::new(), ..used };
                self.left.extend(before.map(|(_, used)| left(used)));
                Used::new(line.now)
            }
        };
        used.note(line.position, heard, may_lose);
        used.note_replicas(&self.seen, heard, may_lose);
        self.primary = Some((host.clone(), used));
        self.is_doubted = false;
    }

    /// Continues with a member of a cluster. The cluster itself decides which member is the primary, and keys
    /// that moved to another member may return to an earlier one.
    pub(super) fn accept_member(
        &mut self,
        host: &Host,
        line: ReplicationLine,
        heard: Instant,
        may_lose: Duration,
    ) {
        self.accept(host, line, heard, may_lose);
        self.left.clear();
    }

    /// Records that the primary acknowledged a write that was sent at this time, with its replicas if they
    /// are required: writes that were acknowledged long enough before have settled.
    pub(super) fn acknowledged(&mut self, sent: Instant, may_lose: Duration) {
        let Some((_, used)) = &mut self.primary else {
            return;
        };
        while let Some((heard, old)) = used.samples.front().copied()
            && sent.checked_duration_since(heard).is_some_and(|before| before >= may_lose)
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

    fn line(now: &str, before: &str) -> ReplicationLine {
        ReplicationLine { now: now.to_owned(), before: before.to_owned(), ..ReplicationLine::default() }
    }

    const MAY_LOSE: Duration = Duration::from_secs(2);

    fn accept(history: &mut PrimaryHistory, at: &str, line: ReplicationLine) {
        history.accept(&host(at), line, Instant::now(), MAY_LOSE);
    }

    /// Returns a line that has reached `position` and left the line before at `branched`.
    fn grown(now: &str, before: &str, branched: u64, position: u64) -> ReplicationLine {
        ReplicationLine { branched, position, ..line(now, before) }
    }

    /// Returns whether a server may be the primary, and uses it if so.
    fn used(history: &mut PrimaryHistory, at: &str, now: &str, before: &str) -> bool {
        let accepted = history.judge(&host(at), &line(now, before)).is_ok();
        if accepted {
            accept(history, at, line(now, before));
        }
        accepted
    }

    /// A store that went from `a` on host A to `b` on host B, which was promoted.
    fn failed_over() -> PrimaryHistory {
        let mut history = PrimaryHistory::default();
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
        let judged = |history: &mut PrimaryHistory, at, now, before| {
            history.judge(&host(at), &line(now, before)).is_ok()
        };
        assert!(judged(&mut PrimaryHistory::default(), "A", "x", ""), "nobody knows which is the right one");
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

    fn replica(line: &str, position: u64) -> Replica {
        Replica { line: line.to_owned(), position }
    }

    /// Asks the primary in use, and one of its replicas.
    fn hear(history: &mut PrimaryHistory, at: &str, line: ReplicationLine, other: &str, replica: Replica) {
        history.begin();
        history.follows(&host(other), replica);
        accept(history, at, line);
    }

    /// Returns whether a server may be the primary once it is certain that it is the only one.
    fn may_be_used(history: &mut PrimaryHistory, at: &str, line: &ReplicationLine) -> bool {
        history.judge(&host(at), line).is_ok() && history.check_origin(&host(at), line).is_ok()
    }

    /// Goal: a line that shows nothing is used only where the host had everything. Method: a promotion and a
    /// restart that nobody saw, on a host that was a replica, of an old primary, and on one that was never
    /// heard of; the primary in use is gone.
    #[test]
    fn a_line_of_its_own_may_follow_a_primary_that_is_gone() {
        let stranger = line("x", "");
        let mut history = failed_over();
        history.not_primary(&host("B"));
        assert!(history.is_gone());
        for at in ["A", "C"] {
            let error = history.judge(&host(at), &stranger).unwrap_err();
            assert!(error.contains("does not continue B:1 (replication id b)"), "{at}: {error}");
        }
        assert!(may_be_used(&mut history, "B", &stranger), "a restart");

        let mut history = failed_over();
        hear(&mut history, "B", line("b", "a"), "A", replica("x", 9));
        history.not_primary(&host("B"));
        assert!(!may_be_used(&mut history, "A", &stranger), "it has not synced");
        hear(&mut history, "B", line("b", "a"), "A", replica("b", 9));
        history.not_primary(&host("B"));
        assert!(!may_be_used(&mut history, "C", &stranger));
        history.begin();
        assert!(!may_be_used(&mut history, "A", &stranger), "what was gone was asked before");
        history.not_primary(&host("A"));
        assert!(!history.is_gone() && !may_be_used(&mut history, "A", &stranger));
        history.not_primary(&host("B"));
        assert!(may_be_used(&mut history, "A", &stranger));
        accept(&mut history, "A", stranger);
        history.not_primary(&host("A"));
        assert!(!may_be_used(&mut history, "B", &line("z", "")), "it has nothing of x");
    }

    /// Goal: an old primary counts as a second primary while nobody knows the right one, and is never used.
    /// Method: a promotion that is seen beside the primary in use, and then a server that has nothing of
    /// either.
    #[test]
    fn a_line_of_its_own_is_a_second_primary_but_not_the_only_one() {
        let mut history = failed_over();
        hear(&mut history, "B", line("b", "a"), "C", replica("b", 9));
        assert!(history.judge(&host("C"), &line("c", "b")).is_ok());
        let stranger = line("x", "");
        assert!(history.judge(&host("A"), &stranger).is_ok(), "it counts");
        assert!(history.check_origin(&host("A"), &stranger).is_err());
        assert!(may_be_used(&mut history, "C", &line("d", "")), "it was promoted, and restarted since");
    }

    /// Goal: a planned switchover to a replica that connected a moment before is followed, and no server
    /// without the data. Method: the primary in use follows another, which was a replica with more and with
    /// less than has settled, or was none.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_the_primary_follows_is_used_if_it_has_everything() {
        let mut history = PrimaryHistory::default();
        accept(&mut history, "A", grown("a", "", 0, 90));
        tokio::time::advance(MAY_LOSE).await;
        let promoted = |branched| grown("y", "z", branched, 100);
        history.not_primary(&host("A"));
        assert!(!may_be_used(&mut history, "B", &promoted(91)), "nobody follows it");
        history.follows(&host("A"), replica("y", 95));
        assert!(may_be_used(&mut history, "B", &promoted(1)), "nothing has settled");
        history.acknowledged(Instant::now(), MAY_LOSE);
        for (line, expected) in [
            (promoted(91), true),
            (promoted(90), false),
            (grown("y", "", 0, 100), false),
            (grown("x", "z", 91, 100), false),
        ] {
            assert_eq!(may_be_used(&mut history, "B", &line), expected, "{line:?}");
        }
        history.begin();
        history.not_primary(&host("A"));
        assert!(!may_be_used(&mut history, "B", &promoted(91)), "that was before");
        accept(&mut history, "A", line("x", ""));
        history.follows(&host("A"), replica("y", 95));
        assert!(!may_be_used(&mut history, "B", &promoted(91)), "what has settled before the restart counts");
    }

    /// Goal: a replica is no place for a line that shows nothing if it lacked what has settled when it was
    /// last seen. Method: a line that grows by 10, and a replica that has all, not all, and all again.
    #[tokio::test(start_paused = true)]
    async fn a_replica_that_lagged_has_not_everything() {
        let mut history = PrimaryHistory::default();
        for (position, of_replica, expected) in [(90, 90, true), (100, 99, false), (110, 110, true)] {
            hear(&mut history, "A", grown("a", "", 0, position), "B", replica("a", of_replica));
            tokio::time::advance(MAY_LOSE).await;
            history.acknowledged(Instant::now(), MAY_LOSE);
            history.not_primary(&host("A"));
            assert_eq!(may_be_used(&mut history, "B", &line("x", "")), expected, "{position}");
        }
    }

    /// Goal: a replica that was down before the primary is no place for a line that shows nothing, though
    /// little has settled since. Method: rounds in which it is missing, up to half of `may_lose` and beyond.
    #[tokio::test(start_paused = true)]
    async fn a_replica_that_went_before_its_primary_is_not_followed() {
        let mut history = PrimaryHistory::default();
        hear(&mut history, "A", line("a", ""), "B", replica("a", 0));
        let half = u64::try_from(MAY_LOSE.as_millis() / 2).unwrap();
        for (wait_ms, expected) in [(half - 1, true), (1, false)] {
            tokio::time::advance(Duration::from_millis(wait_ms)).await;
            history.begin();
            accept(&mut history, "A", line("a", ""));
            history.not_primary(&host("A"));
            assert_eq!(may_be_used(&mut history, "B", &line("x", "")), expected, "{wait_ms} ms later");
        }
    }

    /// Goal: what was heard while a call ran has not settled by its answer. Method: no loss is allowed, so
    /// that any time before the call is enough.
    #[tokio::test(start_paused = true)]
    async fn a_position_that_was_heard_after_a_call_began_has_not_settled() {
        let mut history = PrimaryHistory::default();
        let sent = Instant::now();
        tokio::time::advance(Duration::from_millis(1)).await;
        history.accept(&host("A"), grown("a", "", 0, 90), Instant::now(), Duration::ZERO);
        history.acknowledged(sent, Duration::ZERO);
        assert_eq!(history.lacks(&grown("b", "a", 80, 80)), None);
        history.acknowledged(Instant::now(), Duration::ZERO);
        assert!(history.lacks(&grown("b", "a", 80, 80)).is_some());
    }

    /// Goal: a failover that lost more than it may is refused, and no other. Method: a line that grows by 10
    /// per second, and successors that left it earlier and later; `may_lose` is 2 s.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_lost_what_has_settled_is_refused() {
        let mut history = PrimaryHistory::default();
        for second in 0..10_u64 {
            accept(&mut history, "A", grown("a", "", 0, second * 10));
            history.acknowledged(Instant::now(), MAY_LOSE);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // The last report said 90; the position 2 s before was 70.
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
        // None of that has settled.
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

    /// Goal: positions that a primary adds while it acknowledges nothing may be lost. Method: since the last
    /// call, a line grows by 10 per second through heartbeats alone, for much longer than `may_lose`.
    #[tokio::test(start_paused = true)]
    async fn only_an_acknowledged_call_settles_what_was_there() {
        let mut history = PrimaryHistory::default();
        history.acknowledged(Instant::now(), MAY_LOSE);
        let begun = Instant::now();
        for second in 0..30_u64 {
            accept(&mut history, "A", grown("a", "", 0, second * 10));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(history.lacks(&grown("b", "a", 1, 1)), None, "nobody was promised anything");
        // The answer came late; the time at which the call was sent counts.
        history.acknowledged(begun + Duration::from_millis(4999), MAY_LOSE);
        assert!(history.lacks(&grown("b", "a", 20, 20)).is_some());
        assert_eq!(history.lacks(&grown("b", "a", 21, 21)), None);
        // Of the positions reported during the pause, the oldest ones were kept.
        assert_eq!(history.primary.as_ref().map(|(_, used)| used.samples.len()), Some(MOST_SAMPLES - 3));
        history.acknowledged(Instant::now(), MAY_LOSE);
        assert!(history.lacks(&grown("b", "a", 150, 150)).is_some());
        assert_eq!(history.lacks(&grown("b", "a", 151, 151)), None);
    }
}
