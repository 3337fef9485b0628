//! The configured namespaces of a node: names on its command line and a namespace file. Compares them with
//! the records in the store, which may name further namespaces for all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use snowmint::Layout;
use snowmint_admin::nearest::with_nearest_field;
use snowmint_cluster::namespace::registry::Room;
use snowmint_cluster::namespace::{
    AutoCreate, ConfigTextError, Definition, HideKeys, Logins, NamespaceError, NamespaceFile,
    NamespaceRecord, Scheme, ServedBy, TextForm, registry,
};
use snowmint_cluster::{NamespaceName, NamespaceNameError};
use snowmint_store::{Store, StoreError, Visibility};
use tokio::sync::Mutex;

use crate::limits::MAX_SERVED_NAMESPACES;
use crate::mint::NamespaceTable;

/// The flags that configure namespaces.
#[derive(Clone, Debug)]
pub struct NamespaceFlags {
    /// Names of snowflake namespaces of the layout (`--namespaces`).
    pub names: Vec<NamespaceName>,
    /// The namespace file.
    pub file: Option<NamespaceSource>,
    /// The file of hide keys (`--hide-keys-file`), read together with the namespace file.
    pub hide_keys: Option<PathBuf>,
    /// The logins for sources (`--logins`); those of the file are added.
    pub logins: Logins,
    /// The layout of the service.
    pub layout: Layout,
}

/// A file of namespaces, read at the start and again at each reload.
#[derive(Clone, Debug)]
pub struct NamespaceSource {
    /// The path of the file.
    pub path: PathBuf,
    /// Reads the namespaces in its text, which may contain more.
    pub parse: fn(&str, &Layout) -> Result<NamespaceFile, ConfigTextError>,
}

impl From<PathBuf> for NamespaceSource {
    /// A file that contains only namespaces.
    fn from(path: PathBuf) -> Self {
        Self { path, parse: NamespaceFile::parse }
    }
}

/// The namespaces that this node is configured to serve: the flags and the contents of the file.
#[derive(Clone, Debug)]
pub struct NamespaceConfig {
    names: Vec<NamespaceName>,
    file: NamespaceFile,
    hide_keys: Arc<HideKeys>,
    logins: Arc<Logins>,
    layout: Layout,
    /// The settled records of the store; clones share them.
    settled: Arc<Mutex<registry::Follower>>,
}

/// The namespaces to serve, after comparing configuration and store.
#[derive(Debug, Default)]
pub(super) struct Desired {
    pub(super) namespaces: BTreeMap<NamespaceName, Definition>,
    /// The earlier text forms of `namespaces`.
    pub(super) earlier_texts: BTreeMap<NamespaceName, Vec<Option<TextForm>>>,
    /// The number of namespaces in the store that are not dropped.
    pub(super) in_store: usize,
    /// The room of the store for namespaces that every node serves.
    pub(super) room: Room,
    /// Namespaces beyond the number that a node serves.
    pub(super) left_out: Vec<NamespaceName>,
    /// Unreadable records, with the reason. Their namespaces stay as they are.
    pub(super) unreadable: Vec<(String, String)>,
    /// The names of all records in the store, dropped or not.
    pub(super) recorded: BTreeSet<String>,
    /// The records of `namespaces`.
    pub(super) records: BTreeMap<NamespaceName, NamespaceRecord>,
    /// The records of dropped namespaces.
    pub(super) dropped: BTreeMap<NamespaceName, NamespaceRecord>,
}

/// The configured namespaces cannot be served. [`Chain`](snowmint::error::Chain) displays the error with its
/// cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceConfigError {
    /// The namespace file cannot be read.
    #[error("cannot read the namespace file {path}")]
    Unread {
        /// The path of the file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The namespace file is invalid.
    #[error("{path}")]
    File {
        /// The path of the file.
        path: String,
        /// The error in the file.
        source: ConfigTextError,
    },
    /// The file of hide keys cannot be read.
    #[error("--hide-keys-file: cannot read {path}")]
    HideKeysUnread {
        /// The path of the file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The file of hide keys is invalid.
    #[error("--hide-keys-file: {path}")]
    HideKeys {
        /// The path of the file.
        path: String,
        /// The error in the file.
        source: ConfigTextError,
    },
    /// A configured namespace conflicts with its record in the store, or the store failed.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

impl From<StoreError> for NamespaceConfigError {
    fn from(error: StoreError) -> Self {
        Self::Namespace(error.into())
    }
}

impl NamespaceFlags {
    /// Reads the namespace file and the hide keys, if there are any.
    ///
    /// # Errors
    ///
    /// The files cannot be read or are invalid, or a namespace of the file has a hide key that is missing.
    pub fn read(&self) -> Result<NamespaceConfig, NamespaceConfigError> {
        let hide_keys = match &self.hide_keys {
            None => HideKeys::default(),
            Some(path) => {
                let shown = || path.display().to_string();
                let text = std::fs::read_to_string(path)
                    .map_err(|source| NamespaceConfigError::HideKeysUnread { path: shown(), source })?;
                HideKeys::parse(&text)
                    .map_err(|source| NamespaceConfigError::HideKeys { path: shown(), source })?
            }
        };
        let file = match &self.file {
            None => NamespaceFile::default(),
            Some(NamespaceSource { path, parse }) => {
                let shown = || path.display().to_string();
                let text = std::fs::read_to_string(path)
                    .map_err(|source| NamespaceConfigError::Unread { path: shown(), source })?;
                parse(&text, &self.layout).map_err(|mut source| {
                    source.message = with_nearest_field(&source.message);
                    NamespaceConfigError::File { path: shown(), source }
                })?
            }
        };
        let file = file
            .with_hide_checks(&hide_keys)
            .map_err(|(name, error)| NamespaceError::Hide { name, error })?;
        Ok(NamespaceConfig {
            names: self.names.clone(),
            logins: Arc::new(file.logins.clone().overridden_by(&self.logins)),
            file,
            hide_keys: Arc::new(hide_keys),
            layout: self.layout,
            settled: Arc::default(),
        })
    }
}

impl NamespaceConfig {
    /// Pins the configured namespaces: checks them against the records in the store and writes those that are
    /// missing. Waits until all of them have settled.
    ///
    /// # Errors
    ///
    /// [`NamespaceConfigError::Namespace`]. Nothing was written, unless another node wrote at the same
    /// moment.
    pub async fn pin(&self, store: &dyn Store) -> Result<(), NamespaceConfigError> {
        loop {
            self.write(store).await?;
            if store.may_lose().is_zero() {
                return Ok(());
            }
            let settled = self.settled.lock().await.settle(store).await?;
            let is_settled = |name: &NamespaceName| {
                settled.iter().any(|(listed, record)| listed == name.as_str() && record.is_ok())
            };
            if self.names.iter().chain(self.file.namespaces.keys()).all(is_settled) {
                // The settled records may be those of another node.
                return self.check(store.visibility(), &settled);
            }
        }
    }

    async fn write(&self, store: &dyn Store) -> Result<(), NamespaceConfigError> {
        let plain = Definition::snowflake(self.layout);
        self.check(store.visibility(), &registry::list(store).await?)?;
        let named = self.names.iter().filter(|name| !self.file.namespaces.contains_key(name));
        for (name, definition) in &self.file.namespaces {
            registry::define(store, name, definition).await?;
        }
        for name in named {
            registry::pin(store, name, &plain).await?;
        }
        Ok(())
    }

    fn check(&self, visibility: Visibility, listed: &[registry::Listed]) -> Result<(), NamespaceConfigError> {
        let records: BTreeMap<&str, &NamespaceRecord> =
            listed.iter().filter_map(|(name, record)| Some((name.as_str(), record.as_ref().ok()?))).collect();
        for (name, definition) in &self.file.namespaces {
            let checked = definition.check_sources(visibility);
            checked.map_err(|error| NamespaceError::Sources { name: name.clone(), error })?;
        }
        let configured = self.file.namespaces.keys().chain(&self.names);
        let mut recorded = configured.filter_map(|name| Some((name, records.get(name.as_str())?)));
        Ok(recorded.try_for_each(|(name, record)| self.check_record(name, record))?)
    }

    /// Checks that a record matches the flags and the namespace file of this node.
    pub(super) fn check_record(
        &self,
        name: &NamespaceName,
        record: &NamespaceRecord,
    ) -> Result<(), NamespaceError> {
        match self.file.namespaces.get(name) {
            Some(definition) => registry::check_with_text(name, record, definition),
            // A name without a definition keeps the pinned text form.
            None if self.names.contains(name) => {
                registry::check(name, record, &Definition::snowflake(self.layout))
            }
            None => Ok(()),
        }
    }

    /// Returns the number of configured namespaces.
    pub fn count(&self) -> usize {
        let named = self.names.iter().filter(|name| !self.file.namespaces.contains_key(name));
        self.file.namespaces.len() + named.count()
    }

    /// Returns a warning for each namespace whose layout ends soon or has an unlikely epoch, at an instant in
    /// unix milliseconds.
    pub fn layout_warnings(&self, now_unix_ms: u64) -> Vec<String> {
        let warning = |(name, definition): (&NamespaceName, &Definition)| match &definition.scheme {
            Scheme::Snowflake { layout, .. } => {
                Some(format!("namespace {name}: {}", layout.expiry_warning(now_unix_ms)?))
            }
            _ => None,
        };
        self.file.namespaces.iter().filter_map(warning).collect()
    }

    /// Returns the configured namespaces of the service's own layout, without reading the store.
    pub(super) fn of_own_layout(&self) -> Vec<(NamespaceName, Definition)> {
        let plain = Definition::snowflake(self.layout);
        let in_file = self.file.namespaces.iter().filter(|(_, definition)| definition.scheme == plain.scheme);
        let named = self.names.iter().filter(|name| !self.file.namespaces.contains_key(name));
        let named = named.map(|name| (name.clone(), plain.clone()));
        in_file.map(|(name, definition)| (name.clone(), definition.clone())).chain(named).collect()
    }

    /// Returns a text that identifies the namespaces that can be served before the store has answered. If the
    /// text changes, other definitions may be pinned to the same names.
    pub fn fingerprint(&self) -> String {
        let namespaces = self.of_own_layout();
        let texts: Vec<_> =
            namespaces.iter().map(|(name, definition)| format!("{name}={definition}")).collect();
        texts.join(", ")
    }

    /// Returns this configuration with the settled records of the previous one.
    #[must_use]
    pub(super) fn replacing(self, previous: &Self) -> Self {
        Self { settled: Arc::clone(&previous.settled), ..self }
    }

    /// Waits until the records in the store have settled.
    pub(super) async fn settle(&self, store: &dyn Store) -> Result<(), StoreError> {
        self.settled.lock().await.settle(store).await.map(drop)
    }

    /// Returns the namespaces to serve, from the settled records. Lists the records if a change was
    /// announced, and once a minute.
    ///
    /// If the store has too many, those that are `served` now come first, so that no new namespace takes away
    /// another one. The namespaces of the flags and the file are not limited by the store.
    pub(super) async fn desired(
        &self,
        store: &dyn Store,
        served: &NamespaceTable,
    ) -> Result<Desired, StoreError> {
        let listed = self.settled.lock().await.follow(store).await?;
        let mut desired = Desired {
            recorded: listed.iter().map(|(name, _)| name.clone()).collect(),
            room: Room::among(&listed),
            ..Desired::default()
        };
        let mut of_store = Vec::new();
        for (name, record) in listed {
            let checked = NamespaceName::new(&name).map_err(|error: NamespaceNameError| error.to_string());
            match checked.and_then(|checked| Ok((checked, record?))) {
                Ok((name, record)) if record.dropped_unix_ms.is_some() => {
                    desired.dropped.insert(name, record);
                }
                Ok((name, record)) => {
                    desired.in_store += 1;
                    if self.names(&name) {
                        self.include(&mut desired, name, record);
                    } else if record.served_by == ServedBy::EveryNode {
                        of_store.push((name, record));
                    }
                }
                Err(why) => desired.unreadable.push((name, why)),
            }
        }
        if of_store.len() > MAX_SERVED_NAMESPACES {
            of_store.sort_by_key(|(name, _)| served.get(name).is_none());
            let beyond = of_store.split_off(MAX_SERVED_NAMESPACES);
            desired.left_out = beyond.into_iter().map(|(name, _)| name).collect();
        }
        for (name, record) in of_store {
            self.include(&mut desired, name, record);
        }
        Ok(desired)
    }

    /// Includes a namespace in those to serve.
    fn include(&self, desired: &mut Desired, name: NamespaceName, record: NamespaceRecord) {
        let in_file = self.file.namespaces.get(&name);
        // The file decides what may change; the record decides everything else.
        let follows =
            in_file.filter(|definition| registry::check_with_text(&name, &record, definition).is_ok());
        if !record.earlier_texts.is_empty() {
            desired.earlier_texts.insert(name.clone(), record.earlier_texts.clone());
        }
        let definition = follows.unwrap_or(&record.definition).clone();
        desired.namespaces.insert(name.clone(), definition);
        desired.records.insert(name, record);
    }

    /// Returns `true` if a flag or the namespace file names this namespace.
    pub(super) fn names(&self, name: &NamespaceName) -> bool {
        self.names.contains(name) || self.file.namespaces.contains_key(name)
    }

    /// Returns the hide keys of this node.
    pub(super) fn hide_keys(&self) -> &HideKeys {
        &self.hide_keys
    }

    /// Returns the logins of this node.
    pub(super) fn logins(&self) -> Arc<Logins> {
        Arc::clone(&self.logins)
    }

    /// Returns how unknown names become namespaces, if they do.
    pub(super) const fn auto_create(&self) -> Option<&AutoCreate> {
        self.file.auto_create.as_ref()
    }
}
