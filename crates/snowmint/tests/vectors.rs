//! Goal: ids from the real world come apart, and go together, as their makers say.
//! Method: every `decode-snowflake` and `encode-snowflake` case of `vectors.json`, and the cases of other
//! kinds whose layout is of this family, are run; a case without a known layout fails the test.

// Miri would read JSON for minutes, for arithmetic that other tests run too.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use serde_json::Value;
use snowmint::codec::{base62, hex};
use snowmint::utc::Utc;
use snowmint::{DatacenterId, Id, Layout, PRESETS, Parts, Sequence, Timestamp, WorkerId};

fn cases(kind: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(include_str!("vectors.json")).unwrap();
    let cases: Vec<Value> = all.into_iter().filter(|case| case["kind"] == kind).collect();
    assert!(!cases.is_empty(), "no case of kind {kind}");
    cases
}

fn id_of(case: &Value) -> Id {
    case["id"].as_str().unwrap().parse().unwrap()
}

/// The layout a case names in its source's words, with its epoch; Twitter's where it gives none.
fn layout_of(expected: &Value) -> Layout {
    let fields = match expected["layout"].as_str().unwrap() {
        "timestamp:42/datacenter:5/worker:5/sequence:12"
        | "timestamp:42/worker:5/process:5/increment:12"
        | "41/5/5/12" => "time:41@1ms datacenter:5 worker:5 sequence:12",
        "timestamp:41/node:10/step:12" | "41/10/12" => "time:41@1ms worker:10 sequence:12",
        other => panic!("no layout is known for {other}"),
    };
    let epoch = expected["epoch_unix_ms"].as_u64().unwrap_or(0);
    format!("{fields} epoch:{epoch}").parse().unwrap()
}

#[test]
fn every_decode_snowflake_case() {
    let cases = cases("decode-snowflake");
    assert_eq!(cases.len(), 17, "a case was added or lost");
    for case in &cases {
        let (id, expected) = (id_of(case), &case["expected"]);
        let layout = layout_of(expected);
        let parts = layout.split(id).unwrap();
        let discord = expected["process"].is_u64();
        let node = u64::from(parts.datacenter.0) << 5 | u64::from(parts.worker.0);
        for (name, value) in expected.as_object().unwrap() {
            let shown: Value = match name.as_str() {
                "layout" | "epoch_unix_ms" => continue,
                "timestamp" => parts.timestamp.0.into(),
                "datacenter" => parts.datacenter.0.into(),
                "worker" if discord => parts.datacenter.0.into(),
                "worker" | "process" | "node" | "shard" => parts.worker.0.into(),
                "sequence" | "step" | "increment" => parts.sequence.0.into(),
                "worker10" => node.into(),
                "unix_ms" => layout.unix_ms(parts.timestamp).into(),
                "utc" => Utc(layout.unix_ms(parts.timestamp)).to_string().into(),
                "local_time_utc_plus_8" => {
                    let local = Utc(layout.unix_ms(parts.timestamp) + 8 * 3_600_000).to_string();
                    local.trim_end_matches('Z').into()
                }
                other => panic!("{id}: nothing is known of `{other}`"),
            };
            assert_eq!(&shown, value, "{id}: {name}");
        }
        assert_eq!(layout.compose(&parts), Ok(id), "put together again");
    }
}

#[test]
fn leafs_example_goes_together() {
    for case in cases("encode-snowflake") {
        let expected = &case["expected"];
        let layout = layout_of(expected);
        let number = |name: &str| u32::try_from(expected[name].as_u64().unwrap()).unwrap();
        let parts = Parts {
            timestamp: layout.timestamp_at(expected["unix_ms"].as_u64().unwrap()).unwrap(),
            worker: WorkerId(number("worker")),
            sequence: Sequence(number("sequence")),
            ..Parts::default()
        };
        // The source prints the id cut to 53 bits by JavaScript; all but its last digits must agree.
        let made = layout.compose(&parts).unwrap();
        assert!(made.get().abs_diff(id_of(&case).get()) < 1024, "{made}");
    }
}

fn preset(name: &str) -> Layout {
    PRESETS.iter().find(|preset| preset.name == name).unwrap().layout
}

#[test]
fn sonyflake_yitter_uid_generator_instagram_and_mastodon() {
    let case = &cases("decode-sonyflake-v1")[0];
    let parts = preset("sonyflake").split(id_of(case)).unwrap();
    assert_eq!((parts.sequence, parts.worker), (Sequence(214), WorkerId(61_469)));
    assert_eq!(preset("sonyflake").unix_ms(parts.timestamp), 1_443_328_880_100);

    for case in cases("decode-yitter") {
        let expected = &case["expected"];
        if expected["seq_bits"].is_null() {
            let parts = preset("yitter").split(id_of(&case)).unwrap();
            assert_eq!(parts.timestamp.0, expected["delta_ms"].as_u64().unwrap());
            assert_eq!(u64::from(parts.worker.0), expected["worker"].as_u64().unwrap());
            assert_eq!(u64::from(parts.sequence.0), expected["sequence"].as_u64().unwrap());
        }
    }

    let case = &cases("decode-uid-generator")[0];
    let sample: Layout = "time:29@1s worker:21 sequence:13 epoch:2016-09-20T00:00:00+08:00".parse().unwrap();
    let parts = sample.split(id_of(case)).unwrap();
    assert_eq!((parts.worker, parts.sequence), (WorkerId(4), Sequence(9)));
    assert_eq!(Utc(sample.unix_ms(parts.timestamp)).to_string(), "2017-01-19T04:15:46.000Z");

    let case = &cases("encode-instagram")[0];
    let parts = Parts {
        timestamp: Timestamp(1_387_263_000),
        worker: WorkerId(1341),
        sequence: Sequence(905),
        datacenter: DatacenterId(0),
        ..Parts::default()
    };
    assert_eq!(preset("instagram").compose(&parts), Ok(id_of(case)));

    let case = &cases("decode-mastodon")[0];
    let parts = preset("mastodon").split(id_of(case)).unwrap();
    assert_eq!((preset("mastodon").unix_ms(parts.timestamp), parts.sequence.0), (1_575_776_913_849, 40_911));
}

#[test]
fn exhaustion_is_where_the_incidents_were() {
    let ends = |name| Utc(preset(name).ends_at_unix_ms()).to_string();
    assert_eq!(ends("baidu"), "2024-11-20T13:24:16.000Z");
    assert_eq!(ends("twitter"), "2080-07-10T17:30:30.209Z");
    assert!(ends("pod-ip").starts_with("2030-03-20"));
}

#[test]
fn a_worker_that_bleeds_into_the_time_is_refused() {
    let case = &cases("must-reject-worker")[0];
    let layout: Layout = "time:30@1s worker:18 sequence:15 epoch:1586275200000".parse().unwrap();
    let worker = u32::try_from(case["expected"]["worker"].as_u64().unwrap()).unwrap();
    let parts = Parts { worker: WorkerId(worker), ..Parts::default() };
    let error = layout.compose(&parts).unwrap_err().to_string();
    assert_eq!(error, "worker 462146 is out of range: this layout has worker 0 to 262143");
}

#[test]
fn base62_and_hex_texts() {
    for case in cases("encode-radix62").into_iter().chain(cases("encode-base62-11")) {
        let text = case["expected"]["text"].as_str().unwrap();
        let Ok(id) = case["id"].as_str().unwrap().parse::<Id>() else {
            assert!(base62::decode(text).is_err(), "{text} is 2^63 or more");
            continue;
        };
        assert!(text == base62::encode(id).as_str() || text == base62::encode_padded(id).as_str(), "{text}");
        assert_eq!(base62::decode(text), Ok(id));
        if let Some(digits) = case["expected"]["hex"].as_str() {
            assert_eq!((hex::encode(id).as_str(), hex::decode(digits)), (digits, Ok(id)));
        }
    }
    for case in cases("reject-radix62").into_iter().chain(cases("reject-base62")) {
        assert!(base62::decode(case["id"].as_str().unwrap()).is_err());
    }
    assert!(cases("reject-decimal")[0]["id"].as_str().unwrap().parse::<Id>().is_err());
}
