//! What a record remembers of the sources of its namespace: which numbers each gives, from when it was first used.
//! Two nodes that never see the same source at one time compare what they saw by the record.

use snowmint_store::Store;

use super::super::counter_source::CounterSource;
use super::super::definition::{Definition, NumberSource, Scheme};
use super::super::name::NamespaceName;
use super::super::numbers::{Numbers, NumbersError};
use super::super::record::NamespaceRecord;
use super::{NamespaceError, Next, alive, check, missing, settle, update};

/// What a source may give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// These numbers.
    pub numbers: Numbers,
    /// Whether the record remembered it before, or was written for it.
    pub was: Recorded,
}

/// Whether a record remembered the numbers of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It did.
    Before,
    /// It was written for it.
    Now,
}

/// Remembers which numbers a source of a namespace gives, or compares them with what is remembered: what it may give, once
/// that has settled. `wanted` is the namespace as this node serves it, and `nth` the place of the source in it.
///
/// A source is used only after this, and then gives no number outside of what is returned.
///
/// # Errors
///
/// [`NamespaceError::Numbers`] where it overlaps another source of the namespace, whether that is there now or not, or gives
/// other numbers than at first; [`NamespaceError::Missing`], [`NamespaceError::Dropped`] and [`NamespaceError::Mismatch`]
/// where the namespace is not what this node serves any more; or the store's.
pub async fn claim_numbers(
    store: &dyn Store,
    name: &NamespaceName,
    wanted: &Definition,
    nth: usize,
    found: Numbers,
) -> Result<Claimed, NamespaceError> {
    let mut was = Recorded::Before;
    let mut claimed = |record: Option<NamespaceRecord>| -> Result<Next, NamespaceError> {
        let mut record = record.ok_or_else(|| missing(store, name))?;
        check(name, &record, wanted)?;
        if may_give(name, &record, nth, found)?.is_some() {
            return Ok(Next::Keep(record));
        }
        if record.numbers.len() <= nth {
            record.numbers.resize(nth + 1, None);
        }
        record.numbers[nth] = Some(found);
        was = Recorded::Now;
        Ok(Next::Write(record))
    };
    loop {
        let record = update(store, name, &mut claimed).await?;
        match settle(store, name, &record).await {
            // Another source of it was claimed meanwhile, or the claim was lost.
            Err(NamespaceError::Unsettled { .. }) => {}
            Ok(()) => {
                let numbers = record.numbers.get(nth).copied().flatten().unwrap_or(found);
                return Ok(Claimed { numbers, was });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Changes where the sources of a namespace are, under the same stripes. What is remembered of their numbers stays.
///
/// The caller knows that each new place is the same counter as the one in `compared`, or goes on above all that this gave
/// while it gives no more: here their texts alone are compared.
///
/// # Errors
///
/// [`NamespaceError::Mismatch`] for another number of sources, another stripe, or another system;
/// [`NamespaceError::OtherSources`] where its sources are not those in `compared` any more;
/// [`NamespaceError::Missing`], [`NamespaceError::Dropped`], [`NamespaceError::Sources`], or the store's.
pub async fn move_sources(
    store: &dyn Store,
    name: &NamespaceName,
    compared: &[CounterSource],
    sources: &[CounterSource],
) -> Result<NamespaceRecord, NamespaceError> {
    let moved = |record: Option<NamespaceRecord>| -> Result<Next, NamespaceError> {
        let mut record = record.ok_or_else(|| missing(store, name))?;
        alive(name, &record)?;
        let before = record.definition.clone();
        if let Scheme::Segment(segment) = &mut record.definition.scheme {
            let may_move = match &segment.source {
                NumberSource::Own(_) => false,
                NumberSource::Other(old) if old != compared && old != sources => {
                    let found = before.to_string();
                    return Err(NamespaceError::OtherSources { name: name.clone(), found });
                }
                NumberSource::Other(old) => {
                    old.len() == sources.len() && old.iter().zip(sources).all(|(old, new)| old.is_alike(new))
                }
            };
            segment.source = NumberSource::Other(sources.to_vec());
            if may_move {
                return Ok(Next::Write(record));
            }
        }
        before.may_become(&record.definition, name)?;
        Ok(Next::Keep(record))
    };
    update(store, name, moved).await
}

/// What is remembered of a source that gives these numbers now; `None` where nothing is.
///
/// # Errors
///
/// [`NamespaceError::Numbers`], as for [`claim_numbers`].
pub fn may_give(
    name: &NamespaceName,
    record: &NamespaceRecord,
    nth: usize,
    found: Numbers,
) -> Result<Option<Numbers>, NamespaceError> {
    let refused = |source| Err(NamespaceError::Numbers { name: name.clone(), source });
    let text = |nth: usize| match &record.definition.scheme {
        Scheme::Segment(segment) => match &segment.source {
            NumberSource::Other(sources) => sources.get(nth).map(ToString::to_string),
            NumberSource::Own(_) => None,
        },
        _ => None,
    };
    let shown = |nth| text(nth).unwrap_or_else(|| format!("number {nth}"));
    let recorded = record.numbers.get(nth).copied().flatten();
    if let Some(recorded) = recorded.filter(|recorded| !recorded.contains(found)) {
        return refused(NumbersError::Changed { source_text: shown(nth), recorded, found });
    }
    // Also where it is recorded: a record of an earlier version may hold two that overlap.
    let given = recorded.unwrap_or(found);
    let others = record.numbers.iter().enumerate().filter_map(|(at, it)| Some((at, (*it)?)));
    match others.into_iter().find(|(at, theirs)| *at != nth && theirs.overlaps(given)) {
        Some((at, theirs)) => refused(NumbersError::Overlap {
            one: shown(at),
            one_numbers: theirs,
            other: shown(nth),
            other_numbers: given,
        }),
        None => Ok(recorded),
    }
}
