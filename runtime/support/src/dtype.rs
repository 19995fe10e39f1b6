//! Element types and reduction operators.
//!
//! `dtypes!` and `red_ops!` are the tables that everything else is made from: a type is added by
//! one row here, an operator by one row and its arithmetic in `backend/host/ops.rs`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Expands `$then!` with one row a type: variant, name, Rust type, the format in which the host's
/// kernels read it (`backend/host/format.rs`), and the class of operators it has.
macro_rules! dtypes {
    ($then:ident) => {
        $then! {
            F16 "f16": half::f16, HalfFloat, float, "IEEE binary16.";
            Bf16 "bf16": half::bf16, BrainFloat, float, "bfloat16: the upper half of an `f32`.";
            F32 "f32": f32, f32, float, "IEEE binary32.";
            F64 "f64": f64, f64, float, "IEEE binary64.";
            I8 "i8": i8, i8, integer, "Signed, one byte.";
            U8 "u8": u8, u8, integer, "Unsigned, one byte.";
            I32 "i32": i32, i32, integer, "Signed, four bytes.";
            U32 "u32": u32, u32, integer, "Unsigned, four bytes.";
            I64 "i64": i64, i64, integer, "Signed, eight bytes.";
            U64 "u64": u64, u64, integer, "Unsigned, eight bytes.";
            Bool "bool": MemoryBool, u8, logical, "One byte: false if it is 0, true if it is anything else.";
        }
    };
}
pub(crate) use dtypes;

/// Expands `$then!` with one row an operator: variant, name.
macro_rules! red_ops {
    ($then:ident) => {
        $then! {
            Sum "sum", "The sum; integers wrap.";
            Prod "prod", "The product; integers wrap.";
            Min "min", "The least value; NaN if any operand is NaN.";
            Max "max", "The greatest value; NaN if any operand is NaN.";
            Avg "avg", "The sum divided by the number of ranks; integers truncate towards zero.";
            PremulSum "premul_sum", "The sum of operands that were each multiplied by a factor, a whole number for integers.";
            And "and", "Bitwise and, of integers and `bool`.";
            Or "or", "Bitwise or, of integers and `bool`.";
            Xor "xor", "Bitwise exclusive or, of integers and `bool`.";
        }
    };
}

/// An enum whose variants have names: `ALL`, `name`, `Display` and `FromStr`.
macro_rules! named {
    ($(#[$meta:meta])* $type:ident $kind:literal: $($variant:ident $name:literal $doc:literal;)*) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $type {
            $(#[doc = $doc] $variant,)*
        }

        impl $type {
            /// All of them, in the order of declaration.
            pub const ALL: &[$type] = &[$($type::$variant),*];

            /// Returns the name as written on the command line and in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                match text {
                    $($name => Ok($type::$variant),)*
                    _ => Err(UnknownName { kind: $kind, text: text.into(), known: &[$($name),*] }),
                }
            }
        }
    };
}

/// True for the class of floating-point types.
macro_rules! is_float {
    (float) => {
        true
    };
    ($other:ident) => {
        false
    };
}

macro_rules! define_dtypes {
    ($($variant:ident $name:literal: $rust:ty, $format:ident, $class:ident, $doc:literal;)*) => {
        named! {
            /// The type of an element in memory.
            DType "element type":
            $($variant $name $doc;)*
        }

        impl DType {
            /// Returns the bytes of one element.
            pub const fn size(self) -> usize {
                match self {
                    $(DType::$variant => size_of::<$rust>(),)*
                }
            }

            /// Returns true for floating-point types.
            pub const fn is_float(self) -> bool {
                match self {
                    $(DType::$variant => is_float!($class),)*
                }
            }
        }

        $(
            impl sealed::SealedElement for $rust {}
            impl Element for $rust {
                const DTYPE: DType = DType::$variant;
            }
        )*
    };
}

macro_rules! define_red_ops {
    ($($variant:ident $name:literal, $doc:literal;)*) => {
        named! {
            /// The operator that combines the contributions of several ranks into one value.
            RedOp "operator":
            $($variant $name $doc;)*
        }
    };
}

dtypes!(define_dtypes);
red_ops!(define_red_ops);

/// A Rust type that buffers can hold: `DTYPE.size()` bytes without padding, of which all values are allowed.
/// Other ranks and peers write these bytes, so that a type with forbidden ones, as `bool`, is none:
///
/// ```compile_fail,E0277
/// fn elements<T: roundelay_support::dtype::Element>(_: &[T]) {}
/// elements(&[true, false]);
/// ```
///
/// [`MemoryBool`] is its one for truth values:
///
/// ```
/// fn elements<T: roundelay_support::dtype::Element>(_: &[T]) {}
/// elements(&[true, false].map(roundelay_support::dtype::MemoryBool::from));
/// ```
pub trait Element:
    sealed::SealedElement + bytemuck::Pod + PartialEq + fmt::Debug + Send + Sync + 'static
{
    /// The element type as data.
    const DTYPE: DType;
}

/// A truth value in memory that other ranks and peers write: one byte, false if it is 0. Unlike a `bool` it may hold
/// any byte, so that what arrives from another program is a value whatever it is.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct MemoryBool(u8);

impl MemoryBool {
    /// The byte 0.
    pub const FALSE: MemoryBool = MemoryBool(0);
    /// The byte 1.
    pub const TRUE: MemoryBool = MemoryBool(1);

    /// Returns the value.
    pub const fn get(self) -> bool {
        self.0 != 0
    }

    /// Returns truth values as calls read them, in place.
    pub fn slice(values: &[bool]) -> &[MemoryBool] {
        bytemuck::cast_slice(bytemuck::cast_slice::<bool, u8>(values))
    }
}

impl From<bool> for MemoryBool {
    fn from(value: bool) -> Self {
        MemoryBool(value.into())
    }
}

impl From<MemoryBool> for bool {
    fn from(value: MemoryBool) -> Self {
        value.get()
    }
}

impl PartialEq for MemoryBool {
    fn eq(&self, other: &MemoryBool) -> bool {
        self.get() == other.get()
    }
}

impl Eq for MemoryBool {}

impl PartialEq<bool> for MemoryBool {
    fn eq(&self, other: &bool) -> bool {
        self.get() == *other
    }
}

impl fmt::Debug for MemoryBool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

mod sealed {
    /// Keeps `Element` to the rows of the table, on which unsafe code relies.
    pub trait SealedElement {}
}

/// A text that names no element type, or no operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {kind} is called `{text}`; there are {}", known.join(", "))]
pub struct UnknownName {
    kind: &'static str,
    text: String,
    known: &'static [&'static str],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for &dtype in DType::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
        }
        for &op in RedOp::ALL {
            assert_eq!(op.name().parse(), Ok(op));
        }
        assert_eq!(RedOp::PremulSum.to_string(), "premul_sum");
    }

    #[test]
    fn every_byte_is_a_truth_value() {
        for byte in 0..=255u8 {
            let value: MemoryBool = bytemuck::cast(byte);
            assert_eq!(bool::from(value), byte != 0);
            assert!(value == (byte != 0) && value == MemoryBool::from(byte != 0));
        }
        assert_eq!(MemoryBool::slice(&[true, false]), [MemoryBool::TRUE, MemoryBool::FALSE]);
        assert_eq!(format!("{:?}", [MemoryBool(7), MemoryBool(0)]), "[true, false]");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = "f8".parse::<DType>().unwrap_err().to_string();
        assert_eq!(
            error,
            "no element type is called `f8`; \
             there are f16, bf16, f32, f64, i8, u8, i32, u32, i64, u64, bool"
        );
    }

    #[test]
    fn sizes_are_those_of_the_rust_types() {
        let sizes: Vec<usize> = DType::ALL.iter().map(|d| d.size()).collect();
        assert_eq!(sizes, [2, 2, 4, 8, 1, 1, 4, 4, 8, 8, 1]);
        assert_eq!(<half::bf16 as Element>::DTYPE, DType::Bf16);
        let floats: Vec<DType> = DType::ALL.iter().copied().filter(|d| d.is_float()).collect();
        assert_eq!(floats, [DType::F16, DType::Bf16, DType::F32, DType::F64]);
    }
}
