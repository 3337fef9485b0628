//! Whether two text forms can write two different ids as the same text.
//!
//! It compares what all texts of a form have in common. So "no" is a proof, and "yes" may be a false alarm.

use snowmint::codec::Digits;

use super::{DatePart, Part, TextForm};

/// The characters that may stand at one position of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Literal(u8),
    /// A digit of a date, by its index in `yyyymmdd`.
    Date(u8),
    /// A digit of a number, or a character of an id with a text of its own.
    Body(Characters),
}

/// A set of ASCII characters, one bit for each.
type Characters = u128;

/// A form, position by position: the number or id stands between `before` and `after`.
struct Shape {
    before: Vec<Position>,
    body: Option<Digits>,
    width: usize,
    after: Vec<Position>,
}

/// Returns whether two forms of one scheme can write two different ids as the same text.
///
/// `None` is the plain form: decimal numbers, or ids in the text of their scheme. With [`Periods::Many`], equal numbers of two
/// periods are two ids.
pub(in crate::namespace) fn can_meet(
    one: Option<&TextForm>,
    other: Option<&TextForm>,
    periods: Periods,
    plain: Plain,
) -> bool {
    if one == other {
        // A text of one form is parsed as one number, and shows its period.
        return false;
    }
    let (one, other) = (Shape::of(one, plain), Shape::of(other, plain));
    !(one.is_read_alike(&other, periods) || one.is_apart(&other) || other.is_apart(&one))
}

/// Whether the numbers of a namespace restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::namespace) enum Periods {
    One,
    Many,
}

/// The ids of a namespace without a text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::namespace) enum Plain {
    Number,
    Id,
}

impl Shape {
    fn of(form: Option<&TextForm>, plain: Plain) -> Self {
        let body = if plain == Plain::Number { Some(Digits::Decimal) } else { None };
        let mut shape = Self { before: Vec::new(), body, width: 0, after: Vec::new() };
        let Some(form) = form else { return shape };
        let mut is_before = true;
        for part in &form.parts {
            let mut positions = Vec::new();
            match part {
                Part::Literal(text) => positions.extend(text.bytes().map(Position::Literal)),
                Part::Date(part) => {
                    let digits = match part {
                        DatePart::Date => 0..8,
                        DatePart::Year => 0..4,
                        DatePart::Month => 4..6,
                        DatePart::Day => 6..8,
                    };
                    positions.extend(digits.map(Position::Date));
                }
                Part::Number { digits, width } => {
                    (shape.body, shape.width, is_before) = (Some(digits.clone()), usize::from(*width), false);
                }
                Part::Id => (shape.body, is_before) = (None, false),
            }
            if is_before { shape.before.extend(positions) } else { shape.after.extend(positions) }
        }
        shape
    }

    /// Whether both forms parse a text in the same way: the number or id at the same position, and the date too if periods
    /// are part of an id.
    fn is_read_alike(&self, other: &Self, periods: Periods) -> bool {
        let dates = |positions: &[Position]| -> Vec<_> {
            let date =
                |position: &Position| if let Position::Date(digit) = position { Some(*digit) } else { None };
            positions.iter().map(date).collect()
        };
        let same_dates =
            || dates(&self.before) == dates(&other.before) && dates(&self.after) == dates(&other.after);
        self.body == other.body
            && self.before.len() == other.before.len()
            && self.after.len() == other.after.len()
            && (periods == Periods::One || same_dates())
    }

    /// Whether no text has both forms: their lengths differ, or their characters at a position from either end, or one has a
    /// character that the other never has.
    fn is_apart(&self, other: &Self) -> bool {
        let ((_, longest), (shortest, _)) = (self.lengths(), other.lengths());
        longest < shortest
            || self.forwards().zip(other.forwards()).any(|(a, b)| !a.meets(b))
            || self.backwards().zip(other.backwards()).any(|(a, b)| !a.meets(b))
            || self.fixed().any(|position| !other.all().any(|it| it.meets(position)))
    }

    /// The least and the greatest length of a text.
    fn lengths(&self) -> (usize, usize) {
        let (least, most) = self.body_lengths();
        let rest = self.before.len() + self.after.len();
        (least + rest, most + rest)
    }

    /// The least and the greatest length of a number up to 2^63. All ids with a text of their own have one length, at least 24.
    fn body_lengths(&self) -> (usize, usize) {
        let Some(digits) = &self.body else { return (24, 24) };
        let most = digits.width();
        (self.width.max(1), self.width.max(most))
    }

    /// The characters of a number or id.
    fn characters(&self) -> Characters {
        let writes = |byte: &u8| match &self.body {
            Some(digits) => digits.writes(*byte),
            None => byte.is_ascii_alphanumeric() || *byte == b'-',
        };
        (0..128).filter(writes).fold(0, |all, byte| all | 1 << byte)
    }

    fn body(&self) -> impl Iterator<Item = Position> {
        std::iter::repeat_n(Position::Body(self.characters()), self.body_lengths().0)
    }

    /// The positions from the start that all texts have.
    fn forwards(&self) -> impl Iterator<Item = Position> {
        self.before.iter().copied().chain(self.body())
    }

    /// The positions from the end that all texts have.
    fn backwards(&self) -> impl Iterator<Item = Position> {
        self.after.iter().rev().copied().chain(self.body())
    }

    /// The literal characters, which every text contains.
    fn fixed(&self) -> impl Iterator<Item = Position> {
        self.before
            .iter()
            .chain(&self.after)
            .copied()
            .filter(|position| matches!(position, Position::Literal(_)))
    }

    fn all(&self) -> impl Iterator<Item = Position> {
        self.before.iter().chain(&self.after).copied().chain([Position::Body(self.characters())])
    }
}

impl Position {
    /// Whether both positions may have the same character.
    const fn meets(self, other: Self) -> bool {
        self.characters() & other.characters() != 0
    }

    /// The possible characters; templates are ASCII.
    const fn characters(self) -> Characters {
        match self {
            Self::Literal(byte) => 1 << (byte & 127),
            Self::Date(_) => 0x3ff << b'0',
            Self::Body(characters) => characters,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn form(text: &str) -> Option<TextForm> {
        (!text.is_empty()).then(|| text.parse().unwrap())
    }

    fn meet(one: &str, other: &str, periods: Periods) -> bool {
        let plain = if one.contains("{id}") || other.contains("{id}") { Plain::Id } else { Plain::Number };
        let forms = (form(one), form(other));
        let met = can_meet(forms.0.as_ref(), forms.1.as_ref(), periods, plain);
        assert_eq!(met, can_meet(forms.1.as_ref(), forms.0.as_ref(), periods, plain), "{one} and {other}");
        met
    }

    #[test]
    fn forms_that_can_write_one_text_are_told_from_those_that_cannot() {
        for (one, other) in [
            ("", "{number:6}"),
            ("A-{number:6}", "A-{number:8}"),
            ("A{number}", "B{number}"),
            ("", "ORD-{number:6}"),
            ("", "{number}x"),
            ("{base62}", "{base62}-v2"),
            ("{number}", "{hex:20}"),
            ("{date}{number}", "{date}-{number}"),
            ("{id}", "usr_{id}"),
            ("", "usr_{id}"),
            ("A{hex}", "B{number}"),
            ("{base32}", "{base32:13}"),
            ("{alphabet=xyz}", "{number}"),
            ("{base58}0", "{base58}-"),
            ("{alphabet=ab}", "{alphabet=ab:9}"),
            ("{yyyy}{mm}{dd}-{number}", "{date}-{number}"),
        ] {
            assert!(!meet(one, other, Periods::One), "{one} and {other}");
        }
        for (one, other) in [
            ("", "{hex}"),
            ("{number:6}", "{base62:6}"),
            ("{number}", "{number}0"),
            ("{number}", "1{number}"),
            ("A{number}", "A1{number}"),
            ("{date}{number}", "{number}"),
            ("{hex}", "a{hex}"),
            ("x{id}", "{id}x"),
            ("{base58}", "{base62}"),
            ("{base32}", "{base36}"),
            ("{alphabet=01}", "{alphabet=10}"),
        ] {
            assert!(meet(one, other, Periods::One), "{one} and {other}");
        }
        // 10 December and 12 October.
        assert!(meet("{yyyy}{mm}{dd}-{number}", "{yyyy}{dd}{mm}-{number}", Periods::Many));
        assert!(!meet("{yyyy}{mm}{dd}-{number}", "{yyyy}{dd}{mm}-{number}", Periods::One));
        assert!(!meet("{date}-{number}", "{date}-{number:6}", Periods::Many));
    }

    fn template() -> impl Strategy<Value = String> {
        let literal =
            || prop_oneof![Just(""), Just("1"), Just("a"), Just("-"), Just("0a"), Just("{mm}"), Just("{dd}")];
        let number = prop_oneof![
            Just("number"),
            Just("hex"),
            Just("base32"),
            Just("base36"),
            Just("base58"),
            Just("base62"),
            Just("alphabet=10"),
            Just("alphabet=a0-1m"),
        ];
        let width = prop_oneof![Just(""), Just(":2"), Just(":3")];
        (literal(), number, width, literal())
            .prop_map(|(before, number, width, after)| format!("{before}{{{number}{width}}}{after}"))
    }

    proptest! {
        /// Goal: what is allowed never writes one text for two numbers. Method: all texts of small numbers and of some
        /// around 2^63 under both forms, on several days.
        #[test]
        fn forms_that_cannot_meet_do_not(one in template(), other in template()) {
            prop_assume!(!meet(&one, &other, Periods::One));
            let (one, other) = (form(&one).unwrap(), form(&other).unwrap());
            let numbers = (0..4000_u64).chain((u64::MAX >> 1) - 50..=u64::MAX >> 1);
            let days = [1_795_219_200_000, 1_765_324_800_000];
            let mut texts = HashMap::new();
            for number in numbers {
                for form in [&one, &other] {
                    for day in days {
                        let mut text = Vec::new();
                        form.write_number(number, day, &mut text);
                        let before = texts.insert(text, number);
                        prop_assert!(before.is_none_or(|before| before == number), "{} and {}", before.unwrap(), number);
                    }
                }
            }
        }
    }
}
