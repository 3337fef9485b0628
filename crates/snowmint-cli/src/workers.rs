//! `snowmint workers`: lists the workers of a store and their holders, and takes a worker from its holder.

use snowmint_admin::operations::{ListWorkers, ReleaseWorker};
use snowmint_admin::workers::{Force, ReleaseAnswer, Released, Workers};

use crate::admin_failure::warn;
use crate::error::Failure;
use crate::flag_values;
use crate::output::{self, Output};
use crate::runtime;
use crate::target::{AuthorArgs, TargetArgs};

const EXAMPLES: &str = "\
Examples:
  snowmint workers
      Lists the workers of the default store: pool, worker, state (held or
      free), end of the lease, holder.
  snowmint workers release 7
      Reports whether worker 7 is free, or who holds it until when.
  snowmint workers release 7 --force
      Takes worker 7 from its holder. The lease keeps its end, because ids up
      to then may exist: the holder uses it until then and takes another
      worker, and worker 7 is free afterwards. A node started with --worker 7
      would take it again: stop that node first. With --holder web-1:7380 it
      is taken from that node only, even if another one has it meanwhile.
  snowmint workers --server https://ids.example.com --token-file admin.token
      The workers of the store of that node.

JSON, one object a line: pool, worker, holder, until, until_unix_ms, state
(held, free or unreadable) and ahead_ms (until minus now, negative when past).
release: outcome (free or taken), worker, and ended, or holder and free_from.";

/// List workers and their holders, or take a worker from its holder
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<WorkersAction>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    author: AuthorArgs,
    /// Print one JSON object per line
    #[arg(long, help_heading = "Output", global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum WorkersAction {
    /// List workers and their holders, as `snowmint workers` does
    #[command(aliases = ["ls", "show"], after_help = "Example: snowmint workers list --json")]
    List,
    /// Take a worker from its holder
    #[command(after_help = "Example: snowmint workers release 7. See `snowmint workers --help` for --force.")]
    Release {
        /// Number of the worker
        #[arg(value_parser = flag_values::worker)]
        worker: u32,
        /// Pool of the worker, if the store has several
        #[arg(long, value_name = "POOL")]
        pool: Option<String>,
        /// Take it even if its lease has not expired
        #[arg(long)]
        force: bool,
        /// Take it from this holder, and from no other: another node may have taken it since you looked
        #[arg(long, value_name = "NODE", requires = "force")]
        holder: Option<String>,
    },
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let target = args.target.open_as(&args.author)?;
        match &args.action {
            None | Some(WorkersAction::List) => show(&target.run(ListWorkers).await?, args.json),
            Some(WorkersAction::Release { worker, pool, force, holder }) => {
                let force = match (*force, holder.clone()) {
                    (false, _) => Force::Refuse,
                    (true, None) => Force::Take,
                    (true, Some(holder)) => Force::TakeFrom(holder),
                };
                let release = ReleaseWorker { worker: *worker, pool: pool.clone(), force };
                let ReleaseAnswer { released, warnings } = target.run(release).await?;
                warn(&warnings);
                show_released(&released, args.json)
            }
        }
    })
}

fn show(Workers { workers, warnings }: &Workers, json: bool) -> Result<(), Failure> {
    warn(warnings);
    let mut out = Output::new();
    let mut pool = "";
    for row in workers {
        if json {
            out.json(row)?;
            continue;
        }
        if row.pool != pool {
            pool = &row.pool;
            out.line(&out.paint.bold(pool))?;
            out.line(&out.paint.faint("  worker  state       until                     holder"))?;
        }
        // The clock of this machine may be wrong.
        let until = row.until_unix_ms.zip(row.ahead_ms).map_or_else(String::new, |(until, ahead_ms)| {
            output::age(until, until.saturating_add_signed(ahead_ms.saturating_neg()))
        });
        out.line(&format!(
            "  {:>6}  {:<10}  {:<24}  {}  {}",
            row.worker,
            row.state.as_str(),
            row.until.as_deref().unwrap_or_default(),
            row.holder.as_deref().unwrap_or_default(),
            out.paint.faint(&until)
        ))?;
    }
    if workers.is_empty() && !json {
        out.line("no node has held a worker in this store yet")?;
    }
    out.flush()
}

fn show_released(released: &Released, json: bool) -> Result<(), Failure> {
    let mut out = Output::new();
    if json {
        out.json(released)?;
        return out.flush();
    }
    out.line(&match released {
        Released::Free { worker, ended } => format!("worker {worker} is free: its lease ended at {ended}"),
        Released::Taken { worker, holder, free_from } => format!(
            "worker {worker} was taken from {holder}: it is free from {free_from}, because ids up to then may exist"
        ),
    })?;
    out.flush()
}
