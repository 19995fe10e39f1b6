//! Plays calls on fresh data, and checks everything about them.

use roundelay::cuda::{CudaBuffer, CudaStream, DevicePtr, Launch, Protocol};
use roundelay::{Call, Communicator, DType, Error, RedOp};

use super::super::data::{FACTOR, Rule};
use super::super::many::{fill_all, judge_all, threads};
use super::buffers::{GUARD, Host, View, poisoned};
use super::piece::Ready;

/// The properties that the calls of a size have in common.
#[derive(Clone, Copy)]
pub(crate) struct Calls<'a> {
    /// The algorithm.
    pub(crate) ready: &'a Ready,
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

/// The addresses at which the areas, and the data in them, begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Areas {
    pub(crate) begin: [DevicePtr; 2],
    pub(crate) data: [DevicePtr; 2],
}

impl Areas {
    /// Returns the areas that begin at a byte of two buffers.
    pub(crate) fn of(buffers: &[CudaBuffer<u8>; 2], at: usize) -> Result<Self, Error> {
        let [first, second] = buffers;
        Ok(Areas {
            begin: [first.at(at)?, second.at(at)?],
            data: [first.at(at + GUARD)?, second.at(at + GUARD)?],
        })
    }
}

impl Calls<'_> {
    /// Returns the bytes of data in the two areas.
    pub(crate) fn lens(&self, gpu: &Communicator) -> [usize; 2] {
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let places = self.ready.places(0, gpu, count);
        let lens = match self.ready.in_place {
            true => [places.data(), 0],
            false => [places.input(), places.output()],
        };
        lens.map(|n| n.saturating_mul(self.dtype.size()))
    }

    /// Returns their memory.
    pub(crate) fn view(&self, gpu: &Communicator, areas: Areas) -> View {
        let Areas { begin, data } = areas;
        View { in_place: self.ready.in_place, areas: begin, data, lens: self.lens(gpu) }
    }

    /// Returns the arguments of a call as the runtime takes them.
    pub(crate) fn args(&self, view: &View) -> Launch {
        let Calls { count, dtype, op, protocol, blocks, .. } = *self;
        let call = Call { count, dtype, op, factor: FACTOR, args: view.buffers() };
        Launch { call, protocol, blocks }
    }

    /// Returns the elements of a call. `whole` numbers have exact sums.
    pub(crate) fn rule(&self, gpu: &Communicator, seed: u64, whole: bool) -> Rule {
        let Calls { dtype, op, .. } = *self;
        Rule { seed, ranks: gpu.size(), dtype, op, wire: self.ready.wire, whole }
    }
}

/// A rank's GPU, and memory of the host for what is compared.
pub(crate) struct Player<'a> {
    pub(crate) gpu: &'a mut Communicator,
    pub(crate) stream: CudaStream,
    /// The output that [`Player::verify`] read last.
    pub(crate) output: Host,
    scratch: Host,
    /// Number of threads for contributions and references.
    threads: usize,
}

impl<'a> Player<'a> {
    pub(crate) fn new(gpu: &'a mut Communicator) -> Result<Self, Error> {
        let threads = threads(gpu.size());
        let stream = gpu.stream()?;
        let (output, scratch) = (Host::default(), Host::default());
        Ok(Player { gpu, stream, output, scratch, threads })
    }

    /// Plays a call once on what the buffers hold, and returns the way and the blocks with which it is played.
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

    /// Writes poison and guards everywhere, and this rank's contributions, which are left in `input` too.
    pub(crate) fn prepare(
        &mut self,
        calls: Calls<'_>,
        view: &View,
        turn: u64,
        rule: &Rule,
        input: &mut Vec<u8>,
    ) -> Result<(), Error> {
        poisoned(input, view.lens[0]);
        let places = calls.ready.places(turn, self.gpu, calls.count as usize);
        let before = places.before(view.in_place);
        fill_all(rule, self.gpu.rank(), &before, input, self.threads);
        view.poison(self.gpu)?;
        view.write(self.gpu, input)
    }

    /// Returns the number of wrong elements, and what is wrong in words, after the stream has come past a call.
    pub(crate) fn verify(
        &mut self,
        calls: Calls<'_>,
        view: &View,
        turn: u64,
        rule: &Rule,
        input: &[u8],
    ) -> Result<(u64, Vec<String>), Error> {
        let intact = view.read(self.gpu, &mut self.output)?;
        let places = calls.ready.places(turn, self.gpu, calls.count as usize);
        let after = places.after(view.in_place);
        let output = self.output.data();
        let all = 0..output.len() / rule.dtype.size();
        let all = std::slice::from_ref(&all);
        let (mut wrong, first) = judge_all(rule, &after, output, all, self.threads);
        let mut words: Vec<String> = first.into_iter().collect();
        if !intact {
            wrong += 1;
            words.push("guard bytes beside a buffer were overwritten".into());
        }
        if !view.kept(self.gpu, input, &mut self.scratch)? {
            wrong += 1;
            words.push("the input, or guard bytes beside it, were overwritten".into());
        }
        Ok((wrong, words))
    }
}
