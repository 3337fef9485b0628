//! The checks of a store that works: one record, lists, many writers at once, and `add`.

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::history::{self, Added, Event, Seen};
use super::{Area, Checked, Finding, Pace, ROUNDS, WRITERS, joined};
use crate::{Expected, Key, MAX_NUMBER, Revision, Store, StoreErrorKind, Swap, Versioned};

/// A key that was never written has no record, and no list finds it.
///
/// # Errors
///
/// The violation.
pub async fn absent_loads_none(area: &Area) -> Checked {
    let found = area.load(&area.key("absent")?).await?;
    ensure!(found.is_none(), "a key never written has {found:?}");
    let names = area.names("").await?;
    ensure!(names.is_empty(), "a prefix never written has {names:?}");
    Ok(())
}

/// A write that expects no record succeeds once.
///
/// # Errors
///
/// The violation.
pub async fn insert_happens_once(area: &Area) -> Checked {
    let key = area.key("record")?;
    let revision = area.write(&key, Expected::Absent, b"first").await?;
    let again = area.swap(&key, Expected::Absent, b"second").await?;
    ensure!(again == Swap::Conflict, "the second insert got {again:?}");
    let found = area.load(&key).await?;
    let first = Some(Versioned { value: b"first".to_vec(), revision });
    ensure!(found == first, "wrote {first:?}, loaded {found:?}");
    Ok(())
}

/// A write that expects a revision succeeds at that revision and at no other.
///
/// # Errors
///
/// The violation.
pub async fn swap_needs_the_revision(area: &Area) -> Checked {
    let key = area.key("record")?;
    let first = area.write(&key, Expected::Absent, b"0").await?;
    let second = area.write(&key, Expected::Revision(first), b"1").await?;
    let third = area.write(&key, Expected::Revision(second), b"2").await?;
    let never = [0, third.0 + 1, third.0 + 1000, i64::MAX as u64, 1 << 63, u64::MAX].map(Revision);
    for wrong in [first, second].into_iter().chain(never) {
        let got = area.swap(&key, Expected::Revision(wrong), b"lost").await?;
        ensure!(got == Swap::Conflict, "the record is at {third}, a write at {wrong} got {got:?}");
    }
    area.write(&key, Expected::Revision(third), b"3").await?;
    Ok(())
}

/// A conflict neither changes the record nor creates one.
///
/// # Errors
///
/// The violation.
pub async fn conflict_changes_nothing(area: &Area) -> Checked {
    let (absent, present) = (area.key("absent")?, area.key("present")?);
    let got = area.swap(&absent, Expected::Revision(Revision(1)), b"lost").await?;
    ensure!(got == Swap::Conflict, "a write at a revision where there is no record got {got:?}");
    let found = area.load(&absent).await?;
    ensure!(found.is_none(), "a conflict created a record: {found:?}");

    let first = area.write(&present, Expected::Absent, b"0").await?;
    let second = area.write(&present, Expected::Revision(first), b"1").await?;
    let got = area.swap(&present, Expected::Revision(first), b"lost").await?;
    ensure!(got == Swap::Conflict, "a write at a stale revision got {got:?}");
    let (found, kept) = (area.load(&present).await?, Versioned { value: b"1".to_vec(), revision: second });
    ensure!(found.as_ref() == Some(&kept), "after a conflict {kept:?} is {found:?}");
    Ok(())
}

/// Every write of a key gets a greater revision than the one before, even if the value is the same.
///
/// # Errors
///
/// The violation.
pub async fn revisions_grow(area: &Area) -> Checked {
    let (key, other) = (area.key("record")?, area.key("other")?);
    let mut at = area.write(&key, Expected::Absent, b"same").await?;
    let mut other_at = area.write(&other, Expected::Absent, b"same").await?;
    for step in 0_u8..50 {
        // Every third value differs, so that the record also returns to an earlier value.
        let value: &[u8] = if step % 3 == 0 { b"different" } else { b"same" };
        let next = area.write(&key, Expected::Revision(at), value).await?;
        ensure!(next > at, "step {step} went from revision {at} to {next}");
        let found = area.load(&key).await?.map(|it| it.revision);
        ensure!(found == Some(next), "step {step} was acknowledged at {next} and is loaded at {found:?}");
        let stale = area.swap(&key, Expected::Revision(at), value).await?;
        ensure!(stale == Swap::Conflict, "step {step} could be made twice: {stale:?}");
        other_at = area.write(&other, Expected::Revision(other_at), value).await?;
        at = next;
    }
    Ok(())
}

/// Keys that differ in one byte, or in the case of one letter, are different records.
///
/// # Errors
///
/// The violation.
pub async fn keys_are_apart(area: &Area) -> Checked {
    let long = "k".repeat(200 - area.prefix.len());
    let names = ["a", "A", "a.", "a/a", "a/A", "a-a", "a_a", "a:a", "a=a", "a@a", "01", "1", "1.0", &long];
    for name in names {
        area.write(&area.key(name)?, Expected::Absent, name.as_bytes()).await?;
    }
    for name in names {
        let found = area.load(&area.key(name)?).await?.map(|it| it.value);
        ensure!(found.as_deref() == Some(name.as_bytes()), "{name} holds {found:?}");
    }
    Ok(())
}

/// The store returns values of every length up to 64 KiB, and with every byte, unchanged.
///
/// # Errors
///
/// The violation.
pub async fn values_come_back(area: &Area) -> Checked {
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let large: Vec<u8> = every_byte.iter().rev().copied().cycle().take(64 * 1024).collect();
    let values: [&[u8]; 7] = [b"", &every_byte, &large, b"\0", b"", b"a\0b\xff\xfe", b"'; --"];
    let key = area.key("record")?;
    let mut expected = Expected::Absent;
    for (nth, value) in values.into_iter().enumerate() {
        let revision = area.write(&key, expected, value).await?;
        let found = area.load(&key).await?;
        let same = found.as_ref().is_some_and(|it| it.value == value && it.revision == revision);
        let length = found.map(|it| it.value.len());
        ensure!(same, "value {nth} of {} bytes comes back with {length:?} bytes or changed", value.len());
        let listed = area.store.list(key.as_str()).await?;
        ensure!(listed.len() == 1 && listed[0].1.value == value, "a list shows value {nth} changed");
        expected = Expected::Revision(revision);
    }
    Ok(())
}

/// After the store is reopened, records keep their values and revisions, and further writes succeed.
///
/// # Errors
///
/// The violation.
pub async fn records_survive_reopening(area: &Area, open: &impl AsyncFn() -> Arc<dyn Store>) -> Checked {
    let key = area.key("record")?;
    let first = area.write(&key, Expected::Absent, b"first").await?;
    let revision = area.write(&key, Expected::Revision(first), b"second").await?;
    let kept = Some(Versioned { value: b"second".to_vec(), revision });
    let reopened = area.through(open().await);
    let found = reopened.load(&key).await?;
    ensure!(found == kept, "wrote {kept:?}, found {found:?} on reopening");
    let names = reopened.names("").await?;
    ensure!(names == ["record"], "the list on reopening is {names:?}");
    let next = reopened.write(&key, Expected::Revision(revision), b"third").await?;
    ensure!(next > revision, "revision {next} on reopening is not above {revision}");
    Ok(())
}

/// Number of records in the longest list.
const MANY: usize = 10_000;

/// A list holds the keys that start with the prefix, byte by byte, and no others.
///
/// # Errors
///
/// The violation.
pub async fn list_is_by_prefix(area: &Area) -> Checked {
    let names = [
        "workers/A/1",
        "workers/a",
        "workers/a/1",
        "workers/a/2",
        "workers/a_b/1",
        "workers/ab/1",
        "workers/axb/1",
        "workers/b/1",
        "workersa/1",
    ];
    for name in names {
        area.write(&area.key(name)?, Expected::Absent, b"").await?;
    }
    let cases: [(&str, &[&str]); 9] = [
        ("", &names),
        ("workers/a/", &["workers/a/1", "workers/a/2"]),
        ("workers/ab/", &["workers/ab/1"]),
        // `_` stands for any character in some query languages, `%` and `*` for any text.
        ("workers/a_b/", &["workers/a_b/1"]),
        ("workers/a%", &[]),
        ("workers/*", &[]),
        ("workers/A", &["workers/A/1"]),
        ("workers/a/2", &["workers/a/2"]),
        ("workers/c/", &[]),
    ];
    for (prefix, wanted) in cases {
        let found = area.names(prefix).await?;
        ensure!(found == wanted, "list of `{prefix}` is {found:?}, not {wanted:?}");
    }
    Ok(())
}

/// A list is sorted by the bytes of its keys, whatever the order of the writes.
///
/// # Errors
///
/// The violation.
pub async fn list_is_in_order(area: &Area) -> Checked {
    let mut names =
        ["z", "a", "_", "Z", "A", "@", "=", ":", "9", "10", "2", "a/b", "a.b", "a-b", "a/a/z", "-"];
    for name in names {
        area.write(&area.key(name)?, Expected::Absent, b"").await?;
    }
    names.sort_unstable();
    let found = area.names("").await?;
    ensure!(found == names, "the list is {found:?}, not {names:?}");
    Ok(())
}

/// A list of 10,000 records is complete, with the value and the revision of each.
///
/// # Errors
///
/// The violation.
pub async fn list_is_whole(area: &Area) -> Checked {
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        let area = area.clone();
        tasks.spawn(async move {
            let mut written = Vec::new();
            for nth in (writer..MANY).step_by(WRITERS) {
                let (key, value) = (area.key(format_args!("{nth:05}"))?, nth.to_string().into_bytes());
                let revision = area.write(&key, Expected::Absent, &value).await?;
                written.push((key, Versioned { value, revision }));
            }
            Ok(written)
        });
    }
    let mut written: Vec<_> = joined(tasks).await?.into_iter().flatten().collect();
    written.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let found = area.store.list(&area.prefix).await?;
    ensure!(found.len() == MANY, "{MANY} records were written, the list has {}", found.len());
    let wrong = written.iter().zip(&found).find(|(written, found)| written != found);
    ensure!(wrong.is_none(), "written and listed differ: {wrong:?}");
    Ok(())
}

/// Concurrent swaps and reads of one record by many writers are linearizable.
///
/// # Errors
///
/// The part of the history that no order of the calls explains.
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
    // Each successful swap can make at most one pending swap of each other writer fail.
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
        // In every other round, all writers swap at the same time; in the others, swaps and reads mix.
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

/// If many writers create the same record at the same time, exactly one succeeds.
///
/// # Errors
///
/// The violation.
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

/// A write through one handle is visible through every other handle at once.
///
/// # Errors
///
/// The violation.
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

/// An absent record counts as 0; after an addition, the record holds the sum as a decimal number.
///
/// # Errors
///
/// The violation.
pub async fn adding_begins_at_0(area: &Area) -> Checked {
    let key = area.key("counter")?;
    // Includes sums beyond 2^53, which a conversion to floating point changes.
    let counts = [1, 1, 9, 90, 1 << 53, 1, (1 << 62) - 1, 7];
    let mut sum = 0;
    for count in counts {
        let before = area.add(&key, count).await?;
        ensure!(before == sum, "{count} were added to {sum}, the store returned {before}");
        sum += count;
        let found = area.load(&key).await?.map(|it| it.value);
        ensure!(found == Some(sum.to_string().into_bytes()), "the sum is {sum}, the record holds {found:?}");
    }
    let names = area.names("").await?;
    ensure!(names == ["counter"], "the list is {names:?}");
    Ok(())
}

/// Additions and swaps of one key are writes of one record: revisions grow, and a swap at an old revision is
/// rejected.
///
/// # Errors
///
/// The violation.
pub async fn adding_mixes_with_swaps(area: &Area) -> Checked {
    let key = area.key("counter")?;
    let first = area.write(&key, Expected::Absent, b"40").await?;
    let before = area.add(&key, 2).await?;
    ensure!(before == 40, "2 were added to 40, the store returned {before}");
    let stale = area.swap(&key, Expected::Revision(first), b"0").await?;
    ensure!(stale == Swap::Conflict, "a swap at the revision before an addition got {stale:?}");
    let absent = area.swap(&key, Expected::Absent, b"0").await?;
    ensure!(absent == Swap::Conflict, "an insert over an existing counter got {absent:?}");
    let Some(added) = area.load(&key).await? else {
        return Err(Finding("an addition left no record".to_owned()));
    };
    ensure!(added.value == b"42", "expected 42, found {:?}", added.value);
    ensure!(added.revision > first, "an addition went from revision {first} to {}", added.revision);
    let lowered = area.write(&key, Expected::Revision(added.revision), b"7").await?;
    ensure!(lowered > added.revision, "a swap went from revision {} to {lowered}", added.revision);
    let before = area.add(&key, 1).await?;
    ensure!(before == 7, "1 was added to 7, the store returned {before}");
    // The first write of this record is an addition.
    let key = area.key("other")?;
    area.add(&key, 5).await?;
    let made = area.load(&key).await?.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
    area.write(&key, made, b"6").await?;
    let before = area.add(&key, 1).await?;
    ensure!(before == 6, "1 was added to 6, the store returned {before}");
    Ok(())
}

/// An addition to a value that is not a plain decimal number is rejected and does not change it.
///
/// # Errors
///
/// The violation.
pub async fn adding_refuses_text(area: &Area) -> Checked {
    let long = "1".repeat(64 * 1024);
    let texts: [&[u8]; 17] = [
        b"",
        b"text",
        b"-1",
        b"+1",
        b"007",
        b"00",
        b" 1",
        b"1 ",
        b"1\n",
        b"\n1",
        b"1\0",
        b"1.0",
        b"1e3",
        b"0x10",
        b"\xff\xfe",
        "\u{661}".as_bytes(),
        long.as_bytes(),
    ];
    for (nth, text) in texts.into_iter().enumerate() {
        let key = area.key(nth)?;
        area.write(&key, Expected::Absent, text).await?;
        refuses(area, &key, 1, StoreErrorKind::Corrupt).await?;
    }
    Ok(())
}

/// A sum above [`MAX_NUMBER`] is rejected and does not change the record; every number up to it can be
/// reserved.
///
/// # Errors
///
/// The violation.
pub async fn adding_stops_at_the_last_number(area: &Area) -> Checked {
    let key = area.key("counter")?;
    for count in [MAX_NUMBER + 1, u64::MAX] {
        let refused = area.add(&key, count).await.map_err(|error| error.kind());
        ensure!(refused == Err(StoreErrorKind::Full), "{count} added to an absent record got {refused:?}");
        let found = area.load(&key).await?;
        ensure!(found.is_none(), "a rejected addition created {found:?}");
    }
    area.add(&key, MAX_NUMBER - 10).await?;
    for count in [11, MAX_NUMBER, MAX_NUMBER + 1, u64::MAX] {
        refuses(area, &key, count, StoreErrorKind::Full).await?;
    }
    let before = area.add(&key, 10).await?;
    ensure!(before == MAX_NUMBER - 10, "the last 10 numbers begin at {before}");
    refuses(area, &key, 1, StoreErrorKind::Full).await?;
    for (nth, beyond) in
        ["9223372036854775808", "18446744073709551616", "99999999999999999999"].iter().enumerate()
    {
        let key = area.key(nth)?;
        area.write(&key, Expected::Absent, beyond.as_bytes()).await?;
        refuses(area, &key, 1, StoreErrorKind::Corrupt).await?;
    }
    Ok(())
}

/// Checks that an addition is rejected with an error of this kind and changes nothing.
async fn refuses(area: &Area, key: &Key, count: u64, kind: StoreErrorKind) -> Checked {
    let kept = area.load(key).await?;
    let refused = area.add(key, count).await;
    let shown = kept.as_ref().map(|it| String::from_utf8_lossy(&it.value[..it.value.len().min(40)]));
    ensure!(
        refused.as_ref().is_err_and(|error| error.kind() == kind),
        "{count} added to {shown:?} got {refused:?}, not the error {kind:?}"
    );
    let found = area.load(key).await?;
    ensure!(found == kept, "a rejected addition changed {shown:?} to {found:?}");
    Ok(())
}

/// Concurrent additions of different sizes get disjoint numbers without gaps, and later calls get greater
/// numbers.
///
/// # Errors
///
/// The part of the history that no order of the calls explains.
pub async fn adders_share_no_number(area: &Area, handles: &[Arc<dyn Store>]) -> Checked {
    let key = area.key("counter")?;
    let pace = Arc::new(Pace::new());
    let mut tasks = JoinSet::new();
    for (count, store) in (1..).zip(handles.iter().cycle()).take(WRITERS) {
        let (area, key, pace) = (area.through(Arc::clone(store)), key.clone(), Arc::clone(&pace));
        tasks.spawn(async move { add_in_turns(&area, &key, &pace, count).await });
    }
    let added: Vec<Added> = joined(tasks).await?.into_iter().flatten().collect();
    let sum = history::check_additions(&added)?;
    let found = area.load(&key).await?.map(|it| it.value);
    ensure!(found == Some(sum.to_string().into_bytes()), "{sum} were added, the record holds {found:?}");
    Ok(())
}

async fn add_in_turns(area: &Area, key: &Key, pace: &Pace, count: u64) -> Result<Vec<Added>, Finding> {
    let mut added = Vec::new();
    for round in 0..ROUNDS {
        // In every other round, all writers add at the same time; in the others, each at its own pace.
        if round % 2 == 0 {
            pace.barrier.wait().await;
        }
        let start = pace.tick();
        let first = area.add(key, count).await?;
        added.push(Added { start, end: pace.tick(), first, count });
    }
    Ok(added)
}

/// After the store is reopened, no number is returned a second time.
///
/// # Errors
///
/// The violation.
pub async fn added_numbers_survive_reopening(
    area: &Area,
    open: &impl AsyncFn() -> Arc<dyn Store>,
) -> Checked {
    let key = area.key("counter")?;
    area.add(&key, 1000).await?;
    area.add(&key, 234).await?;
    let before = area.through(open().await).add(&key, 1).await?;
    ensure!(before == 1234, "1234 numbers were reserved; after reopening, the next one is {before}");
    Ok(())
}
