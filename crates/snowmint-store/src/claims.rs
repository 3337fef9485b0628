//! The claims beside a counter whose store may lose acknowledged writes: which reservations one history holds.
//! Pure; [`StoreCounter`](crate::StoreCounter) and the simulation drive the same code.
//!
//! A mark that is written after an addition does not show that the addition survived: a failover between the two loses
//! the addition alone, others then get the same numbers, and the mark is found later all the same. So each reservation
//! is *claimed*, with its numbers, in one record that all nodes replace by compare-and-set. A claim that overlaps
//! another one of that record is refused. Of two reservations of one number, one history holds at most one claim; and a
//! claim that is found again once it has settled is never lost.

use std::fmt::{self, Write as _};
use std::str;

use crate::random;

/// How many claims are kept. A claim that left the record before it settled costs its numbers, nothing else.
const MOST: usize = 256;

/// What tells one reservation from all others: 64 random bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mark(pub u64);

impl Mark {
    /// A mark that nobody made before.
    pub fn fresh() -> Self {
        Self(random::below(u64::MAX))
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The slots from `first` up to and without `end`, claimed under a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Claim {
    mark: Mark,
    first: u64,
    end: u64,
}

/// The record: the newest claims, oldest first, and the slot below which older ones lie.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    floor: u64,
    newest: Vec<Claim>,
}

/// Slots that another claim has already: the counter went back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overlaps {
    /// Every claim lies below this slot.
    pub end: u64,
}

impl Claims {
    /// Reads a record: the floor, then a line for each claim, `mark first end`.
    pub fn parse(record: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(record).ok()?.lines();
        let floor = lines.next()?.parse().ok()?;
        let claim = |line: &str| {
            let mut words = line.split(' ');
            let mark = Mark(u64::from_str_radix(words.next()?, 16).ok()?);
            let (first, end) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            words.next().is_none().then_some(Claim { mark, first, end })
        };
        Some(Self { floor, newest: lines.map(claim).collect::<Option<_>>()? })
    }

    /// What [`parse`](Self::parse) reads.
    pub fn to_text(&self) -> String {
        let mut text = self.floor.to_string();
        for Claim { mark, first, end } in &self.newest {
            // A text takes whatever is written.
            let _ = write!(text, "\n{mark} {first} {end}");
        }
        text
    }

    /// Claims the slots from `first` up to and without `end`.
    ///
    /// # Errors
    ///
    /// [`Overlaps`] where one of them may be claimed already; nothing changed.
    pub fn claim(&mut self, mark: Mark, first: u64, end: u64) -> Result<(), Overlaps> {
        let overlaps = |claim: &Claim| first < claim.end && claim.first < end;
        if first < self.floor || self.newest.iter().any(overlaps) {
            return Err(Overlaps { end: self.end() });
        }
        self.newest.push(Claim { mark, first, end });
        let too_many = self.newest.len().saturating_sub(MOST);
        for old in self.newest.drain(..too_many) {
            self.floor = self.floor.max(old.end);
        }
        Ok(())
    }

    /// Whether the record holds the claim of a mark.
    pub fn holds(&self, mark: Mark) -> bool {
        self.newest.iter().any(|claim| claim.mark == mark)
    }

    /// The slot below which every claim lies.
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
        claims.claim(Mark(1), 10, 20).unwrap();
        claims.claim(Mark(2), 0, 10).unwrap();
        claims.claim(Mark(3), 20, 21).unwrap();
        for (first, end) in [(0, 1), (9, 11), (19, 20), (0, 30), (20, 22), (15, 16)] {
            assert_eq!(claims.claim(Mark(4), first, end), Err(Overlaps { end: 21 }), "{first}..{end}");
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
            claims.claim(Mark(n), n * 10, n * 10 + 10).unwrap();
        }
        assert!(claims.holds(Mark(999)) && claims.holds(Mark(1000 - MOST as u64)));
        assert!(!claims.holds(Mark(999 - MOST as u64)));
        for n in 0..1000 {
            assert_eq!(claims.claim(Mark(1), n * 10 + 9, n * 10 + 10), Err(Overlaps { end: 10_000 }), "{n}");
        }
        assert!(claims.to_text().len() < 64 << 10);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bad in ["", "x", "-1", "0\nzz 1 2", "0\n1 2", "0\n1 2 3 4", "0\n1 2 x", "\n0"] {
            assert_eq!(Claims::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
