//! The checks of `add`: numbers are given once, in order, and only where there is a number to add to.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::history::{self, Added};
use super::{Area, Checked, Finding, Pace, ROUNDS, WRITERS, joined};
use crate::{Expected, Key, MAX_NUMBER, Store, StoreErrorKind, Swap};

/// An absent record counts as 0, and the sum stands in it as a number in decimal.
///
/// # Errors
///
/// What was found instead.
pub async fn adding_begins_at_0(area: &Area) -> Checked {
    let key = area.key("counter")?;
    // Beyond 2^53 as well, where a number that went through floating point is another.
    let counts = [1, 1, 9, 90, 1 << 53, 1, (1 << 62) - 1, 7];
    let mut sum = 0;
    for count in counts {
        let before = area.add(&key, count).await?;
        ensure!(before == sum, "{count} were added to {sum}, the store says to {before}");
        sum += count;
        let found = area.load(&key).await?.map(|it| it.value);
        ensure!(found == Some(sum.to_string().into_bytes()), "the sum is {sum}, the record holds {found:?}");
    }
    let names = area.names("").await?;
    ensure!(names == ["counter"], "the list is {names:?}");
    Ok(())
}

/// Additions and swaps of one key are writes of one record: revisions grow, and a swap at an old one is refused.
///
/// # Errors
///
/// What was found instead.
pub async fn adding_mixes_with_swaps(area: &Area) -> Checked {
    let key = area.key("counter")?;
    let first = area.write(&key, Expected::Absent, b"40").await?;
    let before = area.add(&key, 2).await?;
    ensure!(before == 40, "2 were added to 40, the store says to {before}");
    let stale = area.swap(&key, Expected::Revision(first), b"0").await?;
    ensure!(stale == Swap::Conflict, "a swap at the revision before an addition got {stale:?}");
    let absent = area.swap(&key, Expected::Absent, b"0").await?;
    ensure!(absent == Swap::Conflict, "an insert over what was added got {absent:?}");
    let Some(added) = area.load(&key).await? else {
        return Err(Finding("an addition left no record".to_owned()));
    };
    ensure!(added.value == b"42", "42 is {:?}", added.value);
    ensure!(added.revision > first, "an addition went from revision {first} to {}", added.revision);
    let lowered = area.write(&key, Expected::Revision(added.revision), b"7").await?;
    ensure!(lowered > added.revision, "a swap went from revision {} to {lowered}", added.revision);
    let before = area.add(&key, 1).await?;
    ensure!(before == 7, "1 was added to 7, the store says to {before}");
    // The first write of this one is an addition.
    let key = area.key("other")?;
    area.add(&key, 5).await?;
    let made = area.load(&key).await?.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
    area.write(&key, made, b"6").await?;
    let before = area.add(&key, 1).await?;
    ensure!(before == 6, "1 was added to 6, the store says to {before}");
    Ok(())
}

/// What is no plain decimal number is refused, and stays as it was.
///
/// # Errors
///
/// What was found instead.
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

/// A sum beyond [`MAX_NUMBER`] is refused and leaves the record as it was; up to there all is given.
///
/// # Errors
///
/// What was found instead.
pub async fn adding_stops_at_the_last_number(area: &Area) -> Checked {
    let key = area.key("counter")?;
    for count in [MAX_NUMBER + 1, u64::MAX] {
        let refused = area.add(&key, count).await.map_err(|error| error.kind());
        ensure!(refused == Err(StoreErrorKind::Full), "{count} added to nothing got {refused:?}");
        let found = area.load(&key).await?;
        ensure!(found.is_none(), "a refused addition made {found:?}");
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

/// Adds where that has to be refused and must change nothing.
async fn refuses(area: &Area, key: &Key, count: u64, kind: StoreErrorKind) -> Checked {
    let kept = area.load(key).await?;
    let refused = area.add(key, count).await;
    let shown = kept.as_ref().map(|it| String::from_utf8_lossy(&it.value[..it.value.len().min(40)]));
    ensure!(
        refused.as_ref().is_err_and(|error| error.kind() == kind),
        "{count} added to {shown:?} got {refused:?}, not the error {kind:?}"
    );
    let found = area.load(key).await?;
    ensure!(found == kept, "{shown:?} became {found:?} by an addition that was refused");
    Ok(())
}

/// What many writers add at once, each in steps of its own, shares no number, leaves none out, and grows in time.
///
/// # Errors
///
/// What in the history no order explains.
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
        // In every other round all come at once; in the rest each goes at its own pace.
        if round % 2 == 0 {
            pace.barrier.wait().await;
        }
        let start = pace.tick();
        let first = area.add(key, count).await?;
        added.push(Added { start, end: pace.tick(), first, count });
    }
    Ok(added)
}

/// Numbers that were given are not given again after the store is opened anew.
///
/// # Errors
///
/// What was found instead.
pub async fn added_numbers_survive_reopening(
    area: &Area,
    open: &impl AsyncFn() -> Arc<dyn Store>,
) -> Checked {
    let key = area.key("counter")?;
    area.add(&key, 1000).await?;
    area.add(&key, 234).await?;
    let before = area.through(open().await).add(&key, 1).await?;
    ensure!(before == 1234, "1234 numbers were given, on reopening the next one is {before}");
    Ok(())
}
