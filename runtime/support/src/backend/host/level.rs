//! The loops compiled for each generation of processors, and the choice among them.
//!
//! There is none for AVX-512. Tried on a server of 2023 it gained a tenth within the first-level
//! cache, and lost up to a factor of ten where operands lie a multiple of 4 KiB apart, as buffers that
//! begin at pages do: a load there seems to wait for older stores at the same place of another page.

use super::loops::KernelLoops;
use crate::dtype::{DType, RedOp};

/// A set of instructions that the loops were compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstructionLevel {
    /// The instructions that every processor of the architecture has.
    Base,
    /// AVX2 and F16C (x86-64-v3).
    #[cfg(target_arch = "x86_64")]
    V3,
}

impl InstructionLevel {
    /// Returns all levels that this processor has, the best one last.
    pub(crate) fn available() -> &'static [InstructionLevel] {
        #[cfg(target_arch = "x86_64")]
        {
            let v3 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
            if v3 {
                &[InstructionLevel::Base, InstructionLevel::V3]
            } else {
                &[InstructionLevel::Base]
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        &[InstructionLevel::Base]
    }

    /// Returns the loops of a type for copies. They may be called where this level is available.
    pub(super) fn copies(self, dtype: DType) -> &'static KernelLoops {
        match self {
            InstructionLevel::Base => base::copies(dtype),
            #[cfg(target_arch = "x86_64")]
            InstructionLevel::V3 => v3::copies(dtype),
        }
    }

    /// Returns the loops of a type and an operator, if the type has the operator. They may be called where
    /// this level is available.
    pub(crate) fn loops(self, dtype: DType, op: RedOp) -> Option<&'static KernelLoops> {
        match self {
            InstructionLevel::Base => base::loops(dtype, op),
            #[cfg(target_arch = "x86_64")]
            InstructionLevel::V3 => v3::loops(dtype, op),
        }
    }
}

/// `loops` of a level: the rows of the table of types.
macro_rules! rows {
    ($($variant:ident $name:literal: $rust:ty, $format:ident, $class:ident, $doc:literal;)*) => {
        /// Returns the loops of a type and an operator.
        pub(super) fn loops(dtype: DType, op: RedOp) -> Option<&'static KernelLoops> {
            match dtype {
                $(DType::$variant => with_op!($class, op, O => table!($format, $class, O)),)*
            }
        }

        /// Returns the loops of a type for copies: those of an operator that every type has.
        pub(super) fn copies(dtype: DType) -> &'static KernelLoops {
            match dtype {
                $(DType::$variant => table!($format, $class, MaxOp),)*
            }
        }
    };
}

macro_rules! table {
    ($format:ident, float, $op:ident) => {
        &FloatTables::<$format, $op>::LOOPS
    };
    ($format:ident, $class:ident, $op:ident) => {
        &OtherTables::<$format, $op>::LOOPS
    };
}

/// A level: its name, how it reads binary16, and the features its loops are compiled for.
macro_rules! level {
    ($level:ident, $half:ident $(, #[$feature:meta])?) => {
        mod $level {
            use std::marker::PhantomData;

            use crate::backend::host::format::{BrainFloat, ValueFormat, $half as HalfFloat, NativeFormat};
            use crate::backend::host::loops::{self, FormatConversions, KernelLoops};
            use crate::backend::host::ops::{MaxOp, ArithmeticType, BinaryOp, with_op};
            use crate::dtype::{DType, RedOp, dtypes};

            $(#[$feature])?
            unsafe fn pair<F: NativeFormat, O: BinaryOp<F::Acc>>(a: *const u8, b: *const u8, d: *mut u8, n: usize) {
                // SAFETY: the promises are the same.
                unsafe { loops::combine::<F::Acc, F, F, F, O>(a, b, d, n) };
            }

            $(#[$feature])?
            unsafe fn load<A: Copy + ValueFormat<A>, F: ValueFormat<A>>(from: *const u8, acc: *mut u8, n: usize) {
                // SAFETY: the promises are the same.
                unsafe { loops::convert::<A, F, A>(from, acc, n) };
            }

            $(#[$feature])?
            unsafe fn fold<A: Copy + ValueFormat<A>, F: ValueFormat<A>, O: BinaryOp<A>>(
                from: *const u8,
                acc: *mut u8,
                n: usize,
            ) {
                // SAFETY: the promises are the same, and an accumulator coincides with itself.
                unsafe { loops::combine::<A, A, F, A, O>(acc, from, acc, n) };
            }

            $(#[$feature])?
            unsafe fn store<A: Copy + ValueFormat<A>, F: ValueFormat<A>>(acc: *const u8, to: *mut u8, n: usize) {
                // SAFETY: the promises are the same.
                unsafe { loops::convert::<A, A, F>(acc, to, n) };
            }

            $(#[$feature])?
            unsafe fn scale<A: ArithmeticType, F: ValueFormat<A>>(data: *mut u8, n: usize, factor: f64) {
                // SAFETY: the promises are the same.
                unsafe { loops::scale::<A, F>(data, n, factor) };
            }

            $(#[$feature])?
            unsafe fn divide<A: ArithmeticType, F: ValueFormat<A>>(data: *mut u8, n: usize, by: u64) {
                // SAFETY: the promises are the same.
                unsafe { loops::divide::<A, F>(data, n, by) };
            }

            const fn conversions<A: Copy + ValueFormat<A>, F: ValueFormat<A>, O: BinaryOp<A>>() -> FormatConversions {
                FormatConversions {
                    size: size_of::<F::Bits>(),
                    load: load::<A, F>,
                    fold: fold::<A, F, O>,
                    store: store::<A, F>,
                }
            }

            const fn table<A: ArithmeticType, F: NativeFormat<Acc = A>, O: BinaryOp<A>>(formats: [FormatConversions; 4]) -> KernelLoops {
                KernelLoops {
                    pair: pair::<F, O>,
                    width: size_of::<A>(),
                    formats,
                    scale: scale::<A, F>,
                    divide: divide::<A, F>,
                }
            }

            /// Types that can be rounded on the wire: their tables have the wire types' formats.
            struct FloatTables<F, O>(PhantomData<(F, O)>);

            impl<A, F, O: BinaryOp<A>> FloatTables<F, O>
            where
                A: ArithmeticType + ValueFormat<A>,
                F: NativeFormat<Acc = A>,
                HalfFloat: ValueFormat<A>,
                BrainFloat: ValueFormat<A>,
                f32: ValueFormat<A>,
            {
                const LOOPS: KernelLoops = table::<A, F, O>([
                    conversions::<A, F, O>(),
                    conversions::<A, HalfFloat, O>(),
                    conversions::<A, BrainFloat, O>(),
                    conversions::<A, f32, O>(),
                ]);
            }

            /// All other types: any wire type is taken for their own.
            struct OtherTables<F, O>(PhantomData<(F, O)>);

            impl<F: ArithmeticType + NativeFormat<Acc = F>, O: BinaryOp<F>> OtherTables<F, O> {
                const LOOPS: KernelLoops = table::<F, F, O>([conversions::<F, F, O>(); 4]);
            }

            dtypes!(rows);
        }
    };
}

level!(base, HalfFloat);
#[cfg(target_arch = "x86_64")]
level!(v3, HalfF16c, #[target_feature(enable = "avx2,f16c")]);
