//! The kernel of a program.

use std::fmt;

use super::body;
use super::multicast;
use super::spec::{INCLUDE, KERNEL, KernelSpec, PRELUDE};
use super::types::{self, Element, Operator};
use roundelay_compiler::device::abi::THREADS;
use roundelay_compiler::device::{DeviceProtocol, ProvedProgram};
use roundelay_compiler::plan::{BufferPlacement, WireType};

/// Returns true if chunks of a vector of `elements` elements (`blocks * count`) all begin and end at
/// multiples of 16 bytes.
pub fn aligned(chunks: u32, elements: u64, element: Element) -> bool {
    let group = u64::from(16 / element.size());
    elements.is_multiple_of(u64::from(chunks.max(1)) * group)
}

/// A kernel's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSource {
    body: String,
}

impl KernelSource {
    /// Returns the whole source, for a compiler: one file that includes nothing.
    pub fn text(&self) -> String {
        whole(&self.body)
    }
}

/// Returns a text with the prelude in place of the lines that stand for it.
pub(super) fn whole(text: &str) -> String {
    text.replace(INCLUDE, PRELUDE)
}

/// The part that is the program's own; the prelude stands there as an `#include`.
impl fmt::Display for KernelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.body)
    }
}

/// The reasons for which no kernel can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsupportedKernel {
    /// The type has no such operator.
    Operator(Element, Operator),
    /// Only floats are rounded on the wire.
    WireType(Element, WireType),
    /// More ranks than a kernel's parameters have room for, or none.
    Ranks(u32),
    /// The switch has no such operator for the type.
    Reduction(Element, Operator),
    /// The switch takes 16 bytes at a time.
    Unaligned,
    /// Operands cannot be multiplied before the switch adds them.
    Factor,
    /// A function cannot start copy engines.
    Engines,
    /// A function cannot have its host carry messages.
    Far,
    /// A function cannot be called so.
    Name(String),
}

impl fmt::Display for UnsupportedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnsupportedKernel::Operator(element, operator) => {
                write!(f, "`{}` of {} has no meaning", operator.name(), element.name())
            }
            UnsupportedKernel::WireType(element, wire) => write!(
                f,
                "{} cannot travel as {}: only f16, bf16, f32 and f64 are rounded on the wire",
                element.name(),
                wire.name()
            ),
            UnsupportedKernel::Ranks(n) => {
                write!(f, "{n} ranks: the parameters of a kernel have room for {MOST_RANKS}")
            }
            UnsupportedKernel::Reduction(element, operator) => {
                write!(f, "the switch has no `{}` of {}", operator.name(), element.name())
            }
            UnsupportedKernel::Unaligned => f.write_str(
                "the switch takes 16 bytes at a time: buffers and their chunks must begin at multiples of that",
            ),
            UnsupportedKernel::Factor => f.write_str(
                "the switch adds what lies in the buffers: out of place there is no `premul_sum`",
            ),
            UnsupportedKernel::Engines => f.write_str(
                "copy engines are started by the host: a function of a kernel runs packet, staged, put or get",
            ),
            UnsupportedKernel::Far => f.write_str(
                "messages between hosts are carried by threads to which the host hands each call: a function of a \
                 kernel reaches as far as its host",
            ),
            UnsupportedKernel::Name(name) => write!(
                f,
                "`{name}` is no name of a namespace: letters, digits and `_`, no digit first, and no keyword of C++"
            ),
        }
    }
}

impl std::error::Error for UnsupportedKernel {}

/// Parameters are at most 4 KiB, and have four addresses a rank.
pub const MOST_RANKS: u32 = 120;

/// Returns the kernel that runs a program.
///
/// # Errors
/// Returns [`UnsupportedKernel`] if there is no kernel for the program.
pub fn cuda(program: &ProvedProgram, spec: &KernelSpec) -> Result<KernelSource, UnsupportedKernel> {
    let kernel = format!(
        "\nextern \"C\" __global__ void __launch_bounds__({THREADS}, 1)\n\
         {KERNEL}(const __grid_constant__ Params params) {{\n    \
         run(params, {{0, 0, 0, params.count, params.pass, params.passes, gridDim.x}});\n}}\n"
    );
    Ok(KernelSource { body: body(program, spec)? + &kernel })
}

/// Returns the function `run` of a program, with all that it stands on.
pub(super) fn body(
    program: &ProvedProgram,
    spec: &KernelSpec,
) -> Result<String, UnsupportedKernel> {
    if program.header.ranks > MOST_RANKS {
        return Err(UnsupportedKernel::Ranks(program.header.ranks));
    }
    if program.header.reduces && !spec.element.has(spec.operator) {
        return Err(UnsupportedKernel::Operator(spec.element, spec.operator));
    }
    if let Some(wire) = types::wires(program).find(|_| !spec.element.is_float()) {
        return Err(UnsupportedKernel::WireType(spec.element, wire));
    }
    if program.protocol == DeviceProtocol::Multicast {
        switched(program, spec)?;
    }
    Ok(body::KernelBody::new(program, spec).write())
}

/// Fails if the switch cannot run a program in this type.
fn switched(program: &ProvedProgram, spec: &KernelSpec) -> Result<(), UnsupportedKernel> {
    let header = &program.header;
    if !spec.aligned {
        return Err(UnsupportedKernel::Unaligned);
    }
    if !header.reduces {
        return Ok(());
    }
    if spec.operator == Operator::PremulSum && header.placement == BufferPlacement::OutOfPlace {
        return Err(UnsupportedKernel::Factor);
    }
    let reduced = multicast::reduced(spec.element, spec.operator);
    reduced.map(drop).ok_or(UnsupportedKernel::Reduction(spec.element, spec.operator))
}
