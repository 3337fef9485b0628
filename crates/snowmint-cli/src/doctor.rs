//! `snowmint doctor`: checks a store, its leases, namespaces and counters, and the nodes that use it.

use snowmint::foreign::{Most, shown};
use snowmint_admin::doctor::{Findings, examine_without_store};
use snowmint_admin::operations::Examine;

use crate::error::Failure;
use crate::output::Output;
use crate::runtime;
use crate::target::TargetArgs;

const EXAMPLES: &str = "\
Examples:
  snowmint doctor
      Checks snowmint.db in the data directory.
  snowmint doctor --store sqlite:/var/lib/snowmint/snowmint.db --json
  snowmint doctor --store etcd://a,b,c --nodes http://n1:8080,http://n2:8080
      Also asks nodes whether they make ids, and whether the store lost writes
      that it had acknowledged.
  snowmint doctor --server https://ids.example.com --token-file admin.token
      Asks a node to check its store, and its peers (serve --peers). The clock is
      that of the node.

Checks:
  store      it answers, and how fast; etcd has more than half of its quota left
  write      this user can write it: doctor writes one record, `doctor`. For a
             data file, run doctor as the user of the nodes
  clock      this machine's clock against the store's, if the store has one
  leases     no lease reaches further ahead than clocks that agree would write
  records    every record can be read
  namespace  its layout and when that ends; it has numbers up to its maximum left;
             no counter lacks its namespace
  workers    free workers of each pool, and the lease that ends first
With --nodes, or through a node with --peers:
  node       it makes ids (/readyz), nothing fails meanwhile, and it has not found
             that the store lost leases, namespaces or numbers
  counter    no counter is behind the numbers that nodes received
If the store fails, nodes are asked all the same.

Exit codes. 0: no problem found. 1: the store failed, or a check found a problem.";

/// Check whether a store answers and can be written, its clock, layouts, workers and nodes
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// HTTP addresses of nodes that use the store: http://HOST:PORT,... For nodes with TLS, the port of their
    /// --probe. Default: none; with --server, all peers of that node
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Print one JSON object per line: check, ok, text
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let examine = Examine { nodes: args.nodes.clone() };
    let target = args.target.open()?;
    let Findings { findings } = runtime()?.block_on(async {
        match target.run(examine).await {
            // Of a store, this is the only such failure: once it is open, the check itself goes on.
            Err(Failure::Runtime(why)) if !target.is_node() && !args.nodes.is_empty() => {
                Ok(examine_without_store(&why, &args.nodes).await?)
            }
            found => found,
        }
    })?;
    let mut out = Output::new();
    for finding in &findings {
        if args.json {
            out.json(finding)?;
        } else {
            let mark = if finding.ok { "ok     ".to_owned() } else { out.paint.alarm("PROBLEM") };
            out.line(&format!("{mark} {:<10} {}", finding.check, shown(&finding.text, Most::Message)))?;
        }
    }
    out.flush()?;
    let problems = findings.iter().filter(|finding| !finding.ok).count();
    if problems > 0 {
        return Err(Failure::runtime(format!("{problems} of {} checks found a problem", findings.len())));
    }
    Ok(())
}
