//! Counters of other systems, used in place: that system and Snowmint may draw from the same counter at the
//! same time. A new source is a file, and one line in [`SOURCES`].

#[cfg(feature = "mysql")]
mod database;
#[cfg(feature = "mysql")]
mod leaf;
#[cfg(feature = "redis")]
mod redis_counter;
#[cfg(feature = "mysql")]
mod tickets;
#[cfg(feature = "mysql")]
mod tinyid;

use std::future::ready;
use std::num::NonZeroU64;
use std::sync::Arc;

#[cfg(feature = "mysql")]
pub use self::leaf::LeafCounter;
#[cfg(feature = "redis")]
pub use self::redis_counter::RedisCounter;
#[cfg(feature = "mysql")]
pub use self::tickets::TicketsCounter;
#[cfg(feature = "mysql")]
pub use self::tinyid::TinyIdCounter;
use crate::{BoxFuture, Counter, OpenError, Segment, UrlError};

/// The systems whose counters this build can use, in the order in which an error lists them.
const SOURCES: &[Source] = &[
    #[cfg(feature = "mysql")]
    leaf::SOURCE,
    #[cfg(feature = "mysql")]
    tinyid::SOURCE,
    #[cfg(feature = "mysql")]
    tickets::SOURCE,
    #[cfg(feature = "redis")]
    redis_counter::SOURCE,
];

/// A system whose counters can be used in place.
struct Source {
    /// The name of the system, which begins its URLs.
    name: &'static str,
    /// An example of its URLs.
    form: &'static str,
    open: for<'a> fn(&'a str) -> BoxFuture<'a, Result<Arc<dyn Counter>, OpenError>>,
    survey: for<'a> fn(&'a str) -> BoxFuture<'a, Result<Survey, OpenError>>,
}

/// A counter of another system, as [`survey`] found it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Surveyed {
    /// The name in that system: a `biz_tag`, a `biz_type`, a table, a key.
    pub name: String,
    /// The greatest number that may have been handed out; 0 if none was.
    pub highest_number: u64,
    /// Number of numbers that the system reserves at once, by its settings; 1 if it hands out each one
    /// separately.
    pub step: NonZeroU64,
    /// The difference between two neighbouring numbers: all are `remainder` modulo `delta`. 0 modulo 1 is
    /// every number.
    pub delta: NonZeroU64,
    /// The remainder of all numbers modulo `delta`; less than `delta`.
    pub remainder: u64,
}

/// What [`survey`] found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    /// The counters, sorted by name.
    pub counters: Vec<Surveyed>,
    /// What the URL names although it is no counter, sorted by name.
    pub rejected: Vec<Rejected>,
}

/// A key that matches the pattern of a [`survey`] and holds no valid number.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Rejected {
    /// The key.
    pub name: String,
    /// What it holds, and what was expected.
    pub why: String,
}

impl Survey {
    /// Returns a survey in which everything is a counter.
    const fn of(counters: Vec<Surveyed>) -> Self {
        Self { counters, rejected: Vec::new() }
    }
}

impl Surveyed {
    /// Returns whether both counters can return the same number: whether the remainders are equal modulo the
    /// greatest common divisor of the deltas.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::num::NonZeroU64;
    /// use snowmint_store::Surveyed;
    /// let of = |remainder, delta| Surveyed::numbers(remainder, NonZeroU64::new(delta).expect("not 0"));
    /// assert!(!of(1, 2).overlaps(&of(0, 2)));
    /// assert!(of(1, 2).overlaps(&of(2, 3)), "5 is both");
    /// ```
    pub const fn overlaps(&self, other: &Self) -> bool {
        let (mut common, mut rest) = (self.delta.get(), other.delta.get());
        while rest != 0 {
            (common, rest) = (rest, common % rest);
        }
        self.remainder % common == other.remainder % common
    }

    /// Returns whether this counter can return every number of a segment.
    pub const fn holds(&self, segment: Segment) -> bool {
        let delta = self.delta.get();
        let alone = segment.count().get() == 1;
        segment.first() % delta == self.remainder && (alone || segment.step().get().is_multiple_of(delta))
    }

    /// Returns a counter without a name that returns the numbers `remainder` modulo `delta`, and has returned
    /// none yet.
    pub const fn numbers(remainder: u64, delta: NonZeroU64) -> Self {
        let step = NonZeroU64::MIN;
        Self { name: String::new(), highest_number: 0, step, delta, remainder: remainder % delta.get() }
    }
}

/// Opens the counter of another system by its URL: the name of that system, and the URL of its database.
///
/// | URL | source of the numbers |
/// |---|---|
/// | `leaf:mysql://USER@HOST/DATABASE?tag=order` | [`LeafCounter`]: a row of Leaf's `leaf_alloc` |
/// | `tinyid:mysql://USER@HOST/DATABASE?biz_type=order` | [`TinyIdCounter`]: a row of `TinyID`'s `tiny_id_info` |
/// | `tickets:mysql://USER@HOST/DATABASE?table=Tickets64&stub=a` | [`TicketsCounter`]: a ticket table as at Flickr |
/// | `redis-counter:redis://HOST/0?counter=orders` | [`RedisCounter`]: a key that INCR and INCRBY count in |
///
/// The URL of a store follows the first `:`, with its parameters for TLS, password files and time limits; see
/// [`MySqlStore`](crate::MySqlStore) and [`RedisStore`](crate::RedisStore).
///
/// # Errors
///
/// [`OpenError::Url`] if the URL names no such counter. [`OpenError::Store`] if the counter is unreachable,
/// does not exist, or holds no number. Nothing is created.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let error = snowmint_store::open_counter("mongo://host/db").await.unwrap_err();
/// assert!(error.to_string().starts_with("unknown counter `mongo:`"));
/// # });
/// ```
pub fn open_counter(url: &str) -> BoxFuture<'_, Result<Arc<dyn Counter>, OpenError>> {
    match source(url) {
        Ok(source) => (source.open)(url),
        Err(error) => Box::pin(ready(Err(error))),
    }
}

/// Lists the counters that a URL names, sorted by name, and changes nothing.
///
/// The URL is as for [`open_counter`], but without `tag`, `biz_type` or `stub` it means all rows. In
/// `counter=` of a `redis-counter:`, `*` matches any text; matching keys that hold other text than a number
/// are [rejected](Survey::rejected), and those of other types, such as lists, are omitted.
///
/// # Errors
///
/// As for [`open_counter`]. A row with invalid numbers is also an error; it is not omitted.
pub fn survey(url: &str) -> BoxFuture<'_, Result<Survey, OpenError>> {
    match source(url) {
        Ok(source) => (source.survey)(url),
        Err(error) => Box::pin(ready(Err(error))),
    }
}

/// Returns the source that a URL names.
fn source(url: &str) -> Result<&'static Source, OpenError> {
    let (name, _) = url.split_once(':').unwrap_or_default();
    SOURCES.iter().find(|it| it.name == name).ok_or_else(|| {
        let forms: Vec<&str> = SOURCES.iter().map(|it| it.form).collect();
        let known = if forms.is_empty() { "none".to_owned() } else { forms.join(", ") };
        UrlError::UnknownCounter { source_name: name.to_owned(), known }.into()
    })
}

/// Returns the text after the name of the source, if it begins with one of these schemes.
fn inner<'a>(source: &Source, url: &'a str, schemes: &[&str]) -> Result<&'a str, UrlError> {
    let (_, rest) = url.split_once(':').unwrap_or_default();
    match rest.split_once(':') {
        Some((scheme, _)) if schemes.contains(&scheme) => Ok(rest),
        _ => {
            let problem = format!("expected {}:// next, such as {}", schemes.join(":// or "), source.form);
            Err(UrlError::Malformed { scheme: source.name.to_owned(), problem })
        }
    }
}
