//! The memory that calls take, and the engine that each kind of it belongs to.

use std::fmt::Debug;

use roundelay_compiler::plan::Header;

use super::Communicator;
use roundelay_engine::bind::Stats;
use roundelay_engine::custom::Algorithm;
use roundelay_engine::{Args, Blocks, Call, Collective, Message, Reduction};
use roundelay_net::dtype::{DType, Element};
use roundelay_net::error::Error;
use roundelay_net::memory::{Buffer, bytes, bytes_mut};

/// Keeps traits to the types of this crate.
pub trait Sealed {}

/// Elements in memory, as calls read them: slices, arrays, vectors and [`Buffer`]s of this host, and buffers of
/// its GPUs (`roundelay::cuda`). All buffers of a call belong to one engine.
pub trait Memory: Sealed {
    /// The type of the elements; [`AnyElement`](super::AnyElement) if it is known at run time only.
    type Element;
    /// The engine that plays calls on it.
    type Engine: Engine;

    /// Returns the number of elements.
    fn elements(&self) -> usize;

    /// Returns the type of the elements.
    fn dtype(&self) -> DType;

    #[doc(hidden)]
    fn lend(&self) -> <Self::Engine as Engine>::Input<'_>;
}

/// Elements in memory, as calls read and write them.
pub trait MemoryMut: Memory {
    #[doc(hidden)]
    fn lend_mut(&mut self) -> <Self::Engine as Engine>::Output<'_>;
}

/// The input and the output of a call, each of them one buffer or a list.
pub(super) type Listed<'a, E, I, O> =
    Call<Blocks<<E as Engine>::Input<'a>, I>, Blocks<<E as Engine>::Output<'a>, O>>;

/// Whatever binds and plays the calls on a kind of memory: [`Host`], or `roundelay::cuda::Cuda`. It takes the
/// arguments that the communicator has checked.
pub trait Engine: Sealed + Sized {
    /// A buffer that is read.
    type Input<'a>: Copy + Debug;
    /// A buffer that is written.
    type Output<'a>: Debug;
    /// The record of a call when it returns.
    type Played;

    #[doc(hidden)]
    fn perform(
        comm: &mut Communicator,
        collective: &'static Collective,
        root: u32,
        call: Call<Self::Input<'_>, Self::Output<'_>>,
    ) -> Result<(), Error>;

    #[doc(hidden)]
    fn perform_listed<'a: 'a>(
        comm: &mut Communicator,
        collective: &'static Collective,
        root: u32,
        call: Listed<
            'a,
            Self,
            impl ExactSizeIterator<Item = Self::Input<'a>>,
            impl ExactSizeIterator<Item = Self::Output<'a>>,
        >,
    ) -> Result<(), Error>;

    #[doc(hidden)]
    fn perform_cut(
        comm: &mut Communicator,
        collective: &'static Collective,
        call: Call<Self::Input<'_>, Self::Output<'_>>,
        counts: &[usize],
    ) -> Result<(), Error>;

    #[doc(hidden)]
    fn exchange<'a: 'a>(
        comm: &mut Communicator,
        name: &'static str,
        messages: &mut [Message<Self::Input<'a>, Self::Output<'a>>],
        collective: Option<u64>,
    ) -> Result<Self::Played, Error>;

    /// Plays an algorithm on buffers of so many elements: input (or data) and output.
    #[doc(hidden)]
    fn play(
        comm: &mut Communicator,
        algorithm: &Algorithm,
        of: (DType, Reduction),
        lens: [usize; 2],
        args: Args<Self::Input<'_>, Self::Output<'_>>,
    ) -> Result<Self::Played, Error>;

    /// Cuts a buffer in two, the first one of so many bytes.
    #[doc(hidden)]
    fn cut_input<'a: 'a>(input: Self::Input<'a>, bytes: usize) -> [Self::Input<'a>; 2];

    #[doc(hidden)]
    fn cut_output<'a: 'a>(output: Self::Output<'a>, bytes: usize) -> [Self::Output<'a>; 2];
}

/// The engine of this host's memory.
#[derive(Debug)]
pub enum Host {}

impl Sealed for Host {}

impl Engine for Host {
    type Input<'a> = &'a [u8];
    type Output<'a> = &'a mut [u8];
    type Played = Stats;

    #[inline]
    fn perform(
        comm: &mut Communicator,
        collective: &'static Collective,
        root: u32,
        call: Call<&[u8], &mut [u8]>,
    ) -> Result<(), Error> {
        comm.callable()?.lend(|core| core.perform(collective, root, call))
    }

    fn perform_listed<'a: 'a>(
        comm: &mut Communicator,
        collective: &'static Collective,
        root: u32,
        call: Listed<
            'a,
            Self,
            impl ExactSizeIterator<Item = &'a [u8]>,
            impl ExactSizeIterator<Item = &'a mut [u8]>,
        >,
    ) -> Result<(), Error> {
        comm.callable()?.lend(|core| core.perform_listed(collective, root, call))
    }

    fn perform_cut(
        comm: &mut Communicator,
        collective: &'static Collective,
        call: Call<&[u8], &mut [u8]>,
        counts: &[usize],
    ) -> Result<(), Error> {
        comm.callable()?.lend(|core| core.perform_cut(collective, call, counts))
    }

    fn exchange<'a: 'a>(
        comm: &mut Communicator,
        name: &'static str,
        messages: &mut [Message<&'a [u8], &'a mut [u8]>],
        collective: Option<u64>,
    ) -> Result<Stats, Error> {
        comm.callable()?.lend(|core| core.exchange(name, messages, collective))
    }

    fn play(
        comm: &mut Communicator,
        algorithm: &Algorithm,
        (dtype, Reduction { op, factor }): (DType, Reduction),
        lens: [usize; 2],
        args: Args<&[u8], &mut [u8]>,
    ) -> Result<Stats, Error> {
        let plan = comm.plan_of(algorithm, args.placement())?;
        let count = count_of(algorithm, &plan.header, &args, lens)?;
        comm.run(&plan, Call { count, dtype, op, factor, args })
    }

    fn cut_input<'a: 'a>(input: &'a [u8], bytes: usize) -> [&'a [u8]; 2] {
        input.split_at(bytes).into()
    }

    fn cut_output<'a: 'a>(output: &'a mut [u8], bytes: usize) -> [&'a mut [u8]; 2] {
        output.split_at_mut(bytes).into()
    }
}

macro_rules! host_memory {
    ($([$($generics:tt)*] $memory:ty;)*) => {$(
        impl<$($generics)*> Sealed for $memory {}

        impl<$($generics)*> Memory for $memory {
            type Element = T;
            type Engine = Host;

            #[inline]
            fn elements(&self) -> usize {
                self.len()
            }

            #[inline]
            fn dtype(&self) -> DType {
                T::DTYPE
            }

            #[inline]
            fn lend(&self) -> &[u8] {
                bytes(self)
            }
        }

        impl<$($generics)*> MemoryMut for $memory {
            #[inline]
            fn lend_mut(&mut self) -> &mut [u8] {
                bytes_mut(self)
            }
        }
    )*};
}

host_memory! {
    [T: Element] [T];
    [T: Element, const N: usize] [T; N];
    [T: Element] Vec<T>;
    [T: Element] Box<[T]>;
    [T: Element] Buffer<T>;
}

/// Returns the elements of a block, of buffers with so many elements.
pub(super) fn count_of<I, O>(
    algorithm: &Algorithm,
    header: &Header,
    args: &Args<I, O>,
    [input, output]: [usize; 2],
) -> Result<u64, Error> {
    // The blocks in a buffer of so many chunks.
    let of = |chunks: u32| {
        u64::from(chunks) * u64::from(header.blocks) / u64::from(header.chunks).max(1)
    };
    let (what, len, blocks) = match args {
        Args::InPlace { .. } => ("data", input, header.blocks.into()),
        Args::OutOfPlace { .. } if input > 0 => ("input", input, of(header.input_chunks)),
        Args::OutOfPlace { .. } => ("output", output, of(header.output_chunks)),
    };
    match (len as u64).checked_rem(blocks) {
        Some(0) => Ok(len as u64 / blocks),
        _ => Err(Error::Usage(format!(
            "{algorithm}: the {what} has {len} elements, which are not {blocks} equal blocks"
        ))),
    }
}
