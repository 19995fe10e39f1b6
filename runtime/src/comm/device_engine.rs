//! The engine of GPU memory: calls become kernels, or calls of the host where some ranks have no GPU.

use super::Communicator;
use super::device::Means;
use super::memory::{Engine, Listed, Memory, MemoryMut, Sealed, count_of};
use roundelay_cuda::{Cuda, CudaBuffer, CudaSlice, DevicePtr, Launch};
use roundelay_engine::custom::Algorithm;
use roundelay_engine::{Args, Call, Collective, Message, Reduction};
use roundelay_net::dtype::{DType, Element};
use roundelay_net::error::Error;

impl Sealed for Cuda {}

impl Engine for Cuda {
    type Input<'a> = DevicePtr;
    type Output<'a> = DevicePtr;
    type Played = ();

    fn perform(
        comm: &mut Communicator,
        collective: &'static Collective,
        root: u32,
        call: Call<DevicePtr, DevicePtr>,
    ) -> Result<(), Error> {
        match comm.means()? {
            Means::Kernels(core, gpu, stream) => gpu.perform(core, collective, root, call, &stream),
            Means::ByHost(host) => host.perform((collective, root), call, None),
        }
    }

    fn perform_listed<'a: 'a>(
        comm: &mut Communicator,
        collective: &'static Collective,
        root: u32,
        call: Listed<
            'a,
            Self,
            impl ExactSizeIterator<Item = DevicePtr>,
            impl ExactSizeIterator<Item = DevicePtr>,
        >,
    ) -> Result<(), Error> {
        match comm.means()? {
            Means::Kernels(core, gpu, stream) => {
                gpu.perform_listed(core, collective, root, call, &stream)
            }
            Means::ByHost(host) => host.perform_listed((collective, root), call),
        }
    }

    fn perform_cut(
        comm: &mut Communicator,
        collective: &'static Collective,
        call: Call<DevicePtr, DevicePtr>,
        counts: &[usize],
    ) -> Result<(), Error> {
        match comm.means()? {
            Means::Kernels(core, gpu, stream) => {
                gpu.perform_cut(core, collective, call, counts, &stream)
            }
            Means::ByHost(host) => host.perform((collective, 0), call, Some(counts)),
        }
    }

    fn exchange<'a: 'a>(
        comm: &mut Communicator,
        name: &'static str,
        messages: &mut [Message<DevicePtr, DevicePtr>],
        collective: Option<u64>,
    ) -> Result<(), Error> {
        match comm.means()? {
            Means::Kernels(core, gpu, stream) => {
                gpu.exchange(core, name, messages, collective.is_some(), &stream)
            }
            Means::ByHost(host) => host.exchange(name, messages, collective),
        }
    }

    fn play(
        comm: &mut Communicator,
        algorithm: &Algorithm,
        (dtype, Reduction { op, factor }): (DType, Reduction),
        lens: [usize; 2],
        args: Args<DevicePtr, DevicePtr>,
    ) -> Result<(), Error> {
        let (core, gpu, stream) = match comm.means()? {
            Means::Kernels(core, gpu, stream) => (core, gpu, stream),
            Means::ByHost(host) => {
                return host.play(algorithm, (dtype, Reduction { op, factor }), lens, args);
            }
        };
        let launch = Launch::from(Call { count: 0, dtype, op, factor, args });
        let plans = gpu.plans(algorithm, &launch)?;
        let Some(plan) = plans.plans().first() else { return Ok(()) };
        let count = count_of(algorithm, &plan.header, &args, lens)?;
        let launch = Launch { call: Call { count, ..launch.call }, ..launch };
        gpu.play(core, &plans, &launch, None, &stream)
    }

    fn cut_input<'a: 'a>(input: DevicePtr, bytes: usize) -> [DevicePtr; 2] {
        [input, input.after(bytes)]
    }

    fn cut_output<'a: 'a>(output: DevicePtr, bytes: usize) -> [DevicePtr; 2] {
        [output, output.after(bytes)]
    }
}

macro_rules! device_memory {
    ($($memory:ident),*) => {$(
        impl<T: Element> Sealed for $memory<T> {}

        impl<T: Element> Memory for $memory<T> {
            type Element = T;
            type Engine = Cuda;

            fn elements(&self) -> usize {
                self.len()
            }

            fn dtype(&self) -> DType {
                T::DTYPE
            }

            fn lend(&self) -> DevicePtr {
                self.ptr()
            }
        }

        impl<T: Element> MemoryMut for $memory<T> {
            fn lend_mut(&mut self) -> DevicePtr {
                self.ptr()
            }
        }
    )*};
}

device_memory!(CudaBuffer, CudaSlice);
