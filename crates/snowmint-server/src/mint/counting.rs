//! Namespaces as Redis' counters: INCR and INCRBY, where numbers are plain and count by one.

use std::num::NonZeroU64;

use snowmint::error::Snippet;
use snowmint_cluster::Segments;
use snowmint_cluster::namespace::{CounterSource, NumberSource, Scheme};
use snowmint_cluster::segment::Run;

use super::error::MintError;
use super::namespace::{Maker, Namespace};

impl Namespace {
    /// Takes `count` numbers that follow one another without a gap: what Redis' INCRBY means.
    ///
    /// # Errors
    ///
    /// [`MintError::NotCounting`] where numbers are not plain, do not count by one, or restart.
    ///
    /// # Cancel safety
    ///
    /// As [`take`](Self::take).
    pub async fn take_run(&self, count: NonZeroU64) -> Result<Run, MintError> {
        let segments = self.check_counting()?;
        self.in_time(segments.take_run(count)).await
    }

    /// The next number as INCR means it, if there is one in memory. Never waits.
    ///
    /// # Errors
    ///
    /// As [`take_run`](Self::take_run).
    pub fn try_increment(&self) -> Result<Option<u64>, MintError> {
        match self.check_counting()?.try_take(1) {
            Ok(run) => Ok(Some(run.first())),
            Err(no_number) => self.worth_waiting(no_number).map(|()| None),
        }
    }

    fn check_counting(&self) -> Result<&Segments, MintError> {
        let refuse = |why| Err(MintError::NotCounting { name: Snippet::of(self.name().as_str()), why });
        match (self.maker(), &self.definition().scheme) {
            (Maker::Missing(why), _) => Err(self.missing(why)),
            (Maker::Segment(segments), Scheme::Segment(scheme)) => match &scheme.source {
                _ if scheme.reset.is_some() => refuse("its numbers restart with each period"),
                NumberSource::Own(stripe) if stripe.of() > 1 => refuse("its numbers are more than 1 apart"),
                NumberSource::Other(sources) if sources.len() > 1 => {
                    refuse("its numbers come from several stores")
                }
                NumberSource::Other(sources)
                    if sources.iter().filter_map(CounterSource::stripe).any(|stripe| stripe.of() > 1) =>
                {
                    refuse("its numbers are more than 1 apart")
                }
                _ => Ok(segments),
            },
            _ => refuse("its scheme is no counter"),
        }
    }
}
