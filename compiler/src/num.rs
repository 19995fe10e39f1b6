//! Conversions between integers that lose nothing, where `From` has none.

/// A number as an index: no machine that this runs on has narrower addresses.
pub(crate) fn index(i: u32) -> usize {
    usize::try_from(i).unwrap_or(usize::MAX)
}

/// A length as a 64-bit number.
pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// A length that is known to be small, such as that of a list whose indices are 32-bit numbers; the greatest
/// number where it is not.
pub(crate) fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// What is known to be less than some 32-bit number, such as a remainder by one; the greatest number where it
/// is not.
pub(crate) fn low(v: u64) -> u32 {
    u32::try_from(v).unwrap_or(u32::MAX)
}

/// A length as a signed number, as expressions count.
pub(crate) fn signed(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

/// A value of an expression as a 32-bit number, if it is one.
pub(crate) fn narrow(v: i64) -> Option<u32> {
    u32::try_from(v).ok()
}
