//! Standard input, cut into words or lines, with bounded memory.

mod grouped;

use std::io::{self, BufRead, BufReader, IsTerminal as _};

use crate::error::Failure;
use grouped::Grouped;

/// Maximum length of an item; no id in any form is longer. Longer items are cut, so that memory is bounded,
/// and end in [`CUT`].
pub(crate) const MAX_LEN: usize = 80;
/// The end of a cut item. No text form contains it, so a cut item is never read as an id.
const CUT: &str = "…";
/// Size of the input buffer.
const BUFFER: usize = 128 * 1024;

/// Where an item ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Items {
    /// At blanks, line ends and commas, but not at the thousands separators of one number.
    Words,
    /// At line ends; surrounding blanks are ignored.
    Lines,
}

impl Items {
    fn ends_at(self, byte: u8) -> bool {
        match self {
            Self::Words => byte.is_ascii_whitespace() || byte == b',',
            Self::Lines => byte == b'\n',
        }
    }
}

/// Returns standard input, or an error if it is a terminal, where the command would seem to hang.
pub(crate) fn standard_input(example: &str) -> Result<impl BufRead, Failure> {
    let input = io::stdin();
    if input.is_terminal() {
        return Err(Failure::usage(format!(
            "missing ids: pass them as arguments, or on standard input as in `{example}`"
        )));
    }
    Ok(BufReader::with_capacity(BUFFER, input.lock()))
}

/// Returns the failure of a read.
pub(crate) fn unread(error: &io::Error) -> Failure {
    Failure::runtime(format!("cannot read standard input: {error}"))
}

/// Receives the items of an input.
pub(crate) trait Sink {
    /// Receives an item that is not empty, and its line number, from 1.
    fn item(&mut self, text: &str, line: u64) -> Result<(), Failure>;

    /// Called before the command waits for input.
    fn pause(&mut self) -> Result<(), Failure>;
}

/// The mark at the start of a file that spreadsheets write.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Passes every item of an input that is not empty to a sink.
pub(crate) fn each_item(input: &mut impl BufRead, items: Items, sink: &mut impl Sink) -> Result<(), Failure> {
    // The beginning of an item whose end is not in the buffer.
    let mut begun: Vec<u8> = Vec::with_capacity(MAX_LEN);
    let mut grouped = Grouped::default();
    let mut line = 1;
    loop {
        sink.pause()?;
        let room = match input.fill_buf() {
            Ok(room) => room,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unread(&error)),
        };
        if room.is_empty() {
            grouped.piece(&begun, b'\n', line, sink)?;
            return Ok(());
        }
        let mut start = 0;
        for (at, &byte) in room.iter().enumerate() {
            if !items.ends_at(byte) {
                continue;
            }
            let item = &room[start..at];
            if begun.is_empty() {
                grouped.piece(item, byte, line, sink)?;
            } else {
                extend(&mut begun, item);
                grouped.piece(&begun, byte, line, sink)?;
                begun.clear();
            }
            line += u64::from(byte == b'\n');
            start = at + 1;
        }
        extend(&mut begun, &room[start..]);
        let read = room.len();
        input.consume(read);
    }
}

/// Appends to an item. An item that is too long keeps one extra byte, which is not a blank, so that it stays
/// too long.
fn extend(begun: &mut Vec<u8>, more: &[u8]) {
    let more = if begun.is_empty() { more.trim_ascii_start() } else { more };
    let (kept, rest) = more.split_at(more.len().min(MAX_LEN + 1 - begun.len()));
    begun.extend_from_slice(kept);
    if let (Some(end), Some(byte)) = (begun.last_mut(), rest.trim_ascii_end().last()) {
        *end = *byte;
    }
}

fn give(item: &[u8], line: u64, sink: &mut impl Sink) -> Result<(), Failure> {
    let item = item.trim_ascii();
    let item = if line == 1 { item.strip_prefix(BYTE_ORDER_MARK).unwrap_or(item).trim_ascii() } else { item };
    if item.is_empty() {
        return Ok(());
    }
    if item.len() > MAX_LEN {
        let kept = String::from_utf8_lossy(&item[..MAX_LEN - CUT.len()]);
        return sink.item(&format!("{kept}{CUT}"), line);
    }
    match std::str::from_utf8(item) {
        Ok(text) => sink.item(text, line),
        Err(_) => sink.item(&String::from_utf8_lossy(item), line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(Vec<(String, u64)>);

    impl Sink for Seen {
        fn item(&mut self, text: &str, line: u64) -> Result<(), Failure> {
            self.0.push((text.to_owned(), line));
            Ok(())
        }

        fn pause(&mut self) -> Result<(), Failure> {
            Ok(())
        }
    }

    fn seen(input: &[u8], room: usize, items: Items) -> Vec<(String, u64)> {
        let mut seen = Seen::default();
        each_item(&mut BufReader::with_capacity(room, input), items, &mut seen).unwrap();
        seen.0
    }

    fn of(items: &[(&str, u64)]) -> Vec<(String, u64)> {
        items.iter().map(|(text, line)| ((*text).to_owned(), *line)).collect()
    }

    #[test]
    fn items_survive_every_split_of_the_input() {
        for room in 1..12 {
            let words = seen(b" 12, 34\r\n\n56,,7\t8", room, Items::Words);
            assert_eq!(words, of(&[("12", 1), ("34", 1), ("56", 3), ("7", 3), ("8", 3)]), "{room}");
            let lines = seen(b" 1,2 \r\n\n3\n\xff", room, Items::Lines);
            assert_eq!(lines, of(&[("1,2", 1), ("3", 3), ("\u{fffd}", 4)]), "{room}");
        }
        assert!(seen(b" \n,", 4, Items::Words).is_empty());
    }

    #[test]
    fn an_endless_item_is_cut() {
        let long = vec![b'9'; 100_000];
        let cut = format!("{}{CUT}", "9".repeat(MAX_LEN - CUT.len()));
        assert_eq!(seen(&long, 4096, Items::Words), of(&[(&cut, 1)]));
        let long = [&long[..], b"\n1"].concat();
        assert_eq!(seen(&long, 4096, Items::Lines)[1], ("1".to_owned(), 2));
    }

    /// Goal: a number that a spreadsheet wrote with thousands separators is one id, and a list is a list.
    /// Method: columns and lists, split by buffers of any size.
    #[test]
    fn thousands_separators_end_no_number() {
        let one = "1,541,815,603,606,036,480";
        let cases: [(String, Vec<&str>); 10] = [
            (one.to_owned(), vec![one]),
            (format!("{one}\r\n{one}\n"), vec![one, one]),
            (format!("\"{one}\",7"), vec!["\"1,541,815,603,606,036,480\"", "7"]),
            ("\"7,103\"".to_owned(), vec!["\"7,103\""]),
            (format!("=\"{one}\""), vec!["=\"1,541,815,603,606,036,480\""]),
            ("7,103,226".to_owned(), vec!["7", "103", "226"]),
            ("101,102,103,104,105,106".to_owned(), vec!["101", "102", "103", "104", "105", "106"]),
            (format!("{one},12"), vec!["1", "541", "815", "603", "606", "036", "480", "12"]),
            ("12, 541, 815, 603, 606".to_owned(), vec!["12", "541", "815", "603", "606"]),
            ("\"12,x\"".to_owned(), vec!["\"12", "x\""]),
        ];
        for (text, wanted) in cases {
            for room in 1..40 {
                let words = seen(text.as_bytes(), room, Items::Words);
                let words: Vec<&str> = words.iter().map(|(word, _)| word.as_str()).collect();
                assert_eq!(words, wanted, "{room} {text}");
            }
        }
        let marked = seen("\u{feff}12\n34".as_bytes(), 3, Items::Words);
        assert_eq!(marked, of(&[("12", 1), ("34", 2)]));
        assert_eq!(seen("\u{feff}12\n34".as_bytes(), 40, Items::Lines), of(&[("12", 1), ("34", 2)]));
    }

    /// Goal: no id in a long line is lost or becomes another id. Method: blanks before, after and inside,
    /// leading zeros, each split by buffers of any size.
    #[test]
    fn blanks_do_not_count_and_a_long_item_is_never_an_id() {
        let blanks = " ".repeat(100);
        for room in 1..=200 {
            for line in [format!("{blanks}12"), format!("12{blanks}"), format!("{blanks}12{blanks}\r\n")] {
                assert_eq!(seen(line.as_bytes(), room, Items::Lines), of(&[("12", 1)]), "{room} {line:?}");
            }
            for line in [format!("12{blanks}x"), format!("12{blanks}x{blanks}"), format!("{:0>100}", 12)] {
                let items = seen(line.as_bytes(), room, Items::Lines);
                assert!(items.len() == 1 && items[0].0.ends_with(CUT), "{room} {line:?}: {items:?}");
            }
            let full = "9".repeat(MAX_LEN);
            assert_eq!(
                seen(format!("{full}{blanks}").as_bytes(), room, Items::Lines),
                of(&[(&full, 1)]),
                "{room}"
            );
        }
    }
}
