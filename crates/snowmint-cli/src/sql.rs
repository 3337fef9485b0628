//! `snowmint sql` prints SQL that reads the ids of a layout, and for PostgreSQL and MariaDB also SQL that
//! makes them. For PostgreSQL, it can also change a column of numbers to these ids.
//!
//! The texts are templates in the folder `sql`; `{{name}}` is replaced by a value of [`Values`]. The
//! templates of the generators also explain why no cursor is used twice: users read the explanation in the
//! printed SQL.

mod conversion;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use snowmint::field::{Field, Generation, Sequence, Timestamp};
use snowmint::utc::{MAX_UNIX_MS, Utc};
use snowmint::{Clock as _, DatacenterId, Layout, Parts, WallClock, WorkerId};

use self::conversion::{Column, Conversion, ConversionArgs};
use crate::error::{Failure, report};
use crate::flag_values;
use crate::output::Output;

/// How far a cursor may be behind the clock before a draw opens a new region, as in the library.
const MAX_BEHIND_MS: u64 = 4;
/// Default length of the timestamps that a crash skips.
const MAY_LOSE: Duration = Duration::from_secs(10);
/// How far the logged limit in PostgreSQL is raised above the need of a draw: draws sync the log about once
/// in this time. After a crash, ids are ahead of the clock by as much.
const RESERVE: Duration = Duration::from_secs(1);
/// The maximum name length of PostgreSQL and MySQL, less the longest ending, `_generation`.
const MAX_PREFIX: usize = 63 - "_generation".len();
/// The largest number of a `BIGINT`.
const MAX_BIGINT: u64 = i64::MAX as u64;

const EXAMPLES: &str = "\
Examples:
  snowmint sql postgres --layout twitter | psql -1 -v ON_ERROR_STOP=1
  snowmint sql postgres --layout twitter --worker 7 --schema app
  snowmint sql mariadb --layout leaf --worker 3 | mariadb shop
  snowmint sql mysql --layout leaf | mysql shop
  snowmint sql sqlite --layout js53 --table orders | sqlite3 shop.db
  snowmint sql postgres --layout twitter --worker 7 --drop
  snowmint sql postgres --layout twitter --convert orders.id

Read ids, everywhere:
  snowmint_time(id)         when the id was made, to the millisecond
  snowmint_worker(id)       and one function for each other field: datacenter,
                            generation, sequence
  snowmint_first_id(time)   for WHERE id >= snowmint_first_id(now() - interval '1 day'):
  snowmint_last_id(time)    the index on id answers queries by time

Make ids, with --worker, in PostgreSQL and MariaDB. No extension, no superuser:
  PostgreSQL                id bigint PRIMARY KEY DEFAULT snowmint_next_id()
                            SELECT * FROM snowmint_next_ids(1000)
  MariaDB                   the script shows the trigger; snowmint_next_id()

  Guaranteed:      no id twice, under any clock, in any number of sessions, if
                   no other database and no other process uses this worker.
  Not guaranteed:  copies of the database (restored, cloned, promoted before
                   they had everything) use the same worker: run the script
                   there with another one before they make ids.

Convert a serial, bigserial or identity column of PostgreSQL, once the functions
are installed; each is one statement that works or changes nothing:
  --convert orders.id            new rows get ids, existing rows keep theirs
  --convert orders.id --rewrite  also changes integer to bigint, here and in
                                 foreign keys: writes these tables again
  --convert orders.id --revert   the way back
  It locks the table: sessions wait for it, and it waits up to 5 s for open
  transactions. It refuses columns whose numbers new ids could repeat. To try
  it, run it between BEGIN and ROLLBACK: it shows each change as a NOTICE.

Install and run as the role that owns the functions. In PostgreSQL clients need
EXECUTE only.
docs/sql.md tells about shards, generated columns, backups and limits.";

/// Print SQL that reads and makes ids in a database
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples and what the functions do.")]
pub(crate) struct Args {
    /// Database
    #[arg(value_name = "DATABASE")]
    dialect: Dialect,
    /// Layout of the ids: a name (see `snowmint layouts`) or its fields
    #[arg(long, value_name = "SPEC|NAME", env = "SNOWMINT_LAYOUT")]
    layout: Layout,
    /// Also print functions that make ids of this worker (PostgreSQL, MariaDB). No other database may use it
    #[arg(long, value_name = "W", value_parser = flag_values::node_number, allow_negative_numbers = true)]
    worker: Option<u32>,
    /// Datacenter of new ids, if the layout has one
    #[arg(long, value_name = "D", default_value = "0", value_parser = flag_values::node_number, allow_negative_numbers = true, env = "SNOWMINT_DATACENTER")]
    datacenter: u32,
    /// Schema of the functions, in MySQL and MariaDB the database. It must exist; default: public, or the
    /// current database
    #[arg(long, value_name = "NAME")]
    schema: Option<Name>,
    /// Beginning of all names; one for each generator in a schema
    #[arg(long, value_name = "NAME", default_value = "snowmint")]
    prefix: Prefix,
    /// Reject draws if ids are further ahead of the clock than this (PostgreSQL; default 1d). They are ahead
    /// after the clock went back, or if they are made faster than the layout allows
    #[arg(long, value_name = "TIME", value_parser = max_ahead)]
    max_ahead: Option<MaxAhead>,
    /// Skip timestamps of this length after a crash or a failover, which may lose the end of the log
    /// (PostgreSQL; default 10s). Ids made faster than the layout allows use up more timestamps than that
    /// time
    #[arg(long, value_name = "TIME", value_parser = may_lose)]
    may_lose: Option<Duration>,
    /// Table that gets the columns (SQLite)
    #[arg(long, value_name = "NAME")]
    table: Option<Name>,
    /// Column of the table that has the ids (SQLite; default id)
    #[arg(long, value_name = "NAME")]
    column: Option<Name>,
    /// Print SQL that removes everything that the same command installs
    #[arg(long)]
    drop: bool,
    #[command(flatten)]
    conversion: ConversionArgs,
}

/// A database for which SQL can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dialect {
    #[value(alias = "postgresql", alias = "pg")]
    Postgres,
    Mysql,
    Mariadb,
    #[value(alias = "sqlite3")]
    Sqlite,
}

impl Dialect {
    const fn is_mysql(self) -> bool {
        matches!(self, Self::Mysql | Self::Mariadb)
    }
}

/// The name of a schema, table or column; it is quoted everywhere.
#[derive(Clone, Debug)]
struct Name(String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = (1..=63).contains(&text.len());
        if fits && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
            return Ok(Self(text.to_owned()));
        }
        Err("expected 1 to 63 letters, digits, `_` and `-`".to_owned())
    }
}

/// The beginning of the names of functions and sequences: with their endings, none needs quotes.
#[derive(Clone, Debug)]
struct Prefix(String);

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let begins = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        let fits = text.len() <= MAX_PREFIX;
        if begins && fits && text.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_')) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("expected up to {MAX_PREFIX} lower-case letters, digits and `_`, a letter first"))
    }
}

/// How far ids may be ahead of the clock, with the text of the flag for messages.
#[derive(Clone, Debug)]
struct MaxAhead {
    time: Duration,
    text: String,
}

fn max_ahead(text: &str) -> Result<MaxAhead, String> {
    let range = Duration::from_secs(1)..=Duration::from_hours(24 * 3660);
    let time = flag_values::time(text, range, "from 1s to 3660d, such as 1d or 10s")?;
    Ok(MaxAhead { time, text: text.to_owned() })
}

fn may_lose(text: &str) -> Result<Duration, String> {
    flag_values::time(text, Duration::ZERO..=Duration::from_hours(24), "from 0s to 24h, such as 10s")
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    check_flags(args)?;
    let values = Values::of(args)?;
    if args.worker.is_some()
        && !args.drop
        && let Some(warning) = flag_values::check_lifetime(&args.layout, WallClock.unix_ms())?
    {
        report("warning", &warning);
    }
    let script = match args.conversion.of_column() {
        Some((column, how)) => values.convert(column, how),
        None if args.drop => values.drop(args),
        None => values.install(args),
    };
    let mut out = Output::new();
    out.bytes(script.as_bytes())?;
    out.flush()
}

/// Rejects flags that do not apply to the database, rather than ignore them.
fn check_flags(args: &Args) -> Result<(), Failure> {
    let (dialect, worker) = (args.dialect, args.worker.is_some());
    let (mysql, sqlite) = (dialect == Dialect::Mysql, dialect == Dialect::Sqlite);
    let no_postgres = dialect != Dialect::Postgres;
    let for_sqlite = "expected with sqlite only: other databases get functions";
    let for_postgres = "expected with postgres only";
    let converts = args.conversion.of_column().is_some();
    let for_install = "expected without --convert, which changes a column and installs nothing";
    let refused = [
        (
            mysql && worker,
            "--worker",
            "MySQL has no sequences, and a counter in a row is locked until the end of each transaction: draw ids from `snowmint serve`, \
             or use PostgreSQL or MariaDB",
        ),
        (
            sqlite && worker,
            "--worker",
            "SQLite has no stored functions: make ids with the library, `snowmint new` or `snowmint serve`",
        ),
        (sqlite && args.schema.is_some(), "--schema", "SQLite has no schemas: remove it"),
        (
            sqlite && args.table.is_none(),
            "--table",
            "SQLite has no stored functions: name the table that gets the columns",
        ),
        (!sqlite && args.table.is_some(), "--table", for_sqlite),
        (!sqlite && args.column.is_some(), "--column", for_sqlite),
        (no_postgres && converts, "--convert", for_postgres),
        (
            converts && !args.layout.sorts_by_time(),
            "--convert",
            "the timestamp of the layout is not on top: its ids do not increase, and could repeat a number",
        ),
        (converts && args.drop, "--drop", "expected without --convert: --revert prints its way back"),
        (converts && worker, "--worker", for_install),
        (converts && args.max_ahead.is_some(), "--max-ahead", for_install),
        (converts && args.may_lose.is_some(), "--may-lose", for_install),
        (no_postgres && args.max_ahead.is_some(), "--max-ahead", for_postgres),
        (no_postgres && args.may_lose.is_some(), "--may-lose", for_postgres),
    ];
    let first = refused.into_iter().find(|(is_refused, ..)| *is_refused);
    first.map_or(Ok(()), |(_, flag, why)| Err(Failure::flag(flag, why)))
}

/// The values for the templates, and which parts are printed.
struct Values(BTreeMap<&'static str, String>);

impl Values {
    fn of(args: &Args) -> Result<Self, Failure> {
        let layout = &args.layout;
        let mut values = Self(BTreeMap::new());
        let tick_ms = u64::try_from(layout.tick().as_millis()).map_err(Failure::runtime)?;
        values.set("layout", layout);
        values.set("mark", "Snowmint layout: ");
        values.set_names(args);
        values.set_instants(args, tick_ms);
        values.set(
            "database",
            if args.dialect == Dialect::Mysql { "MySQL 5.7 or later" } else { "MariaDB 10.6 or later" },
        );
        if args.dialect == Dialect::Mariadb {
            values.set("create", "CREATE OR REPLACE FUNCTION");
        }
        if let Some(worker) = args.worker {
            values.set_generator(args, WorkerId(worker), tick_ms)?;
        }
        Ok(values)
    }

    /// Sets the names of what the script installs or reads.
    fn set_names(&mut self, args: &Args) {
        let quote = if args.dialect.is_mysql() { '`' } else { '"' };
        let schema = match (args.dialect, &args.schema) {
            (_, Some(Name(schema))) => format!("{quote}{schema}{quote}."),
            (Dialect::Postgres, None) => "public.".to_owned(),
            (_, None) => String::new(),
        };
        let prefix = &args.prefix.0;
        self.set("schema_name", args.schema.as_ref().map_or("public", |Name(schema)| schema));
        self.set("name", format_args!("{schema}{prefix}"));
        self.set("prefix", prefix);
        self.set("event", format_args!("{schema}{prefix}_clock"));
        self.set("table", format_args!("\"{}\"", args.table.as_ref().map_or("", |Name(name)| name)));
        self.set(
            "column",
            match args.dialect {
                Dialect::Sqlite => format!("\"{}\"", args.column.as_ref().map_or("id", |Name(name)| name)),
                _ => "id".to_owned(),
            },
        );
        self.set(
            "database_name",
            args.schema.as_ref().map_or("DATABASE()".to_owned(), |Name(schema)| format!("'{schema}'")),
        );
    }

    /// Sets what leads from an id to its instant, and back.
    fn set_instants(&mut self, args: &Args, tick_ms: u64) {
        let layout = &args.layout;
        let (shift, epoch_ms) = (layout.shift(Field::Timestamp), layout.epoch_unix_ms());
        // DATETIME of MySQL ends with the year 9999.
        let last_ms = if args.dialect.is_mysql() { MAX_UNIX_MS + 1 } else { u64::MAX };
        let end_ms = layout.ends_at_unix_ms().min(last_ms);
        let column = &self.0["column"];
        let ticks = read(layout, Field::Timestamp, column);
        let unix_ms = match tick_ms {
            1 => format!("({ticks} + {epoch_ms})"),
            tick_ms => format!("({ticks} * {tick_ms} + {epoch_ms})"),
        };
        let (first_ms, divide) = match args.dialect {
            Dialect::Postgres => ("trunc(extract(epoch FROM at AT TIME ZONE 'UTC') * 1000)::bigint", "/"),
            _ => ("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at) DIV 1000", "DIV"),
        };
        let is_id = is_id(layout, column);
        let ends_later = layout.ends_at_unix_ms() > end_ms;
        let has_time = if ends_later { format!("{is_id} AND {unix_ms} < {end_ms}") } else { is_id.clone() };
        self.set("has_time", has_time);
        self.set("is_id", is_id);
        self.set("unix_ms", unix_ms);
        self.set("first", Utc(epoch_ms));
        self.set("last", Utc(layout.ends_at_unix_ms() - 1));
        self.set("epoch_ms", epoch_ms);
        self.set("end_ms", end_ms);
        self.set("tick_ms", tick_ms);
        self.set("shift", shift);
        self.set("first_id", format_args!("((({first_ms} - {epoch_ms}) {divide} {tick_ms}) << {shift})"));
        self.set("below_time", (1_u64 << shift) - 1);
    }

    fn set_generator(&mut self, args: &Args, worker: WorkerId, tick_ms: u64) -> Result<(), Failure> {
        let layout = &args.layout;
        let datacenter = DatacenterId(args.datacenter);
        check_node(layout, worker, datacenter)?;
        let node = Parts {
            timestamp: Timestamp(0),
            datacenter,
            worker,
            generation: Generation(0),
            sequence: Sequence(0),
        };
        let node = layout.compose(&node).map_err(Failure::runtime)?.get();
        let bits = layout.width(Field::Sequence);
        let behind = MAX_BEHIND_MS / tick_ms;
        // At most what a draw may be behind: once a draw is further behind, the clock is past the end of the
        // region.
        let region_ticks = behind + 1;
        let region = region_ticks << bits;
        let max_cursor = ((u128::from(layout.max(Field::Timestamp)) + 1) << bits) - 1;
        let max_cursor = u64::try_from(max_cursor).map_err(Failure::runtime)?;
        let sequence_max = layout.max(Field::Sequence);
        self.set(
            "node",
            match layout.width(Field::Datacenter) {
                0 => worker.0.to_string(),
                _ => format!("{} of datacenter {}", worker.0, datacenter.0),
            },
        );
        self.set("sequence_bits", bits);
        self.set("behind", behind);
        self.set("region", region);
        self.set("region_ticks", region_ticks);
        self.set("batch", region.min(4096));
        self.set("roll", sequence_max >> 1);
        self.set("max_tick", layout.max(Field::Timestamp));
        self.set_times(args, tick_ms, region_ticks)?;
        // The letters SNOW: the other half of the lock is the sequence's own number.
        self.set("lock", u32::from_be_bytes(*b"SNOW"));
        self.set("compose", compose(layout, node, "drawn", "drawn", &qualified));
        self.set("compose_plain", compose(layout, node, "drawn", "drawn", &plain));
        // A MariaDB sequence cannot reach the largest number.
        self.set("max_cursor", max_cursor.min(MAX_BIGINT - 1));
        // The number of ids in a tenth of a second: a restart skips at most that many.
        self.set("cache", ((sequence_max + 1) * 100 / tick_ms).max(1));
        // Without the schema: a function, procedure or event uses its own one, also in a copy with another
        // name.
        let sequence = format!("{}_cursor", self.0["prefix"]);
        let (next, last) = (format!("NEXTVAL({sequence})"), format!("LASTVAL({sequence})"));
        self.set("draw", compose(layout, node, &next, &last, &plain));
        Ok(())
    }

    /// Sets how far ids may be ahead of the clock, and how far a crash moves them.
    fn set_times(&mut self, args: &Args, tick_ms: u64, region_ticks: u64) -> Result<(), Failure> {
        let ticks = |time: Duration| {
            u64::try_from(time.as_millis()).map(|ms| ms.div_ceil(tick_ms)).map_err(Failure::runtime)
        };
        let (max_ahead, max_ahead_text) =
            args.max_ahead.as_ref().map_or((Duration::from_hours(24), "1d"), |it| (it.time, &*it.text));
        let may_lose = args.may_lose.unwrap_or(MAY_LOSE);
        let (max_ahead_ticks, may_lose_ticks, reserve_ticks) =
            (ticks(max_ahead)?, ticks(may_lose)?, ticks(RESERVE)?);
        // Draws must not fail after a crash.
        let skipped = may_lose_ticks + reserve_ticks + region_ticks;
        if max_ahead_ticks < skipped {
            let least = (skipped * tick_ms).div_ceil(1000);
            let why = format_args!(
                "{max_ahead_text} is shorter than what a crash may skip, so that draws would fail after it: expected at least \
                 {least} s, or a shorter --may-lose"
            );
            return Err(Failure::flag("--max-ahead", why));
        }
        self.set("max_ahead", max_ahead_text);
        self.set("max_ahead_ticks", max_ahead_ticks);
        self.set("may_lose", format_args!("{} ms", may_lose.as_millis()));
        self.set("may_lose_ticks", may_lose_ticks);
        self.set("reserve", format_args!("{} s", RESERVE.as_secs()));
        self.set("reserve_ticks", reserve_ticks);
        Ok(())
    }

    fn set(&mut self, name: &'static str, value: impl fmt::Display) {
        self.0.insert(name, value.to_string());
    }

    fn install(mut self, args: &Args) -> String {
        let (decode, field, bounds, generator) = match args.dialect {
            Dialect::Postgres => (
                include_str!("sql/postgres_decode.sql"),
                include_str!("sql/postgres_field.sql"),
                include_str!("sql/postgres_bounds.sql"),
                include_str!("sql/postgres_generator.sql"),
            ),
            Dialect::Mysql | Dialect::Mariadb => (
                include_str!("sql/mysql_decode.sql"),
                include_str!("sql/mysql_field.sql"),
                include_str!("sql/mysql_bounds.sql"),
                include_str!("sql/mariadb_generator.sql"),
            ),
            Dialect::Sqlite => (
                include_str!("sql/sqlite_columns.sql"),
                include_str!("sql/sqlite_field.sql"),
                include_str!("sql/sqlite_bounds.sql"),
                "",
            ),
        };
        let check_layout = match args.dialect {
            Dialect::Mysql => self.fill(include_str!("sql/mysql_check.sql")),
            Dialect::Mariadb => self.fill(include_str!("sql/mariadb_check.sql")),
            // PostgreSQL checks it in the script. SQLite refuses a second column with the same name.
            Dialect::Postgres | Dialect::Sqlite => String::new(),
        };
        self.set("check_layout", check_layout);
        let makes_ids = args.dialect == Dialect::Mariadb && args.worker.is_some();
        self.set("check_server", if makes_ids { include_str!("sql/mariadb_binlog.sql") } else { "" });
        let mut script = self.fill(decode);
        for name in fields(&args.layout) {
            self.set("field", name);
            self.set("value", read(&args.layout, name, &self.0["column"]));
            script += &self.fill(field);
        }
        if args.layout.sorts_by_time() {
            script += &self.fill(bounds);
        } else {
            script +=
                "\n-- No first and last id of an instant: the timestamp of this layout is not on top.\n";
        }
        if args.worker.is_some() {
            script += &self.fill(generator);
        }
        if args.dialect == Dialect::Postgres {
            script += include_str!("sql/postgres_end.sql");
        }
        if args.dialect == Dialect::Mysql {
            script = replace_functions(&script);
        }
        script
    }

    /// Returns the SQL that changes a column, or changes it back.
    fn convert(mut self, column: &Column, how: Conversion) -> String {
        let schema = column.schema.clone().unwrap_or_else(|| self.0["schema_name"].clone());
        let names = [&schema, &column.table, &column.name];
        self.set("shown_column", names.map(|it| conversion::shown(it)).join("."));
        for (value, name) in ["column_schema", "column_table", "column_name"].into_iter().zip(names) {
            self.set(value, conversion::literal(name));
        }
        self.set("rewrite", how == Conversion::ConvertAndRewrite);
        self.set("begin", self.fill(include_str!("sql/postgres_column.sql")));
        self.set("end", include_str!("sql/postgres_column_end.sql"));
        match how {
            Conversion::Convert | Conversion::ConvertAndRewrite => {
                self.fill(include_str!("sql/postgres_convert.sql"))
            }
            Conversion::Revert => self.fill(include_str!("sql/postgres_revert.sql")),
        }
    }

    /// Replaces each `{{name}}` with its value.
    fn fill(&self, template: &str) -> String {
        let mut filled = String::new();
        let mut rest = template;
        while let Some((before, (name, after))) =
            rest.split_once("{{").and_then(|(before, rest)| Some((before, rest.split_once("}}")?)))
        {
            filled += before;
            match self.0.get(name) {
                Some(value) => filled += value,
                // Filled in later.
                None => filled.extend(["{{", name, "}}"]),
            }
            rest = after;
        }
        filled + rest
    }

    fn drop(&self, args: &Args) -> String {
        let (name, prefix) = (&self.0["name"], &args.prefix.0);
        let mut lines = Vec::new();
        if args.dialect == Dialect::Sqlite {
            for field in [Field::Timestamp].into_iter().chain(fields(&args.layout)) {
                lines.push(format!("ALTER TABLE {} DROP COLUMN {prefix}_{}", self.0["table"], ending(field)));
            }
            return lines.join(";\n") + ";\n";
        }
        let bigint = if args.dialect == Dialect::Postgres { "(bigint)" } else { "" };
        let instant = if args.dialect == Dialect::Postgres { "(timestamptz)" } else { "" };
        let function = |ending: &str, takes: &str| format!("DROP FUNCTION IF EXISTS {name}_{ending}{takes}");
        if args.worker.is_some() && args.dialect == Dialect::Postgres {
            lines.push(function("next_ids", "(integer)"));
            lines.extend(["next_id", "jump", "clock"].map(|ending| function(ending, "()")));
            lines.extend(
                ["cursor", "edge", "logged"].map(|it| format!("DROP SEQUENCE IF EXISTS {name}_{it}")),
            );
        } else if args.worker.is_some() {
            lines.push(format!("DROP EVENT IF EXISTS {name}_clock"));
            lines.push(format!("DROP PROCEDURE IF EXISTS {name}_catch_up"));
            lines.push(function("next_id", ""));
            lines.push(format!("DROP SEQUENCE IF EXISTS {name}_cursor"));
        }
        if args.layout.sorts_by_time() {
            lines.extend(["first_id", "last_id"].map(|ending| function(ending, instant)));
            if args.dialect == Dialect::Postgres {
                lines.push(function("outside", instant));
            }
        }
        lines.extend(fields(&args.layout).map(|field| function(ending(field), bigint)));
        lines.push(function("time", bigint));
        let lines = lines.join(";\n");
        if args.dialect == Dialect::Postgres {
            // One statement: if a column still uses a function, it changes nothing.
            return format!("DO $drop$\nBEGIN\n{lines};\nEND\n$drop$;\n");
        }
        lines + ";\n"
    }
}

/// MySQL cannot replace a function: drop it first.
fn replace_functions(script: &str) -> String {
    let mut replaced = String::new();
    for line in script.lines() {
        match line.strip_prefix("{{create}} ") {
            Some(rest) => {
                let name = rest.split('(').next().unwrap_or_default();
                replaced.extend(["DROP FUNCTION IF EXISTS ", name, ";\nCREATE FUNCTION ", rest, "\n"]);
            }
            None => replaced.extend([line, "\n"]),
        }
    }
    replaced
}

/// Returns the fields other than the timestamp, from the top bit down.
fn fields(layout: &Layout) -> impl Iterator<Item = Field> {
    layout.fields().filter(|field| *field != Field::Timestamp)
}

/// Returns the ending of the name of the function that reads a field.
fn ending(field: Field) -> &'static str {
    match field {
        Field::Timestamp => "time",
        other => other.name(),
    }
}

/// Checks the node of a generator, each value under its flag's name.
fn check_node(layout: &Layout, worker: WorkerId, datacenter: DatacenterId) -> Result<(), Failure> {
    for (field, flag, value) in
        [(Field::Worker, "--worker", worker.0), (Field::Datacenter, "--datacenter", datacenter.0)]
    {
        flag_values::check_field(layout, field, flag, value)?;
    }
    Ok(())
}

/// Returns the condition that a number is an id of the layout.
fn is_id(layout: &Layout, column: &str) -> String {
    match layout.bits() {
        63 => format!("{column} >= 0"),
        bits => format!("{column} BETWEEN 0 AND {}", (1_u64 << bits) - 1),
    }
}

/// Returns the expression that reads a field of an id without bits above the layout.
fn read(layout: &Layout, field: Field, id: &str) -> String {
    let (shift, width) = (layout.shift(field), layout.width(field));
    let shifted = if shift == 0 { id.to_owned() } else { format!("({id} >> {shift})") };
    if shift + width == layout.bits() {
        return shifted;
    }
    format!("({shifted} & {})", layout.max(field))
}

/// A function that joins two operands with an operator.
type Operator<'a> = &'a dyn Fn(&str, &str, &str) -> String;

fn plain(left: &str, operator: &str, right: &str) -> String {
    format!("({left} {operator} {right})")
}

/// Returns an operation whose operator no `search_path` can replace.
fn qualified(left: &str, operator: &str, right: &str) -> String {
    format!("({left} OPERATOR(pg_catalog.{operator}) {right})")
}

/// Returns the expression for the id of a cursor. `again` is the expression for the second use of the same
/// cursor; it is evaluated after `cursor`.
fn compose(layout: &Layout, node: u64, cursor: &str, again: &str, op: Operator<'_>) -> String {
    let bits = layout.width(Field::Sequence);
    let (time, sequence) = (layout.shift(Field::Timestamp), layout.shift(Field::Sequence));
    let shifted = |value: String, by: u32| if by == 0 { value } else { op(&value, "<<", &by.to_string()) };
    let cursor = cursor.to_owned();
    let id = if bits == 0 {
        shifted(cursor, time)
    } else if time == sequence + bits {
        shifted(cursor, sequence)
    } else {
        let ticks = shifted(op(&cursor, ">>", &bits.to_string()), time);
        let low = op(again, "&", &layout.max(Field::Sequence).to_string());
        op(&ticks, "|", &shifted(low, sequence))
    };
    if node == 0 { id } else { op(&id, "|", &node.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowmint::layout::PRESETS;

    fn args(dialect: Dialect, layout: &Layout) -> Args {
        let generates = matches!(dialect, Dialect::Postgres | Dialect::Mariadb);
        Args {
            dialect,
            layout: *layout,
            worker: generates.then_some(0),
            datacenter: 0,
            schema: None,
            prefix: Prefix("snowmint".to_owned()),
            max_ahead: None,
            may_lose: None,
            table: (dialect == Dialect::Sqlite).then(|| Name("orders".to_owned())),
            column: None,
            drop: false,
            conversion: ConversionArgs::default(),
        }
    }

    #[test]
    fn every_value_of_every_template_is_filled_in() {
        for preset in PRESETS {
            for dialect in [Dialect::Postgres, Dialect::Mysql, Dialect::Mariadb, Dialect::Sqlite] {
                let args = args(dialect, &preset.layout);
                check_flags(&args).unwrap();
                let script = Values::of(&args).unwrap().install(&args);
                assert!(
                    !script.contains("{{") && script.ends_with('\n'),
                    "{} {dialect:?}: {script}",
                    preset.name
                );
            }
        }
    }

    #[test]
    fn names_need_no_escapes() {
        for bad in ["", "a b", "a\"b", "a'b", "a;b", "ä", "a$b", "a`b"] {
            assert!(bad.parse::<Name>().is_err() && bad.parse::<Prefix>().is_err(), "{bad}");
        }
        assert!("App-2".parse::<Name>().is_ok() && "App".parse::<Prefix>().is_err());
        assert!("2a".parse::<Prefix>().is_err() && "a".repeat(53).parse::<Prefix>().is_err());
        assert!("_a2".parse::<Prefix>().is_ok());
    }
}
