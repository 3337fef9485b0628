//! Eight decimal digits in one word: a byte each, all of them handled by the same few instructions.
//! Neighbours are paired up, then the pairs, then the fours; writing goes the same way back.

/// The first number of nine digits.
pub(super) const LIMIT: u64 = 100_000_000;

const ZEROS: u64 = u64::from_ne_bytes([b'0'; 8]);

/// The number that eight digits stand for; `None` if one of them is no digit.
///
/// # Source
///
/// Daniel Lemire, "Quickly parsing eight digits", 2018; Johnny Lee, "Fast numeric string to int", 2016.
#[inline]
pub(super) fn read(digits: [u8; 8]) -> Option<u64> {
    // The first digit in the lowest byte.
    let word = u64::from_le_bytes(digits) ^ ZEROS;
    // More than 9 carries into the top bit of its byte, more than 127 has it.
    if (word.wrapping_add(0x7676_7676_7676_7676) | word) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = (word.wrapping_mul(10) + (word >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours.wrapping_mul(10_000) + (fours >> 32)) & 0xffff_ffff)
}

/// The eight digits of a number below [`LIMIT`].
///
/// Where a quotient is needed in each part of the word, it is a multiplication by a rounded reciprocal that is exact for
/// numbers of that length.
#[inline]
pub(super) const fn write(number: u64) -> [u8; 8] {
    let (above, below) = (number / 10_000, number % 10_000);
    let fours = above | below << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | (fours - hundreds * 100) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | (pairs - tens * 10) << 8;
    (digits | ZEROS).to_le_bytes()
}

#[cfg(test)]
mod tests {
    //! Goal: what is done in parts of a word is what would be done digit by digit.
    //! Method: every number of four digits in both halves, since the halves do not touch, and each foreign byte in
    //! each place.

    use super::*;

    #[test]
    fn every_number_of_four_digits_in_either_half() {
        let step = if cfg!(miri) { 997 } else { 1 };
        for four in (0..10_000_u64).step_by(step) {
            for number in [four, four * 10_000, four * 10_000 + 9_999, 99_990_000 + four] {
                let text = format!("{number:08}");
                assert_eq!(write(number), text.as_bytes());
                assert_eq!(read(write(number)), Some(number));
            }
        }
    }

    #[test]
    fn a_foreign_byte_is_seen_in_every_place() {
        let step = if cfg!(miri) { 15 } else { 1 };
        for byte in (0..=255_u8).step_by(step).filter(|byte| !byte.is_ascii_digit()) {
            for place in 0..8 {
                for digit in [b'0', b'9'] {
                    let mut digits = [digit; 8];
                    digits[place] = byte;
                    assert_eq!(read(digits), None, "{byte} at {place}");
                }
            }
        }
    }
}
