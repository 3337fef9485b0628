//! `snowmint ns`: adds, changes, drops and lists the namespaces of a store while nodes serve them.

use std::path::PathBuf;

use serde_json::Value;
use snowmint::{Layout, Rule, Start};
use snowmint_admin::namespaces::{Addition, Change, Changed, NamespaceView, Namespaces, Settings, StartOver};
use snowmint_admin::operations::{AddNamespace, DropNamespace, ListNamespaces, SetNamespace};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::registry::Required;
use snowmint_cluster::namespace::{CounterSource, Fields, HideKeyName, TextForm, TimeZone};
use snowmint_cluster::segment::{Mode, Reset, Stripe};

use crate::admin_failure::warn;
use crate::error::Failure;
use crate::flag_values;
use crate::hide_key;
use crate::output::Output;
use crate::runtime;
use crate::target::{AuthorArgs, TargetArgs};

const EXAMPLES: &str = "\
A namespace is a named source of ids. Its scheme says how they are made:
  snowflake   64-bit ids in order of time, in the bits of a layout
  segment     plain increasing numbers, reserved from a counter
  uuid7, uuid4, ulid, objectid
              ids of 96 or 128 bits, which need no coordination

Examples:
  snowmint ns add orders --scheme segment --reset daily \\
      --text 'ORD-{date}-{number:6}' --time-zone Asia/Shanghai
      ORD-20261121-000001 and so on, restarting at 1 at each midnight in
      Shanghai; without --time-zone, in UTC.
  snowmint ns add tickets --scheme segment --mode direct
      Each number is greater than all earlier ones, on every node.
  snowmint ns add ids --scheme segment \\
      --source '1/2 mysql://mint@a/ids' --source '2/2 mysql://mint@b/ids'
      Two ticket servers: odd numbers from one, even from the other; one of
      them may be down. Sources that could give the same number are rejected.
  snowmint ns add order --scheme segment \\
      --source 'leaf:mysql://leaf@db/leaf?tag=order&login=shop' \\
      --logins 'shop=mysql://leaf:PASSWORD@db/leaf'
      From the row of a Leaf, which may keep running. Each node needs the login
      too (serve --logins). See also snowmint import.
  snowmint ns add keys --scheme uuid7 --text 'key_{id}'
  snowmint ns add invites --scheme segment --text '{base62}' \\
      --hide invites --hide-keys-file hide-keys.toml
      Ids that reveal neither number nor time, such as 9tbfyZNgzPV, under a key
      of `snowmint hide-key`. No ranges, no INCR, no order. Clients that may
      inspect ids can reveal them.
  snowmint ns set orders --maximum 999999
  snowmint ns set orders --owner team-web --description 'orders of the web shop'
  snowmint ns set order --source 'leaf:mysql://mint@db/leaf?tag=order&login=mint'
      The same row, by another login.
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
  snowmint ns list --server https://ids.example.com --token-file admin.token
      Works through a running node, without access to its store.

Text forms (--text): literal text around one number field, or around {id}.
  {number}         decimal; {number:6} pads it with zeros to 6 digits
  {hex} {base32} {base36} {base58} {base62}
                   other digits, each with an optional width; base32 is
                   Crockford's, base58 has Bitcoin's order
  {alphabet=CHARS:11}
                   2 to 94 characters in any order, without { } : quotes and
                   \\. A shuffled alphabet is no secret: a few ids reveal it.
                   --hide hides numbers
  {id}             the text of uuid7, uuid4, ulid and objectid
  {date} {yyyy} {mm} {dd}
                   the day in the time zone (--time-zone)
  snowmint ns add tickets --scheme segment --text 'T-{base32:8}'

Nodes read the store every few seconds: no restart is needed. Scheme, layout,
stripe, reset and hide key are fixed: a change could produce duplicates. Rule, sequence
start, mode, sizes, start, maximum, time zone, description and owner can change. The text
form can change if no new text can equal an earlier one: another width, or
another literal at its start. The place of a source can change (--source) if it
is still the same counter, or if the old one is stopped for good and --above
names its highest number: at least the largest snowmint_numbers_highest of all
nodes, because nodes hold reserved numbers that the table of the old one may not
show.

JSON, one object a line. list and show: name, state, dropped, reserved_to,
unreadable and the settings, named as in a file. start, maximum, reserved_to
and resumed_above are numbers up to 2^63 - 1: JSON.parse of JavaScript rounds
those above 2^53. add, set and drop: namespace (these members), store, edition,
resumed_above and warnings.

The same in a file, for snowmint serve --namespaces-file FILE (TOML):
  [namespaces.orders]
  scheme = \"segment\"
  reset = \"daily\"
  text = \"ORD-{date}-{number:6}\"
  time_zone = \"Asia/Shanghai\"

  [namespaces.ids]
  scheme = \"segment\"
  sources = [\"1/2 mysql://mint@a/ids\", \"2/2 mysql://mint@b/ids\"]
  size_min = 100
  size_max = 100000

  [namespaces.users]
  scheme = \"snowflake\"
  layout = \"time:41 worker:10 sequence:12 epoch:2026-01-01\"

  [logins]                # for sources with login=NAME; never in the store
  shop = \"mysql://leaf@db/leaf?password_file=/etc/snowmint/leaf&ssl-ca=/etc/ca.pem\"

  [auto_create]           # create a namespace for an unknown name
  like = \"ids\"            # as a copy of this one
  at_most = 100           # while the store has fewer";

/// Add, change, drop or list the namespaces of a store
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: NsAction,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    author: AuthorArgs,
    /// Logins with which add and set check sources, as for `snowmint serve`: NAME=URL; separate several by
    /// spaces
    #[arg(
        long,
        global = true,
        value_name = "NAME=URL",
        env = "SNOWMINT_LOGINS",
        hide_env_values = true,
        help_heading = "Store"
    )]
    logins: Vec<String>,
    /// Print one JSON object per line
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum NsAction {
    /// Add a namespace that every node of the store serves, or resume a dropped one
    #[command(aliases = ["create", "new"], after_long_help = EXAMPLES, after_help = "See --help for examples.")]
    Add {
        /// Name of the namespace: 1 to 64 letters, digits, `.`, `_`, `-` or `:`
        name: NamespaceName,
        #[command(flatten)]
        pinned: Box<Pinned>,
        #[command(flatten)]
        changeable: Box<Changeable>,
        /// Restart a dropped namespace from the beginning: it repeats earlier ids. First stop every node that
        /// has not seen the drop: a node that cannot reach the store continues to give the old numbers
        #[arg(long)]
        start_over: bool,
        /// Start over only if none of these nodes still serves the namespace: http://HOST:PORT,... Name every
        /// running node
        #[arg(long, value_name = "URLS", value_delimiter = ',', requires = "start_over")]
        nodes: Vec<String>,
    },
    /// Change the settings of a namespace
    #[command(
        aliases = ["update", "change", "edit"],
        after_help = "Example: snowmint ns set orders --maximum 999999. `snowmint ns --help` has more."
    )]
    Set {
        /// Name of the namespace
        name: NamespaceName,
        #[command(flatten)]
        changeable: Box<Changeable>,
        /// Remove the text form: write plain numbers, or the text of the scheme
        #[arg(long, conflicts_with = "text")]
        plain: bool,
        /// New addresses of all its sources, each with its stripe. The user, the TLS settings and the name of
        /// the server may change; with --above, also the server
        #[arg(
            long = "source",
            value_name = "SOURCE",
            conflicts_with_all = [
                "text", "plain", "time_zone", "rule", "sequence_start", "mode", "start", "maximum", "size_min", "size_max",
                "description", "owner"
            ]
        )]
        sources: Vec<String>,
        /// Highest number that the old server of a source can have given, if it is stopped for good: the new
        /// one is raised above it. At least the largest `snowmint_numbers_highest` of all nodes, whatever a
        /// table shows
        #[arg(
            long,
            value_name = "N",
            requires = "sources",
            value_parser = flag_values::number,
            allow_negative_numbers = true
        )]
        above: Option<u64>,
    },
    /// Drop a namespace: nodes stop serving it, its record stays
    #[command(
        aliases = ["rm", "remove", "delete", "del"],
        after_help = "Example: snowmint ns drop orders. `snowmint ns add orders` resumes it above its last number."
    )]
    Drop {
        /// Name of the namespace
        name: NamespaceName,
    },
    /// List all namespaces, including dropped ones
    #[command(
        alias = "ls",
        after_help = "Example: snowmint ns list --json\n\nStates: served (by every node of the store), named (by nodes whose flags or file name it), \
                            dropped, unreadable."
    )]
    List,
    /// Show one namespace with all its settings
    #[command(
        aliases = ["get", "describe", "info"],
        after_help = "Example: snowmint ns show orders --json. The members are those of `snowmint ns list --json`."
    )]
    Show {
        /// Name of the namespace
        name: NamespaceName,
    },
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    runtime()?.block_on(act(args))
}

async fn act(args: &Args) -> Result<(), Failure> {
    let target = args.target.open_as(&args.author)?;
    match &args.action {
        NsAction::Add { name, pinned, changeable, start_over, nodes } => {
            let settings = settings(&changeable.over(pinned.fields()?))?;
            let start_over = start_over.then(|| StartOver { nodes: nodes.clone() });
            let logins = flag_values::logins(&args.logins)?;
            let addition = Addition { settings, start_over, logins, ..Addition::default() };
            target.check_persistent()?;
            show_added(&target.run(AddNamespace { name: name.clone(), addition }).await?, args.json)
        }
        NsAction::Set { name, changeable, plain, sources, above } => {
            let logins = flag_values::logins(&args.logins)?;
            let change = Change { logins, ..changed(changeable, *plain, sources, *above)? };
            show_set(&target.run(SetNamespace { name: name.clone(), change }).await?, args.json)
        }
        NsAction::Drop { name } => {
            let drop = DropNamespace { name: name.clone(), required: Required::Any };
            show_dropped(&target.run(drop).await?, args.json)
        }
        NsAction::List => show_list(&target.run(ListNamespaces).await?, args.json),
        NsAction::Show { name } => match target.namespace(name).await? {
            Some(namespace) => show_one(&namespace, args.json),
            None => Err(Failure::usage(format!(
                "unknown namespace {name}: `snowmint ns list` lists those of the store"
            ))),
        },
    }
}

fn changed(
    changeable: &Changeable,
    plain: bool,
    sources: &[String],
    above: Option<u64>,
) -> Result<Change, Failure> {
    let pinned = Pinned { sources: sources.to_vec(), ..Pinned::default() };
    let mut settings = settings(&changeable.over(pinned.fields()?))?;
    if plain {
        settings.insert("text".to_owned(), Value::Null);
    }
    if settings.is_empty() {
        return Err(Failure::usage(
            "nothing to change: expected --text, --plain, --time-zone, --rule, --sequence-start, --mode, --start, \
             --maximum, --size-min, --size-max, --description, --owner or --source",
        ));
    }
    Ok(Change { settings, above, ..Change::default() })
}

/// The settings of a namespace that can change: flags of `add` and `set`.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Settings that can change")]
struct Changeable {
    /// Write ids in this form: literal text around {number}, {number:6}, {hex}, {base32}, {base36}, {base58},
    /// {base62}, {alphabet=CHARS}, or {id} (of uuid7, uuid4, ulid, objectid), with {date}, {yyyy}, {mm}, {dd}
    #[arg(long, value_name = "TEMPLATE")]
    text: Option<TextForm>,
    /// Time zone of {date} in --text and of --reset: a name such as Asia/Shanghai, from the time zone
    /// database of the system (package tzdata), or UTC, the default
    #[arg(long, value_name = "ZONE", alias = "timezone")]
    time_zone: Option<TimeZone>,
    /// Rule for a clock that goes back (snowflake); default: the rule of the service
    #[arg(long, value_name = "RULE")]
    rule: Option<Rule>,
    /// Start of the sequence in each new tick (snowflake): zero, random, random(N) or rolling (see `snowmint
    /// serve --help`). With zero, rare ids are even. Default: the start of the service
    #[arg(long, value_name = "START")]
    sequence_start: Option<Start>,
    /// Mode (segment): cached (from memory: fast, increasing on each node) or direct (from the store each
    /// time: increasing over all nodes)
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Smallest number (segment); raises a counter below it
    #[arg(long, value_name = "N", value_parser = flag_values::number, allow_negative_numbers = true)]
    start: Option<u64>,
    /// Largest number (segment)
    #[arg(long, value_name = "N", value_parser = flag_values::number, allow_negative_numbers = true)]
    maximum: Option<u64>,
    /// Smallest and first size of a reservation (segment)
    #[arg(long, value_name = "N", value_parser = flag_values::number, allow_negative_numbers = true)]
    size_min: Option<u64>,
    /// Largest size of a reservation (segment)
    #[arg(long, value_name = "N", value_parser = flag_values::number, allow_negative_numbers = true)]
    size_max: Option<u64>,
    /// What the namespace is for, at most 256 characters; an empty text removes it
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Team or person to ask, at most 128 characters; an empty text removes it
    #[arg(long, value_name = "TEXT")]
    owner: Option<String>,
}

/// The settings of a namespace that are fixed once it exists.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Settings that are fixed")]
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
    /// Source of numbers (segment) instead of the store of the service: a stripe and the URL of a store, or
    /// the URL of a counter of another system, without a password (login=NAME names a login of each node);
    /// once for each source
    #[arg(long = "source", value_name = "SOURCE")]
    sources: Vec<String>,
    /// Reset period (segment): daily, monthly or yearly, in the time zone. The text form must contain the
    /// date
    #[arg(long, value_name = "PERIOD")]
    reset: Option<Reset>,
    /// Name of the key that hides the ids (snowflake, segment; see `snowmint hide-key --help`): they reveal
    /// neither time nor count, and are in no order. Fixed for good
    #[arg(long, value_name = "KEY", requires = "hide_keys_file")]
    hide: Option<HideKeyName>,
    /// File of hide keys; the store gets a check value of the key, never the key
    #[arg(long, value_name = "FILE", env = "SNOWMINT_HIDE_KEYS_FILE")]
    hide_keys_file: Option<PathBuf>,
}

impl Pinned {
    /// Returns these settings.
    fn fields(&self) -> Result<Fields, Failure> {
        // Parsed here and not by the flag: a flag's error would repeat a password.
        let sources: Result<Vec<CounterSource>, _> =
            self.sources.iter().map(|source| source.parse()).collect();
        let sources = sources.map_err(|error| Failure::flag("--source", error))?;
        let hide_check = match (&self.hide, &self.hide_keys_file) {
            (Some(key), Some(file)) => {
                let check = hide_key::read(file)?.check_value(key);
                Some(check.map_err(|error| Failure::flag("--hide", error))?)
            }
            _ => None,
        };
        Ok(Fields {
            scheme: self.scheme.clone().unwrap_or_default(),
            layout: self.layout,
            stripe: self.stripe,
            sources: Some(sources).filter(|sources| !sources.is_empty()),
            reset: self.reset,
            hide: self.hide.clone(),
            hide_check,
            ..Fields::default()
        })
    }
}

impl Changeable {
    /// Returns `fields` overridden by these settings.
    fn over(&self, fields: Fields) -> Fields {
        Fields {
            text: self.text.clone().or(fields.text),
            time_zone: self.time_zone.clone().or(fields.time_zone),
            rule: self.rule.or(fields.rule),
            sequence_start: self.sequence_start.or(fields.sequence_start),
            mode: self.mode.or(fields.mode),
            start: self.start.or(fields.start),
            maximum: self.maximum.or(fields.maximum),
            size_min: self.size_min.or(fields.size_min),
            size_max: self.size_max.or(fields.size_max),
            description: self.description.clone().or(fields.description),
            owner: self.owner.clone().or(fields.owner),
            ..fields
        }
    }
}

/// Returns the settings in the form that the operations take.
pub(crate) fn settings(fields: &Fields) -> Result<Settings, Failure> {
    match serde_json::to_value(fields).map_err(Failure::runtime)? {
        Value::Object(mut settings) => {
            if fields.scheme.is_empty() {
                settings.remove("scheme");
            }
            Ok(settings)
        }
        _ => Err(Failure::runtime("cannot write the settings as JSON")),
    }
}

fn show_list(Namespaces { namespaces, warnings }: &Namespaces, json: bool) -> Result<(), Failure> {
    warn(warnings);
    let mut out = Output::new();
    if namespaces.is_empty() && !json {
        out.line("this store has no namespaces: `snowmint ns add` adds one, `snowmint serve` the first")?;
    }
    let owner = |namespace: &NamespaceView| namespace.settings.as_ref()?.owner.clone();
    let widest = namespaces.iter().filter_map(owner).map(|it| it.chars().count()).max();
    for namespace in namespaces {
        if json {
            out.json(namespace)?;
            continue;
        }
        let more = match (&namespace.dropped, namespace.reserved_to) {
            (Some(when), _) => format!("since {when}"),
            (None, Some(reserved)) => {
                let restarts = namespace.settings.as_ref().is_some_and(|settings| settings.reset.is_some());
                format!("reserved to {reserved}{}", if restarts { " in this period" } else { "" })
            }
            (None, None) => String::new(),
        };
        let (state, what) = (namespace.state.as_str(), namespace.summary());
        // Show the column only if a namespace has an owner.
        let owner = widest.map_or_else(String::new, |widest| {
            let owner = owner(namespace).unwrap_or_else(|| "-".to_owned());
            format!("{owner:<widest$}  ")
        });
        let line = format!("{:<20}  {state:<10}  {owner}{what}  {}", namespace.name, out.paint.faint(&more));
        out.line(line.trim_end())?;
    }
    out.flush()
}

fn show_one(namespace: &NamespaceView, json: bool) -> Result<(), Failure> {
    let mut out = Output::new();
    if json {
        out.json(namespace)?;
        return out.flush();
    }
    let title = format!("{}  {}", out.paint.bold(&namespace.name), namespace.summary());
    out.line(title.trim_end())?;
    if let Value::Object(members) = serde_json::to_value(namespace).map_err(Failure::runtime)? {
        for (member, value) in members.iter().filter(|(member, _)| *member != "name") {
            let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            out.line(&format!("  {} {value}", out.paint.faint(&format!("{member:<14}"))))?;
        }
    }
    out.flush()
}

/// Writes the outcome of a change as JSON. Warnings are members of it.
fn show_json(changed: &Changed) -> Result<(), Failure> {
    let mut out = Output::new();
    out.json(changed)?;
    out.flush()
}

fn show_added(changed: &Changed, json: bool) -> Result<(), Failure> {
    warn(&changed.warnings);
    if json {
        return show_json(changed);
    }
    let mut out = Output::new();
    out.line(&format!("{} is {}", changed.namespace.name, changed.namespace.summary()))?;
    out.line(&format!(
        "recorded in {}; running nodes serve it within their --namespaces-poll ({} by default)",
        changed.store,
        flag_values::NAMESPACES_POLL
    ))?;
    if let Some(last) = changed.resumed_above {
        out.line(&format!("resumed: the next number is above {last}"))?;
    }
    out.flush()
}

fn show_set(changed: &Changed, json: bool) -> Result<(), Failure> {
    warn(&changed.warnings);
    if json {
        return show_json(changed);
    }
    let mut out = Output::new();
    out.line(&format!("{} is {}", changed.namespace.name, changed.namespace.summary()))?;
    out.flush()
}

fn show_dropped(changed: &Changed, json: bool) -> Result<(), Failure> {
    if json {
        return show_json(changed);
    }
    let name = &changed.namespace.name;
    let mut out = Output::new();
    out.line(&format!(
        "{name} is dropped: nodes reject it within seconds; `snowmint ns add {name}` resumes it above its last number"
    ))?;
    out.flush()
}
