//! Communicators of ranks of which some have a GPU, and others have none: calls on the memory of a GPU go through memory
//! of its host, and are there what they are on all hosts.

use std::sync::Arc;

use super::Communicator;
use super::device::Opened;
use super::memory::{Listed, count_of};
use roundelay_cuda::backend::{Context, Fault};
use roundelay_cuda::{Cuda, CudaOptions, CudaStream, DevicePtr, agree, context};
use roundelay_engine::custom::Algorithm;
use roundelay_engine::{Args, Blocks, Call, Collective, Core, End, Message, Reduction, Seat};
use roundelay_net::dtype::DType;
use roundelay_net::error::Error;

/// The number of timeouts that what is in a stream before a call may take.
pub(super) const STALLED: u32 = 10;

/// The GPU of a rank.
pub(crate) struct Staged {
    pub(super) context: Arc<Context>,
    pub(super) stream: CudaStream,
}

impl Communicator {
    /// Opens the GPUs of those ranks that have one: they give options, and the others give none. All ranks call together.
    /// The communicator that comes back is as of [`Communicator::cuda`], but that its calls take memory of the GPU or of
    /// the host, on each rank as it is. Results are those of hosts, bit for bit.
    ///
    /// This is [`Communicator::cuda`] if all ranks have a GPU. Else a call on memory of a GPU waits for what is in the
    /// stream, copies its input to the host, makes the call there and copies the result back, and returns when it is
    /// there. Calls by name, messages, batches and algorithms of one's own are served, and so are streams,
    /// [`Communicator::read`], [`Communicator::write`] and [`Communicator::fill`]; memory that all ranks map, graphs,
    /// windows and functions are not.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::cuda`].
    pub fn cuda_mixed(&mut self, options: Option<CudaOptions>) -> Result<Communicator, Error> {
        let with = self.core()?.words(options.is_some().into())?;
        if let (Some(options), true) = (&options, with.iter().all(|&with| with == 1)) {
            return self.cuda(options.clone());
        }
        let mut comm = self.whole()?;
        let rank = comm.rank();
        let made = options.map(|options| Staged::open(rank, &options)).transpose();
        let staged = agree(comm.core()?, made)?;
        comm.gpu = staged.map(|staged| Opened::ByHost(Box::new(staged)));
        Ok(comm)
    }
}

impl Staged {
    fn open(rank: u32, options: &CudaOptions) -> Result<Self, Error> {
        let context = context(rank, options)?;
        let stream = CudaStream::new(&context);
        let stream = stream.map_err(|fault| fault.on(rank, context.device()))?;
        Ok(Staged { context, stream })
    }
}

/// A call on memory of this rank's GPU that is made on the host. What fails on this rank alone ends the communicator, for
/// the others wait.
pub(super) struct ByHost<'c> {
    core: &'c mut Core,
    staged: &'c Staged,
    stream: CudaStream,
}

impl<'c> ByHost<'c> {
    /// Returns the means to make a call behind what is in a stream, the communicator's own if none is given.
    pub(super) fn new(
        core: &'c mut Core,
        staged: &'c Staged,
        given: Option<CudaStream>,
    ) -> Result<Self, Error> {
        let stream = given.unwrap_or_else(|| staged.stream.clone());
        let mut host = ByHost { core, staged, stream };
        let captured = host.stream.capture();
        match host.done(captured)? {
            None => Ok(host),
            Some(_) => Err(Error::Unsupported(
                "calls of ranks without a GPU are not captured: they are made by the host".into(),
            )),
        }
    }

    fn done<T>(&mut self, done: Result<T, Fault>) -> Result<T, Error> {
        let (rank, device) = (self.core.rank(), self.staged.context.device());
        done.map_err(|fault| self.core.fail(fault.on(rank, device)))
    }

    /// Copies memory of the GPU to the host, behind what is in the stream.
    fn fetch(&mut self, from: DevicePtr, bytes: u64) -> Result<Vec<u8>, Error> {
        let mut host = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        if bytes > 0 {
            // SAFETY: whoever made the address promised it, and the copy is waited for.
            let begun = unsafe { self.stream.read(&mut host, from.address()) };
            self.drain(begun)?;
        }
        Ok(host)
    }

    /// Copies memory of the host to the GPU.
    fn deliver(&mut self, to: DevicePtr, host: &[u8]) -> Result<(), Error> {
        if host.is_empty() {
            return Ok(());
        }
        // SAFETY: as in `fetch`.
        let begun = unsafe { self.stream.write(to.address(), host) };
        self.drain(begun)
    }

    fn drain(&mut self, begun: Result<(), Fault>) -> Result<(), Error> {
        let patience = self.core.timeout().saturating_mul(STALLED);
        let done = begun.and_then(|()| self.stream.drain(patience));
        self.done(done)
    }

    /// Makes a call on buffers of so many bytes: input (or data) and output.
    fn make(
        mut self,
        args: Args<DevicePtr, DevicePtr>,
        [input_bytes, output_bytes]: [u64; 2],
        make: impl FnOnce(&mut Core, Args<&[u8], &mut [u8]>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match args {
            Args::InPlace { data } => {
                let mut host = self.fetch(data, input_bytes)?;
                make(self.core, Args::InPlace { data: &mut host })?;
                self.deliver(data, &host)
            }
            Args::OutOfPlace { input, output } => {
                let host = self.fetch(input, input_bytes)?;
                // Elements that a call does not write stay.
                let mut result = self.fetch(output, output_bytes)?;
                make(self.core, Args::OutOfPlace { input: &host, output: &mut result })?;
                self.deliver(output, &result)
            }
        }
    }

    /// Performs a call by name; `lens` are those of blocks that have lengths of their own.
    pub(super) fn perform(
        self,
        (collective, root): (&Collective, u32),
        call: Call<DevicePtr, DevicePtr>,
        lens: Option<&[usize]>,
    ) -> Result<(), Error> {
        let Call { count, dtype, op, factor, args } = call;
        let [input, output] = collective.elements(self.seat(root), count, lens);
        let of = |at, elements| sized(collective.name, at, elements, dtype);
        let bytes = match args {
            Args::InPlace { data } => [of(data, input.max(output))?, 0],
            Args::OutOfPlace { input: from, output: to } => [of(from, input)?, of(to, output)?],
        };
        self.make(args, bytes, |core, args| {
            let call = Call { count, dtype, op, factor, args };
            match lens {
                None => core.perform(collective, root, call),
                Some(lens) => core.perform_cut(collective, call, lens),
            }
        })
    }

    fn seat(&self, root: u32) -> Seat {
        Seat { rank: self.core.rank(), ranks: self.core.size(), root }
    }

    /// Performs a call whose input is a list, or its output, or both.
    pub(super) fn perform_listed<'a>(
        mut self,
        (collective, root): (&Collective, u32),
        call: Listed<
            'a,
            Cuda,
            impl ExactSizeIterator<Item = DevicePtr>,
            impl ExactSizeIterator<Item = DevicePtr>,
        >,
    ) -> Result<(), Error> {
        let Call { count, dtype, op, factor, args } = call;
        let Args::OutOfPlace { input, output } = args else { return Ok(()) };
        let [whole_input, whole_output] = collective.elements(self.seat(root), count, None);
        let of = |at, elements| sized(collective.name, at, elements, dtype);
        let (mut one, mut each) = (Vec::new(), Vec::new());
        let is_listed = matches!(input, Blocks::Each(_));
        match input {
            Blocks::One(input) => one = self.fetch(input, of(input, whole_input)?)?,
            Blocks::Each(list) => {
                for at in list {
                    each.push(self.fetch(at, of(at, count)?)?);
                }
            }
        }
        let input = match is_listed {
            true => Blocks::Each(each.iter().map(Vec::as_slice)),
            false => Blocks::One(&one[..]),
        };
        // A buffer of the whole output, or one for each block of a list.
        let (places, is_listed) = match output {
            Blocks::One(to) => (vec![(to, whole_output)], false),
            Blocks::Each(list) => (list.map(|to| (to, count)).collect(), true),
        };
        let mut hosts = Vec::with_capacity(places.len());
        for &(to, elements) in &places {
            hosts.push(self.fetch(to, of(to, elements)?)?);
        }
        let mut outputs: Vec<&mut [u8]> = hosts.iter_mut().map(Vec::as_mut_slice).collect();
        let output = match (is_listed, outputs.pop()) {
            (false, Some(whole)) => Blocks::One(whole),
            (_, last) => {
                outputs.extend(last);
                Blocks::Each(outputs.into_iter())
            }
        };
        let args = Args::OutOfPlace { input, output };
        let call = Call { count, dtype, op, factor, args };
        self.core.perform_listed(collective, root, call)?;
        places.iter().zip(&hosts).try_for_each(|(&(to, _), host)| self.deliver(to, host))
    }

    /// Plays a batch of messages.
    pub(super) fn exchange(
        mut self,
        name: &'static str,
        messages: &[Message<DevicePtr, DevicePtr>],
        collective: Option<u64>,
    ) -> Result<(), Error> {
        let mut hosts = Vec::with_capacity(messages.len());
        for message in messages {
            let (End::Sent(at) | End::Received(at)) = message.end;
            let bytes = sized(name, at, message.bytes, DType::U8)?;
            hosts.push(match message.end {
                End::Sent(from) => self.fetch(from, bytes)?,
                End::Received(_) => vec![0; bytes as usize],
            });
        }
        let mut list: Vec<Message<&[u8], &mut [u8]>> = messages
            .iter()
            .zip(&mut hosts)
            .map(|(message, host)| {
                let of = (message.dtype, message.bytes as usize);
                match message.end {
                    End::Sent(_) => Message::sent(&host[..], of, message.peer),
                    End::Received(_) => Message::received(&mut host[..], of, message.peer),
                }
            })
            .collect();
        self.core.exchange(name, &mut list, collective)?;
        drop(list);
        for (message, host) in messages.iter().zip(&hosts) {
            if let End::Received(to) = message.end {
                self.deliver(to, host)?;
            }
        }
        Ok(())
    }

    /// Plays an algorithm on buffers of so many elements.
    pub(super) fn play(
        self,
        algorithm: &Algorithm,
        (dtype, Reduction { op, factor }): (DType, Reduction),
        lens: [usize; 2],
        args: Args<DevicePtr, DevicePtr>,
    ) -> Result<(), Error> {
        let (ranks, rank, paths) = (self.core.size(), self.core.rank(), self.core.paths());
        let plan = algorithm.plan(ranks, rank, algorithm.root(), args.placement(), paths)?;
        let count = count_of(algorithm, &plan.header, &args, lens)?;
        let of = |at: DevicePtr, elements: usize| sized("play", at, elements as u64, dtype);
        let bytes = match args {
            Args::InPlace { data } => [of(data, lens[0])?, 0],
            Args::OutOfPlace { input, output } => [of(input, lens[0])?, of(output, lens[1])?],
        };
        self.make(args, bytes, |core, args| {
            core.run(&plan, Call { count, dtype, op, factor, args }).map(drop)
        })
    }
}

/// Returns the elements as bytes, or an error of usage where memory is missing.
fn sized(name: &str, at: DevicePtr, elements: u64, dtype: DType) -> Result<u64, Error> {
    let bytes = elements.saturating_mul(dtype.size() as u64);
    match bytes {
        0 => Ok(0),
        _ if at.is_null() => Err(Error::Usage(format!("{name}: a buffer is null"))),
        bytes if bytes < 1 << 46 => Ok(bytes),
        bytes => Err(Error::Usage(format!("{name}: {bytes} bytes exceed any GPU"))),
    }
}
