//! `snowmint log-level`: shows or changes the log level of a running node.

use snowmint_admin::node::LogLevel;
use snowmint_admin::operations::{ResetLogLevel, SetLogLevel, ShowLogLevel};

use crate::admin_failure::warn;
use crate::error::Failure;
use crate::output::Output;
use crate::runtime;
use crate::target::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  snowmint log-level --server https://ids.example.com --token-file admin.token
      Shows the level of that node.
  snowmint log-level info,snowmint_cluster=debug --server https://10.0.0.7:8080
      Changes it, until the next change, SIGHUP or restart.
  snowmint log-level --configured --server https://10.0.0.7:8080
      Goes back to the level of its flags or configuration file.

It needs a token with the right admin for all namespaces. Behind a load balancer,
name the node itself. debug and trace of other modules than snowmint_* may write
what clients send, such as headers.

JSON: level, configured.";

/// Show or change the log level of a running node
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    /// Level: off, error, warn, info, debug or trace; also per module, as in `warn,snowmint_cluster=debug`
    level: Option<String>,
    /// Go back to the configured level
    #[arg(long, conflicts_with = "level")]
    configured: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let now = runtime()?.block_on(async {
        let Some(server) = args.server.open()? else {
            return Err(Failure::flag("--server", "required: the HTTP address of the node"));
        };
        match &args.level {
            Some(level) => server.ask(&SetLogLevel { level: level.clone() }).await,
            None if args.configured => server.ask(&ResetLogLevel).await,
            None => server.ask(&ShowLogLevel).await,
        }
    })?;
    let now = now.map_err(|problem| problem.failure())?;
    warn(&now.warnings);
    let mut out = Output::new();
    if args.json {
        out.json(&now)?;
    } else {
        let LogLevel { level, configured, .. } = now;
        out.line(&if level == configured { level } else { format!("{level} (configured: {configured})") })?;
    }
    out.flush()
}
