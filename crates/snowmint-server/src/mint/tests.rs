//! Tests of the mint against a source without a store, under a clock that is moved by hand.
//! Both sides of every bound, and every way to be refused.

use super::*;
use crate::limits::MAX_COUNT;
use crate::status::Kind;
use crate::testing::{TestSource, mint, mint_of};

const LAYOUT: Layout = Layout::TWITTER;

fn one(mint: &Mint<TestSource>, name: &[u8]) -> Result<Option<Id>, MintError> {
    let mut caller = mint.caller();
    let (namespace, callers) = caller.find(name)?;
    Ok(namespace.try_one(callers)?.map(|number| Id::new(number).unwrap()))
}

fn try_take(mint: &Mint<TestSource>, count: usize) -> Result<Taken, MintError> {
    let mut caller = mint.caller();
    let (namespace, callers) = caller.find(b"default")?;
    namespace.try_take(callers, count)
}

async fn take(mint: &Mint<TestSource>, name: &[u8], count: usize) -> Result<Ids, MintError> {
    let mut caller = mint.caller();
    let (namespace, callers) = caller.find(name)?;
    namespace.take(callers, count).await
}

#[tokio::test]
async fn ids_increase_over_calls_and_ticks() {
    let mint = mint();
    let mut last = one(&mint, b"default").unwrap().unwrap();
    for count in [1, 4096, MAX_COUNT] {
        let ids = take(&mint, b"default", count).await.unwrap();
        assert_eq!(ids.len(), count);
        let mut seen = 0;
        for id in ids {
            let Minted::Number(id) = id else { panic!("{id:?} of a layout") };
            let id = Id::new(id).unwrap();
            assert!(id > last, "{id} after {last}");
            last = id;
            seen += 1;
        }
        assert_eq!(seen, count);
    }
}

#[tokio::test]
async fn a_count_out_of_range_takes_nothing() {
    let mint = mint();
    let before = one(&mint, b"default").unwrap().unwrap();
    for count in [0, MAX_COUNT + 1, usize::MAX] {
        let error = take(&mint, b"default", count).await.unwrap_err();
        assert!(matches!(error, MintError::BadCount { limit: MAX_COUNT, .. }), "{error}");
    }
    let after = one(&mint, b"default").unwrap().unwrap();
    assert!(
        after > before && LAYOUT.split(after).unwrap().timestamp == LAYOUT.split(before).unwrap().timestamp
    );
}

#[test]
fn namespaces_are_found_by_their_whole_name() {
    let mint = mint();
    let mut caller = mint.caller();
    for name in ["default", "orders", "orders", "default"] {
        assert_eq!(caller.find(name.as_bytes()).unwrap().0.name().as_str(), name);
    }
    for unknown in ["Default", "defaul", "defaultx", "a"] {
        let error = caller.find(unknown.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), Kind::UnknownNamespace, "{unknown}");
        assert!(error.to_string().contains("it has default, orders:"), "{error}");
    }
    for bad in [&b""[..], b"a b", b"\xff", b"a/b", &[b'a'; 65]] {
        assert_eq!(caller.find(bad).unwrap_err().kind(), Kind::BadNamespace, "{}", bad.escape_ascii());
    }
}

#[test]
fn long_lists_of_namespaces_are_cut() {
    let names = (10..30).map(|n| NamespaceName::new(&format!("n{n}")).unwrap());
    let mint = Mint::new(names, TestSource::new(LAYOUT), LAYOUT, DatacenterId(1));
    let error = mint.caller().find(b"x").unwrap_err().to_string();
    assert!(error.contains("n19 and 10 more"), "{error}");
}

#[test]
fn without_a_lease_nothing_is_made_and_the_reason_is_told() {
    let source = TestSource::new(LAYOUT);
    let mint = mint_of(source.clone(), LAYOUT);
    source.set_lease(false);
    let error = one(&mint, b"default").unwrap_err();
    assert_eq!(error.to_string(), "no ids can be made now: no lease is held: the store does not answer");
    assert_eq!(error.kind(), Kind::NotReady);
    assert_eq!(try_take(&mint, 5).unwrap_err().kind(), Kind::NotReady);
    assert!(mint.check_ready().is_err());
    source.set_lease(true);
    assert!(mint.check_ready().is_ok());
}

#[test]
fn a_clock_far_behind_is_told_with_a_time_to_come_back() {
    let source = TestSource::new(LAYOUT);
    let mint = mint_of(source.clone(), LAYOUT);
    one(&mint, b"default").unwrap();
    source.clock().set_unix_ms(crate::testing::START_UNIX_MS - 5000);
    let error = one(&mint, b"default").unwrap_err();
    assert_eq!(error.kind(), Kind::ClockBehind);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
}

/// Goal: a request that cannot be met in time is told so, and by how much. Method: time stands still but for
/// the timer.
#[tokio::test(start_paused = true)]
async fn a_wait_is_bounded() {
    let source = TestSource::new(LAYOUT);
    let mint = mint_of(source.clone(), LAYOUT);
    source.set_stuck(true);
    let error = take(&mint, b"default", MAX_COUNT).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "100000 ids could not be made within 10s, a worker of this layout makes 4096000 a second: ask again, or for \
         fewer at once"
    );
}

#[test]
fn inspect_takes_only_ids_of_the_layout() {
    let mint = mint();
    let id = one(&mint, b"default").unwrap().unwrap();
    let inspection = mint.inspect(id.to_string().as_bytes()).unwrap();
    assert_eq!((inspection.parts.worker.0, inspection.parts.datacenter.0), (3, 1));
    assert_eq!(inspection.unix_ms(), crate::testing::START_UNIX_MS);
    for bad in [&b""[..], b"x", b"-1", b"9223372036854775808", b"1.0", b" 1", b"\xff"] {
        assert_eq!(mint.inspect(bad).unwrap_err().kind(), Kind::BadId, "{}", bad.escape_ascii());
    }
    let narrow: Layout = "time:31@1s worker:10 sequence:12 epoch:2020-01-01".parse().unwrap();
    let mint = mint_of(
        TestSource::new("time:31@1s datacenter:2 worker:8 sequence:12 epoch:2020-01-01".parse().unwrap()),
        narrow,
    );
    let error = mint.inspect(b"9223372036854775807").unwrap_err();
    assert!(error.to_string().contains("another layout made it"), "{error}");
}
