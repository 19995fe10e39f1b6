//! The operators: what each does to two values, and which types have it.

/// A binary operator on `A`.
pub(super) trait BinaryOp<A>: 'static {
    /// Combines the value so far with the next operand.
    fn apply(so_far: A, next: A) -> A;
}

/// One row an operator and a group of types: `so_far, next => result`.
macro_rules! operators {
    ($($op:ident: $($type:ty)*, $a:ident, $b:ident => $result:expr;)*) => {
        $($(
            impl BinaryOp<$type> for $op {
                #[inline(always)]
                fn apply($a: $type, $b: $type) -> $type {
                    $result
                }
            }
        )*)*
    };
}

pub(super) struct SumOp;
pub(super) struct ProdOp;
pub(super) struct MinOp;
pub(super) struct MaxOp;
pub(super) struct AndOp;
pub(super) struct OrOp;
pub(super) struct XorOp;

operators! {
    SumOp: f32 f64, a, b => a + b;
    SumOp: i8 u8 i32 u32 i64 u64, a, b => a.wrapping_add(b);
    ProdOp: f32 f64, a, b => a * b;
    ProdOp: i8 u8 i32 u32 i64 u64, a, b => a.wrapping_mul(b);
    // Equal operands give the first; if either is NaN, that one.
    MinOp: f32 f64, a, b => if (b < a) | b.is_nan() { b } else { a };
    MaxOp: f32 f64, a, b => if (b > a) | b.is_nan() { b } else { a };
    MinOp: i8 u8 i32 u32 i64 u64, a, b => a.min(b);
    MaxOp: i8 u8 i32 u32 i64 u64, a, b => a.max(b);
    AndOp: i8 u8 i32 u32 i64 u64, a, b => a & b;
    OrOp: i8 u8 i32 u32 i64 u64, a, b => a | b;
    XorOp: i8 u8 i32 u32 i64 u64, a, b => a ^ b;
}

/// The operators of each class of types: evaluates `$body` with `$name` as the operator's type, or
/// is `None` if the class has no such operator.
macro_rules! with_op {
    (float, $op:expr, $name:ident => $body:expr) => {
        with_op!(@ $op, $name => $body, Sum | Avg | PremulSum = SumOp, Prod = ProdOp, Min = MinOp, Max = MaxOp)
    };
    (integer, $op:expr, $name:ident => $body:expr) => {
        with_op!(@ $op, $name => $body, Sum | Avg | PremulSum = SumOp, Prod = ProdOp, Min = MinOp, Max = MaxOp,
            And = AndOp, Or = OrOp, Xor = XorOp)
    };
    (logical, $op:expr, $name:ident => $body:expr) => {
        with_op!(@ $op, $name => $body, Min = MinOp, Max = MaxOp, And = AndOp, Or = OrOp, Xor = XorOp)
    };
    (@ $op:expr, $name:ident => $body:expr, $($($variant:ident)|+ = $type:ident),*) => {
        match $op {
            $($(crate::dtype::RedOp::$variant)|+ => {
                type $name = crate::backend::host::ops::$type;
                Some($body)
            })*
            #[allow(unreachable_patterns, reason = "a class may have every operator")]
            _ => None,
        }
    };
}
pub(crate) use with_op;

/// The types that arithmetic is done in: what `scale` and `divide` mean for them.
pub(crate) trait ArithmeticType: Copy + 'static {
    /// Divides by a count, prepared once for a whole loop.
    type Divisor: Copy;

    /// Returns the factor as a value of this type.
    fn factor(factor: f64) -> Self;

    /// Returns the product; integers wrap.
    fn times(self, factor: Self) -> Self;

    /// Prepares a division.
    fn divisor(n: u64) -> Self::Divisor;

    /// Returns the quotient; integers truncate towards zero.
    fn over(self, divisor: Self::Divisor) -> Self;
}

macro_rules! floats {
    ($($type:ty)*) => {$(
        impl ArithmeticType for $type {
            type Divisor = $type;

            #[inline(always)]
            fn factor(factor: f64) -> $type {
                factor as $type
            }

            #[inline(always)]
            fn times(self, factor: $type) -> $type {
                self * factor
            }

            #[inline(always)]
            fn divisor(n: u64) -> $type {
                n as $type
            }

            #[inline(always)]
            fn over(self, divisor: $type) -> $type {
                self / divisor
            }
        }
    )*};
}

macro_rules! integers {
    ($($type:ty as $wide:ty)*) => {$(
        impl ArithmeticType for $type {
            type Divisor = $wide;

            #[inline(always)]
            fn factor(factor: f64) -> $type {
                // Through the widest type of the same sign, so that a large factor wraps like the
                // product does; a negative one for an unsigned type wraps as well.
                if factor < 0.0 { factor as i64 as $type } else { factor as u64 as $type }
            }

            #[inline(always)]
            fn times(self, factor: $type) -> $type {
                self.wrapping_mul(factor)
            }

            #[inline(always)]
            fn divisor(n: u64) -> $wide {
                <$wide>::try_from(n.max(1)).unwrap_or(<$wide>::MAX)
            }

            #[inline(always)]
            fn over(self, divisor: $wide) -> $type {
                // The divisor is at least 1, so this neither traps nor overflows.
                (<$wide>::from(self).wrapping_div(divisor)) as $type
            }
        }
    )*};
}

floats!(f32 f64);
integers!(i8 as i64 u8 as u64 i32 as i64 u32 as u64 i64 as i64 u64 as u64);
