//! Hidden ids from the key to the id and back: `snowmint hide-key`, `ns add --hide`, `serve
//! --hide-keys-file`, `inspect`.

use std::collections::BTreeSet;

use crate::support::{Sandbox, Server, json};

/// Draws ids over HTTP.
fn draw(server: &mut Server, count: usize) -> Vec<u64> {
    let (status, body) = server.http(&format!("/v1/ids/orders?count={count}"));
    assert_eq!(status, 200, "{body}");
    let ids = json(&body)["ids"].as_array().unwrap().clone();
    ids.iter().map(|id| id.as_str().unwrap().parse().unwrap()).collect()
}

/// A sandbox with a key in `keys.toml`, another key of the same name in `other.toml`, and a hidden namespace.
fn hidden() -> Sandbox {
    let sandbox = Sandbox::with_store();
    for file in ["keys.toml", "other.toml"] {
        let told = sandbox.out(&["hide-key", "public", "--file", file]);
        assert_eq!(told, format!("added key public to {file}: keep a copy\n"));
    }
    let made = sandbox.out(&[
        "ns",
        "add",
        "orders",
        "--scheme",
        "segment",
        "--hide",
        "public",
        "--hide-keys-file",
        "keys.toml",
    ]);
    assert!(made.starts_with("orders is segment cached, all numbers, hidden by key public ("), "{made}");
    sandbox
}

/// Goal: hidden ids of a namespace never repeat, differ from the numbers, and can be read only with the key.
/// Method: two nodes and later a third one draw from one counter; `inspect` reveals all their ids.
#[test]
fn hidden_ids_are_unique_and_their_key_reveals_them() {
    let sandbox = hidden();
    let mut servers = [(); 2].map(|()| sandbox.serve(&["--hide-keys-file", "keys.toml"]));
    let mut ids = Vec::new();
    for server in &mut servers {
        // One by one, and in a batch that spans several segments.
        ids.extend((0..20).flat_map(|_| draw(server, 1)));
        ids.extend(draw(server, 1200));
    }
    let [one, other] = servers;
    drop(one);
    ids.extend(draw(&mut sandbox.serve(&["--hide-keys-file", "keys.toml"]), 500));
    let unique: BTreeSet<u64> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len(), "an id came twice");
    assert!(ids.iter().all(|id| *id < 1 << 63));
    // The probability of a number below 2^40 is one in eight million.
    assert!(ids.iter().filter(|id| **id < 1 << 40).count() < 3, "{ids:?}");

    let texts: Vec<String> = ids.iter().map(u64::to_string).collect();
    let mut inspect = vec!["inspect", "--hide-keys-file", "keys.toml", "--hide-key", "public", "--json"];
    inspect.extend(texts.iter().map(String::as_str));
    let revealed = sandbox.out(&inspect);
    let plain: BTreeSet<u64> =
        revealed.lines().map(|line| json(line)["id"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(plain.len(), ids.len());
    assert!(plain.iter().all(|number| (1..100_000).contains(number)), "{plain:?}");

    let mut server = other;
    let (status, body) = server.http(&format!("/v1/inspect/{}?namespace=orders", ids[0]));
    let number: u64 = json(&body)["id"].as_str().unwrap().parse().unwrap();
    assert!(status == 200 && plain.contains(&number), "{body}");
    let (_, body) = server.http(&format!("/v1/inspect/{}", ids[0]));
    let told = json(&body);
    assert!(told["notes"].to_string().contains("may be hidden by namespace orders"), "{body}");
    assert!(!told["guesses"].to_string().contains("orders"), "any number is a hidden id: {body}");
    let (status, body) = server.http("/v1/ranges/orders?count=5");
    assert!(status == 400 && body.contains("they are hidden"), "{status} {body}");
}

/// Goal: two keys never hide the ids of one namespace. Method: nodes and commands with another key of the
/// same name, and without the key.
#[test]
fn a_namespace_is_served_and_resumed_under_its_own_key_alone() {
    let sandbox = hidden();
    for (args, words) in [
        (&["--hide-keys-file", "other.toml"][..], "is not the key that this namespace was created with"),
        (&[], "hide key public is missing: add it to the file of --hide-keys-file"),
    ] {
        let mut server = sandbox.serve(args);
        let (status, body) = server.http("/v1/ids/orders");
        assert!(status == 503 && body.contains(words), "{status} {body}");
    }
    let with =
        |file| ["ns", "add", "orders", "--scheme", "segment", "--hide", "public", "--hide-keys-file", file];
    sandbox.out(&["ns", "drop", "orders"]);
    let told = sandbox.refused(&with("other.toml"), 2);
    assert!(told.contains("another hide key could produce duplicates"), "{told}");
    let told = sandbox.refused(&["ns", "add", "orders", "--scheme", "segment"], 2);
    assert!(told.contains("another hide key could produce duplicates"), "{told}");
    sandbox.out(&["ns", "add", "orders"]);
    sandbox.out(&["ns", "drop", "orders"]);
    sandbox.out(&with("keys.toml"));
    std::fs::write(sandbox.path("ns.toml"), "[namespaces.orders]\nscheme = 'segment'\nhide = 'public'\n")
        .unwrap();
    let serve = |keys| {
        [
            "serve",
            "--http",
            "127.0.0.1:0",
            "--resp",
            "off",
            "--namespaces-file",
            "ns.toml",
            "--hide-keys-file",
            keys,
        ]
    };
    let told = sandbox.refused(&serve("other.toml"), 2);
    assert!(told.contains("another hide key could produce duplicates"), "{told}");
    let told = sandbox.refused(&serve("none.toml"), 2);
    assert!(told.contains("--hide-keys-file: cannot read none.toml"), "{told}");
    let told = sandbox.refused(&serve("keys.toml")[..7], 2);
    assert!(told.contains("hide key public is missing"), "{told}");
}

/// Goal: a key appears only where it was put. Method: the file, its permissions, and everything that the
/// commands print and store.
#[test]
fn a_key_is_shown_nowhere() {
    let sandbox = hidden();
    let file = std::fs::read_to_string(sandbox.path("keys.toml")).unwrap();
    let key = file.trim().strip_prefix("\"public\" = \"").unwrap().trim_end_matches('"').to_owned();
    assert_eq!(key.len(), 32, "{file}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(sandbox.path("keys.toml")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let mut server = sandbox.serve(&["--hide-keys-file", "keys.toml"]);
    draw(&mut server, 3);
    let shown = [sandbox.out(&["ns", "list", "--json"]), sandbox.out(&["audit", "--json"]), server.log()];
    assert!(shown.iter().all(|text| !text.contains(&key) && text.contains("public")), "{shown:?}");
    for file in ["snowmint/snowmint.db", "snowmint/snowmint.db-wal"] {
        let bytes = std::fs::read(sandbox.path(file)).unwrap_or_default();
        assert!(!bytes.windows(key.len()).any(|part| part == key.as_bytes()), "{file}");
    }
    let told = sandbox.refused(&["hide-key", "public", "--file", "keys.toml"], 2);
    assert!(told.contains("keys.toml has a key public already") && !told.contains(&key), "{told}");
    let line = sandbox.out(&["hide-key", "other"]);
    assert!(line.starts_with("\"other\" = \"") && line.len() == "\"other\" = \"\"\n".len() + 32, "{line}");
    let told = sandbox.refused(&["ns", "add", "x", "--scheme", "segment", "--hide", "public"], 2);
    assert!(told.contains("--hide-keys-file"), "{told}");
    let other =
        ["ns", "add", "x", "--scheme", "segment", "--hide", "absent", "--hide-keys-file", "keys.toml"];
    assert!(sandbox.refused(&other, 2).contains("--hide: hide key absent is missing"));
    let told = sandbox.refused(&["inspect", "--hide-key", "public", "7"], 2);
    assert!(told.contains("--hide-keys-file"), "{told}");
}

/// Goal: keys that others may read are reported, with the remedy, and the permissions and owner stay as they
/// are. Method: files with different permissions, and what a crashed command left behind.
#[test]
#[cfg(unix)]
fn keys_that_others_may_read_are_reported() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    let sandbox = Sandbox::new();
    let mode = |file: &str| fs::metadata(sandbox.path(file)).unwrap().permissions().mode() & 0o777;
    for (nth, given) in [0o644, 0o640, 0o600, 0o400].into_iter().enumerate() {
        let file = format!("keys{nth}.toml");
        fs::write(sandbox.path(&file), "# mine").unwrap();
        fs::set_permissions(sandbox.path(&file), Permissions::from_mode(given)).unwrap();
        // A crashed command left this.
        fs::write(sandbox.path(&format!("{file}.new")), "# not mine").unwrap();
        let ran = sandbox.run(&["hide-key", "public", "--file", &file]);
        assert_eq!((ran.code, mode(&file)), (0, given), "{given:o}: {}", ran.err);
        let wanted = match given {
            0o644 | 0o640 => {
                format!(
                    "warning: other users may read {file} (mode {given:o}): `chmod 600 {file}` keeps its keys secret\n"
                )
            }
            _ => String::new(),
        };
        assert_eq!(ran.err, wanted);
        let text = fs::read_to_string(sandbox.path(&file)).unwrap();
        assert!(text.starts_with("# mine\n\"public\" = ") && text.lines().count() == 2, "{text}");
        sandbox.refused(&["hide-key", "public", "--file", &file], 2);
    }
    // Not even for a moment.
    fs::write(sandbox.path("made.toml.new"), "").unwrap();
    sandbox.out(&["hide-key", "public", "--file", "made.toml"]);
    assert_eq!(mode("made.toml"), 0o600);
}
