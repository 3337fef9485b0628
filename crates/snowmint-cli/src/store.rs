//! `snowmint store`: `init` prepares a store; `show` shows which one it is; [`recover`] makes a restored
//! store safe to use.

mod recover;

use serde_json::json;
use snowmint_admin::operations::ShowStore;

use crate::error::Failure;
use crate::open_store::{self, StoreArgs};
use crate::output::Output;
use crate::runtime;
use crate::target::TargetArgs;

const INIT_EXAMPLES: &str = "\
Examples:
  snowmint store init --store postgres://mint@db.internal/ids --dry-run
      Prints the table for a DBA, without connecting.
  snowmint store init --store postgres://mint@db.internal/ids
      Creates it. If the user may create tables, the first node does so itself.

Stores: sqlite:PATH, redis://HOST, postgres://USER@HOST/DB, mysql://USER@HOST/DB,
etcd://H1,H2,H3, zookeeper://H1,H2,H3/PATH, kubernetes:NAMESPACE, memory:.
Keep passwords out of the process list: set SNOWMINT_STORE_PASSWORD, or name a
file in the URL as ?password_file=PATH.";

const SHOW_EXAMPLES: &str = "\
Examples:
  snowmint store show --store postgres://mint@db.internal/ids
      Shows the identity of the store, to compare what two nodes use, and how far
      the clock of this machine is ahead of the store's.
  snowmint store show --server https://ids.example.com --token-file admin.token
      The store of a node, and the clock of the node.

JSON, one object: store, identity, may_lose_ms and clock_ahead_ms (negative if the
machine's clock is behind, null if the store has no clock).";

/// Prepare a store, show it, or recover one after a restore
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: StoreAction,
}

#[derive(Debug, clap::Subcommand)]
enum StoreAction {
    /// Create the tables, keys or objects that a store needs
    #[command(after_long_help = INIT_EXAMPLES, after_help = "See --help for examples.")]
    Init {
        #[command(flatten)]
        store: StoreArgs,
        /// Print them without connecting
        #[arg(long)]
        dry_run: bool,
        /// Print one JSON object: store and ready, or with --dry-run schema
        #[arg(long, help_heading = "Output")]
        json: bool,
    },
    /// Show the identity and the clock of a store, or of the store of a node
    #[command(after_long_help = SHOW_EXAMPLES, after_help = "See --help for examples.")]
    Show {
        #[command(flatten)]
        target: TargetArgs,
        /// Print one JSON object
        #[arg(long, help_heading = "Output")]
        json: bool,
    },
    /// Make a restored store safe: raise its counters and leases above everything nodes may have used
    Recover(recover::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (store, dry_run, json) = match &args.action {
        StoreAction::Init { store, dry_run, json } => (store, dry_run, *json),
        StoreAction::Show { target, json } => return show(target, *json),
        StoreAction::Recover(args) => return recover::run(args),
    };
    let url = store.url()?;
    let mut out = Output::new();
    if *dry_run {
        let schema = snowmint_store::schema(&url).map_err(|error| Failure::flag("--store", error))?;
        if json {
            out.json(&json!({"schema": schema.trim_end()}))?;
        } else {
            out.line(schema.trim_end())?;
        }
        return out.flush();
    }
    let described = runtime()?.block_on(async {
        let store = open_store::open(&url).await?;
        // Some stores create their objects with the first call.
        store.list("namespaces/").await.map_err(Failure::runtime)?;
        Ok::<_, Failure>(store.describe())
    })?;
    if json {
        out.json(&json!({"store": described, "ready": true}))?;
    } else {
        out.line(&format!("{described} is ready"))?;
    }
    out.flush()
}

fn show(target: &TargetArgs, json: bool) -> Result<(), Failure> {
    let target = target.open()?;
    let shown = runtime()?.block_on(target.run(ShowStore))?;
    let mut out = Output::new();
    if json {
        out.json(&shown)?;
        return out.flush();
    }
    let none_yet = "none yet: the first node that uses it writes one";
    out.line(&shown.store)?;
    out.line(&format!("  identity  {}", shown.identity.as_deref().unwrap_or(none_yet)))?;
    out.line(&match shown.clock_ahead_ms {
        None => "  clock     it has none".to_owned(),
        Some(0) => "  clock     equals that of the machine".to_owned(),
        Some(ahead @ 1..) => format!("  clock     the machine's is ahead by at least {ahead} ms"),
        Some(behind) => {
            format!("  clock     the machine's is behind by at least {} ms", behind.unsigned_abs())
        }
    })?;
    out.flush()
}
