//! The time zone of the dates of a namespace: in its texts, and of its reset period.
//!
//! Everything behind a [`TimeZone`] counts in *local milliseconds*: the date and time of day in that zone, as
//! if it were UTC. So a period is a date, and its key, its text and its counter do not depend on a zone. Two
//! nodes whose databases have other rules for a zone may be in different periods at the same time, as two
//! nodes with different clocks are; a number is unique within the date that its text shows.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;
use snowmint::Clock;
use snowmint::error::Snippet;

/// The longest name of a time zone.
const MAX_LEN: usize = 64;
/// Files of a database that mean another zone on each machine, or count leap seconds.
const NOT_A_ZONE: [&str; 3] = ["localtime", "posixrules", "Factory"];
const NOT_A_FOLDER: [&str; 2] = ["posix/", "right/"];

/// A time zone, by its name in the IANA time zone database, such as `Asia/Shanghai`.
///
/// Its rules come from the database of this machine (`$TZDIR`, or the package tzdata) when the name is
/// parsed. A name without rules here is still a `TimeZone`, so that every machine can list namespaces;
/// [`check`](Self::check) returns the error. Two zones are equal if their names are.
///
/// # Examples
///
/// ```
/// use snowmint_cluster::namespace::TimeZone;
/// let zone: TimeZone = "Asia/Shanghai".parse()?;
/// zone.check()?;
/// // 16:00 in UTC is midnight in Shanghai.
/// assert_eq!(zone.local_ms(1_795_276_800_000), 1_795_305_600_000);
/// assert_eq!("UTC".parse(), Ok(TimeZone::UTC));
/// assert!("Asia/Shang hai".parse::<TimeZone>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TimeZone(
    /// `None` for UTC, which needs no database.
    Option<Arc<Named>>,
);

#[derive(Debug)]
struct Named {
    name: Box<str>,
    rules: Result<jiff::tz::TimeZone, TimeZoneError>,
}

/// A text that is not the name of a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid time zone {name}: expected UTC or a name of the IANA time zone database, such as Asia/Shanghai"
)]
pub struct TimeZoneNameError {
    /// The start of the text.
    pub name: Snippet,
}

/// This machine does not have the rules of a time zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeZoneError {
    /// The machine has no time zone database.
    #[error(
        "no rules for time zone {name}: this machine has no time zone database; install the package tzdata, or set TZDIR to the \
         folder of a database"
    )]
    NoDatabase {
        /// The name of the zone.
        name: String,
    },
    /// The database does not have the zone.
    #[error(
        "unknown time zone {name}: the time zone database of this machine does not have it; check the name (such as \
         Asia/Shanghai), or update the package tzdata"
    )]
    Unknown {
        /// The name of the zone.
        name: String,
    },
}

impl TimeZone {
    /// UTC, the default.
    pub const UTC: Self = Self(None);

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.0.as_ref().map_or("UTC", |named| &named.name)
    }

    /// Checks that this machine has the rules of the zone. No id may be made without.
    ///
    /// # Errors
    ///
    /// [`TimeZoneError`] with the remedy.
    pub fn check(&self) -> Result<(), TimeZoneError> {
        self.0.as_ref().map_or(Ok(()), |named| named.rules.as_ref().map(|_| ()).map_err(Clone::clone))
    }

    /// Returns the date and time of day in this zone at an instant, as if it were UTC, in unix milliseconds.
    ///
    /// It goes back where the zone's clocks do. Without rules, the zone counts as UTC.
    pub fn local_ms(&self, unix_ms: u64) -> u64 {
        let Some(Named { rules: Ok(rules), .. }) = self.0.as_deref() else { return unix_ms };
        let instant = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let offset = rules.to_offset(instant.unwrap_or(Timestamp::MAX));
        unix_ms.saturating_add_signed(i64::from(offset.seconds()) * 1000)
    }

    /// Returns a clock that shows [`local_ms`](Self::local_ms).
    pub const fn clock<C>(self, clock: C) -> LocalClock<C> {
        LocalClock { zone: self, clock }
    }

    /// Returns the zone of a name with the rules in a database, if it has them.
    fn found_in(database: &TimeZoneDatabase, name: &str) -> Self {
        match database.get(name) {
            // The database finds names whatever their case; all nodes write the same one.
            Ok(rules) => Self::with_rules(rules.iana_name().unwrap_or(name), Ok(rules.clone())),
            Err(_) if database.available().next().is_none() => {
                Self::with_rules(name, Err(TimeZoneError::NoDatabase { name: name.to_owned() }))
            }
            Err(_) => Self::with_rules(name, Err(TimeZoneError::Unknown { name: name.to_owned() })),
        }
    }

    /// Returns a zone with these rules.
    fn with_rules(name: &str, rules: Result<jiff::tz::TimeZone, TimeZoneError>) -> Self {
        Self(Some(Arc::new(Named { name: name.into(), rules })))
    }
}

impl PartialEq for TimeZone {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for TimeZone {}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TimeZone {
    type Err = TimeZoneNameError;

    fn from_str(name: &str) -> Result<Self, TimeZoneNameError> {
        if name.eq_ignore_ascii_case("UTC") {
            return Ok(Self::UTC);
        }
        let is_valid = (1..=MAX_LEN).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.split('/').all(|part| !part.is_empty())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_+-".contains(&b));
        let means_another = NOT_A_ZONE.iter().any(|it| name.eq_ignore_ascii_case(it))
            || NOT_A_FOLDER
                .iter()
                .any(|it| name.get(..it.len()).is_some_and(|at| at.eq_ignore_ascii_case(it)));
        if !is_valid || means_another {
            return Err(TimeZoneNameError { name: Snippet::of(name) });
        }
        Ok(Self::found_in(jiff::tz::db(), name))
    }
}

/// A clock that shows the date and time of day in a zone, as [`TimeZone::local_ms`] does.
#[derive(Clone, Debug)]
pub struct LocalClock<C> {
    zone: TimeZone,
    clock: C,
}

impl<C: Clock> Clock for LocalClock<C> {
    fn unix_ms(&self) -> u64 {
        self.zone.local_ms(self.clock.unix_ms())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use proptest::prelude::*;
    use snowmint::utc;
    use snowmint_store::{Counter, Key, MemoryStore, Store};
    use tokio::time::sleep;

    use super::*;
    use crate::namespace::TextForm;
    use crate::segment::{CountersOf, Mode, Period, Reset, Run, SegmentConfig, Segments, Stripe};

    fn zone(name: &str) -> TimeZone {
        let zone: TimeZone = name.parse().unwrap();
        zone.check().unwrap();
        zone
    }

    /// Returns a zone with the rules of a text such as `EST5EDT,M3.2.0,M11.1.0`.
    fn posix(name: &str, rules: &str) -> TimeZone {
        TimeZone::with_rules(name, Ok(jiff::tz::TimeZone::posix(rules).unwrap()))
    }

    fn ms(text: &str) -> u64 {
        utc::parse(text).unwrap()
    }

    /// A wall clock that a test sets, and that then runs with the time of tokio.
    #[derive(Clone)]
    struct Wall(Arc<AtomicU64>, tokio::time::Instant);

    impl Wall {
        fn at(unix_ms: u64) -> Self {
            Self(Arc::new(AtomicU64::new(unix_ms)), tokio::time::Instant::now())
        }

        fn elapsed_ms(&self) -> u64 {
            u64::try_from(self.1.elapsed().as_millis()).unwrap()
        }

        fn set(&self, unix_ms: u64) {
            self.0.store(unix_ms - self.elapsed_ms(), Ordering::SeqCst);
        }
    }

    impl Clock for Wall {
        fn unix_ms(&self) -> u64 {
            self.0.load(Ordering::SeqCst) + self.elapsed_ms()
        }
    }

    fn node(store: &Arc<MemoryStore>, reset: Reset, mode: Mode, zone: &TimeZone, wall: &Wall) -> Segments {
        let store = Arc::clone(store);
        let of: CountersOf = Arc::new(move |period: Period| {
            let key = Key::new(format!("segments/orders/{period}")).unwrap();
            vec![Arc::new(Stripe::WHOLE.counter(Arc::clone(&store) as Arc<dyn Store>, key, 1))
                as Arc<dyn Counter>]
        });
        let config = SegmentConfig::new().mode(mode).sizes(1..=50).reserve(Duration::from_secs(1));
        Segments::start_periodic(reset, of, config, zone.clone().clock(wall.clone())).unwrap()
    }

    /// Returns the texts of a run, as the service writes them.
    fn texts(form: &TextForm, run: Run) -> Vec<String> {
        let begin = run.period().unwrap().begin_unix_ms();
        run.into_iter()
            .map(|number| {
                let mut out = Vec::new();
                form.write_number(number, begin, &mut out);
                String::from_utf8(out).unwrap()
            })
            .collect()
    }

    #[test]
    fn a_date_changes_at_midnight_of_its_zone() {
        for (name, at, local) in [
            ("Asia/Shanghai", "2026-11-21T15:59:59.999Z", "2026-11-21T23:59:59.999Z"),
            ("Asia/Shanghai", "2026-11-21T16:00:00Z", "2026-11-22T00:00:00Z"),
            // Days of 23 and 25 hours.
            ("America/New_York", "2026-03-08T06:59:59Z", "2026-03-08T01:59:59Z"),
            ("America/New_York", "2026-03-08T07:00:00Z", "2026-03-08T03:00:00Z"),
            ("America/New_York", "2026-11-01T05:59:59Z", "2026-11-01T01:59:59Z"),
            ("America/New_York", "2026-11-01T06:00:00Z", "2026-11-01T01:00:00Z"),
            // The clocks went back over midnight, from 00:01.
            ("America/St_Johns", "2010-11-07T02:30:59Z", "2010-11-07T00:00:59Z"),
            ("America/St_Johns", "2010-11-07T02:31:00Z", "2010-11-06T23:01:00Z"),
            // A day that Samoa never had: 30 December 2011.
            ("Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T23:59:59Z"),
            ("Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31T00:00:00Z"),
            ("UTC", "2026-11-21T16:00:00Z", "2026-11-21T16:00:00Z"),
            ("utc", "2026-11-21T16:00:00Z", "2026-11-21T16:00:00Z"),
            ("Etc/GMT+12", "1970-01-01T05:00:00Z", "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(zone(name).local_ms(ms(at)), ms(local), "{name} at {at}");
        }
        let last = ms("9999-12-31T23:59:59.999Z");
        assert_eq!(zone("Asia/Shanghai").local_ms(last), last + 8 * 3_600_000);
        assert_eq!(zone("Asia/Shanghai").local_ms(u64::MAX), u64::MAX);
    }

    #[test]
    fn names_are_parsed_back_and_only_names_are() {
        for (text, name) in
            [("Asia/Shanghai", "Asia/Shanghai"), ("asia/SHANGHAI", "Asia/Shanghai"), ("Utc", "UTC")]
        {
            assert_eq!(zone(text).to_string(), name);
        }
        assert_ne!(zone("Asia/Shanghai"), zone("Asia/Taipei"));
        let long = "a".repeat(65);
        for bad in [
            "",
            "/etc/passwd",
            "../x",
            "Asia//Shanghai",
            "Asia/",
            "CST 8",
            "+08:00",
            "localtime",
            "right/UTC",
            "Posix/UTC",
            &long,
        ] {
            let error = bad.parse::<TimeZone>().unwrap_err().to_string();
            assert!(error.contains("such as Asia/Shanghai"), "{bad}: {error}");
        }
        let unknown: TimeZone = "Asia/Shangai".parse().unwrap();
        assert_eq!(unknown.name(), "Asia/Shangai");
        let error = unknown.check().unwrap_err().to_string();
        assert!(error.contains("unknown time zone Asia/Shangai") && error.contains("tzdata"), "{error}");
        let nowhere = TimeZone::found_in(&TimeZoneDatabase::none(), "Asia/Shanghai");
        assert_eq!(nowhere, zone("Asia/Shanghai"));
        let error = nowhere.check().unwrap_err().to_string();
        assert!(error.contains("no time zone database; install the package tzdata"), "{error}");
    }

    /// Goal: numbers restart at midnight of the zone, days of 23 and 25 hours included, and each text shows
    /// the date that its number is unique in. Method: a node under an injected clock from before until after
    /// the end of such days.
    #[tokio::test(start_paused = true)]
    async fn numbers_restart_at_midnight_of_the_zone() {
        let form: TextForm = "{date}-{number}".parse().unwrap();
        for (name, begin, hours, end) in [
            ("Asia/Shanghai", "2026-11-20T16:00:00Z", 24, "20261122"),
            ("America/New_York", "2026-03-08T05:00:00Z", 23, "20260309"),
            ("America/New_York", "2026-11-01T04:00:00Z", 25, "20261102"),
            ("Pacific/Apia", "2011-12-29T10:00:00Z", 24, "20111231"),
            ("Africa/Cairo", "2026-04-23T22:00:00Z", 23, "20260425"),
        ] {
            for mode in [Mode::Cached, Mode::Direct] {
                let (store, wall) = (Arc::new(MemoryStore::new()), Wall::at(ms(begin)));
                let node = node(&store, Reset::Daily, mode, &zone(name), &wall);
                let draw = async || texts(&form, node.take(1).await.unwrap()[0]).remove(0);
                let first = draw().await;
                let (day, number) = first.split_once('-').unwrap();
                assert_eq!(number, "1", "{name}");
                // Each hour, and the last millisecond.
                for hour in 1..hours {
                    wall.set(ms(begin) + hour * 3_600_000);
                    sleep(Duration::from_secs(2)).await;
                    assert_eq!(draw().await, format!("{day}-{}", hour + 1), "{name}");
                }
                wall.set(ms(begin) + hours * 3_600_000 - 1);
                assert_eq!(draw().await, format!("{day}-{}", hours + 1), "{name}");
                wall.set(ms(begin) + hours * 3_600_000);
                assert_eq!(draw().await, format!("{end}-1"), "{name}, {mode}");
            }
        }
    }

    /// Goal: two nodes with different rules for a zone, whose dates differ for hours, never write a text
    /// twice; nor do they when both are restarted with the other rules. Method: the rules of two releases, an
    /// injected clock over both midnights.
    #[tokio::test(start_paused = true)]
    async fn nodes_with_different_rules_write_no_text_twice() {
        let form: TextForm = "ORD-{date}-{number:6}".parse().unwrap();
        let releases = [posix("Test/Zone", "AAA-3"), posix("Test/Zone", "AAA-3BBB,M3.5.0,M10.5.0")];
        assert_eq!(releases[0], releases[1], "a zone is its name");
        for mode in [Mode::Cached, Mode::Direct] {
            let (store, wall) = (Arc::new(MemoryStore::new()), Wall::at(ms("2026-07-01T18:30:00Z")));
            let mut seen = HashSet::new();
            let mut differed = false;
            for round in 0..2 {
                let nodes =
                    [0, 1].map(|nth| node(&store, Reset::Daily, mode, &releases[(nth + round) % 2], &wall));
                for _ in 0..20 {
                    let mut dates = BTreeSet::new();
                    for node in &nodes {
                        for run in node.take(7).await.unwrap() {
                            for text in texts(&form, run) {
                                dates.insert(text[4..12].to_owned());
                                assert!(seen.insert(text.clone()), "{mode}: {text} came twice");
                            }
                        }
                    }
                    differed |= dates.len() == 2;
                    sleep(Duration::from_mins(10)).await;
                }
                wall.set(ms("2026-07-01T19:10:00Z"));
                for node in nodes {
                    node.release(Duration::from_secs(1)).await;
                }
            }
            assert!(differed, "the nodes were never in two dates at once");
        }
    }

    const ZONES: [&str; 7] = [
        "UTC",
        "Asia/Shanghai",
        "America/New_York",
        "America/St_Johns",
        "Pacific/Apia",
        "Africa/Cairo",
        "Etc/GMT-14",
    ];
    /// Around days of 23 and 25 hours, a day that never was, and a month and a year that end.
    const AROUND: [&str; 6] = [
        "2010-11-07T02:31:00Z",
        "2011-12-30T10:00:00Z",
        "2026-03-08T07:00:00Z",
        "2026-10-29T21:00:00Z",
        "2026-11-01T06:00:00Z",
        "2026-12-31T16:00:00Z",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]

        /// Goal: no text is written twice, whatever the zones, their rules and the clocks do, and each text
        /// shows the period of its number. Method: three nodes on one store, each with a zone and a clock of
        /// its own that steps forth and back over midnights, and is restarted in another zone.
        #[test]
        fn no_text_is_written_twice(
            reset in proptest::sample::select(vec![Reset::Daily, Reset::Monthly, Reset::Yearly]),
            mode in proptest::sample::select(vec![Mode::Cached, Mode::Direct]),
            around in proptest::sample::select(AROUND.to_vec()),
            steps in proptest::collection::vec((0..3_usize, 0..ZONES.len(), any::<bool>(), -30..30_i64, 1..40_usize), 5..30),
        ) {
            let form: TextForm = "{date}-{number}".parse().unwrap();
            let form = if reset == Reset::Daily { form } else { "{yyyy}{mm}-{number}".parse().unwrap() };
            let form = if reset == Reset::Yearly { "{yyyy}-{number}".parse().unwrap() } else { form };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let store = Arc::new(MemoryStore::new());
                let walls = [0; 3].map(|_| Wall::at(ms(around)));
                let mut nodes = [0, 1, 2].map(|nth: usize| node(&store, reset, mode, &zone(ZONES[nth]), &walls[nth]));
                let mut seen = HashSet::new();
                for (nth, in_zone, restarts, half_hours, count) in steps {
                    walls[nth].set(ms(around).saturating_add_signed(half_hours * 1_800_000));
                    if restarts {
                        let next = node(&store, reset, mode, &zone(ZONES[in_zone]), &walls[nth]);
                        std::mem::replace(&mut nodes[nth], next).release(Duration::from_secs(1)).await;
                    }
                    sleep(Duration::from_millis(700)).await;
                    for run in nodes[nth].take(count).await.unwrap() {
                        let period = run.period().unwrap().to_string().replace('-', "");
                        for text in texts(&form, run) {
                            prop_assert_eq!(text.split('-').next(), Some(&*period));
                            prop_assert!(seen.insert(text.clone()), "{} came twice", text);
                        }
                    }
                }
                Ok(())
            })?;
        }
    }
}
