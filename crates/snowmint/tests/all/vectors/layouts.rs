//! Ids split under the layout that made them, and compose again; with a preset if the source's layout is one.
//! A wrong width or epoch of a preset fails here at the instants that the sources state.

use serde_json::Value;
use snowmint::field::{Field, Sequence, Timestamp};
use snowmint::utc::{self, Utc};
use snowmint::{Id, Layout, Parts, WorkerId};

use super::{Case, Kind, preset};

const HOUR_MS: u64 = 3_600_000;

pub(crate) const KINDS: &[Kind] = &[
    Kind::new("decode-snowflake", 17, decode_snowflake),
    Kind::new("encode-snowflake", 1, leafs_example),
    Kind::new("decode-sonyflake-v1", 1, sonyflake),
    Kind::new("decode-sonyflake-ts-port", 1, sonyflake_of_milliseconds),
    Kind::new("decode-yitter", 5, yitter),
    Kind::new("sequence-yitter", 1, yitters_sequence),
    Kind::new("decode-uid-generator", 1, uid_generator),
    Kind::new("must-reject-worker", 1, worker_that_bleeds_into_the_time),
    Kind::new("encode-instagram", 1, instagram),
    Kind::new("decode-mastodon", 1, mastodon),
    Kind::new("decode-tsid", 3, tsid),
    Kind::new("decode-scru64", 6, scru64),
    Kind::new("decode-tidb-auto-random", 2, tidb),
    Kind::new("decode-snowflake-friendly", 1, friendly_of_an_id),
    Kind::new("encode-snowflake-friendly", 1, id_of_a_friendly_text),
    Kind::new("reject-snowflake-friendly", 3, refused_friendly_text),
    Kind::new("exhaustion", 2, exhaustion),
    Kind::new("js-precision", 3, js_precision),
];

fn parts_of(layout: &Layout, id: Id) -> Parts {
    let parts = layout.split(id).unwrap();
    assert_eq!(layout.compose(&parts), Ok(id), "put together again");
    parts
}

fn utc_of(layout: &Layout, parts: &Parts) -> String {
    Utc(layout.unix_ms(parts.timestamp)).to_string()
}

/// Returns an instant in China's time zone, such as `2019-09-06 09:35:00.834`.
fn local_plus_8(unix_ms: u64) -> String {
    Utc(unix_ms + 8 * HOUR_MS).to_string().replace('T', " ").trim_end_matches('Z').to_owned()
}

/// Returns the layout that a case names in its source's words: a preset if the epoch is that of one.
fn layout_of(case: &Case<'_>) -> Layout {
    let words = case.word("layout");
    let epoch = case.get("epoch_unix_ms").map(|epoch| epoch.as_u64().unwrap());
    let layout = match (words, epoch) {
        ("timestamp:42/datacenter:5/worker:5/sequence:12", Some(1_288_834_974_657)) => preset("twitter"),
        ("timestamp:42/worker:5/process:5/increment:12", Some(1_420_070_400_000)) => preset("discord"),
        ("timestamp:41/node:10/step:12" | "41/10/12", Some(1_288_834_974_657)) => preset("leaf"),
        ("41/10/12", Some(1_455_788_600_316)) => preset("icicle"),
        ("41/10/12", Some(1_577_203_200_000)) => preset("cosid"),
        ("timestamp:41/node:10/step:12", Some(0) | None) => of_1970("time:41 worker:10 sequence:12"),
        ("41/5/5/12", None) => of_1970("time:41 datacenter:5 worker:5 sequence:12"),
        other => panic!("no layout is known for {other:?}"),
    };
    assert_eq!(layout.epoch_unix_ms(), epoch.unwrap_or(0));
    layout
}

fn of_1970(fields: &str) -> Layout {
    format!("{fields} epoch:1970-01-01").parse().unwrap()
}

fn decode_snowflake(case: &Case<'_>) {
    let (id, layout) = (case.id(), layout_of(case));
    let parts = parts_of(&layout, id);
    let unix_ms = layout.unix_ms(parts.timestamp);
    let is_discord = layout == preset("discord");
    for member in case.members().filter(|member| !["layout", "epoch_unix_ms"].contains(&member.as_str())) {
        let shown: Value = match member.as_str() {
            "timestamp" => parts.timestamp.0.into(),
            "datacenter" => parts.datacenter.0.into(),
            "worker" if is_discord => parts.datacenter.0.into(),
            "worker" | "process" | "node" | "shard" => parts.worker.0.into(),
            "sequence" | "step" | "increment" => parts.sequence.0.into(),
            "worker10" => (parts.datacenter.0 << 5 | parts.worker.0).into(),
            "unix_ms" => unix_ms.into(),
            "utc" => Utc(unix_ms).to_string().into(),
            "local_time_utc_plus_8" => local_plus_8(unix_ms).replace(' ', "T").into(),
            other => panic!("{id}: nothing is known of `{other}`"),
        };
        assert_eq!(Some(&shown), case.get(member), "{id}: {member}");
    }
}

fn leafs_example(case: &Case<'_>) {
    let (layout, unix_ms) = (layout_of(case), case.number("unix_ms"));
    let small = |member: &str| u32::try_from(case.number(member)).unwrap();
    let parts = Parts {
        timestamp: layout.timestamp_at(unix_ms).unwrap(),
        worker: WorkerId(small("worker")),
        sequence: Sequence(small("sequence")),
        ..Parts::default()
    };
    assert_eq!(layout.compose(&parts), Ok(case.id()));
    let leaf = case.get("leaf_json").unwrap();
    assert_eq!(leaf["timestamp"], format!("{unix_ms}({})", local_plus_8(unix_ms)));
    assert_eq!(leaf["sequenceId"], parts.sequence.0.to_string());
    assert_eq!(leaf["workerId"], parts.worker.0.to_string());
}

fn sonyflake(case: &Case<'_>) {
    let layout = preset("sonyflake");
    assert_eq!(case.word("layout"), "39 (10 ms)/8 seq/16 machine");
    let parts = parts_of(&layout, case.id());
    assert_eq!(parts.timestamp.0, case.number("time"));
    assert_eq!(u64::from(parts.sequence.0), case.number("sequence"));
    assert_eq!(u64::from(parts.worker.0), case.number("machine"));
    let address = format!("x.x.{}.{}", parts.worker.0 >> 8, parts.worker.0 & 255);
    assert_eq!(address, case.word("machine_as_ip_suffix"));
    assert_eq!(layout.unix_ms(parts.timestamp), case.number("unix_ms_with_default_epoch_2014_09_01"));
    assert_eq!(utc_of(&layout, &parts), case.word("utc"));
}

fn sonyflake_of_milliseconds(case: &Case<'_>) {
    assert_eq!(case.word("layout"), "39 (1 ms!)/8 seq/16 machine");
    let epoch = case.number("epoch_unix_ms");
    let port: Layout = format!("time:39@1ms sequence:8 worker:16 epoch:{epoch}").parse().unwrap();
    let parts = parts_of(&port, case.id());
    assert_eq!(port.unix_ms(parts.timestamp), case.number("unix_ms"));
    assert_eq!(u64::from(parts.worker.0), case.number("machine"));
    assert_eq!(u64::from(parts.sequence.0), case.number("sequence"));
}

fn yitter(case: &Case<'_>) {
    let default = preset("yitter");
    let width = |member, field| {
        case.get(member).map_or(default.width(field), |bits| u32::try_from(bits.as_u64().unwrap()).unwrap())
    };
    let (worker, sequence) = (width("worker_bits", Field::Worker), width("seq_bits", Field::Sequence));
    let epoch = case.number("base_time_unix_ms");
    let layout: Layout =
        format!("time:{} worker:{worker} sequence:{sequence} epoch:{epoch}", 63 - worker - sequence)
            .parse()
            .unwrap();
    let presets = ["yitter", "yitter-typescript"].map(preset);
    let port = presets.into_iter().find(|port| port.epoch_unix_ms() == epoch).unwrap();
    let has_own_widths = (worker, sequence) != (6, 6);
    assert!(has_own_widths || layout == port, "{layout} is the default");
    let parts = parts_of(&layout, case.id());
    assert_eq!(parts.timestamp.0, case.number("delta_ms"));
    assert_eq!(u64::from(parts.worker.0), case.number("worker"));
    assert_eq!(u64::from(parts.sequence.0), case.number("sequence"));
    if let Some(exceeds) = case.get("exceeds_js_max_safe_integer") {
        assert_eq!(exceeds, case.id().get() >= 1 << 53);
    }
}

/// The sequence of each millisecond starts at 5, and 1 to 4 are for a clock that went back: ours need
/// neither.
fn yitters_sequence(case: &Case<'_>) {
    let layout = preset("yitter-typescript");
    let ids: Vec<Id> = case.numbers("ids").into_iter().map(|id| Id::new(id).unwrap()).collect();
    assert!(ids.len() == 10 && ids.is_sorted_by(|one, next| one < next));
    let parts: Vec<Parts> = ids.iter().map(|id| parts_of(&layout, *id)).collect();
    let of = |value: fn(&Parts) -> u64| parts.iter().map(value).collect::<Vec<_>>();
    assert_eq!(of(|parts| u64::from(parts.sequence.0)), case.numbers("sequences"));
    assert_eq!(of(|parts| parts.timestamp.0), case.numbers("delta_ms"));
    let worker = case.number("worker");
    assert!(parts.iter().all(|parts| u64::from(parts.worker.0) == worker));
}

fn uid_generator(case: &Case<'_>) {
    let layout = preset("baidu-sample");
    assert_eq!(case.word("layout"), "1/29 s/21 worker/13 seq");
    assert_eq!(layout.epoch_unix_ms(), case.number("epoch_unix_s") * 1000);
    assert_eq!(local_plus_8(layout.epoch_unix_ms())[..16], case.word("epoch")[..16]);
    let parts = parts_of(&layout, case.id());
    assert_eq!(parts.timestamp.0, case.number("delta_seconds"));
    assert_eq!(u64::from(parts.worker.0), case.number("worker"));
    assert_eq!(u64::from(parts.sequence.0), case.number("sequence"));
    assert_eq!(utc_of(&layout, &parts).replace(".000Z", "Z"), case.word("utc"));
    assert_eq!(local_plus_8(layout.unix_ms(parts.timestamp))[..19], *case.word("local_plus_8"));
}

fn worker_that_bleeds_into_the_time(case: &Case<'_>) {
    assert_eq!(case.word("layout"), "30/18/15");
    let epoch = case.number("epoch_unix_s");
    let layout: Layout = format!("time:30@1s worker:18 sequence:15 epoch:{}", epoch * 1000).parse().unwrap();
    let worker = case.number("worker");
    for member in ["unix_s_a", "unix_s_b"] {
        let joined = (case.number(member) - epoch) << 33 | worker << 15;
        assert_eq!(joined, case.id().get(), "what a generator without the check makes of {member}");
    }
    let max = case.number("max_worker");
    assert_eq!(layout.max(Field::Worker), max);
    let parts = Parts { worker: WorkerId(u32::try_from(worker).unwrap()), ..Parts::default() };
    let error = layout.compose(&parts).unwrap_err().to_string();
    assert_eq!(error, format!("worker {worker} is out of range: this layout has worker 0 to {max}"));
}

fn instagram(case: &Case<'_>) {
    let layout = preset("instagram");
    assert_eq!(case.word("layout"), "41 ms/13 shard/10 seq");
    assert_eq!(layout.epoch_unix_ms(), case.number("pl_pgsql_epoch_unix_ms"));
    let small = |member: &str| u32::try_from(case.number(member)).unwrap();
    let parts = Parts {
        timestamp: Timestamp(case.number("delta_ms")),
        worker: WorkerId(small("shard")),
        sequence: Sequence(small("sequence")),
        ..Parts::default()
    };
    assert_eq!(layout.compose(&parts), Ok(case.id()));
}

fn mastodon(case: &Case<'_>) {
    let layout = preset("mastodon");
    assert_eq!(case.word("layout"), "48 ms unix/16 tail");
    let parts = parts_of(&layout, case.id());
    assert_eq!(layout.unix_ms(parts.timestamp), case.number("unix_ms"));
    assert_eq!(utc_of(&layout, &parts), case.word("utc"));
    assert_eq!(u64::from(parts.sequence.0), case.number("tail16"));
}

fn tsid(case: &Case<'_>) {
    let (id, layout) = (case.id(), preset("tsid"));
    let parts = parts_of(&layout, id);
    assert_eq!(layout.unix_ms(parts.timestamp), case.number("unix_ms"));
    assert_eq!(utc_of(&layout, &parts), case.word("utc"));
    assert_eq!(u64::from(parts.worker.0 << 12 | parts.sequence.0), case.number("random22"));
    if case.get("crockford13").is_some() {
        super::texts::crockford(id, case.word("crockford13"));
    }
}

fn scru64(case: &Case<'_>) {
    let id = super::texts::base36_lower(case.text(), case.word("u64"));
    let layout = preset("scru64");
    let parts = parts_of(&layout, id);
    assert_eq!(parts.timestamp.0, case.number("timestamp_256ms"));
    assert_eq!(layout.unix_ms(parts.timestamp), parts.timestamp.0 * 256);
    assert_eq!(u64::from(parts.sequence.0), case.number("node_ctr"));
}

/// The counted number is where other layouts have the timestamp, because the timestamp is the widest field.
fn tidb(case: &Case<'_>) {
    assert_eq!(case.word("layout"), "sign 1/shard 5/auto 58");
    let parts = parts_of(&of_1970("worker:5 time:58@1ms"), case.id());
    assert_eq!(u64::from(parts.worker.0), case.number("shard"));
    assert_eq!(parts.timestamp.0, case.number("increment"));
}

/// Returns `CosId`'s text of an id: the instant's 17 digits, the machine and the sequence.
fn friendly(unix_ms: u64, parts: &Parts) -> String {
    let digits: String = Utc(unix_ms).to_string().chars().filter(char::is_ascii_digit).collect();
    format!("{digits}-{}-{}", parts.worker.0, parts.sequence.0)
}

/// Returns the instant and the id of such a text under `CosId`'s layout; `ahead_ms` is how far the text's
/// zone is ahead of UTC.
fn read_friendly(text: &str, ahead_ms: u64) -> Option<(u64, Id)> {
    let layout = preset("cosid");
    let [digits, worker, sequence] = text.split('-').collect::<Vec<_>>().try_into().unwrap();
    let (date, time) = digits.split_at(8);
    let instant = format!(
        "{}-{}-{}T{}:{}:{}.{}Z",
        &date[..4],
        &date[4..6],
        &date[6..],
        &time[..2],
        &time[2..4],
        &time[4..6],
        &time[6..]
    );
    let unix_ms = utc::parse(&instant).unwrap() - ahead_ms;
    let parts = Parts {
        timestamp: layout.timestamp_at(unix_ms)?,
        worker: WorkerId(worker.parse().unwrap()),
        sequence: Sequence(sequence.parse().unwrap()),
        ..Parts::default()
    };
    layout.compose(&parts).ok().map(|id| (unix_ms, id))
}

fn friendly_of_an_id(case: &Case<'_>) {
    let layout = layout_of(case);
    assert_eq!(layout, preset("cosid"));
    let parts = parts_of(&layout, case.id());
    let unix_ms = layout.unix_ms(parts.timestamp);
    assert_eq!(unix_ms, case.number("unix_ms"));
    assert_eq!(u64::from(parts.worker.0), case.number("machine"));
    assert_eq!(u64::from(parts.sequence.0), case.number("sequence"));
    let (here, there) = (case.word("friendly_utc"), case.word("friendly_asia_shanghai"));
    assert_eq!(friendly(unix_ms, &parts), here);
    assert_eq!(friendly(unix_ms + 8 * HOUR_MS, &parts), there);
    assert_eq!(read_friendly(here, 0), Some((unix_ms, case.id())));
    assert_eq!(read_friendly(there, 8 * HOUR_MS), Some((unix_ms, case.id())));
}

fn id_of_a_friendly_text(case: &Case<'_>) {
    let text = case.word("friendly_utc");
    assert_eq!(read_friendly(text, 0), Some((case.number("unix_ms"), case.id())));
    let parts = parts_of(&preset("cosid"), case.id());
    assert_eq!(u64::from(parts.worker.0), case.number("machine"));
    assert_eq!(u64::from(parts.sequence.0), case.number("sequence"));
    assert_eq!(friendly(case.number("unix_ms"), &parts), text);
}

fn refused_friendly_text(case: &Case<'_>) {
    let ahead_ms = if case.word("why").contains("Asia/Shanghai") { 8 * HOUR_MS } else { 0 };
    case.must_be_refused();
    assert_eq!(read_friendly(case.text(), ahead_ms), None);
}

fn exhaustion(case: &Case<'_>) {
    if case.get("first_unrepresentable_unix_s").is_some() {
        return baidus_exhaustion(case);
    }
    for member in case.members() {
        let layout = match member.as_str() {
            "twitter_epoch_41bit_last_utc" => preset("twitter"),
            "cosid_41bit_last_utc" => {
                assert_eq!(preset("js53").ends_at_unix_ms(), preset("cosid").ends_at_unix_ms());
                preset("cosid")
            }
            "shardingsphere_2016_11_01_UTC_41bit_last_utc" => preset("shardingsphere"),
            "sonyflake_v1_39bit_10ms_last_utc" => preset("sonyflake"),
            // These use the sign bit for time: the test gives them all of their bits of time, with one bit
            // less below.
            "discord_42bit_last_utc" => with_a_bit_more_time("discord"),
            "tsid_42bit_last_utc" => with_a_bit_more_time("tsid"),
            "instagram_41bit_last_utc" => with_a_bit_more_time("instagram"),
            other => panic!("nothing is known of {other}"),
        };
        let last_tick = layout.unix_ms(Timestamp(layout.max(Field::Timestamp)));
        assert_eq!(Utc(last_tick).to_string(), case.word(member), "{member}");
    }
}

fn with_a_bit_more_time(name: &str) -> Layout {
    let layout = preset(name);
    let bits = layout.width(Field::Timestamp) + 1;
    format!("time:{bits} worker:20 epoch:{}", layout.epoch_unix_ms()).parse().unwrap()
}

fn baidus_exhaustion(case: &Case<'_>) {
    let baidu = preset("baidu");
    assert_eq!(baidu.epoch_unix_ms(), case.number("epoch_unix_s") * 1000);
    assert_eq!(u64::from(baidu.width(Field::Timestamp)), case.number("bits"));
    let end = case.number("first_unrepresentable_unix_s") * 1000;
    assert_eq!(baidu.ends_at_unix_ms(), end);
    assert_eq!(Utc(end).to_string(), case.word("utc"));
    assert_eq!(local_plus_8(end)[..19], *case.word("local_plus_8"));
}

/// JavaScript numbers are doubles: checks which ids survive in one, and that the layout says so beforehand.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the point"
)]
fn js_precision(case: &Case<'_>) {
    let id = case.id();
    let double = id.get() as f64 as u64;
    assert_eq!(double.to_string(), case.word("nearest_double"));
    let flag = |member: &str| case.get(member).and_then(Value::as_bool).unwrap();
    assert_eq!(double == id.get(), flag("equals_id"));
    let layout = preset(if flag("safe") { "js53" } else { "twitter" });
    assert!(layout.split(id).is_ok());
    assert_eq!(layout.is_safe_in_javascript(), flag("safe"));
    assert_eq!(id.get() >> 53 == 0, flag("safe"));
}

#[test]
fn pod_ips_end_is_where_its_article_says() {
    assert_eq!(preset("pod-ip").epoch_unix_ms(), 1_631_780_048_000);
    assert_eq!(Utc(preset("pod-ip").ends_at_unix_ms()).to_string(), "2030-03-20T05:38:24.000Z");
}
