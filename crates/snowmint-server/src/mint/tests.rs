//! Tests of the mint against a source without a store, under a clock that is moved by hand.
//! Both sides of every bound, and every way to be refused.

use snowmint_cluster::namespace::Fields;

use super::*;
use crate::limits::MAX_COUNT;
use crate::status::Kind;
use crate::testing::{TestSource, mint, mint_of};

const LAYOUT: Layout = Layout::TWITTER;

fn one(mint: &Mint, name: &[u8]) -> Result<Option<Id>, MintError> {
    let mut caller = mint.caller();
    let (namespace, callers) = caller.find(name)?;
    Ok(namespace.try_one(callers)?.map(|number| Id::new(number).unwrap()))
}

fn try_take(mint: &Mint, count: usize) -> Result<Taken, MintError> {
    let mut caller = mint.caller();
    let (namespace, callers) = caller.find(b"default")?;
    namespace.try_take(callers, count)
}

async fn take(mint: &Mint, name: &[u8], count: usize) -> Result<Ids, MintError> {
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

fn anything(mint: &Mint, text: &[u8]) -> Result<Inspection, MintError> {
    mint.inspect(text, InspectBy::Anything)
}

#[test]
fn inspect_reads_what_the_mint_wrote_and_no_other_text() {
    let mint = mint();
    let id = one(&mint, b"default").unwrap().unwrap();
    let inspection = anything(&mint, id.to_string().as_bytes()).unwrap();
    let likeliest = inspection.likeliest();
    let Decoded::Snowflake { parts, .. } = likeliest.decoded else { panic!("{inspection:?}") };
    assert_eq!((parts.worker.0, parts.datacenter.0), (3, 1));
    assert_eq!(likeliest.decoded.unix_ms(), Some(crate::testing::START_UNIX_MS));
    assert_eq!(likeliest.namespaces, ["default", "orders"]);
    for bad in [&b""[..], b"x", b"-1", b"9223372036854775808", b"1.0", b"\xff"] {
        assert_eq!(anything(&mint, bad).unwrap_err().kind(), Kind::BadId, "{}", bad.escape_ascii());
    }
}

/// A mint of namespaces that only read.
fn mint_of_definitions(definitions: &[(&str, Fields)]) -> Mint {
    let mint = mint();
    let wall: SharedClock = Arc::new(WallClock);
    let namespace = |(name, fields): &(&str, Fields)| {
        let name = NamespaceName::new(name).unwrap();
        let definition = fields.clone().define(&LAYOUT).unwrap();
        Arc::new(Namespace::new(name, definition, Maker::Missing("".into()), &wall))
    };
    mint.serve(definitions.iter().map(namespace).collect());
    mint
}

fn fields(scheme: &str, layout: &str, text: &str) -> Fields {
    Fields {
        scheme: scheme.to_owned(),
        layout: layout.parse().ok(),
        text: text.parse().ok(),
        ..Fields::default()
    }
}

/// Goal: an id is read by the namespace or layout that is named, and by the one that it fits where none is. Method: an id
/// of layout `game`, which the service's own layout reads as one of 2013, and one text of each kind.
#[test]
fn inspect_goes_by_what_is_named_or_by_what_fits() {
    let game: Layout = "game".parse().unwrap();
    let now = WallClock.unix_ms();
    let timestamp = game.timestamp_at(now).unwrap();
    let id = game.compose(&snowmint::Parts { timestamp, ..snowmint::Parts::default() }).unwrap().to_string();
    let mint = mint_of_definitions(&[
        ("default", fields("snowflake", "", "")),
        ("keys", fields("uuid7", "", "key_{id}")),
        ("orders", fields("segment", "", "ORD-{alphabet=zyxwvutsrq}")),
        ("players", fields("snowflake", "game", "")),
        ("users", fields("snowflake", "", "U{base58:11}")),
    ]);
    let shown = |inspection: Inspection| {
        let likeliest = inspection.likeliest();
        (likeliest.decoded.name().into_owned(), likeliest.form, likeliest.namespaces.clone())
    };
    let named = |name: &str, form, namespaces: &[&str]| {
        (name.to_owned(), form, namespaces.iter().map(|&it| it.to_owned()).collect::<Vec<_>>())
    };
    let by = |text: &str, by| shown(mint.inspect(text.as_bytes(), by).unwrap());
    let key = "key_017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
    for (text, name, form, namespace) in [
        (&*id, "game", "decimal", "players"),
        (key, "uuid7", "uuid7", "keys"),
        ("ORD-yz", "number", "alphabet", "orders"),
        ("U4aaW4SzAyQK", "twitter", "base58", "users"),
    ] {
        assert_eq!(by(text, InspectBy::Anything), named(name, form, &[namespace]), "{text}");
        let known = mint.inspect(text.as_bytes(), InspectBy::Namespace(namespace.as_bytes())).unwrap();
        assert!(known.candidates().is_empty(), "{known:?}");
        assert_eq!(shown(known), named(name, form, &[]), "{text}");
    }
    assert_eq!(by(&id, InspectBy::Layout(b"twitter")), named("twitter", "decimal", &[]));
    assert_eq!(by("01ARZ3NDEKTSV4RRFFQ69G5FAV", InspectBy::Anything), named("ulid", "ulid", &[]));
    let all = anything(&mint, id.as_bytes()).unwrap();
    let listed: Vec<_> = all.candidates().iter().map(|it| it.decoded.name().into_owned()).collect();
    assert_eq!(listed[..2], ["game", "twitter"], "both are listed");
}

#[test]
fn inspect_tells_what_is_wrong_with_what_is_named() {
    let mint = mint_of_definitions(&[
        ("default", fields("snowflake", "", "")),
        ("orders", fields("segment", "", "ORD-{alphabet=zyxwvutsrq:6}")),
    ]);
    for (text, by, kind, words) in [
        ("7", InspectBy::Namespace(b"nope"), Kind::UnknownNamespace, "it has default, orders"),
        ("7", InspectBy::Namespace(b"a b"), Kind::BadNamespace, "is not the name of a namespace"),
        (
            "7",
            InspectBy::Namespace(b"orders"),
            Kind::BadId,
            "`7` is not an id of namespace `orders`: its ids are written as ORD-{alphabet:6}",
        ),
        (
            "x",
            InspectBy::Namespace(b"default"),
            Kind::BadId,
            "`x` is not an id of namespace `default`: `x` at position 0",
        ),
        ("7", InspectBy::Layout(b"time:99"), Kind::BadRequest, "invalid layout `time:99`: "),
        ("7", InspectBy::Layout(b"gane"), Kind::BadRequest, "invalid layout `gane`: "),
        ("7", InspectBy::Layout(b""), Kind::BadRequest, "invalid layout ``: "),
        (
            "x",
            InspectBy::Layout(b"twitter"),
            Kind::BadId,
            "`x` is not an id of this server: `x` at position 0",
        ),
        ("9223372036854775807", InspectBy::Layout(b"js53"), Kind::BadId, "another layout made it"),
    ] {
        let error = mint.inspect(text.as_bytes(), by).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(words), "{text} {by:?}: {error}");
    }
    let long = "z".repeat(60_000);
    assert_eq!(anything(&mint, long.as_bytes()).unwrap_err().kind(), Kind::BadId);
}
