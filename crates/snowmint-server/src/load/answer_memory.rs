//! Bounds the bytes of answers that wait for their clients to read them.
//!
//! An answer counts until its last byte is written or dropped. Each connection may hold a long answer,
//! whatever others hold; what it holds beyond that counts for all connections together. Of this it may take
//! at most half of what it leaves to others: however few connections are greedy, the next one gets its part.
//! Past a limit a request fails before it draws ids. An answer to a change is never refused, since the change
//! has taken place.
//!
//! # Source
//!
//! Choudhury and Hahne, *Dynamic Queue Length Thresholds for Shared-Memory Packet Switches*, 1998.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::limits::unread::{ALL, CONNECTION, OWN};
use crate::load::memory_trimmer::MemoryTrimmer;
use crate::status::ErrorKind;

/// The memory of all connections for answers.
#[derive(Debug)]
pub(crate) struct AnswerMemory {
    /// Bytes beyond what each connection may always hold.
    shared: AtomicUsize,
    trimmer: Arc<MemoryTrimmer>,
}

impl AnswerMemory {
    pub(crate) fn new(trimmer: Arc<MemoryTrimmer>) -> Arc<Self> {
        Arc::new(Self { shared: AtomicUsize::new(0), trimmer })
    }

    /// Returns the memory of a new connection.
    pub(crate) fn connection(self: &Arc<Self>) -> ConnectionAnswers {
        ConnectionAnswers(Arc::new(Connection { held: Mutex::new(0), all: Arc::clone(self) }))
    }

    /// Takes bytes for a connection that then has `part` of what is shared, unless its limit is reached. A
    /// single answer may be larger than the limit.
    fn take(&self, bytes: usize, part: usize) -> Result<(), Full> {
        if bytes == 0 {
            return Ok(());
        }
        let fits = |taken: usize| {
            let after = taken + bytes;
            (taken == 0 || after + 2 * part <= ALL).then_some(after)
        };
        let taken = self.shared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|_| Full::All)
    }
}

/// The memory of one connection for answers.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionAnswers(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    held: Mutex<usize>,
    all: Arc<AnswerMemory>,
}

/// Why an answer cannot be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Full {
    #[error(
        "the unread answers of this connection reached {} MiB: read answers before you send more requests",
        CONNECTION >> 20
    )]
    Connection,
    #[error(
        "the unread answers of this connection would need over half of what is left of {} MiB for all connections: read \
         answers before you send more requests, or retry later",
        ALL >> 20
    )]
    All,
}

impl Full {
    pub(crate) const KIND: ErrorKind = ErrorKind::TooManyUnread;
    pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);
}

/// The part of the bytes that counts for all connections together.
const fn shared(held: usize) -> usize {
    held.saturating_sub(OWN)
}

impl ConnectionAnswers {
    /// Holds the memory of an answer.
    pub(crate) fn hold(&self, bytes: usize) -> Result<Held, Full> {
        let mut held = self.lock();
        let after = *held + bytes;
        if *held > 0 && after > CONNECTION {
            return Err(Full::Connection);
        }
        self.0.all.take(shared(after) - shared(*held), shared(after))?;
        *held = after;
        self.0.all.trimmer.holds(bytes);
        Ok(Held { bytes, connection: self.clone() })
    }

    /// Returns `true` if this connection holds more than it always may.
    pub(crate) fn is_sharing(&self) -> bool {
        shared(*self.lock()) > 0
    }

    /// Returns `true` if this connection holds memory that others need.
    pub(crate) fn hinders_others(&self) -> bool {
        self.is_sharing() && self.0.all.shared.load(Ordering::Relaxed) > ALL / 2
    }

    /// Holds the memory of an answer that must not be refused.
    pub(crate) fn hold_anyway(&self, bytes: usize) -> Held {
        let mut held = Held { bytes: 0, connection: self.clone() };
        held.resize(bytes);
        held
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        // Each change is one addition.
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory of one answer, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: usize,
    connection: ConnectionAnswers,
}

impl Held {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the size of the answer, once it is known.
    pub(crate) fn resize(&mut self, bytes: usize) {
        let Connection { all, .. } = &*self.connection.0;
        let mut held = self.connection.lock();
        let before = shared(*held);
        *held = *held - self.bytes + bytes;
        let after = shared(*held);
        if after > before {
            all.shared.fetch_add(after - before, Ordering::Relaxed);
        } else {
            all.shared.fetch_sub(before - after, Ordering::Relaxed);
        }
        all.trimmer.holds(bytes);
        all.trimmer.released(self.bytes);
        self.bytes = bytes;
    }

    /// Returns the bytes, which hold this memory until the last part of them is dropped.
    pub(crate) fn of(self: Arc<Self>, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(HeldBytes { bytes, _held: self })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.resize(0);
    }
}

/// Bytes of an answer with their memory.
struct HeldBytes<T> {
    bytes: T,
    _held: Arc<Held>,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for HeldBytes<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Arc<AnswerMemory> {
        AnswerMemory::new(Arc::default())
    }

    #[test]
    fn a_connection_holds_up_to_its_limit() {
        let memory = memory();
        let (greedy, other) = (memory.connection(), memory.connection());
        let mut all: Vec<_> = (0..CONNECTION / OWN).map(|_| greedy.hold(OWN).unwrap()).collect();
        assert_eq!(greedy.hold(1).unwrap_err(), Full::Connection);
        assert!(other.hold(OWN).is_ok());
        all.pop();
        assert!(greedy.hold(OWN).is_ok(), "it was given back");
        drop(all);
        assert_eq!((*greedy.lock(), memory.shared.load(Ordering::Relaxed)), (0, 0));
    }

    /// Goal: whatever greedy connections hold, each connection still gets a long answer, several if few are
    /// greedy, and all once theirs are given back.
    #[test]
    fn each_connection_has_a_part() {
        let memory = memory();
        let greedy: Vec<_> = (0..1000).map(|_| memory.connection()).collect();
        let all_of = |connection: &ConnectionAnswers| -> Vec<_> {
            std::iter::from_fn(|| connection.hold(OWN).ok()).collect()
        };
        let mut held = Vec::new();
        // How many long answers an honest connection gets beside so many greedy ones.
        let mut left = Vec::new();
        for connection in &greedy {
            held.push(all_of(connection));
            left.push(all_of(&memory.connection()).len());
        }
        assert_eq!(held[0].len(), CONNECTION / OWN);
        assert!(left[5] > 8 && left[999] == 1, "{left:?}");
        assert!(left.is_sorted_by(|more, fewer| more >= fewer), "{left:?}");
        assert!(memory.shared.load(Ordering::Relaxed) <= ALL && greedy[0].hinders_others());
        let honest = memory.connection();
        let answer = honest.hold(OWN).unwrap();
        assert_eq!(honest.hold(OWN).unwrap_err(), Full::All);
        assert!(!honest.hinders_others(), "its only answer is its own part");
        let change = honest.hold_anyway(CONNECTION);
        held.clear();
        drop((answer, change));
        assert_eq!(memory.shared.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_answer_may_be_larger_than_the_limits() {
        let memory = memory();
        let connection = memory.connection();
        let large = connection.hold(2 * ALL).unwrap();
        assert_eq!(connection.hold(1).unwrap_err(), Full::Connection);
        assert_eq!(memory.connection().hold(2 * OWN).unwrap_err(), Full::All);
        drop(large);
        assert!(connection.hold(2 * OWN).is_ok());
    }

    /// Goal: an answer counts until the last piece of its bytes is dropped.
    #[test]
    fn bytes_hold_their_memory() {
        let memory = memory();
        let connection = memory.connection();
        let mut held = connection.hold(10 * OWN).unwrap();
        held.resize(2 * OWN);
        let mut bytes = Arc::new(held).of(vec![7; 2 * OWN]);
        let piece = bytes.split_to(10);
        drop(bytes);
        assert_eq!((*connection.lock(), memory.shared.load(Ordering::Relaxed)), (2 * OWN, OWN));
        drop(piece);
        assert_eq!((*connection.lock(), memory.shared.load(Ordering::Relaxed)), (0, 0));
    }
}
