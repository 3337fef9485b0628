//! `snowmint audit`: lists who changed what in a store. Also how the commands that change a store record their changes.

use std::fmt::Display;

use snowmint_cluster::NamespaceName;
use snowmint_cluster::audit::{self, Action, ChangeFailure};
use snowmint_server::admin;
use snowmint_server::admin::audit::{Log, LogLine, Outcome, list};
use snowmint_store::Store;

use crate::error::Failure;
use crate::flag_values;
use crate::output::Output;
use crate::remote::{Target, TargetArgs, warn};

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

/// Who changes the store.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Audit log")]
pub(crate) struct Author {
    /// Name to record in the audit log of the store; default: the system user
    #[arg(long = "as", value_name = "NAME", global = true)]
    author_name: Option<String>,
}

impl Author {
    /// Makes a change and records it in the audit log. Returns the outcome of the change.
    ///
    /// # Errors
    ///
    /// The log cannot be written. The change was not started.
    pub(crate) async fn record<T, E>(
        &self,
        store: &dyn Store,
        action: Action,
        subject: impl Display,
        details: impl Display,
        change: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, Failure>
    where
        for<'a> ChangeFailure: From<&'a E>,
    {
        Ok(self.author().record(store, action, subject, details, change).await?)
    }

    /// Returns the author of the changes of this command at a target. A node records its own: the token.
    pub(crate) fn at(&self, target: &Target<'_>) -> Result<admin::Author, Failure> {
        if matches!(target, Target::Server(_)) && self.author_name.is_some() {
            return Err(Failure::flag(
                "--as",
                "with --server, the node records the name of the token: omit it",
            ));
        }
        Ok(self.author())
    }

    /// Returns the author of the changes of this command.
    fn author(&self) -> admin::Author {
        let who = self.author_name.clone().unwrap_or_else(system_user);
        admin::Author { who, from: audit::this_host() }
    }
}

/// Returns the name of the user of this process, and of the one who called `sudo`.
fn system_user() -> String {
    let variable = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = ["USER", "LOGNAME", "USERNAME"].iter().find_map(variable).unwrap_or_else(user_number);
    match variable(&"SUDO_USER") {
        Some(by) if by != user => format!("{user} (sudo by {by})"),
        _ => user,
    }
}

#[cfg(unix)]
fn user_number() -> String {
    format!("uid {}", rustix::process::getuid())
}

#[cfg(not(unix))]
fn user_number() -> String {
    "unknown".to_owned()
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::runtime)?;
    let (limit, namespace) = (args.limit, args.namespace.as_ref());
    let Log { changes, warnings } = runtime.block_on(async {
        match args.target.open()? {
            Target::Store(store) => Ok(list(&*store.open_read_only().await?, limit, namespace).await?),
            Target::Server(server) => server.audit(limit, namespace).await,
        }
    })?;
    warn(&warnings);
    let mut out = Output::new();
    for change in &changes {
        if args.json {
            out.line(&serde_json::to_string(change).map_err(Failure::runtime)?)?;
        } else {
            out.line(&line(change, &out))?;
        }
    }
    if changes.is_empty() && !args.json {
        out.line("no changes are recorded in this store")?;
    }
    out.flush()
}

fn line(change: &LogLine, out: &Output) -> String {
    match change {
        LogLine::Unreadable { record, unreadable } => {
            format!("{} {record}: {unreadable}", out.paint.alarm("UNREADABLE"))
        }
        LogLine::Entry {
            at, who, from, action, subject, details, outcome, failed, possibly_made, ..
        } => {
            let who = format!("{who} on {from}");
            let line = format!("{at}  {who:<24}  {action:<20}  {subject:<20}  {details}");
            let problem = match (possibly_made, failed) {
                (Some(why), _) => Some(("POSSIBLY MADE", why)),
                (None, Some(why)) if *outcome == Outcome::Refused => Some(("REFUSED", why)),
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
