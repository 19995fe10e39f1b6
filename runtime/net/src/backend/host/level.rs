//! The loops compiled for each generation of processors, and the choice among them.
//!
//! There is none for AVX-512. Tried on a server of 2023 it gained a tenth within the first-level
//! cache, and lost up to a factor of ten where operands lie a multiple of 4 KiB apart, as buffers that
//! begin at pages do: a load there seems to wait for older stores at the same place of another page.

use super::loops::Loops;
use crate::dtype::{DType, RedOp};

/// A set of instructions that the loops were compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// The instructions that every processor of the architecture has.
    Base,
    /// AVX2 and F16C (x86-64-v3).
    #[cfg(target_arch = "x86_64")]
    V3,
}

impl Level {
    /// Returns all levels that this processor has, the best one last.
    pub(crate) fn available() -> &'static [Level] {
        #[cfg(target_arch = "x86_64")]
        {
            let v3 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
            if v3 { &[Level::Base, Level::V3] } else { &[Level::Base] }
        }
        #[cfg(not(target_arch = "x86_64"))]
        &[Level::Base]
    }

    /// Returns the loops of a type for copies. They may be called where this level is available.
    pub(super) fn copies(self, dtype: DType) -> &'static Loops {
        match self {
            Level::Base => base::copies(dtype),
            #[cfg(target_arch = "x86_64")]
            Level::V3 => v3::copies(dtype),
        }
    }

    /// Returns the loops of a type and an operator, if the type has the operator. They may be called where
    /// this level is available.
    pub(crate) fn loops(self, dtype: DType, op: RedOp) -> Option<&'static Loops> {
        match self {
            Level::Base => base::loops(dtype, op),
            #[cfg(target_arch = "x86_64")]
            Level::V3 => v3::loops(dtype, op),
        }
    }
}

/// `loops` of a level: the rows of the table of types.
macro_rules! rows {
    ($($variant:ident $name:literal: $rust:ty, $format:ident, $class:ident, $doc:literal;)*) => {
        /// Returns the loops of a type and an operator.
        pub(super) fn loops(dtype: DType, op: RedOp) -> Option<&'static Loops> {
            match dtype {
                $(DType::$variant => with_op!($class, op, O => table!($format, $class, O)),)*
            }
        }

        /// Returns the loops of a type for copies: those of an operator that every type has.
        pub(super) fn copies(dtype: DType) -> &'static Loops {
            match dtype {
                $(DType::$variant => table!($format, $class, Max),)*
            }
        }
    };
}

macro_rules! table {
    ($format:ident, float, $op:ident) => {
        &Floats::<$format, $op>::LOOPS
    };
    ($format:ident, $class:ident, $op:ident) => {
        &Others::<$format, $op>::LOOPS
    };
}

/// A level: its name, how it reads binary16, and the features its loops are compiled for.
macro_rules! level {
    ($level:ident, $half:ident $(, #[$feature:meta])?) => {
        mod $level {
            use std::marker::PhantomData;

            use crate::backend::host::format::{Brain, Format, $half as Half, Native};
            use crate::backend::host::loops::{self, Conversions, Loops};
            use crate::backend::host::ops::{Max, Number, Op, with_op};
            use crate::dtype::{DType, RedOp, dtypes};

            $(#[$feature])?
            unsafe fn pair<F: Native, O: Op<F::Acc>>(a: *const u8, b: *const u8, d: *mut u8, n: usize) {
                // SAFETY: the promises are the same.
                unsafe { loops::combine::<F::Acc, F, F, F, O>(a, b, d, n) };
            }

            $(#[$feature])?
            unsafe fn load<A: Copy + Format<A>, F: Format<A>>(from: *const u8, acc: *mut u8, n: usize) {
                // SAFETY: the promises are the same.
                unsafe { loops::convert::<A, F, A>(from, acc, n) };
            }

            $(#[$feature])?
            unsafe fn fold<A: Copy + Format<A>, F: Format<A>, O: Op<A>>(
                from: *const u8,
                acc: *mut u8,
                n: usize,
            ) {
                // SAFETY: the promises are the same, and an accumulator coincides with itself.
                unsafe { loops::combine::<A, A, F, A, O>(acc, from, acc, n) };
            }

            $(#[$feature])?
            unsafe fn store<A: Copy + Format<A>, F: Format<A>>(acc: *const u8, to: *mut u8, n: usize) {
                // SAFETY: the promises are the same.
                unsafe { loops::convert::<A, A, F>(acc, to, n) };
            }

            $(#[$feature])?
            unsafe fn scale<A: Number, F: Format<A>>(data: *mut u8, n: usize, factor: f64) {
                // SAFETY: the promises are the same.
                unsafe { loops::scale::<A, F>(data, n, factor) };
            }

            $(#[$feature])?
            unsafe fn divide<A: Number, F: Format<A>>(data: *mut u8, n: usize, by: u64) {
                // SAFETY: the promises are the same.
                unsafe { loops::divide::<A, F>(data, n, by) };
            }

            const fn conversions<A: Copy + Format<A>, F: Format<A>, O: Op<A>>() -> Conversions {
                Conversions {
                    size: size_of::<F::Bits>(),
                    load: load::<A, F>,
                    fold: fold::<A, F, O>,
                    store: store::<A, F>,
                }
            }

            const fn table<A: Number, F: Native<Acc = A>, O: Op<A>>(formats: [Conversions; 4]) -> Loops {
                Loops {
                    pair: pair::<F, O>,
                    width: size_of::<A>(),
                    formats,
                    scale: scale::<A, F>,
                    divide: divide::<A, F>,
                }
            }

            /// Types that can be rounded on the wire: their tables know the wire types' formats.
            struct Floats<F, O>(PhantomData<(F, O)>);

            impl<A, F, O: Op<A>> Floats<F, O>
            where
                A: Number + Format<A>,
                F: Native<Acc = A>,
                Half: Format<A>,
                Brain: Format<A>,
                f32: Format<A>,
            {
                const LOOPS: Loops = table::<A, F, O>([
                    conversions::<A, F, O>(),
                    conversions::<A, Half, O>(),
                    conversions::<A, Brain, O>(),
                    conversions::<A, f32, O>(),
                ]);
            }

            /// All other types: any wire type is taken for their own.
            struct Others<F, O>(PhantomData<(F, O)>);

            impl<F: Number + Native<Acc = F>, O: Op<F>> Others<F, O> {
                const LOOPS: Loops = table::<F, F, O>([conversions::<F, F, O>(); 4]);
            }

            dtypes!(rows);
        }
    };
}

level!(base, Half);
#[cfg(target_arch = "x86_64")]
level!(v3, HalfF16c, #[target_feature(enable = "avx2,f16c")]);
