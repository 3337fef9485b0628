//! The checks of one record: written once, replaced at its revision, kept as it was.

use std::sync::Arc;

use super::{Area, Checked};
use crate::{Expected, Revision, Store, Swap, Versioned};

/// A key that was never written has no record, and no list finds it.
///
/// # Errors
///
/// What was found instead.
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
/// What was found instead.
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
/// What was found instead.
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

/// A conflict leaves the record as it was, and an absent one absent.
///
/// # Errors
///
/// What was found instead.
pub async fn conflict_changes_nothing(area: &Area) -> Checked {
    let (absent, present) = (area.key("absent")?, area.key("present")?);
    let got = area.swap(&absent, Expected::Revision(Revision(1)), b"lost").await?;
    ensure!(got == Swap::Conflict, "a write at a revision where there is no record got {got:?}");
    let found = area.load(&absent).await?;
    ensure!(found.is_none(), "a conflict made a record: {found:?}");

    let first = area.write(&present, Expected::Absent, b"0").await?;
    let second = area.write(&present, Expected::Revision(first), b"1").await?;
    let got = area.swap(&present, Expected::Revision(first), b"lost").await?;
    ensure!(got == Swap::Conflict, "a write at a stale revision got {got:?}");
    let (found, kept) = (area.load(&present).await?, Versioned { value: b"1".to_vec(), revision: second });
    ensure!(found.as_ref() == Some(&kept), "after a conflict {kept:?} is {found:?}");
    Ok(())
}

/// Every write of a key has a greater revision than the one before, also where the value is the same.
///
/// # Errors
///
/// What was found instead.
pub async fn revisions_grow(area: &Area) -> Checked {
    let (key, other) = (area.key("record")?, area.key("other")?);
    let mut at = area.write(&key, Expected::Absent, b"same").await?;
    let mut other_at = area.write(&other, Expected::Absent, b"same").await?;
    for step in 0_u8..50 {
        // Every third value differs, so that the record also comes back to a value it had before.
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
/// What was found instead.
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

/// Values of every length up to 64 KiB, and of every byte, come back as they were.
///
/// # Errors
///
/// What was found instead.
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
        ensure!(listed.len() == 1 && listed[0].1.value == value, "value {nth} is another in a list");
        expected = Expected::Revision(revision);
    }
    Ok(())
}

/// Records are there, with their revisions, when the store is opened anew, and can be written from there.
///
/// # Errors
///
/// What was found instead.
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
