//! Communicators of ranks of which some have a GPU, and others have none: calls on the memory of a GPU go through memory
//! of its host, and are there what they are on all hosts.

use std::sync::Arc;
use std::time::Duration;

use super::Communicator;
use super::memory::{Listed, count_of};
use crate::backend::cuda::{Context, Fault};
use crate::cuda::{Cuda, CudaOptions, CudaStream, DevicePtr, agree, context};
use crate::custom::Algorithm;
use crate::dtype::DType;
use crate::engine::{Args, Blocks, Call, Collective, Core, End, Message, Reduction, Seat};
use crate::error::Error;

/// The number of timeouts that what is in a stream before a call may take.
pub(super) const STALLED: u32 = 10;

/// The GPU of a rank.
pub(crate) struct Staged {
    pub(super) context: Arc<Context>,
    pub(super) stream: CudaStream,
    rank: u32,
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
        let ranks: Vec<u32> = (0..self.size()).collect();
        let hints = self.core()?.plans.hints().clone();
        let Some(mut comm) = self.split(&ranks)? else {
            return Err(Error::Usage("a rank is not among all ranks".into()));
        };
        comm.set_hints(hints)?;
        let rank = comm.rank();
        let made = options.map(|options| Staged::open(rank, &options)).transpose();
        comm.staged = agree(comm.core()?, made)?.map(Box::new);
        Ok(comm)
    }
}

impl Staged {
    fn open(rank: u32, options: &CudaOptions) -> Result<Self, Error> {
        let context = context(rank, options)?;
        let stream = CudaStream::new(&context);
        let stream = stream.map_err(|fault| fault.on(rank, context.device()))?;
        Ok(Staged { context, stream, rank })
    }

    pub(super) fn fault(&self, fault: &Fault) -> Error {
        fault.on(self.rank, self.context.device())
    }
}

/// A call of a rank with a GPU: where it is put, and how long the GPU may take.
struct Copier<'c> {
    staged: &'c Staged,
    stream: CudaStream,
    patience: Duration,
}

impl Copier<'_> {
    /// Copies memory of the GPU to the host, behind what is in the stream.
    fn fetch(&self, from: DevicePtr, bytes: u64) -> Result<Vec<u8>, Error> {
        let mut host = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        if bytes > 0 {
            // SAFETY: whoever made the address promised it, and the copy is waited for.
            self.done(unsafe { self.stream.read(&mut host, from.0) })?;
        }
        Ok(host)
    }

    /// Copies memory of the host to the GPU.
    fn deliver(&self, to: DevicePtr, host: &[u8]) -> Result<(), Error> {
        match host.is_empty() {
            true => Ok(()),
            // SAFETY: as in `fetch`.
            false => self.done(unsafe { self.stream.write(to.0, host) }),
        }
    }

    fn done(&self, begun: Result<(), Fault>) -> Result<(), Error> {
        let done = begun.and_then(|()| self.stream.drain(self.patience));
        done.map_err(|fault| self.staged.fault(&fault))
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

/// Plays a call on memory of this rank's GPU by way of the host: `body` has the means to copy, and the state. What fails
/// on this rank alone ends the communicator, for the others wait.
fn by_host<R>(
    comm: &mut Communicator,
    body: impl FnOnce(&Copier<'_>, &mut Core) -> Result<R, Error>,
) -> Result<R, Error> {
    let given = comm.settings.stream.clone();
    comm.callable()?;
    let staged = comm.staged.take().ok_or_else(super::device::none)?;
    let stream = given.unwrap_or_else(|| staged.stream.clone());
    let result = comm.core().and_then(|core| {
        let captured = stream.capture().map_err(|fault| staged.fault(&fault))?;
        if captured.is_some() {
            let text = "calls of ranks without a GPU are not captured: they are made by the host";
            return Err(Error::Unsupported(text.into()));
        }
        let patience = core.timeout().saturating_mul(STALLED);
        let copier = Copier { staged: &staged, stream, patience };
        body(&copier, core).map_err(|error| match error {
            Error::Cuda { .. } => core.fail(error),
            other => other,
        })
    });
    comm.staged = Some(staged);
    result
}

/// Plays a call on buffers of so many bytes: input (or data) and output.
fn on_host<R>(
    copier: &Copier<'_>,
    args: Args<DevicePtr, DevicePtr>,
    [input_bytes, output_bytes]: [u64; 2],
    play: impl FnOnce(Args<&[u8], &mut [u8]>) -> Result<R, Error>,
) -> Result<R, Error> {
    match args {
        Args::InPlace { data } => {
            let mut host = copier.fetch(data, input_bytes)?;
            let done = play(Args::InPlace { data: &mut host })?;
            copier.deliver(data, &host)?;
            Ok(done)
        }
        Args::OutOfPlace { input, output } => {
            let host = copier.fetch(input, input_bytes)?;
            // What a call does not write stays.
            let mut result = copier.fetch(output, output_bytes)?;
            let done = play(Args::OutOfPlace { input: &host, output: &mut result })?;
            copier.deliver(output, &result)?;
            Ok(done)
        }
    }
}

/// Performs a call by name; `lens` are those of blocks that have lengths of their own.
pub(super) fn perform(
    comm: &mut Communicator,
    (collective, root): (&Collective, u32),
    call: Call<DevicePtr, DevicePtr>,
    lens: Option<&[usize]>,
) -> Result<(), Error> {
    by_host(comm, |copier, core| {
        let Call { count, dtype, op, factor, args } = call;
        let seat = Seat { rank: core.rank(), ranks: core.size(), root };
        let [input, output] = collective.elements(seat, count, lens);
        let bytes = match args {
            Args::InPlace { data } => [sized(collective.name, data, input.max(output), dtype)?, 0],
            Args::OutOfPlace { input: from, output: to } => [
                sized(collective.name, from, input, dtype)?,
                sized(collective.name, to, output, dtype)?,
            ],
        };
        on_host(copier, args, bytes, |args| {
            let call = Call { count, dtype, op, factor, args };
            match lens {
                None => core.perform(collective, root, call),
                Some(lens) => core.perform_cut(collective, call, lens),
            }
        })
    })
}

/// Performs a call whose input is a list, or its output, or both.
pub(super) fn perform_listed<'a>(
    comm: &mut Communicator,
    (collective, root): (&Collective, u32),
    call: Listed<
        'a,
        Cuda,
        impl ExactSizeIterator<Item = DevicePtr>,
        impl ExactSizeIterator<Item = DevicePtr>,
    >,
) -> Result<(), Error> {
    by_host(comm, |copier, core| {
        let Call { count, dtype, op, factor, args } = call;
        let Args::OutOfPlace { input, output } = args else { return Ok(()) };
        let seat = Seat { rank: core.rank(), ranks: core.size(), root };
        let [whole_input, whole_output] = collective.elements(seat, count, None);
        let block = count.saturating_mul(dtype.size() as u64);
        let fetch = |at: DevicePtr, elements: u64| {
            copier.fetch(at, sized(collective.name, at, elements, dtype)?)
        };
        let (mut one, mut each) = (Vec::new(), Vec::new());
        let listed = matches!(input, Blocks::Each(_));
        match input {
            Blocks::One(input) => one = fetch(input, whole_input)?,
            Blocks::Each(list) => {
                each = list.map(|at| fetch(at, count)).collect::<Result<Vec<_>, _>>()?;
            }
        }
        let input = match listed {
            true => Blocks::Each(each.iter().map(Vec::as_slice)),
            false => Blocks::One(&one[..]),
        };
        let call = |output| {
            let args = Args::OutOfPlace { input, output };
            Call { count, dtype, op, factor, args }
        };
        match output {
            Blocks::One(to) => {
                let mut host = fetch(to, whole_output)?;
                let output: Blocks<_, std::vec::IntoIter<&mut [u8]>> = Blocks::One(&mut host[..]);
                core.perform_listed(collective, root, call(output))?;
                copier.deliver(to, &host)
            }
            Blocks::Each(list) => {
                let places: Vec<DevicePtr> = list.collect();
                let mut hosts = vec![vec![0; block as usize]; places.len()];
                let places_here: Vec<&mut [u8]> = hosts.iter_mut().map(Vec::as_mut_slice).collect();
                let output = Blocks::Each(places_here.into_iter());
                core.perform_listed(collective, root, call(output))?;
                places.iter().zip(&hosts).try_for_each(|(&to, host)| copier.deliver(to, host))
            }
        }
    })
}

/// Plays a batch of messages.
pub(super) fn exchange(
    comm: &mut Communicator,
    name: &'static str,
    messages: &[Message<DevicePtr, DevicePtr>],
    collective: Option<u64>,
) -> Result<(), Error> {
    by_host(comm, |copier, core| {
        let mut hosts = Vec::with_capacity(messages.len());
        for message in messages {
            let (at, is_sent) = match message.end {
                End::Sent(at) => (at, true),
                End::Received(at) => (at, false),
            };
            let bytes = sized(name, at, message.bytes, DType::U8)?;
            let host = if is_sent { copier.fetch(at, bytes)? } else { vec![0; bytes as usize] };
            hosts.push(host);
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
        core.exchange(name, &mut list, collective)?;
        drop(list);
        let received = messages.iter().zip(&hosts).filter_map(|(message, host)| {
            let End::Received(to) = message.end else { return None };
            Some((to, host))
        });
        received.into_iter().try_for_each(|(to, host)| copier.deliver(to, host))
    })
}

/// Plays an algorithm on buffers of so many elements.
pub(super) fn play(
    comm: &mut Communicator,
    algorithm: &Algorithm,
    (dtype, Reduction { op, factor }): (DType, Reduction),
    lens: [usize; 2],
    args: Args<DevicePtr, DevicePtr>,
) -> Result<(), Error> {
    let plan = comm.plan_of(algorithm, args.placement())?;
    let count = count_of(algorithm, &plan.header, &args, lens)?;
    by_host(comm, |copier, core| {
        let of = |at: DevicePtr, elements: usize| sized("play", at, elements as u64, dtype);
        let bytes = match args {
            Args::InPlace { data } => [of(data, lens[0])?, 0],
            Args::OutOfPlace { input, output } => [of(input, lens[0])?, of(output, lens[1])?],
        };
        on_host(copier, args, bytes, |args| {
            core.run(&plan, Call { count, dtype, op, factor, args }).map(drop)
        })
    })
}
