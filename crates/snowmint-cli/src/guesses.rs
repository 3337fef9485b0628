//! What an id may be when nobody says: the likeliest layout or scheme first, the others in a few words or as JSON.
//! Where a plain number is likeliest, that comes first too.

use serde::Serialize;
use snowmint::guess::{self, Guess};
use snowmint::scheme::SchemeId;
use snowmint::utc::Utc;
use snowmint::{Field, Layout};

use crate::form::Form;
use crate::instants;

/// Guesses that are a million times less likely than the first are noise.
const NOISE_BITS: f64 = 20.0;
/// How many others are worth a line.
const OTHERS: usize = 4;
/// How many of those may have the bits of one layout, and differ in their epochs alone.
const OF_SAME_BITS: usize = 3;

/// What a text may be, most likely first; nothing for a word that would be a plain number in another base than ten,
/// as any word is.
pub(crate) fn of_text(text: &str, now_unix_ms: u64) -> Vec<Guess> {
    let guesses = guess::of_text(text, now_unix_ms);
    let is_any_word = guesses.first().is_some_and(|first| is_number(first) && first.form() != "decimal");
    if is_any_word { Vec::new() } else { without_noise(guesses) }
}

/// What a text in a form that is named may be, most likely first; nothing where it is not of that form.
pub(crate) fn of_form(text: &str, form: Form, now_unix_ms: u64) -> Vec<Guess> {
    form.read(text).map(|id| without_noise(guess::of_id(id, now_unix_ms))).unwrap_or_default()
}

fn without_noise(mut guesses: Vec<Guess>) -> Vec<Guess> {
    if let Some(first) = guesses.first() {
        let bound = first.cost_bits() + NOISE_BITS;
        guesses.retain(|guess| guess.cost_bits() < bound);
    }
    guesses
}

fn is_number(guess: &Guess) -> bool {
    guess.layout().is_none() && guess.scheme_id().is_none()
}

/// The likeliest guess of each name.
fn of_each_name(guesses: &[Guess]) -> impl Iterator<Item = &Guess> {
    let is_first = |(i, guess): &(usize, &Guess)| guesses[..*i].iter().all(|it| it.name() != guess.name());
    guesses.iter().enumerate().filter(is_first).map(|(_, guess)| guess)
}

/// One line for each of the guesses after the first that names another kind.
pub(crate) fn others(guesses: &[Guess], now_unix_ms: u64) -> Vec<String> {
    let Some(first) = guesses.first() else { return Vec::new() };
    let mut told: Vec<&Guess> = Vec::new();
    for guess in of_each_name(guesses).skip(1) {
        if told.iter().filter(|other| have_same_bits(other, guess)).count() < OF_SAME_BITS {
            told.push(guess);
        }
    }
    told.into_iter().take(OTHERS).map(|guess| line(guess, first.form(), now_unix_ms)).collect()
}

/// Whether the time and the sequence of two layouts have the same bits of an id.
fn have_same_bits(one: &Guess, other: &Guess) -> bool {
    let bits = |layout: &Layout| {
        [Field::Timestamp, Field::Sequence].map(|field| (layout.shift(field), layout.width(field)))
    };
    match (one.layout(), other.layout()) {
        (Some((one, _)), Some((other, _))) => {
            bits(&one.layout) == bits(&other.layout) && one.layout.tick() == other.layout.tick()
        }
        _ => false,
    }
}

/// What a guess says; its text form only where it is another than that of the first.
fn line(guess: &Guess, first_form: &str, now_unix_ms: u64) -> String {
    let same = guess.form() == first_form || guess.form() == guess.name();
    let form = if same { String::new() } else { format!(", read as {}", guess.form()) };
    match guess.unix_ms() {
        Some(unix_ms) => {
            format!("{}{form}: {} ({})", guess.name(), Utc(unix_ms), instants::age(unix_ms, now_unix_ms))
        }
        None => format!("{}{form}", guess.name()),
    }
}

/// A guess in JSON; the order of the members is part of the format.
#[derive(Serialize)]
pub(crate) struct Entry {
    name: &'static str,
    form: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    unix_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    utc: Option<String>,
    cost_bits: f64,
}

/// The likeliest guess of each name, for JSON; `form` is the text form where that was named.
pub(crate) fn entries(guesses: &[Guess], form: Option<Form>) -> Vec<Entry> {
    let entry = |guess: &Guess| Entry {
        name: guess.name(),
        form: form.map_or(guess.form(), Form::name),
        unix_ms: guess.unix_ms(),
        utc: guess.unix_ms().map(|unix_ms| Utc(unix_ms).to_string()),
        cost_bits: (guess.cost_bits() * 10.0).round() / 10.0,
    };
    of_each_name(guesses).map(entry).collect()
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
