//! `snowmint audit`: lists who changed what in a store.

use snowmint_admin::audit::{AuditLine, AuditLog, ChangeOutcome};
use snowmint_admin::operations::ListChanges;
use snowmint_cluster::NamespaceName;

use crate::admin_failure::warn;
use crate::error::Failure;
use crate::flag_values;
use crate::output::Output;
use crate::runtime;
use crate::target::TargetArgs;

const EXAMPLES: &str = "\
Lists the changes that ns, import, workers release, store recover and the admin
API made in a store, newest first: time (UTC), user, host or address, action,
subject, details. A command writes its entry before it changes anything, and
fails if that is not possible; only a drain and a change of the log level of a
node go on, with a warning in the answer. At the end of a line:
  REFUSED        the change was rejected; nothing was changed
  FAILED         the store failed; nothing was changed
  POSSIBLY MADE  the store gave no answer: look at what the change was about
  nothing        the change took place, or the command was killed in between

The store keeps the newest 200 entries or more. Of an author with many entries,
the oldest go first, so that others keep theirs. The user is that of the system,
or the name given by --as: an aid to find mistakes, no proof. Anyone who can
write to the store can rewrite the log.

Namespaces that nodes create from flags, files or for unknown names (auto_create)
are in the logs of these nodes only.

Examples:
  snowmint audit
  snowmint audit --namespace orders --limit 10
  snowmint audit --store postgres://mint@db.internal/ids --json
  snowmint audit --server https://ids.example.com --token-file admin.token
      Through a running node, without access to its store.
  snowmint ns drop orders --as 'alice, ticket 4711'
      Records this name instead of the system user.

JSON, one object a line: at, at_unix_ms, who, from, action, subject, details,
outcome (made, refused, failed, unknown) and the reason as failed (if refused or
failed) or possibly_made (if unknown); or record and unreadable.";

/// List who changed what in a store, when and from where
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// Largest number of entries
    #[arg(long, value_name = "N", default_value = "50", value_parser = flag_values::rows, allow_negative_numbers = true)]
    limit: usize,
    /// Only changes of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<NamespaceName>,
    /// Print one JSON object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let list = ListChanges { limit: args.limit, namespace: args.namespace.clone() };
    let target = args.target.open()?;
    let AuditLog { changes, warnings } = runtime()?.block_on(target.ask(list))?.map_err(|problem| {
        // A token for some namespaces may read their changes.
        let problem = match problem.token_namespaces.as_deref() {
            Some("*") => problem.advising("or show one namespace: add --namespace NAME"),
            _ => problem,
        };
        problem.failure()
    })?;
    warn(&warnings);
    let mut out = Output::new();
    for change in &changes {
        if args.json {
            out.json(change)?;
        } else {
            out.line(&line(change, &out))?;
        }
    }
    if changes.is_empty() && !args.json {
        out.line("no changes are recorded in this store")?;
    }
    out.flush()
}

fn line(change: &AuditLine, out: &Output) -> String {
    match change {
        AuditLine::Unreadable { record, unreadable } => {
            format!("{} {record}: {unreadable}", out.paint.alarm("UNREADABLE"))
        }
        AuditLine::Entry {
            at, who, from, action, subject, details, outcome, failed, possibly_made, ..
        } => {
            let who = format!("{who} on {from}");
            let line = format!("{at}  {who:<24}  {action:<20}  {subject:<20}  {details}");
            let problem = match (possibly_made, failed) {
                (Some(why), _) => Some(("POSSIBLY MADE", why)),
                (None, Some(why)) if *outcome == ChangeOutcome::Refused => Some(("REFUSED", why)),
                (None, Some(why)) => Some(("FAILED", why)),
                (None, None) => None,
            };
            match problem {
                Some((what, why)) => format!("{}  {}: {why}", line.trim_end(), out.paint.alarm(what)),
                None => line.trim_end().to_owned(),
            }
        }
    }
}
