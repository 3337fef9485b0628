//! `snowmint inspect`.

use crate::run::{Bench, json};

const TWEET: &str = "1541815603606036480";

const DRAWN: &str = "\
1541815603606036480  twitter
    ┌─────────────────────────────────────────┬─────┬─────┬────────────┐
  0 │00101010110010110100001000111110110001000│01011│11010│000000000000│
    └┬────────────────────────────────────────┴┬────┴┬────┴┬───────────┘
     │                                         │     │     └ sequence, 12 bits: 0
     │                                         │     └ worker, 5 bits: 26
     │                                         └ datacenter, 5 bits: 11
     └ time, 41 bits: 367,597,485,448
  utc     2022-06-28T16:07:40.105Z
  local   2022-06-28T16:07:40.105+00:00 UTC
";

const AFTER_AGE: &str = "  hex     1565a11f6217a000\n  base62  1ptWyK4WgZU\n";

#[test]
fn a_known_id_is_drawn() {
    let out = Bench::new().out(&["inspect", TWEET]);
    let rest = out.strip_prefix(DRAWN).unwrap_or_else(|| panic!("{out}"));
    let (age, rest) = rest.split_once('\n').unwrap();
    assert!(age.starts_with("  age     ") && age.ends_with(" years ago"), "{age}");
    let others = rest.strip_prefix(AFTER_AGE).unwrap_or_else(|| panic!("{rest}"));
    assert!(others.starts_with("  or      leaf: 2022-06-28T16:07:40.105Z ("), "{others}");
    assert!(others.lines().count() <= 4 && others.lines().all(|line| line.starts_with("  or ")), "{others}");
}

#[test]
fn a_layout_that_is_named_is_the_only_reading() {
    let out = Bench::new().out(&["inspect", "--layout", "twitter", TWEET]);
    assert!(out.ends_with(AFTER_AGE), "{out}");
}

#[test]
fn what_is_no_number_is_recognised_by_itself() {
    let bench = Bench::new();
    for (text, kind, instant) in [
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "ulid", "2016-07-30T23:54:10.259Z"),
        ("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "uuid7", "2022-02-22T19:22:22.000Z"),
        ("507f1f77bcf86cd799439011", "objectid", "2012-10-17T21:13:27.000Z"),
        ("1ptWyK4WgZU", "twitter", "2022-06-28T16:07:40.105Z"),
        ("56705782302306333", "sonyflake", "2015-09-27T04:41:20.100Z"),
    ] {
        let out = bench.out(&["inspect", text]);
        assert!(out.contains(&format!("  {kind}\n")) && out.contains(instant), "{text}: {out}");
    }
}

#[test]
fn a_known_id_as_json() {
    assert_eq!(
        Bench::new().out(&["inspect", TWEET, "--json"]),
        "{\"id\":\"1541815603606036480\",\
         \"layout\":\"time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z\",\
         \"timestamp\":367597485448,\"unix_ms\":1656432460105,\"utc\":\"2022-06-28T16:07:40.105Z\",\
         \"datacenter\":11,\"worker\":26,\"sequence\":0,\
         \"binary\":\"0 00101010110010110100001000111110110001000 01011 11010 000000000000\"}\n"
    );
}

#[test]
fn the_local_time_is_that_of_tz() {
    for (zone, wanted) in [
        ("Europe/Berlin", "local   2022-06-28T18:07:40.105+02:00 Europe/Berlin\n"),
        ("Asia/Kolkata", "local   2022-06-28T21:37:40.105+05:30 Asia/Kolkata\n"),
        ("America/New_York", "local   2022-06-28T12:07:40.105-04:00 America/New_York\n"),
    ] {
        let out = Bench::new().with_env("TZ", zone).out(&["inspect", TWEET]);
        assert!(out.contains(wanted), "{out}");
    }
}

#[test]
fn ids_come_from_a_pipe_in_any_arrangement() {
    let input = format!("\n{TWEET}, 0 9223372036854775807\r\n,,{TWEET}");
    let ran = Bench::new().run_with_input(&["inspect", "--json"], &input);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let ids: Vec<_> = ran.out.lines().map(|line| json(line)["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, [TWEET, "0", "9223372036854775807", TWEET]);
    assert_eq!(Bench::new().out(&["inspect"]), "", "no ids are no error in a pipe");
}

#[test]
fn a_bad_id_among_good_ones_is_told_and_passed_over() {
    for bad in ["12x", "-5", "9223372036854775808", "99999999999999999999", "ünï", "1\u{1b}[31m", "1.5"] {
        let ran = Bench::new().run(&["inspect", "--json", TWEET, bad, "0"]);
        assert_eq!((ran.code, ran.out.lines().count()), (2, 2), "{bad}");
        assert!(ran.err.starts_with("error: `") && ran.err.contains("` is not an id: "), "{}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        assert!(!ran.err.contains('\x1b'), "{}", ran.err);
        let ran = Bench::new().run_with_input(&["inspect", "--json"], &format!("{TWEET}\n{bad}\n0\n"));
        assert_eq!((ran.code, ran.out.lines().count()), (2, 2), "{bad} from a pipe");
    }
}

#[test]
fn an_id_with_bits_that_the_layout_has_not_is_refused() {
    let ran = Bench::new().run(&["inspect", "--layout", "js53", "9223372036854775807"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert_eq!(
        ran.err,
        "error: `9223372036854775807` is not an id of this layout: 9223372036854775807 has 63 bits, the layout \
         only 53: another layout made it; name it with --layout\n"
    );
}

#[test]
fn other_forms_are_read_when_named() {
    let bench = Bench::new();
    let wanted = bench.out(&["inspect", "--json", TWEET]);
    for (form, text) in [
        ("base62", "1ptWyK4WgZU"),
        ("base62", "01ptWyK4WgZU"),
        ("hex", "1565a11f6217a000"),
        ("hex", "0x1565A11F6217A000"),
        ("dec", "0001541815603606036480"),
    ] {
        let ran = bench.run(&["inspect", "--json", "--format", form, text]);
        if text.len() > 19 || (form == "base62" && text.len() > 11) {
            assert!(ran.code == 2 && ran.err.contains("it has at most"), "{form} {text}: {}", ran.err);
        } else {
            assert_eq!(ran.out, wanted, "{form} {text}");
        }
    }
    let told = bench.run(&["inspect", "--layout", "twitter", "1ptWyK4WgZU"]).err;
    assert!(told.ends_with("for ids in base62 or hex add --format\n"), "{told}");
}

#[test]
fn a_coarse_tick_is_named_and_fields_keep_the_layouts_order() {
    let out = Bench::new().out(&["inspect", "--layout", "sonyflake", "500000000000000000"]);
    assert!(out.contains(", the start of a tick of 10ms\n"), "{out}");
    let (sequence, worker) = (out.find("sequence, 8 bits").unwrap(), out.find("worker, 16 bits").unwrap());
    assert!(worker < sequence, "the lowest field is drawn first: {out}");
}

#[test]
fn nothing_is_coloured_in_a_pipe() {
    let bench = Bench::new();
    for args in [&["inspect", TWEET][..], &["layout", "twitter"], &["layouts"], &["--help"]] {
        assert!(!bench.out(args).contains('\x1b'), "{args:?}");
    }
}

#[test]
fn the_layout_may_come_from_the_environment() {
    let bench = Bench::new().with_env("SNOWMINT_LAYOUT", "leaf");
    assert_eq!(json(&bench.out(&["inspect", "--json", TWEET]))["worker"], 378);
    let bench = Bench::new().with_env("SNOWMINT_LAYOUT", "time:99");
    let told = bench.refused(&["inspect", TWEET], 2);
    assert!(told.contains("--layout") && told.contains("set by the variable SNOWMINT_LAYOUT"), "{told}");
}
