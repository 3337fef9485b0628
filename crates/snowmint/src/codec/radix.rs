//! The digits of a number in any base from 2 to 94, without a division instruction. All alphabets use it;
//! decimal and hex use it where their bases allow no shorter way. A form is a constant [`Radix`], whose
//! figures the compiler folds.
//!
//! Multiplication by a reciprocal cuts a number into at most three chunks below 2^32. A chunk becomes a
//! 64-bit fraction `chunk / base^n`, and each multiplication of the fraction by the base moves the next digit
//! out at the top. The chains of the chunks run side by side: about 3 cycles per digit and chunk.

#![expect(
    clippy::inline_always,
    reason = "inlined into a form, its figures are constants: base62 takes 6 ns, the same as an `Alphabet` 13 ns"
)]

use super::{Form, MAX_LEN, ParseIdError, Text};
use crate::Id;
use crate::error::Snippet;

/// Marks a byte that is not a digit; the value of a digit is below 128.
const FOREIGN: u8 = 255;

/// A base and its digits.
#[derive(Clone, Copy)]
pub(super) struct Radix {
    form: Form,
    /// The digits; 128 of them so that a masked index needs no bounds check.
    digits: [u8; 128],
    /// The value of each byte; [`FOREIGN`] if it is not a digit.
    values: [u8; 256],
    base: u64,
    /// Digits of the largest number.
    len: usize,
    chunk_len: usize,
    /// `base^chunk_len`, at most 2^32.
    chunk: u64,
    /// `(2^64 - 1) / chunk`, rounded down.
    reciprocal: u64,
    /// The reciprocal for the top chunk, which has the remaining digits.
    top_reciprocal: u64,
    /// The weight of a digit, by its place from the right end of this table; 0 beyond the longest text.
    weights: [u64; MAX_LEN],
}

impl Radix {
    /// Makes a form for ids, which have 63 bits.
    pub(super) const fn new(form: Form, digits: &[u8]) -> Self {
        Self::for_bits(form, digits, 63)
    }

    /// Makes a form for numbers of `bits` bits; `digits` are distinct ASCII characters, 2 to 94 of them.
    pub(super) const fn for_bits(form: Form, digits: &[u8], bits: u32) -> Self {
        let base = digits.len() as u64;
        let len = width_of_bits(base, bits);
        // Few chunks, then chunks of equal length: their chains of multiplications end together.
        let chunks = len.div_ceil(digits_below_2_pow_32(base));
        let chunk_len = len.div_ceil(chunks);
        let chunk = base.pow(to_u32(chunk_len));
        let top = base.pow(to_u32(len - chunk_len * (chunks - 1)));
        let mut radix = Self {
            form,
            digits: [digits[0]; 128],
            values: [FOREIGN; 256],
            base,
            len,
            chunk_len,
            chunk,
            reciprocal: u64::MAX / chunk,
            top_reciprocal: u64::MAX / top,
            weights: weights(base, len),
        };
        let mut i = 0;
        while i < digits.len() {
            radix.digits[i] = digits[i];
            radix = radix.alias(digits[i], to_u8(i));
            i += 1;
        }
        radix
    }

    /// Also accepts `byte` as a digit of this value.
    pub(super) const fn alias(mut self, byte: u8, value: u8) -> Self {
        self.values[byte as usize] = value;
        self
    }

    /// Also accepts letters of the other case; for digits with letters of one case only.
    pub(super) const fn either_case(mut self) -> Self {
        let mut byte = 0;
        while byte < 128_u8 {
            let value = self.values[byte as usize];
            if value != FOREIGN && byte.is_ascii_alphabetic() {
                self.values[(byte ^ 0x20) as usize] = value;
            }
            byte += 1;
        }
        self
    }

    /// Returns the value of a digit.
    pub(super) fn digit(&self, byte: u8) -> Option<u8> {
        Some(self.values[usize::from(byte)]).filter(|value| *value != FOREIGN)
    }

    /// Returns the digits, in their order.
    pub(super) fn digits(&self) -> &[u8] {
        &self.digits[..usize::try_from(self.base).unwrap_or(self.digits.len())]
    }

    pub(super) const fn base(&self) -> u64 {
        self.base
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Writes every digit, with leading zeros. `N` is at least `len`.
    #[inline(always)]
    pub(super) fn encode_padded<const N: usize>(&self, id: Id) -> Text<N> {
        Text { bytes: self.write(id.get()), start: to_u8(N - self.len) }
    }

    /// Writes the digits without leading zeros, at least one. `N` is at least `len`.
    #[inline(always)]
    pub(super) fn encode<const N: usize>(&self, id: Id) -> Text<N> {
        self.without_leading_zeros(self.encode_padded(id))
    }

    /// Removes leading zeros, except the last digit.
    #[inline(always)]
    pub(super) fn without_leading_zeros<const N: usize>(&self, mut text: Text<N>) -> Text<N> {
        let mut start = usize::from(text.start);
        // Ids of one time have the same length, so this loop is predicted; a table of powers would not be
        // faster.
        while start < N - 1 && text.bytes[start] == self.digits[0] {
            start += 1;
        }
        text.start = to_u8(start);
        text
    }

    #[inline(always)]
    fn write<const N: usize>(&self, mut value: u64) -> [u8; N] {
        let mut bytes = [self.digits[0]; N];
        let (mut rest, mut end) = (self.len, N);
        while rest > self.chunk_len {
            let (above, chunk) = self.divide(value);
            self.write_chunk(chunk, self.reciprocal, &mut bytes[end - self.chunk_len..end]);
            (value, rest, end) = (above, rest - self.chunk_len, end - self.chunk_len);
        }
        self.write_chunk(value, self.top_reciprocal, &mut bytes[end - rest..end]);
        bytes
    }

    /// Returns `value / chunk` and the remainder.
    #[inline(always)]
    const fn divide(&self, value: u64) -> (u64, u64) {
        // The reciprocal is less than one below 2^64 / chunk, so the quotient is right or one too small.
        let quotient = high(value as u128 * self.reciprocal as u128);
        let remainder = value - quotient * self.chunk;
        if remainder >= self.chunk { (quotient + 1, remainder - self.chunk) } else { (quotient, remainder) }
    }

    /// Writes a chunk's digits from the top one down; `chunk < base^out.len() <= 2^32`.
    #[inline(always)]
    fn write_chunk(&self, chunk: u64, reciprocal: u64, out: &mut [u8]) {
        // Rounded up by less than chunk / 2^64, which never reaches the next digit while chunk <= 2^32.
        let mut fraction = chunk * (reciprocal + 1);
        for place in out {
            let product = u128::from(fraction) * u128::from(self.base);
            *place = self.digits[(high(product) & 127) as usize];
            fraction = low(product);
        }
    }

    /// Reads 1 to `len` digits.
    #[inline(always)]
    pub(super) fn decode(&self, text: &str) -> Result<Id, ParseIdError> {
        match self.read(text.as_bytes()).and_then(|value| Id::new(value).ok()) {
            Some(id) => Ok(id),
            None => Err(self.diagnose(text)),
        }
    }

    /// Returns the number; `None` if the text is not one, or if it is 2^64 or more.
    #[inline(always)]
    fn read(&self, text: &[u8]) -> Option<u64> {
        // The same code twice: ids of full length are common, and the compiler knows the length of their
        // loop.
        if text.len() == self.len {
            return self.sum(&text[..self.len]);
        }
        if text.is_empty() || text.len() > self.len { None } else { self.sum(text) }
    }

    /// Adds each digit times its weight. Unlike in Horner's rule, the products do not depend on each other.
    #[inline(always)]
    fn sum(&self, text: &[u8]) -> Option<u64> {
        let (top, rest) = text.split_first()?;
        let (mut sum, mut seen) = (0_u64, 0_u8);
        for (&byte, weight) in rest.iter().zip(&self.weights[MAX_LEN - rest.len()..]) {
            let digit = self.values[usize::from(byte)];
            seen |= digit;
            // Below the top digit's weight if all are digits.
            sum = sum.wrapping_add(u64::from(digit).wrapping_mul(*weight));
        }
        let digit = self.values[usize::from(*top)];
        let value = u64::from(digit).checked_mul(self.weights[MAX_LEN - text.len()])?.checked_add(sum)?;
        ((seen | digit) < 128).then_some(value)
    }

    /// Returns why a text is not an id.
    #[cold]
    #[inline(never)]
    fn diagnose(&self, text: &str) -> ParseIdError {
        let form = self.form;
        if text.is_empty() {
            return ParseIdError::Empty { form };
        }
        if text.len() > self.len {
            return ParseIdError::TooLong { form, len: text.len(), limit: self.len };
        }
        self.foreign(text).unwrap_or(ParseIdError::Overflow { form, text: Snippet::of(text) })
    }

    /// Returns an error for the first character that is not a digit.
    pub(super) fn foreign(&self, text: &str) -> Option<ParseIdError> {
        let is_digit = |character| u8::try_from(character).is_ok_and(|byte| self.digit(byte).is_some());
        let (at, character) = text.char_indices().find(|(_, character)| !is_digit(*character))?;
        Some(ParseIdError::Foreign { form: self.form, character, at })
    }
}

/// Returns the number of digits of the largest number of `bits` bits; panics for 128 bits or more.
pub(super) const fn width_of_bits(base: u64, bits: u32) -> usize {
    // In release builds the shift below would wrap to 0 bits.
    assert!(bits < u128::BITS, "invalid number of bits: expected 0 to 127");
    let mut left = (1_u128 << bits) - 1;
    let mut width = 0;
    while left > 0 || width == 0 {
        left /= base as u128;
        width += 1;
    }
    width
}

/// Returns `base^place` for the places of `len` digits, the lowest one last.
const fn weights(base: u64, len: usize) -> [u64; MAX_LEN] {
    let mut weights = [0; MAX_LEN];
    let mut place = 0;
    while place < len {
        weights[MAX_LEN - 1 - place] = base.pow(to_u32(place));
        place += 1;
    }
    weights
}

/// Returns the largest number of digits whose numbers all lie below 2^32.
const fn digits_below_2_pow_32(base: u64) -> usize {
    let (mut digits, mut power) = (0, 1);
    while power * base <= 1 << 32 {
        power *= base;
        digits += 1;
    }
    digits
}

const fn high(wide: u128) -> u64 {
    (wide >> 64) as u64
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
const fn low(wide: u128) -> u64 {
    wide as u64
}

#[expect(clippy::cast_possible_truncation, reason = "positions in a text and values of digits are below 128")]
const fn to_u8(small: usize) -> u8 {
    small as u8
}

#[expect(clippy::cast_possible_truncation, reason = "numbers of digits are at most 64")]
const fn to_u32(small: usize) -> u32 {
    small as u32
}

#[cfg(test)]
mod tests {
    //! Goal: the multiplications give the digits that division would.
    //! Method: every base against `%` and `/`, at the edges of chunks, powers and the range.

    use super::*;

    fn slow(mut value: u64, digits: &[u8], len: usize) -> Vec<u8> {
        let mut text = vec![digits[0]; len];
        for place in text.iter_mut().rev() {
            *place = digits[usize::try_from(value % digits.len() as u64).unwrap()];
            value /= digits.len() as u64;
        }
        text
    }

    fn edges(base: u64) -> impl Iterator<Item = u64> {
        let powers = (0..64).map_while(move |n| base.checked_pow(n));
        let twos = (0..63).map(|n| 1_u64 << n);
        let near = |n: u64| [n.wrapping_sub(2), n.wrapping_sub(1), n, n + 1];
        powers.chain(twos).chain([i64::MAX as u64 - 1]).flat_map(near).map(|n| n & i64::MAX as u64)
    }

    #[test]
    fn every_base_agrees_with_division() {
        let graphic: Vec<u8> = (b'!'..=b'~').collect();
        // Miri is a thousand times slower, and looks for other faults than wrong digits.
        let (bases, step, scattered) = if cfg!(miri) { (62..=62, 29, 10) } else { (2..=94, 1, 2000_u64) };
        for base in bases {
            let digits = &graphic[..base];
            for bits in [63, 64] {
                let radix = Radix::for_bits(Form::Alphabet, digits, bits);
                assert!(radix.chunk <= 1 << 32 && radix.len.div_ceil(radix.chunk_len) <= 3);
                let scattered = (1..scattered).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1);
                for value in edges(base as u64).step_by(step).chain(scattered) {
                    let id = Id::new(value).unwrap();
                    let text = radix.encode_padded::<64>(id);
                    assert_eq!(text.as_bytes(), slow(value, digits, radix.len), "{value} in base {base}");
                    assert_eq!(radix.decode(&text), Ok(id), "{value} in base {base}");
                    assert_eq!(radix.decode(&radix.encode::<64>(id)), Ok(id), "{value} in base {base}");
                }
            }
        }
    }
}
