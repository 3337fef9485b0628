//! One thing that is measured: a way to draw ids, made once for each thread.

use std::hint::black_box;
use std::sync::Arc;

/// Draws as many ids as it is told; each is made in full, none is optimised away.
pub type Draw = Box<dyn FnMut(u64) + Send>;

/// How fast a subject may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Without a pause.
    Free,
    /// So many ids in a millisecond, then a pause until the next one, which is not measured: for generators
    /// whose sequence is too short to be asked without a pause.
    EachMs(u64),
}

/// One thing that is measured.
pub struct Subject {
    /// Its name in the tables.
    pub name: &'static str,
    /// How fast it may be asked.
    pub pace: Pace,
    /// Others are compared with it; `--only` keeps it.
    pub baseline: bool,
    make: Box<dyn Fn() -> Draw>,
}

impl Subject {
    /// A subject of which each thread makes its own.
    pub fn own<T, F>(name: &'static str, make: impl Fn() -> F + 'static) -> Self
    where
        F: FnMut() -> T + Send + 'static,
    {
        Self { name, pace: Pace::Free, baseline: false, make: Box::new(move || draw(make())) }
    }

    /// A subject that all threads share.
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

    /// Asks no more than so many ids in a millisecond.
    #[must_use]
    pub fn each_ms(mut self, ids: u64) -> Self {
        self.pace = Pace::EachMs(ids);
        self
    }

    /// Makes it one that others are compared with.
    #[must_use]
    pub fn baseline(mut self) -> Self {
        self.baseline = true;
        self
    }

    /// Makes it for one thread.
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
