//! The name of a record: short text in segments, which every backend can store as it is.
//! Checked once when it is built, so that no store has to escape or reject anything later.

use std::borrow::Borrow;
use std::fmt;

/// The maximum length of a key in bytes.
const MAX_BYTES: usize = 200;

/// The name of a record: 1 to 200 bytes, in segments joined by `/`, each of one or more of `A-Z a-z 0-9 . _ = @ : -`.
///
/// Keys order by their bytes.
///
/// # Examples
///
/// ```
/// use snowmint_store::Key;
/// let key = Key::new("workers/time41-worker10/7")?;
/// assert_eq!(key.as_str(), "workers/time41-worker10/7");
/// assert!(Key::new("workers//7").is_err());
/// # Ok::<(), snowmint_store::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(String);

impl Key {
    /// Checks a text and returns it as a key.
    ///
    /// # Errors
    ///
    /// [`KeyError`]: which rule the text breaks, and where.
    pub fn new(text: impl Into<String>) -> Result<Self, KeyError> {
        let text = text.into();
        check(&text)?;
        Ok(Self(text))
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether any key can begin with a text, as far as its length and its characters tell.
    #[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
    pub(crate) fn may_begin_with(prefix: &str) -> bool {
        prefix.len() <= MAX_BYTES && prefix.chars().all(|it| it == '/' || is_plain(it))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

fn check(text: &str) -> Result<(), KeyError> {
    if text.is_empty() {
        return Err(KeyError::Empty);
    }
    if text.len() > MAX_BYTES {
        return Err(KeyError::TooLong { bytes: text.len() });
    }
    let mut segment_is_empty = true;
    for (at, character) in text.char_indices() {
        match character {
            '/' if segment_is_empty => return Err(KeyError::EmptySegment { at }),
            '/' => segment_is_empty = true,
            _ if is_plain(character) => segment_is_empty = false,
            _ => return Err(KeyError::Character { at, character }),
        }
    }
    if segment_is_empty { Err(KeyError::EmptySegment { at: text.len() }) } else { Ok(()) }
}

/// Whether a character is allowed in a segment.
const fn is_plain(character: char) -> bool {
    matches!(character, 'A'..='Z' | 'a'..='z' | '0'..='9' | '.' | '_' | '=' | '@' | ':' | '-')
}

/// Why a text is not a valid [`Key`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is empty.
    #[error("invalid key: it is empty, expected 1 to {MAX_BYTES} bytes")]
    Empty,
    /// The text has more than 200 bytes.
    #[error("invalid key: {bytes} bytes, expected 1 to {MAX_BYTES}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A segment is empty: a `/` at the start, at the end, or right after another.
    #[error("invalid key: empty segment at byte {at}, expected text between any two `/`")]
    EmptySegment {
        /// The byte, from 0, at which the segment should begin.
        at: usize,
    },
    /// A character that is not allowed in a key.
    #[error("invalid key: {character:?} at byte {at}, expected A-Z a-z 0-9 . _ = @ : - and `/`")]
    Character {
        /// Its position in bytes, from 0.
        at: usize,
        /// The character.
        character: char,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_refused_for_the_rule_it_breaks() {
        let cases = [
            ("", KeyError::Empty),
            ("/", KeyError::EmptySegment { at: 0 }),
            ("/a", KeyError::EmptySegment { at: 0 }),
            ("a/", KeyError::EmptySegment { at: 2 }),
            ("a//b", KeyError::EmptySegment { at: 2 }),
            ("a b", KeyError::Character { at: 1, character: ' ' }),
            ("a%", KeyError::Character { at: 1, character: '%' }),
            ("a/é", KeyError::Character { at: 2, character: 'é' }),
            ("a\0", KeyError::Character { at: 1, character: '\0' }),
        ];
        for (text, error) in cases {
            assert_eq!(Key::new(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn the_length_is_bounded_at_200_bytes() {
        assert!(Key::new("k").is_ok());
        assert!(Key::new("k".repeat(200)).is_ok());
        assert_eq!(Key::new("k".repeat(201)), Err(KeyError::TooLong { bytes: 201 }));
    }

    #[test]
    fn every_character_of_the_set_is_taken() {
        let text = "AZ/az/09/._=@:-/..";
        assert_eq!(Key::new(text).unwrap().to_string(), text);
    }
}
