//! What an id may be when nobody says: the likeliest layout or scheme first, the others in a few words.

use snowmint::guess::{Guess, of_text};
use snowmint::utc::Utc;

use crate::instants;

/// How many others are worth a line.
const OTHERS: usize = 4;

/// What a text may be, most likely first; nothing for a plain small number, which every layout would claim.
pub(crate) fn likely(text: &str, now_unix_ms: u64) -> Vec<Guess> {
    of_text(text, now_unix_ms)
}

/// One line for each of the guesses after the first that names another kind.
pub(crate) fn others(guesses: &[Guess], now_unix_ms: u64) -> Vec<String> {
    let Some((first, rest)) = guesses.split_first() else { return Vec::new() };
    let mut told = vec![first.name()];
    let mut lines = Vec::new();
    for guess in rest {
        if !told.contains(&guess.name()) && lines.len() < OTHERS {
            told.push(guess.name());
            lines.push(line(guess, first.form(), now_unix_ms));
        }
    }
    lines
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

/// The fields of an id of another scheme, such as a UUID; nothing for a number.
pub(crate) fn scheme_facts(guess: &Guess, now_unix_ms: u64) -> Option<Vec<(String, String)>> {
    let id = guess.scheme_id()?;
    let mut facts: Vec<(String, String)> =
        id.values().map(|(field, value)| (field.name.to_owned(), field.show(value).to_string())).collect();
    if let Some(unix_ms) = id.unix_ms() {
        facts.push(("utc".to_owned(), Utc(unix_ms).to_string()));
        facts.push(("local".to_owned(), instants::local(unix_ms)));
        facts.push(("age".to_owned(), instants::age(unix_ms, now_unix_ms)));
    }
    Some(facts)
}
