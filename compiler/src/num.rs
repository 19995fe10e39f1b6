//! Conversions between numbers: the compiler has no other (`clippy::as_conversions` is denied), so that none
//! is cut to another number without a word. What does not fit becomes the greatest number of its type, which
//! no index, count or rank is: limits that are checked elsewhere exclude it, and an index of it is refused.

/// Converts a number into an index.
pub fn index(v: impl TryInto<usize>) -> usize {
    v.try_into().unwrap_or(usize::MAX)
}

/// Converts a length or a count into a 64-bit number.
pub fn wide(v: impl TryInto<u64>) -> u64 {
    v.try_into().unwrap_or(u64::MAX)
}

/// Converts a 32-bit number into a 64-bit one, in constants.
#[expect(clippy::as_conversions, reason = "`From` is not constant")]
pub const fn wide32(v: u32) -> u64 {
    v as u64
}

/// Converts a number of ranks, chunks or entries of a list into a 32-bit number.
pub fn count(v: impl TryInto<u32>) -> u32 {
    v.try_into().unwrap_or(u32::MAX)
}

/// Converts a number of lanes, rules or scratch memories into a 16-bit number.
pub(crate) fn short(v: impl TryInto<u16>) -> u16 {
    v.try_into().unwrap_or(u16::MAX)
}

/// Converts a length into a signed number, as expressions count.
pub fn signed(v: impl TryInto<i64>) -> i64 {
    v.try_into().unwrap_or(i64::MAX)
}

/// Converts a value of an expression into a 32-bit number, if it is one.
pub(crate) fn narrow(v: i64) -> Option<u32> {
    u32::try_from(v).ok()
}

/// A count as a floating-point number, for costs: exact to 2^53.
#[expect(
    clippy::as_conversions,
    reason = "no conversion of 64-bit counts is in the standard library"
)]
pub fn float(v: impl TryInto<u64>) -> f64 {
    wide(v) as f64
}

/// Returns the whole part of a cost; 0 if it is negative or not a number.
#[expect(clippy::as_conversions, reason = "such a cast saturates, and there is no other")]
pub(crate) fn whole(v: f64) -> u64 {
    v as u64
}
