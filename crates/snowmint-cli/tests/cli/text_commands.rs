//! `snowmint convert`, `range`, `explain` and `layout --successor`: text in, text out.

use crate::support::{Sandbox, json};

const TWEET: &str = "1541815603606036480";

#[test]
fn ids_change_their_form_and_back() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.out(&["convert", "--to", "base62", TWEET, "0"]), "1ptWyK4WgZU\n0\n");
    for form in ["hex", "base32", "base36", "base58", "base58_flickr", "base62", "alphabet=q7PzVw3"] {
        let there =
            sandbox.run_with_input(&["convert", "--to", form], &format!("{TWEET}\n0\n9223372036854775807\n"));
        let back = sandbox.run_with_input(&["convert", "--from", form], &there.out);
        assert_eq!(back.out, format!("{TWEET}\n0\n9223372036854775807\n"), "{form}");
        let padded = sandbox.run_with_input(&["convert", "--to", form, "--pad"], "7\n9223372036854775807\n");
        let widths: Vec<_> = padded.out.lines().map(str::len).collect();
        assert_eq!(widths[0], widths[1], "{form}");
    }
    let line = json(&sandbox.out(&["convert", "--to", "base62", "--json", TWEET]));
    assert_eq!(
        (&line["text"], &line["id"], &line["converted"]),
        (&TWEET.into(), &TWEET.into(), &"1ptWyK4WgZU".into())
    );
    assert!(sandbox.refused(&["convert", TWEET], 2).contains("--to base62"));
}

/// Goal: a long line loses no id and changes none. Method: a pipe splits it, beyond the buffer of the
/// command.
#[test]
fn an_id_between_many_blanks_is_read() {
    let sandbox = Sandbox::new();
    let blanks = " ".repeat(300_000);
    let ran = sandbox
        .run_with_input(&["convert", "--to", "hex"], &format!("{blanks}12\n34{blanks}\n56{blanks}x\n"));
    assert_eq!((ran.code, ran.out.as_str()), (2, "000000000000000c\n0000000000000022\n"));
    assert!(ran.err.starts_with("error: line 3: invalid id"), "{}", ran.err);
}

#[test]
fn an_invalid_line_is_named_and_omitted() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run_with_input(&["convert", "--to", "hex"], "1\n\nx y\n2\n");
    assert_eq!((ran.code, ran.out.as_str()), (2, "0000000000000001\n0000000000000002\n"));
    assert!(ran.err.starts_with("error: line 3: invalid id `x y`: "), "{}", ran.err);
    let ran = sandbox.run_with_input(&["convert", "--to", "hex"], &"x\n".repeat(1000));
    assert_eq!((ran.code, ran.err.lines().count()), (2, 21), "{}", ran.err);
    assert!(ran.err.ends_with("error: 980 more invalid lines\n"), "{}", ran.err);
}

#[test]
fn a_range_is_a_condition() {
    let sandbox = Sandbox::new();
    let november = ["range", "--layout", "twitter", "--since", "2026-11-01", "--until", "2026-12-01"];
    let out = sandbox.out(&november);
    let read = json(&sandbox.out(&[&november[..], &["--json"]].concat()));
    let (first, last) = (read["first"].as_str().unwrap(), read["last"].as_str().unwrap());
    let end = last.parse::<u64>().unwrap() + 1;
    assert!(out.ends_with(&format!("WHERE id >= {first} AND id < {end}\n")), "{out}");
    assert_eq!(
        json(&sandbox.out(&["inspect", "--json", "--layout", "twitter", first]))["utc"],
        "2026-11-01T00:00:00.000Z"
    );
    assert_eq!(
        json(&sandbox.out(&["inspect", "--json", "--layout", "twitter", last]))["utc"],
        "2026-11-30T23:59:59.999Z"
    );
    let now =
        ["range", "--layout", "twitter", "--now", "2026-11-22T08:00:00Z", "--where", "--column", "o.id"];
    let hours = sandbox.out(&[&now[..], &["--since", "2h ago"]].concat());
    assert_eq!(hours, sandbox.out(&[&now[..], &["--since", "2026-11-22T06:00:00Z"]].concat()));
    assert!(hours.starts_with("o.id >= ") && !hours.contains("AND"), "{hours}");
    let yesterday = sandbox.out(&[&now[..], &["--since", "yesterday", "--until", "today"]].concat());
    assert_eq!(
        yesterday,
        sandbox.out(&[&now[..], &["--since", "2026-11-21", "--until", "2026-11-22"]].concat())
    );
    for (args, wanted) in [
        (&["range", "--since", "1d"][..], "--layout or --namespace"),
        (&["range", "--layout", "twitter", "--since", "soon"], "'1 day'"),
        (&["range", "--layout", "twitter", "--since", "1700000000"], "multiply unix seconds by 1000"),
        (&["range", "--layout", "twitter", "--since", "1d", "--until", "+1 day"], "counts back from now"),
        (
            &["range", "--layout", "twitter", "--since", "2026-11-02", "--until", "2026-11-01"],
            "is not after --since",
        ),
        (&["range", "--layout", "twitter", "--since", "2026-01-01", "--column", "a;b"], "name of a column"),
        (&["range", "--layout", "twitter", "--since", "2100-01-01"], "has timestamps from"),
    ] {
        let error = sandbox.refused(args, 2);
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_range_has_the_layout_of_its_namespace() {
    let sandbox = Sandbox::with_store();
    sandbox.out(&["ns", "add", "seconds", "--layout", "time:31@1s worker:20 sequence:12 epoch:2024-01-01"]);
    sandbox.out(&["ns", "add", "numbers", "--scheme", "segment"]);
    let read = json(&sandbox.out(&[
        "range",
        "--namespace",
        "seconds",
        "--since",
        "2024-01-01T00:00:01.900Z",
        "--json",
    ]));
    assert_eq!(
        (&read["first"], &read["last"]),
        (&(1_u64 << 32).to_string().into(), &serde_json::Value::Null)
    );
    assert_eq!(read["since_utc"], "2024-01-01T00:00:01.000Z", "the start of the tick");
    sandbox.out(&["ns", "add", "texts", "--layout", "twitter", "--text", "{base58}"]);
    let ran = sandbox.run(&["range", "--namespace", "texts", "--since", "1d", "--where"]);
    assert!(
        ran.code == 0 && ran.err.starts_with("warning: namespace texts writes its ids as text"),
        "{}",
        ran.err
    );
    for (name, wanted) in [("numbers", "scheme segment"), ("none", "unknown namespace none")] {
        let error = sandbox.refused(&["range", "--namespace", name, "--since", "1d"], 2);
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn errors_are_explained_by_what_a_client_shows() {
    let sandbox = Sandbox::new();
    let list = sandbox.out(&["explain"]);
    assert!(list.lines().count() > 30 && list.contains("not-ready"), "{list}");
    let text = sandbox.out(&["explain", "urn:snowmint:clock-behind"]);
    assert!(text.starts_with("clock-behind  ") && text.contains("  ids     No id was given"), "{text}");
    assert_eq!(sandbox.out(&["explain", "CLOCKBEHIND"]), text);
    let read = json(&sandbox.out(&["explain", "429", "--json"]));
    assert_eq!((&read["code"], &read["grpc"]), (&"over-quota".into(), &"RESOURCE_EXHAUSTED".into()));
    let error = sandbox.refused(&["explain", "not-redy"], 2);
    assert!(error.contains("did you mean `not-ready`?"), "{error}");
}

#[test]
fn a_layout_has_a_successor() {
    let sandbox = Sandbox::new();
    let args = ["layout", "twitter", "--switch", "2035-01-01", "--successor"];
    let text = sandbox.out(&[&args[..], &["time:42 worker:12 sequence:9"]].concat());
    assert!(
        text.contains("new ids     from ") && text.contains("snowmint ns add NEW --layout 'time:42@1ms"),
        "{text}"
    );
    let read = json(&sandbox.out(&[&args[..], &["time:42 worker:12 sequence:9", "--json"]].concat()));
    let number = |name: &str| read[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(number("largest_old_id") < number("smallest_new_id"), "{read}");
    // Other commands confirm: the old range ends at the last id before the switch, and the new one begins at
    // the first id after it.
    let range = |layout: &str| {
        json(&sandbox.out(&[
            "range",
            "--layout",
            layout,
            "--since",
            "2026-01-01",
            "--until",
            "2035-01-01",
            "--json",
        ]))
    };
    assert_eq!(range("twitter")["last"], read["largest_old_id"]);
    let new = range(read["new"].as_str().unwrap());
    assert_eq!(new["last"].as_str().unwrap().parse::<u64>().unwrap() + 1, number("smallest_new_id"));
    let proposals = sandbox.out(&[&args[..], &["auto"]].concat());
    assert!(proposals.lines().filter(|line| line.contains("time:")).count() > 2, "{proposals}");
    let error = sandbox.refused(&[&args[..], &["discord"]].concat(), 2);
    assert!(error.contains("does not follow") && error.contains("omit the epoch"), "{error}");
    let error = sandbox.refused(&["layout", "twitter", "--switch", "2026-01-01", "--successor", "auto"], 2);
    assert!(error.contains("--switch: 2026-01-01T00:00:00.000Z is in the past"), "{error}");
}
