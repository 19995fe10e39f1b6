//! Element types and operators, and which go together.
//!
//! The names are those of the runtime's types, so that one becomes the other by its name.

use roundelay_compiler::device::{DeviceProgram, TaskInput, TaskOutput};
use roundelay_compiler::plan::WireType;

/// Enums with a name for each variant.
macro_rules! named {
    ($(#[$meta:meta])* $type:ident: $($variant:ident $name:literal $doc:literal;)*) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type {
            $(#[doc = $doc] $variant,)*
        }

        impl $type {
            /// All of them.
            pub const ALL: &[$type] = &[$($type::$variant),*];

            /// Returns the name as users write it.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }

            /// Returns the value of that name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|x| x.name() == name)
            }
        }
    };
}

named! {
    /// The type of an element in memory.
    Element:
    F16 "f16" "IEEE binary16, computed with as `f32`.";
    Bf16 "bf16" "bfloat16, computed with as `f32`.";
    F32 "f32" "IEEE binary32.";
    F64 "f64" "IEEE binary64.";
    I8 "i8" "Signed, one byte.";
    U8 "u8" "Unsigned, one byte.";
    I32 "i32" "Signed, four bytes.";
    U32 "u32" "Unsigned, four bytes.";
    I64 "i64" "Signed, eight bytes.";
    U64 "u64" "Unsigned, eight bytes.";
    Bool "bool" "One byte, 0 or 1.";
}

named! {
    /// The operator by which contributions of several ranks become one value.
    Operator:
    Sum "sum" "The sum; integers wrap.";
    Prod "prod" "The product; integers wrap.";
    Min "min" "The least value; NaN if any operand is NaN.";
    Max "max" "The greatest value; NaN if any operand is NaN.";
    Avg "avg" "The sum divided by the number of ranks; integers truncate towards zero.";
    PremulSum "premul_sum" "The sum of operands that were each multiplied by a factor.";
    And "and" "Bitwise and, of integers and `bool`.";
    Or "or" "Bitwise or, of integers and `bool`.";
    Xor "xor" "Bitwise exclusive or, of integers and `bool`.";
}

impl Element {
    /// Returns the bytes of an element.
    pub const fn size(self) -> u32 {
        match self {
            Element::I8 | Element::U8 | Element::Bool => 1,
            Element::F16 | Element::Bf16 => 2,
            Element::F32 | Element::I32 | Element::U32 => 4,
            Element::F64 | Element::I64 | Element::U64 => 8,
        }
    }

    /// Returns true for floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, Element::F16 | Element::Bf16 | Element::F32 | Element::F64)
    }

    /// Returns true if the operator applies to the type.
    pub const fn has(self, operator: Operator) -> bool {
        match operator {
            Operator::Min | Operator::Max => true,
            Operator::And | Operator::Or | Operator::Xor => !self.is_float(),
            _ => !matches!(self, Element::Bool),
        }
    }

    /// Returns its format in the prelude.
    pub(super) fn format(self) -> &'static str {
        match self {
            Element::F16 => "F16",
            Element::Bf16 => "Bf16",
            Element::F32 => "F32",
            Element::F64 => "F64",
            Element::I8 => "I8",
            Element::U8 | Element::Bool => "U8",
            Element::I32 => "I32",
            Element::U32 => "U32",
            Element::I64 => "I64",
            Element::U64 => "U64",
        }
    }

    /// Returns the C++ type in which it is computed.
    pub(super) fn value(self) -> &'static str {
        match self {
            Element::F16 | Element::Bf16 | Element::F32 => "float",
            Element::F64 => "double",
            Element::I8 | Element::I32 => "i32",
            Element::U8 | Element::Bool | Element::U32 => "u32",
            Element::I64 => "i64",
            Element::U64 => "u64",
        }
    }

    /// Returns the wire type, unless it is the element type itself.
    pub(super) fn wire(self, wire: Option<WireType>) -> Option<WireType> {
        wire.filter(|wire| wire.name() != self.name())
    }
}

impl Operator {
    /// Returns its name in the prelude, for two operands.
    pub(super) fn pair(self) -> &'static str {
        match self {
            Operator::Sum | Operator::Avg | Operator::PremulSum => "Sum",
            Operator::Prod => "Prod",
            Operator::Min => "Min",
            Operator::Max => "Max",
            Operator::And => "And",
            Operator::Or => "Or",
            Operator::Xor => "Xor",
        }
    }
}

/// Returns the bytes of an element on the wire, and its format in the prelude.
pub(super) fn of_wire(wire: WireType) -> (u32, &'static str) {
    match wire {
        WireType::F16 => (2, "F16"),
        WireType::Bf16 => (2, "Bf16"),
        WireType::F32 => (4, "F32"),
    }
}

/// Returns the wire types of a program's messages.
pub(super) fn wires(program: &DeviceProgram) -> impl Iterator<Item = WireType> + '_ {
    program.phases.iter().flat_map(|phase| &phase.tasks).flat_map(|task| {
        let inputs = task.inputs.iter().filter_map(|source| match source {
            TaskInput::Packet(_, wire) | TaskInput::Staged(_, wire) => *wire,
            TaskInput::Local(_) | TaskInput::Pulled(..) => None,
        });
        let outs = task.outs.iter().filter_map(|target| match target {
            TaskOutput::Packet(_, wire) | TaskOutput::Staged(_, wire) => *wire,
            TaskOutput::Landed(..) => None,
        });
        inputs.chain(outs)
    })
}
