//! What a generator does when the clock goes back: reject, wait, borrow or enter another generation, as a
//! chain with a text form. Pure: a rule decides by how far the clock is behind.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::error::Snippet;

const MAX_STEPS: usize = 4;

/// The largest bound, a day: no rule should bridge more.
const MAX_BOUND_MS: u64 = 86_400_000;

/// One step of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Return an error to the caller. Every chain ends with this step.
    Reject,
    /// Wait for the clock if it is behind by at most this.
    Wait(Duration),
    /// Use timestamps ahead of the clock, by at most this; also when a tick is used up.
    Borrow(Duration),
    /// Enter another generation whose own timestamps all lie before the clock.
    Generation,
}

impl Step {
    const fn name(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Wait(_) => "wait",
            Self::Borrow(_) => "borrow",
            Self::Generation => "generation",
        }
    }
}

/// Cuts a bound to whole milliseconds and at most a day.
const fn bounded(bound: Duration) -> Duration {
    let ms = bound.as_millis();
    #[expect(clippy::cast_possible_truncation, reason = "less than a day")]
    Duration::from_millis(if ms < MAX_BOUND_MS as u128 { ms as u64 } else { MAX_BOUND_MS })
}

/// What a generator does when the clock goes back: a chain of steps. The first step whose bound covers the
/// distance decides.
///
/// | step | clock behind by at most its bound | tick used up |
/// |---|---|---|
/// | `reject` | error (Twitter) | wait for the next tick |
/// | `wait(5ms)` | wait (Leaf) | wait for the next tick |
/// | `borrow(10ms)` | use the timestamps ahead of the clock | use the next tick, at most 10 ms ahead |
/// | `generation` | continue at the clock's time in a generation that was never used that late | wait for the next tick |
///
/// `generation` needs a layout with generation bits. Above the sequence they form the "stepped base sequence"
/// of the literature, above the worker the "backup worker id". Each generation has its own high-water mark,
/// and a generator enters one only above its mark; if none fits, the next step decides. A generator uses at
/// most four generation bits, which are 16 generations. Ids then follow the clock back: they stay unique, but
/// increase only between two steps of the clock.
///
/// # Examples
///
/// ```
/// use snowmint::Rule;
/// use std::time::Duration;
/// let rule = Rule::wait(Duration::from_millis(5)).then(Rule::borrow(Duration::from_millis(10)))?;
/// assert_eq!(rule.to_string(), "wait(5ms) then borrow(10ms) then reject");
/// assert_eq!("wait(5ms) then borrow(10ms)".parse(), Ok(rule));
/// # Ok::<(), snowmint::rule::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The steps before the `reject` that ends every chain.
    steps: [Option<Step>; MAX_STEPS],
}

/// The decision of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    GoOn,
    Wait,
    NextGeneration,
    Refuse,
}

impl Rule {
    /// Returns an error whenever the clock is behind: Twitter's rule.
    pub const REJECT: Self = Self { steps: [None; MAX_STEPS] };

    /// Waits if the clock is behind by at most `max`, and rejects otherwise.
    ///
    /// A bound is cut to whole milliseconds and to at most a day.
    pub const fn wait(max: Duration) -> Self {
        Self { steps: [Some(Step::Wait(bounded(max))), None, None, None] }
    }

    /// Uses timestamps ahead of the clock by at most `max_ahead`, and rejects otherwise.
    ///
    /// **Without a lease, a generator that borrowed must not be rebuilt for the same worker until `max_ahead`
    /// has passed.** The new generator starts at the clock's time and repeats the borrowed timestamps. Pass
    /// the end of the old generator ([`Generator::end`](crate::Generator::end)) to
    /// [`not_before_unix_ms`](crate::generator::GeneratorBuilder::not_before_unix_ms), or wait. With a lease
    /// this cannot happen.
    ///
    /// The bound is cut as in [`wait`](Self::wait), and a generator cuts it further to whole ticks of its
    /// layout.
    pub const fn borrow(max_ahead: Duration) -> Self {
        Self { steps: [Some(Step::Borrow(bounded(max_ahead))), None, None, None] }
    }

    /// Continues in a generation whose own timestamps all lie before the clock, and rejects if there is none.
    pub const fn generation() -> Self {
        Self { steps: [Some(Step::Generation), None, None, None] }
    }

    /// Returns whether a step enters another generation.
    pub(crate) fn uses_generations(&self) -> bool {
        self.steps().any(|step| step == Step::Generation)
    }

    /// Appends another rule for the cases that this one does not cover.
    ///
    /// # Errors
    ///
    /// [`RuleError::TooLong`] for more than four steps before the `reject`, [`RuleError::AfterReject`] for a
    /// step after [`REJECT`](Self::REJECT), which would have no effect.
    pub fn then(self, next: Self) -> Result<Self, RuleError> {
        match next.steps[0] {
            Some(step) if self == Self::REJECT => {
                Err(RuleError::AfterReject { text: Snippet::of(step.name()) })
            }
            _ => self.and_then(next),
        }
    }

    fn and_then(mut self, next: Self) -> Result<Self, RuleError> {
        for step in next.steps.into_iter().flatten() {
            let free = self.steps.iter_mut().find(|slot| slot.is_none()).ok_or(RuleError::TooLong)?;
            *free = Some(step);
        }
        Ok(self)
    }

    /// Returns the steps in order, `reject` last.
    pub fn steps(&self) -> impl Iterator<Item = Step> {
        self.steps.into_iter().flatten().chain([Step::Reject])
    }

    /// Cuts every borrow to whole ticks: a timestamp cannot be ahead by a part of one.
    pub(crate) fn in_ticks_of(mut self, tick_ms: u64) -> Self {
        for step in self.steps.iter_mut().flatten() {
            if let Step::Borrow(max) = step {
                let ms = u64::try_from(max.as_millis()).unwrap_or(MAX_BOUND_MS);
                *max = Duration::from_millis(ms / tick_ms * tick_ms);
            }
        }
        self
    }

    /// Returns how far ahead of the clock a timestamp may be: the largest borrow of the chain.
    pub fn max_ahead(&self) -> Duration {
        let bounds = self.steps().map(|step| if let Step::Borrow(max) = step { max } else { Duration::ZERO });
        bounds.max().unwrap_or_default()
    }

    /// Decides what to do if the clock is `behind`; `fits` states whether a generation fits.
    pub(crate) fn decide(&self, behind: Duration, fits: bool) -> Decision {
        for step in self.steps() {
            match step {
                Step::Generation if fits => return Decision::NextGeneration,
                Step::Wait(max) if behind <= max => return Decision::Wait,
                Step::Borrow(max) if behind <= max => return Decision::GoOn,
                _ => {}
            }
        }
        Decision::Refuse
    }
}

impl Default for Rule {
    /// `wait(10ms)`: covers the corrections of a time daemon, and rejects larger steps.
    fn default() -> Self {
        Self::wait(Duration::from_millis(10))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.steps().enumerate() {
            if i > 0 {
                f.write_str(" then ")?;
            }
            f.write_str(step.name())?;
            if let Step::Wait(max) | Step::Borrow(max) = step {
                write!(f, "({})", Bound(max))?;
            }
        }
        Ok(())
    }
}

/// A bound as [`read_duration`] reads it: `5ms`, `2s` or `1.5s`.
struct Bound(Duration);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.0.as_secs(), self.0.subsec_millis());
        match (seconds, ms) {
            (0, ms) => write!(f, "{ms}ms"),
            (seconds, 0) => write!(f, "{seconds}s"),
            (seconds, ms) if ms % 100 == 0 => write!(f, "{seconds}.{}s", ms / 100),
            (seconds, ms) => write!(f, "{seconds}.{ms:03}s"),
        }
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut rule = Self::REJECT;
        let mut rejected = false;
        for word in text.split(" then ").map(str::trim) {
            if rejected {
                return Err(RuleError::AfterReject { text: Snippet::of(word) });
            }
            match word {
                "reject" => rejected = true,
                "generation" => rule = rule.and_then(Self::generation())?,
                _ => rule = rule.and_then(read_step(word)?)?,
            }
        }
        Ok(rule)
    }
}

fn read_step(word: &str) -> Result<Rule, RuleError> {
    let unknown = RuleError::UnknownStep { text: Snippet::of(word) };
    let (name, bound) = word.strip_suffix(')').and_then(|w| w.split_once('(')).ok_or(unknown)?;
    let bound = read_duration(bound).ok_or(RuleError::Bound { text: Snippet::of(bound) })?;
    match name {
        "wait" => Ok(Rule::wait(bound)),
        "borrow" => Ok(Rule::borrow(bound)),
        _ => Err(unknown),
    }
}

/// Reads `5ms`, `2s` or `1.5s`; at most a day, which no rule should bridge.
fn read_duration(text: &str) -> Option<Duration> {
    let (number, ms_per_unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 || (ms_per_unit == 1 && fraction != "0") {
        return None;
    }
    let thousandths = fraction.parse::<u64>().ok()? * [100, 10, 1][fraction.len() - 1];
    let ms = whole.parse::<u64>().ok()?.checked_mul(ms_per_unit)?.checked_add(thousandths)?;
    (ms <= MAX_BOUND_MS).then(|| Duration::from_millis(ms))
}

/// Why a text or a chain is not a valid rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// A step is unknown.
    UnknownStep {
        /// The step.
        text: Snippet,
    },
    /// A bound is not a time.
    Bound {
        /// The bound.
        text: Snippet,
    },
    /// A step follows `reject`.
    AfterReject {
        /// The step.
        text: Snippet,
    },
    /// More than four steps.
    TooLong,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownStep { text } => {
                write!(f, "invalid rule step {text}: expected reject, wait(5ms), borrow(10ms) or generation")
            }
            Self::Bound { text } => {
                write!(f, "invalid time {text} in a rule: expected at most a day, such as 5ms, 2s or 1.5s")
            }
            Self::AfterReject { text } => {
                write!(f, "{text} follows reject and would never be used: remove it")
            }
            Self::TooLong => write!(f, "a rule has at most {MAX_STEPS} steps before it rejects"),
        }
    }
}

impl core::error::Error for RuleError {}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_first_step_that_covers_the_distance_decides() {
        let rule: Rule = "wait(5ms) then borrow(10ms)".parse().unwrap();
        assert_eq!(rule.decide(ms(5), true), Decision::Wait);
        assert_eq!(rule.decide(ms(6), true), Decision::GoOn);
        assert_eq!(rule.decide(ms(10), true), Decision::GoOn);
        assert_eq!(rule.decide(ms(11), true), Decision::Refuse);
        assert_eq!(Rule::REJECT.decide(ms(1), true), Decision::Refuse);
        assert_eq!(rule.max_ahead(), ms(10));
        let rule: Rule = "wait(5ms) then generation".parse().unwrap();
        assert_eq!(rule.decide(ms(5), true), Decision::Wait);
        assert_eq!(rule.decide(ms(6), true), Decision::NextGeneration);
        assert_eq!(rule.decide(ms(6), false), Decision::Refuse);
    }

    #[test]
    fn the_text_form_reads_back() {
        for text in [
            "reject",
            "wait(5ms) then reject",
            "generation then borrow(1.5s) then wait(20s) then reject",
            "wait(1.250s) then borrow(1.005s) then wait(999ms) then borrow(86400s) then reject",
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_chain_of_all_steps_asks_each_in_turn() {
        let rule: Rule = "wait(5ms) then borrow(10ms) then generation then reject".parse().unwrap();
        for (behind, fits, decision) in [
            (5, true, Decision::Wait),
            (10, true, Decision::GoOn),
            (11, true, Decision::NextGeneration),
            (11, false, Decision::Refuse),
        ] {
            assert_eq!(rule.decide(ms(behind), fits), decision, "{behind} ms");
        }
        assert!(rule.uses_generations() && !Rule::wait(ms(1)).uses_generations());
    }

    #[test]
    fn what_a_builder_makes_is_what_its_text_says() {
        for bound in [Duration::from_micros(1500), Duration::from_hours(48), Duration::MAX] {
            for rule in [Rule::wait(bound), Rule::borrow(bound)] {
                assert_eq!(rule.to_string().parse(), Ok(rule), "{bound:?}");
            }
        }
        assert_eq!(Rule::wait(Duration::from_micros(1999)), Rule::wait(ms(1)));
        let after_reject = Rule::REJECT.then(Rule::wait(ms(1))).unwrap_err();
        assert_eq!(after_reject.to_string(), "`wait` follows reject and would never be used: remove it");
        assert_eq!(Rule::wait(ms(1)).then(Rule::REJECT), Ok(Rule::wait(ms(1))));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for bad in [
            "",
            "wait",
            "wait()",
            "wait(5)",
            "wait(-5ms)",
            "wait(5ms",
            "sleep(5ms)",
            "wait(1.5ms)",
            "wait(2d)",
            "wait(86401s)",
            "wait(86400.001s)",
            "wait(86400001ms)",
            "wait(18446744073709551.999s)",
            "wait(1.2345s)",
            "wait(.5s)",
            "wait(1.s)",
            "wait(5.0ms)x",
            "reject then wait(5ms)",
            "wait(+5ms)",
            "wait(5ms) borrow(1s)",
            "wait(1s) then wait(1s) then wait(1s) then wait(1s) then wait(1s)",
        ] {
            assert!(bad.parse::<Rule>().is_err(), "{bad}");
        }
    }
}
