//! A subject of a measurement: a way to draw ids, made once for each thread.

use std::hint::black_box;
use std::sync::Arc;

/// Draws the given number of ids; each is made completely, none is optimised away.
pub type Draw = Box<dyn FnMut(u64) + Send>;

/// The pace at which ids are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Without a pause.
    Free,
    /// This many ids in a millisecond, then a pause until the next one, which is not measured: for generators
    /// whose sequence is too short for draws without a pause.
    EachMs(u64),
}

/// A subject of a measurement.
pub struct Subject {
    /// Its name in the tables.
    pub name: &'static str,
    /// The pace at which ids are requested.
    pub pace: Pace,
    /// Whether it is a baseline for others; `--only` keeps baselines.
    pub baseline: bool,
    make: Box<dyn Fn() -> Draw>,
}

impl Subject {
    /// Returns a subject of which each thread makes a separate instance.
    pub fn own<T, F>(name: &'static str, make: impl Fn() -> F + 'static) -> Self
    where
        F: FnMut() -> T + Send + 'static,
    {
        Self { name, pace: Pace::Free, baseline: false, make: Box::new(move || draw(make())) }
    }

    /// Returns a subject that all threads share.
    pub fn shared<S, T>(name: &'static str, subject: S, id: impl Fn(&S) -> T + Copy + Send + 'static) -> Self
    where
        S: Send + Sync + 'static,
    {
        let subject = Arc::new(subject);
        Self::own(name, move || {
            let subject = Arc::clone(&subject);
            move || id(&subject)
        })
    }

    /// Limits the requests to this many ids per millisecond.
    #[must_use]
    pub fn each_ms(mut self, ids: u64) -> Self {
        self.pace = Pace::EachMs(ids);
        self
    }

    /// Makes it a baseline for others.
    #[must_use]
    pub fn baseline(mut self) -> Self {
        self.baseline = true;
        self
    }

    /// Makes an instance for one thread.
    pub fn draw(&self) -> Draw {
        (self.make)()
    }
}

fn draw<T>(mut id: impl FnMut() -> T + Send + 'static) -> Draw {
    Box::new(move |n| {
        for _ in 0..n {
            black_box(id());
        }
    })
}
