//! `snowmint import`: lists the counters of another system, and creates namespaces whose numbers start above
//! them, or that draw from them. It never changes the other system.

mod renames;
mod shared_counter;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use snowmint::Layout;
use snowmint::error::Snippet;
use snowmint_admin::namespaces::{self, Addition, SOURCES, Settings};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::audit::Action;
use snowmint_cluster::namespace::registry::{self, IfDropped, Required, Room};
use snowmint_cluster::namespace::{
    CounterSource, CounterSourceError, Definition, Fields, Logins, NamespaceError, SourceUrl,
};
use snowmint_store::{MAX_NUMBER, OpenError, Rejected, Store, Survey, Surveyed};

use self::renames::{Rename, Renames};
use crate::error::{Failure, report};
use crate::open_store::{StoreArgs, without_credentials};
use crate::output::{Output, thousands};
use crate::runtime;
use crate::target::{AuthorArgs, LoginsArgs};

const EXAMPLES: &str = "\
Examples:
  snowmint import 'leaf:mysql://leaf@db/leaf'
      Lists every tag of a Leaf, its highest number, and the namespace it would
      become. Changes nothing.
  snowmint import 'leaf:mysql://leaf@db/leaf' --apply
      Creates a segment namespace for each tag in the store. It starts above
      the highest number plus the step.
  snowmint import 'tickets:mysql://mint@a/tickets' 'tickets:mysql://mint@b/tickets'
      Two ticket servers become one namespace above the higher of the two.
  snowmint import 'tinyid:mysql://mint@db/tinyid' --apply
  snowmint import 'redis-counter:redis://cache/0?counter=seq:*' --apply
  snowmint import 'leaf:mysql://leaf@db/leaf' --rename 'pay/refund=pay-refund'
      Names the namespace of a counter whose own name is not allowed.
  snowmint import 'leaf:mysql://leaf@db/leaf' --side-by-side --apply
      Creates a namespace for each tag that draws from Leaf's own row, so that
      both may run.
  snowmint import 'leaf:mysql://leaf@db/leaf?login=leaf' --side-by-side \
      --logins 'leaf=mysql://leaf:PASSWORD@db/leaf'
      The same with a password. The nodes need the same login (serve --logins).

Without --side-by-side, stop the other system before --apply, or both give the
same numbers.

Keep passwords out of the process list: set SNOWMINT_STORE_PASSWORD, or name a
file in the URL as ?password_file=PATH; with --side-by-side, set SNOWMINT_LOGINS.

JSON, one object a line: name, highest, step, start, namespace and state (new,
made, there or refused), why, sources (with --side-by-side), and the store that
it was made in. highest, step and start are null if they are unknown.

Exit codes. 0: the plan is printed, or all namespaces were made. 1: with --apply,
some were not made: they are there, or were refused.";

/// Take over the counters of a Leaf, Tinyid, ticket server or Redis
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    /// Other system: leaf:, tinyid: or tickets: before a MySQL URL, or redis-counter: before a Redis URL
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Create the namespaces instead of listing them
    #[arg(long)]
    apply: bool,
    /// Draw from the other system's own counters, so that both may run, instead of starting above them
    #[arg(long)]
    side_by_side: bool,
    /// Name of the namespace for a counter, such as pay/refund=pay-refund; repeat it for others
    #[arg(long, value_name = "COUNTER=NAME")]
    rename: Vec<Rename>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    author: AuthorArgs,
    #[command(flatten)]
    logins: LoginsArgs,
    /// Print one JSON object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// A counter, and the namespace to create from it.
#[derive(Debug, Serialize)]
struct ImportRow {
    name: String,
    /// `None` if it holds no number.
    highest: Option<u64>,
    step: Option<u64>,
    start: Option<u64>,
    namespace: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// The counters from which the namespace draws; empty if it starts above them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<CounterSource>,
    /// The store in which the namespace was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    #[serde(skip)]
    plan: Option<(NamespaceName, Definition)>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let (mut found, mut rejected) = (Vec::new(), Vec::new());
        let logins = args.logins.read()?;
        for url in &args.urls {
            // Rejects a password, as --source does, before the URL is shown.
            let source: CounterSource = url.parse().map_err(|error| match error {
                CounterSourceError::Password if !args.side_by_side => Failure::usage(
                    "the URL has a password, which other users of this machine can see: use SNOWMINT_STORE_PASSWORD, or a file with \
                     the parameter ?password_file=PATH",
                ),
                error => Failure::usage(error),
            })?;
            check_kind(url)?;
            let surveyed = survey(args, url, &source, &logins).await?;
            found.extend(surveyed.counters.into_iter().map(|counter| (url.clone(), counter)));
            rejected.extend(surveyed.rejected);
        }
        warn_of_missing_stripes(&found);
        let is_there = |name: &str| {
            found.iter().any(|(_, it)| it.name == name) || rejected.iter().any(|it| it.name == name)
        };
        let renames = Renames::of(&args.rename, is_there)?;
        let mut rows = plan(args, &found, rejected, &renames);
        let store = if args.apply {
            let apply = async |store: Arc<dyn Store>| apply(&*store, args, &mut rows).await;
            args.store.check_persistent()?;
            Some(args.store.change(apply).await?)
        } else {
            // Before `store init`, nothing is there.
            if let Some(store) = args.store.open_read_only_if_there().await? {
                mark_existing(&*store, &mut rows).await?;
            }
            None
        };
        show(args, &rows, store.as_deref())
    })
}

/// Lists the counters of a URL. Side by side, it opens the URL as a node will open the source: otherwise the
/// plan would promise what cannot be made.
async fn survey(args: &Args, url: &str, source: &CounterSource, logins: &Logins) -> Result<Survey, Failure> {
    let as_a_node = args.side_by_side || source.login().is_some();
    let of_node = as_a_node.then(|| logins.url(source)).transpose().map_err(Failure::usage)?;
    snowmint_store::survey(of_node.as_ref().map_or(url, SourceUrl::as_str)).await.map_err(|error| match error
    {
        OpenError::Url(error) => Failure::usage(error),
        OpenError::Store(refusal) if of_node.is_some() => match source.missing_login(&refusal) {
            Some(remedy) => Failure::runtime(format!("{refusal}; {remedy}")),
            None => Failure::runtime(refusal),
        },
        error => Failure::runtime(error),
    })
}

/// Refuses the URL of a server without the kind of counter before it.
fn check_kind(url: &str) -> Result<(), Failure> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let (kinds, example) = match snowmint_store::store_of_scheme(scheme) {
        Some(("mysql", _)) => ("leaf:, tinyid: or tickets:", "leaf:mysql://HOST/DATABASE"),
        Some(("redis", _)) => ("redis-counter:", "redis-counter:redis://HOST/0?counter=KEY"),
        _ => return Ok(()),
    };
    Err(Failure::usage(format!(
        "missing kind of counter before `{scheme}:`: write {kinds} before the URL of the server, such as {example}"
    )))
}

/// Merges the counters of several servers with the same name; the highest number counts.
///
/// Counters with the same name that can return the same number are separate counters: they do not become one
/// namespace. Nor does one that holds no number on some server: its numbers are unknown.
fn plan(
    args: &Args,
    found: &[(String, Surveyed)],
    rejected: Vec<Rejected>,
    renames: &Renames,
) -> Vec<ImportRow> {
    let mut merged: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut overlaps: BTreeMap<&str, String> = BTreeMap::new();
    for (at, (url, counter)) in found.iter().enumerate() {
        let (highest, step) = merged.entry(&counter.name).or_default();
        *highest = (*highest).max(counter.highest_number);
        *step = (*step).max(counter.step.get().max(counter.delta.get()));
        let same = |(_, it): &&(String, Surveyed)| it.name == counter.name && it.overlaps(counter);
        if let Some((other, _)) = found[..at].iter().find(same) {
            let why = format!(
                "{} and {} both have it and give the same numbers, so they are separate counters, or one counter named \
                 twice: import one of them, and the other into another store",
                without_credentials(other),
                without_credentials(url)
            );
            overlaps.insert(&counter.name, why);
        }
    }
    let row = |(name, (highest, step)): (&str, (u64, u64))| match overlaps.remove(name) {
        None if args.side_by_side => {
            let on = found.iter().filter(|(_, it)| it.name == name);
            let sources = on.map(|(url, _)| shared_counter::source(url, name)).collect();
            ImportRow::side_by_side(name.to_owned(), (highest, step), renames.namespace(name), sources)
        }
        None => ImportRow::above(name.to_owned(), (highest, step), renames.namespace(name)),
        Some(why) => ImportRow::refused(name.to_owned(), Some((highest, step)), why),
    };
    let mut rows: BTreeMap<String, ImportRow> =
        merged.into_iter().map(row).map(|row| (row.name.clone(), row)).collect();
    for Rejected { name, why, .. } in rejected {
        rows.insert(name.clone(), ImportRow::refused(name, None, why));
    }
    let mut rows: Vec<ImportRow> = rows.into_values().collect();
    refuse_common_namespaces(&mut rows);
    rows
}

/// Refuses counters that would become one namespace.
fn refuse_common_namespaces(rows: &mut [ImportRow]) {
    let mut counters: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows.iter() {
        if let Some((namespace, _)) = &row.plan {
            counters.entry(namespace.to_string()).or_default().push(row.name.clone());
        }
    }
    for row in rows {
        let Some((namespace, _)) = &row.plan else { continue };
        let names = counters.get(namespace.as_str()).map_or(&[][..], Vec::as_slice);
        if let Some(other) = names.iter().find(|name| **name != row.name) {
            row.why = Some(format!(
                "namespace {namespace} would be that of {} too: give one of them another name with --rename",
                Snippet::of(other)
            ));
            (row.state, row.plan) = ("refused", None);
        }
    }
}

/// Marks the rows whose namespaces exist or find no room, as `--apply` does.
async fn mark_existing(store: &dyn Store, rows: &mut [ImportRow]) -> Result<(), Failure> {
    let listed = registry::list(store).await.map_err(Failure::runtime)?;
    let mut room = Room::among(&listed);
    let known: BTreeMap<&str, _> = listed.iter().map(|(name, record)| (name.as_str(), record)).collect();
    for row in rows {
        let Some((name, _)) = &row.plan else { continue };
        let name = name.clone();
        let (state, why) = match known.get(name.as_str()) {
            None => match room.check(store, &name) {
                Ok(()) => {
                    room = room.after(1);
                    continue;
                }
                Err(full) => ("refused", full),
            },
            Some(Err(reason)) => {
                let (store, reason) = (store.describe(), reason.clone());
                ("refused", NamespaceError::Unreadable { name, store, reason })
            }
            Some(Ok(record)) => match record.dropped_unix_ms {
                Some(dropped_unix_ms) => ("there", NamespaceError::Dropped { name, dropped_unix_ms }),
                None => ("there", NamespaceError::Exists { name, found: record.definition.to_string() }),
            },
        };
        (row.state, row.why) = (state, Some(row.advice(&why)));
    }
    Ok(())
}

impl ImportRow {
    /// Returns the row of a counter whose namespace starts above its highest number and step.
    fn above(name: String, (highest, step): (u64, u64), namespace: Result<NamespaceName, String>) -> Self {
        // The other system may have reserved up to one step beyond the highest number.
        let start = highest.checked_add(step).and_then(|start| start.checked_add(1));
        let start = start.filter(|start| *start <= MAX_NUMBER);
        let plan = namespace.and_then(|namespace| {
            let start = start.ok_or_else(|| format!("no number is left above {highest}"))?;
            let fields = Fields { start: Some(start), ..Fields::default() };
            Ok((namespace, defined(fields)?))
        });
        Self { start, ..Self::planned(name, (highest, step), plan) }
    }

    /// Returns the row of a counter from which its namespace draws.
    fn side_by_side(
        name: String,
        numbers: (u64, u64),
        namespace: Result<NamespaceName, String>,
        sources: Result<Vec<CounterSource>, String>,
    ) -> Self {
        let plan = namespace.and_then(|namespace| {
            let fields = Fields { sources: Some(sources.clone()?), ..Fields::default() };
            Ok((namespace, defined(fields)?))
        });
        Self { sources: sources.unwrap_or_default(), ..Self::planned(name, numbers, plan) }
    }

    fn planned(
        name: String,
        (highest, step): (u64, u64),
        plan: Result<(NamespaceName, Definition), String>,
    ) -> Self {
        match plan {
            Ok(plan) => {
                let (namespace, state) = (Some(plan.0.to_string()), "new");
                let plan = Some(plan);
                Self {
                    namespace,
                    state,
                    why: None,
                    plan,
                    ..Self::refused(name, Some((highest, step)), String::new())
                }
            }
            Err(why) => Self::refused(name, Some((highest, step)), why),
        }
    }

    /// Returns what follows the state in the table.
    fn note(&self) -> String {
        match (&self.why, &self.plan) {
            (Some(why), _) => format!(": {why}"),
            (None, Some((namespace, _))) => {
                let renamed =
                    if namespace.as_str() == self.name { String::new() } else { format!(" as {namespace}") };
                let sources: Vec<_> = self.sources.iter().map(|it| format!(", of {it}")).collect();
                renamed + &sources.concat()
            }
            (None, None) => String::new(),
        }
    }

    /// Returns the text of a refusal. Of a dropped namespace, it names the command that follows the plan.
    fn advice(&self, why: &NamespaceError) -> String {
        match (why, self.start) {
            (NamespaceError::Dropped { name, .. }, Some(start)) => format!(
                "{why}; `snowmint ns add {name} --scheme segment --start {start} --start-over` starts over above these numbers"
            ),
            _ => why.to_string(),
        }
    }

    /// Returns the row of a counter that becomes no namespace; its highest number and step, if it has any.
    fn refused(name: String, numbers: Option<(u64, u64)>, why: String) -> Self {
        let (state, why) = ("refused", Some(why));
        let (highest, step) = numbers.unzip();
        Self {
            name,
            highest,
            step,
            start: None,
            namespace: None,
            state,
            why,
            sources: Vec::new(),
            store: None,
            plan: None,
        }
    }
}

/// Returns the definition of a namespace of numbers.
fn defined(fields: Fields) -> Result<Definition, String> {
    let fields = Fields { scheme: "segment".to_owned(), ..fields };
    fields.define(&Layout::TWITTER).map_err(|error| error.to_string())
}

fn warn_of_missing_stripes(found: &[(String, Surveyed)]) {
    let counters = found.iter().map(|(_, counter)| counter);
    for counter in counters.clone().filter(|counter| counter.delta.get() > 1) {
        let servers = counters.clone().filter(|it| it.name == counter.name).count() as u64;
        if servers < counter.delta.get() {
            report(
                "warning",
                &format!(
                    "{}: its numbers are {} modulo {}, so other servers give the rest, maybe higher ones: name all \
                     servers in one call",
                    counter.name, counter.remainder, counter.delta
                ),
            );
            return;
        }
    }
}

/// Creates the namespaces, and returns a description of the store.
async fn apply(store: &dyn Store, args: &Args, rows: &mut [ImportRow]) -> Result<String, Failure> {
    if args.side_by_side {
        return apply_side_by_side(store, args, rows).await;
    }
    let listed = registry::list(store).await.map_err(Failure::runtime)?;
    let mut room = Room::among(&listed);
    let known: BTreeSet<String> = listed.into_iter().map(|(name, _)| name).collect();
    let urls: Vec<_> = args.urls.iter().map(|url| without_credentials(url)).collect();
    for row in rows {
        let Some((name, definition)) = &row.plan else { continue };
        if !known.contains(name.as_str())
            && let Err(full) = room.check(store, name)
        {
            (row.state, row.why) = ("refused", Some(full.to_string()));
            continue;
        }
        let added = registry::add_within(store, room, name, definition, IfDropped::Refuse, Required::Any);
        let added = if known.contains(name.as_str()) {
            // The request is rejected, so no change is recorded.
            added.await
        } else {
            let details = format!("{definition}, of {}", urls.join(" and "));
            args.author.author().record(store, Action::NamespaceImport, name, details, added).await?
        };
        match added {
            Ok(_) => {
                room = room.after(1);
                row.state = "made";
                row.store = Some(store.describe());
            }
            Err(error @ (NamespaceError::Exists { .. } | NamespaceError::Dropped { .. })) => {
                row.state = "there";
                row.why = Some(row.advice(&error));
            }
            Err(error) => return Err(Failure::runtime(error)),
        }
    }
    Ok(store.describe())
}

/// As [`apply`], as `ns add --source` does for each.
async fn apply_side_by_side(
    store: &dyn Store,
    args: &Args,
    rows: &mut [ImportRow],
) -> Result<String, Failure> {
    mark_existing(store, rows).await?;
    let logins = args.logins.read()?;
    for row in rows.iter_mut().filter(|row| row.state == "new") {
        let Some((name, _)) = &row.plan else { continue };
        let sources = serde_json::to_value(&row.sources).map_err(Failure::runtime)?;
        let settings =
            Settings::from_iter([("scheme".to_owned(), "segment".into()), (SOURCES.to_owned(), sources)]);
        let (required, logins) = (Required::Absent, logins.clone());
        let addition = Addition { settings, required, logins, ..Addition::default() };
        let added = namespaces::add(store, &args.author.author(), name, &addition, |_| true).await?;
        for warning in added.warnings {
            report("warning", &warning);
        }
        row.state = "made";
        row.store = Some(store.describe());
    }
    Ok(store.describe())
}

fn show(args: &Args, rows: &[ImportRow], store: Option<&str>) -> Result<(), Failure> {
    let mut out = Output::new();
    if args.json {
        for row in rows {
            out.json(row)?;
        }
        return out.flush();
    }
    if rows.is_empty() {
        out.line("no counters found")?;
        return out.flush();
    }
    out.line(&out.paint.faint(&format!(
        "{:<24}  {:>20}  {:>10}  {:>20}  state",
        "counter", "highest number", "step", "starts at"
    )))?;
    for row in rows {
        let [highest, step, start] =
            [row.highest, row.step, row.start].map(|it| it.map_or_else(|| "-".to_owned(), thousands));
        out.line(&format!(
            "{:<24}  {highest:>20}  {step:>10}  {start:>20}  {}{}",
            row.name,
            row.state,
            row.note()
        ))?;
    }
    match store {
        None if args.side_by_side => out.line("nothing was changed: add --apply to make the new ones")?,
        None => {
            out.line("nothing was changed: stop the other system, then add --apply to make the new ones")?;
        }
        Some(store) => {
            let made = rows.iter().filter(|row| row.state == "made").count();
            out.line(&format!("{made} made in {store}"))?;
        }
    }
    out.flush()?;
    let left = rows.iter().filter(|row| args.apply && row.state != "made").count();
    if left > 0 {
        return Err(Failure::runtime(format!("{left} of {} were not made", rows.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use snowmint_cluster::audit;
    use snowmint_cluster::namespace::{MAX_NAMESPACES, NamespaceRecord, ServedBy};
    use snowmint_store::MemoryStore;

    use super::*;

    /// Goal: at the limit of the store, the remaining counters are listed with the reason, and no change of
    /// them is in the audit log. Method: room for one of two counters.
    #[tokio::test]
    async fn counters_beyond_the_limit_of_the_store_are_listed_as_refused() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: Args,
        }
        let store = MemoryStore::new();
        let row =
            |name: &str| ImportRow::above(name.to_owned(), (4000, 1000), Renames::default().namespace(name));
        let mut rows = [row("a"), row("b")];
        let record = NamespaceRecord::new(rows[0].plan.clone().unwrap().1, ServedBy::EveryNode);
        for nth in 1..MAX_NAMESPACES {
            registry::put_back(&store, &format!("n-{nth}").parse().unwrap(), &record).await.unwrap();
        }
        let Cli { args } = Cli::parse_from(["import", "leaf:mysql://leaf@db/leaf", "--apply"]);
        apply(&store, &args, &mut rows).await.unwrap();
        assert_eq!(rows.each_ref().map(|row| row.state), ["made", "refused"]);
        let why = rows[1].why.as_ref().unwrap();
        assert!(why.contains("the limit is 10000; drop one"), "{why}");
        assert_eq!(audit::list(&store, 10).await.unwrap().len(), 1);
    }

    #[test]
    fn a_namespace_starts_above_all_that_may_have_been_given() {
        let of = |name: &str, highest, step| {
            ImportRow::above(name.to_owned(), (highest, step), Renames::default().namespace(name))
        };
        let row = of("order", 4000, 1000);
        assert_eq!((row.start, row.state), (Some(5001), "new"));
        assert_eq!(row.plan.unwrap().1.to_string(), "segment cached, all numbers, from 5001");
        assert_eq!(of("a b", 1, 1).state, "refused");
        let full = of("full", MAX_NUMBER, 1);
        assert_eq!(
            (full.state, full.why.as_deref()),
            ("refused", Some("no number is left above 9223372036854775807"))
        );
    }
}
