//! `snowmint store`: `init` prepares a store; [`recover`] makes a restored store safe to use.

mod recover;

use serde_json::json;

use crate::error::Failure;
use crate::open_store::{self, StoreArgs};
use crate::output::Output;
use crate::runtime;

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

/// Prepare a store, or recover one after a restore
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
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
    /// Make a restored store safe: raise its counters and leases above everything nodes may have used
    Recover(recover::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (store, dry_run, json) = match &args.action {
        Action::Init { store, dry_run, json } => (store, dry_run, *json),
        Action::Recover(args) => return recover::run(args),
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
