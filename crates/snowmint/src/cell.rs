//! The text of an id as spreadsheets, shells and logs write it.

use std::borrow::Cow;

/// Characters without a shape that exports put around texts: byte order marks, zero-width spaces, marks of
/// the direction.
const UNSEEN: [char; 6] = ['\u{feff}', '\u{200b}', '\u{200e}', '\u{200f}', '\u{2060}', '\0'];
const QUOTES: [char; 7] = ['"', '\'', '“', '”', '‘', '’', '`'];
/// Characters between groups of three digits.
const SEPARATORS: [char; 10] = [',', '.', '\'', '’', '_', ' ', '\u{a0}', '\u{2009}', '\u{202f}', '\u{66c}'];

/// Returns the id in a cell of a spreadsheet, or in the output of a shell: without blanks, byte order mark,
/// quotes, `="…"`, braces, `urn:uuid:` and thousands separators.
///
/// Use it for a text that is not an id as it is: text forms with an alphabet of their own may use any of
/// these characters.
///
/// # Examples
///
/// ```
/// use snowmint::inspect::cell;
/// for text in ["=\"1541815603606036480\"", "'1541815603606036480", "1,541,815,603,606,036,480"] {
///     assert_eq!(cell(text), "1541815603606036480");
/// }
/// assert_eq!(cell("ObjectId('507f1f77bcf86cd799439011')"), "507f1f77bcf86cd799439011");
/// ```
pub fn cell(text: &str) -> Cow<'_, str> {
    let bare = unwrapped(text);
    without_separators(bare).map_or(Cow::Borrowed(bare), Cow::Owned)
}

fn unwrapped(text: &str) -> &str {
    let is_blank = |it: char| it.is_whitespace() || UNSEEN.contains(&it);
    let text = text.trim_matches(is_blank);
    let inner = match text.split_once('(') {
        Some(("ObjectId" | "ObjectID" | "UUID", rest)) => rest.strip_suffix(')').unwrap_or(rest),
        _ => text,
    };
    let inner = inner.trim_start_matches(|it| it == '=' || QUOTES.contains(&it) || is_blank(it));
    let inner = inner.trim_end_matches(|it| QUOTES.contains(&it) || is_blank(it));
    let inner = inner.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(inner);
    match inner.get(..9) {
        Some(urn) if urn.eq_ignore_ascii_case("urn:uuid:") => &inner[9..],
        _ => inner,
    }
}

/// Returns the digits of a number with separators between groups of three; `None` for any other text. A point
/// between two groups may be a decimal one.
fn without_separators(text: &str) -> Option<String> {
    let separator = text.chars().find(|it| SEPARATORS.contains(it))?;
    let mut groups = text.split(separator);
    let first = groups.next()?;
    let is_digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = (1..=3).contains(&first.len())
        && is_digits(first)
        && groups.clone().all(|group| group.len() == 3 && is_digits(group));
    let least = if separator == '.' { 2 } else { 1 };
    (is_number && groups.count() >= least).then(|| text.replace(separator, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_spreadsheets_and_shells_are_ids() {
        let id = "1541815603606036480";
        for text in [
            "1541815603606036480",
            "\u{feff}1541815603606036480",
            "\u{feff}\"1541815603606036480\"",
            " 1541815603606036480\u{a0}",
            "=\"1541815603606036480\"",
            "\"=\"\"1541815603606036480\"\"\"",
            "'1541815603606036480",
            "“1541815603606036480”",
            "1,541,815,603,606,036,480",
            "\"1,541,815,603,606,036,480\"",
            "1.541.815.603.606.036.480",
            "1'541'815'603'606'036'480",
            "1_541_815_603_606_036_480",
            "1\u{202f}541\u{202f}815\u{202f}603\u{202f}606\u{202f}036\u{202f}480",
            "1 541 815 603 606 036 480",
        ] {
            assert_eq!(cell(text), id, "{text:?}");
        }
        let uuid = "919108f7-52d1-4320-9bac-f847db4148a8";
        for text in [format!("{{{uuid}}}"), format!("urn:uuid:{uuid}"), format!("UUID(\"{uuid}\")")] {
            assert_eq!(cell(&text), uuid, "{text}");
        }
    }

    #[test]
    fn other_texts_stay() {
        for text in
            ["", "1.5", "1.541", "1,54", "1,,541", ",541", "1541,815", "1,541.815", "a,541", "ODkw==", "é"]
        {
            assert_eq!(cell(text), text);
        }
        assert_eq!(cell("\"\""), "");
    }
}
