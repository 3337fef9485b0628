//! `snowmint range`: the ids of a time range, for a `WHERE` clause on an id column.

use serde::Serialize;
use snowmint::utc::Utc;
use snowmint::{Clock as _, Id, Layout, WallClock};
use snowmint_cluster::NamespaceName;

use crate::error::{Failure, report};
use crate::instants::{self, When};
use crate::output::Output;
use crate::target::TargetArgs;

const EXAMPLES: &str = "\
Examples:
  snowmint range --layout twitter --since 2026-11-01 --until 2026-12-01
      The ids of November, and a condition for SQL.
  snowmint range --layout twitter --since '1 day'
  snowmint range --namespace orders --since yesterday --until today
      The layout is that of the namespace in the store.
  snowmint range --namespace orders --since '2h ago' --column o.id \\
      --server https://ids.example.com --token-file admin.token
  psql -c \"SELECT count(*) FROM orders WHERE $(snowmint range \\
      --layout twitter --since 7d --where)\"

An instant is 2026-11-22T08:00:00Z, a date (midnight UTC), unix milliseconds, a
time before now such as '1 day', '2h ago' or '1 month', or now, today, yesterday
(UTC). The range includes --since and excludes --until, so ranges that follow
each other share no id and leave none out. Without --until it has no end.

The instant of an id is the start of its tick, by the clock of the node that
made it. In a layout with a tick longer than 1 ms, both ends move back to the
start of their tick; the output shows where they are then.

JSON, one object: layout, since_unix_ms, since_utc, until_unix_ms, until_utc,
first and last (ids, as strings), and where. Without --until, until_unix_ms,
until_utc and last are null.";

/// Show the ids of a time range, and the WHERE clause for them
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples and the JSON fields.")]
pub(crate) struct Args {
    /// Begin of the range: an instant, a date, or a time before now such as '1 day'
    #[arg(long, value_name = "WHEN", value_parser = instants::parse, help_heading = "Range", allow_hyphen_values = true)]
    since: When,
    /// End of the range, which does not belong to it; default: no end
    #[arg(long, value_name = "WHEN", value_parser = instants::parse, help_heading = "Range", allow_hyphen_values = true)]
    until: Option<When>,
    /// Layout of the ids: a name (see `snowmint layouts`) or its fields
    #[arg(long, value_name = "SPEC|NAME", env = "SNOWMINT_LAYOUT", help_heading = "Range")]
    layout: Option<Layout>,
    /// Namespace of the ids: its layout is read from the store, or from --server
    #[arg(long, value_name = "NAME", help_heading = "Range")]
    namespace: Option<NamespaceName>,
    #[command(flatten)]
    target: TargetArgs,
    /// Column of the ids in the WHERE clause
    #[arg(long, value_name = "NAME", default_value = "id", value_parser = column, help_heading = "Output")]
    column: String,
    /// Print the condition alone, without WHERE
    #[arg(long = "where", conflicts_with = "json", help_heading = "Output")]
    condition: bool,
    /// Instant to count times from; default: now
    #[arg(long, value_name = "INSTANT", value_parser = snowmint::utc::parse, help_heading = "Output")]
    now: Option<u64>,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

fn column(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && !text.contains([';', '\'', '\n', '\r']);
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| "expected the name of a column, such as orders.id".to_owned())
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let layout = layout(args)?;
    let now_unix_ms = args.now.unwrap_or_else(|| WallClock.unix_ms());
    let instant = |flag: &str, when: When| {
        when.unix_ms(now_unix_ms)
            .ok_or_else(|| Failure::flag(flag, "the instant is before 1970: choose a later one"))
    };
    let since = instant("--since", args.since)?;
    let until = args.until.map(|until| instant("--until", until)).transpose()?;
    let range = TimeRange::of(&layout, since, until)?;
    let condition = range.condition(&args.column);
    let mut out = Output::new();
    if args.json {
        let until = range.until_unix_ms;
        out.json(&RangeSummary {
            layout: layout.to_string(),
            since_unix_ms: range.since_unix_ms,
            since_utc: Utc(range.since_unix_ms).to_string(),
            until_unix_ms: until,
            until_utc: until.map(|until| Utc(until).to_string()),
            first: range.first,
            last: range.last,
            r#where: condition,
        })?;
    } else if args.condition {
        out.line(&condition)?;
    } else {
        let row = |name: &str, id: Option<Id>, instant: String| {
            let id = id.map_or_else(|| "none".to_owned(), |id| id.to_string());
            format!("{} {id:<19}  {instant}", out.paint.faint(&format!("{name:<5}")))
        };
        let first = row("first", Some(range.first), format!("since {}", Utc(range.since_unix_ms)));
        let last = match range.until_unix_ms {
            Some(until) => row("last", range.last, format!("before {}", Utc(until))),
            None => row("last", None, "no end: see --until".to_owned()),
        };
        let clause = format!("{} {condition}", out.paint.bold("WHERE"));
        for line in [first, last, clause] {
            out.line(&line)?;
        }
    }
    out.flush()
}

/// Returns the layout that the flags name.
fn layout(args: &Args) -> Result<Layout, Failure> {
    let Some(name) = &args.namespace else {
        return args.layout.ok_or_else(|| {
            Failure::usage("missing --layout or --namespace: name the layout of the ids, or their namespace")
        });
    };
    let settings = args.target.settings_of(name)?;
    let refuse = |why: String| Err(Failure::flag("--namespace", why));
    if settings.hide.is_some() {
        return refuse(format!("the ids of namespace {name} are hidden: they are in no order of time"));
    }
    match settings.layout {
        Some(layout) => {
            if let Some(text) = &settings.text {
                report(
                    "warning",
                    &format!(
                        "namespace {name} writes its ids as text (`{text}`): the condition needs a column of numbers"
                    ),
                );
            }
            Ok(layout)
        }
        None => refuse(format!(
            "namespace {name} has the scheme {}: only ids of scheme snowflake are in order of time as numbers",
            settings.scheme
        )),
    }
}

/// The ids of a range of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimeRange {
    since_unix_ms: u64,
    until_unix_ms: Option<u64>,
    first: Id,
    /// `None` for a range without an end.
    last: Option<Id>,
}

impl TimeRange {
    fn of(layout: &Layout, since: u64, until: Option<u64>) -> Result<Self, Failure> {
        if !layout.sorts_by_time() {
            return Err(Failure::flag(
                "--layout",
                format!("the ids of `{layout}` do not sort by time: its timestamp is not on top"),
            ));
        }
        if until.is_some_and(|until| until <= since) {
            let why = format!(
                "{} is not after --since {}: choose a later end",
                Utc(until.unwrap_or_default()),
                Utc(since)
            );
            return Err(Failure::flag("--until", why));
        }
        let (begins, ends) = (layout.epoch_unix_ms(), layout.ends_at_unix_ms());
        if since >= ends || until.is_some_and(|until| until <= begins) {
            return Err(Failure::usage(format!(
                "no ids: layout `{layout}` has timestamps from {} to {}",
                Utc(begins),
                Utc(ends - 1)
            )));
        }
        let start_of_tick = |unix_ms| layout.timestamp_at(unix_ms).map(|timestamp| layout.unix_ms(timestamp));
        let since_unix_ms = start_of_tick(since).unwrap_or(begins);
        let until_unix_ms = until.map(|until| start_of_tick(until).unwrap_or(ends));
        if until_unix_ms.is_some_and(|until| until <= since_unix_ms) {
            return Err(Failure::flag(
                "--until",
                format!(
                    "both ends lie in one tick of {:?}: choose ends that are a tick apart",
                    layout.tick()
                ),
            ));
        }
        let no_id = || Failure::usage(format!("layout `{layout}` has no id at this instant"));
        let first = layout.first_id_at(Utc(since_unix_ms)).ok_or_else(no_id)?;
        let last = match until_unix_ms {
            // The last millisecond before the end is in the last tick of the range.
            Some(until) => Some(layout.last_id_at(Utc(until - 1)).ok_or_else(no_id)?),
            None => None,
        };
        Ok(Self { since_unix_ms, until_unix_ms, first, last })
    }

    /// Returns the condition, with an exclusive end where it fits a BIGINT.
    fn condition(&self, column: &str) -> String {
        let since = format!("{column} >= {}", self.first);
        match self.last {
            None => since,
            Some(Id::MAX) => format!("{since} AND {column} <= {}", Id::MAX),
            Some(last) => format!("{since} AND {column} < {}", last.get() + 1),
        }
    }
}

/// The range as JSON. The order of the members is part of the format.
#[derive(Serialize)]
struct RangeSummary {
    layout: String,
    since_unix_ms: u64,
    since_utc: String,
    until_unix_ms: Option<u64>,
    until_utc: Option<String>,
    first: Id,
    last: Option<Id>,
    r#where: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowmint::layout::PRESETS;

    const NOW: u64 = 1_785_542_400_000;

    /// Goal: consecutive ranges contain every id once. Method: for each layout, the ids around both ends of a
    /// range and of the next one.
    #[test]
    fn an_id_is_in_one_of_two_ranges_that_follow_each_other() {
        for preset in PRESETS.iter().filter(|preset| preset.layout.sorts_by_time()) {
            let layout = preset.layout;
            let begin = layout.epoch_unix_ms() + 86_400_000_123;
            if layout.ends_at_unix_ms() < begin + 200_000_000 {
                continue;
            }
            let (middle, end) = (begin + 77_777_777, begin + 155_555_555);
            let one = TimeRange::of(&layout, begin, Some(middle)).unwrap();
            let other = TimeRange::of(&layout, middle, Some(end)).unwrap();
            assert_eq!(one.until_unix_ms, Some(other.since_unix_ms), "{}", preset.name);
            assert_eq!(one.last.map(|id| id.get() + 1), Some(other.first.get()), "{}", preset.name);
            // The range contains an id made at its beginning.
            assert!(layout.first_id_at(Utc(begin)).is_some_and(|id| id >= one.first), "{}", preset.name);
            let timestamp = layout.split(one.first).unwrap().timestamp;
            assert_eq!(layout.unix_ms(timestamp), one.since_unix_ms);
        }
    }

    #[test]
    fn ends_beyond_the_layout_are_its_own() {
        let layout = Layout::TWITTER;
        let all = TimeRange::of(&layout, 0, Some(u64::MAX / 2)).unwrap();
        assert_eq!((all.first.get(), all.last), (0, Some(Id::MAX)));
        assert_eq!(all.condition("id"), "id >= 0 AND id <= 9223372036854775807");
        let open = TimeRange::of(&layout, NOW, None).unwrap();
        assert_eq!((open.last, open.until_unix_ms), (None, None));
        assert!(!open.condition("x").contains("AND"));
        for (since, until) in [(NOW, Some(NOW)), (NOW, Some(NOW - 1)), (0, Some(5)), (u64::MAX / 2, None)] {
            assert!(TimeRange::of(&layout, since, until).is_err(), "{since} {until:?}");
        }
        let low: Layout = "worker:10 time:41 sequence:12 epoch:2024-01-01".parse().unwrap();
        let Err(Failure::Usage(why)) = TimeRange::of(&low, NOW, None) else { panic!("it does not sort") };
        assert!(why.contains("do not sort by time"), "{why}");
    }
}
