//! `snowmint layout` and `snowmint layouts`.

use std::process::{Command, Stdio};

use crate::support::{Sandbox, json};

const TWITTER: &str = "\
twitter  time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z
bit  62                                        21    16    11         0
    ┌─────────────────────────────────────────┬─────┬─────┬────────────┐
  0 │ttttttttttttttttttttttttttttttttttttttttt│ddddd│wwwww│ssssssssssss│
    └┬────────────────────────────────────────┴┬────┴┬────┴┬───────────┘
     │                                         │     │     └ sequence, 12 bits: 0 to 4,095
     │                                         │     └ worker, 5 bits: 0 to 31
     │                                         └ datacenter, 5 bits: 0 to 31
     └ time, 41 bits: 0 to 2,199,023,255,551
  tick               1ms
  ids a second       4,096,000 a worker, 4,194,304,000 in all (1,024 workers: 32 in each of 32 datacenters)
  first instant      2010-11-04T01:42:54.657Z
  last instant       2080-07-10T17:30:30.208Z
";

#[test]
fn a_layout_is_drawn_with_its_figures() {
    let out = Sandbox::new().out(&["layout", "twitter"]);
    let rest = out.strip_prefix(TWITTER).unwrap_or_else(|| panic!("{out}"));
    let (years, rest) = rest.split_once('\n').unwrap();
    assert!(years.starts_with("  years left         "), "{years}");
    assert_eq!(
        rest,
        "  sorts by time      yes, the timestamp is on top\n  \
           safe in JavaScript no, 63 bits and a number has 53: send ids as strings\n  \
           fingerprint        time41@1ms.datacenter5.worker5.sequence12.1288834974657\n"
    );
}

#[test]
fn a_layout_as_json_has_its_members_in_order() {
    let out = Sandbox::new().out(&["layout", "js53", "--json"]);
    let (before, rest) = out.split_once("\"years_left\":").unwrap();
    assert_eq!(
        before,
        "{\"name\":\"js53\",\"layout\":\"time:41@1ms worker:3 sequence:9 epoch:2019-12-24T16:00:00.000Z\",\
         \"fingerprint\":\"time41@1ms.worker3.sequence9.1577203200000\",\"bits\":53,\"fields\":[\
         {\"name\":\"time\",\"bits\":41,\"shift\":12,\"max\":2199023255551},\
         {\"name\":\"worker\",\"bits\":3,\"shift\":9,\"max\":7},\
         {\"name\":\"sequence\",\"bits\":9,\"shift\":0,\"max\":511}],\
         \"tick_ms\":1,\"epoch_unix_ms\":1577203200000,\"epoch_utc\":\"2019-12-24T16:00:00.000Z\",\
         \"ids_per_second_per_worker\":512000,\"workers\":8,\"ids_per_second\":4096000,\
         \"first_unix_ms\":1577203200000,\"first_utc\":\"2019-12-24T16:00:00.000Z\",\
         \"last_unix_ms\":3776226455551,\"last_utc\":\"2089-08-30T07:47:35.551Z\","
    );
    assert!(
        rest.ends_with(",\"ended\":false,\"sorts_by_time\":true,\"safe_in_javascript\":true}\n"),
        "{rest}"
    );
}

#[test]
fn the_text_form_may_be_one_argument_or_several() {
    let sandbox = Sandbox::new();
    let several =
        sandbox.out(&["layout", "time:41", "worker:10", "sequence:12", "epoch:2026-01-01", "--json"]);
    let one =
        sandbox.out(&["layout", "--json", "time:41@1ms worker:10 sequence:12 epoch:2026-01-01T00:00:00Z"]);
    assert_eq!(json(&several)["layout"], json(&one)["layout"]);
    assert!(json(&one)["name"].is_null());
}

#[test]
fn what_does_not_sort_or_has_ended_says_so() {
    let sandbox = Sandbox::new();
    let out = sandbox.out(&["layout", "worker:10", "time:41", "sequence:12", "epoch:2026-01-01"]);
    assert!(out.contains("sorts by time      no, the timestamp is not on top"), "{out}");
    let out = sandbox.out(&["layout", "baidu"]);
    assert!(out.contains("years left         none, it ended on 2024-11-20\n"), "{out}");
    let figures = json(&sandbox.out(&["layout", "baidu", "--json"]));
    assert_eq!((figures["ended"].as_bool(), figures["years_left"].as_f64()), (Some(true), Some(0.0)));
}

#[test]
fn rates_beyond_64_bits_and_below_one_are_shown() {
    let sandbox = Sandbox::new();
    let fast = ["layout", "time:1", "datacenter:31", "worker:30", "sequence:1", "epoch:2026-01-01"];
    assert!(
        sandbox.out(&fast).contains(
            "(2,305,843,009,213,693,952 workers: 1,073,741,824 in each of 2,147,483,648 datacenters)"
        )
    );
    assert!(
        sandbox
            .out(&[&fast[..], &["--json"]].concat())
            .contains("\"ids_per_second\":4611686018427387904000,")
    );
    let slow = sandbox.out(&["layout", "time:30@60s", "worker:10", "sequence:4", "epoch:2026-01-01"]);
    assert!(
        slow.contains("less than 1 a worker, less than 1 in all") || slow.contains("less than 1 a worker"),
        "{slow}"
    );
}

#[test]
fn a_layout_that_cannot_be_is_refused_with_what_would_fit() {
    let told = Sandbox::new().refused(&["layout", "time:37", "worker:20", "sequence:16"], 2);
    for wanted in
        ["73 bits, 10 over the 63 an id has", "what would fit: sequence:6", "worker:10 (1024 workers)"]
    {
        assert!(told.contains(wanted), "{told}");
    }
}

#[test]
fn a_spec_that_is_none_is_refused() {
    let sandbox = Sandbox::new();
    for (spec, wanted) in [
        (&["nonesuch"][..], "unknown layout `nonesuch`: expected twitter, discord"),
        (&["twiter"], "unknown layout `twiter`: did you mean twitter?"),
        (&["Sonyflak"], "unknown layout `Sonyflak`: did you mean sonyflake?"),
        (&["leif"], "unknown layout `leif`: did you mean leaf?"),
        (&["x"], "unknown layout `x`: expected twitter, discord"),
        (&["time:41", "worker:10"], "missing epoch"),
        (&["worker:10", "epoch:2026-01-01"], "missing timestamp"),
        (&["time:41", "machine:10", "epoch:2026-01-01"], "`machine:10` is not part of a layout"),
        (&["time:41", "worker:ten", "epoch:2026-01-01"], "`ten` is not a width for worker"),
        (&["time:41", "worker:5", "worker:5", "epoch:2026-01-01"], "duplicate field worker"),
        (&[""], "an empty text is not a layout"),
    ] {
        let told = sandbox.refused(&[&["layout"], spec].concat(), 2);
        assert!(told.contains(wanted), "{told}");
    }
}

#[test]
fn the_presets_are_listed() {
    let sandbox = Sandbox::new();
    let out = sandbox.out(&["layouts"]);
    assert_eq!(out.lines().count(), 1 + 2 * 30, "{out}");
    for wanted in [
        "name                 ids/s a worker  ends         about\n",
        "twitter                   4,096,000  2080-07-10   Twitter Snowflake",
        "                   time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z\n",
        "baidu                         8,192  2024-11-20   ENDED: ",
        "pod-ip                        2,048  2030-03-20   ",
        "ferroid-instagram         1,024,000  2045-11-03   ",
    ] {
        assert!(out.contains(wanted), "{wanted:?} in {out}");
    }
    let lines: Vec<_> = sandbox.out(&["layouts", "--json"]).lines().map(json).collect();
    assert_eq!(lines.len(), 30);
    for line in &lines {
        assert!(line["about"].is_string() && line["source"].is_string());
        let name = line["name"].as_str().unwrap();
        let alone = json(&sandbox.out(&["layout", name, "--json"]));
        assert_eq!(alone["layout"], line["layout"]);
    }
}

/// Goal: on a narrow terminal, no line is wrapped. Method: `script` gives the command a terminal of that
/// width.
#[test]
fn a_narrow_terminal_gets_no_box() {
    let sandbox = Sandbox::new();
    for (columns, has_box) in [(40, false), (100, true)] {
        for command in ["layout twitter", "inspect --layout twitter 1541815603606036480"] {
            let program = sandbox.command(&[]).get_program().to_str().unwrap().to_owned();
            let shell = format!("stty cols {columns} && '{program}' {command} --color never");
            let ran =
                Command::new("script").args(["-qec", &shell, "/dev/null"]).stdin(Stdio::null()).output();
            let ran = ran.unwrap_or_else(|error| panic!("script: {error}: apt-get install util-linux"));
            let out = String::from_utf8(ran.stdout).unwrap();
            assert!(ran.status.success() && out.contains("datacenter, 5 bits: "), "{columns}: {out}");
            assert_eq!(out.contains('┌'), has_box, "{columns}: {out}");
        }
    }
}
