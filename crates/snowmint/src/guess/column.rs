//! Several ids of one column, judged together: most columns hold ids of one kind, so what one id says of a
//! kind counts for all.

use std::collections::HashMap;

use super::{Guess, Model, rank};

/// How much rarer an id is that is not of its column's kind, in bits.
const STRAY_BITS: f64 = 10.0;

/// What the ids of a column say of each kind of id, taken together.
///
/// Each id is added once, and can then be judged: the other ids are evidence for its kind. An id that none of
/// the kinds of the others explains keeps its own reading.
///
/// # Examples
///
/// ```
/// use snowmint::guess::{self, Column};
/// let now = 1_785_542_400_000; // 2026-08-01
/// let ids = ["867793854505943041", "943865945699532811", "1053092877443551252"];
/// let mut column = Column::default();
/// for id in ids {
///     column.add(&guess::of_text(id, now));
/// }
/// let first = column.judge(guess::of_text(ids[0], now))[0];
/// assert_eq!((&*first.name(), first.unix_ms()), ("discord", Some(1_626_968_577_744)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Column {
    models: HashMap<Model, Evidence>,
    /// What the ids cost if no kind explains them.
    strays: f64,
    ids: u64,
}

#[derive(Clone, Copy, Debug)]
struct Evidence {
    /// The cost of the kind itself.
    prior: f64,
    /// What all ids cost under this kind.
    ids: f64,
}

impl Column {
    /// Adds the guesses for an id of the column.
    pub fn add(&mut self, guesses: &[Guess]) {
        let Some(stray) = stray_bits(guesses) else { return };
        self.ids += 1;
        for guess in guesses {
            let new = Evidence { prior: guess.known_bits, ids: self.strays };
            let evidence = self.models.entry(guess.model()).or_insert(new);
            // What each kind is charged below for every id.
            evidence.ids += own_bits(guess, stray) - stray;
        }
        for evidence in self.models.values_mut() {
            evidence.ids += stray;
        }
        self.strays += stray;
    }

    /// Returns the guesses for an id that was [added](Self::add), in the light of the others, most likely
    /// first.
    pub fn judge(&self, mut guesses: Vec<Guess>) -> Vec<Guess> {
        let Some(stray) = stray_bits(&guesses).filter(|_| self.ids > 1) else { return guesses };
        let own: HashMap<Model, f64> =
            guesses.iter().map(|guess| (guess.model(), own_bits(guess, stray))).collect();
        let by_others = |(model, evidence): (&Model, &Evidence)| {
            evidence.prior + evidence.ids - own.get(model).copied().unwrap_or(stray)
        };
        let least = self.models.iter().map(by_others).fold(f64::INFINITY, f64::min);
        let all = self.models.iter().map(|it| (least - by_others(it)).exp2()).sum::<f64>();
        let all_bits = least - all.log2();
        for guess in &mut guesses {
            let model = guess.model();
            let of_others = self.models.get(&model).map(|evidence| by_others((&model, evidence)) - all_bits);
            let as_stray = STRAY_BITS + guess.known_bits;
            guess.cost_bits = guess.id_bits + of_others.map_or(as_stray, |bits| bits.min(as_stray));
        }
        rank(&mut guesses);
        guesses
    }
}

/// Returns what an id costs under a kind, without the kind itself.
fn own_bits(guess: &Guess, stray: f64) -> f64 {
    guess.id_bits.min(stray)
}

/// Returns what an id costs as a stray in its column; `None` without a guess.
fn stray_bits(guesses: &[Guess]) -> Option<f64> {
    let least = guesses.iter().map(|guess| guess.cost_bits).fold(f64::INFINITY, f64::min);
    least.is_finite().then_some(least + STRAY_BITS)
}
