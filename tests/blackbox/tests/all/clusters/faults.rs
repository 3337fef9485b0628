//! The faults of a run and their results, printed at its end.
//! Each kind must strike often enough, or the run proves nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::coordinators::Trouble;
use super::switchovers::Switch;

#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) node_kills: u32,
    pub(crate) node_pauses: u32,
    pub(crate) fresh_after_pause: u32,
    pub(crate) errors_after_pause: u32,
    pub(crate) clock_steps: u32,
    pub(crate) steps_seen: usize,
    pub(crate) starts_ahead: u32,
    pub(crate) starts_behind: u32,
    pub(crate) first_ids: Vec<Duration>,
    pub(crate) coordinator_kills: u32,
    pub(crate) coordinator_pauses: u32,
    pub(crate) leaders_hit: u32,
    pub(crate) outages: u32,
    pub(crate) troubles: BTreeMap<Trouble, u32>,
    /// Number of switches of the primary, by kind.
    pub(crate) switches: BTreeMap<Switch, u32>,
    /// Number of switches that were postponed because replicas lagged.
    pub(crate) put_off: u32,
    /// Number of nodes that were restarted because they had not seen that a promoted server had everything.
    pub(crate) refused_successors: u32,
    /// Time from the end of the last fault until every node served ids.
    pub(crate) well_after: Duration,
}

impl Faults {
    /// Returns the count of the rarest kind of fault.
    pub(crate) fn least(&self) -> u32 {
        let nodes = [self.node_kills, self.node_pauses, self.clock_steps, self.troubles.values().sum()];
        nodes.into_iter().fold(self.least_of_coordinators(), u32::min)
    }

    /// The same for the faults that strike coordinators and do not change their roles.
    pub(crate) fn least_of_coordinators(&self) -> u32 {
        self.coordinator_kills.min(self.coordinator_pauses)
    }

    /// The count of the rarest way of changing the primary; unlimited if there is none.
    pub(crate) fn least_switches(&self) -> u32 {
        self.switches.values().copied().min().unwrap_or(u32::MAX)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut times = self.first_ids.clone();
        times.sort_unstable();
        let (median, worst) = (times.get(times.len() / 2), times.last());
        let median = median.copied().unwrap_or_default();
        writeln!(
            f,
            "coordinators: kill -9 {}, paused {}, of these the leader {}, with no majority left {}\n\
             nodes: kill -9 and restart {} (clock an hour ahead {}, behind {}), start to first id: median {median:.0?}, \
             worst {:.1?}\n\
             nodes paused beyond the window {}, answers right after: {} with fresh ids, {} errors\n\
             clock steps by an hour or two {}, seen by nodes {}",
            self.coordinator_kills,
            self.coordinator_pauses,
            self.leaders_hit,
            self.outages,
            self.node_kills,
            self.starts_ahead,
            self.starts_behind,
            worst.copied().unwrap_or_default(),
            self.node_pauses,
            self.fresh_after_pause,
            self.errors_after_pause,
            self.clock_steps,
            self.steps_seen,
        )?;
        let troubles: Vec<String> =
            self.troubles.iter().map(|(what, count)| format!("{what:?} {count}")).collect();
        writeln!(f, "nodes' way to the store: {}", troubles.join(", "))?;
        if !self.switches.is_empty() {
            let switches: Vec<String> =
                self.switches.iter().map(|(what, count)| format!("{what:?} {count}")).collect();
            writeln!(
                f,
                "changes of the primary: {}; put off {}; nodes that had to be restarted after one: {}",
                switches.join(", "),
                self.put_off,
                self.refused_successors
            )?;
        }
        write!(f, "every node served {:.1?} after the last fault had ended", self.well_after)
    }
}
