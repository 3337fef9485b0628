//! `snowmint health`: asks a node whether it serves ids, for health checks in containers that contain no
//! other program.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use snowmint::foreign::{Most, shown_in_json};

use crate::client_credentials::TlsFiles;
use crate::error::Failure;
use crate::node_client::NodeClient;
use crate::output::Output;
use crate::runtime;

const EXAMPLES: &str = "\
Examples:
  snowmint health
      Exits with 0 if the node on this machine can make ids.
  snowmint health --of process --server http://127.0.0.1:9100
      Exits with 0 while its process lives, also without a lease. Port 9100 is
      its --probe, which needs no TLS and no token.
  snowmint health --server https://ids.example.com --server-ca ca.pem

Exit codes. 0: healthy. 1: not healthy, or no answer within 5 s.";

/// Time limit for a node's answer: both answers come from its memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// Check whether a running node serves ids; for health checks of containers
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    /// HTTP address of the node, or that of its --probe
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    server: String,
    /// Authorities that --server may have its certificate from (PEM); default: those of this system
    #[arg(long, value_name = "FILE")]
    server_ca: Option<PathBuf>,
    /// Certificate that --server may require of its clients, with its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "server_key")]
    server_cert: Option<PathBuf>,
    /// Private key of --server-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "server_cert")]
    server_key: Option<PathBuf>,
    /// What to check
    #[arg(long, value_enum, default_value_t = Health::Ids)]
    of: Health,
    /// Print one JSON object, also for the process
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// The definition of healthy.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Health {
    /// The node can make ids (`/readyz`)
    Ids,
    /// The process answers (`/healthz`), also while its store is down
    Process,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let identity = args.server_cert.as_deref().zip(args.server_key.as_deref());
    let files = TlsFiles { ca: args.server_ca.as_deref(), identity };
    let server = NodeClient::without_token(&args.server, files)?;
    let path = match args.of {
        Health::Ids => "/readyz",
        Health::Process => "/healthz",
    };
    let (status, answer) = runtime()?.block_on(server.get(path, PATIENCE))?;
    let answer = String::from_utf8_lossy(&answer);
    if status != 200 {
        return Err(Failure::runtime(format!(
            "{path} of {} answered {status}: {}",
            args.server,
            answer.trim()
        )));
    }
    let mut out = Output::new();
    match args.of {
        // A word.
        Health::Process if args.json => out.json(&serde_json::json!({ "status": answer.trim() }))?,
        // JSON in any case.
        Health::Process | Health::Ids => out.line(&shown_in_json(answer.trim(), Most::Message))?,
    }
    out.flush()
}
