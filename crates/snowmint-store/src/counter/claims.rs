//! The claims of a counter whose store may lose acknowledged writes: one record of the reservations.
//! Pure; [`StoreCounter`](crate::StoreCounter) and the simulation run the same code.
//!
//! A mark that is written after an addition does not show that the addition survived: a failover between the
//! two loses only the addition, other callers then get the same numbers, and the mark is still found later.
//! So each reservation is *claimed*, with its numbers, in one record that all nodes replace by
//! compare-and-set. A claim that overlaps another one in that record is refused. Of two reservations of one
//! number, the record therefore holds at most one claim, and a claim that is found again once it has settled
//! is never lost.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::str;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::random_below;
use crate::{StoreError, StoreErrorKind};

/// Number of the newest claims that stay in the record, settled or not, so that a delayed node still finds
/// its own. Older claims leave the record once they have settled.
pub(crate) const KEPT: usize = 256;
/// Maximum number of claims in a record. Each takes at most 57 bytes, and a store accepts 64 KiB.
pub(crate) const MOST: usize = 1024;
/// Time that a claim stays beyond `may_lose`: its owner looks for it within that time.
const GRACE: Duration = Duration::from_secs(1);

/// Identifies a reservation: 64 random bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mark(pub u64);

impl Mark {
    /// Returns a new random mark.
    pub fn fresh() -> Self {
        Self(random_below(u64::MAX))
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The time at which this process first saw each mark of a record, oldest mark first.
///
/// Shows which reservations have settled, without any clock but elapsed local time: the age of another node's
/// claim counts from when this process first saw it.
#[derive(Debug, Default)]
pub(crate) struct Sightings(Mutex<Vec<(Mark, Instant)>>);

impl Sightings {
    /// Records the marks of a record that was just read, oldest first; forgets those that have left it.
    pub(crate) fn saw(&self, marks: impl IntoIterator<Item = Mark>) {
        let now = Instant::now();
        let mut seen = self.seen();
        let known: HashMap<Mark, Instant> = seen.drain(..).collect();
        seen.extend(marks.into_iter().map(|mark| (mark, known.get(&mark).copied().unwrap_or(now))));
    }

    /// Returns the marks in the record that have certainly settled: their owners have looked for them, or are
    /// gone.
    pub(crate) fn settled(&self, may_lose: Duration) -> Vec<Mark> {
        let age = may_lose.saturating_add(GRACE);
        self.seen().iter().take_while(|(_, since)| since.elapsed() >= age).map(|(mark, _)| *mark).collect()
    }

    /// A panic can at most forget marks, which then settle later, so a poisoned lock is safe to use.
    fn seen(&self) -> MutexGuard<'_, Vec<(Mark, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the error for a record that is full of claims which have not settled.
pub(crate) fn full(counter: &str, store: &str, may_lose: Duration) -> StoreError {
    let cause = format!(
        "{MOST} reservations of {counter} have not settled (may_lose={may_lose:?}), the limit of its store: nothing was \
         reserved; retry, or raise size_min and size_max, since larger segments need fewer reservations"
    );
    StoreError::new(StoreErrorKind::Unavailable, "reserve", store, cause)
}

/// The slots `first` to `end` (exclusive), claimed under a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ClaimedSlots {
    mark: Mark,
    first: u64,
    end: u64,
}

/// The record of claims: the newest claims, oldest first, and the slot below which all older claims lie.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    floor: u64,
    newest: Vec<ClaimedSlots>,
}

/// The reason why slots were not claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Another claim has some of the slots: the counter went back.
    Overlaps {
        /// Every claim lies below this slot.
        end: u64,
    },
    /// Claims that have left the record may have some of the slots: the counter went back, or this claim came
    /// after claims of greater slots had settled. The counter shows which.
    Late {
        /// Every claim lies below this slot.
        end: u64,
    },
    /// The record is full of claims that have not settled.
    Full,
}

impl Claims {
    /// Parses a record: the floor, then a line for each claim, `mark first end`.
    pub fn parse(record: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(record).ok()?.lines();
        let floor = lines.next()?.parse().ok()?;
        let claim = |line: &str| {
            let mut words = line.split(' ');
            let mark = Mark(u64::from_str_radix(words.next()?, 16).ok()?);
            let (first, end) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            words.next().is_none().then_some(ClaimedSlots { mark, first, end })
        };
        Some(Self { floor, newest: lines.map(claim).collect::<Option<_>>()? })
    }

    /// Returns the text that [`parse`](Self::parse) reads.
    pub fn to_text(&self) -> String {
        let mut text = self.floor.to_string();
        for ClaimedSlots { mark, first, end } in &self.newest {
            // Writing to a String does not fail.
            let _ = write!(text, "\n{mark} {first} {end}");
        }
        text
    }

    /// Claims the slots `first` to `end` (exclusive). When the record has many claims, the oldest leave it if
    /// `has_settled` returns true for them.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    pub fn claim(
        &mut self,
        mark: Mark,
        first: u64,
        end: u64,
        has_settled: impl Fn(Mark) -> bool,
    ) -> Result<(), Refused> {
        let overlaps = |claim: &ClaimedSlots| first < claim.end && claim.first < end;
        if self.newest.iter().any(overlaps) {
            return Err(Refused::Overlaps { end: self.end() });
        }
        if first < self.floor {
            return Err(Refused::Late { end: self.end() });
        }
        let leaving = self.leaving(has_settled);
        if self.newest.len() - leaving >= MOST {
            return Err(Refused::Full);
        }
        for old in self.newest.drain(..leaving) {
            self.floor = self.floor.max(old.end);
        }
        self.newest.push(ClaimedSlots { mark, first, end });
        Ok(())
    }

    /// Returns whether there is room for another claim.
    pub(crate) fn have_room(&self, has_settled: impl Fn(Mark) -> bool) -> bool {
        self.newest.len() - self.leaving(has_settled) < MOST
    }

    /// Returns how many of the oldest claims may leave the record for another one.
    fn leaving(&self, has_settled: impl Fn(Mark) -> bool) -> usize {
        let beyond = (self.newest.len() + 1).saturating_sub(KEPT);
        self.newest.iter().take(beyond).take_while(|claim| has_settled(claim.mark)).count()
    }

    /// Returns the marks of the claims, oldest first.
    pub(crate) fn marks(&self) -> impl Iterator<Item = Mark> {
        self.newest.iter().map(|claim| claim.mark)
    }

    /// Returns whether the record holds the claim of a mark.
    pub fn holds(&self, mark: Mark) -> bool {
        self.newest.iter().any(|claim| claim.mark == mark)
    }

    /// Returns the slot below which every claim lies.
    fn end(&self) -> u64 {
        self.newest.iter().map(|claim| claim.end).fold(self.floor, u64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_claimed_once_in_whatever_order() {
        let mut claims = Claims::default();
        let mut claim = |mark, first, end| claims.claim(Mark(mark), first, end, |_| false);
        claim(1, 10, 20).unwrap();
        claim(2, 0, 10).unwrap();
        claim(3, 20, 21).unwrap();
        for (first, end) in [(0, 1), (9, 11), (19, 20), (0, 30), (20, 22), (15, 16)] {
            assert_eq!(claim(4, first, end), Err(Refused::Overlaps { end: 21 }), "{first}..{end}");
        }
        assert!([1, 2, 3].into_iter().all(|it| claims.holds(Mark(it))) && !claims.holds(Mark(4)));
        assert_eq!(
            claims.to_text(),
            "0\n0000000000000001 10 20\n0000000000000002 0 10\n0000000000000003 20 21"
        );
        assert_eq!(Claims::parse(claims.to_text().as_bytes()), Some(claims));
    }

    #[test]
    fn what_left_the_record_is_never_claimed_again() {
        let mut claims = Claims::default();
        for n in 0..1000 {
            claims.claim(Mark(n), n * 10, n * 10 + 10, |_| true).unwrap();
        }
        assert!(claims.holds(Mark(999)) && claims.holds(Mark(1000 - KEPT as u64)));
        assert!(!claims.holds(Mark(999 - KEPT as u64)));
        for n in 0..1000 {
            let refused = claims.claim(Mark(1), n * 10 + 9, n * 10 + 10, |_| true);
            let has_left = n < 1000 - KEPT as u64;
            let expected =
                if has_left { Refused::Late { end: 10_000 } } else { Refused::Overlaps { end: 10_000 } };
            assert_eq!(refused, Err(expected), "{n}");
        }
    }

    #[test]
    fn no_claim_leaves_before_it_has_settled_and_a_full_record_takes_none() {
        let mut claims = Claims::default();
        let slots = |n: u64| ((u64::MAX >> 1) - 10_000 + n, (u64::MAX >> 1) - 10_000 + n + 1);
        for n in 0..MOST as u64 {
            let (first, end) = slots(n);
            claims.claim(Mark(u64::MAX - n), first, end, |_| false).unwrap();
        }
        assert!(claims.to_text().len() < 60 << 10, "{}", claims.to_text().len());
        let (first, end) = slots(5000);
        let before = claims.clone();
        assert_eq!(claims.claim(Mark(1), first, end, |_| false), Err(Refused::Full));
        assert!(claims == before && !claims.have_room(|_| false));
        // The second oldest alone does not help: claims leave the record oldest first.
        assert_eq!(claims.claim(Mark(1), first, end, |mark| mark == Mark(u64::MAX - 1)), Err(Refused::Full));
        let settled = |mark: Mark| mark.0 > u64::MAX - 100;
        assert!(claims.have_room(settled));
        claims.claim(Mark(1), first, end, settled).unwrap();
        assert_eq!(claims.marks().count(), MOST - 100 + 1);
        assert!(claims.holds(Mark(u64::MAX - 100)) && !claims.holds(Mark(u64::MAX - 99)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_mark_has_settled_once_it_was_seen_long_enough_and_one_that_left_is_forgotten() {
        let (sightings, may_lose) = (Sightings::default(), Duration::from_secs(2));
        let marks = |sightings: &Sightings| {
            sightings.settled(may_lose).into_iter().map(|it| it.0).collect::<Vec<_>>()
        };
        sightings.saw([Mark(1), Mark(2)]);
        tokio::time::advance(Duration::from_secs(2)).await;
        sightings.saw([Mark(1), Mark(2), Mark(3)]);
        assert!(marks(&sightings).is_empty());
        tokio::time::advance(GRACE).await;
        assert_eq!(marks(&sightings), [1, 2]);
        // The store lost the first mark and has it again.
        sightings.saw([Mark(2), Mark(3)]);
        sightings.saw([Mark(1), Mark(2), Mark(3)]);
        assert!(marks(&sightings).is_empty(), "the oldest that is there has not settled");
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(marks(&sightings), [1, 2, 3]);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bad in ["", "x", "-1", "0\nzz 1 2", "0\n1 2", "0\n1 2 3 4", "0\n1 2 x", "\n0"] {
            assert_eq!(Claims::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
