//! Which primary a store uses, and which lines of writes it has left behind.
//! A primary that is replaced and not told goes on with its line; the one that replaces it begins another.

use crate::location::Host;

/// The line of writes of one server.
///
/// Redis names a line at random, anew at each start and each promotion, so a name that was left comes back only with a
/// process that has run on since then.
#[derive(Clone, Default, Debug)]
pub(super) struct Line {
    /// `master_replid`.
    pub(super) now: String,
    /// `master_replid2`: the line that it continues, as after a promotion; empty for none.
    pub(super) before: String,
}

/// What a store knows of its primaries.
#[derive(Default, Debug)]
pub(super) struct History {
    /// The one that is used, and its line.
    primary: Option<(Host, String)>,
    left: Vec<String>,
    /// Whether its host has told by now that it is none any more.
    is_gone: bool,
    /// Whether a server that continues its line was seen, and both have not been one again since.
    is_doubted: bool,
}

impl History {
    /// All hosts are about to be asked.
    pub(super) fn begin(&mut self) {
        self.is_gone = false;
    }

    /// A host is a replica, or nobody listens there. A host that is silent may still be a primary.
    pub(super) fn is_none(&mut self, host: &Host) {
        self.is_gone |= self.primary.as_ref().is_some_and(|(at, _)| at == host);
    }

    /// Whether a primary was used, and its host has told by now that it is none any more.
    pub(super) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Whether a primary is used, by which others can be judged.
    pub(super) const fn is_known(&self) -> bool {
        self.primary.is_some()
    }

    /// The line of the primary that is used.
    pub(super) fn line(&self) -> Option<&str> {
        self.primary.as_ref().map(|(_, line)| &**line)
    }

    /// Whether a server that accepts writes may be the primary, or a second one; if not, says why.
    ///
    /// One that continues a line of ours may. One that has nothing to do with it may not, such as an old primary that
    /// comes back before it is told to follow: whoever was connected when there was only one can tell which it is. It may
    /// once the one that is used is gone.
    pub(super) fn judge(&mut self, host: &Host, line: &Line) -> Result<(), String> {
        let Some((at, now)) = &self.primary else {
            return Ok(());
        };
        if self.left.contains(&line.now) {
            return Err(format!(
                "is a primary that another has replaced (replication id {}), and lacks what was written since; make it a \
                 replica of {at}",
                line.now
            ));
        }
        let continues = *now == line.before || self.left.contains(&line.before);
        self.is_doubted |= continues && *now != line.now;
        if self.is_doubted || self.is_gone || at == host || *now == line.now {
            return Ok(());
        }
        Err(format!(
            "is a primary that does not continue {at} (replication id {now}); make it a replica of the right primary, or \
             restart the nodes if it is the right one"
        ))
    }

    /// Goes on with a primary that was judged.
    pub(super) fn accept(&mut self, host: &Host, line: Line) {
        if let Some((_, now)) = &self.primary
            && *now != line.now
        {
            self.left.push(now.clone());
        }
        self.primary = Some((host.clone(), line.now));
        self.is_doubted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        Host::new(name.to_owned(), 1)
    }

    fn line(now: &str, before: &str) -> Line {
        Line { now: now.to_owned(), before: before.to_owned() }
    }

    /// Whether a server may be the primary, which is used then.
    fn used(history: &mut History, at: &str, now: &str, before: &str) -> bool {
        let accepted = history.judge(&host(at), &line(now, before)).is_ok();
        if accepted {
            history.accept(&host(at), line(now, before));
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
        history.is_none(&host("B"));
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
        history.accept(&host("B"), line("b", "a"));
        assert!(!judged(&mut history, "D", "x", ""));
        assert!(judged(&mut history, "C", "c", "b"), "another was promoted");
    }

    #[test]
    fn a_line_of_its_own_may_follow_a_primary_that_is_gone() {
        let mut history = failed_over();
        let stranger = (host("A"), line("x", ""));
        history.is_none(&host("A"));
        assert!(!history.is_gone() && history.judge(&stranger.0, &stranger.1).is_err());
        history.is_none(&host("B"));
        assert!(history.is_gone() && history.judge(&stranger.0, &stranger.1).is_ok());
        history.accept(&stranger.0, stranger.1);
        history.begin();
        assert!(history.judge(&host("B"), &line("z", "")).is_err(), "what was gone was asked before");
    }
}
