//! Functions of numbers. In an algorithm the compiler computes them; here they have the same values, for
//! helper functions that Rust calls. Where the language has no value, such as `log2(0)`, they give 0.

use roundelay_compiler::operate;
use roundelay_compiler::program::BuiltinFunction;
use roundelay_dsl::ast::BinOp;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),*) = $builtin:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name($($arg: i64),*) -> i64 {
            BuiltinFunction::$builtin.value(&[$($arg),*]).unwrap_or_default()
        }
    )*};
}

functions! {
    /// The logarithm of x > 0 to the base 2, rounded down.
    log2(x) = Log2;
    /// The logarithm of x > 0 to the base 2, rounded up.
    ceil_log2(x) = CeilLog2;
    /// The logarithm of x > 0 to a base of 2 or more, rounded down.
    log(base, x) = Log;
    /// The logarithm of x > 0 to a base of 2 or more, rounded up.
    ceil_log(base, x) = CeilLog;
    /// `base` to the `exponent`.
    pow(base, exponent) = Pow;
    /// The smaller one.
    min(a, b) = Min;
    /// The larger one.
    max(a, b) = Max;
    /// The absolute value of x.
    abs(x) = Abs;
    /// a / b, rounded up.
    ceil_div(a, b) = CeilDiv;
    /// The lowest `bits` bits of x, in reverse.
    bit_reverse(x, bits) = BitReverse;
    /// The number of bits that are set.
    popcount(x) = Popcount;
    /// Zeros below the lowest bit of x > 0.
    trailing_zeros(x) = TrailingZeros;
    /// The lowest bit that is set, as a number.
    lowbit(x) = Lowbit;
    /// The greatest common divisor.
    gcd(a, b) = Gcd;
}

macro_rules! questions {
    ($($(#[$doc:meta])* $name:ident = $builtin:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(x: i64) -> bool {
            BuiltinFunction::$builtin.value(&[x]) == Ok(1)
        }
    )*};
}

questions! {
    /// True if x is a power of two.
    pow2 = Pow2;
    /// True if x is even.
    even = Even;
    /// True if x is odd.
    odd = Odd;
}

/// True if x is a power of `base`, which is 2 or more.
pub fn is_power(base: i64, x: i64) -> bool {
    BuiltinFunction::IsPower.value(&[base, x]) == Ok(1)
}

/// Returns the weight of a path, in a `split` over paths.
pub fn bandwidth(_path: i64) -> i64 {
    0
}

/// Returns a / b, rounded down.
pub fn divide(a: i64, b: i64) -> i64 {
    operate(BinOp::Div, a, b).unwrap_or_default()
}

/// Returns a - b * (a / b) with that division: never negative for a positive b.
pub fn modulus(a: i64, b: i64) -> i64 {
    operate(BinOp::Mod, a, b).unwrap_or_default()
}
