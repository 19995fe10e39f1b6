//! Plays calls on a GPU.

use roundelay::cuda::{CudaStream, Launch, Protocol};
use roundelay::{Algorithm, Call, Communicator, DType, Error, RedOp};

use super::super::ready::Ready;
use super::super::rule::{FACTOR, Rule};
use super::super::trial::Trial;
use super::buffers::{Areas, DeviceMemory, HostCopy, View};
use crate::args::Verify;

/// The properties that the calls of a size have in common.
#[derive(Clone, Copy)]
pub(crate) struct Calls<'a> {
    /// The algorithm.
    pub(crate) ready: &'a Ready<Algorithm>,
    /// Elements, in the unit of the collective.
    pub(crate) count: u64,
    /// Type of the elements.
    pub(crate) dtype: DType,
    /// Operator.
    pub(crate) op: RedOp,
    /// The protocol of messages; the runtime chooses if it is left out.
    pub(crate) protocol: Option<Protocol>,
    /// Blocks of the kernel, likewise.
    pub(crate) blocks: Option<u32>,
}

impl<'a> Calls<'a> {
    /// Returns the bytes of data in the two areas.
    pub(crate) fn lens(&self, gpu: &Communicator) -> [usize; 2] {
        self.ready.lens(gpu.rank(), gpu.size(), self.count, self.dtype.size())
    }

    /// Returns their memory.
    pub(crate) fn view(&self, gpu: &Communicator, areas: Areas) -> View {
        View { in_place: self.ready.in_place, areas, lens: self.lens(gpu) }
    }

    /// Returns the arguments of a call as the runtime takes them.
    pub(crate) fn args(&self, view: &View) -> Launch {
        let Calls { count, dtype, op, protocol, blocks, .. } = *self;
        let call = Call { count, dtype, op, factor: FACTOR, args: view.buffers() };
        Launch { call, protocol, blocks }
    }

    /// Returns a call on fresh data. `whole` numbers have exact sums.
    pub(crate) fn trial(
        &self,
        gpu: &Communicator,
        turn: u64,
        seed: u64,
        whole: bool,
    ) -> Trial<'a, Algorithm> {
        let Calls { ready, dtype, op, .. } = *self;
        let rule = Rule { seed, ranks: gpu.size(), dtype, op, wire: ready.wire, whole };
        Trial { ready, turn, count: self.count as usize, rule, verify: Verify::Full }
    }
}

/// A rank's GPU, and memory of the host for what is compared.
pub(crate) struct Player<'a> {
    pub(crate) gpu: &'a mut Communicator,
    pub(crate) stream: CudaStream,
    /// The input as it was prepared last, or fetched.
    pub(crate) input: HostCopy,
    /// The output that was fetched last.
    pub(crate) output: HostCopy,
}

impl<'a> Player<'a> {
    pub(crate) fn new(gpu: &'a mut Communicator) -> Result<Self, Error> {
        let stream = gpu.stream()?;
        Ok(Player { gpu, stream, input: HostCopy::default(), output: HostCopy::default() })
    }

    /// Returns the memory of a call.
    pub(crate) fn at(&mut self, view: View) -> DeviceMemory<'_> {
        let Player { gpu, input, output, .. } = self;
        DeviceMemory { gpu, view, input, output }
    }

    /// Plays a call once on what the buffers hold, and returns the protocol and the blocks with which it is played.
    pub(crate) fn tried(
        &mut self,
        calls: Calls<'_>,
        args: &Launch,
    ) -> Result<(Protocol, u32), Error> {
        let algorithm = calls.ready.algorithm(0);
        let how = self.gpu.how(algorithm, args)?;
        self.gpu.call(algorithm, *args, &self.stream)?;
        self.gpu.synchronize(&self.stream)?;
        Ok(how)
    }
}
