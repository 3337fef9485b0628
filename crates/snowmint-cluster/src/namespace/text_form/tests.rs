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
        ("{base32}", 1_541_815_603_606_036_480, "1ASD13XH1F800"),
        ("{base32:13}", 33, "0000000000011"),
        ("T-{base58:11}", 0, "T-11111111111"),
        ("{base58}", u64::MAX >> 1, "NQm6nKp8qFC"),
        ("{base58_flickr}", 57, "Z"),
        (
            "T-{alphabet=ohrfjdgPzp3T2XkNulQBFas9eJDmW7VKSC51cbUL8tRiOqIwZn406YEMyGxHAv:11}",
            62,
            "T-oooooooooho",
        ),
        (
            "{alphabet=ohrfjdgPzp3T2XkNulQBFas9eJDmW7VKSC51cbUL8tRiOqIwZn406YEMyGxHAv}",
            u64::MAX >> 1,
            "3vazno5dzZP",
        ),
        ("{alphabet=ba}-{yyyy}", 5, "aba-2026"),
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
        ("", "of 0 characters"),
        ("plain", "with 0 fields"),
        ("{number}{hex}", "with 2 fields"),
        ("{number", "unknown field `{number`"),
        ("number}", "unknown field `}`"),
        ("{nummer}", "expected {number}, {hex}, {base32}"),
        ("{decimal}", "unknown field `{decimal}`"),
        ("{base64}", "unknown field `{base64}`"),
        ("{number:0}", "unknown field"),
        ("{number:33}", "unknown field"),
        ("{date:3}{number}", "unknown field `{date:3}`"),
        ("{alphabet=a}", "an alphabet of 1 characters"),
        ("{alphabet=}", "an alphabet of 0 characters"),
        ("{alphabet}", "unknown field `{alphabet}`"),
        ("{alphabet=aba}", "`a` stands at positions 0 and 2"),
        ("{alphabet=a{b}", "without {, } and :"),
        ("{alphabet=ab:99}", "unknown field"),
        ("{number} x", "not ' '"),
        ("\"{number}", "not '\"'"),
        ("é{number}", "not 'é'"),
    ] {
        let error = bad.parse::<TextForm>().unwrap_err().to_string();
        assert!(error.contains(words), "{bad}: {error}");
    }
    assert!("x".repeat(65).parse::<TextForm>().is_err());
    let long = format!("{}{{alphabet=0123456789abcdef}}", "x".repeat(60));
    assert!(long.parse::<TextForm>().unwrap_err().to_string().contains("of 71 characters"));
}

#[test]
fn an_id_with_a_text_of_its_own_stands_in_its_place() {
    let form: TextForm = "usr_{id}".parse().unwrap();
    let mut out = Vec::new();
    form.write_id("abc", DAY, &mut out);
    assert_eq!(out, b"usr_abc");
    assert_eq!(form.read_number("usr_abc"), None);
    assert_eq!((form.read_id("usr_abc"), form.read_id("abc")), (Some("abc"), None));
}

#[test]
fn a_template_for_others_does_not_show_the_alphabet() {
    for (template, shown) in [
        ("T-{alphabet=zxy:11}", "T-{alphabet:11}"),
        ("{alphabet=zxy}{date}", "{alphabet}{date}"),
        ("ORD-{base58:11}", "ORD-{base58:11}"),
    ] {
        assert_eq!(template.parse::<TextForm>().unwrap().template(), shown);
    }
}

proptest::proptest! {
    /// Goal: every number comes back from its text, in digits of any kind and width. Method: alphabets of any size, shuffled.
    #[test]
    fn numbers_come_back_from_any_alphabet(
        number in 0..=u64::MAX >> 1,
        mut characters in proptest::sample::subsequence(
            ('!'..='~').filter(|c| !"{}:\"'\\".contains(*c)).collect::<Vec<_>>(), 2..=80),
        turn in 0..80_usize,
        width in 0..=32_u8,
        named in proptest::sample::select(vec!["", "number", "hex", "base32", "base36", "base58", "base58_flickr", "base62"]),
    ) {
        let at = turn % characters.len();
        characters.rotate_left(at);
        characters.reverse();
        let alphabet = format!("alphabet={}", String::from_iter(characters));
        let digits = if named.is_empty() { &alphabet } else { named };
        let width = if width == 0 { String::new() } else { format!(":{width}") };
        let template = format!("A{{{digits}{width}}}-{{date}}");
        let form: TextForm = template.parse().unwrap();
        let mut text = Vec::new();
        form.write_number(number, DAY, &mut text);
        let text = String::from_utf8(text).unwrap();
        proptest::prop_assert_eq!(form.read_number(&text), Some(number), "{}", text);
        proptest::prop_assert_eq!(form.to_string(), template);
    }
}
