//! The target of the operator commands, a store or the admin API of a running node (`--server`), and the
//! author of their changes. Both targets give the same output, exit codes and errors.

use std::path::PathBuf;
use std::sync::Arc;

use snowmint_admin::namespaces::NamespaceView;
use snowmint_admin::operations::{Context, Operation, OperationEffect, ShowNamespace};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::audit::{self, AuthorRights};
use snowmint_cluster::namespace::{Fields, Logins};
use snowmint_store::Store;

use crate::admin_failure::AdminProblem;
use crate::argv;
use crate::client_credentials::{TlsFiles, token};
use crate::error::Failure;
use crate::flag_values;
use crate::node_client::NodeClient;
use crate::open_store::StoreArgs;
use crate::runtime;

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
    /// Work through a running node instead of a store: its HTTP address, as https://HOST:PORT. It needs a
    /// token with the right admin
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

/// The place where a command works, and the author of its changes there.
pub(crate) struct Target<'a> {
    place: TargetPlace<'a>,
    author: snowmint_admin::Author,
}

enum TargetPlace<'a> {
    Store(&'a StoreArgs),
    Server(Box<NodeClient>),
}

impl TargetArgs {
    /// Returns the target of a command that changes nothing, without connecting.
    pub(crate) fn open(&self) -> Result<Target<'_>, Failure> {
        self.open_as(&AuthorArgs::default())
    }

    /// Returns the target, without connecting. A node records an author of its own: the token.
    pub(crate) fn open_as(&self, author: &AuthorArgs) -> Result<Target<'_>, Failure> {
        let place = match self.server.open()? {
            None => TargetPlace::Store(&self.store),
            Some(server) => {
                // An environment variable may name the store for other commands.
                for flag in ["--store", "--data"] {
                    if argv::has_flag(flag) {
                        let why = format!("the node works on its own store: omit {flag}");
                        return Err(Failure::flag("--server", why));
                    }
                }
                if author.author_name.is_some() {
                    let why = "with --server, the node records the name of the token: omit it";
                    return Err(Failure::flag("--as", why));
                }
                TargetPlace::Server(Box::new(server))
            }
        };
        Ok(Target { place, author: author.author() })
    }
}

impl TargetArgs {
    /// Reads the settings of the namespace that `--namespace` names.
    pub(crate) fn settings_of(&self, name: &NamespaceName) -> Result<Fields, Failure> {
        // An environment variable may set the layout for other commands.
        if argv::has_flag("--layout") {
            let why = "--layout and --namespace: the namespace has its layout, omit --layout";
            return Err(Failure::usage(why));
        }
        let target = self.open()?;
        let found = runtime()?.block_on(target.namespace(name))?;
        let refuse = |why: String| Failure::flag("--namespace", why);
        let namespace = found.ok_or_else(|| {
            refuse(format!("unknown namespace {name}: `snowmint ns list` lists those of the store"))
        })?;
        namespace.settings.ok_or_else(|| {
            refuse(format!("the record of namespace {name} is unreadable: name the layout with --layout"))
        })
    }
}

impl Target<'_> {
    /// Returns whether the command works through a running node.
    pub(crate) const fn is_node(&self) -> bool {
        matches!(self.place, TargetPlace::Server(_))
    }

    /// Runs an operation on the store, or on the node.
    pub(crate) async fn run<O: Operation>(&self, operation: O) -> Result<O::Answer, Failure> {
        self.ask(operation).await?.map_err(|problem| problem.failure())
    }

    /// Like [`run`](Self::run), but also returns why an operation that reads was refused.
    pub(crate) async fn ask<O: Operation>(
        &self,
        operation: O,
    ) -> Result<Result<O::Answer, AdminProblem>, Failure> {
        let store = match &self.place {
            TargetPlace::Server(server) => return server.ask(&operation).await,
            TargetPlace::Store(store) => store,
        };
        let on = |store| Context { store, author: self.author.clone(), node: None };
        if O::ROUTE.effect == OperationEffect::ReadsStore {
            let store = store.open_read_only().await?;
            return Ok(operation.run(on(store)).await.map_err(AdminProblem::from));
        }
        let change = async |store: Arc<dyn Store>| Ok(operation.run(on(store)).await?);
        store.change(change).await.map(Ok)
    }

    /// Returns a namespace; `None` if there is none of this name.
    pub(crate) async fn namespace(&self, name: &NamespaceName) -> Result<Option<NamespaceView>, Failure> {
        match self.ask(ShowNamespace { name: name.clone() }).await? {
            Ok(namespace) => Ok(Some(namespace)),
            Err(problem) if problem.kind() == "unknown-namespace" => Ok(None),
            Err(problem) => Err(problem.failure()),
        }
    }

    /// Rejects a store that does not outlive this process.
    pub(crate) fn check_persistent(&self) -> Result<(), Failure> {
        match &self.place {
            TargetPlace::Store(store) => store.check_persistent(),
            TargetPlace::Server(_) => Ok(()),
        }
    }
}

impl ServerArgs {
    /// Returns the node, without connecting; `None` if the flags name none.
    pub(crate) fn open(&self) -> Result<Option<NodeClient>, Failure> {
        let Some(url) = &self.server else {
            // The variable may hold a token for other commands. The flag means a node: without this check,
            // the command would change the local store.
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
pub(crate) struct AuthorArgs {
    /// Name to record in the audit log of the store; default: the system user
    #[arg(long = "as", value_name = "NAME", global = true)]
    author_name: Option<String>,
}

impl AuthorArgs {
    /// Returns the author of the changes of this command.
    pub(crate) fn author(&self) -> snowmint_admin::Author {
        let who = self.author_name.clone().unwrap_or_else(system_user);
        snowmint_admin::Author { who, from: audit::this_host(), rights: AuthorRights::All }
    }
}

/// With what a command opens sources that have a password.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct LoginsArgs {
    /// Logins with which to open sources that have login=NAME, as for `snowmint serve`: NAME=URL; separate
    /// several by spaces
    #[arg(
        long,
        global = true,
        value_name = "NAME=URL",
        env = "SNOWMINT_LOGINS",
        hide_env_values = true,
        help_heading = "Store"
    )]
    logins: Vec<String>,
}

impl LoginsArgs {
    pub(crate) fn read(&self) -> Result<Logins, Failure> {
        flag_values::logins(&self.logins)
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
