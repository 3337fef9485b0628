//! Draws the 64 bits of an id: its fields in a box, and a line from each field to its value.
//!
//! ```text
//! bit  62                                        21    16    11         0
//!     ┌─────────────────────────────────────────┬─────┬─────┬────────────┐
//!   0 │00101010110010110100001000111110110001000│01011│11010│000000000000│
//!     └┬────────────────────────────────────────┴┬────┴┬────┴┬───────────┘
//!      │                                         │     │     └ sequence, 12 bits: 0
//!      │                                         │     └ worker, 5 bits: 26
//!      │                                         └ datacenter, 5 bits: 11
//!      └ time, 41 bits: 367,597,485,448
//! ```

use snowmint::Layout;
use snowmint::field::Field;

use crate::output::Paint;

const INDENT: &str = "  ";

/// A layout, the bits of each field and a label for each field.
pub(crate) struct Drawing<'a, B, L> {
    pub(crate) layout: &'a Layout,
    /// Returns one character for each bit of a field.
    pub(crate) bits: B,
    /// Returns the text after the name and width of a field.
    pub(crate) label: L,
    pub(crate) paint: Paint,
    /// The width of the terminal, if the output is one.
    pub(crate) columns: Option<usize>,
}

impl<B: Fn(Field) -> String, L: Fn(Field) -> String> Drawing<'_, B, L> {
    /// Returns the lines, at most 100 columns wide for labels of up to 20. If the box does not fit in the
    /// terminal, which would wrap its lines, each line is a field.
    pub(crate) fn lines(&self) -> Vec<String> {
        let fields: Vec<_> = self.layout.fields().collect();
        if self.columns.is_some_and(|columns| columns < self.columns_of_box()) {
            return fields.iter().map(|field| format!("{INDENT}{}", self.label_of(*field))).collect();
        }
        let mut lines = vec![self.ruler(), self.top(), self.middle(), self.bottom()];
        for last in (0..fields.len()).rev() {
            lines.push(self.drop_line(&fields[..=last]));
        }
        lines
    }

    /// Number of bits above the fields, which are always 0.
    fn unused(&self) -> usize {
        usize::try_from(u64::BITS - self.layout.bits()).unwrap_or_default()
    }

    fn width(&self, field: Field) -> usize {
        usize::try_from(self.layout.width(field)).unwrap_or_default()
    }

    fn columns_of_box(&self) -> usize {
        let fields: usize = self.layout.fields().map(|field| self.width(field) + 1).sum();
        self.margin().len() + fields + 1
    }

    fn margin(&self) -> String {
        format!("{INDENT}{} ", " ".repeat(self.unused()))
    }

    /// Returns the number of the highest bit of each field above that bit, and 0 above the last bit. Omits a
    /// number that does not fit.
    fn ruler(&self) -> String {
        let mut line = "bit ".to_owned();
        let mut column = self.margin().len();
        let mut numbers = Vec::new();
        let mut top = self.layout.bits();
        for field in self.layout.fields() {
            numbers.push((column + 1, top - 1));
            column += 1 + self.width(field);
            top -= self.layout.width(field);
        }
        numbers.push((column - 1, 0));
        for (column, bit) in numbers {
            if line.len() < column {
                line += &" ".repeat(column - line.len());
                line += &bit.to_string();
            }
        }
        self.paint.faint(&line)
    }

    fn top(&self) -> String {
        let spans: Vec<_> = self.layout.fields().map(|field| "─".repeat(self.width(field))).collect();
        self.margin() + &self.paint.faint(&format!("┌{}┐", spans.join("┬")))
    }

    fn middle(&self) -> String {
        let wall = self.paint.faint("│");
        let mut line = format!("{INDENT}{} {wall}", self.paint.faint(&"0".repeat(self.unused())));
        for field in self.layout.fields() {
            line += &self.paint.field(field, &(self.bits)(field));
            line += &wall;
        }
        line
    }

    fn bottom(&self) -> String {
        let spans: Vec<_> =
            self.layout.fields().map(|field| format!("┬{}", "─".repeat(self.width(field) - 1))).collect();
        self.margin() + &self.paint.faint(&format!("└{}┘", spans.join("┴")))
    }

    /// Returns the line that leads to the last of `fields`, with bars for the fields before it.
    fn drop_line(&self, fields: &[Field]) -> String {
        let mut line = self.margin();
        let Some((last, before)) = fields.split_last() else {
            return line;
        };
        for field in before {
            line.push(' ');
            line += &self.paint.faint("│");
            line += &" ".repeat(self.width(*field) - 1);
        }
        line + &format!(" {} {}", self.paint.faint("└"), self.label_of(*last))
    }

    /// Returns the name, width and label of a field.
    fn label_of(&self, field: Field) -> String {
        let plural = if self.width(field) == 1 { "" } else { "s" };
        let text = format!("{field}, {} bit{plural}: {}", self.width(field), (self.label)(field));
        self.paint.field(field, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(layout: &str, on: bool) -> Vec<String> {
        draw_in(None, layout, on)
    }

    fn draw_in(columns: Option<usize>, layout: &str, on: bool) -> Vec<String> {
        let layout: Layout = layout.parse().unwrap();
        let drawing = Drawing {
            layout: &layout,
            bits: |field| "1".repeat(usize::try_from(layout.width(field)).unwrap()),
            label: |field| layout.max(field).to_string(),
            paint: Paint::forced(on),
            columns,
        };
        drawing.lines()
    }

    #[test]
    fn a_field_of_one_bit_has_room() {
        let lines = draw("time:3 generation:1 worker:1 sequence:1 epoch:2024-01-01", false);
        assert_eq!(lines[0], format!("bit {:58}5   2 1 0", ""));
        let lines = &lines[1..];
        let box_at = lines[0].find('┌').unwrap();
        assert_eq!(box_at, 2 + 58 + 1);
        let right: Vec<_> = lines.iter().map(|line| line[box_at..].to_owned()).collect();
        assert_eq!(
            right,
            [
                "┌───┬─┬─┬─┐",
                "│111│1│1│1│",
                "└┬──┴┬┴┬┴┬┘",
                " │   │ │ └ sequence, 1 bit: 1",
                " │   │ └ worker, 1 bit: 1",
                " │   └ generation, 1 bit: 1",
                " └ time, 3 bits: 7",
            ]
        );
    }

    #[test]
    fn every_preset_fits_in_a_hundred_columns() {
        for preset in snowmint::layout::PRESETS {
            for line in draw(preset.name, false) {
                assert!(line.chars().count() <= 100, "{line}");
            }
        }
    }

    #[test]
    fn a_narrow_terminal_gets_a_list() {
        for preset in snowmint::layout::PRESETS {
            let drawn = draw(preset.name, false);
            let width = drawn[1..4].iter().map(|line| line.chars().count()).max().unwrap();
            assert_eq!(draw_in(Some(width), preset.name, false), drawn, "{}", preset.name);
            let listed = draw_in(Some(width - 1), preset.name, false);
            assert_eq!(listed.len(), preset.layout.fields().count(), "{}", preset.name);
        }
        assert_eq!(
            draw_in(Some(40), "twitter", false),
            [
                "  time, 41 bits: 2199023255551",
                "  datacenter, 5 bits: 31",
                "  worker, 5 bits: 31",
                "  sequence, 12 bits: 4095"
            ]
        );
    }

    #[test]
    fn colours_change_no_character() {
        let plain = draw("twitter", false).join("\n");
        let mut stripped = draw("twitter", true).join("\n");
        for code in ["0", "1", "2", "31", "32", "33", "34", "35", "36"] {
            stripped = stripped.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(stripped, plain);
        assert!(!plain.contains('\x1b'));
    }
}
