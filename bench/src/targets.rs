//! The targets, compared with the results.

use crate::groups::{alone, pair};
use crate::ours;
use crate::stats::Figures;
use crate::table::{Table, figure};

struct Target {
    what: &'static str,
    aim: String,
    measured: Option<f64>,
    met: fn(f64, f64) -> bool,
    bound: f64,
    /// The cost of the unavoidable steps alone, in the unit of the bound.
    bare: Option<f64>,
}

impl Target {
    fn bare(mut self, bare: Option<f64>) -> Self {
        self.bare = bare;
        self
    }
}

fn at_most(what: &'static str, bound: f64, unit: &str, measured: Option<f64>) -> Target {
    Target {
        what,
        aim: format!("at most {bound} {unit}"),
        measured,
        met: |value, bound| value <= bound,
        bound,
        bare: None,
    }
}

fn at_least(what: &'static str, bound: f64, unit: &str, measured: Option<f64>) -> Target {
    Target {
        what,
        aim: format!("at least {bound} {unit}"),
        measured,
        met: |value, bound| value >= bound,
        bound,
        bare: None,
    }
}

/// Prints each target with the result and whether it is met.
pub fn print(figures: &Figures) {
    let mut table = Table::new("Targets", &["target", "aim", "measured", "its bare parts", "met"]);
    for target in all(figures) {
        let (measured, met) = match target.measured {
            None => ("not measured".into(), "-"),
            Some(value) if (target.met)(value, target.bound) => (figure(value), "yes"),
            Some(value) => (figure(value), "**no**"),
        };
        let bare = target.bare.map_or_else(String::new, figure);
        table.row(&[target.what.into(), target.aim, measured, bare, met.into()]);
    }
    table.print();
    println!(
        "\nBare parts: what the steps that it cannot do without take in this run, nothing around them (a reading of the \
         counter, an addition, a `fetch_add`). Where they alone are above the aim, no generator meets it on this processor."
    );
}

fn all(figures: &Figures) -> Vec<Target> {
    let single = |subject, what| figures.get("alone", subject, what);
    let both = |subject| figures.get("pair", subject, "x fetch_add");
    let halved = |subject| Some(single(subject, "ns")? / 2.0 / figures.get("pair", pair::FETCH_ADD, "ns")?);
    let saturated = |what| figures.get("saturated", ours::SATURATED, what);
    let in_blocks = |what| figures.get("saturated", ours::SATURATED_BLOCKS, what);
    let waited = |what| figures.get("saturated", ours::SATURATED_ASYNC, what);
    let bulk = |size| figures.get("bulk", ours::BULK, size);
    let call = |what| figures.get("call", ours::SHARED, what);
    // The slowest conversion counts, and the one with the most allocations.
    let worst = |what| {
        let values = ours::CONVERSIONS.iter().map(|name| figures.get("text", name, what));
        values.collect::<Option<Vec<f64>>>().map(|values| values.into_iter().fold(0.0, f64::max))
    };
    vec![
        at_least("saturated, shared, 1 thread", 99.9, "% of the limit", saturated("1 share")),
        at_most("saturated, shared, 1 thread", 10.0, "% of a core", saturated("1 cpu")),
        at_least("saturated, shared, 2 threads", 99.9, "% of the limit", saturated("2 share")),
        at_most("saturated, shared, 2 threads", 10.0, "% of a core", saturated("2 cpu")),
        at_least("saturated, blocks, 2 threads", 99.9, "% of the limit", in_blocks("2 share")),
        at_most("saturated, blocks, 2 threads", 10.0, "% of a core", in_blocks("2 cpu")),
        at_least("saturated, async, 1 thread", 99.0, "% of the limit", waited("1 share")),
        at_most("saturated, async, 1 thread", 10.0, "% of a core", waited("1 cpu")),
        at_least("saturated, async, 2 threads", 99.0, "% of the limit", waited("2 share")),
        at_most("saturated, async, 2 threads", 10.0, "% of a core", waited("2 cpu")),
        at_most("owned, fresh clock", 1.3, "x the counter", single(ours::OWNED, "x counter")).bare(Some(1.0)),
        at_most("owned, cached tick", 0.2, "x fetch_add", single(ours::OWNED_TICKER, "x fetch_add"))
            .bare(single(alone::PLAIN_ADD, "x fetch_add")),
        at_most("blocks, 2 threads, fresh clock", 0.35, "x contended fetch_add", both(ours::BLOCKS))
            .bare(halved(alone::COUNTER)),
        at_most("blocks, 2 threads, cached tick", 0.1, "x contended fetch_add", both(ours::BLOCKS_TICKER))
            .bare(halved(alone::PLAIN_ADD)),
        at_most("shared, alone", 3.0, "x fetch_add", single(ours::SHARED, "x fetch_add"))
            .bare(single(alone::COUNTER, "x fetch_add")),
        at_most("shared, 2 threads", 1.5, "x contended fetch_add", both(ours::SHARED))
            .bare(both(pair::AFTER_COUNTER)),
        at_most("bulk, 4 Ki ids", 1.3, "x a constant fill", bulk("4 Ki")),
        at_most("bulk, 128 Ki ids", 1.3, "x a constant fill", bulk("128 Ki")),
        at_most("bulk, 16 Mi ids", 1.0, "x a constant fill", bulk("16 Mi")),
        at_most("one call, p50", 1.2, "x the clock reading", call("x wall")),
        at_most("one call, p99.9", 300.0, "ns", call("p99.9")),
        at_most("fields and texts, the slowest", 10.0, "ns", worst("ns")),
        at_most("fields and texts, allocations", 0.0, "each", worst("allocations")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_without_a_figure_is_neither_met_nor_missed() {
        let mut figures = Figures::default();
        assert!(all(&figures).iter().all(|target| target.measured.is_none()));
        figures.note("alone", ours::SHARED, "x fetch_add", 2.5);
        let targets = all(&figures);
        let shared = targets.iter().find(|target| target.what == "shared, alone").unwrap();
        assert!((shared.met)(shared.measured.unwrap(), shared.bound));
    }
}
