//! Goal: every layout that can be built works, its text form parses back, and invalid layouts are rejected
//! with a suggestion. Method: proptest over arbitrary widths, orders, ticks and epochs against arithmetic in
//! 128 bits.

use std::time::Duration;

use proptest::prelude::*;
use snowmint::field::{Field, Generation, Sequence, Timestamp};
use snowmint::layout::{LayoutBuilder, LayoutError, PRESETS};
use snowmint::utc::{MAX_UNIX_MS, Utc};
use snowmint::{DatacenterId, Generator, Id, Layout, Lease, ManualClock, Parts, WorkerId};

/// Any order of any fields, with widths that may or may not fit.
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

type Small = (Vec<(Field, u32)>, u32, u64, u64, u64);

/// Fields below the timestamp, the timestamp's bits, a tick and an epoch in milliseconds, and milliseconds
/// after that: few enough bits to go through all ids.
fn small_layouts() -> impl Strategy<Value = Small> {
    let others = Just(vec![Field::Datacenter, Field::Worker, Field::Generation, Field::Sequence]);
    let below = (others.prop_shuffle(), prop::collection::vec(1_u32..=2, 1..=4))
        .prop_map(|(order, widths)| order.into_iter().zip(widths).collect());
    let ticks = prop_oneof![Just(1_u64), Just(10), Just(256), Just(1000), 2_u64..100_000];
    (below, 1_u32..=4, ticks, 1_u64..4_000_000_000_000, any::<u32>().prop_map(u64::from))
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
        let (first, last) = (layout.first_id_at(Utc(at)).unwrap(), layout.last_id_at(Utc(at)).unwrap());
        let id = first.get() | (low & 0x3f_ffff);
        prop_assert!(first.get() <= id && id <= last.get());
        prop_assert_eq!(layout.last_id_at(Utc(at - 1)).map(|id| id.get() + 1), (ms > 0).then_some(first.get()));
    }

    /// Checks every id of a small layout the slow way: the ids of a tick, and no others, lie between its
    /// first and its last.
    #[test]
    fn the_ids_of_a_coarse_tick_are_those_between_its_first_and_its_last(
        (below, bits, tick, epoch, at) in small_layouts(),
    ) {
        let fields: Vec<(Field, u32)> = [(Field::Timestamp, bits)].into_iter().chain(below).collect();
        let layout = build(&fields, tick, epoch).unwrap();
        let at = (epoch + at % (tick << bits)).saturating_sub(tick / 2);
        let inside = at >= epoch;
        let ids = (0..1 << layout.bits()).map(|id| Id::new(id).unwrap());
        let of_tick: Vec<Id> = ids
            .filter(|id| {
                let from = layout.unix_ms(layout.split(*id).unwrap().timestamp);
                (from..from + tick).contains(&at)
            })
            .collect();
        prop_assert_eq!(!of_tick.is_empty(), inside);
        prop_assert_eq!(layout.first_id_at(Utc(at)), of_tick.first().copied());
        prop_assert_eq!(layout.last_id_at(Utc(at)), of_tick.last().copied());
        prop_assert_eq!(of_tick.len(), if inside { 1 << (layout.bits() - bits) } else { 0 });
        // The bounds of the layout's time, to the millisecond.
        let (first, end) = (layout.first_id_at(Utc(epoch)), layout.ends_at_unix_ms());
        prop_assert_eq!(first.map(Id::get), Some(0));
        prop_assert_eq!(layout.last_id_at(Utc(end - 1)).map(Id::get), Some((1 << layout.bits()) - 1));
        prop_assert_eq!((layout.first_id_at(Utc(end)), layout.last_id_at(Utc(end))), (None, None));
        prop_assert_eq!((layout.first_id_at(Utc(epoch - 1)), layout.last_id_at(Utc(epoch - 1))), (None, None));
    }

    #[test]
    fn an_instant_has_no_first_id_where_the_timestamp_is_not_on_top((below, bits, tick, epoch, at) in small_layouts()) {
        let mut fields = below;
        fields.insert(1, (Field::Timestamp, bits));
        let layout = build(&fields, tick, epoch).unwrap();
        prop_assert_eq!((layout.first_id_at(Utc(epoch + at)), layout.last_id_at(Utc(epoch + at))), (None, None));
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
        ("time:41 worker:x epoch:2020-01-01", &["`x`", "1 to 31 bits", "worker:10"]),
        ("time:41 worker:+10 epoch:2020-01-01", &["`+10`", "worker:10"]),
        ("time:+41 worker:10 epoch:2020-01-01", &["`+41`", "1 to 62 bits"]),
        ("time:41 worker:-1 epoch:2020-01-01", &["`-1`", "worker:10"]),
        ("time:41 worker: epoch:2020-01-01", &["``", "worker:10"]),
        ("time:41 worker:4294967306 epoch:2020-01-01", &["`4294967306`", "1 to 31 bits"]),
        ("time:41@+10ms worker:1 epoch:2020-01-01", &["`+10ms`", "10ms"]),
        (
            "time:41@18446744073709551615s epoch:2020-01-01",
            &["`18446744073709551615s`", "at most 253402300799999ms"],
        ),
        ("time:1@253402300800000ms epoch:2020-01-01", &["253402300800s", "from 1ms to 253402300799999ms"]),
        ("time:41@5us worker:1 epoch:2020-01-01", &["`5us`", "10ms"]),
        ("time:41@0ms worker:1 epoch:2020-01-01", &["0ns", "1ms"]),
        ("worker:10 epoch:2020-01-01", &["missing timestamp", "time:41"]),
        ("time:41 worker:10", &["missing epoch", "epoch:2026"]),
        ("time:41 worker:10 worker:3 epoch:2020-01-01", &["duplicate field worker"]),
        ("time:41 worker:0 epoch:2020-01-01", &["worker:0", "remove the field"]),
        ("time:20 worker:32 epoch:2020-01-01", &["worker:32", "31"]),
        ("time:41 shard:3 epoch:2020-01-01", &["`shard:3`", "datacenter:BITS"]),
        ("time:41 worker:3 epoch:yesterday", &["`yesterday`", "2010-11-04"]),
        ("time:41 epoch:2020-01-01 epoch:2021-01-01", &["duplicate epoch"]),
        ("time:100 epoch:2020-01-01", &["time:100", "at most 62 bits"]),
        ("time:64 epoch:2020-01-01", &["64 bits", "1 over the 63", "time:62@1ms ("]),
        (
            "time:63 epoch:2020-01-01",
            &["time:63@1ms lasts 292277024 years", "9223372036854775807 ms", "time:62@1ms"],
        ),
        (
            "time:60@1s epoch:2020-01-01",
            &["time:60@1s lasts 36534628", "9223372036854775807 ms", "time:53@1s"],
        ),
    ] {
        let error = text.parse::<Layout>().unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{text}: {error} lacks {word}");
        }
    }
}

/// Goal: no width and no epoch of a preset changes unnoticed: existing ids depend on them.
#[test]
fn presets_are_exactly_these() {
    let expected = [
        ("twitter", "time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z"),
        ("discord", "time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2015-01-01T00:00:00.000Z"),
        ("sonyflake", "time:39@10ms sequence:8 worker:16 epoch:2014-09-01T00:00:00.000Z"),
        ("leaf", "time:41@1ms worker:10 sequence:12 epoch:2010-11-04T01:42:54.657Z"),
        ("baidu", "time:28@1s worker:22 sequence:13 epoch:2016-05-19T16:00:00.000Z"),
        ("instagram", "time:40@1ms worker:13 sequence:10 epoch:2011-08-24T21:07:01.721Z"),
        ("mastodon", "time:47@1ms sequence:16 epoch:1970-01-01T00:00:00.000Z"),
        ("yitter", "time:51@1ms worker:6 sequence:6 epoch:2020-02-19T18:20:02.000Z"),
        ("yitter-csharp", "time:51@1ms worker:6 sequence:6 epoch:2020-02-20T02:20:02.020Z"),
        ("yitter-typescript", "time:51@1ms worker:6 sequence:6 epoch:2020-01-01T00:00:00.000Z"),
        ("pod-ip", "time:28@1s worker:24 sequence:11 epoch:2021-09-16T08:14:08.000Z"),
        ("game", "time:31@1s worker:20 sequence:12 epoch:2024-01-01T00:00:00.000Z"),
        ("js53", "time:41@1ms worker:3 sequence:9 epoch:2019-12-24T16:00:00.000Z"),
        ("js53-second", "time:31@1s worker:3 sequence:19 epoch:2019-12-24T16:00:00.000Z"),
        ("cosid", "time:41@1ms worker:10 sequence:12 epoch:2019-12-24T16:00:00.000Z"),
        ("cosid-second", "time:31@1s worker:10 sequence:22 epoch:2019-12-24T16:00:00.000Z"),
        ("sonyflake2", "time:39@10ms sequence:8 worker:16 epoch:2025-01-01T00:00:00.000Z"),
        ("baidu-sample", "time:29@1s worker:21 sequence:13 epoch:2016-09-19T16:00:00.000Z"),
        ("seata", "worker:10 time:41@1ms sequence:12 epoch:2020-05-02T16:00:00.000Z"),
        ("shardingsphere", "time:41@1ms worker:10 sequence:12 epoch:2016-11-01T00:00:00.000Z"),
        ("tsid", "time:41@1ms worker:10 sequence:12 epoch:2020-01-01T00:00:00.000Z"),
        ("icicle", "time:41@1ms worker:10 sequence:12 epoch:2016-02-18T09:43:20.316Z"),
        ("mesh", "time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2019-12-31T16:00:00.000Z"),
        ("ferroid-instagram", "time:40@1ms worker:13 sequence:10 epoch:2011-01-01T00:00:00.000Z"),
        ("scru64", "time:39@256ms sequence:24 epoch:1970-01-01T00:00:00.000Z"),
        ("linkedin", "time:41@1ms sequence:22 epoch:1970-01-01T00:00:00.000Z"),
        ("tiktok", "time:31@1s sequence:24 worker:8 epoch:1970-01-01T00:00:00.000Z"),
        ("pgedge", "time:41@1ms sequence:12 worker:10 epoch:2023-01-01T00:00:00.000Z"),
        ("hazelcast", "time:41@1ms sequence:6 worker:16 epoch:2018-01-01T00:00:00.000Z"),
        ("clickhouse", "time:41@1ms worker:10 sequence:12 epoch:1970-01-01T00:00:00.000Z"),
    ];
    let texts: Vec<_> = PRESETS.iter().map(|preset| (preset.name, preset.layout.to_string())).collect();
    assert_eq!(texts, expected.map(|(name, text)| (name, text.to_owned())));
}

#[test]
fn presets_have_names_and_layouts_of_their_own_and_read_by_name() {
    for (i, preset) in PRESETS.iter().enumerate() {
        assert_eq!(preset.name.parse(), Ok(preset.layout));
        let earlier = &PRESETS[..i];
        assert!(earlier.iter().all(|other| other.name != preset.name && other.layout != preset.layout));
        assert!(!preset.about.is_empty() && !preset.source.is_empty(), "{}", preset.name);
    }
}

/// Goal: the remaining time and the end of a layout agree, also at the bounds.
#[test]
fn what_is_left_runs_to_the_end_and_stays_at_nothing() {
    for preset in PRESETS {
        let (layout, ends) = (preset.layout, preset.layout.ends_at_unix_ms());
        for ms in [0, 1, 999, layout.max(Field::Timestamp)] {
            assert_eq!(layout.left_at(ends - ms), Duration::from_millis(ms), "{}", preset.name);
        }
        let all = Duration::from_millis(ends - layout.epoch_unix_ms());
        assert_eq!(layout.left_at(layout.epoch_unix_ms()), all);
        assert_eq!(layout.left_at(0), all + Duration::from_millis(layout.epoch_unix_ms()));
        assert_eq!((layout.left_at(ends + 1), layout.left_at(u64::MAX)), (Duration::ZERO, Duration::ZERO));
    }
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
    let seata: Layout = "seata".parse().unwrap();
    assert!(!seata.sorts_by_time() && seata.first_id_at(Utc(1_600_000_000_000)).is_none());
}

#[test]
fn an_error_offers_no_field_of_no_bits() {
    // 20 bits too many: as many as the timestamp has.
    let error = "time:20@1ms datacenter:1 worker:31 sequence:31 epoch:2020-01-01"
        .parse::<Layout>()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("sequence:11") && error.contains("worker:11") && !error.contains("time:0@"),
        "{error}"
    );
}

#[test]
fn error_types_are_small() {
    assert!(size_of::<snowmint::GenerateError>() <= 24, "{}", size_of::<snowmint::GenerateError>());
    assert!(size_of::<LayoutError>() <= 40, "{}", size_of::<LayoutError>());
    assert!(size_of::<snowmint::layout::LayoutParseError>() <= 48);
    assert!(size_of::<snowmint::id::IdError>() <= 16);
    assert!(size_of::<snowmint::layout::SplitError>() <= 16);
    assert!(size_of::<snowmint::utc::UtcError>() <= 40);
    assert!(size_of::<snowmint::rule::RuleError>() <= 40);
    assert!(size_of::<snowmint::sequence_start::StartError>() <= 40);
    assert!(size_of::<snowmint::generator::BuildError>() <= 48);
    // It holds two layouts.
    #[cfg(feature = "std")]
    assert!(size_of::<snowmint::generator::PoolError>() <= 2 * size_of::<Layout>() + 8);
}

/// An error suggests the widest timestamp that can be built.
#[test]
fn the_widest_timestamp_that_an_error_offers_can_be_built() {
    for tick_ms in [1, 7, 10, 256, 1000, 60_000, (1 << 43) - 1, MAX_UNIX_MS] {
        let build = |bits, epoch| {
            let tick = Duration::from_millis(tick_ms);
            Layout::builder().timestamp(bits).tick(tick).epoch_unix_ms(epoch).build()
        };
        let error = build(63, 0).unwrap_err().to_string();
        let offered = error.rsplit_once("take at most time:").unwrap().1.split_once('@').unwrap().0;
        let offered: u32 = offered.parse().unwrap();
        assert!(build(offered, MAX_UNIX_MS).is_ok(), "{error}");
        assert!(build(offered + 1, MAX_UNIX_MS).is_err(), "{error}");
    }
}

#[test]
fn an_empty_lease_is_told_in_utc_with_the_remedy() {
    let lease =
        Lease { worker: WorkerId(1), from_unix_ms: 1_700_000_000_000, until_unix_ms: 1_700_000_000_000 };
    let error =
        Generator::builder(Layout::TWITTER).lease(lease).build(ManualClock::at_unix_ms(0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the lease is empty, from 2023-11-14T22:13:20.000Z to 2023-11-14T22:13:20.000Z: give one that ends after it \
         begins"
    );
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
    assert!(matches!(layout(100, 1, 0), Err(LayoutError::FieldTooWide { bits: 100, limit: 62, .. })));
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

/// Goal: an error that holds another one says what that one says, once. Method: one of each kind; its text,
/// and the texts of its chain of sources.
#[test]
fn an_error_that_holds_another_shows_its_text_once() {
    use std::error::Error;
    let too_wide = "time:41 worker:30 epoch:2020-01-01".parse::<Layout>().unwrap_err();
    let no_epoch = "time:41 epoch:never".parse::<Layout>().unwrap_err();
    let worker = Generator::builder(Layout::TWITTER).worker(WorkerId(32)).build(ManualClock::at_unix_ms(0));
    let digits = "alphabet=aa".parse::<snowmint::codec::Digits>().unwrap_err();
    for (error, words) in [
        (&too_wide as &dyn Error, "add up to 71 bits"),
        (&no_epoch, "invalid instant `never`"),
        (&worker.unwrap_err(), "worker 32 is out of range"),
        (&digits, "`a` appears at positions 0 and 1"),
    ] {
        let chain: Vec<String> =
            std::iter::successors(Some(error), |&error| error.source()).map(ToString::to_string).collect();
        assert_eq!(chain.iter().filter(|text| text.contains(words)).count(), 1, "{chain:?}");
    }
}

/// Goal: an id's time and the times around it convert. Method: an id that was published with its instant;
/// both ends.
#[test]
fn times_convert_from_and_to_system_time() {
    use std::time::{SystemTime, UNIX_EPOCH};

    let time = UNIX_EPOCH + Duration::from_millis(1_656_432_460_105);
    assert_eq!(Layout::TWITTER.time_of(Id::new(1_541_815_603_606_036_480).unwrap()), Ok(time));
    let bounds = (Layout::TWITTER.first_id_at(time), Layout::TWITTER.last_id_at(time));
    let unix_ms = Utc(1_656_432_460_105);
    assert_eq!(bounds, (Layout::TWITTER.first_id_at(unix_ms), Layout::TWITTER.last_id_at(unix_ms)));
    assert!(bounds.0.is_some_and(|first| Layout::TWITTER.time_of(first) == Ok(time)));
    let js53: Layout = "js53".parse().unwrap();
    assert!(js53.time_of(Id::MAX).is_err(), "not an id of that layout");
    assert_eq!(Utc::from(time + Duration::from_nanos(999_999)), Utc(1_656_432_460_105), "cut, not rounded");
    assert_eq!(Utc::from(UNIX_EPOCH - Duration::from_secs(1)), Utc(0));
    for unix_ms in [0, 1, MAX_UNIX_MS] {
        assert_eq!(Utc::from(SystemTime::from(Utc(unix_ms))), Utc(unix_ms));
    }
    assert!(SystemTime::from(Utc(u64::MAX)) >= SystemTime::from(Utc(MAX_UNIX_MS)));
}

/// Goal: a warning begins five years before the end of a layout, and says when it ends. Method: the
/// millisecond on both sides of each bound.
#[test]
fn an_expiry_warning_starts_five_years_before_the_end() {
    let layout = Layout::TWITTER;
    let ends = layout.ends_at_unix_ms();
    let five_years = 157_784_760_000;
    assert_eq!(layout.expiry_warning(ends - five_years), None);
    for (left, shown) in
        [(five_years - 1, "in 4.9 years"), (31_556_952_000, "in 1.0 years"), (1, "in 0.0 years")]
    {
        let warning = layout.expiry_warning(ends - left).unwrap().to_string();
        assert!(warning.starts_with(&format!("the layout ends on 2080-07-10, {shown}: ")), "{warning}");
    }
    for now in [ends, ends + 1, u64::MAX] {
        let warning = layout.expiry_warning(now).unwrap().to_string();
        assert!(warning.starts_with("the layout ended on 2080-07-10: "), "{warning}");
    }
}
