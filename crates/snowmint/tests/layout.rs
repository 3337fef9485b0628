//! Goal: a layout that exists works, a text reads back, and what cannot be is refused with the remedy.
//! Method: proptest over arbitrary widths, orders, ticks and epochs against arithmetic in 128 bits.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use proptest::prelude::*;
use snowmint::utc::MAX_UNIX_MS;
use snowmint::{
    DatacenterId, Field, Generation, Layout, LayoutBuilder, LayoutError, PRESETS, Parts, Sequence, Timestamp,
    WorkerId,
};

/// Any order of any fields, with widths that may or may not add up.
fn builders() -> impl Strategy<Value = (Vec<(Field, u32)>, u64, u64)> {
    let order = Just(Field::ALL.to_vec()).prop_shuffle();
    let widths = prop::collection::vec(0_u32..=40, 5);
    let ticks = prop_oneof![Just(1_u64), Just(10), Just(250), Just(1000), Just(60_000)];
    (order, widths, ticks, 0_u64..4_000_000_000_000)
        .prop_map(|(order, widths, tick, epoch)| (order.into_iter().zip(widths).collect(), tick, epoch))
}

fn build(fields: &[(Field, u32)], tick_ms: u64, epoch: u64) -> Result<Layout, LayoutError> {
    let start: LayoutBuilder = Layout::builder().tick(Duration::from_millis(tick_ms)).epoch_unix_ms(epoch);
    fields.iter().filter(|(_, bits)| *bits > 0).fold(start, |b, (field, bits)| b.field(*field, *bits)).build()
}

proptest! {
    #[test]
    fn exactly_what_fits_can_be_built((fields, tick, epoch) in builders()) {
        let total: u32 = fields.iter().map(|(_, bits)| bits).sum();
        let width = |field| fields.iter().find(|(f, _)| *f == field).map_or(0, |(_, bits)| *bits);
        let others_fit = Field::ALL.iter().all(|f| *f == Field::Timestamp || width(*f) <= 31);
        let fits = total <= 63 && others_fit && width(Field::Timestamp) > 0;
        prop_assert_eq!(build(&fields, tick, epoch).is_ok(), fits);
    }

    #[test]
    fn text_and_fingerprint_stand_for_exactly_one_layout((fields, tick, epoch) in builders(), other in builders()) {
        if let Ok(layout) = build(&fields, tick, epoch) {
            prop_assert_eq!(layout.to_string().parse::<Layout>(), Ok(layout));
            if let Ok(other) = build(&other.0, other.1, other.2) {
                let same = layout.fingerprint().to_string() == other.fingerprint().to_string();
                prop_assert_eq!(same, layout == other);
            }
        }
    }

    #[test]
    fn compose_and_split_are_inverse_and_use_every_bit_once((fields, tick, epoch) in builders(), raw: [u64; 5]) {
        if let Ok(layout) = build(&fields, tick, epoch) {
            let value = |field: Field| raw[field as usize] & layout.max(field);
            let small = |field| u32::try_from(value(field)).unwrap();
            let parts = Parts {
                timestamp: Timestamp(value(Field::Timestamp)),
                datacenter: DatacenterId(small(Field::Datacenter)),
                worker: WorkerId(small(Field::Worker)),
                generation: Generation(small(Field::Generation)),
                sequence: Sequence(small(Field::Sequence)),
            };
            let id = layout.compose(&parts).unwrap();
            prop_assert_eq!(layout.split(id), Ok(parts));
            // The slow, obvious way: the fields as binary text, joined from the top down.
            let joined = fields.iter().filter(|(_, bits)| *bits > 0).fold(String::new(), |text, (field, bits)| {
                text + &format!("{:0width$b}", value(*field), width = *bits as usize)
            });
            prop_assert_eq!(u64::from_str_radix(&joined, 2), Ok(id.get()));
        }
    }

    #[test]
    fn the_ids_of_an_instant_lie_between_its_first_and_its_last(ms in 0_u64..2_000_000_000_000, low: u64) {
        let layout = Layout::TWITTER;
        let at = layout.epoch_unix_ms() + ms;
        let (first, last) = (layout.first_id_at(at).unwrap(), layout.last_id_at(at).unwrap());
        let id = first.get() | (low & 0x3f_ffff);
        prop_assert!(first.get() <= id && id <= last.get());
        prop_assert_eq!(layout.last_id_at(at - 1).map(|id| id.get() + 1), (ms > 0).then_some(first.get()));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,80}") {
        let _ = text.parse::<Layout>();
    }
}

#[test]
fn the_game_servers_of_73_bits_are_refused_with_what_would_fit() {
    let error = "time:37 worker:20 sequence:16".parse::<Layout>().unwrap_err().to_string();
    assert_eq!(
        error,
        "the fields add up to 73 bits, 10 over the 63 an id has; what would fit: sequence:6 (64 ids a tick); \
         worker:10 (1024 workers); time:27@1s (4.2 years); time:31@1s with sequence:12 (68.0 years, 4096 ids a second)"
    );
}

#[test]
fn each_refusal_names_the_value_the_limit_and_the_remedy() {
    for (text, words) in [
        ("", &["empty", "time:41@1ms"][..]),
        ("tweeter", &["`tweeter`", "twitter"]),
        ("time:41 worker:x epoch:2020-01-01", &["`x`", "worker:10"]),
        ("time:41@5us worker:1 epoch:2020-01-01", &["`5us`", "10ms"]),
        ("time:41@0ms worker:1 epoch:2020-01-01", &["0ns", "1ms"]),
        ("worker:10 epoch:2020-01-01", &["no timestamp", "time:41"]),
        ("time:41 worker:10", &["no epoch", "epoch:2026"]),
        ("time:41 worker:10 worker:3 epoch:2020-01-01", &["worker is named twice"]),
        ("time:41 worker:0 epoch:2020-01-01", &["worker:0", "leave"]),
        ("time:20 worker:32 epoch:2020-01-01", &["worker:32", "31"]),
        ("time:41 shard:3 epoch:2020-01-01", &["`shard:3`", "datacenter:BITS"]),
        ("time:41 worker:3 epoch:yesterday", &["`yesterday`", "2010-11-04"]),
        ("time:41 epoch:2020-01-01 epoch:2021-01-01", &["twice"]),
        ("time:63 epoch:2020-01-01", &["hundreds of millions of years"]),
    ] {
        let error = text.parse::<Layout>().unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{text}: {error} lacks {word}");
        }
    }
}

#[test]
fn presets_have_unique_names_and_read_by_name() {
    for (i, preset) in PRESETS.iter().enumerate() {
        assert_eq!(preset.name.parse(), Ok(preset.layout));
        assert!(PRESETS[..i].iter().all(|earlier| earlier.name != preset.name));
    }
    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    assert_eq!(
        names,
        [
            "twitter",
            "discord",
            "sonyflake",
            "leaf",
            "baidu",
            "instagram",
            "mastodon",
            "yitter",
            "pod-ip",
            "game",
            "js53"
        ]
    );
}

#[test]
fn capacity_is_what_the_figures_say() {
    let twitter = Layout::TWITTER;
    assert_eq!((twitter.ids_per_second_per_worker(), twitter.workers()), (4_096_000, 1024));
    assert_eq!(twitter.ids_per_second(), 4_194_304_000);
    let sonyflake: Layout = "sonyflake".parse().unwrap();
    assert_eq!(sonyflake.ids_per_second_per_worker(), 25_600);
    let game: Layout = "game".parse().unwrap();
    assert_eq!((game.workers(), game.ids_per_second_per_worker()), (1_048_576, 4096));
    let js53: Layout = "js53".parse().unwrap();
    assert!(js53.is_safe_in_javascript() && !twitter.is_safe_in_javascript());
    let seata: Layout = "worker:10 time:41 sequence:12 epoch:2020-05-03".parse().unwrap();
    assert!(!seata.sorts_by_time() && seata.first_id_at(1_600_000_000_000).is_none());
}

#[test]
fn error_types_are_small() {
    assert!(size_of::<snowmint::Refusal>() <= 24, "{}", size_of::<snowmint::Refusal>());
    assert!(size_of::<LayoutError>() <= 40, "{}", size_of::<LayoutError>());
    assert!(size_of::<snowmint::LayoutParseError>() <= 48);
}

#[test]
fn a_layout_shows_its_text_and_its_end_where_it_is_debugged() {
    assert_eq!(
        format!("{:?}", Layout::TWITTER),
        format!("Layout({}; ends 2080-07-10T17:30:30.209Z)", Layout::TWITTER)
    );
}

#[test]
fn the_last_value_inside_each_bound_can_be_built_and_the_first_outside_cannot() {
    let layout = |timestamp, tick_ms, epoch| {
        let tick = Duration::from_millis(tick_ms);
        Layout::builder().timestamp(timestamp).tick(tick).epoch_unix_ms(epoch).build()
    };
    assert!(layout(1, 1, MAX_UNIX_MS).is_ok());
    let epoch_unix_ms = MAX_UNIX_MS + 1;
    assert_eq!(layout(1, 1, epoch_unix_ms), Err(LayoutError::EpochTooLate { epoch_unix_ms }));
    assert!(layout(1, MAX_UNIX_MS, 0).is_ok());
    assert!(matches!(layout(1, MAX_UNIX_MS + 1, 0), Err(LayoutError::Tick { .. })));
    // 2^20 ticks of 2^43 - 1 ms, from 2^20 - 1 on, end at 2^63 - 1.
    let tick_ms = (1 << 43) - 1;
    assert_eq!(layout(20, tick_ms, (1 << 20) - 1).unwrap().ends_at_unix_ms(), i64::MAX as u64);
    assert_eq!(layout(20, tick_ms, 1 << 20), Err(LayoutError::LastsTooLong { bits: 20, tick_ms }));
    assert!(matches!(layout(99, 1, 0), Err(LayoutError::TooWide { bits: 99, .. })));
    assert!(matches!(layout(100, 1, 0), Err(LayoutError::FieldTooWide { bits: 100, limit: 63, .. })));
    let worker = |bits| Layout::builder().timestamp(32).worker(bits).epoch_unix_ms(0).build();
    assert!(worker(31).is_ok());
    assert!(matches!(worker(32), Err(LayoutError::FieldTooWide { bits: 32, limit: 31, .. })));
}

#[test]
fn the_last_tick_is_a_timestamp_and_the_first_after_it_is_none() {
    for layout in [Layout::TWITTER, "sonyflake".parse().unwrap()] {
        let (epoch, end) = (layout.epoch_unix_ms(), layout.ends_at_unix_ms());
        assert_eq!(layout.timestamp_at(epoch).map(|at| at.0), Some(0));
        assert_eq!(layout.timestamp_at(epoch - 1), None);
        assert_eq!(layout.timestamp_at(end - 1).map(|at| at.0), Some(layout.max(Field::Timestamp)));
        assert_eq!(layout.timestamp_at(end), None);
    }
}

#[test]
fn javascript_is_safe_up_to_53_bits() {
    let of = |bits| Layout::builder().timestamp(bits).epoch_unix_ms(0).build().unwrap();
    assert!(of(53).is_safe_in_javascript() && !of(54).is_safe_in_javascript());
}
