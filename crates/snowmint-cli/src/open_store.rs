//! Connects a command to its store, waits until its writes have settled, and waits for a lease.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use snowmint_admin::url_without_credentials::without_credentials;
use snowmint_admin::{SettledStore, warnings_of_skipped};
use snowmint_cluster::{LeaseError, LeaseStatus, Leases};
use snowmint_store::{OpenError, Store};

use crate::error::{Failure, report};
use crate::flag_values;

/// Time limit of [`leave`].
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// The flags that name the store.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Store; default: the file snowmint.db in the data directory
    #[arg(long, value_name = "URL", env = "SNOWMINT_STORE", hide_env_values = true, global = true)]
    store: Option<String>,
    /// Data directory; default: `$XDG_STATE_HOME/snowmint`, or `~/.local/state/snowmint`; for root
    /// /var/lib/snowmint
    #[arg(long, value_name = "DIR", alias = "data-dir", env = "SNOWMINT_DATA", global = true)]
    data: Option<String>,
}

impl StoreArgs {
    /// Returns the URL of the store, without opening it.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        flag_values::store_url(self.store.as_deref(), self.data.as_deref())
    }

    /// Opens the store, runs `change`, and returns its result once everything that it wrote has settled.
    pub(crate) async fn change<T>(
        &self,
        change: impl AsyncFnOnce(Arc<dyn Store>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let store = Arc::new(SettledStore::new(self.open().await?));
        let changed = store.settled(change(Arc::clone(&store) as _).await).await;
        leave(&*store).await;
        changed
    }

    /// Rejects a store that does not outlive this process.
    pub(crate) fn check_persistent(&self) -> Result<(), Failure> {
        if self.url()?.starts_with("memory:") {
            let why = "memory: does not outlive this command: name a store that keeps its records";
            return Err(Failure::flag("--store", why));
        }
        Ok(())
    }

    /// Opens the store, but does not create a missing SQLite file.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        open(&self.url_of_store()?).await
    }

    /// Like [`open`](Self::open), but also opens a store that is read-only.
    pub(crate) async fn open_read_only(&self) -> Result<Arc<dyn Store>, Failure> {
        open_read_only(&self.url_of_store()?).await
    }

    /// Like [`open_read_only`](Self::open_read_only), but returns `None` for a SQLite file that does not
    /// exist.
    pub(crate) async fn open_read_only_if_there(&self) -> Result<Option<Arc<dyn Store>>, Failure> {
        let url = self.url()?;
        match data_file(&url)? {
            DataFile::Missing(_) => Ok(None),
            DataFile::There | DataFile::None => open_read_only(&url).await.map(Some),
        }
    }

    fn url_of_store(&self) -> Result<String, Failure> {
        let url = self.url()?;
        match data_file(&url)? {
            DataFile::Missing(path) => Err(Failure::runtime(format!(
                "data file {path} not found: name the store with --store or --data, or create it with `snowmint store init`"
            ))),
            DataFile::There | DataFile::None => Ok(url),
        }
    }
}

/// Moves what is in the log of a data file into the file, before this process ends: people copy and move that
/// file alone.
///
/// If another process uses the file at this moment, the one that ends last does it.
pub(crate) async fn leave(store: &dyn Store) {
    if let Ok(Err(error)) = tokio::time::timeout(LEAVE_WITHIN, store.checkpoint()).await {
        tracing::debug!(%error, "the log was not moved into the data file");
    }
}

/// The data file that a URL names.
enum DataFile<'a> {
    /// The store has none.
    None,
    /// It is not there.
    Missing(&'a str),
    There,
}

/// Looks for the data file of a URL. A file that this user may not see is an error: it is not known to be
/// missing.
fn data_file(url: &str) -> Result<DataFile<'_>, Failure> {
    let Some(path) = url.strip_prefix("sqlite:") else { return Ok(DataFile::None) };
    let file = Path::new(path.trim_start_matches("//"));
    match file.try_exists() {
        Ok(true) => Ok(DataFile::There),
        Ok(false) => Ok(DataFile::Missing(path)),
        Err(error) => {
            let what_to_do = if error.kind() == std::io::ErrorKind::PermissionDenied {
                as_another_user(file)
            } else {
                "check the disk and the path".to_owned()
            };
            Err(Failure::runtime(format!("cannot look for data file {path}: {error}; {what_to_do}")))
        }
    }
}

/// Returns advice for a user who has no access to the folder of a file.
#[cfg(unix)]
fn as_another_user(file: &Path) -> String {
    use std::os::unix::fs::MetadataExt as _;

    // The folder itself may be hidden too: the nearest one that is not shows who has access.
    let owner = file.ancestors().skip(1).find_map(|folder| folder.metadata().ok()).map(|it| it.uid());
    let user = rustix::process::geteuid().as_raw();
    let owner = owner.unwrap_or(user);
    format!(
        "uid {user} may not enter its folder: run this command as the user of the nodes, such as \
         `sudo -u '#{owner}' snowmint ...`"
    )
}

#[cfg(not(unix))]
fn as_another_user(_: &Path) -> String {
    "run this command as the user of the nodes".to_owned()
}

/// Opens the store of a URL.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Store>, Failure> {
    snowmint_store::open(url).await.map_err(open_failure)
}

/// Opens the store of a URL to read it, even if it cannot be written.
async fn open_read_only(url: &str) -> Result<Arc<dyn Store>, Failure> {
    snowmint_store::open_to_read(url).await.map_err(open_failure)
}

/// An invalid URL is a usage error; a store that does not open is a runtime error.
pub(crate) fn open_failure(error: OpenError) -> Failure {
    match error {
        OpenError::Url(error) => Failure::flag("--store", error),
        error @ OpenError::AnotherStore { .. } => Failure::flag("--expect-store", error),
        error => Failure::runtime(error),
    }
}

/// Time to wait for a lease before the first message.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);
/// Interval between messages.
const REPEAT: Duration = Duration::from_secs(5);

/// Waits until a lease is held; `notify` receives the time waited so far and the reason, every few seconds.
pub(crate) async fn wait_for_lease(
    leases: &Leases,
    notify: impl Fn(Duration, &str),
) -> Result<LeaseStatus, LeaseError> {
    let mut waited = Duration::ZERO;
    loop {
        let patience = if waited.is_zero() { MOMENT } else { REPEAT };
        match tokio::time::timeout(patience, leases.ready()).await {
            Ok(settled) => return settled,
            Err(_) => waited += patience,
        }
        notify(waited, &why_no_lease(leases));
    }
}

/// Returns why there is no lease yet.
pub(crate) fn why_no_lease(leases: &Leases) -> String {
    let waiting = leases.status().waiting;
    waiting.unwrap_or_else(|| "the store has not answered yet".to_owned())
}

/// Reports the records that lists of the store skipped.
pub(crate) fn warn_of_skipped(store: &dyn Store) {
    for warning in warnings_of_skipped(store) {
        report("warning", &warning);
    }
}
