//! Operations as data: what is called, on which buffers.

use std::fmt;

use roundelay::{Algorithm, Communicator, Error, Memory, MemoryMut, Peer, Reduction, Typed};

use crate::buffer::{Buffer, Device};

/// The operation that is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Name {
    /// `all_reduce`: in place without an input.
    AllReduce,
    /// `reduce`: in place without an input.
    Reduce,
    /// `broadcast`: in place without an input; with one, which beside the root may have no elements.
    Broadcast,
    /// `all_gather`: the output is one buffer of equal or unequal blocks, or a list.
    AllGather,
    /// `reduce_scatter`: the input is one buffer of equal or unequal blocks, or a list.
    ReduceScatter,
    /// `all_to_all`: both are one buffer of equal or unequal blocks, or lists; in place, of equal blocks, without an
    /// input.
    AllToAll,
    /// `gather`: the root's output is one buffer or a list.
    Gather,
    /// `scatter`: the root's input is one buffer or a list.
    Scatter,
    /// `barrier`, without buffers.
    Barrier,
}

impl Name {
    /// Returns the name in lower case, as `all_reduce`.
    pub fn as_str(self) -> &'static str {
        match self {
            Name::AllReduce => "all_reduce",
            Name::Reduce => "reduce",
            Name::Broadcast => "broadcast",
            Name::AllGather => "all_gather",
            Name::ReduceScatter => "reduce_scatter",
            Name::AllToAll => "all_to_all",
            Name::Gather => "gather",
            Name::Scatter => "scatter",
            Name::Barrier => "barrier",
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The memory of one side of a call.
#[derive(Debug, Clone)]
pub enum Side {
    /// None: the call is in place, or this side has no meaning on this rank.
    None,
    /// One buffer, of one block or of equal blocks one after the other.
    One(Buffer),
    /// A buffer for each rank.
    List(Vec<Buffer>),
    /// One buffer of blocks of so many elements.
    Cut(Buffer, Vec<usize>),
}

impl Side {
    fn form(&self) -> &'static str {
        match self {
            Side::None => "nothing",
            Side::One(_) => "one buffer",
            Side::List(_) => "a list of buffers",
            Side::Cut(..) => "one buffer of unequal blocks",
        }
    }

    fn buffers(&self) -> &[Buffer] {
        match self {
            Side::None => &[],
            Side::One(buffer) | Side::Cut(buffer, _) => std::slice::from_ref(buffer),
            Side::List(list) => list,
        }
    }
}

/// A message to or from one rank.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// The memory that is sent, or received into.
    pub buffer: Buffer,
    /// The rank at the other end.
    pub peer: u32,
    /// True if it is sent.
    pub is_send: bool,
}

/// A message with a tag.
#[derive(Debug, Clone, Copy)]
pub struct Tagged {
    /// The memory that is sent, or received into.
    pub buffer: Buffer,
    /// The rank at the other end; one that sends names it.
    pub peer: Peer,
    /// The tag, which both ends name.
    pub tag: u64,
    /// True if it is sent.
    pub is_send: bool,
}

impl Tagged {
    pub(crate) fn receiver(&self) -> Result<u32, Error> {
        match self.peer {
            Peer::Rank(rank) => Ok(rank),
            Peer::Any => Err(Error::Usage("a message is sent to one rank: name it".into())),
        }
    }
}

/// An operation and its arguments.
#[derive(Debug, Clone)]
pub enum Operation {
    /// A collective.
    Collective {
        /// The collective.
        name: Name,
        /// The memory that is written, or read and written in place.
        output: Side,
        /// The memory that is read.
        input: Side,
        /// The reduction, of no meaning where nothing is reduced.
        reduction: Reduction,
        /// The root, of no meaning where there is none.
        root: u32,
    },
    /// Messages between single ranks, at once.
    Messages(Vec<Message>),
    /// An algorithm that the caller brings.
    Algorithm {
        /// The algorithm.
        algorithm: Algorithm,
        /// The memory that is written, or read and written in place.
        output: Side,
        /// The memory that is read.
        input: Side,
        /// The reduction, of no meaning where nothing is reduced.
        reduction: Reduction,
    },
}

/// The memory of one kind, as the communicator's calls take it.
trait Place {
    type Read: Memory;
    type Write: MemoryMut
        + Memory<Element = <Self::Read as Memory>::Element, Engine = <Self::Read as Memory>::Engine>;

    fn read(buffer: &Buffer) -> Result<Self::Read, Error>;
    fn write(buffer: &Buffer) -> Result<Self::Write, Error>;
}

/// Memory of this host.
enum OfHost {}

impl Place for OfHost {
    type Read = Typed<&'static [u8]>;
    type Write = Typed<&'static mut [u8]>;

    fn read(buffer: &Buffer) -> Result<Self::Read, Error> {
        buffer.read()
    }

    fn write(buffer: &Buffer) -> Result<Self::Write, Error> {
        buffer.write()
    }
}

/// Memory of a GPU.
enum OfDevice {}

impl Place for OfDevice {
    type Read = Typed<roundelay::cuda::DevicePtr>;
    type Write = Typed<roundelay::cuda::DevicePtr>;

    fn read(buffer: &Buffer) -> Result<Self::Read, Error> {
        buffer.on_device()
    }

    fn write(buffer: &Buffer) -> Result<Self::Write, Error> {
        buffer.on_device()
    }
}

impl Operation {
    /// Describes a collective without a root.
    pub fn collective(name: Name, output: Side, input: Side, reduction: Reduction) -> Self {
        Operation::Collective { name, output, input, reduction, root: 0 }
    }

    /// Performs the operation on the caller's thread.
    ///
    /// # Errors
    ///
    /// The errors of the call; [`Error::Usage`] if the operation has no such form, or its buffers are partly on a
    /// GPU and partly not.
    pub fn perform(&self, comm: &mut Communicator) -> Result<(), Error> {
        match self.device()? {
            Device::Host => self.perform_on::<OfHost>(comm),
            Device::Cuda => self.perform_on::<OfDevice>(comm),
        }
    }

    /// Returns where the buffers are: all of them in one place.
    fn device(&self) -> Result<Device, Error> {
        let mut all: Vec<Device> = match self {
            Operation::Collective { output, input, .. }
            | Operation::Algorithm { output, input, .. } => {
                output.buffers().iter().chain(input.buffers()).map(Buffer::device).collect()
            }
            Operation::Messages(all) => all.iter().map(|m| m.buffer.device()).collect(),
        };
        let first = all.pop().unwrap_or(Device::Host);
        match all.iter().all(|&device| device == first) {
            true => Ok(first),
            false => Err(Error::Usage(
                "some buffers of the call are on a GPU and some are not: give all of them in one \
                 kind of memory"
                    .into(),
            )),
        }
    }

    fn perform_on<P: Place>(&self, comm: &mut Communicator) -> Result<(), Error> {
        match self {
            Operation::Messages(messages) => perform_messages::<P>(comm, messages),
            Operation::Algorithm { algorithm, output, input, reduction } => match (output, input) {
                (Side::One(data), Side::None) => {
                    comm.run_algorithm(algorithm, &mut P::write(data)?, *reduction).map(drop)
                }
                _ => {
                    let [output, input] = both(output, input);
                    let (mut output, input) = (P::write(&output)?, P::read(&input)?);
                    comm.run_algorithm_into(algorithm, &mut output, &input, *reduction).map(drop)
                }
            },
            Operation::Collective { name, output, input, reduction, root } => {
                collective::<P>(comm, *name, (output, input), *reduction, *root)
            }
        }
    }
}

/// Returns the buffers of both sides; one that has no meaning on this rank is empty.
fn both(output: &Side, input: &Side) -> [Buffer; 2] {
    let first = |side: &Side| side.buffers().first().copied();
    match (first(output), first(input)) {
        (Some(output), Some(input)) => [output, input],
        (Some(output), None) => [output, output.none()],
        (None, Some(input)) => [input.none(), input],
        (None, None) => [Buffer::NONE; 2],
    }
}

fn perform_messages<P: Place>(comm: &mut Communicator, messages: &[Message]) -> Result<(), Error> {
    let of = |sent: bool| messages.iter().filter(move |m| m.is_send == sent);
    let sent: Vec<_> = of(true).map(|m| P::read(&m.buffer)).collect::<Result<_, _>>()?;
    let mut received: Vec<_> = of(false).map(|m| P::write(&m.buffer)).collect::<Result<_, _>>()?;
    let (mut sent, mut received) = (sent.iter(), received.iter_mut());
    let mut batch = comm.batch();
    for message in messages {
        match message.is_send {
            true => sent.by_ref().take(1).for_each(|data| {
                batch.send(data, message.peer);
            }),
            false => received.by_ref().take(1).for_each(|data| {
                batch.recv(data, message.peer);
            }),
        }
    }
    batch.run(comm).map(drop)
}

fn reads<P: Place>(list: &[Buffer]) -> Result<Vec<P::Read>, Error> {
    list.iter().map(P::read).collect()
}

fn writes<P: Place>(list: &[Buffer]) -> Result<Vec<P::Write>, Error> {
    list.iter().map(P::write).collect()
}

fn collective<P: Place>(
    comm: &mut Communicator,
    name: Name,
    (output, input): (&Side, &Side),
    reduction: Reduction,
    root: u32,
) -> Result<(), Error> {
    use Side::{Cut, List, None, One};
    match (name, output, input) {
        (Name::Barrier, None, None) => comm.barrier(),
        (Name::AllReduce, One(data), None) => comm.all_reduce(&mut P::write(data)?, reduction),
        (Name::AllReduce, One(output), One(input)) => {
            comm.all_reduce_into(&mut P::write(output)?, &P::read(input)?, reduction)
        }
        (Name::Reduce, One(data), None) => comm.reduce(&mut P::write(data)?, root, reduction),
        (Name::Reduce, One(_) | None, One(_)) => {
            let [output, input] = both(output, input);
            comm.reduce_into(&mut P::write(&output)?, &P::read(&input)?, root, reduction)
        }
        (Name::Broadcast, One(data), None) => comm.broadcast(&mut P::write(data)?, root),
        (Name::Broadcast, One(output), One(input)) => {
            comm.broadcast_into(&mut P::write(output)?, &P::read(input)?, root)
        }
        (Name::AllGather, One(output), One(input)) => {
            comm.all_gather_single(&mut P::write(output)?, &P::read(input)?)
        }
        (Name::AllGather, List(outputs), One(input)) => {
            let mut outputs = writes::<P>(outputs)?;
            comm.all_gather(&mut outputs.iter_mut().collect::<Vec<_>>(), &P::read(input)?)
        }
        (Name::AllGather, Cut(output, counts), One(input)) => {
            comm.all_gather_v(&mut P::write(output)?, &P::read(input)?, counts)
        }
        (Name::ReduceScatter, One(output), One(input)) => {
            comm.reduce_scatter_single(&mut P::write(output)?, &P::read(input)?, reduction)
        }
        (Name::ReduceScatter, One(output), List(inputs)) => {
            let inputs = reads::<P>(inputs)?;
            let inputs: Vec<_> = inputs.iter().collect();
            comm.reduce_scatter(&mut P::write(output)?, &inputs, reduction)
        }
        (Name::ReduceScatter, One(output), Cut(input, counts)) => {
            comm.reduce_scatter_v(&mut P::write(output)?, &P::read(input)?, counts, reduction)
        }
        (Name::AllToAll, One(data), None) => comm.all_to_all_in_place(&mut P::write(data)?),
        (Name::AllToAll, One(output), One(input)) => {
            comm.all_to_all_single(&mut P::write(output)?, &P::read(input)?)
        }
        (Name::AllToAll, List(outputs), List(inputs)) => {
            let (mut outputs, inputs) = (writes::<P>(outputs)?, reads::<P>(inputs)?);
            let inputs: Vec<_> = inputs.iter().collect();
            comm.all_to_all(&mut outputs.iter_mut().collect::<Vec<_>>(), &inputs)
        }
        (Name::AllToAll, Cut(output, received), Cut(input, sent)) => {
            comm.all_to_all_v(&mut P::write(output)?, received, &P::read(input)?, sent)
        }
        (Name::Gather, List(outputs), One(input)) => {
            let mut outputs = writes::<P>(outputs)?;
            comm.gather(&mut outputs.iter_mut().collect::<Vec<_>>(), &P::read(input)?, root)
        }
        (Name::Gather, One(_) | None, One(_)) => {
            let [output, input] = both(output, input);
            comm.gather_single(&mut P::write(&output)?, &P::read(&input)?, root)
        }
        (Name::Scatter, One(output), List(inputs)) => {
            let inputs = reads::<P>(inputs)?;
            comm.scatter(&mut P::write(output)?, &inputs.iter().collect::<Vec<_>>(), root)
        }
        (Name::Scatter, One(_), One(_) | None) => {
            let [output, input] = both(output, input);
            comm.scatter_single(&mut P::write(&output)?, &P::read(&input)?, root)
        }
        _ => Err(Error::Usage(format!(
            "{name} has no form with {} as output and {} as input",
            output.form(),
            input.form()
        ))),
    }
}
