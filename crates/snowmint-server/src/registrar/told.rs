//! What a node is told to serve: names on its command line, a file, and what the store says is for every node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use snowmint::Layout;
use snowmint_cluster::namespace::{
    AutoCreate, Definition, MAX_NAMESPACES, NamespaceError, NamespaceFile, NamespaceFileError,
    NamespaceRecord, Reach, TextForm, registry,
};
use snowmint_cluster::{NamespaceName, NamespaceNameError};
use snowmint_store::{Store, StoreError, StoreReach};
use tokio::sync::Mutex;

/// Where a node is told what to serve.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Snowflake namespaces of the layout, by name.
    pub names: Vec<NamespaceName>,
    /// A file of namespaces.
    pub file: Option<PathBuf>,
    /// The layout of the service.
    pub layout: Layout,
}

/// What a node was told, as it stood when it was read.
#[derive(Clone, Debug)]
pub struct Told {
    names: Vec<NamespaceName>,
    file: NamespaceFile,
    layout: Layout,
    /// What the store is known to keep; clones share it.
    settled: Arc<Mutex<registry::Settled>>,
}

/// What is to be served.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) namespaces: BTreeMap<NamespaceName, Definition>,
    /// The text forms that they had before, where they had some.
    pub(super) earlier_texts: BTreeMap<NamespaceName, Vec<Option<TextForm>>>,
    /// Namespaces of the store that are not dropped.
    pub(super) in_store: usize,
    /// Records that cannot be read, with why: what is served of them stays as it is.
    pub(super) unreadable: Vec<(String, String)>,
    /// Everything that the store has a record of, dropped or not.
    pub(super) recorded: BTreeSet<String>,
    /// The records of `namespaces`.
    pub(super) records: BTreeMap<NamespaceName, NamespaceRecord>,
    /// The records of those that were dropped.
    pub(super) dropped: BTreeMap<NamespaceName, NamespaceRecord>,
}

/// Why what a node is told cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToldError {
    /// The file cannot be read.
    #[error("cannot read the namespaces of {path}: {source}")]
    Unread {
        /// The file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The file says what cannot be.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        source: NamespaceFileError,
    },
    /// What it says goes against the store.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

impl From<StoreError> for ToldError {
    fn from(error: StoreError) -> Self {
        Self::Namespace(error.into())
    }
}

impl Sources {
    /// Reads the file, where there is one.
    ///
    /// # Errors
    ///
    /// [`ToldError::Unread`] and [`ToldError::File`].
    pub fn read(&self) -> Result<Told, ToldError> {
        let file = match &self.file {
            None => NamespaceFile::default(),
            Some(path) => {
                let shown = || path.display().to_string();
                let text = std::fs::read_to_string(path)
                    .map_err(|source| ToldError::Unread { path: shown(), source })?;
                NamespaceFile::parse(&text, &self.layout)
                    .map_err(|source| ToldError::File { path: shown(), source })?
            }
        };
        Ok(Told { names: self.names.clone(), file, layout: self.layout, settled: Arc::default() })
    }
}

impl Told {
    /// Writes into the store what is told and not there yet, once all of it was checked against what is there. Waits until
    /// all that is told has settled: for as long as the store may lose it.
    ///
    /// # Errors
    ///
    /// [`ToldError::Namespace`]; nothing was written, unless another node wrote at the same moment.
    pub async fn pin(&self, store: &dyn Store) -> Result<(), ToldError> {
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
                // What settled may be another node's.
                return self.check(store.reach(), &settled);
            }
        }
    }

    async fn write(&self, store: &dyn Store) -> Result<(), ToldError> {
        let plain = Definition::snowflake(self.layout);
        self.check(store.reach(), &registry::list(store).await?)?;
        let named = self.names.iter().filter(|name| !self.file.namespaces.contains_key(name));
        for (name, wanted) in &self.file.namespaces {
            registry::define(store, name, wanted).await?;
        }
        for name in named {
            registry::pin(store, name, &plain).await?;
        }
        Ok(())
    }

    fn check(&self, reach: StoreReach, listed: &[registry::Listed]) -> Result<(), ToldError> {
        let records: BTreeMap<&str, &NamespaceRecord> =
            listed.iter().filter_map(|(name, record)| Some((name.as_str(), record.as_ref().ok()?))).collect();
        for (name, wanted) in &self.file.namespaces {
            let checked = wanted.check_sources(reach);
            checked.map_err(|source| NamespaceError::Sources { name: name.clone(), source })?;
        }
        let told = self.file.namespaces.keys().chain(&self.names);
        let mut recorded = told.filter_map(|name| Some((name, records.get(name.as_str())?)));
        Ok(recorded.try_for_each(|(name, record)| self.check_record(name, record))?)
    }

    /// Checks that a record is what the flags or the file of this node say of its name.
    pub(super) fn check_record(
        &self,
        name: &NamespaceName,
        record: &NamespaceRecord,
    ) -> Result<(), NamespaceError> {
        match self.file.namespaces.get(name) {
            Some(wanted) => registry::check_with_text(name, record, wanted),
            // A name alone keeps the text form that is pinned.
            None if self.names.contains(name) => {
                registry::check(name, record, &Definition::snowflake(self.layout))
            }
            None => Ok(()),
        }
    }

    /// What is told of the layout of the service, without a look into the store.
    pub(super) fn of_own_layout(&self) -> Vec<(NamespaceName, Definition)> {
        let plain = Definition::snowflake(self.layout);
        let in_file = self.file.namespaces.iter().filter(|(_, told)| told.scheme == plain.scheme);
        let named = self.names.iter().filter(|name| !self.file.namespaces.contains_key(name));
        let named = named.map(|name| (name.clone(), plain.clone()));
        in_file.map(|(name, told)| (name.clone(), told.clone())).chain(named).collect()
    }

    /// One text of the namespaces that can be served before the store has answered, and of how they are told: under
    /// another text it may be that other ids are pinned to the same names.
    pub fn fingerprint(&self) -> String {
        let told = self.of_own_layout();
        let told: Vec<String> = told.iter().map(|(name, told)| format!("{name}={told}")).collect();
        told.join(", ")
    }

    /// The same, in the place of what was told before: what has settled stays so.
    #[must_use]
    pub(super) fn in_place_of(self, before: &Self) -> Self {
        Self { settled: Arc::clone(&before.settled), ..self }
    }

    /// Waits until what is in the store has settled.
    pub(super) async fn settle(&self, store: &dyn Store) -> Result<(), StoreError> {
        self.settled.lock().await.settle(store).await.map(drop)
    }

    /// What is to be served as the store stands now, as far as it has settled: its records are listed when a change was told,
    /// and once a minute.
    pub(super) async fn wanted(&self, store: &dyn Store) -> Result<Wanted, StoreError> {
        let listed = self.settled.lock().await.follow(store).await?;
        let mut wanted =
            Wanted { recorded: listed.iter().map(|(name, _)| name.clone()).collect(), ..Wanted::default() };
        for (name, record) in listed {
            let checked = NamespaceName::new(&name).map_err(|error: NamespaceNameError| error.to_string());
            match checked.and_then(|checked| Ok((checked, record?))) {
                Ok((name, record)) => self.consider(&mut wanted, name, record),
                Err(why) => wanted.unreadable.push((name, why)),
            }
        }
        Ok(wanted)
    }

    fn consider(&self, wanted: &mut Wanted, name: NamespaceName, record: NamespaceRecord) {
        if record.dropped_unix_ms.is_some() {
            wanted.dropped.insert(name, record);
            return;
        }
        wanted.in_store += 1;
        let in_file = self.file.namespaces.get(&name);
        let is_told = record.reach == Reach::Everywhere || self.tells(&name);
        if is_told && wanted.namespaces.len() < MAX_NAMESPACES {
            // What may change is as in the file, all else as it is pinned.
            let follows = in_file.filter(|wanted| registry::check_with_text(&name, &record, wanted).is_ok());
            if !record.earlier_texts.is_empty() {
                wanted.earlier_texts.insert(name.clone(), record.earlier_texts.clone());
            }
            let definition = follows.unwrap_or(&record.definition).clone();
            wanted.namespaces.insert(name.clone(), definition);
            wanted.records.insert(name, record);
        }
    }

    /// Whether a flag or the file names it.
    pub(super) fn tells(&self, name: &NamespaceName) -> bool {
        self.names.contains(name) || self.file.namespaces.contains_key(name)
    }

    /// What unknown names become.
    pub(super) const fn auto_create(&self) -> Option<&AutoCreate> {
        self.file.auto_create.as_ref()
    }
}
