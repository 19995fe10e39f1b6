//! Mixes words into digests that ranks compare.

/// Mixes a word into a digest.
#[inline]
pub fn mix(digest: u64, word: u64) -> u64 {
    let x = (digest.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 29)
}
