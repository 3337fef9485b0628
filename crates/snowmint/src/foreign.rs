//! Text of others, as logs, errors and terminals may show it: names that clients send, keys of other programs
//! in a store, messages of servers.
//!
//! Such text can contain line breaks that forge log lines, escape sequences that a terminal executes,
//! characters that nobody sees or that turn the direction of writing, bytes that are not UTF-8, megabytes,
//! and secrets that were sent in the wrong place. [`shown`] is the one function that every place uses.

use std::borrow::Cow;
use std::fmt::Write as _;

/// How much of a text is shown, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Most {
    /// 200 bytes, for a name or a key.
    Name,
    /// 4,000 bytes, for a message.
    Message,
    /// 16,000 bytes, for a log line with all its fields.
    Line,
    /// All of it, with its secrets: what the user of a command asked for.
    Output,
}

impl Most {
    const fn bytes(self) -> usize {
        match self {
            Self::Name => 200,
            Self::Message => 4_000,
            Self::Line => 16_000,
            Self::Output => usize::MAX,
        }
    }
}

/// The start of a token of the service, `smt_NAME_SECRET`.
const TOKEN: &str = "smt_";
/// The digits of a secret that are shown.
const SECRET_SHOWN: usize = 4;
/// The length of a run of letters and digits that may be a secret.
const SECRET: usize = 20;

/// Returns a text of others as it may be shown: bounded, without control, direction and invisible characters,
/// which are escaped as `\u{1b}`, without the secret of a token, and with bytes that are not UTF-8 as `\xff`.
///
/// Clean text is borrowed.
///
/// # Examples
///
/// ```
/// use snowmint::foreign::{Most, shown};
/// assert_eq!(shown("orders", Most::Name), "orders");
/// assert_eq!(shown("\x1b]0;title\x07\nERROR forged", Most::Name), "\\u{1b}]0;title\\u{7}\\nERROR forged");
/// assert_eq!(shown(b"a\xff", Most::Name), "a\\xff");
/// ```
pub fn shown<T: AsRef<[u8]> + ?Sized>(text: &T, most: Most) -> Cow<'_, str> {
    let whole = text.as_ref();
    let bytes = &whole[..whole.len().min(most.bytes())];
    if bytes.len() == whole.len()
        && let Ok(text) = str::from_utf8(bytes)
        && is_clean(text, most)
    {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(bytes.len() + 16);
    let mut rest = bytes;
    // A character that is cut by the limit is no invalid byte.
    let is_cut = bytes.len() < whole.len();
    while !rest.is_empty() {
        let valid = match str::from_utf8(rest) {
            Ok(text) => text,
            // The prefix up to there is valid.
            Err(error) => str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default(),
        };
        push(&mut escaped, valid, most, escape);
        rest = &rest[valid.len()..];
        if is_cut && rest.len() < 4 && is_begin_of_character(rest) {
            break;
        }
        if let Some((byte, more)) = rest.split_first() {
            let _ = write!(escaped, "\\x{byte:02x}");
            rest = more;
        }
    }
    if is_cut {
        let _ = write!(escaped, "… ({} bytes)", whole.len());
    }
    Cow::Owned(escaped)
}

/// Returns a JSON text, which is not pretty-printed, as [`shown`] does, but with characters escaped as JSON
/// does (`\u001b`). It is not cut, so that it stays valid.
pub fn shown_in_json(text: &str, most: Most) -> Cow<'_, str> {
    if is_clean(text, most) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    push(&mut escaped, text, most, |escaped, sign| {
        for unit in sign.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    });
    Cow::Owned(escaped)
}

fn is_clean(text: &str, most: Most) -> bool {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte);
    let has_secrets = most != Most::Output && text.contains(TOKEN);
    !has_secrets && (text.bytes().all(is_plain) || !text.chars().any(is_hidden))
}

/// Returns whether the bytes are the beginning of one character.
fn is_begin_of_character(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// Appends a text with its hidden characters escaped and the secrets of tokens cut.
fn push(escaped: &mut String, text: &str, most: Most, escape: fn(&mut String, char)) {
    let append = |escaped: &mut String, text: &str| {
        for sign in text.chars() {
            if is_hidden(sign) { escape(escaped, sign) } else { escaped.push(sign) }
        }
    };
    let mut rest = text;
    while most != Most::Output
        && let Some(at) = rest.find(TOKEN)
    {
        let (before, token) = rest.split_at(at);
        append(escaped, before);
        // The name of a token has no `_`.
        let name =
            TOKEN.len() + run(&token[TOKEN.len()..], |byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let secret = token[name..].strip_prefix('_').unwrap_or_default();
        let digits = run(secret, |byte| byte.is_ascii_alphanumeric());
        if digits >= SECRET {
            append(escaped, &token[..=name]);
            escaped.push_str(&secret[..SECRET_SHOWN]);
            escaped.push('…');
            rest = &secret[digits..];
        } else {
            append(escaped, &token[..TOKEN.len()]);
            rest = &token[TOKEN.len()..];
        }
    }
    append(escaped, rest);
}

/// Returns the number of leading bytes that fit; all of them are ASCII.
fn run(text: &str, fits: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii() && fits(*byte)).count()
}

fn escape(escaped: &mut String, sign: char) {
    match sign {
        '\n' => escaped.push_str("\\n"),
        '\r' => escaped.push_str("\\r"),
        '\t' => escaped.push_str("\\t"),
        sign => escaped.extend(sign.escape_unicode()),
    }
}

/// Returns whether a character controls a terminal, a line or the direction of writing, or is invisible.
const fn is_hidden(sign: char) -> bool {
    matches!(
        sign,
        '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_text_is_borrowed() {
        for text in ["", "orders", "Bestellungen für Köln", "注文", "a\\b `c` \"d\"", "smt"] {
            assert!(matches!(shown(text, Most::Name), Cow::Borrowed(it) if it == text), "{text}");
        }
    }

    /// Goal: nothing that a terminal or a reader of logs acts on gets through. Method: every character, as
    /// one of a text.
    #[test]
    fn what_is_shown_has_no_hidden_character() {
        for sign in ('\0'..=char::MAX).step_by(if cfg!(miri) { 4999 } else { 1 }) {
            let text = format!("a{sign}b");
            let found = shown(&text, Most::Name);
            assert!(!found.chars().any(|it| it.is_control() || is_hidden(it)), "{sign:?}: {found}");
        }
        for (text, wanted) in [
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("safe\u{202e}gpj.exe", "safe\\u{202e}gpj.exe"),
            ("or\u{200b}ders", "or\\u{200b}ders"),
        ] {
            assert_eq!(shown(text, Most::Name), wanted);
        }
    }

    #[test]
    fn json_stays_json() {
        for text in ["{\"a\":\"b\"}", "{\"a\":\"é 注\"}"] {
            assert!(matches!(shown_in_json(text, Most::Line), Cow::Borrowed(it) if it == text));
        }
        let hostile = "{\"a\":\"\u{9b}31m \u{202e} \u{e0041}\"}";
        assert_eq!(shown_in_json(hostile, Most::Output), r#"{"a":"\u009b31m \u202e \udb40\udc41"}"#);
    }

    #[test]
    fn bytes_that_are_no_text_are_shown() {
        assert_eq!(shown(b"workers/\xff\xfe/7", Most::Name), "workers/\\xff\\xfe/7");
        assert_eq!(shown(b"\xe2\x82", Most::Name), "\\xe2\\x82");
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        let long = "é".repeat(10_000);
        assert_eq!(shown(&long, Most::Name), format!("{}… (20000 bytes)", "é".repeat(100)));
        let odd = format!("a{long}");
        assert_eq!(shown(&odd, Most::Name), format!("a{}… (20001 bytes)", "é".repeat(99)));
        assert!(shown(&"\u{1b}".repeat(100_000), Most::Message).len() < 8 * 4_000);
    }

    /// Goal: a token that a client sends in the wrong place is not in the log. Method: a token as a name, in
    /// a message, twice, and names that only look like one.
    #[test]
    fn the_secret_of_a_token_is_cut() {
        let secret = "0Ab".repeat(17);
        let token = format!("smt_orders-service_{secret}");
        assert_eq!(shown(&token, Most::Name), "smt_orders-service_0Ab0…");
        let twice = format!("unknown namespace `{token}`, not {token}!");
        let found = shown(&twice, Most::Message);
        assert_eq!(found, "unknown namespace `smt_orders-service_0Ab0…`, not smt_orders-service_0Ab0…!");
        assert!(matches!(shown(&token, Most::Output), Cow::Borrowed(it) if it == token));
        for name in ["smt_a_b", "smt_", "smt__", "smt_smt_a"] {
            assert_eq!(shown(name, Most::Name), name);
        }
    }
}
