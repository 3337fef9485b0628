//! The checks of many writers at once, through several handles.

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::history::{self, Event, Seen};
use super::{Area, Checked, Finding, Pace, ROUNDS, WRITERS, joined};
use crate::{Expected, Key, Store, Swap, Versioned};

/// Swaps of one record by many writers at once, and the reads between them, have one order that explains them all.
///
/// # Errors
///
/// What in the history no order explains.
pub async fn writers_make_one_line(area: &Area, handles: &[Arc<dyn Store>]) -> Checked {
    let key = area.key("record")?;
    let pace = Arc::new(Pace::new());
    let mut tasks = JoinSet::new();
    for (writer, store) in (0..WRITERS).zip(handles.iter().cycle()) {
        let (area, key, pace) = (area.through(Arc::clone(store)), key.clone(), Arc::clone(&pace));
        tasks.spawn(async move { write_in_turns(&area, &key, &pace, writer).await });
    }
    let events: Vec<Event> = joined(tasks).await?.into_iter().flatten().collect();
    history::check(&events)?;
    // Each swap that happened can have upset one pending swap of each other writer, not more.
    let done = events.iter().filter(|it| matches!(it.seen, Seen::Swapped { .. })).count();
    ensure!(done >= ROUNDS, "only {done} of {} swaps happened", WRITERS * ROUNDS);
    Ok(())
}

async fn write_in_turns(area: &Area, key: &Key, pace: &Pace, writer: usize) -> Result<Vec<Event>, Finding> {
    let mut events = Vec::new();
    for round in 0..ROUNDS {
        let start = pace.tick();
        let found = area.load(key).await?;
        events.push(Event { start, end: pace.tick(), seen: Seen::Read(found.clone()) });
        // In every other round all swaps come at once; in the rest they meet the reads of others.
        if round % 2 == 0 {
            pace.barrier.wait().await;
        } else {
            tokio::task::yield_now().await;
        }
        let expected = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
        let value = format!("writer {writer} round {round}").into_bytes();
        let start = pace.tick();
        let seen = match area.swap(key, expected, &value).await? {
            Swap::Done(revision) => Seen::Swapped { expected, wrote: Versioned { value, revision } },
            Swap::Conflict => Seen::Refused { expected },
        };
        events.push(Event { start, end: pace.tick(), seen });
    }
    Ok(events)
}

/// Of many writers that create the same record at once, one does.
///
/// # Errors
///
/// What was found instead.
pub async fn one_of_many_inserts(area: &Area, handles: &[Arc<dyn Store>]) -> Checked {
    for nth in 0..20 {
        let key = area.key(nth)?;
        let barrier = Arc::new(Barrier::new(WRITERS));
        let mut tasks = JoinSet::new();
        for (writer, store) in (0..WRITERS).zip(handles.iter().cycle()) {
            let (area, key, barrier) = (area.through(Arc::clone(store)), key.clone(), Arc::clone(&barrier));
            tasks.spawn(async move {
                barrier.wait().await;
                Ok(area.swap(&key, Expected::Absent, &writer.to_be_bytes()).await?)
            });
        }
        let swaps = joined(tasks).await?;
        let done = swaps.iter().filter(|it| matches!(it, Swap::Done(_))).count();
        ensure!(done == 1, "{done} of {WRITERS} writers created the same record");
    }
    Ok(())
}

/// What one handle has written, every other handle sees at once.
///
/// # Errors
///
/// What was found instead.
pub async fn handles_see_each_other(area: &Area, handles: &[Arc<dyn Store>]) -> Checked {
    let key = area.key("record")?;
    let mut expected = Expected::Absent;
    for (nth, writer) in handles.iter().cycle().take(40).enumerate() {
        let value = nth.to_string().into_bytes();
        let revision = area.through(Arc::clone(writer)).write(&key, expected, &value).await?;
        let wrote = Some(Versioned { value, revision });
        for reader in handles {
            let found = reader.load(&key).await?;
            ensure!(found == wrote, "one handle wrote {wrote:?}, another loads {found:?}");
        }
        expected = Expected::Revision(revision);
    }
    Ok(())
}
