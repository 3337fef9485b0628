//! The clock of a node, for its ids and its leases: an anchored clock, which ignores steps of the wall clock, or the wall clock.

use std::fmt;
use std::sync::Arc;

use snowmint::clock::{ClockReport, Hold, Reading};
use snowmint::{AnchoredClock, Clock, WallClock};
use tokio::sync::watch;

/// The clock of a node's ids and leases. A clone refers to the same clock.
///
/// - **Anchored** (the default): it runs by boot time and ignores steps of the wall clock. It never goes back, so a
///   [rule](snowmint::Rule) decides only about used-up ticks. If it is behind the wall clock, it moves forward when a lease is
///   granted.
/// - **[Wall](Self::wall)**: timestamps follow every step of the wall clock. The rule decides what happens when it goes back. After
///   a step forward, the node renews its lease once the store or another node confirms the step, or it has lasted long enough.
///
/// Neither clock can repeat an id: a node uses only the timestamps of its lease, and its generator never goes back.
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
    inner: Arc<SharedClock>,
}

struct SharedClock {
    /// With the wall clock, it is used only to detect steps.
    anchored: Arc<AnchoredClock>,
    shows: Shows,
    /// The number of jumps forward: a jump may end leases.
    jumps: watch::Sender<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    Anchored,
    Wall,
}

impl NodeClock {
    fn new(anchored: Arc<AnchoredClock>, shows: Shows) -> Self {
        Self { inner: Arc::new(SharedClock { anchored, shows, jumps: watch::channel(0).0 }) }
    }

    /// Makes a clock that follows the wall clock with all its steps.
    pub fn wall() -> Self {
        Self::new(Arc::new(AnchoredClock::new()), Shows::Wall)
    }

    /// Returns how far the wall clock is ahead, in milliseconds; 0 if it is behind.
    pub(crate) fn wall_ahead_ms(&self) -> u64 {
        match self.inner.shows {
            Shows::Anchored => WallClock.unix_ms().saturating_sub(self.unix_ms()),
            Shows::Wall => 0,
        }
    }

    /// Returns the time without steps of the wall clock since this clock was made, in unix milliseconds.
    pub(crate) fn unstepped_unix_ms(&self) -> u64 {
        self.inner.anchored.unix_ms()
    }

    /// Moves the clock forward to the instant by which a lease was granted. Returns by how many milliseconds.
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

    /// Looks for steps of the wall clock and follows slow corrections. Call it about once a second.
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

    /// Returns a receiver of jumps forward.
    pub(crate) fn jumps(&self) -> watch::Receiver<u64> {
        self.inner.jumps.subscribe()
    }

    /// Returns what a step of the wall clock means for ids.
    pub(crate) fn on_step(&self) -> &'static str {
        match self.inner.shows {
            Shows::Anchored => "ids ignore it, because this node uses an anchored clock",
            Shows::Wall => "ids follow it; the rule decides what happens when it goes back",
        }
    }
}

/// Makes a new anchored clock.
impl Default for NodeClock {
    fn default() -> Self {
        AnchoredClock::new().into()
    }
}

impl From<AnchoredClock> for NodeClock {
    fn from(anchored: AnchoredClock) -> Self {
        Arc::new(anchored).into()
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
        // For both clocks, a reading holds until the processor's counter shows that its millisecond has passed.
        WallClock.holds(hold)
    }
}
