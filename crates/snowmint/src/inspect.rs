//! Explains an id: decodes an id or a text by a layout or a scheme, and lists what else it may be. The result
//! is a list of named values in one order, which the command line and every protocol write in their own
//! format.
//!
//! ```
//! use snowmint::inspect::Inspection;
//! let now = 1_785_542_400_000; // 2026-08-01
//! let inspection = Inspection::of_text("1541815603606036480", Vec::new(), now).ok_or("not an id")?;
//! let likeliest = inspection.likeliest();
//! assert_eq!((&*likeliest.decoded.name(), likeliest.form), ("twitter", "decimal"));
//! assert_eq!(likeliest.decoded.unix_ms(), Some(1_656_432_460_105));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::Id;
pub use crate::cell::cell;
use crate::codec::{Digits, ParseIdError};
pub use crate::decoded::{Decoded, Value, Values};
use crate::field::Field;
use crate::guess::{self, Guess};
use crate::layout::PRESETS;
use crate::utc::Utc;

/// Candidates that are a million times less likely than the first are noise.
const NOISE_BITS: f64 = 20.0;
/// The same for layouts without a name, of which there is one per year: a hundred times less likely.
const UNNAMED_NOISE_BITS: f64 = 6.6;
/// The total likelihood of all readings. The rest is for systems that are unknown here.
const KNOWN: f64 = 0.99;
/// How much less likely than the first a reading is at most, in bits, to be named as nearly as likely.
const NEAR_TIE_BITS: f64 = 1.0;
/// How many such readings are named.
const MAX_TIES: usize = 3;
/// What a hidden id or a random number costs, in bits: its 63 bits, and some for how rare such ids are.
const HIDDEN_BITS: f64 = 63.0 + 4.0;
/// Below this, chance often makes a number one that a double holds: the doubles are at most 8 apart.
const OFTEN_A_DOUBLE: u64 = 1 << 56;
/// The maximum number of candidates from namespaces; more would help nobody.
const MAX_OWNED: usize = 16;
/// The maximum number of namespaces that a candidate lists.
const MAX_NAMESPACES: usize = 10;

/// One possible reading of a text.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Candidate {
    /// The decoded text.
    pub decoded: Decoded,
    /// The text form it was read in, such as `decimal` or `base62`; a scheme's own form has the scheme's
    /// name.
    pub form: &'static str,
    /// The namespaces that make such ids, at most 10 of them.
    pub namespaces: Vec<String>,
    /// The number of bits that describe the text under this reading: each additional bit halves the
    /// likelihood. `None` if the instant is not plausible.
    pub cost_bits: Option<f64>,
    /// The likelihood of this reading compared with all others, 0 to 0.99: an estimate from the values of the
    /// fields and the age. `None` if the meaning is known, or if the instant is not plausible.
    pub likelihood: Option<f64>,
}

impl Candidate {
    /// Returns the reading of a text that belongs to a namespace, in the namespace's text form.
    pub fn of_namespace(namespace: &str, decoded: Decoded, form: &'static str, now_unix_ms: u64) -> Self {
        let cost_bits = guess::cost_of(&decoded, now_unix_ms);
        Self { decoded, form, namespaces: vec![namespace.to_owned()], cost_bits, likelihood: None }
    }

    fn of_guess(guess: &Guess) -> Self {
        Self {
            decoded: guess.decoded(),
            form: guess.form(),
            namespaces: Vec::new(),
            cost_bits: Some(guess.cost_bits()),
            likelihood: None,
        }
    }

    fn values(&self) -> Values {
        let mut values = vec![
            ("name", Value::Text(self.decoded.name().into_owned())),
            ("form", Value::Text(self.form.to_owned())),
        ];
        if let Some(unix_ms) = self.decoded.unix_ms() {
            values.push(("unix_ms", Value::Number(unix_ms)));
            values.push(("utc", Value::Text(Utc(unix_ms).to_string())));
        }
        if let Some(cost_bits) = self.cost_bits {
            values.push(("cost_bits", Value::Real((cost_bits * 10.0).round() / 10.0)));
        }
        if let Some(likelihood) = self.likelihood {
            values.push(("likelihood", Value::Real((likelihood * 1000.0).round() / 1000.0)));
        }
        if !self.namespaces.is_empty() {
            values.push(("namespaces", Value::Texts(self.namespaces.clone())));
        }
        values
    }
}

/// All possible readings of a text, and the values of the likeliest.
#[derive(Clone, Debug)]
pub struct Inspection {
    likeliest: Candidate,
    /// Readings that namespaces do not make appear once per name, with the likeliest form.
    candidates: Vec<Candidate>,
    notes: Vec<String>,
}

impl Inspection {
    /// Lists the possible readings of a text. Readings of namespaces (`of_namespaces`) come first, then all
    /// others, each group with the likeliest first. Readings of namespaces that are a million times less
    /// likely than the likeliest of all come last.
    ///
    /// Returns `None` if the text is not an id, or if it reads only as a plain number in another base than
    /// ten, as any word does.
    pub fn of_text(text: &str, of_namespaces: Vec<Candidate>, now_unix_ms: u64) -> Option<Self> {
        Self::of_guesses(&guesses_of_text(text, now_unix_ms), of_namespaces)
    }

    /// Lists the possible readings of a text in a given form, like [`of_text`](Self::of_text).
    ///
    /// # Errors
    ///
    /// [`ParseIdError`] if the text does not have that form.
    pub fn of_digits(text: &str, digits: &Digits, now_unix_ms: u64) -> Result<Self, ParseIdError> {
        let id = digits.decode(text)?;
        Ok(Self::of_id(id, &guess::of_id(id, now_unix_ms), digits.name()))
    }

    fn of_id(id: Id, guesses: &[Guess], form: &'static str) -> Self {
        let Some(mut inspection) = Self::of_guesses(guesses, Vec::new()) else {
            return Self::known(Decoded::Number(id), form);
        };
        inspection.likeliest.form = form;
        for candidate in &mut inspection.candidates {
            candidate.form = form;
        }
        inspection
    }

    fn of_guesses(guesses: &[Guess], of_namespaces: Vec<Candidate>) -> Option<Self> {
        let candidates = merged(of_namespaces, guesses);
        let likeliest = candidates.first()?.clone();
        let notes = notes(&likeliest);
        Some(Self { likeliest, candidates, notes })
    }

    /// Returns the inspection of a text whose meaning is known.
    pub fn known(decoded: Decoded, form: &'static str) -> Self {
        let likeliest =
            Candidate { decoded, form, namespaces: Vec::new(), cost_bits: None, likelihood: None };
        Self { likeliest, candidates: Vec::new(), notes: Vec::new() }
    }

    /// Adds what a reader should know of the id, as one sentence.
    #[must_use]
    pub fn with_note(mut self, note: String) -> Self {
        self.notes.push(note);
        self
    }

    /// Returns what a reader should know of the id, as sentences: that it may be rounded, or hidden.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the names of up to three readings that are at least half as likely as the first: the first may
    /// well be wrong.
    pub fn near_ties(&self) -> Vec<String> {
        let cost_bits = self.likeliest.cost_bits;
        let is_near = |it: &&Candidate| {
            cost_bits.zip(it.cost_bits).is_some_and(|(first, other)| other <= first + NEAR_TIE_BITS)
        };
        let others = self.candidates.iter().skip(1).filter(is_near);
        others.take(MAX_TIES).map(|it| it.decoded.name().into_owned()).collect()
    }

    /// Returns the first reading, in general the likeliest.
    pub const fn likeliest(&self) -> &Candidate {
        &self.likeliest
    }

    /// Returns every reading, in the order of [`of_text`](Self::of_text); empty if the meaning is known.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Returns the values of the likeliest reading, `notes` and `near_ties` if there are any, and `guesses`:
    /// every reading with its name, text form and instant.
    pub fn values(&self) -> Values {
        let mut values = self.likeliest.decoded.values();
        for (name, texts) in [("notes", self.notes.clone()), ("near_ties", self.near_ties())] {
            if !texts.is_empty() {
                values.push((name, Value::Texts(texts)));
            }
        }
        if !self.candidates.is_empty() {
            values.push(("guesses", Value::List(self.candidates.iter().map(Candidate::values).collect())));
        }
        values
    }
}

/// Texts of one column, such as one of a table, judged together: see [`guess::Column`].
///
/// # Examples
///
/// ```
/// use snowmint::inspect::Column;
/// let mut column = Column::new(1_785_542_400_000); // 2026-08-01
/// let ids = ["867793854505943041", "943865945699532811", "1053092877443551252"];
/// for id in ids {
///     column.add(id, None);
/// }
/// let inspection = column.inspect(ids[0], None)?;
/// assert_eq!(inspection.ok_or("not an id")?.likeliest().decoded.name(), "discord");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Column {
    now_unix_ms: u64,
    seen: guess::Column,
}

impl Column {
    /// Starts a column. `now_unix_ms` is the current time.
    pub fn new(now_unix_ms: u64) -> Self {
        Self { now_unix_ms, seen: guess::Column::default() }
    }

    /// Adds a text in a given form, or in any.
    pub fn add(&mut self, text: &str, digits: Option<&Digits>) {
        if let Ok(guesses) = self.guesses(text, digits) {
            self.seen.add(&guesses);
        }
    }

    /// Lists the possible readings of a text that was [added](Self::add), like [`Inspection::of_text`] and
    /// [`Inspection::of_digits`].
    ///
    /// # Errors
    ///
    /// [`ParseIdError`] if the text does not have the given form.
    pub fn inspect(&self, text: &str, digits: Option<&Digits>) -> Result<Option<Inspection>, ParseIdError> {
        let guesses = self.seen.judge(self.guesses(text, digits)?);
        Ok(match digits {
            Some(digits) => Some(Inspection::of_id(digits.decode(text)?, &guesses, digits.name())),
            None => Inspection::of_guesses(&guesses, Vec::new()),
        })
    }

    fn guesses(&self, text: &str, digits: Option<&Digits>) -> Result<Vec<Guess>, ParseIdError> {
        match digits {
            Some(digits) => Ok(guess::of_id(digits.decode(text)?, self.now_unix_ms)),
            None => Ok(guesses_of_text(text, self.now_unix_ms)),
        }
    }
}

/// Returns the guesses for a text; none if it reads only as a plain number in another base than ten, as any
/// word does.
fn guesses_of_text(text: &str, now_unix_ms: u64) -> Vec<Guess> {
    let guesses = guess::of_text(text, now_unix_ms);
    let is_any_word = guesses.first().is_some_and(|first| {
        matches!(first.decoded(), Decoded::Number(_)) && first.form() != Digits::Decimal.name()
    });
    if is_any_word { Vec::new() } else { guesses }
}

/// Returns what a reader should know of the likeliest reading.
fn notes(likeliest: &Candidate) -> Vec<String> {
    let mut notes = Vec::new();
    let (id, low) = match likeliest.decoded {
        Decoded::Snowflake { id, layout, .. } => {
            (id, Field::ALL.into_iter().find(|field| layout.width(*field) > 0 && layout.shift(*field) == 0))
        }
        Decoded::Number(id) => (id, None),
        #[cfg(feature = "schemes")]
        Decoded::Scheme(_) | Decoded::Foreign(_) => return notes,
    };
    if likeliest.form == Digits::Decimal.name() && may_be_rounded(id, low) {
        let why =
            "may be rounded: a JavaScript number keeps 53 bits; get the id as a string and inspect that";
        notes.push(why.to_owned());
    }
    let is_random = likeliest.cost_bits.is_some_and(|bits| bits > HIDDEN_BITS);
    if id.get() >> 48 != 0 && likeliest.namespaces.is_empty() && is_random {
        let why = "may be hidden or random: no known layout explains it; if a namespace hides its ids, name \
                   the namespace or its hide key";
        notes.push(why.to_owned());
    }
    notes
}

/// Returns whether a JavaScript number may have changed an id: it is one that JavaScript prints, or a double
/// holds it exactly though its lowest field is not a sequence, which is mostly 0.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "its point"
)]
fn may_be_rounded(id: Id, lowest: Option<Field>) -> bool {
    let double = id.get() as f64;
    let is_exact = lowest != Some(Field::Sequence) && double as u64 == id.get();
    // Like JavaScript, Rust prints the fewest digits that name the double, and zeros after them.
    id.get() >= OFTEN_A_DOUBLE && (is_exact || format!("{double}") == id.to_string())
}

/// Returns the readings of namespaces and the guesses, in display order.
fn merged(of_namespaces: Vec<Candidate>, guesses: &[Guess]) -> Vec<Candidate> {
    let mut candidates = one_of_each(of_namespaces);
    let cost = |candidate: &Candidate| candidate.cost_bits.unwrap_or(f64::INFINITY);
    candidates.sort_by(|one, other| cost(one).total_cmp(&cost(other)));
    candidates.truncate(MAX_OWNED);
    let least = |costs: [Option<f64>; 2]| costs.into_iter().flatten().fold(f64::INFINITY, f64::min);
    let least = least([candidates.first().map(cost), guesses.first().map(Guess::cost_bits)]);
    let is_owned = |guess: &Guess| candidates.iter().any(|it| it.decoded == guess.decoded());
    let share = |cost_bits: f64| (least - cost_bits).exp2();
    let others = guesses.iter().filter(|guess| !is_owned(guess)).map(Guess::cost_bits);
    let all = candidates.iter().map(cost).chain(others).map(share).sum::<f64>();
    let mut likely: Vec<&Guess> = Vec::new();
    for guess in guesses {
        let noise = if has_name(guess) { NOISE_BITS } else { UNNAMED_NOISE_BITS };
        // If a layout reads the text in two forms, keep the likelier one.
        if guess.cost_bits() < least + noise && likely.iter().all(|before| before.name() != guess.name()) {
            likely.push(guess);
        }
    }
    likely.retain(|guess| !is_owned(guess));
    let likely: Vec<Candidate> = likely.into_iter().map(Candidate::of_guess).collect();
    let unlikely = candidates.partition_point(|it| cost(it) < least + NOISE_BITS);
    candidates.splice(unlikely..unlikely, likely);
    for candidate in &mut candidates {
        candidate.likelihood = candidate.cost_bits.map(|cost_bits| KNOWN * share(cost_bits) / all);
    }
    candidates
}

fn has_name(guess: &Guess) -> bool {
    guess.layout().is_none_or(|(layout, _)| PRESETS.iter().any(|preset| preset.layout == layout))
}

/// Merges equal candidates of several namespaces into one, with all their names.
fn one_of_each(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut each: Vec<Candidate> = Vec::new();
    for candidate in candidates {
        match each.iter_mut().find(|it| it.decoded == candidate.decoded && it.form == candidate.form) {
            Some(same) => same.namespaces.extend(candidate.namespaces),
            None => each.push(candidate),
        }
    }
    for candidate in &mut each {
        candidate.namespaces.truncate(MAX_NAMESPACES);
    }
    each
}

#[cfg(feature = "serde")]
impl serde::Serialize for Inspection {
    /// Serializes all [values](Inspection::values) as one object, in their order.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        crate::decoded::ValuesObject(&self.values()).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Id, Layout, Parts};

    const NOW: u64 = 1_785_542_400_000;

    fn of_layout(namespace: &str, layout: &str, id: u64) -> Candidate {
        let decoded = Decoded::by_layout(Id::new(id).unwrap(), layout.parse().unwrap()).unwrap();
        Candidate::of_namespace(namespace, decoded, "decimal", NOW)
    }

    fn names(inspection: &Inspection) -> Vec<String> {
        inspection.candidates().iter().map(|it| it.decoded.name().into_owned()).collect()
    }

    #[test]
    fn only_the_fields_that_the_layout_has() {
        let names = |layout: &str| -> Vec<_> {
            of_layout("a", layout, 1 << 40).decoded.values().into_iter().map(|(name, _)| name).collect()
        };
        let plain = names("time:31@1s worker:20 sequence:12 epoch:2024-01-01");
        assert_eq!(plain, ["id", "layout", "timestamp", "unix_ms", "utc", "worker", "sequence", "binary"]);
        assert!(
            names("time:31@1s generation:2 worker:18 sequence:12 epoch:2024-01-01").contains(&"generation")
        );
    }

    /// Goal: of two layouts that namespaces have, the one under which the id is plausible comes first, and
    /// the others stay in the list. Method: an id of layout `game`, which `twitter` reads as one of 2013.
    #[test]
    fn an_id_is_read_by_the_namespace_that_it_fits() {
        let game: Layout = "game".parse().unwrap();
        let timestamp = game.timestamp_at(NOW - 1000).unwrap();
        let parts = Parts { timestamp, worker: crate::WorkerId(3), ..Parts::default() };
        let id = game.compose(&parts).unwrap();
        let of_namespaces = || {
            let of = |name: &str, layout: &str| of_layout(name, layout, id.get());
            vec![of("default", "twitter"), of("users", "twitter"), of("players", "game")]
        };
        let inspection = Inspection::of_text(&id.to_string(), of_namespaces(), NOW).unwrap();
        assert_eq!(names(&inspection)[..2], ["game", "twitter"]);
        assert_eq!(inspection.likeliest().decoded.unix_ms(), Some(NOW - 1000));
        assert!(inspection.likeliest().likelihood > inspection.candidates()[1].likelihood, "{inspection:?}");
        assert_eq!(inspection.candidates()[1].namespaces, ["default", "users"]);
        let mut once = names(&inspection);
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), inspection.candidates().len(), "{inspection:?}");
        // A namespace's reading is not the first one if another system's layout is a million times likelier.
        let foreign = Inspection::of_text(&id.to_string(), of_namespaces()[..1].to_vec(), NOW).unwrap();
        assert_eq!(
            (names(&foreign)[0].as_str(), names(&foreign).last().map(String::as_str)),
            ("game", Some("twitter"))
        );
    }

    /// Goal: readings say how likely they are, and none is certain. Method: an id that two layouts read
    /// alike, one that is a minute old under one of many epochs, and a text of one scheme only.
    #[test]
    #[cfg_attr(not(feature = "schemes"), ignore = "reads UUIDs and ULIDs: run with --all-features")]
    fn likelihoods_add_up_to_less_than_one() {
        let fresh: Layout = "time:41 worker:10 sequence:12 epoch:2026-01-01".parse().unwrap();
        let fresh = fresh.first_id_at(Utc(NOW - 60_000)).unwrap().to_string();
        for (text, least, most) in [
            ("1541815603606036480", 0.9, 0.99),
            (&*fresh, 0.4, 0.75),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", 0.98, 0.99),
        ] {
            let inspection = Inspection::of_text(text, Vec::new(), NOW).unwrap();
            let of_first = inspection.likeliest().likelihood.unwrap();
            assert!((least..=most).contains(&of_first), "{text}: {of_first}");
            let all = inspection.candidates().iter().filter_map(|it| it.likelihood).sum::<f64>();
            assert!(all > 0.8 && all <= KNOWN + 1e-9, "{text}: {all} {inspection:?}");
            assert!(inspection.candidates().len() <= 40, "{inspection:?}");
        }
        let id = Id::new(7).unwrap();
        assert_eq!(Inspection::known(Decoded::Number(id), "decimal").likeliest().likelihood, None);
    }

    /// Goal: readings that are at least half as likely as the first are named, and a likely one is not
    /// doubted. Method: readings of given costs, and a tweet.
    #[test]
    fn a_near_tie_is_named() {
        let of_cost = |layout: &str, cost_bits: f64| Candidate {
            cost_bits: Some(cost_bits),
            ..of_layout("a", layout, 1_541_815_603_606_036_480)
        };
        let candidates = vec![of_cost("leaf", 50.0), of_cost("discord", 50.9), of_cost("cosid", 51.1)];
        let near = Inspection { likeliest: candidates[0].clone(), candidates, notes: Vec::new() };
        assert_eq!(near.near_ties(), ["discord"]);
        let texts = Value::Texts(vec!["discord".to_owned()]);
        assert!(near.values().contains(&("near_ties", texts)));
        let tweet = Inspection::of_text("1541815603606036480", Vec::new(), NOW).unwrap();
        assert!(tweet.near_ties().is_empty() && tweet.notes().is_empty(), "{tweet:?}");
    }

    /// Goal: an id that JavaScript rounded, and one that is hidden, are distinguished from others. Method: ids of
    /// which both are published, and numbers of 63 random bits.
    #[test]
    fn rounded_and_hidden_ids_have_a_note() {
        let notes = |id: &str| Inspection::of_text(id, Vec::new(), NOW).unwrap().notes().join("; ");
        for (exact, rounded) in [
            ("636507967185264641", "636507967185264600"),
            ("606631627273625612", "606631627273625600"),
            ("1143214899109277697", "1143214899109277700"),
        ] {
            assert!(!notes(exact).contains("rounded"), "{exact}: {}", notes(exact));
            assert!(
                notes(rounded).starts_with("may be rounded: a JavaScript number keeps 53 bits"),
                "{rounded}"
            );
        }
        for small in ["9007199254740993", "7", "72057594037927900"] {
            assert!(!notes(small).contains("rounded"), "{small}");
        }
        // Any layout would date these far ahead.
        for random in ["9100000000000000123", "9087654321098765432"] {
            assert!(notes(random).contains("may be hidden or random"), "{random}: {}", notes(random));
        }
        for known in ["1541815603606036480", "103270115826048975", "6893804295968394510", "7"] {
            assert_eq!(notes(known), "", "{known}");
        }
    }

    #[test]
    fn an_instant_that_is_not_plausible_comes_last() {
        let id = 7_102_577_116_159_582_209;
        let of_namespaces = vec![of_layout("default", "twitter", id)];
        let inspection = Inspection::of_text(&id.to_string(), of_namespaces, NOW).unwrap();
        let last = inspection.candidates().last().unwrap();
        assert!(inspection.candidates().len() > 1 && last.namespaces == ["default"], "{inspection:?}");
        assert_eq!(last.cost_bits, None);
    }

    #[test]
    fn a_small_number_is_a_number_where_namespaces_make_others_too() {
        let of_namespaces = vec![of_layout("default", "twitter", 7), of_layout("players", "game", 7)];
        let inspection = Inspection::of_text("7", of_namespaces.clone(), NOW).unwrap();
        assert_eq!(names(&inspection), ["number", "game", "twitter"]);
        let number = Decoded::Number(Id::new(7).unwrap());
        let order = Candidate::of_namespace("orders", number, "decimal", NOW);
        let inspection = Inspection::of_text("7", [of_namespaces, vec![order]].concat(), NOW).unwrap();
        assert_eq!(
            (names(&inspection).len(), &inspection.likeliest().namespaces[..]),
            (3, &["orders".to_owned()][..])
        );
    }

    #[test]
    fn what_is_no_id_is_none() {
        for text in ["", "-5", "x", "hello", "9223372036854775808"] {
            assert!(Inspection::of_text(text, Vec::new(), NOW).is_none(), "{text}");
        }
        let base62 = Inspection::of_digits("zz", &Digits::Base62, NOW).unwrap();
        assert_eq!((&*base62.likeliest().decoded.name(), base62.likeliest().form), ("number", "base62"));
        assert!(Inspection::of_digits("-", &Digits::Base62, NOW).is_err());
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_known_id_as_json() {
        let id = Id::new(1_541_815_603_606_036_480).unwrap();
        let known = Inspection::known(Decoded::by_layout(id, Layout::TWITTER).unwrap(), "decimal");
        assert_eq!(
            serde_json::to_string(&known).unwrap(),
            "{\"id\":\"1541815603606036480\",\
             \"layout\":\"time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z\",\
             \"timestamp\":367597485448,\"unix_ms\":1656432460105,\"utc\":\"2022-06-28T16:07:40.105Z\",\
             \"datacenter\":11,\"worker\":26,\"sequence\":0,\
             \"binary\":\"0 00101010110010110100001000111110110001000 01011 11010 000000000000\"}"
        );
    }
}
