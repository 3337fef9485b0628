//! The target of the operator commands, a store or the admin API of a running node (`--server`), and the author of their changes.
//! Both targets give the same output, exit codes and errors.

use std::path::PathBuf;

use snowmint_cluster::audit::{self, AuthorRights};

use crate::argv;
use crate::client_credentials::{TlsFiles, token};
use crate::error::Failure;
use crate::node_client::NodeClient;
use crate::open_store::StoreArgs;

/// The flags that name a store, or a node to work through.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Node instead of a store")]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// The flags that name a running node.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Work through a running node instead of a store: its HTTP address, as https://HOST:PORT. It needs a token with the right
    /// admin
    #[arg(long, value_name = "URL", global = true)]
    server: Option<String>,
    /// Token for --server. Other users of this machine can see flags: prefer the variable or --token-file
    #[arg(long, value_name = "TOKEN", env = "SNOWMINT_TOKEN", hide_env_values = true, global = true)]
    token: Option<String>,
    /// File that holds the token for --server
    #[arg(long, value_name = "FILE", requires = "server", global = true)]
    token_file: Option<PathBuf>,
    /// Authorities that --server may have its certificate from (PEM); default: those of this system
    #[arg(long, value_name = "FILE", requires = "server", global = true)]
    server_ca: Option<PathBuf>,
    /// Certificate that --server may require of its clients, with its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "server_key", global = true)]
    server_cert: Option<PathBuf>,
    /// Private key of --server-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "server_cert", global = true)]
    server_key: Option<PathBuf>,
    /// Send the token to another machine over http://, where others on the way can read it
    #[arg(long, requires = "server", global = true)]
    insecure: bool,
}

/// The place where a command works.
pub(crate) enum Target<'a> {
    Store(&'a StoreArgs),
    Server(Box<NodeClient>),
}

impl TargetArgs {
    /// Returns the target, without connecting.
    pub(crate) fn open(&self) -> Result<Target<'_>, Failure> {
        let Some(server) = self.server.open()? else { return Ok(Target::Store(&self.store)) };
        // An environment variable may name the store for other commands.
        for flag in ["--store", "--data"] {
            if argv::has_flag(flag) {
                let why = format!("the node works on its own store: omit {flag}");
                return Err(Failure::flag("--server", why));
            }
        }
        Ok(Target::Server(Box::new(server)))
    }
}

impl ServerArgs {
    /// Returns the node, without connecting; `None` if the flags name none.
    pub(crate) fn open(&self) -> Result<Option<NodeClient>, Failure> {
        let Some(url) = &self.server else {
            // The variable may hold a token for other commands. The flag means a node: without this check, the command would
            // change the local store.
            if argv::has_flag("--token") {
                let why = "belongs to --server: add --server URL to work through a node, or omit it";
                return Err(Failure::flag("--token", why));
            }
            return match &self.server_cert {
                Some(_) => {
                    Err(Failure::flag("--server-cert", "belongs to --server: name the node, or omit it"))
                }
                None => Ok(None),
            };
        };
        let token = token(self.token_file.as_deref(), self.token.as_deref())?;
        let identity = self.server_cert.as_deref().zip(self.server_key.as_deref());
        let files = TlsFiles { ca: self.server_ca.as_deref(), identity };
        NodeClient::new(url, token, files, self.insecure).map(Some)
    }
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
    /// Returns the author of the changes of this command at a target. A node records its own: the token.
    pub(crate) fn at(&self, target: &Target<'_>) -> Result<snowmint_admin::Author, Failure> {
        if matches!(target, Target::Server(_)) && self.author_name.is_some() {
            return Err(Failure::flag(
                "--as",
                "with --server, the node records the name of the token: omit it",
            ));
        }
        Ok(self.author())
    }

    /// Returns the author of the changes of this command.
    pub(crate) fn author(&self) -> snowmint_admin::Author {
        let who = self.author_name.clone().unwrap_or_else(system_user);
        snowmint_admin::Author { who, from: audit::this_host(), rights: AuthorRights::All }
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
