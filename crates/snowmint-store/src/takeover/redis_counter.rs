//! A key in Redis that counts by INCR and INCRBY, advanced in the same way, so that other programs can keep
//! using it at the same time.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::{Value, from_redis_value};
use snowmint::foreign::{self, Most};

use super::{Rejected, Source, Survey, Surveyed};
use crate::counter::claims::{self, Sightings};
use crate::error::{Effect, Retries};
use crate::redis::client::RedisClient;
use crate::redis::connect::{self, PARAMETERS};
use crate::redis::scripts::{self, ScriptCall};
use crate::redis::server_info::{hash_tag, slot};
use crate::store::add;
use crate::{Counter, MAX_NUMBER, Mark, OpenError, Segment, StoreError, StoreErrorKind, UrlError};

pub(super) const SOURCE: Source = Source {
    name: "redis-counter",
    form: "redis-counter:redis://HOST/0?counter=KEY",
    open: |url| Box::pin(async move { Ok(Arc::new(RedisCounter::open(url).await?) as Arc<dyn Counter>) }),
    survey: |url| Box::pin(survey(url)),
};
const RESERVE: &str = "reserve";
const FIND: &str = "find";
/// The answer of a script that did not count because the key is not as expected.
const REFUSED: Value = Value::Int(0);
const NO_ROOM: Value = Value::Int(-1);
/// Number of settled marks in one request that may leave the list.
const LEAVING: usize = 64;

/// A counter in a plain key of Redis.
///
/// To reserve n numbers, the counter runs `INCRBY key n`: the numbers are those above the value before, up to
/// the value after. Other programs may INCR the same key at the same time. The key must exist and hold a
/// number: a script checks that before it counts, so that a lost key does not restart.
///
/// What Redis can lose is described for [`RedisStore`](crate::RedisStore), whose checks of the server and
/// parameters (`wait_replicas`, `durable` and so on) apply here too. Unless the URL says `may_lose=0`, each
/// reservation also pushes a mark on the list `snowmint:marks:{KEY}`, in the script that counts, and its
/// numbers are used once that mark has settled. A `KEY` with a hash tag of its own keeps it:
/// `snowmint:marks:KEY`. For one with a `}` and no hash tag, the list is `snowmint:marks:{N}:KEY` with a
/// number that a cluster keeps on the same node. The user then needs these rights besides those on the
/// counter: `~snowmint:marks:* +lpush +ltrim +lrange +persist`. Programs that INCR the key write no marks: a
/// failover may give their numbers again.
///
/// # URL
///
/// `redis-counter:redis://HOST:PORT/DB?counter=KEY&...`, with the parameters of
/// [`RedisStore`](crate::RedisStore) except `prefix`.
pub struct RedisCounter {
    server: RedisClient,
    key: String,
    /// The key of the list of marks.
    marks: String,
    /// What this process has seen of that list.
    seen: Sightings,
    name: String,
}

/// The content of a key of another system.
enum KeyContent {
    Nothing,
    Number(u64),
    /// Something else, in the form for an error text.
    Other(String),
}

impl RedisCounter {
    /// Parses the URL, connects, and reads the key. Nothing is written.
    ///
    /// # Errors
    ///
    /// - [`OpenError::Url`]: a mistake in the URL.
    /// - [`OpenError::Store`], [`StoreErrorKind::Other`]: no such key.
    /// - [`OpenError::Store`], [`StoreErrorKind::Corrupt`]: a key of another type, or one that holds no
    ///   number.
    /// - [`OpenError::Store`], other kinds: as for [`RedisStore::open`](crate::RedisStore::open).
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let (server, key) = parse(url)?;
        let name = format!("{}?counter={key}", server.name);
        let counter = Self { server, marks: marks_of(&key), key, seen: Sightings::default(), name };
        counter.held("open").await?;
        Ok(counter)
    }

    /// Returns the number that the key holds.
    async fn held(&self, operation: &'static str) -> Result<u64, StoreError> {
        number(&self.server, operation, &self.key, look(&self.server, operation, &self.key).await?)
    }

    /// Counts by a script that receives the addend.
    async fn take(
        &self,
        count: NonZeroU64,
        request: impl Fn(i64) -> ScriptCall + Send + Sync,
    ) -> Result<Segment, StoreError> {
        let mut retries = Retries::new();
        loop {
            if let Ok(addend) = i64::try_from(count.get()) {
                let answer = self.server.call(RESERVE, Effect::Writes, &request(addend)).await?;
                if answer == NO_ROOM {
                    // Marks that have settled meanwhile leave the list with the next call.
                    self.look_at_marks(RESERVE).await?;
                    return Err(claims::full(&self.key, &self.server.name, self.server.may_lose()));
                }
                if answer != REFUSED {
                    let before: u64 = self.server.parse(RESERVE, Effect::Writes, answer)?;
                    // The script refuses a sum out of range.
                    if let Some(segment) = Segment::new(before.saturating_add(1), NonZeroU64::MIN, count) {
                        return Ok(segment);
                    }
                }
            }
            let before = self.held(RESERVE).await?;
            if before.checked_add(count.get()).is_none_or(|after| after > MAX_NUMBER) {
                let found =
                    format!("the key {} is at {before}: {count} more would exceed {MAX_NUMBER}", self.key);
                return Err(StoreError::new(StoreErrorKind::Full, RESERVE, &*self.server.name, found));
            }
            // The key accepts the addition now, so its value was different meanwhile.
            retries.pause_call(RESERVE, &self.server.name, &format!("the key {}", self.key)).await?;
        }
    }

    /// Returns the marks of reservations, oldest first.
    async fn look_at_marks(&self, operation: &'static str) -> Result<Vec<Mark>, StoreError> {
        let answer = self.server.call(operation, Effect::Reads, &ScriptCall::marks(&self.marks)).await?;
        let marks: Vec<String> = self.server.parse(operation, Effect::Reads, answer)?;
        let marks: Vec<Mark> =
            marks.iter().rev().filter_map(|it| u64::from_str_radix(it, 16).ok()).map(Mark).collect();
        self.seen.saw(marks.iter().copied());
        Ok(marks)
    }
}

#[async_trait]
impl Counter for RedisCounter {
    async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError> {
        self.take(count, |addend| ScriptCall::take(&self.key, addend)).await
    }

    fn may_lose(&self) -> Duration {
        self.server.may_lose()
    }

    async fn reserve_marked(&self, count: NonZeroU64) -> Result<(Segment, Mark), StoreError> {
        let mark = Mark::fresh();
        let shown = mark.to_string();
        let settled: Vec<String> =
            self.seen.settled(self.may_lose()).into_iter().take(LEAVING).map(|it| it.to_string()).collect();
        let take =
            |addend| ScriptCall::take_marked(&self.key, &self.marks, addend, &shown, settled.iter().cloned());
        Ok((self.take(count, take).await?, mark))
    }

    async fn holds(&self, mark: Mark) -> Result<bool, StoreError> {
        Ok(self.look_at_marks(FIND).await?.contains(&mark))
    }

    async fn peek(&self) -> Result<Option<Segment>, StoreError> {
        Ok(Segment::new(self.held("look").await?.saturating_add(1), NonZeroU64::MIN, NonZeroU64::MIN))
    }

    async fn raise_above(&self, number: u64) -> Result<bool, StoreError> {
        const OPERATION: &str = "raise";
        let mut retries = Retries::new();
        loop {
            let before = self.held(OPERATION).await?;
            let missing = number.min(MAX_NUMBER).saturating_sub(before);
            // Add even if nothing is missing: a read alone may come from a server that was replaced. Adding 0
            // is a write, which such a server refuses and replicas confirm.
            let raise = ScriptCall::raise(&self.key, before, missing);
            if self.server.call(OPERATION, Effect::Writes, &raise).await? != REFUSED {
                return Ok(true);
            }
            retries.pause_call(OPERATION, &self.server.name, &format!("the key {}", self.key)).await?;
        }
    }

    fn server(&self) -> Option<String> {
        self.server.line()
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

impl fmt::Debug for RedisCounter {
    /// Omits the settings, which contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisCounter({})", self.name)
    }
}

/// Returns the key of a counter's marks: on the same node of a cluster, under a name that no counter has by
/// chance.
fn marks_of(key: &str) -> String {
    if hash_tag(key).is_some() {
        format!("snowmint:marks:{key}")
    } else if key.contains('}') {
        // A hash tag cannot contain `}`, so another text of the same slot becomes the tag.
        format!("snowmint:marks:{{{}}}:{key}", text_of(slot(key)))
    } else {
        format!("snowmint:marks:{{{key}}}")
    }
}

/// Returns the smallest number whose text has this slot. Every node finds the same one.
fn text_of(wanted: u16) -> String {
    let mut texts = (0_u32..).map(|number| number.to_string());
    texts.find(|text| slot(text) == wanted).unwrap_or_default()
}

/// Returns the one key, or the keys that match a pattern and hold text.
async fn survey(url: &str) -> Result<Survey, OpenError> {
    const OPERATION: &str = "survey";
    let (server, key) = parse(url)?;
    let surveyed = |name: String, highest_number| Surveyed {
        name,
        highest_number,
        ..Surveyed::numbers(0, NonZeroU64::MIN)
    };
    if !key.contains('*') {
        let number = number(&server, OPERATION, &key, look(&server, OPERATION, &key).await?)?;
        return Ok(Survey { counters: vec![surveyed(key, number)], rejected: Vec::new() });
    }
    // Only `*` is a wildcard.
    let pattern = key.split('*').map(scripts::literal).collect::<Vec<_>>().join("*");
    let mut keys = server.scan(OPERATION, &pattern).await?.keys;
    if server.is_of_cluster() {
        let text = "is a Redis Cluster, of which a pattern finds only the keys of one member: name each counter without `*`";
        return Err(StoreError::new(StoreErrorKind::Other, OPERATION, &*server.name, text).into());
    }
    // A scan may return a key twice.
    keys.sort_unstable();
    keys.dedup();
    let mut found = Survey::default();
    let of_text = |key| {
        String::from_utf8(key).map_err(|error| Rejected {
            name: foreign::shown(error.as_bytes(), Most::Name).into_owned(),
            why: "its name is not UTF-8".to_owned(),
        })
    };
    let (keys, unnamed): (Vec<_>, Vec<_>) = keys.into_iter().map(of_text).partition(Result::is_ok);
    let keys: Vec<String> = keys.into_iter().flatten().collect();
    found.rejected.extend(unnamed.into_iter().filter_map(Result::err));
    for keys in keys.chunks(1000) {
        let answers = server.ask(OPERATION, || scripts::texts(keys)).await?;
        let [texts]: [Vec<Option<Vec<u8>>>; 1] =
            server.parse(OPERATION, Effect::Reads, Value::Array(answers))?;
        for (key, text) in keys.iter().zip(texts) {
            // Without text, the key has another type, or was deleted meanwhile.
            let Some(text) = text else { continue };
            if let Some(number) = add::number(&text) {
                found.counters.push(surveyed(key.clone(), number));
            } else {
                let why = expected_number(&format!("the key holds {}", shown(&text)));
                found.rejected.push(Rejected { name: key.clone(), why });
            }
        }
    }
    found.rejected.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Parses the server and the key from a URL.
fn parse(url: &str) -> Result<(RedisClient, String), UrlError> {
    let mut location =
        connect::location(super::inner(&SOURCE, url, &["redis", "rediss", "valkey", "valkeys"])?)?;
    let Some(key) = location.take("counter").filter(|it| !it.is_empty()) else {
        return Err(location.malformed(&format!("missing counter: expected {}", SOURCE.form)));
    };
    // A pattern may match keys in several slots.
    let one = Some(&*key).filter(|it| !it.contains('*'));
    let mut server = RedisClient::take(&mut location, one)?;
    location.finish(&format!("counter, {PARAMETERS}"))?;
    server.name = format!("{}:{}", SOURCE.name, server.name);
    Ok((server, key))
}

async fn look(server: &RedisClient, operation: &'static str, key: &str) -> Result<KeyContent, StoreError> {
    let answers = server.ask(operation, || scripts::type_and_text(key)).await?;
    let mut answers = answers.into_iter();
    let kind: String = server.parse(operation, Effect::Reads, answers.next().unwrap_or(Value::Nil))?;
    let text = answers.next().and_then(|it| from_redis_value::<Vec<u8>>(it).ok());
    Ok(match (&*kind, text) {
        ("none", _) => KeyContent::Nothing,
        ("string", Some(text)) => match add::number(&text) {
            Some(number) => KeyContent::Number(number),
            None => KeyContent::Other(shown(&text)),
        },
        (kind, _) => KeyContent::Other(format!("a {kind}")),
    })
}

/// Returns the beginning of a text that is no number.
fn shown(text: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(text).chars().take(40).collect::<String>())
}

fn expected_number(found: &str) -> String {
    format!("{found}, expected a number from 0 to {MAX_NUMBER}")
}

fn number(
    server: &RedisClient,
    operation: &'static str,
    key: &str,
    held: KeyContent,
) -> Result<u64, StoreError> {
    let (kind, found) = match held {
        KeyContent::Number(number) => return Ok(number),
        KeyContent::Nothing => {
            let found = format!("no key {key}; to start at 1, run SET {key} 0 first");
            (StoreErrorKind::Other, found)
        }
        KeyContent::Other(found) => {
            let found = expected_number(&format!("the key {key} holds {found}"));
            (StoreErrorKind::Corrupt, format!("invalid counter: {found}; it was not changed"))
        }
    };
    Err(StoreError::new(kind, operation, &*server.name, found))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::redis::server_info::SLOTS;

    /// Goal: one script may count and mark. Method: the slots of both keys, by the rule of Redis Cluster and
    /// its own example.
    #[test]
    fn marks_are_in_the_slot_of_their_counter() {
        assert_eq!(slot("123456789"), 0x31c3);
        for (key, marks) in [
            ("orders", "snowmint:marks:{orders}"),
            ("a{b", "snowmint:marks:{a{b}"),
            ("seq:{eu}:orders", "snowmint:marks:seq:{eu}:orders"),
            ("a{}b", "snowmint:marks:{3991}:a{}b"),
            ("a}b", "snowmint:marks:{20658}:a}b"),
            ("}", "snowmint:marks:{5305}:}"),
            ("x{}y{z}", "snowmint:marks:{55482}:x{}y{z}"),
            ("}{t}", "snowmint:marks:}{t}"),
        ] {
            let slot_of = |key: &str| slot(hash_tag(key).unwrap_or(key));
            let found = marks_of(key);
            assert_eq!(slot_of(&found), slot_of(key), "{key}: {found}");
            assert_eq!(found, marks);
        }
    }

    #[test]
    fn every_slot_has_a_text() {
        let slots: BTreeSet<u16> = (0..200_000).map(|number: u32| slot(&number.to_string())).collect();
        assert_eq!(slots.len(), usize::from(SLOTS));
    }
}
