//! Ids of 128 bits split as their specifications say; all of it needs the feature `schemes`. ULID's increment
//! is tested next to its code, because only that code can set the previous id.

#[cfg(not(feature = "schemes"))]
use super::Case;
use super::Kind;

pub(crate) const KINDS: &[Kind] = &[
    Kind::new("decode-ulid", 3, decode_ulid),
    Kind::new("reject-ulid", 1, reject_ulid),
    Kind::new("decode-uuidv7", 1, decode_uuidv7),
];

#[cfg(feature = "schemes")]
use with_feature::{decode_ulid, decode_uuidv7, reject_ulid};

#[cfg(feature = "schemes")]
mod with_feature {
    use snowmint::scheme::{Scheme, SchemeId};
    use snowmint::utc::Utc;

    use super::super::Case;

    fn value_of(id: &SchemeId, name: &str) -> u128 {
        id.values().find(|(field, _)| field.name == name).unwrap().1
    }

    pub(crate) fn decode_ulid(case: &Case<'_>) {
        let text = case.text();
        let id = Scheme::Ulid.parse(text).unwrap();
        assert_eq!(id.unix_ms(), Some(case.number("unix_ms")));
        assert_eq!(value_of(&id, "random").to_string(), case.word("random"));
        assert_eq!(format!("{:032x}", id.as_u128()), case.word("u128_hex"));
        assert_eq!(id.to_string(), text);
        assert_eq!(Scheme::Ulid.parse(&text.to_lowercase()), Ok(id));
    }

    pub(crate) fn reject_ulid(case: &Case<'_>) {
        case.must_be_refused();
        assert!(Scheme::Ulid.parse(case.text()).is_err());
    }

    pub(crate) fn decode_uuidv7(case: &Case<'_>) {
        let id = Scheme::Uuid7.parse(case.text()).unwrap();
        assert_eq!(id.unix_ms(), Some(case.number("unix_ts_ms")));
        assert_eq!(Utc(id.unix_ms().unwrap()).to_string(), case.word("utc"));
        for name in ["rand_a", "rand_b"] {
            assert_eq!(format!("{:X}", value_of(&id, name)), case.word(name));
        }
        for name in ["version", "variant"] {
            assert_eq!(value_of(&id, name), u128::from(case.number(name)));
        }
        assert_eq!(id.to_string().to_uppercase(), case.text());
    }
}

#[cfg(not(feature = "schemes"))]
const WITHOUT: fn(&Case<'_>) = |case| case.needs_another_feature();
#[cfg(not(feature = "schemes"))]
use self::{WITHOUT as decode_ulid, WITHOUT as decode_uuidv7, WITHOUT as reject_ulid};
