//! `snowmint ns`: adds, changes, drops and lists the namespaces of a store while nodes serve them.

mod sources;

use std::fmt::{self, Display};
use std::sync::Arc;

use serde::Serialize;
use snowmint::utc::Utc;
use snowmint::{Clock as _, Layout, Rule, Start, WallClock};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::audit::Action as Change;
use snowmint_cluster::namespace::registry::{self, IfDropped};
use snowmint_cluster::namespace::{
    CounterSource, Definition, DefinitionError, Fields, NamespaceError, NamespaceRecord, NumberSource,
    Scheme, ServedBy, TextForm,
};
use snowmint_cluster::segment::{Mode, Reset, SegmentConfig, Stripe};
use snowmint_store::{Key, Store};

use crate::audit::Author;
use crate::connect::{StoreArgs, warn_of_skipped};
use crate::error::{Failure, report};
use crate::flags;
use crate::human::Output;
use crate::node_metrics;

const EXAMPLES: &str = "\
A namespace is a named source of ids. Its scheme says how they are made:
  snowflake   64-bit ids in order of time, in the bits of a layout
  segment     plain increasing numbers, reserved from a counter
  uuid7, uuid4, ulid, objectid
              ids of 96 or 128 bits, which need no coordination

Examples:
  snowmint ns add orders --scheme segment --reset daily \\
      --text 'ORD-{date}-{number:6}'
      ORD-20261121-000001 and so on, restarting at 1 each day (UTC).
  snowmint ns add tickets --scheme segment --mode direct
      Each number is greater than all earlier ones, on every node.
  snowmint ns add ids --scheme segment \\
      --source '1/2 mysql://mint@a/ids' --source '2/2 mysql://mint@b/ids'
      Two ticket servers: odd numbers from one, even from the other; one of
      them may be down. Sources that could give the same number are rejected.
  snowmint ns add order --scheme segment --source 'leaf:mysql://leaf@db/leaf?tag=order'
      From the row of a Leaf, which may keep running. See also snowmint import.
  snowmint ns add keys --scheme uuid7 --text 'key_{id}'
  snowmint ns set orders --maximum 999999
  snowmint ns set order --source 'leaf:mysql://mint@db/leaf?tag=order&ssl-mode=required'
      The same row, by another user and over TLS.
  snowmint ns drop orders
      Nodes stop serving it. Its record stays: `snowmint ns add orders`
      resumes it above the last number.
  snowmint ns add orders --scheme segment --start-over \\
      --nodes http://n1:8080,http://n2:8080
      Restarts at 1 and repeats ids. Rejected while one of the nodes still
      serves the dropped namespace. A node that cannot reach the store does not
      see the drop and continues to give the old numbers from memory: name every
      node, and stop those that do not answer.
  snowmint ns list --json

Text forms (--text): literal text around one number field, or around {id}.
  {number}         decimal; {number:6} pads it with zeros to 6 digits
  {hex} {base32} {base36} {base58} {base62}
                   other digits, each with an optional width; base32 is
                   Crockford's, base58 has Bitcoin's order
  {alphabet=CHARS:11}
                   2 to 94 characters in any order, without { } : quotes and
                   \\. A shuffled alphabet hides the number from people who see
                   an id, not from people who can ask the service
  {id}             the text of uuid7, uuid4, ulid and objectid
  {date} {yyyy} {mm} {dd}
                   the day in UTC
  snowmint ns add tickets --scheme segment --text 'T-{base32:8}'

Nodes read the store every few seconds: no restart is needed. Scheme, layout,
stripe and reset are fixed: a change could produce duplicates. Rule, sequence
start, mode, sizes, start and maximum can change. The text form can change if no
new text can equal an earlier one: another width, or another literal at its
start. The place of a source can change (--source) if it is still the same
counter, or if the old one is stopped for good and --above names its highest
number: at least the largest snowmint_numbers_highest of all nodes, because
nodes hold reserved numbers that the table of the old one may not show.

The same in a file, for snowmint serve --namespaces-file FILE (TOML):
  [namespaces.orders]
  scheme = \"segment\"
  reset = \"daily\"
  text = \"ORD-{date}-{number:6}\"

  [namespaces.ids]
  scheme = \"segment\"
  sources = [\"1/2 mysql://mint@a/ids\", \"2/2 mysql://mint@b/ids\"]
  size_min = 100
  size_max = 100000

  [namespaces.users]
  scheme = \"snowflake\"
  layout = \"time:41 worker:10 sequence:12 epoch:2026-01-01\"

  [auto_create]           # create a namespace for an unknown name
  like = \"ids\"            # as a copy of this one
  at_most = 100           # while the store has fewer";

/// Add, change, drop or list the namespaces of a store
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    author: Author,
    /// Print JSON, one object a line (list only)
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Add a namespace that every node of the store serves, or resume a dropped one
    #[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
    Add {
        /// Name of the namespace: 1 to 64 letters, digits, `.`, `_`, `-` or `:`
        name: NamespaceName,
        #[command(flatten)]
        pinned: Box<Pinned>,
        #[command(flatten)]
        changeable: Box<Changeable>,
        /// Restart a dropped namespace from the beginning: it repeats earlier ids. First stop every node that has not seen the
        /// drop: a node that cannot reach the store continues to give the old numbers
        #[arg(long)]
        start_over: bool,
        /// Start over only if none of these nodes still serves the namespace: http://HOST:PORT,... Name every running node
        #[arg(long, value_name = "URLS", value_delimiter = ',', requires = "start_over")]
        nodes: Vec<String>,
    },
    /// Change the settings of a namespace
    Set {
        /// Name of the namespace
        name: NamespaceName,
        #[command(flatten)]
        changeable: Box<Changeable>,
        /// Remove the text form: write plain numbers, or the text of the scheme
        #[arg(long, conflicts_with = "text")]
        plain: bool,
        /// New addresses of all its sources, each with its stripe. The user, the TLS settings and the name of the server may
        /// change; with --above, also the server
        #[arg(
            long = "source",
            value_name = "SOURCE",
            conflicts_with_all = ["text", "plain", "rule", "sequence_start", "mode", "start", "maximum", "size_min", "size_max"]
        )]
        sources: Vec<String>,
        /// Highest number that the old server of a source can have given, if it is stopped for good: the new one is raised
        /// above it. At least the largest `snowmint_numbers_highest` of all nodes, whatever a table shows
        #[arg(long, value_name = "N", requires = "sources")]
        above: Option<u64>,
    },
    /// Drop a namespace: nodes stop serving it, its record stays
    Drop {
        /// Name of the namespace
        name: NamespaceName,
    },
    /// List all namespaces, including dropped ones
    #[command(
        after_help = "States: served (by every node of the store), named (by nodes whose flags or file name it), \
                            dropped, unreadable."
    )]
    List,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::runtime)?;
    let author = &args.author;
    runtime.block_on(async {
        match &args.action {
            Action::Add { name, pinned, changeable, start_over, nodes } => {
                let if_dropped = if *start_over { IfDropped::Restart } else { IfDropped::Resume };
                let add = async |store: Arc<dyn Store>| {
                    add(&*store, author, name, pinned, changeable, if_dropped, nodes).await
                };
                args.store.change_persistent(add).await?.flush()
            }
            Action::Set { name, changeable, plain, sources, above } => {
                let text = if *plain { Text::Plain } else { Text::Kept };
                let set = async |store: Arc<dyn Store>| {
                    if sources.is_empty() {
                        set(&*store, author, name, changeable, text).await
                    } else {
                        move_sources(&*store, author, name, sources, *above).await
                    }
                };
                args.store.change(set).await?.flush()
            }
            Action::Drop { name } => {
                let drop = async |store: Arc<dyn Store>| drop_one(&*store, author, name).await;
                args.store.change(drop).await?.flush()
            }
            Action::List => list(&*args.store.open_read_only().await?, args.json).await,
        }
    })
}

async fn add(
    store: &dyn Store,
    author: &Author,
    name: &NamespaceName,
    pinned: &Pinned,
    changeable: &Changeable,
    if_dropped: IfDropped,
    nodes: &[String],
) -> Result<Output, Failure> {
    let before = find(store, name).await?;
    let definition = match (pinned.scheme(), &before) {
        (Some(scheme), _) => pinned.define(scheme, changeable).map_err(Failure::usage)?,
        (None, Some(before)) if !pinned.is_given() => {
            changeable.change(&before.definition, Text::Kept).map_err(Failure::usage)?
        }
        (None, Some(_)) => {
            let why = format!(
                "missing: --stripe, --source and --reset define a new namespace; add --scheme, or omit them to resume {name} as \
                 it was"
            );
            return Err(Failure::flag("--scheme", why));
        }
        (None, None) => {
            let segment = if changeable.is_of_segment() || pinned.is_of_segment() {
                "; --stripe, --source, --reset, --mode, --start, --maximum, --size-min and --size-max belong to segment"
            } else {
                ""
            };
            let why = format!(
                "missing for the new namespace {name}: expected snowflake, segment, uuid7, uuid4, ulid or objectid{segment}"
            );
            return Err(Failure::flag("--scheme", why));
        }
    };
    let found =
        sources::check(name, &definition, before.as_ref().filter(|_| if_dropped == IfDropped::Resume))
            .await?;
    check_mode(store, &definition)?;
    let action = match &before {
        None => Change::NamespaceAdd,
        Some(before) if before.dropped_unix_ms.is_none() => {
            let found = before.definition.to_string();
            return Err(failed(NamespaceError::Exists { name: name.clone(), found }));
        }
        Some(_) if if_dropped == IfDropped::Restart => Change::NamespaceStartOver,
        Some(_) => Change::NamespaceResume,
    };
    nobody_serves(name, nodes).await?;
    let added = registry::add(store, name, &definition, if_dropped);
    let added = author.record(store, action, name, &definition, added).await?;
    let record = added.map_err(|error| match error {
        NamespaceError::Mismatch(error) => Failure::usage(format!(
            "{error}; --start-over repeats earlier ids, and new ids are unique only once every node has seen the drop or is \
             stopped: see `snowmint ns add --help`"
        )),
        error => failed(error),
    })?;
    sources::remember(store, name, &record.definition, &found).await?;
    let mut out = Output::new();
    out.line(&format!("{name} is {}", record.definition))?;
    out.line(&format!(
        "recorded in {}; running nodes serve it within their --namespaces-poll ({} by default)",
        store.describe(),
        flags::NAMESPACES_POLL
    ))?;
    if before.is_some() && if_dropped == IfDropped::Restart {
        let others = if nodes.is_empty() { "a node" } else { "a node that is not in --nodes and" };
        report(
            "warning",
            &format!(
                "{name} starts over: it may repeat earlier ids. Stop every node that has not seen the drop: {others} that \
                 cannot reach the store continues to give the old numbers"
            ),
        );
    } else if let (Some(_), Some(last)) = (&before, reserved_to(store, name.as_str(), &record).await?) {
        out.line(&format!("resumed: the next number is above {last}"))?;
    }
    Ok(out)
}

/// Checks that no node still gives the numbers of a namespace that is to start over.
async fn nobody_serves(name: &NamespaceName, nodes: &[String]) -> Result<(), Failure> {
    for node in nodes {
        let metrics = node_metrics::fetch(node).await.map_err(|error| {
            error.with_advice(
                "it may continue to give the old numbers: stop it for good, then remove it from --nodes",
            )
        })?;
        if node_metrics::serves(&metrics, name) {
            return Err(Failure::runtime(format!(
                "node {node} still serves {name}, so it would continue to give the old numbers: wait until it rejects {name}, \
                 or stop it and remove it from --nodes"
            )));
        }
    }
    Ok(())
}

async fn set(
    store: &dyn Store,
    author: &Author,
    name: &NamespaceName,
    changeable: &Changeable,
    text: Text,
) -> Result<Output, Failure> {
    if !changeable.is_given() && text == Text::Kept {
        return Err(Failure::usage(
            "nothing to change: expected --text, --plain, --rule, --sequence-start, --mode, --start, --maximum, \
             --size-min, --size-max or --source",
        ));
    }
    let mut details = String::new();
    if let Some(before) = find(store, name).await? {
        let wanted = changeable.change(&before.definition, text).map_err(Failure::usage)?;
        check_mode(store, &wanted)?;
        details = wanted.to_string();
    }
    let change = |definition: &Definition| changeable.change(definition, text).map_err(Rejected::Definition);
    let set = registry::set(store, name, change);
    let set = author.record(store, Change::NamespaceSet, name, details, set).await?;
    let record = set.map_err(|error| match error {
        Rejected::Definition(error) => Failure::usage(error),
        Rejected::Namespace(error) => failed(error),
    })?;
    let mut out = Output::new();
    out.line(&format!("{name} is {}", record.definition))?;
    Ok(out)
}

/// Changes the places of its sources.
async fn move_sources(
    store: &dyn Store,
    author: &Author,
    name: &NamespaceName,
    given: &[String],
    above: Option<u64>,
) -> Result<Output, Failure> {
    // Parsed here and not by the flag: an error of the flag would repeat a password.
    let wanted: Result<Vec<CounterSource>, _> = given.iter().map(|source| source.parse()).collect();
    let wanted = wanted.map_err(|error| Failure::flag("--source", error))?;
    let (mut compared, mut before_move) = (Vec::new(), None);
    if let Some(before) = find(store, name).await? {
        let mut definition = before.definition.clone();
        if let Scheme::Segment(segment) = &mut definition.scheme {
            let old = std::mem::replace(&mut segment.source, NumberSource::Other(wanted.clone()));
            if let NumberSource::Other(old) = old {
                compared = old;
            }
        }
        sources::check(name, &definition, Some(&before)).await?;
        before_move = Some(before);
    }
    let moved = async {
        if let Some(before) = &before_move {
            // Raises the new counter, so it is a part of the change.
            sources::check_move(name, before, &wanted, above).await?;
        }
        registry::move_sources(store, name, &compared, &wanted).await.map_err(failed)
    };
    let details = NumberSource::Other(wanted.clone());
    let record = author.record(store, Change::NamespaceSet, name, details, moved).await??;
    let mut out = Output::new();
    out.line(&format!("{name} is {}", record.definition))?;
    Ok(out)
}

async fn drop_one(store: &dyn Store, author: &Author, name: &NamespaceName) -> Result<Output, Failure> {
    let dropped = registry::drop_namespace(store, name, WallClock.unix_ms());
    author.record(store, Change::NamespaceDrop, name, "", dropped).await?.map_err(failed)?;
    let mut out = Output::new();
    out.line(&format!(
        "{name} is dropped: nodes reject it within seconds; `snowmint ns add {name}` resumes it above its last number"
    ))?;
    Ok(out)
}

/// Returns the record of a namespace, dropped or not.
async fn find(store: &dyn Store, name: &NamespaceName) -> Result<Option<NamespaceRecord>, Failure> {
    let listed = registry::list(store).await.map_err(Failure::runtime)?;
    let found = listed.into_iter().find(|(it, _)| it == name.as_str());
    Ok(found.and_then(|(_, record)| record.ok()))
}

/// Checks that the store allows the mode `direct`.
fn check_mode(store: &dyn Store, definition: &Definition) -> Result<(), Failure> {
    let Scheme::Segment(segment) = &definition.scheme else { return Ok(()) };
    match (segment.mode, &segment.source) {
        (Mode::Direct, NumberSource::Own(_)) => {
            SegmentConfig::check_direct(store.may_lose(), &store.describe())
                .map_err(|error| Failure::flag("--mode", error))
        }
        _ => Ok(()),
    }
}

/// Why a change is rejected.
enum Rejected {
    Definition(DefinitionError),
    Namespace(NamespaceError),
}

impl Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Definition(error) => error.fmt(f),
            Self::Namespace(error) => error.fmt(f),
        }
    }
}

impl From<NamespaceError> for Rejected {
    fn from(error: NamespaceError) -> Self {
        Self::Namespace(error)
    }
}

fn failed(error: NamespaceError) -> Failure {
    match error {
        NamespaceError::Store(_) | NamespaceError::Unreadable { .. } => Failure::runtime(error),
        error => Failure::usage(error),
    }
}

/// The settings of a namespace that can change: flags of `add` and `set`.
#[derive(Debug, Default, clap::Args)]
struct Changeable {
    /// Write ids in this form: literal text around {number}, {number:6}, {hex}, {base32}, {base36}, {base58}, {base62},
    /// {alphabet=CHARS}, or {id} (of uuid7, uuid4, ulid, objectid), with {date}, {yyyy}, {mm}, {dd}
    #[arg(long, value_name = "TEMPLATE")]
    text: Option<TextForm>,
    /// Rule for a clock that goes back (snowflake); default: the rule of the service
    #[arg(long, value_name = "RULE")]
    rule: Option<Rule>,
    /// Start of the sequence in each new tick (snowflake): zero, random, random(N) or rolling (see `snowmint serve
    /// --help`). Do not use zero if ids are rare and `id % n` picks a shard. Default: the start of the service
    #[arg(long, value_name = "START")]
    sequence_start: Option<Start>,
    /// Mode (segment): cached (from memory: fast, increasing on each node) or direct (from the store each time:
    /// increasing over all nodes)
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Smallest number (segment); raises a counter below it
    #[arg(long, value_name = "N")]
    start: Option<u64>,
    /// Largest number (segment)
    #[arg(long, value_name = "N")]
    maximum: Option<u64>,
    /// Smallest and first size of a reservation (segment)
    #[arg(long, value_name = "N")]
    size_min: Option<u64>,
    /// Largest size of a reservation (segment)
    #[arg(long, value_name = "N")]
    size_max: Option<u64>,
}

/// The settings of a namespace that are fixed once it exists.
#[derive(Debug, Default, clap::Args)]
struct Pinned {
    /// Scheme: snowflake (implied by --layout), segment, uuid7, uuid4, ulid or objectid
    #[arg(long, value_name = "SCHEME")]
    scheme: Option<String>,
    /// Layout (snowflake): a name (see `snowmint layouts`) or its fields (see `snowmint layout --help`)
    #[arg(long, value_name = "SPEC|NAME")]
    layout: Option<Layout>,
    /// Stripe (segment, in the store of the service): only numbers that are I modulo N, such as 1/2
    #[arg(long, value_name = "I/N")]
    stripe: Option<Stripe>,
    /// Source of numbers (segment) instead of the store of the service: a stripe and the URL of a store, or the URL of a
    /// counter of another system; once for each source
    #[arg(long = "source", value_name = "SOURCE")]
    sources: Vec<String>,
    /// Reset period (segment): daily, monthly or yearly, in UTC. The text form must contain the date
    #[arg(long, value_name = "PERIOD")]
    reset: Option<Reset>,
}

impl Pinned {
    /// Returns the scheme; `--layout` implies snowflake.
    fn scheme(&self) -> Option<&str> {
        self.scheme.as_deref().or_else(|| self.layout.map(|_| "snowflake"))
    }

    /// Returns whether any of the flags is set.
    const fn is_given(&self) -> bool {
        self.scheme.is_some()
            || self.layout.is_some()
            || self.stripe.is_some()
            || !self.sources.is_empty()
            || self.reset.is_some()
    }

    /// Returns whether a flag of segments is set.
    const fn is_of_segment(&self) -> bool {
        self.stripe.is_some() || !self.sources.is_empty() || self.reset.is_some()
    }

    /// Returns the definition of a namespace of `scheme`.
    fn define(&self, scheme: &str, changeable: &Changeable) -> Result<Definition, DefinitionError> {
        // Parsed here and not by the flag: an error of the flag would repeat a password.
        let sources: Result<Vec<CounterSource>, _> =
            self.sources.iter().map(|source| source.parse()).collect();
        let sources = sources.map_err(|error| DefinitionError::Sources(format!("--source: {error}")))?;
        let fields = Fields {
            scheme: scheme.to_owned(),
            layout: self.layout,
            stripe: self.stripe,
            sources: Some(sources).filter(|sources| !sources.is_empty()),
            reset: self.reset,
            ..Fields::default()
        };
        changeable.over(fields).define(&Layout::TWITTER)
    }
}

impl Changeable {
    /// Returns whether any of the flags is set.
    const fn is_given(&self) -> bool {
        self.text.is_some()
            || self.rule.is_some()
            || self.sequence_start.is_some()
            || self.mode.is_some()
            || self.start.is_some()
            || self.maximum.is_some()
            || self.size_min.is_some()
            || self.size_max.is_some()
    }

    /// Returns whether a flag of segments is set.
    const fn is_of_segment(&self) -> bool {
        self.mode.is_some()
            || self.start.is_some()
            || self.maximum.is_some()
            || self.size_min.is_some()
            || self.size_max.is_some()
    }

    /// Returns a definition with these settings in place of its own.
    fn change(&self, definition: &Definition, text: Text) -> Result<Definition, DefinitionError> {
        let mut fields = self.over(Fields::from(definition));
        if text == Text::Plain {
            fields.text = None;
        }
        fields.define(&Layout::TWITTER)
    }

    fn over(&self, fields: Fields) -> Fields {
        Fields {
            text: self.text.clone().or(fields.text),
            rule: self.rule.or(fields.rule),
            sequence_start: self.sequence_start.or(fields.sequence_start),
            mode: self.mode.or(fields.mode),
            start: self.start.or(fields.start),
            maximum: self.maximum.or(fields.maximum),
            size_min: self.size_min.or(fields.size_min),
            size_max: self.size_max.or(fields.size_max),
            ..fields
        }
    }
}

/// What happens to the text form without `--text`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Kept,
    Plain,
}

/// One namespace as a JSON object.
#[derive(Serialize)]
struct Row {
    name: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved_to: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
    #[serde(flatten)]
    fields: Option<Fields>,
}

async fn list(store: &dyn Store, json: bool) -> Result<(), Failure> {
    let listed = registry::list(store).await.map_err(Failure::runtime)?;
    warn_of_skipped(store);
    let mut out = Output::new();
    if listed.is_empty() && !json {
        out.line("this store has no namespaces: `snowmint ns add` adds one, `snowmint serve` the first")?;
    }
    for (name, record) in &listed {
        let row = Row::of(store, name, record).await?;
        if json {
            out.line(&serde_json::to_string(&row).map_err(Failure::runtime)?)?;
            continue;
        }
        let what = match (record, &row.unreadable) {
            (Ok(record), _) => record.definition.to_string(),
            (Err(_), why) => why.clone().unwrap_or_default(),
        };
        let more = match (&row.dropped, row.reserved_to) {
            (Some(when), _) => format!("since {when}"),
            (None, Some(reserved)) => format!("reserved to {reserved}"),
            (None, None) => String::new(),
        };
        let line = format!("{name:<20}  {:<10}  {what}  {}", row.state, out.paint.faint(&more));
        out.line(line.trim_end())?;
    }
    out.flush()
}

impl Row {
    async fn of(
        store: &dyn Store,
        name: &str,
        record: &Result<NamespaceRecord, String>,
    ) -> Result<Self, Failure> {
        let name = name.to_owned();
        let record = match record {
            Ok(record) => record,
            Err(why) => {
                let unreadable = Some(why.clone());
                return Ok(Self {
                    name,
                    state: "unreadable",
                    dropped: None,
                    reserved_to: None,
                    unreadable,
                    fields: None,
                });
            }
        };
        Ok(Self {
            reserved_to: reserved_to(store, &name, record).await?,
            name,
            state: match (record.dropped_unix_ms, record.served_by) {
                (Some(_), _) => "dropped",
                (None, ServedBy::EveryNode) => "served",
                (None, ServedBy::ConfiguredNodes) => "named",
            },
            dropped: record.dropped_unix_ms.map(|when| Utc(when).to_string()),
            unreadable: None,
            fields: Some(Fields::from(&record.definition)),
        })
    }
}

/// Returns the highest number reserved in this store; `None` if numbers come from elsewhere, or restart.
async fn reserved_to(
    store: &dyn Store,
    name: &str,
    record: &NamespaceRecord,
) -> Result<Option<u64>, Failure> {
    let Scheme::Segment(segment) = &record.definition.scheme else { return Ok(None) };
    let (NumberSource::Own(stripe), None) = (&segment.source, segment.reset) else { return Ok(None) };
    let Ok(name) = NamespaceName::new(name) else { return Ok(None) };
    let key = Key::new(segment.counter_key(&name)).map_err(Failure::runtime)?;
    let Some(value) = store.load(&key).await.map_err(Failure::runtime)? else { return Ok(Some(0)) };
    let slots: Option<u64> = std::str::from_utf8(&value.value).ok().and_then(|text| text.parse().ok());
    let last = slots.and_then(|slots| match slots {
        0 => Some(0),
        slots => (slots - 1).checked_mul(stripe.of().into())?.checked_add(stripe.index().into()),
    });
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowmint::Layout;
    use snowmint_cluster::namespace::Definition;
    use snowmint_store::{Expected, MemoryStore};

    #[tokio::test]
    async fn reserved_numbers_follow_the_stripe() {
        let store = MemoryStore::new();
        let key = Key::new("segments/a").unwrap();
        let record =
            |toml: Fields| NamespaceRecord::new(toml.define(&Layout::TWITTER).unwrap(), ServedBy::EveryNode);
        let plain = record(Fields { scheme: "segment".to_owned(), ..Fields::default() });
        let striped =
            Fields { scheme: "segment".to_owned(), stripe: "2/3".parse().ok(), ..Fields::default() };
        assert_eq!(reserved_to(&store, "a", &plain).await.unwrap(), Some(0));
        let _ = store.compare_and_set(&key, Expected::Absent, b"10").await.unwrap();
        assert_eq!(reserved_to(&store, "a", &plain).await.unwrap(), Some(10));
        assert_eq!(reserved_to(&store, "a", &record(striped)).await.unwrap(), Some(29));
        let other = NamespaceRecord::new(Definition::snowflake(Layout::TWITTER), ServedBy::ConfiguredNodes);
        assert_eq!(reserved_to(&store, "a", &other).await.unwrap(), None);
    }
}
