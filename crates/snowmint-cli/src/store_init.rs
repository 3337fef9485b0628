//! `snowmint store`: makes what a store needs, or prints it for those who must ask somebody for it; and makes one that
//! was restored safe to use.

use crate::exit::Failure;
use crate::output::Output;
use crate::workers::Place;
use crate::{store, store_recover};

const EXAMPLES: &str = "\
Examples:
  snowmint store init --store postgres://mint@db.internal/ids --dry-run
      Prints the table for a DBA. Connects to nothing.
  snowmint store init --store postgres://mint@db.internal/ids
      Creates it. Not needed if the user may create tables: the first node does.

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
    #[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
    Init {
        #[command(flatten)]
        place: Place,
        /// Print them without connecting
        #[arg(long)]
        dry_run: bool,
    },
    /// Make a restored store safe: raise its counters and leases above everything nodes may have used
    #[command(after_long_help = store_recover::EXAMPLES, after_help = "See --help for examples.")]
    Recover(store_recover::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (place, dry_run) = match &args.action {
        Action::Init { place, dry_run } => (place, dry_run),
        Action::Recover(args) => return store_recover::run(args),
    };
    let url = place.url();
    let mut out = Output::new();
    if *dry_run {
        let schema = snowmint_store::schema(&url).map_err(|error| Failure::flag("--store", error))?;
        out.line(schema.trim_end())?;
        return out.flush();
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::runtime)?;
    let described = runtime.block_on(async {
        place.check()?;
        let store = store::open(&url).await?;
        // Some stores make what they need with the first call.
        store.list("namespaces/").await.map_err(Failure::runtime)?;
        Ok::<_, Failure>(store.describe())
    })?;
    out.line(&format!("{described} is ready"))?;
    out.flush()
}
