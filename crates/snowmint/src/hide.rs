//! Ids for the public: a keyed, reversible permutation of all 63-bit numbers.
//! A hidden id does not reveal when it was made, by which worker, or how many ids came before it.

use core::fmt;

use aes::Aes128Enc;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};

use crate::Id;

/// Bits of the left half, whose round is even; the right half has one more.
const LEFT_BITS: u32 = 31;
const RIGHT_BITS: u32 = 32;

/// P of FF1: its version, method and addition (1, 2, 1), the radix 2, 10 rounds, the length of the left half,
/// the length of the number, and the length of the tweak, which is empty.
const FIRST_BLOCK: [u8; 16] = [1, 2, 1, 0, 0, 2, 10, 31, 0, 0, 0, 63, 0, 0, 0, 0];

/// Encrypts ids into numbers of the same size, and decrypts them, with a key.
///
/// The plain ids of two orders reveal how many orders were made between them, and when. Hidden, they are two
/// numbers in `0..2^63` that look random; each key gives other numbers. A hidden id is again an [`Id`] and
/// goes through any text form: 11 characters in [base62](crate::codec::Alphabet::BASE62). Store the id and
/// hide it at the edge: hidden ids do not sort by time.
///
/// # What it is not
///
/// - No authentication: every number decrypts to some id, so check that the id exists and that the caller may
///   see it.
/// - No random mask: under one key, an id always gives the same hidden id. Use one key for each kind of
///   object, otherwise the same number of two kinds has the same hidden id.
/// - No key management: anyone with the key can read every hidden id, and a new key changes all of them.
/// - No short text: a small number becomes a long one. If short texts for small numbers matter more than
///   secrecy, use the crate `sqids`.
///
/// # Construction
///
/// FF1 of NIST SP 800-38G with AES-128, radix 2, 63 digits and an empty tweak: a Feistel network of ten
/// rounds over 31 and 32 bits. It permutes 63-bit numbers directly, so it needs no cycle walking. A round
/// costs one AES block, with AES instructions if the processor has them. The tests compare it with the crate
/// `fpe`.
///
/// # Examples
///
/// ```
/// use snowmint::{codec::Alphabet, hide::Hider, Id};
/// let hider = Hider::new(b"0123456789abcdef"); // 16 random bytes from your secrets, never a literal
/// let (first, second) = (Id::new(1541815603606036480)?, Id::new(1541815603606036481)?);
/// assert_eq!(Alphabet::BASE62.encode(hider.hide(first)).as_str(), "9tbfyZNgzPV");
/// assert_eq!(Alphabet::BASE62.encode(hider.hide(second)).as_str(), "1egSuAXXFEB");
/// assert_eq!(hider.reveal(hider.hide(first)), first);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
///
/// NIST SP 800-38G, "Methods for Format-Preserving Encryption", algorithms 7 and 8.
#[derive(Clone)]
pub struct Hider {
    cipher: Aes128Enc,
    /// The ciphertext of the first block, the same for every id.
    first: u128,
}

impl Hider {
    /// Makes a hider from a key of 16 secret, random bytes. Neither allocates nor fails.
    pub fn new(key: &[u8; 16]) -> Self {
        let cipher = Aes128Enc::new(&Array(*key));
        let mut hider = Self { cipher, first: 0 };
        hider.first = hider.encrypt(u128::from_be_bytes(FIRST_BLOCK));
        hider
    }

    /// Returns the hidden id to show for an id.
    pub fn hide(&self, id: Id) -> Id {
        let (mut left, mut right) = halves(id);
        for round in 0..10 {
            let sum = left.wrapping_add(self.round(round, right)) & mask(round);
            (left, right) = (right, sum);
        }
        join(left, right)
    }

    /// Returns the id of a hidden id, the inverse of [`hide`](Self::hide); every number has one.
    pub fn reveal(&self, hidden: Id) -> Id {
        let (mut left, mut right) = halves(hidden);
        for round in (0..10).rev() {
            let difference = right.wrapping_sub(self.round(round, left)) & mask(round);
            (left, right) = (difference, left);
        }
        join(left, right)
    }

    /// Returns a check value of the key. It distinguishes keys and reveals nothing about a key or an id.
    ///
    /// Two different keys have the same value with a probability of 1 in 2^64. Processes compare it before
    /// they hide ids of one kind: ids hidden under two keys could be equal.
    pub fn check_value(&self) -> [u8; 8] {
        // A block that FF1 does not use: its first block begins otherwise, and the others are masked by a
        // ciphertext.
        let block = self.encrypt(u128::from_be_bytes(*b"snowmint hide ck"));
        let mut value = [0; 8];
        value.copy_from_slice(&block.to_be_bytes()[..8]);
        value
    }

    /// Returns the low 32 bits of FF1's y; the modulus drops the others.
    #[expect(clippy::cast_possible_truncation, reason = "bits 64 to 95 are asked for")]
    fn round(&self, round: u8, half: u32) -> u32 {
        // Q is eleven zeros, the round and the half: one block, chained to the cipher of P.
        let block = u128::from(round) << 32 | u128::from(half);
        (self.encrypt(self.first ^ block) >> 64) as u32
    }

    fn encrypt(&self, block: u128) -> u128 {
        let mut block = Array(block.to_be_bytes());
        self.cipher.encrypt_block(&mut block);
        u128::from_be_bytes(block.0)
    }
}

impl fmt::Debug for Hider {
    /// Prints nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hider")
    }
}

#[expect(clippy::cast_possible_truncation, reason = "63 bits are cut into 31 and 32")]
const fn halves(id: Id) -> (u32, u32) {
    ((id.get() >> RIGHT_BITS) as u32, id.get() as u32)
}

const fn join(left: u32, right: u32) -> Id {
    Id::from_layout((left as u64) << RIGHT_BITS | right as u64)
}

/// Returns the mask of the half that a round writes: 31 bits in even rounds, 32 in odd ones.
const fn mask(round: u8) -> u32 {
    if round.is_multiple_of(2) { u32::MAX >> (RIGHT_BITS - LEFT_BITS) } else { u32::MAX }
}
