//! The clock of a node: its ids are made by it and its leases are counted by it.
//! It is anchored, so that a step of the wall clock changes nothing, or it is the wall clock itself.

use std::fmt;
use std::sync::Arc;

use snowmint::clock::{ClockReport, Hold, Reading};
use snowmint::{AnchoredClock, Clock, WallClock};
use tokio::sync::watch;

/// Tells a node the time, for its ids and its leases; cheap to clone.
///
/// Anchored, it runs by boot time, and a step of the wall clock changes nothing: a [rule](snowmint::Rule) then decides
/// about ticks that are used up, and never about a clock that went back. Only a node that is behind the wall clock is
/// brought forward, with a lease that is granted. With [`wall`](Self::wall) timestamps follow every step of the wall clock: the
/// rule decides what happens when it goes back, and a lease is renewed after a step forward once the store, another node or time
/// confirms it.
///
/// Neither choice can repeat an id: a node uses only the timestamps of its lease, and its generator never goes back.
///
/// # Examples
///
/// ```
/// use snowmint::{AnchoredClock, Clock as _};
/// use snowmint_cluster::NodeClock;
/// use std::sync::Arc;
/// let anchored = NodeClock::from(Arc::new(AnchoredClock::new()));
/// assert!(anchored.unix_ms().abs_diff(NodeClock::wall().unix_ms()) < 1000);
/// ```
#[derive(Clone)]
pub struct NodeClock {
    inner: Arc<Inner>,
}

struct Inner {
    /// Beside the wall clock it only notices steps.
    anchored: Arc<AnchoredClock>,
    shows: Shows,
    /// Counts how often the time that is shown jumped forward: leases may have ended by that.
    jumps: watch::Sender<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    Anchored,
    Wall,
}

impl NodeClock {
    fn new(anchored: Arc<AnchoredClock>, shows: Shows) -> Self {
        Self { inner: Arc::new(Inner { anchored, shows, jumps: watch::channel(0).0 }) }
    }

    /// The wall clock, steps and all.
    pub fn wall() -> Self {
        Self::new(Arc::new(AnchoredClock::new()), Shows::Wall)
    }

    /// How far the wall clock is ahead, in milliseconds; 0 where it is behind.
    pub(crate) fn wall_ahead_ms(&self) -> u64 {
        match self.inner.shows {
            Shows::Anchored => WallClock.unix_ms().saturating_sub(self.unix_ms()),
            Shows::Wall => 0,
        }
    }

    /// What it would show without the steps of the wall clock since it was made, in unix milliseconds.
    pub(crate) fn unstepped_unix_ms(&self) -> u64 {
        self.inner.anchored.unix_ms()
    }

    /// Brings it forward to an instant by which a lease was granted; returns by how many milliseconds.
    pub(crate) fn advance_to(&self, unix_ms: u64) -> u64 {
        match self.inner.shows {
            Shows::Anchored => {
                let by_ms = self.inner.anchored.advance_to(unix_ms);
                if by_ms > 0 {
                    self.jumped();
                }
                by_ms
            }
            Shows::Wall => 0,
        }
    }

    /// Looks for steps of the wall clock, and follows slow corrections. To be called about once a second.
    pub(crate) fn watch(&self) -> ClockReport {
        let report = self.inner.anchored.follow_wall();
        match self.inner.shows {
            Shows::Anchored => report,
            Shows::Wall => {
                if report.stepped_ms > 0 {
                    self.jumped();
                }
                ClockReport { wall_ahead_ms: 0, ..report }
            }
        }
    }

    fn jumped(&self) {
        self.inner.jumps.send_modify(|jumps| *jumps += 1);
    }

    /// Hears of jumps forward.
    pub(crate) fn jumps(&self) -> watch::Receiver<u64> {
        self.inner.jumps.subscribe()
    }

    /// What a step of the wall clock means for ids.
    pub(crate) fn on_step(&self) -> &'static str {
        match self.inner.shows {
            Shows::Anchored => "ids go on by the clock this process was started with",
            Shows::Wall => "ids follow it; the rule decides what happens when it goes back",
        }
    }
}

impl From<Arc<AnchoredClock>> for NodeClock {
    fn from(anchored: Arc<AnchoredClock>) -> Self {
        Self::new(anchored, Shows::Anchored)
    }
}

impl fmt::Debug for NodeClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeClock").field("shows", &self.inner.shows).finish_non_exhaustive()
    }
}

impl Clock for NodeClock {
    #[inline]
    fn unix_ms(&self) -> u64 {
        match self.inner.shows {
            Shows::Anchored => self.inner.anchored.unix_ms(),
            Shows::Wall => WallClock.unix_ms(),
        }
    }

    #[inline]
    fn read(&self) -> Reading {
        match self.inner.shows {
            Shows::Anchored => self.inner.anchored.read(),
            Shows::Wall => WallClock.read(),
        }
    }

    #[inline]
    fn holds(&self, hold: Hold) -> bool {
        // Of both clocks a reading holds until its millisecond has passed by the processor's counter.
        WallClock.holds(hold)
    }
}
