//! Checks the sources of a namespace: that their numbers are disjoint, and that a source may move to another
//! place.

use std::sync::Arc;

use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::{
    CounterSource, Definition, Logins, NamespaceRecord, NumberSource, Numbers, NumbersError, Scheme,
    SegmentScheme, SourceRefusal, registry,
};
use snowmint_cluster::segment::{Mode, SegmentConfig, Stripe};
use snowmint_store::{Counter, Key, OpenError, Store, StoreError, raise_settled};

use super::Change;
use crate::AdminError;

/// How many numbers two counters give in turns to show that they are the same.
const TURNS: usize = 4;

/// The numbers that each source gives, with its index in the definition.
pub(super) type Found = Vec<(usize, Numbers)>;

/// Checks that the counters of other systems exist and give no number twice, also compared with the sources
/// in `before`. A counter that is unreachable from here is only a warning: the nodes may reach it.
///
/// The same holds for one whose login is unknown here.
pub(super) async fn check(
    name: &NamespaceName,
    definition: &Definition,
    before: Option<&NamespaceRecord>,
    logins: &Logins,
    warnings: &mut Vec<String>,
) -> Result<Found, AdminError> {
    let Scheme::Segment(segment) = &definition.scheme else { return Ok(Found::new()) };
    let NumberSource::Other(sources) = &segment.source else { return Ok(Found::new()) };
    let mut found = Found::new();
    for (nth, source) in sources.iter().enumerate().filter(|(_, source)| source.is_takeover()) {
        let url = match logins.url(source) {
            Ok(url) => url,
            Err(error @ SourceRefusal::UnknownLogin { .. }) => {
                warnings.push(format!("not checked from here; each node needs the login: {error}"));
                continue;
            }
            Err(error) => return Err(AdminError::setting("sources", error)),
        };
        let opened = async {
            let counter = snowmint_store::open_counter(url.as_str()).await?;
            Ok((counter, snowmint_store::survey(url.as_str()).await?))
        };
        match opened.await {
            Ok((counter, counters)) => {
                if segment.mode == Mode::Direct {
                    SegmentConfig::check_direct(counter.may_lose(), &counter.describe())
                        .map_err(|error| AdminError::setting("sources", error))?;
                }
                found.extend(counters.counters.first().map(|counter| (nth, Numbers::of(counter))));
            }
            Err(error) if error.is_temporary() => {
                warnings.push(format!("source {source}: unreachable from here, so not checked: {error}"));
            }
            Err(OpenError::Url(error)) => return Err(AdminError::setting("sources", error)),
            Err(error) => return Err(error.into()),
        }
    }
    let pairs =
        found.iter().enumerate().flat_map(|(at, one)| found[..at].iter().map(move |other| (other, one)));
    for ((one, theirs), (other, ours)) in pairs {
        if theirs.overlaps(*ours) {
            let error = NumbersError::Overlap {
                one: sources[*one].to_string(),
                one_numbers: *theirs,
                other: sources[*other].to_string(),
                other_numbers: *ours,
            };
            return Err(AdminError::setting("sources", error));
        }
    }
    if let Some(before) = before {
        for (nth, numbers) in &found {
            registry::may_give(name, before, *nth, *numbers)?;
        }
    }
    Ok(found)
}

/// Records the numbers of each source in the store.
pub(super) async fn remember(
    store: &dyn Store,
    name: &NamespaceName,
    definition: &Definition,
    found: &Found,
) -> Result<(), AdminError> {
    if let Scheme::Segment(SegmentScheme { source: NumberSource::Other(sources), .. }) = &definition.scheme
        && sources.len() > 1
    {
        for (nth, numbers) in found {
            registry::claim_numbers(store, name, definition, *nth, *numbers).await?;
        }
    }
    Ok(())
}

/// Checks that the new places of the sources give no number that the old ones gave or will give.
pub(super) async fn check_move(
    name: &NamespaceName,
    record: &NamespaceRecord,
    sources: &[CounterSource],
    change: &Change,
) -> Result<(), AdminError> {
    let (logins, above) = (&change.logins, change.above);
    let Scheme::Segment(segment) = &record.definition.scheme else { return Ok(()) };
    let NumberSource::Other(old) = &segment.source else { return Ok(()) };
    for (old, new) in old.iter().zip(sources).filter(|(old, new)| !old.is_same(new)) {
        if segment.reset.is_some() {
            let why = format!(
                "{new} is another place than {old}, and the numbers of {name} restart with each period: use a new namespace"
            );
            return Err(AdminError::setting("sources", why));
        }
        let key =
            Key::new(segment.counter_key(name)).map_err(|error| AdminError::Failed(error.to_string()))?;
        let counter = open(new, &key, logins).await.map_err(|error| {
            AdminError::Failed(format!(
                "source {new}: unreachable from here, so not comparable with {old}: {error}"
            ))
        })?;
        let refused = |why: String| Err(AdminError::setting("sources", why));
        match (open(old, &key, logins).await, above) {
            (Ok(before), _) if are_one(&*before, &*counter).await? => {}
            (Ok(_), _) => {
                return refused(format!(
                    "{new} and {old} both answer and are two counters, which would give numbers twice: stop the old one for \
                     good, then set `above` to the highest number that it can have given"
                ));
            }
            (Err(_), Some(number)) => raise(&*counter, number, new).await?,
            (Err(error), None) => {
                return refused(format!(
                    "{old} does not answer, so it cannot be compared with {new}: once nothing writes there any more, set \
                     `above` to the highest number that it can have given; its error: {error}"
                ));
            }
        }
    }
    Ok(())
}

/// Raises the counter of a source above a number, and waits until no failover can take that back.
async fn raise(counter: &dyn Counter, number: u64, source: &CounterSource) -> Result<(), AdminError> {
    if raise_settled(counter, number).await? {
        return Ok(());
    }
    Err(AdminError::setting("above", format!("{source}: its counter does not go above {number}")))
}

/// Opens the counter of a source.
async fn open(source: &CounterSource, key: &Key, logins: &Logins) -> Result<Arc<dyn Counter>, String> {
    let url = logins.url(source).map_err(|error| error.to_string())?;
    let opened = async {
        if source.is_takeover() {
            return snowmint_store::open_counter(url.as_str()).await;
        }
        let store = snowmint_store::open(url.as_str()).await?;
        let stripe = source.stripe().unwrap_or(Stripe::WHOLE);
        Ok(Arc::new(stripe.counter(store, key.clone(), 1)) as Arc<dyn Counter>)
    };
    opened.await.map_err(|error| match &error {
        OpenError::Store(refusal) => match source.missing_login(refusal) {
            Some(remedy) => format!("{error}; {remedy}"),
            None => error.to_string(),
        },
        _ => error.to_string(),
    })
}

/// Returns whether two counters are the same: the numbers that they give in turns grow, and both are on one
/// server. On two servers the numbers can grow too, if each replicates the other, or if both count in steps
/// as ticket servers do.
async fn are_one(one: &dyn Counter, other: &dyn Counter) -> Result<bool, StoreError> {
    let mut last = None;
    for _ in 0..TURNS {
        for counter in [one, other] {
            let first = counter.reserve(std::num::NonZeroU64::MIN).await?.first();
            if last.is_some_and(|last| first <= last) {
                return Ok(false);
            }
            last = Some(first);
        }
    }
    Ok(match (one.server(), other.server()) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    })
}
