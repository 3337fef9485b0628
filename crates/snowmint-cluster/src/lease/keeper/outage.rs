//! When to tell of a store that fails: once when it begins, once a minute while it lasts, once when it is over.
//! Pure: it is told the time.

/// Between two words about one outage.
const AGAIN_MS: u64 = 60_000;

/// What a call does. A full disk refuses writes alone: a read that succeeds does not end that outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    Reads,
    Writes,
}

/// An outage, from its first failed call to the first that shows that it is over.
#[derive(Debug, Default)]
pub(super) struct Outage(Option<Ongoing>);

#[derive(Debug)]
struct Ongoing {
    since_unix_ms: u64,
    told_unix_ms: u64,
    failed_unix_ms: u64,
    failed_calls: u64,
    /// What has failed: writes, or reads alone.
    failed: Access,
    /// The end of the lease that ended meanwhile.
    ended_unix_ms: Option<u64>,
}

/// What there is to tell of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tell {
    /// The first of an outage.
    Begins,
    /// It has lasted for a while.
    Lasts { ms: u64, failed_calls: u64 },
    /// It was told lately.
    Nothing,
}

impl Outage {
    pub(super) fn failed(&mut self, now_unix_ms: u64, access: Access) -> Tell {
        let Some(ongoing) = &mut self.0 else {
            self.0 = Some(Ongoing {
                since_unix_ms: now_unix_ms,
                told_unix_ms: now_unix_ms,
                failed_unix_ms: now_unix_ms,
                failed_calls: 1,
                failed: access,
                ended_unix_ms: None,
            });
            return Tell::Begins;
        };
        ongoing.failed_calls += 1;
        ongoing.failed_unix_ms = now_unix_ms;
        ongoing.failed = ongoing.failed.max(access);
        if now_unix_ms.saturating_sub(ongoing.told_unix_ms) < AGAIN_MS {
            return Tell::Nothing;
        }
        ongoing.told_unix_ms = now_unix_ms;
        let ms = now_unix_ms.saturating_sub(ongoing.since_unix_ms);
        Tell::Lasts { ms, failed_calls: ongoing.failed_calls }
    }

    /// Whether there is to tell that a lease has ended during the outage: once for each.
    pub(super) fn outlasted(&mut self, now_unix_ms: u64, until_unix_ms: u64) -> bool {
        let Some(ongoing) = self.0.as_mut().filter(|_| until_unix_ms <= now_unix_ms) else { return false };
        ongoing.ended_unix_ms.replace(until_unix_ms) != Some(until_unix_ms)
    }

    /// Gives how long it lasted and how many calls failed, if there was one and this call ends it. Reads end an outage of
    /// writes only where none has failed for a while, as when no worker is free and nothing is written.
    pub(super) fn succeeded(&mut self, now_unix_ms: u64, access: Access) -> Option<(u64, u64)> {
        let quiet = |it: &mut Ongoing| now_unix_ms.saturating_sub(it.failed_unix_ms) >= AGAIN_MS;
        let ended = self.0.take_if(|it| access >= it.failed || quiet(it))?;
        Some((now_unix_ms.saturating_sub(ended.since_unix_ms), ended.failed_calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_when_it_begins_each_minute_and_when_it_ends() {
        let mut outage = Outage::default();
        assert_eq!(outage.succeeded(0, Access::Writes), None);
        let told: Vec<Tell> = (0..1300).map(|i| outage.failed(1_000_000 + i * 100, Access::Reads)).collect();
        assert_eq!(told[0], Tell::Begins);
        assert_eq!(told[600], Tell::Lasts { ms: 60_000, failed_calls: 601 });
        assert_eq!(told[1200], Tell::Lasts { ms: 120_000, failed_calls: 1201 });
        assert_eq!(told.iter().filter(|tell| **tell == Tell::Nothing).count(), 1297);
        assert_eq!(outage.succeeded(1_130_000, Access::Reads), Some((130_000, 1300)));
        assert_eq!(outage.failed(1_130_001, Access::Reads), Tell::Begins);
    }

    /// Goal: a full disk, which is read between writes that fail, is one outage.
    #[test]
    fn reads_do_not_end_an_outage_of_writes() {
        let mut outage = Outage::default();
        assert_eq!(outage.failed(1000, Access::Writes), Tell::Begins);
        for i in 1..100 {
            assert_eq!(outage.succeeded(1000 + i * 100, Access::Reads), None);
            assert_eq!(outage.failed(1050 + i * 100, Access::Writes), Tell::Nothing);
        }
        assert_eq!(outage.succeeded(20_000, Access::Writes), Some((19_000, 100)));
        assert!(!outage.outlasted(20_000, 10_000));
        outage.failed(30_000, Access::Writes);
        assert_eq!([35_000, 40_000, 41_000].map(|now| outage.outlasted(now, 40_000)), [false, true, false]);
        assert_eq!(outage.succeeded(89_999, Access::Reads), None);
        assert_eq!(outage.succeeded(90_000, Access::Reads), Some((60_000, 1)));
    }
}
