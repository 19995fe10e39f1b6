//! Device programs as functions of kernels that users write: a header, to be included or put before their text.
//!
//! The function runs what the kernel of the same program runs, by the same text, with the blocks of the kernel that
//! calls it: the first ones, as many as the handle says. All their threads call it, any number of times, in a launch
//! whose blocks are all resident. What it needs of memory and sizes comes in a
//! [`FunctionHandle`](roundelay_compiler::device::abi::FunctionHandle), which the runtime fills once all ranks have agreed on the
//! call. It differs from the kernel in this:
//!
//! * The number of elements is an argument: as many as the handle was made for, or fewer. So are the addresses, which
//!   must lie in the memory that the handle was made for where peers address it. What does not fit is reported and
//!   ends the kernel before anything is read or written.
//! * It ends with a barrier of the blocks that run, as a launch does: so no block is in the next call while another
//!   one is still in this one, which is what the proofs take for granted, and each block sees all of the result.
//! * A block in which a wait failed leaves the kernel there, and the others do at the next barrier: the user's code
//!   never goes on with what is no result.
//!
//! A header has the function of one rank, or of all: then the handle tells which is run. Everything lies in a
//! namespace, so that a kernel may have several.

use std::fmt::Write;

use super::kernel::{UnsupportedKernel, body, whole};
use super::spec::{INCLUDE, KernelSpec};
use roundelay_compiler::device::ProvedProgram;
use roundelay_compiler::device::abi::{FUNCTION_WORDS, THREADS};
use roundelay_compiler::num::index;
use roundelay_compiler::plan::{BufferPlacement, PlanHeader};

/// In place of the reason in a report: the function was called otherwise than it may be. The kind of the word says how:
/// one of those from [`GRID`] to [`HEADER`].
pub const MISUSED: u32 = 4;
/// The kind of a word in a report: a barrier of blocks.
pub const GATHERED: u32 = 7;
/// A word of the user's.
pub const REACHED: u32 = 8;
/// The grid has too few blocks, or blocks of another number of threads: `wanted` and `seen`.
pub const GRID: u32 = 9;
/// More elements (`seen`) than the handle was made for (`wanted`).
pub const COUNT: u32 = 10;
/// A buffer does not lie in the memory that the handle was made for: `wanted` are its bytes, `seen` is the offset.
pub const PLACE: u32 = 11;
/// Buffers or chunks do not begin at multiples of 16 bytes: `wanted` are all addresses or'ed, `seen` are the elements.
pub const ALIGNMENT: u32 = 12;
/// The handle is for another header.
pub const HEADER: u32 = 13;

/// The part of all functions that kernels do not have.
const FUNCTION: &str = include_str!("function.cuh");
/// The line that stands for it in the part that is shown.
const FUNCTION_INCLUDE: &str = "#include \"function.cuh\"\n";
/// Macros of the prelude, which have other names in a header, and do not outlive it.
const MACROS: [(&str, &str); 2] = [("INLINE", "ROUNDELAY_INLINE"), ("EACH", "ROUNDELAY_EACH")];

/// The words of C++20 that name nothing else.
const KEYWORDS: &str = "\
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class co_await \
    co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do \
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace \
    new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return \
    short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef \
    typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq";

/// A header with the function of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionSource {
    text: String,
    identities: Vec<u64>,
}

impl FunctionSource {
    /// Returns the whole header: one file that includes nothing.
    pub fn text(&self) -> String {
        let text = whole(&self.text).replace(FUNCTION_INCLUDE, FUNCTION);
        MACROS.iter().fold(text, |text, (here, there)| text.replace(here, there))
    }

    /// Returns the numbers by which handles tell the functions of these ranks, in their order.
    pub fn identities(&self) -> &[u64] {
        &self.identities
    }
}

/// The part that is the program's own; what all headers have in common stands there as an `#include`.
impl std::fmt::Display for FunctionSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the usual namespace of an algorithm, as `broadcast_k_nomial_k_4` for `broadcast.k_nomial(k = 4)`.
pub fn usual_namespace(collective: &str, algorithm: &str) -> String {
    let name = format!("{collective}_{algorithm}");
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_")
}

/// Returns the header for some ranks' programs of one plan, as the namespace `name`.
///
/// # Errors
/// Returns [`UnsupportedKernel`] if there is no kernel for one of the programs, copy engines would move its data, or
/// the name is none of C++.
pub fn cuda_function(
    programs: &[ProvedProgram],
    spec: &KernelSpec,
    name: &str,
) -> Result<FunctionSource, UnsupportedKernel> {
    let Some(first) = programs.first() else { return Err(UnsupportedKernel::Ranks(0)) };
    if first.protocol == roundelay_compiler::device::DeviceProtocol::Engine {
        return Err(UnsupportedKernel::Engines);
    }
    if programs.iter().any(|program| program.is_far()) {
        return Err(UnsupportedKernel::Far);
    }
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_name = name.starts_with(begins) && name.chars().all(|c| begins(c) || c.is_ascii_digit());
    if !is_name || KEYWORDS.split_whitespace().any(|word| word == name) {
        return Err(UnsupportedKernel::Name(name.into()));
    }
    let header = &first.header;
    let mut text = usage(header, spec, name);
    let words = FUNCTION_WORDS + 4 * index(header.ranks);
    let _ = writeln!(
        text,
        "\nnamespace {name} {{\n\n\
         // Threads of a block.\n\
         [[maybe_unused]] constexpr unsigned THREADS = {THREADS};\n\n\
         struct Handle {{\n    unsigned long long words[{words}];\n}};\n"
    );
    let mut identities = Vec::new();
    for program in programs {
        let body = body(program, spec)?;
        let identity = identity(&body);
        identities.push(identity);
        let (constants, run) = body.split_once(INCLUDE).unwrap_or(("", &body));
        let of = [header.chunks, header.input_chunks, header.output_chunks].map(|c| c.to_string());
        let _ = writeln!(
            text,
            "namespace rank{} {{\n\
             {constants}\
             constexpr unsigned CHUNKS[] = {{{}}};\n\
             constexpr bool ALIGNED = {}, EMPTY = {};\n\
             constexpr unsigned long long IDENTITY = {identity:#x};\n\
             {INCLUDE}{run}{FUNCTION_INCLUDE}}}\n",
            program.rank,
            of.join(", "),
            spec.aligned,
            is_empty(header)
        );
    }
    text += &functions(programs, header);
    for name in ["INLINE", "EACH", "EACH_4", "EACH_1"] {
        let _ = writeln!(text, "#undef {name}");
    }
    Ok(FunctionSource { text, identities })
}

/// Returns true if calls have no elements.
fn is_empty(header: &PlanHeader) -> bool {
    header.collective == "barrier"
}

/// Returns the parameters of the function after the handle, as they are declared, and its arguments for one of the
/// ranks: addresses of data, input, output, then the number of elements.
fn signature(header: &PlanHeader) -> (&'static str, &'static str) {
    match header.placement {
        _ if is_empty(header) => ("", "0, 0, 0, 0"),
        BufferPlacement::InPlace => {
            (", void *data, unsigned long long count", "(rank::u64)data, 0, 0, count")
        }
        BufferPlacement::OutOfPlace => (
            ", const void *input, void *output, unsigned long long count",
            "0, (rank::u64)input, (rank::u64)output, count",
        ),
    }
}

/// Writes what users call: for each rank whose function the header has, by its number.
fn functions(programs: &[ProvedProgram], header: &PlanHeader) -> String {
    let (takes, gives) = signature(header);
    let identity = FUNCTION_WORDS - 6 + 4 * index(header.ranks);
    let mut text = String::new();
    let mut add = |name: &str, takes: &str, call: &dyn Fn(&str) -> String| {
        let _ = writeln!(
            text,
            "[[maybe_unused]] static __device__ __forceinline__ void {name}(const Handle &handle{takes}) {{\n    \
             switch (handle.words[{identity}]) {{"
        );
        for program in programs {
            let rank = format!("rank{}", program.rank);
            let _ = writeln!(text, "    case {rank}::IDENTITY: {}; break;", call(&rank));
        }
        if let Some(first) = programs.first() {
            let rank = format!("rank{}", first.rank);
            let _ = writeln!(
                text,
                "    default: {rank}::misused({rank}::of(handle).params, {rank}::HEADER, \
                 {rank}::IDENTITY, handle.words[{identity}]);"
            );
        }
        text.push_str("    }\n}\n\n");
    };
    for (name, whole) in [("call", true), ("part", false)] {
        add(name, takes, &|rank| {
            let gives = gives.replace("rank::", &format!("{rank}::"));
            format!("{rank}::function<{whole}>({rank}::of(handle), {gives})")
        });
    }
    add("sync", "", &|rank| {
        format!("{rank}::gather({rank}::of(handle).params, {rank}::of(handle).barrier, gridDim.x)")
    });
    add("wait", ", const unsigned *word, unsigned value", &|rank| {
        format!("{rank}::reach({rank}::of(handle).params, ({rank}::u64)word, value)")
    });
    text.push_str(RAISE);
    text
}

/// The functions that need no handle, and the end of the namespace.
const RAISE: &str = "\
[[maybe_unused]] static __device__ __forceinline__ void raise(unsigned *word) {
    __syncthreads();
    if (threadIdx.x == 0) asm volatile(\"red.release.gpu.global.add.u32 [%0], 1;\" ::\"l\"(word) : \"memory\");
}

}
";

/// Writes how the header is used.
fn usage(header: &PlanHeader, spec: &KernelSpec, name: &str) -> String {
    let names = match header.placement {
        _ if is_empty(header) => "",
        BufferPlacement::InPlace => ", data, count",
        BufferPlacement::OutOfPlace => ", input, output, count",
    };
    let what = match header.reduces {
        true => format!("{} {}", spec.element.name(), spec.operator.name()),
        false => spec.element.name().into(),
    };
    let aligned = match spec.aligned {
        true => "// Memory and all chunks of it begin at multiples of 16 bytes.\n",
        false => "",
    };
    format!(
        "// {}.{} on {} ranks, {what}, for kernels that take `const __grid_constant__ {name}::Handle handle`, in blocks of\n\
         // {THREADS} threads along x, and are launched cooperatively.\n\
         //     {name}::call(handle{names});\n\
         // is called by all threads of the first blocks of the grid, as many as the handle was made for; other blocks go on\n\
         // at once. When it returns these blocks see the result. `part`, called so, returns earlier: when the block's own\n\
         // slices of the result are there; before the next call then stands `sync`.\n\
         //     {name}::sync(handle);\n\
         // is a barrier of all blocks: between what they wrote and a call, a call and others that read its result.\n\
         //     {name}::raise(word);  {name}::wait(handle, word, value);\n\
         // count a block that has come so far, and wait until so many have: what they wrote is seen then.\n\
         // Where a wait fails the kernel ends; the communicator says why.\n{aligned}",
        header.collective, header.algorithm, header.ranks,
    )
}

/// Returns a number that tells texts apart: FNV-1a.
fn identity(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
