//! The name of a record: short text in segments, plain enough for every backend to take as it is.
//! Checked once when built, so that no store has to escape or refuse anything later.

use std::borrow::Borrow;
use std::fmt;

/// The most bytes a key may have.
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
    /// Takes a text for a key.
    ///
    /// # Errors
    ///
    /// [`KeyError`] tells which rule the text breaks, and where.
    pub fn new(text: impl Into<String>) -> Result<Self, KeyError> {
        let text = text.into();
        check(&text)?;
        Ok(Self(text))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether any key at all can begin with a text, as far as its characters tell.
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

/// Whether a character may stand in a segment.
const fn is_plain(character: char) -> bool {
    matches!(character, 'A'..='Z' | 'a'..='z' | '0'..='9' | '.' | '_' | '=' | '@' | ':' | '-')
}

/// Why a text is not a [`Key`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is empty.
    #[error("a key has at least one byte, this one is empty")]
    Empty,
    /// The text has more than 200 bytes.
    #[error("a key has at most {MAX_BYTES} bytes, this one has {bytes}")]
    TooLong {
        /// How many bytes it has.
        bytes: usize,
    },
    /// A segment has no characters: a `/` at the start, at the end, or right after another.
    #[error("the segments of a key, joined by `/`, are not empty; the one at byte {at} is")]
    EmptySegment {
        /// Where the segment should have begun, in bytes from 0.
        at: usize,
    },
    /// A character that no key has.
    #[error("a key is made of A-Z a-z 0-9 . _ = @ : - and `/`, not of {character:?} (at byte {at})")]
    Character {
        /// Where it stands, in bytes from 0.
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
