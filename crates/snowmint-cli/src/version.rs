//! `snowmint version`: prints the version and the stores of this build.

use serde::Serialize;

use crate::error::Failure;
use crate::output::Output;

/// Print the version and the stores of this build
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  snowmint version
  snowmint version --json

JSON, one object: version, target and stores (the kinds of store that this
build can use).")]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(Serialize)]
struct Build {
    version: &'static str,
    target: String,
    stores: Vec<&'static str>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut stores: Vec<_> = snowmint_store::built_stores().collect();
    stores.sort_unstable();
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        stores,
    };
    let mut out = Output::new();
    if args.json {
        out.json(&build)?;
    } else {
        out.line(&format!("snowmint {}", build.version))?;
        out.line(&format!("{}, stores: {}", build.target, build.stores.join(", ")))?;
    }
    out.flush()
}
