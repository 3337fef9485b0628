//! Compares the counters of a store with the numbers that nodes received: how far a recovery must raise them,
//! and which of them lost numbers.
//!
//! `snowmint store recover`, in `store/recover.rs` of snowmint-cli, raises them, and extends the leases.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use snowmint::{Clock as _, WallClock};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::{DefinitionError, NumberSource, Scheme, SegmentScheme, TimeZone, registry};
use snowmint_cluster::segment::{Period, Reset, Stripe};
use snowmint_store::{Key, MAX_NUMBER, Store, Versioned};

use crate::AdminError;
use crate::node_reports::{NodeReports, ReceivedUpTo};

/// How long before its start a period may already have numbers.
const PERIOD_AHEAD_MS: u64 = 120_000;
/// How far the time zones of the world are behind UTC and ahead of it.
const BEHIND_UTC_MS: u64 = 12 * 3_600_000;
const AHEAD_OF_UTC_MS: u64 = 14 * 3_600_000;

/// A namespace and a number.
#[derive(Clone, Debug)]
pub struct AtLeast {
    /// The name of the namespace.
    pub name: String,
    /// The number.
    pub number: u64,
}

impl FromStr for AtLeast {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('=').and_then(|(name, number)| Some((name, number.parse().ok()?)));
        match parts {
            Some((name, number)) if number <= MAX_NUMBER && !name.is_empty() => {
                Ok(Self { name: name.to_owned(), number })
            }
            _ => Err(format!(
                "expected NAMESPACE=NUMBER, such as orders=1200000, with a number up to {MAX_NUMBER}"
            )),
        }
    }
}

/// A counter: its current value and the lowest value that it must have. Both are in slots, the unit of its
/// record.
#[derive(Debug, Default)]
pub struct CounterLevel {
    /// The current value; `None` if the store has no record of the counter.
    pub now: Option<u64>,
    /// The number of slots that it must have given, at least.
    pub at_least: u64,
}

/// The counters that a recovery raises: those of the namespaces, every other counter of the store, and those
/// without a record in the store although nodes received numbers from them.
#[derive(Debug, Default)]
pub struct CounterLevels {
    /// All of them by key.
    pub all: BTreeMap<Key, CounterLevel>,
    /// Highest numbers by name, for names without a namespace that counts in this store.
    unknown: BTreeMap<String, u64>,
    /// Warnings for the operator.
    pub notes: Vec<String>,
}

impl CounterLevels {
    /// Returns the counters of a store, with the numbers that the operator stated and those that nodes
    /// reported.
    ///
    /// # Errors
    ///
    /// The error of the store; or a number was stated for a namespace whose numbers do not come from this
    /// store.
    pub async fn of(
        store: &dyn Store,
        numbers_at_least: &[AtLeast],
        reports: &NodeReports,
    ) -> Result<Self, AdminError> {
        let mut this = Self::default();
        for (key, record) in store.list("segments/").await? {
            if let Some(now) = number(&record) {
                this.all.insert(key, CounterLevel { now: Some(now), at_least: 0 });
            }
        }
        for AtLeast { name, number } in numbers_at_least {
            let highest = this.unknown.entry(name.clone()).or_default();
            *highest = (*highest).max(*number);
        }
        let stated = this.unknown.clone();
        for (name, number) in reports.highest.iter().filter(|(_, number)| **number > 0) {
            let highest = this.unknown.entry(name.clone()).or_default();
            *highest = (*highest).max(*number);
        }
        let mut of_period = reports.highest_of_period.clone();
        let mut elsewhere = BTreeSet::new();
        for (name, record) in registry::list(store).await? {
            let (Ok(record), Ok(namespace)) = (record, NamespaceName::new(&name)) else { continue };
            let Scheme::Segment(segment) = &record.definition.scheme else { continue };
            let above = this.unknown.remove(&name).unwrap_or(0);
            let periods = of_period.remove(&name).unwrap_or_default();
            match &segment.source {
                NumberSource::Own(stripe) => {
                    let time_zone = &record.definition.time_zone;
                    this.raise_namespace(&namespace, segment, time_zone, *stripe, above, periods)?;
                }
                NumberSource::Other(_) if stated.contains_key(&name) => {
                    let why = format!(
                        "{name} counts in its sources, not in {}: recover the store of each source with this flag",
                        store.describe()
                    );
                    return Err(AdminError::setting("numbers_at_least", why));
                }
                NumberSource::Other(_) => {
                    this.notes.push(format!(
                        "{name} counts in its sources: recover the store of each source too, with the same flags"
                    ));
                    elsewhere.insert(name);
                }
            }
        }
        for (name, periods) in of_period {
            for (period, number) in periods {
                this.raise(&format!("segments/{name}/{period}"), number)?;
            }
        }
        let of_sources =
            reports.received_of_sources.iter().filter(|(key, _)| !elsewhere.contains(name_of(key)));
        for (key, received) in reports.received.iter().chain(of_sources) {
            // A counter that the store does not know may get another stripe when its namespace is added
            // again.
            let is_known = Key::new(key.as_str()).is_ok_and(|key| this.all.contains_key(&key));
            this.raise(key, if is_known { received.slots } else { received.number })?;
            let name = name_of(key);
            let stated = if is_known { None } else { stated.get(name) };
            if let Some(number) = this.unknown.get(name).or(stated).copied() {
                this.raise(key, number)?;
            }
        }
        this.unknown.retain(|name, _| !reports.received.keys().any(|key| name_of(key) == name));
        Ok(this)
    }

    /// Raises the current counters of a namespace, and those of the periods that nodes reported.
    fn raise_namespace(
        &mut self,
        name: &NamespaceName,
        segment: &SegmentScheme,
        time_zone: &TimeZone,
        stripe: Stripe,
        above: u64,
        periods: BTreeMap<String, u64>,
    ) -> Result<(), AdminError> {
        let base = segment.counter_key(name);
        let slots = |number| ReceivedUpTo::up_to(number, stripe).slots;
        let Some(reset) = segment.reset else {
            self.raise(&base, slots(above))?;
            for of_period in periods {
                self.note_period(name, of_period);
            }
            return Ok(());
        };
        if above > 0 {
            time_zone.check().map_err(DefinitionError::from)?;
        }
        let now_local_ms = time_zone.local_ms(WallClock.unix_ms());
        let period = Period::at(reset, now_local_ms);
        self.raise(&format!("{base}/{period}"), slots(above))?;
        let next = period.next();
        let next_key = format!("{base}/{next}");
        let is_there = Key::new(next_key.as_str()).is_ok_and(|key| self.all.contains_key(&key));
        if is_there || is_soon(next, now_local_ms) {
            self.raise(&next_key, slots(above))?;
        }
        for (period, number) in periods {
            if Period::parse(reset, &period).is_some() {
                self.raise(&format!("{base}/{period}"), slots(number))?;
            } else {
                self.note_period(name, (period, number));
            }
        }
        Ok(())
    }

    /// Warns about a period that the namespace cannot have: it belongs to an earlier or later definition of
    /// the name.
    fn note_period(&mut self, name: &NamespaceName, (period, number): (String, u64)) {
        self.notes.push(format!(
            "a node received number {number} of {name} in {period}, a period that {name} does not have in this store: if the \
             namespace was started over since the backup, start it over again with --start {}",
            number.saturating_add(1)
        ));
    }

    fn raise(&mut self, key: &str, slots: u64) -> Result<(), AdminError> {
        let key = Key::new(key).map_err(|error| AdminError::Failed(error.to_string()))?;
        let counter = self.all.entry(key).or_default();
        counter.at_least = counter.at_least.max(slots);
        Ok(())
    }

    /// Raises every counter that a name could use if it is added again, with or without a reset period, in
    /// any time zone.
    ///
    /// # Errors
    ///
    /// An invalid name.
    pub fn raise_unknown(&mut self) -> Result<(), AdminError> {
        let now_unix_ms = WallClock.unix_ms();
        for (name, number) in std::mem::take(&mut self.unknown) {
            let name =
                NamespaceName::new(&name).map_err(|error| AdminError::setting("numbers_at_least", error))?;
            let base = format!("segments/{name}");
            self.raise(&base, number)?;
            let anywhere = [
                now_unix_ms.saturating_sub(BEHIND_UTC_MS),
                now_unix_ms,
                now_unix_ms + AHEAD_OF_UTC_MS,
                now_unix_ms + AHEAD_OF_UTC_MS + PERIOD_AHEAD_MS,
            ];
            for reset in [Reset::Daily, Reset::Monthly, Reset::Yearly] {
                for local_ms in anywhere {
                    self.raise(&format!("{base}/{}", Period::at(reset, local_ms)), number)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the namespace in the key of a counter.
pub fn name_of(key: &str) -> &str {
    let name = key.strip_prefix("segments/").unwrap_or(key);
    name.split_once('/').map_or(name, |(name, _)| name)
}

/// Returns whether a period may already have numbers.
fn is_soon(period: Period, now_local_ms: u64) -> bool {
    period.begin_unix_ms().saturating_sub(now_local_ms) < PERIOD_AHEAD_MS
}

/// A counter that is behind the numbers that nodes received.
pub struct Behind {
    /// The key of the counter.
    pub key: Key,
    /// The numbers that the counter has given.
    pub given: u64,
    /// The numbers that it must have given at least.
    pub at_least: u64,
}

/// Returns the counters that are behind `reports`, which must be older than this call.
///
/// Numbers from sources are ignored: the store does not record which source they came from.
///
/// # Errors
///
/// The error of the store.
pub async fn behind(store: &dyn Store, reports: NodeReports) -> Result<Vec<Behind>, AdminError> {
    let reports = NodeReports { received_of_sources: BTreeMap::new(), ..reports };
    let counters = CounterLevels::of(store, &[], &reports).await?;
    let behind = counters.all.into_iter().filter_map(|(key, counter)| {
        let given = counter.now.unwrap_or(0);
        (counter.at_least > given).then_some(Behind { key, given, at_least: counter.at_least })
    });
    Ok(behind.collect())
}

/// Returns the number of slots in the record of a counter.
pub fn number(record: &Versioned) -> Option<u64> {
    std::str::from_utf8(&record.value).ok()?.parse().ok()
}

impl CounterLevel {
    /// Returns the value that the counter must be raised to: `add` slots above the highest known value.
    pub fn after(&self, add: u64) -> u64 {
        self.now.unwrap_or(0).max(self.at_least).saturating_add(add).min(MAX_NUMBER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowmint::Layout;
    use snowmint_cluster::namespace::Fields;
    use snowmint_cluster::namespace::registry::IfDropped;

    /// Goal: with a reset, each counter is raised above the numbers of its own period, and a period that the
    /// namespace cannot have is a warning. Method: a restored store without counters, and nodes that reserved
    /// ahead.
    #[tokio::test]
    async fn each_period_is_raised_above_its_own_numbers() {
        let store = snowmint_store::MemoryStore::new();
        let fields = |reset: Option<Reset>| {
            let text = reset.and_then(|_| "{date}-{number}".parse().ok());
            Fields { scheme: "segment".to_owned(), reset, text, ..Fields::default() }
        };
        for (name, reset) in [("days", Some(Reset::Daily)), ("ever", None)] {
            let wanted = fields(reset).define(&Layout::TWITTER).unwrap();
            registry::add(&store, &NamespaceName::new(name).unwrap(), &wanted, IfDropped::Refuse)
                .await
                .unwrap();
        }
        let [today, tomorrow] = {
            let today = Period::at(Reset::Daily, WallClock.unix_ms());
            [today, today.next()]
        };
        let told = |name: &str, period: &str, number: u64| {
            format!(
                "snowmint_numbers_highest_of_period{{namespace=\"{name}\",period=\"{period}\"}} {number}\n"
            )
        };
        let mut nodes = NodeReports::default();
        nodes.add(&told("days", &today.to_string(), 900));
        nodes.add(
            &(told("days", &tomorrow.to_string(), 40) + "snowmint_numbers_highest{namespace=\"ever\"} 7\n"),
        );
        let raised = raised(&store, &nodes).await;
        assert_eq!(raised[&format!("segments/days/{today}")], 900);
        assert_eq!(raised[&format!("segments/days/{tomorrow}")], 40);
        assert_eq!(raised["segments/ever"], 7);
        for (name, period) in [("days", "2026-11"), ("ever", "2026-11-22")] {
            let mut nodes = NodeReports::default();
            nodes.add(&told(name, period, 3));
            let said = CounterLevels::of(&store, &[], &nodes).await.unwrap().notes;
            assert!(said[0].contains(&format!("number 3 of {name} in {period}")), "{said:?}");
        }
    }

    /// Goal: the current counter of a namespace in a time zone is raised, and for a name that may be added
    /// again, that of every zone. Method: zones 26 hours apart, one of which is always in another day than
    /// UTC.
    #[tokio::test]
    async fn the_day_of_a_time_zone_is_raised() {
        let store = snowmint_store::MemoryStore::new();
        let hour = 3_600_000;
        let now = WallClock.unix_ms();
        for (name, zone, local_ms) in
            [("east", "Etc/GMT-14", now + 14 * hour), ("west", "Etc/GMT+12", now - 12 * hour)]
        {
            let fields = Fields {
                scheme: "segment".to_owned(),
                reset: Some(Reset::Daily),
                text: "{date}-{number}".parse().ok(),
                time_zone: zone.parse().ok(),
                ..Fields::default()
            };
            let wanted = fields.define(&Layout::TWITTER).unwrap();
            registry::add(&store, &NamespaceName::new(name).unwrap(), &wanted, IfDropped::Refuse)
                .await
                .unwrap();
            let (day, stated) =
                (Period::at(Reset::Daily, local_ms), AtLeast { name: name.to_owned(), number: 70 });
            let gone = AtLeast { name: "gone".to_owned(), number: 9 };
            let mut counters =
                CounterLevels::of(&store, &[stated, gone], &NodeReports::default()).await.unwrap();
            counters.raise_unknown().unwrap();
            let at_least = |key: String| counters.all[&Key::new(key).unwrap()].at_least;
            // Midnight may pass in between.
            let all = [day, day.next()].map(|day| format!("segments/{name}/{day}"));
            assert!(all.iter().any(|key| {
                counters.all.get(&Key::new(key.as_str()).unwrap()).is_some_and(|it| it.at_least == 70)
            }));
            assert_eq!(at_least(format!("segments/gone/{day}")), 9);
        }
    }

    async fn raised(store: &dyn Store, nodes: &NodeReports) -> BTreeMap<String, u64> {
        let counters = CounterLevels::of(store, &[], nodes).await.unwrap();
        counters.all.iter().map(|(key, counter)| (key.to_string(), counter.after(0))).collect()
    }

    /// Goal: counters that the backup lacks are created if nodes received numbers from them, high enough for
    /// any stripe; those of sources only in the stores of sources. Method: a store without the namespaces,
    /// and one with sources.
    #[tokio::test]
    async fn counters_that_the_store_lacks_are_created() {
        let store = snowmint_store::MemoryStore::new();
        let mut nodes = NodeReports::default();
        for (key, source) in
            [("segments/new/series-2", ""), ("segments/gone/2026", ""), ("segments/ids", "2")]
        {
            nodes.add(&format!(
                "snowmint_numbers_highest_received{{counter=\"{key}\",source=\"{source}\",stripe=\"2/2\"}} 900\n"
            ));
        }
        let all = BTreeMap::from(
            ["segments/gone/2026", "segments/ids", "segments/new/series-2"].map(|key| (key.to_owned(), 900)),
        );
        assert_eq!(raised(&store, &nodes).await, all);
        let sources = ["1/2 mysql://a/ids", "2/2 mysql://b/ids"].map(|it| it.parse().unwrap());
        let fields =
            Fields { scheme: "segment".to_owned(), sources: Some(sources.to_vec()), ..Fields::default() };
        let wanted = fields.define(&Layout::TWITTER).unwrap();
        registry::add(&store, &NamespaceName::new("ids").unwrap(), &wanted, IfDropped::Refuse).await.unwrap();
        let told = raised(&store, &nodes).await;
        assert!(!told.contains_key("segments/ids") && told.len() == 2, "{told:?}");
    }

    #[test]
    fn numbers_are_stated_with_their_namespace() {
        let AtLeast { name, number } = "a=b=7".parse().unwrap();
        assert_eq!((name.as_str(), number), ("a=b", 7));
        assert!(
            ["", "a", "a=", "=7", "a=-1", "a=9223372036854775808"]
                .iter()
                .all(|it| it.parse::<AtLeast>().is_err())
        );
    }
}
