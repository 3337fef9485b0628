//! `snowmint ns`: adds, changes, drops and lists the namespaces of a store while nodes serve them.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use serde_json::Value;
use snowmint_admin::namespaces::{
    Addition, Change, Changed, NamespaceView, Namespaces, SOURCES, Settings, StartOver,
};
use snowmint_admin::operations::{AddNamespace, DropNamespace, ListNamespaces, SetNamespace};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::registry::Required;
use snowmint_cluster::namespace::{CounterSource, Fields, HideKeyNameError, Setting, SettingKind};

use crate::admin_failure::warn;
use crate::error::Failure;
use crate::flag_values;
use crate::hide_key;
use crate::output::Output;
use crate::runtime;
use crate::target::{AuthorArgs, LoginsArgs, TargetArgs};

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
    #[command(flatten)]
    logins: LoginsArgs,
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
        fixed: FixedFlags,
        /// File of hide keys; the store gets a check value of the key, never the key
        #[arg(long, value_name = "FILE", env = "SNOWMINT_HIDE_KEYS_FILE")]
        hide_keys_file: Option<PathBuf>,
        #[command(flatten)]
        changeable: ChangeableFlags,
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
        changeable: ChangeableFlags,
        /// Remove the text form: write plain numbers, or the text of the scheme
        #[arg(long, conflicts_with = "text")]
        plain: bool,
        /// New addresses of all its sources, each with its stripe. The user, the TLS settings and the name of
        /// the server may change; with --above, also the server
        #[arg(
            long = "source",
            value_name = "SOURCE",
            conflicts_with = "plain",
            conflicts_with_all = settings_of(SettingKind::Changeable).map(|setting| setting.name)
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
        NsAction::Add { name, fixed, hide_keys_file, changeable, start_over, nodes } => {
            let mut settings: Settings = fixed.0.clone().into_iter().chain(changeable.0.clone()).collect();
            if let Some(Value::Array(given)) = settings.get(SOURCES) {
                let sources = read_sources(given.iter().filter_map(Value::as_str))?;
                settings.insert(SOURCES.to_owned(), sources);
            }
            if let (Some(Value::String(key)), Some(file)) = (settings.get("hide"), hide_keys_file) {
                let key = key.parse().map_err(|error: HideKeyNameError| Failure::flag("--hide", error))?;
                let check = hide_key::read(file)?.check_value(&key);
                let check = check.map_err(|error| Failure::flag("--hide", error))?;
                settings.insert("hide_check".to_owned(), check.to_string().into());
            }
            let start_over = start_over.then(|| StartOver { nodes: nodes.clone() });
            let logins = args.logins.read()?;
            let addition = Addition { settings, start_over, logins, ..Addition::default() };
            target.check_persistent()?;
            let changed = target.run(AddNamespace { name: name.clone(), addition }).await?;
            show_changed(&changed, args.json, &added(&changed))
        }
        NsAction::Set { name, changeable, plain, sources, above } => {
            let logins = args.logins.read()?;
            let change = Change { logins, ..changed(changeable, *plain, sources, *above)? };
            let changed = target.run(SetNamespace { name: name.clone(), change }).await?;
            show_changed(&changed, args.json, &[now(&changed)])
        }
        NsAction::Drop { name } => {
            let drop = DropNamespace { name: name.clone(), required: Required::Any };
            show_changed(&target.run(drop).await?, args.json, &[dropped(name)])
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
    changeable: &ChangeableFlags,
    plain: bool,
    sources: &[String],
    above: Option<u64>,
) -> Result<Change, Failure> {
    let mut settings = changeable.0.clone();
    if plain {
        settings.insert("text".to_owned(), Value::Null);
    }
    if !sources.is_empty() {
        settings.insert(SOURCES.to_owned(), read_sources(sources.iter().map(String::as_str))?);
    }
    if settings.is_empty() {
        let flag = |setting: &Setting| format!("--{}", setting.flag());
        let mut flags: Vec<_> = settings_of(SettingKind::Changeable).map(flag).collect();
        // Beside --text.
        flags.insert(1, "--plain".to_owned());
        let flags = flags.join(", ");
        return Err(Failure::usage(format!("nothing to change: expected {flags} or --source")));
    }
    Ok(Change { settings, above, ..Change::default() })
}

/// Returns sources as JSON. They are parsed here and not by the flag: a flag's error would repeat a password.
fn read_sources<'a>(sources: impl Iterator<Item = &'a str>) -> Result<Value, Failure> {
    let sources: Result<Vec<CounterSource>, _> = sources.map(str::parse).collect();
    serde_json::to_value(sources.map_err(|error| Failure::flag("--source", error))?).map_err(Failure::runtime)
}

/// Flags of the settings that only a new namespace can have, and of those that can change.
type FixedFlags = SettingFlags<true>;
type ChangeableFlags = SettingFlags<false>;

/// The settings of a namespace that were given in flags: those of one kind in [`Fields::SETTINGS`].
#[derive(Debug)]
struct SettingFlags<const FIXED: bool>(Settings);

impl<const FIXED: bool> SettingFlags<FIXED> {
    const KIND: SettingKind = if FIXED { SettingKind::Fixed } else { SettingKind::Changeable };
}

/// Returns the settings of a kind that have flags, in the order of the help: it begins with the text form.
fn settings_of(kind: SettingKind) -> impl Iterator<Item = &'static Setting> {
    let is_of_text = |setting: &Setting| ["text", "time_zone"].contains(&setting.name);
    let all = move || Fields::SETTINGS.iter().filter(move |it| it.kind == kind && it.value_name.is_some());
    all().filter(move |it| is_of_text(it)).chain(all().filter(move |it| !is_of_text(it)))
}

impl<const FIXED: bool> clap::Args for SettingFlags<FIXED> {
    fn augment_args(command: clap::Command) -> clap::Command {
        let heading = if FIXED { "Settings that are fixed" } else { "Settings that can change" };
        settings_of(Self::KIND).fold(command.next_help_heading(heading), |command, setting| {
            let flag = Arg::new(setting.name)
                .long(setting.flag())
                .value_name(setting.value_name.unwrap_or_default())
                .help(setting.help.trim());
            command.arg(match (setting.name, setting.text) {
                (SOURCES, _) => flag.action(ArgAction::Append).value_parser(value_parser!(String)),
                ("hide", Some(text)) => flag.requires("hide_keys_file").value_parser(text),
                ("time_zone", Some(text)) => flag.alias("timezone").value_parser(text),
                (_, Some(text)) => flag.value_parser(text),
                (_, None) => flag.allow_negative_numbers(true).value_parser(flag_values::number),
            })
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<const FIXED: bool> clap::FromArgMatches for SettingFlags<FIXED> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = settings_of(Self::KIND).filter_map(|setting| {
            let value = match (setting.name, setting.text) {
                (SOURCES, _) => matches.get_many::<String>(SOURCES)?.cloned().collect(),
                (name, Some(_)) => Value::from(matches.get_one::<String>(name)?.as_str()),
                (name, None) => Value::from(*matches.get_one::<u64>(name)?),
            };
            Some((setting.name.to_owned(), value))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
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

/// Writes the outcome of a change: lines for people, or JSON, of which warnings are members too.
fn show_changed(changed: &Changed, json: bool, lines: &[String]) -> Result<(), Failure> {
    warn(&changed.warnings);
    let mut out = Output::new();
    if json {
        out.json(changed)?;
    } else {
        lines.iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}

/// Returns what a namespace is after a change.
fn now(changed: &Changed) -> String {
    format!("{} is {}", changed.namespace.name, changed.namespace.summary())
}

fn added(changed: &Changed) -> Vec<String> {
    let recorded = format!(
        "recorded in {}; running nodes serve it within their --namespaces-poll ({} by default)",
        changed.store,
        flag_values::NAMESPACES_POLL
    );
    let resumed = changed.resumed_above.map(|last| format!("resumed: the next number is above {last}"));
    [now(changed), recorded].into_iter().chain(resumed).collect()
}

fn dropped(name: &NamespaceName) -> String {
    format!(
        "{name} is dropped: nodes reject it within seconds; `snowmint ns add {name}` resumes it above its last number"
    )
}
