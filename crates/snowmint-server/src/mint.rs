//! The mint: who asks for ids of which namespace, how many, and what an id says. No protocol appears here.
//! It is the only caller of the keeper; budget of `try_one` is what one id costs the keeper.

mod error;
mod inspect;

use std::future::Future;
use std::iter::FusedIterator;
use std::vec;

use snowmint::{Batch, DatacenterId, Id, Layout, Refusal, Snippet};
use snowmint_cluster::{Keeper, LeaseStatus, NamespaceName, NoId};

pub use error::{MintError, NotAnId};
pub use inspect::{Inspection, Value};

use crate::limits::{MAX_COUNT, MAX_WAIT};

/// Names that an error lists before it says how many more there are.
const NAMES_SHOWN: usize = 10;

/// Where ids come from: a [`Keeper`], or in tests a generator without a store.
pub trait Source: Send + Sync + 'static {
    /// Takes 1 to `count` ids. Never waits.
    ///
    /// # Errors
    ///
    /// [`NoId`] when there is none now.
    fn try_take(&self, count: usize) -> Result<Batch, NoId>;

    /// Takes exactly `count` ids; waits asleep while a tick is used up.
    ///
    /// # Errors
    ///
    /// [`NoId`] when waiting is no answer.
    ///
    /// # Cancel safety
    ///
    /// Ids that were taken when it is dropped are lost, and given to no one else.
    fn take(&self, count: usize) -> impl Future<Output = Result<Vec<Batch>, NoId>> + Send;

    /// How the lease stands.
    fn status(&self) -> LeaseStatus;
}

impl Source for Keeper {
    fn try_take(&self, count: usize) -> Result<Batch, NoId> {
        Self::try_take(self, count)
    }

    async fn take(&self, count: usize) -> Result<Vec<Batch>, NoId> {
        Self::take(self, count).await
    }

    fn status(&self) -> LeaseStatus {
        Self::status(self)
    }
}

/// Makes ids for the namespaces it was given, all of one layout, and reads ids of that layout.
#[derive(Debug)]
pub struct Mint<S> {
    /// Sorted, so that a name is found without hashing.
    namespaces: Box<[NamespaceName]>,
    source: S,
    layout: Layout,
    datacenter: DatacenterId,
}

/// A namespace that this mint has: who holds one has looked it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace(usize);

impl Namespace {
    /// Its position in [`Mint::namespaces`].
    pub const fn index(self) -> usize {
        self.0
    }
}

/// What [`Mint::try_take`] got without waiting.
#[derive(Debug)]
pub enum Taken {
    /// All of them.
    All(Ids),
    /// The tick was used up before there were enough: [`Mint::wait`] gets the rest.
    Part(Part),
}

/// The ids that could be had at once, and how many are still missing.
#[derive(Debug)]
#[must_use = "ids that are not read are lost"]
pub struct Part {
    first: Option<Batch>,
    missing: usize,
}

impl<S: Source> Mint<S> {
    /// A mint of these namespaces, which the caller has pinned to `layout`.
    pub fn new(
        namespaces: impl IntoIterator<Item = NamespaceName>,
        source: S,
        layout: Layout,
        datacenter: DatacenterId,
    ) -> Self {
        let mut namespaces: Vec<_> = namespaces.into_iter().collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        Self { namespaces: namespaces.into(), source, layout, datacenter }
    }

    /// Finds a namespace by its name. Nothing is ever created by asking.
    ///
    /// # Errors
    ///
    /// [`MintError::UnknownNamespace`] says which exist; [`MintError::BadNamespace`] for what is no name at all.
    #[inline]
    pub fn namespace(&self, name: &[u8]) -> Result<Namespace, MintError> {
        if let [only] = &*self.namespaces
            && only.as_str().as_bytes() == name
        {
            return Ok(Namespace(0));
        }
        self.namespaces
            .binary_search_by(|namespace| namespace.as_str().as_bytes().cmp(name))
            .map(Namespace)
            .map_err(|_| self.unknown(name))
    }

    #[cold]
    fn unknown(&self, name: &[u8]) -> MintError {
        let text = String::from_utf8_lossy(name);
        let name = Snippet::of(&text);
        if NamespaceName::new(&text).is_err() {
            return MintError::BadNamespace { name };
        }
        let shown: Vec<_> = self.namespaces.iter().take(NAMES_SHOWN).map(NamespaceName::as_str).collect();
        let known = match self.namespaces.len() {
            0 => "none".to_owned(),
            n if n > NAMES_SHOWN => format!("{} and {} more", shown.join(", "), n - NAMES_SHOWN),
            _ => shown.join(", "),
        };
        MintError::UnknownNamespace { name, known }
    }

    /// The next id, or `None` when a short wait would bring one. Never waits.
    ///
    /// # Errors
    ///
    /// [`MintError`] when waiting is no answer.
    #[inline]
    pub fn try_one(&self, _namespace: Namespace) -> Result<Option<Id>, MintError> {
        match self.source.try_take(1) {
            Ok(mut batch) => Ok(batch.next()),
            Err(no_id) => self.worth_waiting(no_id, 1).map(|()| None),
        }
    }

    /// Takes `count` ids, as many as can be had without waiting.
    ///
    /// # Errors
    ///
    /// [`MintError`]; a count out of range is refused before anything is taken.
    pub fn try_take(&self, _namespace: Namespace, count: usize) -> Result<Taken, MintError> {
        if !(1..=MAX_COUNT).contains(&count) {
            let value = Snippet::of(&count.to_string());
            return Err(MintError::BadCount { value, limit: MAX_COUNT });
        }
        match self.source.try_take(count) {
            Ok(batch) if batch.len() == count => Ok(Taken::All(Ids::of(Some(batch), Vec::new()))),
            Ok(batch) => {
                let missing = count - batch.len();
                Ok(Taken::Part(Part { first: Some(batch), missing }))
            }
            Err(no_id) => {
                self.worth_waiting(no_id, count)?;
                Ok(Taken::Part(Part { first: None, missing: count }))
            }
        }
    }

    /// Waits for the ids that are missing, asleep, for as long as a request may wait.
    ///
    /// # Errors
    ///
    /// [`MintError`]; the ids of `part` are then lost, and were given to no one.
    pub async fn wait(&self, part: Part) -> Result<Ids, MintError> {
        let Part { first, missing } = part;
        let count = missing + first.as_ref().map_or(0, Batch::len);
        match tokio::time::timeout(MAX_WAIT, self.source.take(missing)).await {
            Ok(Ok(rest)) => Ok(Ids::of(first, rest)),
            Ok(Err(no_id)) => Err(self.refused(no_id, count)),
            Err(_) => Err(MintError::Busy { count, ids_per_second: self.layout.ids_per_second_per_worker() }),
        }
    }

    /// Takes `count` ids of a namespace, 1 to [`MAX_COUNT`]; waits asleep while a tick is used up.
    ///
    /// # Errors
    ///
    /// [`MintError`]; bad input changes nothing.
    ///
    /// # Cancel safety
    ///
    /// Ids that were taken when it is dropped are lost, and given to no one else.
    pub async fn take(&self, namespace: Namespace, count: usize) -> Result<Ids, MintError> {
        match self.try_take(namespace, count)? {
            Taken::All(ids) => Ok(ids),
            Taken::Part(part) => self.wait(part).await,
        }
    }

    #[cold]
    fn worth_waiting(&self, no_id: NoId, count: usize) -> Result<(), MintError> {
        match no_id {
            NoId::Refused(refusal) if refusal.retry_after_ms().is_some() => Ok(()),
            // The generator of a lease that ended; the one that follows it is about to be there.
            NoId::Refused(Refusal::Ended) => Ok(()),
            no_id => Err(self.refused(no_id, count)),
        }
    }

    fn refused(&self, no_id: NoId, count: usize) -> MintError {
        MintError::from_no_id(no_id, count, self.layout.ids_per_second_per_worker())
    }

    /// Whether ids can be made now. It makes one, which nobody gets: only that proves lease and clock at once.
    ///
    /// # Errors
    ///
    /// [`MintError`] says what is missing.
    pub fn check_ready(&self) -> Result<(), MintError> {
        self.try_one(Namespace(0)).map(|_| ())
    }

    /// Takes an id in decimal apart.
    ///
    /// # Errors
    ///
    /// [`MintError::BadId`] for what is no id, or not one of this layout.
    pub fn inspect(&self, text: &[u8]) -> Result<Inspection, MintError> {
        let text = String::from_utf8_lossy(text);
        let bad = |why: NotAnId| MintError::BadId { text: Snippet::of(&text), why };
        let id: Id = text.parse().map_err(|error| bad(NotAnId::Text(error)))?;
        let parts = self.layout.split(id).map_err(|error| bad(error.into()))?;
        Ok(Inspection { id, layout: self.layout, parts })
    }

    /// The namespaces, sorted by name.
    pub fn namespaces(&self) -> &[NamespaceName] {
        &self.namespaces
    }

    /// The layout of every id.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The datacenter that is written into every id.
    pub const fn datacenter(&self) -> DatacenterId {
        self.datacenter
    }

    /// How the lease stands.
    pub fn status(&self) -> LeaseStatus {
        self.source.status()
    }
}

/// Ids that were taken together: nothing is computed until one is read, however many they are.
#[derive(Debug)]
#[must_use = "ids that are not read are lost"]
pub struct Ids {
    current: Option<Batch>,
    rest: vec::IntoIter<Batch>,
    len: usize,
}

impl Ids {
    fn of(first: Option<Batch>, rest: Vec<Batch>) -> Self {
        let len = first.iter().chain(&rest).map(Batch::len).sum();
        Self { current: first, rest: rest.into_iter(), len }
    }
}

impl Iterator for Ids {
    type Item = Id;

    #[inline]
    fn next(&mut self) -> Option<Id> {
        loop {
            if let Some(id) = self.current.as_mut().and_then(Iterator::next) {
                self.len -= 1;
                return Some(id);
            }
            self.current = Some(self.rest.next()?);
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl ExactSizeIterator for Ids {}
impl FusedIterator for Ids {}

#[cfg(test)]
mod tests;
