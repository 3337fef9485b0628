//! Writes many plain numbers as decimal text. Consecutive numbers share their upper digits, so those are
//! written once for up to 100 million numbers, and a number costs eight digits and one copy.

/// The numbers that share their upper digits.
const LOW: u64 = 100_000_000;
/// The digits below them.
const LOW_DIGITS: usize = 8;
/// With fewer numbers than this, writing them one by one is faster.
const WORTH_IT: u64 = 4;
/// Bytes of the longest entry that is copied as a whole: 20 digits, and a protocol's text around them.
const ENTRY: usize = 32;

/// The text around each number of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The same text around every number.
    Between(&'static str, &'static str),
    /// A bulk string of the Redis protocol, which begins with its length.
    RespBulk,
}

impl Entry {
    /// Room that a list needs after its last number while it is written.
    pub(crate) const SPARE: usize = ENTRY;

    /// An integer of the Redis protocol.
    pub(crate) const RESP_INTEGER: Self = Self::Between(":", "\r\n");

    /// Appends one number.
    #[inline]
    pub(crate) fn write(self, out: &mut Vec<u8>, number: u64) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number);
        self.begin(out, digits.len());
        out.extend_from_slice(digits.as_bytes());
        out.extend_from_slice(self.end());
    }

    /// Appends `count` numbers: `first`, `first + step` and so on.
    pub(crate) fn write_all(self, out: &mut Vec<u8>, first: u64, count: u64, step: u64) {
        let (mut number, mut left) = (first, count);
        while left > 0 {
            let template = if left >= WORTH_IT { self.template(number) } else { None };
            let written = if let Some(template) = template {
                template.write(out, number, left, step)
            } else {
                self.write(out, number);
                1
            };
            // Beyond the last number nothing is written, so it does not matter if this wraps.
            number = number.wrapping_add(step.wrapping_mul(written));
            left -= written;
        }
    }

    /// Returns the entry of `number`, to be copied for the numbers after it; `None` if its upper digits are
    /// all zero, or if the entry is longer than what is copied.
    fn template(self, number: u64) -> Option<Template> {
        let high = number / LOW;
        if high == 0 {
            return None;
        }
        let mut text = Vec::with_capacity(2 * ENTRY);
        let mut buffer = itoa::Buffer::new();
        let high = buffer.format(high);
        self.begin(&mut text, high.len() + LOW_DIGITS);
        text.extend_from_slice(high.as_bytes());
        let low_at = text.len();
        text.extend_from_slice(&[b'0'; LOW_DIGITS]);
        text.extend_from_slice(self.end());
        let len = text.len();
        text.resize(ENTRY.max(len), 0);
        let bytes = <[u8; ENTRY]>::try_from(text).ok()?;
        Some(Template { bytes, low_at, len })
    }

    fn begin(self, out: &mut Vec<u8>, digits: usize) {
        match self {
            Self::Between(before, _) => out.extend_from_slice(before.as_bytes()),
            Self::RespBulk => {
                out.push(b'$');
                out.extend_from_slice(itoa::Buffer::new().format(digits).as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    const fn end(self) -> &'static [u8] {
        match self {
            Self::Between(_, after) => after.as_bytes(),
            Self::RespBulk => b"\r\n",
        }
    }
}

/// The entry of numbers that share their upper digits.
struct Template {
    bytes: [u8; ENTRY],
    /// The position of the lower digits.
    low_at: usize,
    len: usize,
}

impl Template {
    /// Appends up to `left` numbers, as many as share their upper digits. Returns their number, at least 1.
    fn write(&self, out: &mut Vec<u8>, first: u64, left: u64, step: u64) -> u64 {
        let mut low = first % LOW;
        let count = ((LOW - 1 - low) / step.max(1) + 1).min(left);
        let begin = out.len();
        // A list in memory: its length fits.
        let end = begin + usize::try_from(count).unwrap_or(usize::MAX) * self.len;
        // Each copy is longer than its entry; the next one overwrites the rest.
        out.resize(end + ENTRY, 0);
        for at in (begin..end).step_by(self.len) {
            let entry = &mut out[at..at + ENTRY];
            entry.copy_from_slice(&self.bytes);
            entry[self.low_at..self.low_at + LOW_DIGITS].copy_from_slice(&eight_digits(low));
            low = low.wrapping_add(step);
        }
        out.truncate(end);
        count
    }
}

/// Returns the digits of a number below [`LOW`], with leading zeros.
///
/// All of them are computed at once: halves of four digits in 32 bits each, then pairs in 16 bits, then
/// digits in 8 bits. A product and a shift divide exactly for numbers this small: `n * 10486 >> 20` is `n /
/// 100` below 10,000, and `n * 103 >> 10` is `n / 10` below 100.
#[inline]
const fn eight_digits(number: u64) -> [u8; LOW_DIGITS] {
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x7f_0000_007f;
    let pairs = hundreds | ((halves - hundreds * 100) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | ((pairs - tens * 10) << 8);
    (digits | 0x3030_3030_3030_3030).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_digits_of_every_kind_of_number() {
        let check = |number: u64| {
            assert_eq!(eight_digits(number).as_slice(), format!("{number:08}").as_bytes());
        };
        // Every half of four digits, in both places; then a walk through all.
        (0..10_000).for_each(|half| check(half * 10_000 + (9_999 - half)));
        (0..LOW).step_by(7_919).for_each(check);
        check(LOW - 1);
    }

    /// Goal: a list is the same as its numbers one by one, over every change of the upper digits. Method:
    /// compares with `write`.
    #[test]
    fn a_list_is_the_same_as_its_numbers_one_by_one() {
        let entries = [
            Entry::RespBulk,
            Entry::RESP_INTEGER,
            Entry::Between(",\"", "\""),
            Entry::Between("", "\n"),
            Entry::Between("longer than what is copied as a whole: ", ", "),
        ];
        for entry in entries {
            for (first, count, step) in [
                (0, 3, 1),
                (LOW - 2, 5, 1),
                (LOW - 1, 1, 1),
                (999_999_999, 3, 1),
                (1_541_815_603_606_036_480, 4096, 1),
                (9_999_999_999 * LOW - 3, 10, 2),
                (7, 5, LOW),
                (7, 5, LOW / 2 + 1),
                (3 * LOW, 5, u64::MAX / 8),
                (u64::MAX - 4, 5, 1),
                (i64::MAX as u64, 1, 1 << 63),
                (5 * LOW, 0, 1),
            ] {
                let (mut all, mut each) = (b"before".to_vec(), b"before".to_vec());
                entry.write_all(&mut all, first, count, step);
                (0..count).for_each(|nth| entry.write(&mut each, first + nth * step));
                assert!(all == each, "{entry:?} {first} {count} {step}: {}", String::from_utf8_lossy(&all));
            }
        }
    }
}
