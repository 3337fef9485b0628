//! Markdown tables.

use std::fmt::Write as _;

/// A table: the first column is text, the others are right-aligned.
#[derive(Debug)]
pub struct Table {
    text: String,
}

impl Table {
    /// Starts a table under a heading.
    pub fn new(heading: &str, columns: &[&str]) -> Self {
        let rule: Vec<&str> = (0..columns.len()).map(|i| if i == 0 { "---" } else { "--:" }).collect();
        let text = format!("\n## {heading}\n\n| {} |\n|{}|\n", columns.join(" | "), rule.join("|"));
        Self { text }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: &[String; N]) {
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    /// Prints the table.
    pub fn print(&self) {
        println!("{}", self.text.trim_end());
    }
}

/// Formats about three significant digits, as nanoseconds and ratios need.
pub fn figure(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "-".into(),
        0.0..1.0 => format!("{value:.3}"),
        1.0..10.0 => format!("{value:.2}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        let shown = [0.0634, 1.0, 12.34, 4321.0, f64::NAN].map(figure);
        assert_eq!(shown, ["0.063", "1.00", "12.3", "4321", "-"]);
    }
}
