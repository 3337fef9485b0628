//! When to tell of a store that fails: once when it begins, once a minute while it lasts, once when it is over.
//! Pure: it is told the time.

/// Between two words about one outage.
const AGAIN_MS: u64 = 60_000;

/// An outage, from its first failed call to the first that succeeds.
#[derive(Debug, Default)]
pub(super) struct Outage(Option<Ongoing>);

#[derive(Debug)]
struct Ongoing {
    since_unix_ms: u64,
    told_unix_ms: u64,
    failed_calls: u64,
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
    pub(super) fn failed(&mut self, now_unix_ms: u64) -> Tell {
        let Some(ongoing) = &mut self.0 else {
            self.0 = Some(Ongoing { since_unix_ms: now_unix_ms, told_unix_ms: now_unix_ms, failed_calls: 1 });
            return Tell::Begins;
        };
        ongoing.failed_calls += 1;
        if now_unix_ms.saturating_sub(ongoing.told_unix_ms) < AGAIN_MS {
            return Tell::Nothing;
        }
        ongoing.told_unix_ms = now_unix_ms;
        let ms = now_unix_ms.saturating_sub(ongoing.since_unix_ms);
        Tell::Lasts { ms, failed_calls: ongoing.failed_calls }
    }

    /// Gives how long it lasted and how many calls failed, if there was one.
    pub(super) fn succeeded(&mut self, now_unix_ms: u64) -> Option<(u64, u64)> {
        let ended = self.0.take()?;
        Some((now_unix_ms.saturating_sub(ended.since_unix_ms), ended.failed_calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_when_it_begins_each_minute_and_when_it_ends() {
        let mut outage = Outage::default();
        assert_eq!(outage.succeeded(0), None);
        let told: Vec<Tell> = (0..1300).map(|i| outage.failed(1_000_000 + i * 100)).collect();
        assert_eq!(told[0], Tell::Begins);
        assert_eq!(told[600], Tell::Lasts { ms: 60_000, failed_calls: 601 });
        assert_eq!(told[1200], Tell::Lasts { ms: 120_000, failed_calls: 1201 });
        assert_eq!(told.iter().filter(|tell| **tell == Tell::Nothing).count(), 1297);
        assert_eq!(outage.succeeded(1_130_000), Some((130_000, 1300)));
        assert_eq!(outage.failed(1_130_001), Tell::Begins);
    }
}
