//! What else an id may be, in a few words each; and the fields of an id of another scheme.

use snowmint::Layout;
use snowmint::field::Field;
use snowmint::inspect::{Candidate, Decoded};
use snowmint::scheme::SchemeId;
use snowmint::utc::Utc;

use crate::instants;

/// How many others are worth a line.
const OTHERS: usize = 4;
/// How many of those may have the bits of one layout, and differ in their epochs alone.
const OF_SAME_BITS: usize = 3;

/// A line for each of the likeliest candidates after the first, and one for the rest.
pub(crate) fn others(candidates: &[Candidate], now_unix_ms: u64) -> Vec<String> {
    let Some((first, rest)) = candidates.split_first() else { return Vec::new() };
    let mut told: Vec<&Candidate> = Vec::new();
    for candidate in rest {
        if told.iter().filter(|other| have_same_bits(other, candidate)).count() < OF_SAME_BITS {
            told.push(candidate);
        }
    }
    told.truncate(OTHERS);
    let lines = told.iter().map(|candidate| line(candidate, first.form, now_unix_ms));
    lines.chain(untold(rest, &told)).collect()
}

/// How many readings have no line, if they are worth one together.
fn untold(rest: &[Candidate], told: &[&Candidate]) -> Option<String> {
    let sum = |share: f64, candidate: &Candidate| share + candidate.likelihood.unwrap_or_default();
    let share = rest.iter().fold(0.0, sum) - told.iter().copied().fold(0.0, sum);
    let count = rest.len() - told.len();
    (share >= 0.01).then(|| with_likelihood(&format!("{count} more, see --json"), Some(share)))
}

/// Whether the time and the sequence of two layouts have the same bits of an id.
fn have_same_bits(one: &Candidate, other: &Candidate) -> bool {
    let bits = |layout: &Layout| {
        [Field::Timestamp, Field::Sequence].map(|field| (layout.shift(field), layout.width(field)))
    };
    match (&one.decoded, &other.decoded) {
        (Decoded::Snowflake { layout: one, .. }, Decoded::Snowflake { layout: other, .. }) => {
            bits(one) == bits(other) && one.tick() == other.tick()
        }
        _ => false,
    }
}

/// `twitter, 61% likely`; the name alone where nothing was guessed.
pub(crate) fn with_likelihood(name: &str, likelihood: Option<f64>) -> String {
    likelihood.map_or_else(|| name.to_owned(), |share| format!("{name}, {} likely", percent(share)))
}

/// Whole percents, but never none.
fn percent(share: f64) -> String {
    if share < 0.01 { "under 1%".to_owned() } else { format!("{:.0}%", share * 100.0) }
}

/// What a candidate says; its text form only where it is another than that of the first.
fn line(candidate: &Candidate, first_form: &str, now_unix_ms: u64) -> String {
    let name = candidate.decoded.name();
    let same = candidate.form == first_form || candidate.form == name;
    let form = if same { String::new() } else { format!(", read as {}", candidate.form) };
    let instant = match candidate.decoded.unix_ms() {
        Some(unix_ms) => format!(": {} ({})", Utc(unix_ms), instants::age(unix_ms, now_unix_ms)),
        None => String::new(),
    };
    with_likelihood(&format!("{name}{form}{instant}"), candidate.likelihood)
}

/// The fields of an id of another scheme, such as a UUID.
pub(crate) fn scheme_facts(id: &SchemeId, now_unix_ms: u64) -> Vec<(&'static str, String)> {
    let mut facts: Vec<_> =
        id.values().map(|(field, value)| (field.name, field.show(value).to_string())).collect();
    if let Some(unix_ms) = id.unix_ms() {
        facts.push(("utc", Utc(unix_ms).to_string()));
        facts.push(("local", instants::local(unix_ms)));
        facts.push(("age", instants::age(unix_ms, now_unix_ms)));
    }
    facts
}
