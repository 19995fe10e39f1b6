//! Collective calls: from a proved plan, memory and a stream to a launched kernel.
//!
//! A call passes these stages. The first call of its kind passes all of them, together with all ranks; the next ones
//! pass 1, 2 and 6 on this rank alone.
//!
//! 1. A call by name chooses an algorithm, whose plans are proved ([`named`]). Lists of blocks, and blocks of different
//!    lengths, are copied to where one call has them ([`packed`]).
//! 2. What the call leaves out is filled in: protocol and blocks ([`choice`]). The result is its [`key`].
//! 3. The plans are lowered to this rank's [`program`], once for each protocol ([`programs`]).
//! 4. The vector is [`cut`] into passes, and all ranks compare keys and make room for scratch buffers ([`agreement`]).
//! 5. The kernel is compiled and its parameters are laid out ([`call_params`]): a bound call ([`bound`]).
//! 6. The launch writes addresses, factor and timeout, announces the call to the proxies, and puts the kernel into the
//!    stream after all calls before. Where copy engines move the data, the kernel is launched in two parts
//!    ([`engine_copies`]).
//!
//! [`function`] has schedules as functions inside kernels of users, which pass stages 2 to 5. [`launch`] has a call and
//! its arguments. A refusal is an [`UnsupportedCall`] with its reason; all ranks refuse alike.
//!
//! All state of calls is in two tables: [`ProgramTable`], which reports of kernels need too, and [`CallTable`].

mod agreement;
mod bound;
mod call_params;
mod choice;
mod cut;
mod engine_copies;
mod function;
mod key;
mod launch;
mod named;
mod packed;
mod program;
mod programs;
mod unsupported_call;

pub(crate) use choice::{kernel_source, plans_of, resolve_launch};
pub use function::{CudaKernel, DeviceFunction, KernelArg, KernelGrid};
pub(crate) use function::{launch_kernel, load_user_kernel, make_function};
pub use launch::CudaLaunch;
pub(crate) use launch::DeviceCall;
pub(crate) use named::CallTable;
pub(crate) use packed::{perform_cut, perform_listed};
pub(crate) use program::LoweredProgram;
pub(crate) use programs::ProgramTable;
pub(crate) use unsupported_call::UnsupportedCall;
