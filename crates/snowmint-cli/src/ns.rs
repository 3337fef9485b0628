//! `snowmint ns`: the namespaces of a store, added, changed, dropped and listed, while nodes serve them.

mod list;
mod settings;
mod sources;

use std::sync::Arc;

use snowmint::{Clock as _, WallClock};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::registry::{self, Again};
use snowmint_cluster::namespace::{
    CounterSource, Definition, DefinitionError, NamespaceError, NamespaceRecord, NumberSource, Scheme,
};
use snowmint_cluster::segment::{Mode, SegmentConfig};
use snowmint_store::Store;

use crate::exit::{Failure, tell};
use crate::nodes;
use crate::output::Output;
use crate::workers::Place;
use settings::{Pinned, Safe, Text};

const EXAMPLES: &str = "\
A namespace is a named source of ids. Its scheme says how they are made:
  snowflake   64-bit ids in order of time, by a layout of bits
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
      them may be down.
      Sources that could give one number are refused.
  snowmint ns add order --scheme segment --source 'leaf:mysql://leaf@db/leaf?tag=order'
      From the row of a Leaf, which may go on beside. See also snowmint import.
  snowmint ns add keys --scheme uuid7 --text 'key_{id}'
  snowmint ns set orders --maximum 999999
  snowmint ns set order --source 'leaf:mysql://mint@db/leaf?tag=order&ssl-mode=required'
      The same row, by another user and over TLS.
  snowmint ns drop orders
      Nodes stop serving it. Its record stays: `snowmint ns add orders`
      resumes it above the last number.
  snowmint ns add orders --scheme segment --start-over \\
      --nodes http://n1:8080,http://n2:8080
      Begins at 1 again and repeats ids. Refused while one of the nodes still
      serves the dropped namespace. A node that cannot reach the store does not
      see the drop: it goes on giving the old numbers from memory. So name every
      node, and stop those that do not answer.
  snowmint ns list --json

Text forms (--text): literal text around one number field, or around {id}.
  {number}         decimal; {number:6} pads it with zeros to 6 digits
  {hex} {base32} {base36} {base58} {base62}
                   other digits, each with a width if wanted; base32 is
                   Crockford's, base58 has Bitcoin's order
  {alphabet=CHARS:11}
                   2 to 94 characters in an order of your own, without { } :
                   quotes and \\. Shuffled ones hide the number from people who
                   see an id, not from those who can ask the service
  {id}             the text of uuid7, uuid4, ulid and objectid
  {date} {yyyy} {mm} {dd}
                   the day in UTC
  snowmint ns add tickets --scheme segment --text 'T-{base32:8}'

Nodes read the store every few seconds: no restart is needed. Scheme, layout,
stripe and reset are fixed: a change could produce duplicates. Rule, sequence
start, mode, sizes, start and maximum can change. The place of a source can
change (--source) if it is the same counter, or if the old one is stopped for
good and --above says how far it came: at least the largest
snowmint_numbers_highest of all nodes, since nodes hold numbers in reserve that
a table of the old one, or its copy, may not show. The text form can change if no new text
can equal an earlier one: another width, or another literal at its start.

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
    place: Place,
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
        safe: Box<Safe>,
        /// Restart a dropped namespace from the beginning: it repeats ids that it gave before. First stop every node that has
        /// not seen the drop: a node that cannot reach the store goes on giving the old numbers
        #[arg(long)]
        start_over: bool,
        /// Start over only if none of these nodes still serves the namespace: http://HOST:PORT,... Name all nodes that run
        #[arg(long, value_name = "URLS", value_delimiter = ',', requires = "start_over")]
        nodes: Vec<String>,
    },
    /// Change the settings of a namespace
    Set {
        /// Name of the namespace
        name: NamespaceName,
        #[command(flatten)]
        safe: Box<Safe>,
        /// Remove the text form: write plain numbers, or the text of the scheme
        #[arg(long, conflicts_with = "text")]
        plain: bool,
        /// Where its sources are now, all of them, each with its stripe: another user, TLS or file of the same place, another
        /// name of the same server, or with --above another server that goes on
        #[arg(
            long = "source",
            value_name = "SOURCE",
            conflicts_with_all = ["text", "plain", "rule", "sequence_start", "mode", "start", "maximum", "size_min", "size_max"]
        )]
        sources: Vec<String>,
        /// For a source whose old server is stopped for good: raise the new one above this number, the highest that the old
        /// one can have given: no less than the largest `snowmint_numbers_highest` of all nodes, whatever a table shows
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
    runtime.block_on(async {
        match &args.action {
            Action::Add { name, pinned, safe, start_over, nodes } => {
                let again = if *start_over { Again::StartOver } else { Again::GoOn };
                let add = async |store: Arc<dyn Store>| add(&*store, name, pinned, safe, again, nodes).await;
                args.place.change_for_nodes(add).await?.flush()
            }
            Action::Set { name, safe, plain, sources, above } => {
                let text = if *plain { Text::Plain } else { Text::Kept };
                let set = async |store: Arc<dyn Store>| {
                    if sources.is_empty() {
                        set(&*store, name, safe, text).await
                    } else {
                        move_sources(&*store, name, sources, *above).await
                    }
                };
                args.place.change(set).await?.flush()
            }
            Action::Drop { name } => {
                let drop = async |store: Arc<dyn Store>| drop_one(&*store, name).await;
                args.place.change(drop).await?.flush()
            }
            Action::List => list::show(&*args.place.open().await?, args.json).await,
        }
    })
}

async fn add(
    store: &dyn Store,
    name: &NamespaceName,
    pinned: &Pinned,
    safe: &Safe,
    again: Again,
    nodes: &[String],
) -> Result<Output, Failure> {
    let before = find(store, name).await?;
    let definition = match (&pinned.scheme, &before) {
        (Some(scheme), _) => pinned.define(scheme, safe).map_err(refused)?,
        (None, Some(before)) if !pinned.is_given() => {
            safe.change(&before.definition, Text::Kept).map_err(refused)?
        }
        (None, Some(_)) => {
            let why = format!(
                "missing: --layout, --stripe, --source and --reset define a new namespace; add --scheme, or omit them to resume \
                 {name} as it was"
            );
            return Err(Failure::flag("--scheme", why));
        }
        (None, None) => {
            let segment = if safe.is_of_segment() || pinned.is_of_segment() {
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
    let found = sources::check(name, &definition, before.as_ref().filter(|_| again == Again::GoOn)).await?;
    check_mode(store, &definition)?;
    // One that was not dropped is refused below.
    if before.as_ref().is_none_or(|before| before.dropped_unix_ms.is_some()) {
        nobody_serves(name, nodes).await?;
    }
    let record = registry::add(store, name, &definition, again).await.map_err(|error| match error {
        NamespaceError::Mismatch(error) => Failure::usage(format!(
            "{error}; --start-over repeats ids, and is safe from duplicates among new ones only once every node has seen the \
             drop or is stopped: see `snowmint ns add --help`"
        )),
        error => failed(error),
    })?;
    sources::remember(store, name, &record.definition, &found).await?;
    let mut out = Output::new();
    out.line(&format!("{name} is {}", record.definition))?;
    out.line(&format!("recorded in {}", store.describe()))?;
    if before.is_some() && again == Again::StartOver {
        let others = if nodes.is_empty() { "a node" } else { "a node that is not in --nodes and" };
        tell(
            "warning",
            &format!(
                "{name} starts over: it may repeat ids that it gave before. Stop every node that has not seen the drop: {others} \
                 that cannot reach the store goes on giving the old numbers"
            ),
        );
    } else if let (Some(_), Some(last)) = (&before, list::reserved_to(store, name.as_str(), &record).await?) {
        out.line(&format!("resumed: the next number is above {last}"))?;
    }
    Ok(out)
}

/// Checks that no node goes on with the numbers of a namespace that is to start over.
async fn nobody_serves(name: &NamespaceName, nodes: &[String]) -> Result<(), Failure> {
    for node in nodes {
        let metrics = nodes::metrics_of(node).await.map_err(|silence| {
            silence.with("it may go on giving the old numbers: stop it for good, then remove it from --nodes")
        })?;
        if nodes::serves(&metrics, name) {
            return Err(Failure::runtime(format!(
                "node {node} still serves {name}, so it would go on giving the old numbers: wait until it rejects {name}, or \
                 stop it and remove it from --nodes"
            )));
        }
    }
    Ok(())
}

async fn set(store: &dyn Store, name: &NamespaceName, safe: &Safe, text: Text) -> Result<Output, Failure> {
    if !safe.is_given() && text == Text::Kept {
        return Err(Failure::usage(
            "nothing to change: expected --text, --plain, --rule, --sequence-start, --mode, --start, --maximum, \
             --size-min, --size-max or --source",
        ));
    }
    if let Some(before) = find(store, name).await? {
        check_mode(store, &safe.change(&before.definition, text).map_err(refused)?)?;
    }
    let change = |definition: &Definition| safe.change(definition, text).map_err(Refused::Definition);
    let record = registry::set(store, name, change).await.map_err(|error| match error {
        Refused::Definition(error) => refused(error),
        Refused::Namespace(error) => failed(error),
    })?;
    let mut out = Output::new();
    out.line(&format!("{name} is {}", record.definition))?;
    Ok(out)
}

/// Changes where its sources are.
async fn move_sources(
    store: &dyn Store,
    name: &NamespaceName,
    given: &[String],
    above: Option<u64>,
) -> Result<Output, Failure> {
    // Read here and not by the flag: its error would repeat a password.
    let wanted: Result<Vec<CounterSource>, _> = given.iter().map(|source| source.parse()).collect();
    let wanted = wanted.map_err(|error| Failure::flag("--source", error))?;
    let mut compared = Vec::new();
    if let Some(before) = find(store, name).await? {
        let mut definition = before.definition.clone();
        if let Scheme::Segment(segment) = &mut definition.scheme {
            let old = std::mem::replace(&mut segment.source, NumberSource::Other(wanted.clone()));
            if let NumberSource::Other(old) = old {
                compared = old;
            }
        }
        sources::check(name, &definition, Some(&before)).await?;
        sources::check_move(name, &before, &wanted, above).await?;
    }
    let record = registry::move_sources(store, name, &compared, &wanted).await.map_err(failed)?;
    let mut out = Output::new();
    out.line(&format!("{name} is {}", record.definition))?;
    Ok(out)
}

async fn drop_one(store: &dyn Store, name: &NamespaceName) -> Result<Output, Failure> {
    registry::drop_namespace(store, name, WallClock.unix_ms()).await.map_err(failed)?;
    let mut out = Output::new();
    out.line(&format!(
        "{name} is dropped: nodes reject it within seconds; `snowmint ns add {name}` resumes it above its last number"
    ))?;
    Ok(out)
}

/// The record of a namespace, dropped or not.
async fn find(store: &dyn Store, name: &NamespaceName) -> Result<Option<NamespaceRecord>, Failure> {
    let listed = registry::list(store).await.map_err(Failure::runtime)?;
    let found = listed.into_iter().find(|(it, _)| it == name.as_str());
    Ok(found.and_then(|(_, record)| record.ok()))
}

/// Looks whether numbers may come straight from the store.
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

/// Why a change is not made.
enum Refused {
    Definition(DefinitionError),
    Namespace(NamespaceError),
}

impl From<NamespaceError> for Refused {
    fn from(error: NamespaceError) -> Self {
        Self::Namespace(error)
    }
}

/// Settings in the words of flags.
fn refused(error: DefinitionError) -> Failure {
    Failure::usage(error)
}

fn failed(error: NamespaceError) -> Failure {
    match error {
        NamespaceError::Store(_) | NamespaceError::Unreadable { .. } => Failure::runtime(error),
        error => Failure::usage(error),
    }
}
