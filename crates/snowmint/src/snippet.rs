//! The start of rejected input, which errors quote.

use core::fmt;

/// Bytes that a snippet keeps.
const ROOM: usize = 30;

/// The start of rejected input, up to 30 bytes, for an error message.
///
/// It keeps errors small and `Copy`. Longer input ends in an ellipsis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Snippet {
    bytes: [u8; ROOM],
    len: u8,
    cut: bool,
}

impl Snippet {
    /// Keeps the start of `text`, cut at a character boundary.
    pub fn of(text: &str) -> Self {
        let mut end = text.len().min(ROOM);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self::cut_at(text.as_bytes(), end)
    }

    /// Keeps the start of a text of ASCII characters.
    pub(crate) const fn of_ascii(text: &[u8]) -> Self {
        Self::cut_at(text, if text.len() < ROOM { text.len() } else { ROOM })
    }

    const fn cut_at(text: &[u8], end: usize) -> Self {
        let mut bytes = [0; ROOM];
        bytes.split_at_mut(end).0.copy_from_slice(text.split_at(end).0);
        #[expect(clippy::cast_possible_truncation, reason = "end is at most ROOM, which is 30")]
        Self { bytes, len: end as u8, cut: end < text.len() }
    }

    /// Returns the kept text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or("")
    }
}

impl fmt::Display for Snippet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Control characters of the input must not reach a terminal or a log line.
        write!(f, "`{}{}`", self.as_str().escape_debug(), if self.cut { "…" } else { "" })
    }
}

impl fmt::Debug for Snippet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_input_is_cut_at_a_character() {
        let shown = format!("{}", Snippet::of(&"é".repeat(40)));
        assert_eq!(shown, format!("`{}…`", "é".repeat(15)));
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(format!("{}", Snippet::of("a\u{1b}[31m")), "`a\\u{1b}[31m`");
    }
}
