//! `snowmint token` and the flags of `serve` that take tokens, with the built command.

use std::fs;

use snowmint_test_servers::Certificates;

use crate::support::Sandbox;

const FILE: [&str; 2] = ["--file", "tokens.toml"];

fn create(sandbox: &Sandbox, args: &[&str]) -> String {
    let ran = sandbox.run(&[&["token", "create"], args, &FILE].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("it is not shown again"), "{}", ran.err);
    assert!(!ran.err.contains(ran.out.trim()), "the token is on standard output only");
    ran.out.trim().to_owned()
}

#[test]
fn a_token_is_printed_once_and_only_its_hash_is_kept() {
    let sandbox = Sandbox::new();
    let args =
        ["web", "--namespaces", "orders,users-*", "--rate", "50k/s", "--per-day", "10M", "--expires", "90d"];
    let token = create(&sandbox, &args);
    assert!(token.starts_with("smt_web_") && token.len() == 8 + 49, "{token}");
    let text = fs::read_to_string(sandbox.path("tokens.toml")).unwrap();
    assert!(!text.contains(&token[8..]) && text.contains("sha256 = "), "{text}");
    assert!(
        text.contains("rights = [\"mint\", \"inspect\"]\nrate = \"50k/s\"\nper_day = \"10M\"\nexpires = \""),
        "{text}"
    );
    create(&sandbox, &["ops", "--namespaces", "*", "--rights", "admin"]);
    let listed = sandbox.out(&[&["token", "list"][..], &FILE].concat());
    assert!(
        listed.contains("ops  *  admin\n")
            && listed.contains("web  orders,users-*  mint,inspect  50k/s 10M/day  expires in "),
        "{listed}"
    );
    let json = sandbox.out(&[&["token", "list", "--json"][..], &FILE].concat());
    assert!(
        json.contains("\"name\":\"web\"") && json.contains("\"rate\":50000") && !json.contains("token\":"),
        "{json}"
    );
}

/// Goal: an operator sees the quotas in the answer of `token create`, and no others.
#[test]
fn a_new_token_shows_its_quotas() {
    let sandbox = Sandbox::new();
    let args = ["token", "create", "web", "--namespaces", "*", "--rate", "100/s", "--per-day", "10M"];
    let ran = sandbox.run(&[&args[..], &FILE].concat());
    assert!(
        ran.err.contains("rights mint,inspect, quota 100/s, quota 10M/day, expires never"),
        "{}",
        ran.err
    );
    let ran = sandbox.run(&[&["token", "create", "free", "--namespaces", "*"][..], &FILE].concat());
    assert!(ran.err.contains("rights mint,inspect, expires never"), "{}", ran.err);
}

/// Goal: a name that the tokens file lacks is an error that names the file, and a file without tokens is a
/// warning.
#[test]
fn a_missing_token_name_and_an_empty_file_are_reported() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("tokens.toml"), "").unwrap();
    let base = ["serve", "--store", "memory:", "--tokens-file", "tokens.toml"];
    let thrift = ["--thrift", "127.0.0.1:0", "--thrift-token", "nope"];
    let told = sandbox.refused(&[&base[..], &thrift].concat(), 2);
    assert!(told.contains("--thrift-token: nope: tokens.toml has no token of this name"), "{told}");
    fs::write(sandbox.path("snowmint.toml"), "tokens_file = 'tokens.toml'\n").unwrap();
    let ran = sandbox.run(&["config", "check", "snowmint.toml"]);
    assert!(ran.code == 0 && ran.err.contains("tokens.toml has no tokens"), "{ran:?}");
    assert!(
        ran.err.contains("`snowmint token create NAME --namespaces NAMES --file tokens.toml`"),
        "{ran:?}"
    );
}

#[test]
fn tokens_are_rotated_and_revoked() {
    let sandbox = Sandbox::new();
    let old = create(&sandbox, &["web", "--namespaces", "*"]);
    let rotated =
        sandbox.run(&[&["token", "rotate", "web", "--overlap", "2h", "--json"][..], &FILE].concat());
    assert!(
        rotated.code == 0 && rotated.out.contains("\"token\":\"smt_web_") && !rotated.out.contains(&old),
        "{rotated:?}"
    );
    let text = fs::read_to_string(sandbox.path("tokens.toml")).unwrap();
    assert!(text.contains("previous_sha256 = ") && text.contains("previous_until = "), "{text}");
    let at_once = sandbox.run(&[&["token", "rotate", "web", "--overlap", "0s"][..], &FILE].concat());
    assert!(at_once.err.contains("the old secret is invalid"), "{}", at_once.err);
    assert!(!fs::read_to_string(sandbox.path("tokens.toml")).unwrap().contains("previous"));
    let revoked = sandbox.out(&[&["token", "revoke", "web"][..], &FILE].concat());
    assert_eq!(revoked, "token `web` revoked in tokens.toml\n");
    assert_eq!(sandbox.out(&[&["token", "list"][..], &FILE].concat()), "");
}

#[test]
fn errors_of_tokens_teach() {
    let sandbox = Sandbox::new();
    create(&sandbox, &["web", "--namespaces", "*"]);
    for (args, wanted) in [
        (&["token", "create", "a"][..], "--namespaces"),
        (
            &["token", "create", "a_b", "--namespaces", "*"],
            "invalid token name `a_b`: expected 1 to 64 letters",
        ),
        (&["token", "create", "a", "--namespaces", "a b"], "invalid namespace pattern `a b`"),
        (
            &["token", "create", "a", "--namespaces", "*", "--rate", "fast"],
            "invalid number `fast`: expected 1 to 1G",
        ),
        (
            &["token", "create", "a", "--namespaces", "*", "--rights", "all"],
            "expected mint, inspect or admin",
        ),
        (&["token", "create", "a", "--namespaces", "*", "--expires", "soon"], "expected a time such as 90d"),
        (
            &["token", "create", "a", "--namespaces", "*", "--expires", "2020-01-01"],
            "2020-01-01T00:00:00.000Z is in the past",
        ),
        (&["token", "create", "web", "--namespaces", "*"], "token `web` exists"),
        (&["token", "revoke", "nobody"], "unknown token `nobody`: the file has web"),
        (&["token", "rotate", "nobody"], "unknown token `nobody`: the file has web"),
    ] {
        let told = sandbox.refused(&[args, &FILE].concat(), 2);
        assert!(told.contains(wanted), "{args:?}: {told}");
    }
    let told = sandbox.refused(&["token", "list", "--file", "none.toml"], 2);
    assert!(told.contains("--file: cannot read none.toml"), "{told}");
    let told = sandbox.refused(&["serve", "--tokens-file", "none.toml"], 2);
    assert!(
        told.contains("--tokens-file: cannot use none.toml: ") && told.contains("snowmint token create"),
        "{told}"
    );
    fs::write(sandbox.path("bad.toml"), "[tokens.web]\nrights = ['mint']\nexpire = '2030-01-01'\n").unwrap();
    let told = sandbox.refused(&["serve", "--tokens-file", "bad.toml"], 2);
    assert!(told.contains("line 3: token `web`: unknown key `expire`: did you mean `expires`?"), "{told}");
    fs::write(sandbox.path("serve.toml"), "tokens_file = 'bad.toml'\n").unwrap();
    assert!(sandbox.refused(&["config", "check", "serve.toml"], 2).contains("unknown key `expire`"));
}

#[test]
fn tokens_open_a_port_to_other_machines_with_tls_only() {
    let sandbox = Sandbox::new();
    create(&sandbox, &["web", "--namespaces", "*"]);
    let tokens = ["--tokens-file", "tokens.toml"];
    for flag in ["--http", "--resp", "--grpc"] {
        let told = sandbox.refused(&[&["serve", flag, "0.0.0.0:0"][..], &tokens].concat(), 2);
        assert!(told.contains("tokens would cross the network in plain text; use TLS: "), "{told}");
        assert!(told.contains("--tls-cert FILE --tls-key FILE`"), "{told}");
    }
    drop(sandbox.serve(&["--http", "0.0.0.0:0", "--insecure", tokens[0], tokens[1]]));
    let certificates = Certificates::make();
    let [certificate, key, authority] =
        [certificates.certificate(), certificates.key(), certificates.authority()]
            .map(|it| it.to_str().unwrap());
    let tls = ["--tls-cert", certificate, "--tls-key", key];
    drop(sandbox.serve(&[&["--http", "0.0.0.0:0"][..], &tokens, &tls].concat()));

    // Thrift cannot send a token.
    let thrift = ["--thrift", "127.0.0.1:0"];
    let told = sandbox.refused(&[&["serve"][..], &thrift, &tokens].concat(), 2);
    assert!(told.contains("--thrift: ") && told.contains("--thrift-token NAME"), "{told}");
    let told = sandbox.refused(&["serve", "--thrift-token", "web"], 2);
    assert!(told.contains("--thrift-token: requires --tokens-file FILE"), "{told}");
    let told = sandbox.refused(&[&["serve", "--thrift-token", "nobody"][..], &thrift, &tokens].concat(), 2);
    assert!(told.contains("--thrift-token: nobody: "), "{told}");
    let outside = ["--thrift", "0.0.0.0:0", "--thrift-token", "web"];
    let told = sandbox.refused(&[&["serve"][..], &outside, &tokens, &tls].concat(), 2);
    assert!(told.contains("Thrift cannot send a token; require client certificates: "), "{told}");
    drop(sandbox.serve(&[&outside[..], &tokens, &tls, &["--tls-client-ca", authority]].concat()));
}
