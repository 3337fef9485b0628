//! How long layouts still have timestamps: years before they have none, moving to another is worth a word.
//! One wording for every place that says so.

use std::time::Duration;

use snowmint::Layout;
use snowmint::utc::{MS_PER_YEAR, Utc};

/// From how little time left on there is a warning: moving to another layout takes a while.
const WARN_BELOW: Duration = Duration::from_millis(5 * MS_PER_YEAR);

/// What to say of a layout whose time runs out within five average Gregorian years (157,784,760 s), or ran out;
/// `None` while it has longer. `now_unix_ms` is the time now, in unix milliseconds.
pub fn warning(layout: &Layout, now_unix_ms: u64) -> Option<String> {
    let left = layout.left_at(now_unix_ms);
    if left >= WARN_BELOW {
        return None;
    }
    let ends = Utc(layout.ends_at_unix_ms()).to_string();
    let date = ends.split('T').next().unwrap_or_default();
    if left.is_zero() {
        return Some(format!(
            "the layout's time ran out on {date}: no ids since then; move to another layout"
        ));
    }
    let tenths = left.as_millis() / u128::from(MS_PER_YEAR / 10);
    Some(format!(
        "the layout's time runs out on {date}, in {}.{} years: no ids from then on; plan the move to another layout",
        tenths / 10,
        tenths % 10
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_starts_at_five_years_less_a_millisecond() {
        let layout = Layout::TWITTER;
        let ends = layout.ends_at_unix_ms();
        let five_years = 157_784_760_000;
        assert_eq!(warning(&layout, ends - five_years), None);
        for (left, shown) in
            [(five_years - 1, "in 4.9 years"), (31_556_952_000, "in 1.0 years"), (1, "in 0.0 years")]
        {
            let told = warning(&layout, ends - left).unwrap();
            assert!(
                told.starts_with(&format!("the layout's time runs out on 2080-07-10, {shown}: ")),
                "{told}"
            );
        }
        for now in [ends, ends + 1, u64::MAX] {
            assert!(warning(&layout, now).unwrap().starts_with("the layout's time ran out on 2080-07-10: "));
        }
    }
}
