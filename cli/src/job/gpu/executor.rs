//! Runs calls on a GPU.

use roundelay::cuda::{CudaLaunch, CudaStream, DeviceProtocol};
use roundelay::plan::PlanCall;
use roundelay::{Algorithm, Communicator, DType, Error, RedOp};

use super::super::ready::ReadyAlgorithm;
use super::super::rule::{ElementRule, FACTOR};
use super::super::trial::CallTrial;
use super::buffers::{AreaAddresses, CallAreas, GpuMemory, HostCopy};
use crate::args::VerifyScope;

/// The properties that the calls of a size have in common.
#[derive(Clone, Copy)]
pub(crate) struct CallSettings<'a> {
    /// The algorithm.
    pub(crate) ready: &'a ReadyAlgorithm<Algorithm>,
    /// Elements, in the unit of the collective.
    pub(crate) count: u64,
    /// Type of the elements.
    pub(crate) dtype: DType,
    /// Operator.
    pub(crate) op: RedOp,
    /// The protocol of messages; the runtime chooses if it is left out.
    pub(crate) protocol: Option<DeviceProtocol>,
    /// Blocks of the kernel, likewise.
    pub(crate) blocks: Option<u32>,
}

impl<'a> CallSettings<'a> {
    /// Returns the bytes of data in the two areas.
    pub(crate) fn lens(&self, gpu: &Communicator) -> [usize; 2] {
        self.ready.lens(gpu.rank(), gpu.size(), self.count, self.dtype.size())
    }

    /// Returns their memory.
    pub(crate) fn view(&self, gpu: &Communicator, areas: AreaAddresses) -> CallAreas {
        CallAreas { in_place: self.ready.in_place, areas, lens: self.lens(gpu) }
    }

    /// Returns the arguments of a call as the runtime takes them.
    pub(crate) fn args(&self, view: &CallAreas) -> CudaLaunch {
        let CallSettings { count, dtype, op, protocol, blocks, .. } = *self;
        let call = PlanCall { count, dtype, op, factor: FACTOR, args: view.buffers() };
        CudaLaunch { call, protocol, blocks }
    }

    /// Returns a call on fresh data. `whole` numbers have exact sums.
    pub(crate) fn trial(
        &self,
        gpu: &Communicator,
        turn: u64,
        seed: u64,
        whole: bool,
    ) -> CallTrial<'a, Algorithm> {
        let CallSettings { ready, dtype, op, .. } = *self;
        let rule = ElementRule { seed, ranks: gpu.size(), dtype, op, wire: ready.wire, whole };
        CallTrial { ready, turn, count: self.count as usize, rule, verify: VerifyScope::Full }
    }
}

/// A rank's GPU, and memory of the host for what is compared.
pub(crate) struct GpuExecutor<'a> {
    pub(crate) gpu: &'a mut Communicator,
    pub(crate) stream: CudaStream,
    /// The input as it was prepared last, or fetched.
    pub(crate) input: HostCopy,
    /// The output that was fetched last.
    pub(crate) output: HostCopy,
}

impl<'a> GpuExecutor<'a> {
    pub(crate) fn new(gpu: &'a mut Communicator) -> Result<Self, Error> {
        let stream = gpu.stream()?;
        Ok(GpuExecutor { gpu, stream, input: HostCopy::default(), output: HostCopy::default() })
    }

    /// Returns the memory of a call.
    pub(crate) fn at(&mut self, view: CallAreas) -> GpuMemory<'_> {
        let GpuExecutor { gpu, input, output, .. } = self;
        GpuMemory { gpu, view, input, output }
    }

    /// Runs a call once on what the buffers hold, and returns the protocol and the blocks with which it is run.
    pub(crate) fn tried(
        &mut self,
        calls: CallSettings<'_>,
        args: &CudaLaunch,
    ) -> Result<(DeviceProtocol, u32), Error> {
        let algorithm = calls.ready.algorithm(0);
        let how = self.gpu.how(algorithm, args)?;
        self.gpu.call(algorithm, *args, &self.stream)?;
        self.gpu.synchronize(&self.stream)?;
        Ok(how)
    }
}
