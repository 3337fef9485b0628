//! `snowmint inspect`.

use serde_json::Value;

use crate::support::{Sandbox, json};

const TWEET: &str = "1541815603606036480";

/// Ages decide which reading is likeliest, so the tests fix the current time.
const TODAY: &str = "--now=2026-11-22T08:00:00Z";

const DRAWN: &str = "\
1541815603606036480  twitter, 96% likely
bit  62                                        21    16    11         0
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
    let out = Sandbox::new().out(&["inspect", TODAY, TWEET]);
    let rest = out.strip_prefix(DRAWN).unwrap_or_else(|| panic!("{out}"));
    let (age, rest) = rest.split_once('\n').unwrap();
    assert_eq!(age, "  age     4 years ago");
    let others = rest.strip_prefix(AFTER_AGE).unwrap_or_else(|| panic!("{rest}"));
    let leaf = "  or      leaf: 2022-06-28T16:07:40.105Z (4 years ago), ";
    assert!(others.contains(leaf), "{others}");
    assert!(others.lines().count() <= 5 && others.lines().all(|line| line.starts_with("  or ")), "{others}");
}

#[test]
fn a_layout_that_is_named_is_the_only_reading() {
    let out = Sandbox::new().out(&["inspect", "--layout", "twitter", TWEET]);
    assert!(out.ends_with(AFTER_AGE), "{out}");
}

#[test]
fn what_is_no_number_is_recognised_by_itself() {
    let sandbox = Sandbox::new();
    for (text, kind, instant) in [
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "ulid", "2016-07-30T23:54:10.259Z"),
        ("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "uuid7", "2022-02-22T19:22:22.000Z"),
        ("507f1f77bcf86cd799439011", "objectid", "2012-10-17T21:13:27.000Z"),
        ("1ptWyK4WgZU", "twitter", "2022-06-28T16:07:40.105Z"),
    ] {
        let out = sandbox.out(&["inspect", TODAY, text]);
        assert!(out.contains(&format!("  {kind}, ")) && out.contains(instant), "{text}: {out}");
    }
}

#[test]
fn a_known_id_as_json() {
    assert_eq!(
        Sandbox::new().out(&["inspect", TWEET, "--json", "--layout", "twitter"]),
        "{\"id\":\"1541815603606036480\",\
         \"layout\":\"time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z\",\
         \"timestamp\":367597485448,\"unix_ms\":1656432460105,\"utc\":\"2022-06-28T16:07:40.105Z\",\
         \"datacenter\":11,\"worker\":26,\"sequence\":0,\
         \"binary\":\"0 00101010110010110100001000111110110001000 01011 11010 000000000000\"}\n"
    );
}

/// The name, the form and the instant of each guess.
fn guesses(read: &Value) -> Vec<(&str, &str, Option<u64>)> {
    let all = read["guesses"].as_array().unwrap();
    let costs: Vec<f64> = all.iter().map(|guess| guess["cost_bits"].as_f64().unwrap()).collect();
    assert!(costs.is_sorted() && costs.last().unwrap() - costs[0] <= 20.0, "{read}");
    assert!(all.iter().all(|guess| guess["utc"].is_string() == guess["unix_ms"].is_u64()), "{read}");
    let names: std::collections::BTreeSet<_> = all.iter().map(|guess| guess["name"].as_str()).collect();
    assert_eq!(names.len(), all.len(), "each name once: {read}");
    all.iter()
        .map(|it| (it["name"].as_str().unwrap(), it["form"].as_str().unwrap(), it["unix_ms"].as_u64()))
        .collect()
}

/// Goal: JSON lists the other readings too, and its main reading is the likeliest. Method: Discord's own
/// example, which differs from an old tweet only by the epoch; ids of the same layout, of `CosId`'s, and of
/// Yitter's.
#[test]
fn json_lists_what_an_id_may_be_the_likeliest_first() {
    let sandbox = Sandbox::new();
    for (id, name, unix_ms) in [
        ("175928847299117063", "discord", 1_462_015_105_796),
        (TWEET, "twitter", 1_656_432_460_105),
        ("295913926632165376", "cosid", 1_647_754_577_924),
        ("129053495681099", "yitter", 1_613_643_603_094),
    ] {
        let read = json(&sandbox.out(&["inspect", TODAY, "--json", id]));
        let guesses = guesses(&read);
        assert!(guesses.contains(&(name, "decimal", Some(unix_ms))), "{name}: {read}");
        assert_eq!(read["unix_ms"].as_u64(), guesses[0].2, "the fields are those of the first: {read}");
        assert_eq!(read["id"], id);
    }
    let yitter = json(&sandbox.out(&["inspect", TODAY, "--json", "129053495681099"]));
    assert_eq!((&yitter["worker"], &yitter["sequence"]), (&Value::from(1), &Value::from(11)), "{yitter}");
    let named = json(&sandbox.out(&["inspect", "--json", "--layout", "discord", "175928847299117063"]));
    assert!(named["guesses"].is_null() && named["unix_ms"] == 1_462_015_105_796_u64, "{named}");
}

#[test]
fn json_reads_other_texts_and_schemes_by_itself() {
    let sandbox = Sandbox::new();
    let read = json(&sandbox.out(&["inspect", TODAY, "--json", "1ptWyK4WgZU"]));
    assert_eq!(guesses(&read)[0], ("twitter", "base62", Some(1_656_432_460_105)));
    assert_eq!(read["id"], TWEET);
    let read = json(&sandbox.out(&["inspect", TODAY, "--json", "--format", "base62", "1ptWyK4WgZU"]));
    assert_eq!(guesses(&read)[0], ("twitter", "base62", Some(1_656_432_460_105)));

    let read = json(&sandbox.out(&["inspect", "--json", "01arz3ndektsv4rrffq69g5fav"]));
    assert_eq!(guesses(&read), [("ulid", "ulid", Some(1_469_922_850_259))]);
    assert_eq!((&read["id"], &read["scheme"]), (&"01ARZ3NDEKTSV4RRFFQ69G5FAV".into(), &"ulid".into()));
    assert_eq!(read["unix_ms"], 1_469_922_850_259_u64);
    assert_eq!(read["random"], "d6764c61efb99302bd5b");
    let read = json(&sandbox.out(&["inspect", "--json", "919108f7-52d1-4320-9bac-f847db4148a8"]));
    assert_eq!(guesses(&read), [("uuid4", "uuid4", None)]);
    assert!(read["unix_ms"].is_null() && read["version"] == 4, "{read}");
}

/// Goal: no layout is drawn if a plain number is likeliest, in either form.
#[test]
fn a_plain_number_is_called_one() {
    let sandbox = Sandbox::new();
    for number in ["0", "7", "4000000"] {
        let out = sandbox.out(&["inspect", number]);
        assert!(out.starts_with(&format!("{number}  number, ")), "{out}");
        assert!(!out.contains("twitter") && !out.contains("┌"), "{out}");
        let read = json(&sandbox.out(&["inspect", "--json", number]));
        assert_eq!(guesses(&read)[0], ("number", "decimal", None));
        assert!(read["id"] == number && read["layout"].is_null() && read["unix_ms"].is_null(), "{read}");
    }
    let out = sandbox.out(&["inspect", "--format", "base62", "zz"]);
    assert!(out.starts_with("3843  number, 99% likely\n"), "{out}");
    let named = sandbox.out(&["inspect", "--layout", "twitter", "7"]);
    assert!(named.starts_with("7  twitter\n"), "a layout that is named is taken: {named}");
}

/// Goal: layouts that differ only in their epoch leave room for others. Method: an id of `CosId`'s, which
/// five presets read in the same way.
#[test]
fn layouts_of_the_same_bits_do_not_fill_the_list() {
    let out = Sandbox::new().out(&["inspect", TODAY, "295913926632165376"]);
    let others: Vec<&str> = out.lines().filter(|line| line.starts_with("  or ")).collect();
    assert_eq!(others.len(), 5, "{out}");
    assert!(others[4].ends_with(" likely") && others[4].contains(" more, see --json"), "{out}");
    let same_bits = ["twitter", "leaf", "cosid", "tsid", "shardingsphere", "icicle"];
    let of_same_bits = |line: &&&str| same_bits.iter().any(|name| line.contains(name));
    assert!(others[..4].iter().filter(of_same_bits).count() <= 3, "{out}");
}

/// Goal: an id that is minutes old by a commonly chosen epoch is read by that epoch, and no reading is called
/// certain. Method: ids of three epochs and layouts, inspected five minutes later; `twitter` reads the first
/// as one of 2011.
#[test]
fn an_id_that_is_minutes_old_is_read_by_its_epoch() {
    let sandbox = Sandbox::new();
    let layouts = [
        ("time:41 datacenter:5 worker:5 sequence:12 epoch:2026-01-01", 0),
        ("time:41 worker:10 sequence:12 epoch:2020-01-01", 0),
        ("time:39@10ms sequence:8 worker:16 epoch:2023-01-01", 61_469),
    ];
    for (text, worker) in layouts {
        let layout: snowmint::Layout = text.parse().unwrap();
        let made = snowmint::utc::parse("2026-11-22T07:55:00Z").unwrap();
        let id = (layout.first_id_at(snowmint::utc::Utc(made)).unwrap().get() + worker).to_string();
        let read = json(&sandbox.out(&["inspect", TODAY, "--json", &id]));
        assert_eq!(guesses(&read)[0].2, Some(made), "{text}: {read}");
        let likelihoods: Vec<f64> =
            read["guesses"].as_array().unwrap().iter().map(|it| it["likelihood"].as_f64().unwrap()).collect();
        assert!(likelihoods.iter().sum::<f64>() < 0.995 && likelihoods[0] > 0.3, "{read}");
        let drawn = sandbox.out(&["inspect", TODAY, &id]);
        assert!(drawn.contains("% likely\n") && drawn.contains("5 minutes ago"), "{drawn}");
        // Years later it may belong to another layout.
        let later = json(&sandbox.out(&["inspect", "--now=2031-11-22", "--json", &id]));
        assert!(guesses(&later).len() > 3, "{later}");
    }
    let refused = sandbox.refused(&["inspect", "--now", "2026", TWEET], 2);
    assert!(refused.contains("--now") && refused.contains("2026"), "{refused}");
}

#[test]
fn the_local_time_is_that_of_tz() {
    for (zone, wanted) in [
        ("Europe/Berlin", "local   2022-06-28T18:07:40.105+02:00 Europe/Berlin\n"),
        ("Asia/Kolkata", "local   2022-06-28T21:37:40.105+05:30 Asia/Kolkata\n"),
        ("America/New_York", "local   2022-06-28T12:07:40.105-04:00 America/New_York\n"),
    ] {
        let out = Sandbox::new().with_env("TZ", zone).out(&["inspect", TWEET]);
        assert!(out.contains(wanted), "{out}");
    }
}

#[test]
fn ids_come_from_a_pipe_in_any_arrangement() {
    let input = format!("\n{TWEET}, 0 9223372036854775807\r\n,,{TWEET}");
    let ran = Sandbox::new().run_with_input(&["inspect", "--json"], &input);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let ids: Vec<_> = ran.out.lines().map(|line| json(line)["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, [TWEET, "0", "9223372036854775807", TWEET]);
    assert_eq!(Sandbox::new().out(&["inspect"]), "", "no ids are no error in a pipe");
}

#[test]
fn a_bad_id_among_good_ones_is_told_and_passed_over() {
    for bad in ["12x", "-5", "9223372036854775808", "99999999999999999999", "ünï", "1\u{1b}[31m", "1.5"] {
        let ran = Sandbox::new().run(&["inspect", "--json", TWEET, bad, "0"]);
        assert_eq!((ran.code, ran.out.lines().count()), (2, 2), "{bad}");
        assert!(ran.err.starts_with("error: invalid id `"), "{}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        assert!(!ran.err.contains('\x1b'), "{}", ran.err);
        let ran = Sandbox::new().run_with_input(&["inspect", "--json"], &format!("{TWEET}\n{bad}\n0\n"));
        assert_eq!((ran.code, ran.out.lines().count()), (2, 2), "{bad} from a pipe");
    }
}

#[test]
fn an_id_with_bits_that_the_layout_has_not_is_refused() {
    let ran = Sandbox::new().run(&["inspect", "--layout", "js53", "9223372036854775807"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert_eq!(
        ran.err,
        "error: invalid id `9223372036854775807` for this layout: 9223372036854775807 has 63 bits, but the \
         layout has only 53: another layout made it; name another with --layout\n"
    );
}

#[test]
fn other_forms_are_read_when_named() {
    let sandbox = Sandbox::new();
    let sandbox = sandbox.with_env("SNOWMINT_LAYOUT", "twitter");
    let wanted = sandbox.out(&["inspect", "--json", TWEET]);
    for (form, text) in [
        ("base62", "1ptWyK4WgZU"),
        ("base62", "01ptWyK4WgZU"),
        ("hex", "1565a11f6217a000"),
        ("hex", "0x1565A11F6217A000"),
        ("dec", "0001541815603606036480"),
        ("base32", "1asd13xh1f800"),
        ("base58", "4aaW4SzAyQK"),
        ("alphabet=9876543210", "8458184396393963519"),
    ] {
        let ran = sandbox.run(&["inspect", "--json", "--format", form, text]);
        if text.len() > 19 || (form == "base62" && text.len() > 11) {
            assert!(ran.code == 2 && ran.err.contains("expected at most"), "{form} {text}: {}", ran.err);
        } else {
            assert_eq!(ran.out, wanted, "{form} {text}");
        }
    }
    let told = sandbox.run(&["inspect", "--layout", "twitter", "1ptWyK4WgZU"]).err;
    assert!(told.ends_with("; name another text form with --format\n"), "{told}");
}

#[test]
fn a_coarse_tick_is_named_and_fields_keep_the_layouts_order() {
    let out = Sandbox::new().out(&["inspect", "--layout", "sonyflake", "500000000000000000"]);
    assert!(out.contains(", the start of a tick of 10ms\n"), "{out}");
    let (sequence, worker) = (out.find("sequence, 8 bits").unwrap(), out.find("worker, 16 bits").unwrap());
    assert!(worker < sequence, "the lowest field is drawn first: {out}");
}

#[test]
fn nothing_is_coloured_in_a_pipe() {
    let sandbox = Sandbox::new();
    for args in [&["inspect", TWEET][..], &["layout", "twitter"], &["layouts"], &["--help"]] {
        assert!(!sandbox.out(args).contains('\x1b'), "{args:?}");
    }
}

#[test]
fn the_layout_may_come_from_the_environment() {
    let sandbox = Sandbox::new().with_env("SNOWMINT_LAYOUT", "leaf");
    assert_eq!(json(&sandbox.out(&["inspect", "--json", TWEET]))["worker"], 378);
    let sandbox = Sandbox::new().with_env("SNOWMINT_LAYOUT", "time:99");
    let told = sandbox.refused(&["inspect", TWEET], 2);
    assert!(
        told.contains("--layout") && told.contains("set by the environment variable SNOWMINT_LAYOUT"),
        "{told}"
    );
}

/// Goal: a plain number whose digits also fit another form is read as decimal.
#[test]
fn a_number_of_ones_and_zeros_is_decimal() {
    let sandbox = Sandbox::new();
    for number in ["1000", "1001", "1010", "1112", "101", "11111111"] {
        let out = sandbox.out(&["inspect", number]);
        assert!(out.starts_with(&format!("{number}  number, ")), "{out}");
    }
}

/// Goal: several ids give a table, one gives a drawing, from arguments and from a pipe alike.
#[test]
fn several_ids_are_a_table() {
    let sandbox = Sandbox::new();
    let table = sandbox.out(&["inspect", "--layout", "twitter", TWEET, "1000"]);
    assert_eq!(
        table,
        "                 id  utc                       datacenter  worker  sequence\n\
         1541815603606036480  2022-06-28T16:07:40.105Z          11      26         0\n\
         \u{20}              1000  2010-11-04T01:42:54.657Z           0       0      1000\n"
    );
    let piped = sandbox.run_with_input(&["inspect", "--layout", "twitter"], &format!("{TWEET}\n1000\n"));
    assert_eq!((piped.out, piped.code), (table, 0));
    let one = sandbox.run_with_input(&["inspect", "--layout", "twitter"], TWEET).out;
    assert_eq!(one, sandbox.out(&["inspect", "--layout", "twitter", TWEET]));
    assert!(one.contains('┌'), "{one}");
    let guessed = sandbox.out(&["inspect", TODAY, TWEET, "01ARZ3NDEKTSV4RRFFQ69G5FAV", "7"]);
    let lines: Vec<&str> = guessed.lines().collect();
    assert_eq!(lines.len(), 4, "{guessed}");
    assert!(lines[1].contains("%  twitter, 4 years ago"), "{guessed}");
    assert!(lines[2].contains("2016-07-30T23:54:10.259Z") && lines[2].contains("ulid"), "{guessed}");
    assert!(lines[3].contains("  -  ") && lines[3].ends_with("number"), "{guessed}");
    let drawn = sandbox.out(&["inspect", TODAY, "--view", "drawing", TWEET, TWEET]);
    assert_eq!(drawn.matches('┌').count(), 2);
    assert!(sandbox.out(&["inspect", "--view", "table", "--layout", "leaf", TWEET]).lines().count() == 2);
}

/// Goal: an invalid id in a pipe does not stop the command. Method: 200,000 lines, one of them invalid, as a
/// table and as JSON.
#[test]
fn a_long_pipe_is_decoded_whole() {
    let sandbox = Sandbox::new();
    let first = TWEET.parse::<u64>().unwrap();
    let lines: Vec<_> = (0..200_000).map(|nth| format!("{}\n", first + nth * 4099)).collect();
    let input = format!("{}x\n", lines.concat());
    let table = sandbox.run_with_input(&["inspect", "--layout", "twitter"], &input);
    assert_eq!((table.code, table.out.lines().count()), (2, 200_001));
    assert_eq!(table.err.lines().count(), 1, "{}", table.err);
    let read = sandbox.run_with_input(&["inspect", "--layout", "twitter", "--json"], &input);
    let last = json(read.out.lines().last().unwrap());
    assert_eq!(last["id"], (first + 199_999 * 4099).to_string());
    assert!(table.out.ends_with(&format!("{:>8}\n", last["sequence"])), "{last}");
}

#[test]
fn colour_is_a_choice() {
    let sandbox = Sandbox::new().with_env("NO_COLOR", "1");
    let plain = sandbox.out(&["inspect", "--layout", "twitter", TWEET]);
    let coloured = sandbox.out(&["--color", "always", "inspect", "--layout", "twitter", TWEET]);
    assert!(coloured.contains("\x1b[36m") && !plain.contains('\x1b'), "{coloured}");
    assert_eq!(sandbox.out(&["inspect", "--layout", "twitter", TWEET, "--color=never"]), plain);
    assert!(sandbox.out(&["--help", "--color=always"]).contains('\x1b'));
    assert!(sandbox.refused(&["inspect", "--color", "pink", TWEET], 2).contains("--color"));
}

const DISCORD: [&str; 3] = ["867793854505943041", "943865945699532811", "1053092877443551252"];

/// Goal: the ids of a column have one layout, and what is no id of it is read as itself. Method: ids of
/// Discord, which differ from tweets only in the epoch, as arguments and through a pipe, with a ULID and a
/// small number among them.
#[test]
fn the_ids_of_a_column_are_judged_together() {
    let sandbox = Sandbox::new();
    let args = [&["inspect", TODAY][..], &DISCORD].concat();
    let table = sandbox.out(&args);
    assert_eq!(table.matches("%  discord, ").count(), 3, "{table}");
    let piped = sandbox.run_with_input(&["inspect", TODAY], &DISCORD.join("\n")).out;
    assert_eq!(piped, table);
    let mixed = format!("{}\n01ARZ3NDEKTSV4RRFFQ69G5FAV\n7\n", DISCORD.join(","));
    let read = sandbox.run_with_input(&["inspect", TODAY, "--json"], &mixed).out;
    let names: Vec<_> = read.lines().map(|line| json(line)["guesses"][0]["name"].clone()).collect();
    assert_eq!(names, ["discord", "discord", "discord", "ulid", "number"]);
    // A long column is written while it is read, and the first rows are of the same layout as the last.
    let low_bits = DISCORD.map(|id| id.parse::<u64>().unwrap() & 0x003f_ffff);
    let at = |nth: u64| (867_793_854_505_943_041 >> 22 << 22) + (nth << 32);
    let many: Vec<String> =
        (0..1000_u64).zip(low_bits.iter().cycle()).map(|(nth, low)| (at(nth) + low).to_string()).collect();
    let rows = sandbox.run_with_input(&["inspect", TODAY], &many.join("\n")).out;
    let reading =
        |row: &str| row.split_once("%  ").map(|(_, reading)| reading.split(',').next().unwrap().to_owned());
    let readings: Vec<_> = rows.lines().filter_map(reading).collect();
    assert_eq!(readings.len(), 1000, "{rows:.2000}");
    assert!(readings.iter().all(|reading| *reading == readings[0]), "{rows:.2000}");
}

/// Goal: ids copied from spreadsheets are read, and those that a spreadsheet or JavaScript broke are reported.
/// Method: a file with a byte order mark, quotes, formulas and thousands separators.
#[test]
fn cells_of_a_spreadsheet_are_ids() {
    let sandbox = Sandbox::new();
    let cells = "\u{feff}\"1541815603606036480\"\r\n=\"1541815603606036480\"\r\n\"1,541,815,603,606,036,480\"\r\n\
                 1,541,815,603,606,036,480\r\n '1541815603606036480\r\n";
    for args in [
        &["inspect", "--json"][..],
        &["inspect", "--json", "--layout", "twitter"],
        &["inspect", "--json", "--format", "dec"],
    ] {
        let ran = sandbox.run_with_input(args, cells);
        let ids: Vec<_> = ran.out.lines().map(|line| json(line)["id"].clone()).collect();
        assert_eq!((ran.code, ids), (0, vec![TWEET.into(); 5]), "{args:?} {}", ran.err);
    }
    let told = sandbox.refused(&["inspect", "1.54182E+18"], 2);
    assert!(told.contains("a spreadsheet kept only its first digits"), "{told}");
    let rounded = sandbox.out(&["inspect", TODAY, "606631627273625600"]);
    assert!(rounded.contains("  note    may be rounded: a JavaScript number keeps 53 bits"), "{rounded}");
    for exact in [TWEET, "606631627273625612"] {
        assert!(!sandbox.out(&["inspect", TODAY, exact]).contains("rounded"));
    }
}

/// Goal: an id with a time is read although a clock was wrong. Method: UUIDs and others dated before 2006 and
/// far ahead.
#[test]
fn ids_of_a_wrong_clock_are_read() {
    let sandbox = Sandbox::new();
    for (text, name, utc) in [
        ("01b8d59f-5800-7abc-8def-0123456789ab", "uuid7", "2029-12-31"),
        ("0000XSNJG0MQJHBF4QX1EFD6Y3", "ulid", "1970-01-12"),
        ("ffffffffbcf86cd799439011", "objectid", "2106-02-07"),
        ("aWgEPTl1tmebfsQzFP4bxwgy80V", "ksuid", "2150-06-19"),
        ("1ec9414c-232a-6b00-b3c8-9f6bdeced846", "uuid6", "2022-02-22T19:22:22.000Z"),
    ] {
        let out = sandbox.out(&["inspect", TODAY, text]);
        assert!(
            out.contains(&format!("  {name}, ")) && out.contains(&format!("  utc     {utc}")),
            "{text}: {out}"
        );
    }
}

/// Goal: `inspect --namespace` reads what a namespace writes, hidden or not, from its store and through a
/// node. Method: one of a text form, one of a wide scheme and a hidden one.
#[test]
fn the_ids_of_a_namespace_are_read_as_it_writes_them() {
    let sandbox = Sandbox::with_store();
    sandbox.out(&["hide-key", "public", "--file", "keys.toml"]);
    let keys = ["--hide-keys-file", "keys.toml"];
    sandbox.out(&["ns", "add", "users", "--scheme", "snowflake", "--layout", "game", "--text", "U-{base62}"]);
    sandbox.out(&["ns", "add", "keys", "--scheme", "uuid7"]);
    sandbox.out(&[&["ns", "add", "orders", "--scheme", "segment", "--hide", "public"][..], &keys].concat());
    let create =
        ["token", "create", "ops", "--namespaces", "*", "--rights", "admin,mint", "--file", "tokens.toml"];
    let token = sandbox.run(&create).out;
    std::fs::write(sandbox.path("ops.token"), token.trim()).unwrap();
    let mut node = sandbox.serve(&[&["--tokens-file", "tokens.toml"][..], &keys].concat());
    let url = format!("http://{}", node.ready("http"));
    let server = ["--server", &url, "--token-file", "ops.token"];
    for target in [&[][..], &server] {
        let read = |namespace: &str, id: &str| {
            let args = ["inspect", "--json", "--namespace", namespace, id];
            json(&sandbox.out(&[&args[..], target, &keys].concat()))
        };
        assert_eq!(
            read("users", "U-1000000000")["layout"],
            "time:31@1s worker:20 sequence:12 epoch:2024-01-01T00:00:00.000Z"
        );
        assert_eq!(read("keys", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f")["scheme"], "uuid7");
        let told = sandbox.refused(&[&["inspect", "--namespace", "users", "17"][..], target].concat(), 2);
        assert!(
            told.contains("invalid id `17` of namespace users: its ids are written as U-{base62}"),
            "{told}"
        );
        let told = sandbox.refused(&[&["inspect", "--namespace", "orders", "17"][..], target].concat(), 2);
        assert!(told.contains("its ids are hidden by key public"), "{told}");
        assert!(read("orders", "17")["id"].is_string());
        let told = sandbox.refused(&[&["inspect", "--namespace", "nope", "17"][..], target].concat(), 2);
        assert!(told.contains("--namespace: unknown namespace nope"), "{told}");
    }
    let told = sandbox.refused(&[&["inspect", "17"][..], &server].concat(), 2);
    assert!(told.contains("--server without --namespace"), "{told}");
    let told = sandbox.refused(&["inspect", "--namespace", "users", "--layout", "twitter", "17"], 2);
    assert!(told.contains("omit --layout"), "{told}");
}

/// Goal: an id of the default layout is called so first, and by every layout that reads it alike. Method: new
/// ids, one alone and some as a table.
#[test]
fn an_id_of_the_default_layout_is_named_so() {
    let sandbox = Sandbox::new();
    let ids = sandbox.out(&["new", "-n", "3", "--store", "none", "--worker", "5"]);
    let id = ids.lines().next().unwrap();
    let alone = sandbox.out(&["inspect", id]);
    assert!(alone.starts_with(&format!("{id}  twitter, ")), "{alone}");
    assert!(alone.lines().next().unwrap().ends_with("% likely, nearly as likely: leaf"), "{alone}");
    let table = sandbox.run_with_input(&["inspect"], &ids).out;
    assert!(table.lines().skip(1).all(|line| line.contains("twitter or leaf, ")), "{table}");
}
