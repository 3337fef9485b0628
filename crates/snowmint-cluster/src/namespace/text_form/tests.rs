//! Tests of the text form: every field written and read back, and what is no template.

use super::*;

/// 2026-11-21T00:00:00Z.
const DAY: u64 = 1_795_219_200_000;

fn text(template: &str, number: u64) -> String {
    let form: TextForm = template.parse().unwrap();
    let mut out = Vec::new();
    form.write_number(number, DAY + 1234, &mut out);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(form.read_number(&text), Some(number), "{template}");
    assert_eq!(form.to_string(), template);
    text
}

#[test]
fn texts_are_written_and_read_back() {
    for (template, number, wanted) in [
        ("{number}", 0, "0"),
        ("{number:6}", 42, "000042"),
        ("{number:6}", 1_234_567, "1234567"),
        ("ORD-{date}-{number:6}", 42, "ORD-20261121-000042"),
        ("{yyyy}/{mm}/{dd}.{base62}", 61, "2026/11/21.z"),
        ("{base36:4}x", 35, "000Zx"),
        ("{hex:4}", 255, "00ff"),
        ("{hex}", u64::MAX >> 1, "7fffffffffffffff"),
        ("{base62:32}", u64::MAX >> 1, "000000000000000000000AzL8n0Y58m7"),
    ] {
        assert_eq!(text(template, number), wanted);
    }
}

#[test]
fn other_texts_are_not_read() {
    let form: TextForm = "A-{date}-{number:3}".parse().unwrap();
    for bad in
        ["", "A-", "A-20261121-", "A-20261121-42", "A-2026112x-042", "B-20261121-042", "A-20261121-0x2", "é"]
    {
        assert_eq!(form.read_number(bad), None, "{bad}");
    }
}

#[test]
fn bad_templates_are_refused_with_what_would_do() {
    for (bad, words) in [
        ("", "has 0"),
        ("plain", "this one has 0"),
        ("{number}{hex}", "this one has 2"),
        ("{number", "`{number` is no field"),
        ("number}", "`}` is no field"),
        ("{nummer}", "there are {number}"),
        ("{number:0}", "is no field"),
        ("{number:33}", "is no field"),
        ("{date:3}{number}", "`{date:3}` is no field"),
        ("{number} x", "not ' '"),
        ("\"{number}", "not '\"'"),
        ("é{number}", "not 'é'"),
    ] {
        let error = bad.parse::<TextForm>().unwrap_err().to_string();
        assert!(error.contains(words), "{bad}: {error}");
    }
    assert!("x".repeat(65).parse::<TextForm>().is_err());
}

#[test]
fn an_id_with_a_text_of_its_own_stands_in_its_place() {
    let form: TextForm = "usr_{id}".parse().unwrap();
    let mut out = Vec::new();
    form.write_id("abc", DAY, &mut out);
    assert_eq!(out, b"usr_abc");
    assert_eq!(form.read_number("usr_abc"), None);
}
