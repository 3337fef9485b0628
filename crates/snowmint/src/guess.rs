//! Guesses, from a text or a number alone, which layouts and schemes it may be an id of. The guess under
//! which the id takes the fewest bits to describe is the most likely and comes first.

mod column;
mod figures;

use std::borrow::Cow;

pub use column::Column;

use crate::cell::cell;
use crate::codec::{Alphabet, ParseIdError, decimal, hex};
use crate::decoded::Decoded;
use crate::field::Field;
use crate::layout::{PRESETS, Preset};
#[cfg(feature = "schemes")]
use crate::scheme::{ForeignId, ForeignKind, Scheme, SchemeId};
use crate::{Id, Layout, Parts, utc};
use figures::{Habits, cost_of_instant, log2, rarity_bits};

/// The first of the years whose 1 January is a likely epoch: that of Twitter's Snowflake.
const FIRST_YEAR: u64 = 2010;
/// The presets whose bits are often used with another epoch.
const WITH_OWN_EPOCH: [&str; 4] = ["twitter", "leaf", "sonyflake", "yitter"];
/// How much rarer such a layout is than its preset, in bits.
const OWN_EPOCH_BITS: f64 = 8.0;
/// How rare the row ids of `CockroachDB` are, in bits.
#[cfg(feature = "schemes")]
const ROW_ID_BITS: f64 = 6.0;

/// One possible meaning of a text or a number.
///
/// # Ranking
///
/// [`cost_bits`](Self::cost_bits) is the length in bits of a description of the text under this guess: each
/// additional bit halves the likelihood. A right guess finds small numbers in its fields and a plausible age;
/// a wrong one finds noise, which costs every bit of its width.
///
/// | part | bits |
/// |---|---|
/// | text form | 0 decimal, 2 to 8 for others, more for a length or padding that the form rarely has |
/// | layout | 1 `twitter`, 2 `leaf` and `discord`, up to 11: how rare it is |
/// | | 8 more for the bits of `twitter`, `leaf`, `sonyflake` or `yitter` with another epoch: 1970-01-01, or 1 January of 2010 to this year |
/// | timestamp | -log2 of how likely its tick is: |
/// | | half of all inspected ids are at most 30 days old, with as many of 1 to 2 minutes as of 1 to 2 days |
/// | | the others were made since the epoch (or 2006), more each year |
/// | | one of 64 clocks is ahead, by up to a year |
/// | sequence of n bits, value v | `2 * log2(v + 1) + 1`, at most n + 1; n where the layout scatters its values |
/// | worker, datacenter | the same, but 2 for the values 0 and 1 |
/// | layouts that only split the node in another way, as `twitter` and `leaf` | the first of [`PRESETS`] is at least as likely as the others |
/// | fields of Twitter, Discord, `TikTok`, `LinkedIn`, TSID | what their published ids show: of Twitter, 2 datacenters made nearly all |
/// | scheme | one for each random bit, and the timestamp as above |
/// | plain number v, of a segment or a database | `2 * log2(v + 1) + 5` |
///
/// An instant before 2006 or more than a year from now rules a layout out. An id whose text tells its kind,
/// such as a UUID or a KSUID, may have a wrong clock: that costs 10 bits and all bits of its timestamp. The
/// figures are estimates: they rank guesses but prove nothing.
#[derive(Clone, Copy, Debug)]
pub struct Guess {
    form: &'static str,
    what: Decoded,
    /// The part of the cost that does not depend on the id: of the form and the layout.
    known_bits: f64,
    /// The rest: of the fields and the instant.
    id_bits: f64,
    cost_bits: f64,
}

/// The kind of a guess: ids of one column mostly share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Model {
    Layout(&'static str, Layout),
    #[cfg(feature = "schemes")]
    Scheme(&'static str),
    Number(&'static str),
}

impl Guess {
    const fn new(form: &'static str, what: Decoded, known_bits: f64, id_bits: f64) -> Self {
        Self { form, what, known_bits, id_bits, cost_bits: known_bits + id_bits }
    }

    /// Returns the name of the preset or scheme, the text of a layout without a name, or `number` for a
    /// number without fields.
    pub fn name(&self) -> Cow<'static, str> {
        self.decoded().name()
    }

    /// Returns the text form it was read as, such as `decimal` or `base62`; for a scheme's own form, the
    /// scheme's name.
    pub const fn form(&self) -> &'static str {
        self.form
    }

    /// Returns the number of bits that describe the text under this guess.
    pub const fn cost_bits(&self) -> f64 {
        self.cost_bits
    }

    /// Returns the layout, and the id's parts under it.
    pub const fn layout(&self) -> Option<(Layout, Parts)> {
        match self.what {
            Decoded::Snowflake { layout, parts, .. } => Some((layout, parts)),
            #[cfg(feature = "schemes")]
            Decoded::Scheme(_) | Decoded::Foreign(_) => None,
            Decoded::Number(_) => None,
        }
    }

    /// Returns the id; `None` for an id that is not one of 64 bits.
    pub const fn id(&self) -> Option<Id> {
        match self.what {
            Decoded::Snowflake { id, .. } | Decoded::Number(id) => Some(id),
            #[cfg(feature = "schemes")]
            Decoded::Scheme(_) | Decoded::Foreign(_) => None,
        }
    }

    /// Returns the id of a scheme.
    #[cfg(feature = "schemes")]
    pub const fn scheme_id(&self) -> Option<SchemeId> {
        match self.what {
            Decoded::Scheme(id) => Some(id),
            Decoded::Snowflake { .. } | Decoded::Foreign(_) | Decoded::Number(_) => None,
        }
    }

    /// Returns the text decoded under this guess.
    pub const fn decoded(&self) -> Decoded {
        self.what
    }

    /// Returns when the id was made, in unix milliseconds; `None` if it has no timestamp.
    pub const fn unix_ms(&self) -> Option<u64> {
        self.what.unix_ms()
    }

    /// Returns whether both have layouts with a name, or both without, that differ only in the split of the
    /// node.
    fn is_twin_of(&self, other: &Self) -> bool {
        let (Some((one, _)), Some((two, _))) = (self.layout(), other.layout()) else { return false };
        let bits = |layout: &Layout, field| (layout.shift(field), layout.width(field));
        let has_name = |layout| PRESETS.iter().any(|preset| preset.layout == layout);
        one.epoch_unix_ms() == two.epoch_unix_ms()
            && one.tick() == two.tick()
            && [Field::Timestamp, Field::Generation, Field::Sequence]
                .iter()
                .all(|field| bits(&one, *field) == bits(&two, *field))
            && self.form == other.form
            && has_name(one) == has_name(two)
    }

    const fn model(&self) -> Model {
        match self.what {
            Decoded::Snowflake { layout, .. } => Model::Layout(self.form, layout),
            #[cfg(feature = "schemes")]
            Decoded::Scheme(id) => Model::Scheme(id.scheme().name()),
            #[cfg(feature = "schemes")]
            Decoded::Foreign(id) => Model::Scheme(id.kind().name()),
            Decoded::Number(_) => Model::Number(self.form),
        }
    }
}

/// Lists what a text may be, most likely first: every text form, preset, likely epoch and (with feature
/// `schemes`) scheme.
///
/// `now_unix_ms` is the current time. A text that is no id is read as a cell of a spreadsheet, without quotes
/// and thousands separators. The list is empty if nothing fits. Guesses of equal cost keep the order of the
/// presets. The function allocates, reads no clock, and takes tens of microseconds.
///
/// # Examples
///
/// ```
/// use snowmint::guess;
/// let now = 1_785_542_400_000; // 2026-08-01
/// let guesses = guess::of_text("1541815603606036480", now);
/// assert_eq!((&*guesses[0].name(), guesses[0].form()), ("twitter", "decimal"));
/// assert_eq!(guesses[0].unix_ms(), Some(1_656_432_460_105));
/// assert!(guess::of_text("not an id", now).is_empty());
/// # #[cfg(feature = "schemes")]
/// assert_eq!(guess::of_text("01ARZ3NDEKTSV4RRFFQ69G5FAV", now)[0].name(), "ulid");
/// ```
pub fn of_text(text: &str, now_unix_ms: u64) -> Vec<Guess> {
    let text = text.trim();
    let guesses = of_exactly(text, now_unix_ms);
    match cell(text) {
        bare if guesses.is_empty() && bare != text => of_exactly(&bare, now_unix_ms),
        _ => guesses,
    }
}

fn of_exactly(text: &str, now_unix_ms: u64) -> Vec<Guess> {
    let mut guesses = Vec::new();
    for form in FORMS {
        if let (Some(form_bits), Ok(id)) = ((form.cost_bits)(text), (form.decode)(text)) {
            add_numbers(&mut guesses, id, form.name, form_bits, now_unix_ms);
        }
    }
    // A decimal number is not read in another base: `1000` is not binary 8.
    let is_number = |guess: &Guess| matches!(guess.what, Decoded::Number(_));
    if guesses.iter().any(|guess| is_number(guess) && guess.form == "decimal") {
        guesses.retain(|guess| !is_number(guess) || guess.form == "decimal");
    }
    #[cfg(feature = "schemes")]
    add_schemes(&mut guesses, text, now_unix_ms);
    rank(&mut guesses);
    guesses
}

/// Lists what a number may be, most likely first: every preset and likely epoch.
///
/// Equivalent to [`of_text`] with the decimal text.
pub fn of_id(id: Id, now_unix_ms: u64) -> Vec<Guess> {
    let mut guesses = Vec::new();
    add_numbers(&mut guesses, id, "decimal", 0.0, now_unix_ms);
    rank(&mut guesses);
    guesses
}

/// Sorts guesses, the most likely first. Those of equal cost keep their order.
fn rank(guesses: &mut [Guess]) {
    for first in 0..guesses.len() {
        share_among_twins(&mut guesses[first..]);
    }
    guesses.sort_by(|one, other| one.cost_bits.total_cmp(&other.cost_bits));
}

/// Makes the first guess as likely as each of its twins that was likelier; together they stay as likely as
/// before.
///
/// Twins read the same instant and sequence, and only split the number of the node in another way, as `leaf`
/// does with the bits of `twitter`. Small numbers fit any split, so they say nothing about it.
#[expect(clippy::cast_precision_loss, reason = "a few guesses")]
fn share_among_twins(guesses: &mut [Guess]) {
    let Some((first, others)) = guesses.split_first_mut() else { return };
    let likelier = |other: &&mut Guess| other.cost_bits < first.cost_bits && other.is_twin_of(first);
    let mut twins: Vec<_> = others.iter_mut().filter(likelier).collect();
    if twins.is_empty() {
        return;
    }
    twins.push(first);
    let likelihoods = twins.iter().map(|twin| (-twin.cost_bits).exp2());
    let each_bits = (twins.len() as f64).log2() - likelihoods.sum::<f64>().log2();
    for twin in twins {
        twin.cost_bits = each_bits;
    }
}

/// A way to read a text as a number.
struct GuessForm {
    name: &'static str,
    /// How unusual the text is in this form, in bits; `None` if the form never writes it.
    cost_bits: fn(&str) -> Option<f64>,
    decode: fn(&str) -> Result<Id, ParseIdError>,
}

impl GuessForm {
    const fn new(
        name: &'static str,
        cost_bits: fn(&str) -> Option<f64>,
        decode: fn(&str) -> Result<Id, ParseIdError>,
    ) -> Self {
        Self { name, cost_bits, decode }
    }
}

const FORMS: &[GuessForm] = &[
    GuessForm::new("decimal", |_| Some(0.0), decimal::decode),
    GuessForm::new("hex", cost_of_hex, hex::decode),
    GuessForm::new("base32", cost_of_crockford, |text| Alphabet::CROCKFORD32.decode(text)),
    GuessForm::new("base62", |text| Some(3.0 + unlike(text, 11, '0')), |text| Alphabet::BASE62.decode(text)),
    GuessForm::new("base36", cost_of_base36, |text| Alphabet::BASE36_LOWER.decode(text)),
    GuessForm::new(
        "base58",
        |text| Some(5.0 + unlike(text, 11, '1')),
        |text| Alphabet::BASE58_BITCOIN.decode(text),
    ),
    GuessForm::new(
        "base58_flickr",
        |text| Some(6.0 + unlike(text, 11, '1')),
        |text| Alphabet::BASE58_FLICKR.decode(text),
    ),
    GuessForm::new(
        "zbase32",
        |text| Some(7.0 + unlike(text, 13, 'y')),
        |text| Alphabet::ZBASE32.decode(text),
    ),
    GuessForm::new("base64_of_decimal", |_| Some(2.0), decimal::decode_base64),
    GuessForm::new("binary", |text| Some(2.0 + unlike(text, 63, '0')), |text| Alphabet::BINARY.decode(text)),
];

/// Returns the cost of a text that a form rarely writes. Recent ids have up to two digits fewer than the
/// largest id, in binary up to a dozen; padded texts are the exception.
fn unlike(text: &str, len: usize, zero: char) -> f64 {
    let short = if text.len() + 1 + len / 5 < len { 8.0 } else { 0.0 };
    short + if text.starts_with(zero) { 4.0 } else { 0.0 }
}

/// Returns whether all letters have one case, as in forms that use letters of one case only.
fn has_one_case(text: &str) -> bool {
    !(text.contains(|c: char| c.is_ascii_lowercase()) && text.contains(|c: char| c.is_ascii_uppercase()))
}

fn cost_of_hex(text: &str) -> Option<f64> {
    let digits = text.strip_prefix("0x");
    let bits = match (digits, text.len()) {
        (Some(_), _) => 0.0,
        (None, 16) => 2.0,
        (None, _) => 8.0,
    };
    has_one_case(digits.unwrap_or(text)).then_some(bits)
}

fn cost_of_crockford(text: &str) -> Option<f64> {
    (text.len() == Alphabet::CROCKFORD32.len() && has_one_case(text)).then_some(3.0)
}

fn cost_of_base36(text: &str) -> Option<f64> {
    has_one_case(text).then(|| 4.0 + unlike(text, 13, '0'))
}

/// Returns the number of bits that describe a decoded text of a kind that is known to be in use; `None` if
/// its instant is not plausible.
pub(crate) fn cost_of(decoded: &Decoded, now_unix_ms: u64) -> Option<f64> {
    match decoded {
        Decoded::Snowflake { layout, parts, .. } => {
            let preset = PRESETS.iter().find(|preset| preset.layout == *layout);
            // A namespace has the layout of a service, and seldom its workers.
            let habits = preset.map_or(Habits::Plain, |preset| Habits::of(preset.name).with_own_epoch());
            cost_under(layout, habits, parts, now_unix_ms)
        }
        #[cfg(feature = "schemes")]
        Decoded::Scheme(id) => Some(cost_of_scheme(id, now_unix_ms)),
        #[cfg(feature = "schemes")]
        Decoded::Foreign(id) => cost_of_foreign(id, now_unix_ms),
        Decoded::Number(id) => Some(2.0 * log2(id.get())),
    }
}

fn add_numbers(guesses: &mut Vec<Guess>, id: Id, form: &'static str, form_bits: f64, now_unix_ms: u64) {
    let mut add = |habits: Habits, layout: Layout, known_bits: f64| {
        let Ok(parts) = layout.split(id) else { return };
        if let Some(id_bits) = cost_under(&layout, habits, &parts, now_unix_ms) {
            let what = Decoded::Snowflake { layout, parts, id };
            guesses.push(Guess::new(form, what, known_bits, id_bits));
        }
    };
    for Preset { name, layout, .. } in PRESETS {
        let (habits, known_bits) = (Habits::of(name), form_bits + rarity_bits(name));
        add(habits, *layout, known_bits);
        if WITH_OWN_EPOCH.contains(name) {
            for epoch in round_epochs(now_unix_ms) {
                let layout = layout.with_epoch(epoch);
                if PRESETS.iter().all(|named| named.layout != layout) {
                    add(habits.with_own_epoch(), layout, known_bits + OWN_EPOCH_BITS);
                }
            }
        }
    }
    #[cfg(feature = "schemes")]
    if form == decimal_form() {
        add_foreign(guesses, ForeignId::of_row_id(id), form, ROW_ID_BITS, now_unix_ms);
    }
    guesses.push(Guess::new(form, Decoded::Number(id), form_bits + 5.0, 2.0 * log2(id.get())));
}

/// Returns epochs that people choose: 1970, and 1 January (UTC) of each year from [`FIRST_YEAR`] to the
/// current one.
fn round_epochs(now_unix_ms: u64) -> impl Iterator<Item = u64> {
    let this_year = utc::year(now_unix_ms.min(utc::MAX_UNIX_MS)).min(FIRST_YEAR + 89);
    std::iter::once(0).chain((FIRST_YEAR..=this_year).map(utc::start_of_year))
}

/// Returns the number of bits that describe an id's fields; `None` if its instant is not plausible.
#[expect(clippy::cast_precision_loss, reason = "a ranking needs a few digits")]
fn cost_under(layout: &Layout, habits: Habits, parts: &Parts, now_unix_ms: u64) -> Option<f64> {
    let instant = layout.unix_ms(parts.timestamp);
    let bits = cost_of_instant(instant, layout.epoch_unix_ms(), layout.tick_ms() as f64, now_unix_ms)?;
    Some(bits + habits.cost_of_fields(layout, parts))
}

#[cfg(feature = "schemes")]
fn add_schemes(guesses: &mut Vec<Guess>, text: &str, now_unix_ms: u64) {
    for scheme in Scheme::ALL {
        let Ok(id) = scheme.parse(text) else { continue };
        let id_bits = cost_of_scheme(&id, now_unix_ms);
        guesses.push(Guess::new(scheme.name(), Decoded::Scheme(id), 0.0, id_bits));
    }
    if let Some(id) = ForeignId::of_text(text) {
        add_foreign(guesses, id, id.kind().name(), 0.0, now_unix_ms);
    }
}

#[cfg(feature = "schemes")]
fn add_foreign(
    guesses: &mut Vec<Guess>,
    id: ForeignId,
    form: &'static str,
    known_bits: f64,
    now_unix_ms: u64,
) {
    if let Some(id_bits) = cost_of_foreign(&id, now_unix_ms) {
        let what = Decoded::Foreign(id);
        guesses.push(Guess::new(form, what, known_bits, id_bits));
    }
}

#[cfg(feature = "schemes")]
fn cost_of_scheme(id: &SchemeId, now_unix_ms: u64) -> f64 {
    let tick_ms = if id.scheme() == Scheme::ObjectId { 1000.0 } else { 1.0 };
    let instant_bits =
        id.unix_ms().map_or(0.0, |instant| figures::cost_of_any_instant(instant, tick_ms, now_unix_ms));
    let random_bits: u32 = id.fields().iter().filter(|field| !field.is_number).map(|field| field.width).sum();
    instant_bits + f64::from(random_bits)
}

/// Returns the number of bits that describe an id of another system; `None` if its text tells its kind by no
/// more than a plausible instant, and it has none.
#[cfg(feature = "schemes")]
#[expect(clippy::cast_precision_loss, reason = "a ranking needs a few digits")]
fn cost_of_foreign(id: &ForeignId, now_unix_ms: u64) -> Option<f64> {
    let tick_ms = id.kind().tick_ns() as f64 / 1e6;
    let instant = |unix_ms: u64| figures::cost_of_any_instant(unix_ms, tick_ms, now_unix_ms);
    let fields = match id.kind() {
        ForeignKind::UuidNil | ForeignKind::UuidMax => return Some(1.0),
        ForeignKind::Tid => {
            let instant = cost_of_instant(id.unix_ms()?, 0, tick_ms, now_unix_ms)?;
            return Some(instant + 10.0);
        }
        ForeignKind::Cockroach => {
            let node = id.values().last().map_or(0, |(_, node)| u64::try_from(node).unwrap_or_default());
            let instant = cost_of_instant(id.unix_ms()?, 0, tick_ms, now_unix_ms)?;
            return Some(instant + figures::numbered(node, 15));
        }
        // The time is spread over fields, which are not random.
        ForeignKind::Uuid1 | ForeignKind::Uuid6 => 14.0 + 48.0,
        ForeignKind::Ksuid => 128.0,
        ForeignKind::Xid => 24.0 + 16.0 + 24.0,
        ForeignKind::TypeId if id.unix_ms().is_some() => 74.0,
        _ => 122.0,
    };
    Some(fields + id.unix_ms().map_or(0.0, instant))
}

/// The name of the decimal form.
#[cfg(feature = "schemes")]
const fn decimal_form() -> &'static str {
    FORMS[0].name
}

#[cfg(test)]
mod tests {
    //! Goal: real ids are recognised. Method: the ids of `vectors.json` whose layout is a preset, in every
    //! text form that can carry them. `encode-instagram` and ferroid's base32 test are excluded: nobody
    //! issued those ids, whose fields are full.

    use super::figures::{EARLIEST_UNIX_MS, YEAR_MS};
    use super::*;

    const NOW: u64 = 1_785_542_400_000;

    /// Returns the preset whose layout a case has; `None` if no preset has it, or if nobody issued the id.
    fn preset_of(case: &serde_json::Value) -> Option<&'static str> {
        if case["id"] == "48166431957314363" {
            return None;
        }
        let expected = &case["expected"];
        match case["kind"].as_str()? {
            "decode-snowflake" | "encode-snowflake" => {
                let fields = expected["layout"].as_str()?;
                match expected["epoch_unix_ms"].as_u64()? {
                    1_420_070_400_000 => Some("discord"),
                    1_288_834_974_657 if fields.contains("datacenter") => Some("twitter"),
                    1_288_834_974_657 => Some("leaf"),
                    _ => None,
                }
            }
            "decode-sonyflake-v1" => Some("sonyflake"),
            "decode-yitter" if expected["seq_bits"].is_null() => Some("yitter"),
            "decode-mastodon" => Some("mastodon"),
            _ => None,
        }
    }

    /// Returns how many other instants come before a reading.
    fn instants_before(text: &str, now: u64, name: &str, form: &str) -> Option<usize> {
        let guesses = of_text(text, now);
        let found = guesses.iter().position(|guess| guess.name() == name && guess.form() == form)?;
        let mut before: Vec<_> = guesses[..found].iter().map(Guess::unix_ms).collect();
        before.sort_unstable();
        before.dedup();
        before.retain(|unix_ms| *unix_ms != guesses[found].unix_ms());
        Some(before.len())
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes of JSON and logarithms")]
    fn the_layout_of_each_real_id_is_among_the_first_four() {
        let all: Vec<serde_json::Value> =
            serde_json::from_str(include_str!("../tests/vectors.json")).unwrap();
        let cases: Vec<_> =
            all.iter().filter_map(|case| Some((case["id"].as_str()?, preset_of(case)?))).collect();
        assert_eq!(cases.len(), 19, "a case was added or lost");
        for (text, name) in cases {
            let id: Id = text.parse().unwrap();
            // Yitter's README shows what its ids will be after ten years, in 2030.
            let now = if text == "1292658282840139" { 1_900_000_000_000 } else { NOW };
            let found = instants_before(text, now, name, "decimal");
            // Process 4 of Discord and increment 0 are worker 4 of every layout with 10 bits of worker.
            let most = if text == "103735883630395392" { 8 } else { 4 };
            assert!(found.is_some_and(|rank| rank < most), "{text} {name}: {:#?}", of_text(text, now));
            for (text, form) in [
                (hex::encode(id).to_string(), "hex"),
                (Alphabet::CROCKFORD32.encode(id).to_string(), "base32"),
                (Alphabet::BASE62.encode(id).to_string(), "base62"),
                (decimal::encode_base64(id).to_string(), "base64_of_decimal"),
                (Alphabet::BINARY.encode(id).to_string(), "binary"),
            ] {
                let found = instants_before(&text, now, name, form);
                assert!(
                    found.is_some_and(|rank| rank < most + 2),
                    "{text} {name} {form} {:#?}",
                    of_text(&text, now)
                );
            }
        }
    }

    /// Goal: a short decimal number is never read in another base. Method: every number up to 20,000, and
    /// every one of up to 8 digits that consists of binary digits. Longer ones may be base62 ids.
    #[test]
    #[cfg_attr(miri, ignore = "minutes of logarithms")]
    fn a_plain_number_is_read_as_decimal() {
        let binary = (0..1 << 8_u32).map(|bits| format!("{bits:b}"));
        for text in (0..20_000_u32).map(|number| number.to_string()).chain(binary) {
            let guesses = of_text(&text, NOW);
            let first = &guesses[0];
            assert_eq!((&*first.name(), first.form()), ("number", "decimal"), "{text}: {guesses:?}");
            assert_eq!(first.id().map(Id::get), text.parse().ok());
        }
    }

    #[test]
    fn ids_that_are_made_today_come_first_under_their_own_layout() {
        // These differ from `twitter` and from each other only in the epoch: they are listed next to it.
        let bits_of_twitter = ["leaf", "cosid", "shardingsphere", "tsid", "icicle", "mesh"];
        for preset in PRESETS {
            let Some(timestamp) = preset.layout.timestamp_at(NOW - 12_345_678) else { continue };
            let mut parts = Parts { timestamp, worker: crate::WorkerId(3), ..Parts::default() };
            match preset.name {
                "sonyflake" | "sonyflake2" => parts.worker.0 = 61_469,
                "pod-ip" => parts.worker.0 = 15_808_307,
                "instagram" | "ferroid-instagram" => parts.sequence.0 = 905,
                "scru64" => (parts.worker.0, parts.sequence.0) = (0, 2_777_946),
                "mastodon" => (parts.worker.0, parts.sequence.0) = (0, 40_911),
                "linkedin" => (parts.worker.0, parts.sequence.0) = (0, 25 << 12),
                "tiktok" => (parts.worker.0, parts.sequence.0) = (14, 0x74_420d),
                "clickhouse" => parts.worker.0 = 605,
                _ => {}
            }
            let guesses = of_id(preset.layout.compose(&parts).unwrap(), NOW);
            let rank = guesses.iter().position(|guess| guess.name() == preset.name).unwrap();
            let before = guesses[..rank].iter().map(Guess::name);
            let of_other_bits = before.clone().filter(|name| {
                !bits_of_twitter.contains(&preset.name)
                    || !(["twitter", "discord"].contains(&&**name) || bits_of_twitter.contains(&&**name))
            });
            assert!(of_other_bits.count() < 3, "{} after {:?}", preset.name, before.collect::<Vec<_>>());
        }
    }

    /// Returns when an id of `vectors.json` was made, in unix milliseconds, according to its source.
    fn made_at(case: &serde_json::Value) -> Option<u64> {
        let kind = case["kind"].as_str()?;
        if kind.contains("flake128") || kind == "exhaustion" || kind.starts_with("must") {
            return None;
        }
        let expected = &case["expected"];
        let number = |name: &str| expected[name].as_u64();
        let since = |epoch: &str| Some(number(epoch)? + number("delta_ms")?);
        let named = ["unix_ms", "unix_ms_with_default_epoch_2014_09_01", "tsid_unix_ms", "unix_ts_ms"];
        let named = named.into_iter().find_map(number);
        let scru64 = number("timestamp_256ms").map(|ticks| ticks * 256);
        let made = named
            .or_else(|| since("base_time_unix_ms"))
            .or_else(|| since("pl_pgsql_epoch_unix_ms"))
            .or_else(|| expected["utc"].as_str().and_then(|text| utc::parse(text).ok()))
            .or(scru64)
            .or_else(|| number("timestamp"))?;
        (EARLIEST_UNIX_MS..=1_900_000_000_000).contains(&made).then_some(made)
    }

    const TODAY: u64 = 1_795_334_400_000; // 2026-11-22T08:00:00Z
    const HOUR: u64 = 3_600_000;
    const DAY: u64 = 24 * HOUR;

    /// Returns whether the first guess for a text has the right instant, to the tick.
    fn is_first_right(text: &str, made: u64, now: u64) -> bool {
        let first = of_text(text, now).first().and_then(Guess::unix_ms);
        first.is_some_and(|first| first <= made && made - first < 1000)
    }

    /// Goal: real ids are read correctly soon after they were made, even if only the epoch distinguishes them
    /// from others; years later, at least as often as by chance. Method: all ids of `vectors.json` that state
    /// when they were made, inspected an hour later and today.
    #[test]
    #[cfg_attr(miri, ignore = "minutes of JSON and logarithms")]
    #[cfg_attr(not(feature = "schemes"), ignore = "reads UUIDs and ULIDs: run with --all-features")]
    fn real_ids_are_read_right_soon_after_they_were_made() {
        let all: Vec<serde_json::Value> =
            serde_json::from_str(include_str!("../tests/vectors.json")).unwrap();
        let cases: Vec<_> =
            all.iter().filter_map(|case| Some((case["id"].as_str()?, made_at(case)?))).collect();
        let wrong_at = |now: fn(u64) -> u64| -> Vec<&str> {
            let wrong = |(text, made): &&(&str, u64)| !is_first_right(text, *made, now(*made));
            cases.iter().filter(wrong).map(|(text, _)| *text).collect()
        };
        assert_eq!(cases.len(), 39, "a case was added or lost");
        // A port of Sonyflake with ticks of 1 ms and Yitter with a sequence of 12 bits, which are not
        // presets; two of SCRU64, whose low bits are random and cost their whole width.
        let unknown = ["1211144891006978", "15021931987734533", "0u375nxqh5cq", "0u375ny0glr0"];
        assert_eq!(wrong_at(|made| made + HOUR), unknown);
        // Years later, an old id of a young epoch and a young id of an old epoch can be the same number.
        let wrong_today = wrong_at(|made| TODAY.max(made));
        assert!(wrong_today.len() <= 21, "{wrong_today:?}");
    }

    /// The layouts of `twitter`, `leaf` and `sonyflake` with an epoch of 1 January of each year.
    fn with_round_epochs() -> impl Iterator<Item = Layout> {
        let bits = [
            "time:41 datacenter:5 worker:5 sequence:12",
            "time:41 worker:10 sequence:12",
            "time:39@10ms sequence:8 worker:16",
        ];
        (2010..=2026)
            .flat_map(move |year| bits.map(|bits| format!("{bits} epoch:{year}-01-01").parse().unwrap()))
    }

    /// Returns the first id of a worker in the tick that contains an instant.
    fn id_at(layout: &Layout, made: u64) -> Option<Id> {
        let worker = match layout.width(Field::Worker) {
            0 => 0,
            16 => 61_469,
            _ => 3,
        };
        let parts = Parts {
            timestamp: layout.timestamp_at(made)?,
            worker: crate::WorkerId(worker),
            ..Parts::default()
        };
        layout.compose(&parts).ok()
    }

    /// Goal: an id that is minutes old under a known epoch is read by that epoch, not as an old one of
    /// `twitter`; older ids are increasingly ambiguous. Method: ids of every preset and of every round epoch.
    #[test]
    #[cfg_attr(miri, ignore = "minutes of logarithms")]
    fn ids_that_are_minutes_old_are_read_by_their_epoch() {
        let presets = || PRESETS.iter().map(|preset| preset.layout);
        let wrong_at = |layouts: &mut dyn Iterator<Item = Layout>, age: u64| -> Vec<String> {
            let made = TODAY - age;
            let wrong = |layout: &Layout| {
                id_at(layout, made).is_some_and(|id| !is_first_right(&id.to_string(), made, TODAY))
            };
            layouts.filter(wrong).map(|layout| layout.to_string()).collect()
        };
        let five_minutes = 300_123;
        assert_eq!(wrong_at(&mut presets(), five_minutes), [""; 0]);
        assert_eq!(wrong_at(&mut with_round_epochs(), five_minutes), [""; 0]);
        let (presets, round) =
            (wrong_at(&mut presets(), DAY + 123), wrong_at(&mut with_round_epochs(), DAY + 123));
        assert!(presets.len() <= 5 && round.len() <= 13, "{presets:?} {round:?}");
    }

    #[test]
    fn epochs_of_years_to_come_are_not_guessed() {
        let years = |now: &str| {
            let epochs = round_epochs(utc::parse(now).unwrap()).skip(1);
            epochs.map(|epoch| utc::Utc(epoch).to_string()[..10].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(years("2011-12-31T23:59:59.999Z"), ["2010-01-01", "2011-01-01"]);
        assert_eq!(years("2026-01-01").last().unwrap(), "2026-01-01");
        assert_eq!(years("2009-12-31"), [""; 0]);
    }

    /// Goal: no layout takes the ids of one that is named before it and differs only in the split of the node:
    /// ids of the default layout are those of `twitter`, and `leaf` is as likely. The rest of the ranking stays.
    /// Method: ids of every worker, alone and as a column, and ids whose datacenter is one of Twitter's.
    #[test]
    fn twins_share_their_likelihood() {
        let id = |datacenter, worker, sequence| {
            let timestamp = Layout::TWITTER.timestamp_at(NOW - 1000).unwrap();
            let (datacenter, worker) = (crate::DatacenterId(datacenter), crate::WorkerId(worker));
            let parts = Parts {
                timestamp,
                datacenter,
                worker,
                sequence: crate::field::Sequence(sequence),
                ..Parts::default()
            };
            Layout::TWITTER.compose(&parts).unwrap()
        };
        let first_two = |guesses: &[Guess]| {
            let [one, other] = [&guesses[0], &guesses[1]];
            assert_eq!((&*one.name(), &*other.name()), ("twitter", "leaf"), "{guesses:?}");
            other.cost_bits() - one.cost_bits()
        };
        for worker in 0..32 {
            let guesses = of_id(id(0, worker, 7), NOW);
            let lead = first_two(&guesses);
            assert!(lead >= 0.0 && (worker > 10 || lead == 0.0), "{worker}: {lead}");
            let each = |guess: &Guess| (-guess.known_bits - guess.id_bits).exp2();
            let (before, after) =
                (each(&guesses[0]) + each(&guesses[1]), 2.0 * (-guesses[0].cost_bits()).exp2());
            assert!(lead > 0.0 || (before / after - 1.0).abs() < 1e-9, "{worker}: {before} {after}");
        }
        let of_column: Vec<_> = (0..8).map(|sequence| of_id(id(0, 9, sequence), NOW)).collect();
        let mut column = Column::default();
        for guesses in &of_column {
            column.add(guesses);
        }
        for guesses in of_column {
            assert!(first_two(&column.judge(guesses)) == 0.0);
        }
        assert!(first_two(&of_id(id(10, 3, 0), NOW)) > 5.0);
        // The same for the bits under another epoch; `tsid` has a name, and the bits of `twitter` then none.
        let with_epoch = |epoch: u64| {
            let layout = Layout::TWITTER.with_epoch(epoch);
            let parts = Parts { timestamp: layout.timestamp_at(NOW - 1000).unwrap(), ..Parts::default() };
            of_id(layout.compose(&parts).unwrap(), NOW)
        };
        let guesses = with_epoch(utc::start_of_year(2022));
        assert_eq!(
            guesses[0].layout().map(|(layout, _)| layout),
            Some(Layout::TWITTER.with_epoch(utc::start_of_year(2022)))
        );
        assert_eq!(with_epoch(utc::start_of_year(2020))[0].name(), "tsid");
    }

    #[test]
    fn a_small_number_is_a_number() {
        for text in ["0", "7", "13587", "4000000"] {
            assert_eq!(of_text(text, NOW)[0].name(), "number", "{text}");
        }
        assert!(
            of_text("72157623227190423", NOW).iter().any(|guess| guess.name() == "number"),
            "Flickr's ticket"
        );
    }

    #[test]
    fn implausible_instants_and_foreign_texts_are_ruled_out() {
        for guess in of_text("7102577116159582209", NOW) {
            assert!(guess.unix_ms().is_none_or(|ms| (EARLIEST_UNIX_MS..=NOW + YEAR_MS).contains(&ms)));
            assert_ne!(guess.name(), "twitter", "its instant lies in 2064");
        }
        for text in ["", " ", "-5", "9223372036854775808", "hello, world", "é"] {
            assert!(of_text(text, NOW).is_empty(), "{text}");
        }
        // Before most epochs there is little to guess, and nothing overflows.
        assert!(!of_text("1541815603606036480", 0).is_empty());
        assert!(!of_text("1541815603606036480", u64::MAX).is_empty());
    }

    #[cfg(feature = "schemes")]
    #[test]
    fn schemes_are_known_by_their_texts() {
        for (text, name, unix_ms) in [
            ("507f1f77bcf86cd799439011", "objectid", Some(1_350_508_407_000)),
            ("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "uuid7", Some(1_645_557_742_000)),
            ("017f22e279b07cc398c4dc0c0c07398f", "uuid7", Some(1_645_557_742_000)),
            ("919108f7-52d1-4320-9bac-f847db4148a8", "uuid4", None),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "ulid", Some(1_469_922_850_259)),
        ] {
            let guesses = of_text(text, NOW);
            assert_eq!((guesses.len(), &*guesses[0].name(), guesses[0].unix_ms()), (1, name, unix_ms));
            assert_eq!(
                guesses[0].scheme_id().map(|id| id.scheme().parse(text)),
                guesses[0].scheme_id().map(Ok)
            );
        }
    }

    /// Goal: an id whose text tells its kind is read although its clock was wrong; that costs more than any
    /// other id of its kind.
    #[cfg(feature = "schemes")]
    #[test]
    fn a_wrong_clock_costs_but_rules_no_scheme_out() {
        for (right, wrong) in [
            ("017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "01b8d59f-5800-7abc-8def-0123456789ab"),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "0000XSNJG0MQJHBF4QX1EFD6Y3"),
            ("507f1f77bcf86cd799439011", "007f1f77bcf86cd799439011"),
            ("0ujtsYcgvSTl8PAuAdqWYSMnLOv", "aWgEPTl1tmebfsQzFP4bxwgy80V"),
        ] {
            let cost = |text: &str| {
                let guesses = of_text(text, NOW);
                assert_eq!(guesses.len(), 1, "{text}: {guesses:?}");
                guesses[0].cost_bits()
            };
            assert!(cost(wrong) > cost(right) + 5.0, "{wrong}");
            assert_eq!(of_text(wrong, NOW)[0].name(), of_text(right, NOW)[0].name());
        }
    }
}
