//! Measures NCCL, a peer inside our ranks. It is opened where it is found, joins the same processes over our
//! own communicator, and puts its calls on the same stream.
//!
//! It is measured in two ways, each a peer of its own: with the buffers that ours have, and with buffers
//! that are symmetric windows, for which it has other kernels.

mod error;
mod find;
#[expect(unsafe_code, reason = "functions of a foreign library")]
mod library;

use std::ffi::{c_int, c_void};

use roundelay::cuda::DevicePtr;
use roundelay::{Communicator, DType, Error, RedOp};
use roundelay_compiler::program::CollectiveKind;

pub(crate) use error::NcclError;
use library::{ID_BYTES, NcclComm, NcclLibrary, NcclTransfer, NcclWindow, RawStream};

/// A variable that ranks set unless the user has: NCCL without multicast in the switches, which roundelay does not use
/// either.
pub(crate) const MULTICAST: (&str, &str) = ("NCCL_NVLS_ENABLE", "0");

/// Describes the NCCL that is found.
pub(crate) fn probe() -> Result<String, NcclError> {
    let nccl = NcclLibrary::open(&find::candidates())?;
    let windows = if nccl.windows() { "" } else { ", without symmetric windows" };
    Ok(format!("{}, {}{windows}", nccl.version()?, nccl.path().display()))
}

/// A call of a collective.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NcclCall<'a> {
    /// The collective.
    pub(crate) kind: &'a CollectiveKind,
    /// Elements, in the unit of the collective.
    pub(crate) count: usize,
    /// Type of the elements.
    pub(crate) dtype: DType,
    /// Operator.
    pub(crate) op: RedOp,
    /// The root.
    pub(crate) root: u32,
    /// Address of the input, or of the data.
    pub(crate) input: u64,
    /// Address of the output; of the data again, if the call is in place.
    pub(crate) output: u64,
    /// A stream of the driver.
    pub(crate) stream: *mut c_void,
}

/// The library, opened in a rank.
pub(crate) struct OpenedNccl(NcclLibrary);

impl OpenedNccl {
    /// Opens it, on all ranks or none: every rank says why not.
    pub(crate) fn new(host: &mut Communicator) -> Result<Result<Self, NcclError>, Error> {
        let opened = NcclLibrary::open(&find::candidates());
        let all = host.all_gather_u64(u64::from(opened.is_ok()))?;
        Ok(match (opened, all.iter().position(|&found| found == 0)) {
            (Ok(nccl), None) => Ok(OpenedNccl(nccl)),
            (Err(why), _) => Err(why),
            (Ok(_), Some(rank)) => Err(NcclError::Elsewhere { rank, what: "does not find it" }),
        })
    }

    /// Returns version and place, in words.
    pub(crate) fn words(&self) -> String {
        let version = self.0.version().unwrap_or_else(|why| why.to_string());
        format!("NCCL {version}, {}", self.0.path().display())
    }

    /// Joins all ranks, on the device that is current on this thread.
    pub(crate) fn join(
        &self,
        host: &mut Communicator,
    ) -> Result<Result<NcclRank<'_>, NcclError>, Error> {
        let mut id = [0; ID_BYTES];
        let mut fault = None;
        if host.rank() == 0 {
            match self.0.unique_id() {
                Ok(made) => id = made,
                Err(why) => fault = Some(why),
            }
        }
        host.broadcast(&mut id, 0)?;
        let none = id.iter().all(|&byte| byte == 0);
        let (rank, ranks) = (host.rank(), host.size());
        let joined = match fault {
            Some(why) => Err(why),
            None if none => Err(NcclError::Elsewhere { rank: 0, what: "could not begin" }),
            None => self.0.join(id, ranks, rank),
        };
        let all = host.all_gather_u64(u64::from(joined.is_ok()))?;
        Ok(match (joined, all.iter().position(|&joined| joined == 0)) {
            (Ok(comm), None) => Ok(NcclRank { comm, rank, ranks }),
            (Ok(_), Some(rank)) => Err(NcclError::Elsewhere { rank, what: "could not join" }),
            (Err(why), _) => Err(why),
        })
    }
}

/// A rank that has joined.
pub(crate) struct NcclRank<'a> {
    comm: NcclComm<'a>,
    rank: u32,
    ranks: u32,
}

/// Buffers that are symmetric windows.
pub(crate) struct SymmetricWindows(Vec<NcclWindow>);

impl SymmetricWindows {
    /// Returns the addresses of a byte in the first two windows; null for one that is not there.
    pub(crate) fn at(&self, byte: usize) -> [DevicePtr; 2] {
        [0, 1].map(|i| self.0.get(i).map_or(DevicePtr::NULL, |window| window.at(byte)))
    }
}

impl NcclRank<'_> {
    /// Windows of the given sizes: all ranks make them together.
    pub(crate) fn windows(
        &self,
        host: &mut Communicator,
        bytes: &[usize],
    ) -> Result<Result<SymmetricWindows, NcclError>, Error> {
        let made: Result<Vec<NcclWindow>, _> =
            bytes.iter().map(|&bytes| self.comm.window(bytes)).collect();
        let all = host.all_gather_u64(u64::from(made.is_ok()))?;
        Ok(match (made, all.iter().position(|&made| made == 0)) {
            (Ok(made), None) => Ok(SymmetricWindows(made)),
            (Ok(_), Some(rank)) => Err(NcclError::Elsewhere { rank, what: "has no window" }),
            (Err(why), _) => Err(why),
        })
    }

    /// Gives windows back, together with all ranks.
    pub(crate) fn close(&self, windows: SymmetricWindows) -> Result<(), NcclError> {
        windows.0.into_iter().try_for_each(|window| self.comm.close(window))
    }

    /// Leaves, together with all ranks.
    pub(crate) fn leave(self) -> Result<(), NcclError> {
        self.comm.leave()
    }

    /// Returns the reason why it has no such call, if it has none.
    pub(crate) fn lacks(
        kind: &CollectiveKind,
        dtype: DType,
        op: RedOp,
        in_place: bool,
    ) -> Option<String> {
        let reduces = matches!(
            kind,
            CollectiveKind::AllReduce | CollectiveKind::Reduce | CollectiveKind::ReduceScatter
        );
        match kind {
            CollectiveKind::Barrier => Some("it has no barrier".into()),
            CollectiveKind::Scan | CollectiveKind::ExScan => Some("it has no scan".into()),
            CollectiveKind::Custom(_) => Some("it has only its own collectives".into()),
            CollectiveKind::AllToAll if in_place => Some("it has no all_to_all in place".into()),
            _ if number(dtype).is_none() => Some(format!("it has no {dtype}")),
            _ if reduces && operator(op).is_none() => Some(format!("it has no {op}")),
            _ => None,
        }
    }

    /// Puts a call on the stream. Not for what it [lacks](Self::lacks).
    pub(crate) fn call(&self, call: &NcclCall<'_>) -> Result<(), NcclError> {
        let (comm, stream) = (&self.comm, RawStream(call.stream));
        let dtype = number(call.dtype).unwrap_or(0);
        let op = operator(call.op).unwrap_or(0);
        let (count, root) = (call.count, call.root as c_int);
        let (input, output, in_place) = (call.input, call.output, call.input == call.output);
        let block = |base: u64, r: u32| base + u64::from(r) * (count * call.dtype.size()) as u64;
        let own = |base: u64| if in_place { block(base, self.rank) } else { base };
        let whole = NcclTransfer { from: input, to: output, count, dtype };
        let blocks = |skip: bool| (0..self.ranks).filter(move |r| !(skip && *r == call.root));
        let at_root = self.rank == call.root;
        match call.kind {
            CollectiveKind::AllReduce => comm.all_reduce(whole, op, stream),
            CollectiveKind::Reduce => comm.reduce(whole, op, root, stream),
            CollectiveKind::Broadcast => comm.broadcast(whole, root, stream),
            CollectiveKind::AllGather => {
                comm.all_gather(NcclTransfer { from: own(input), ..whole }, stream)
            }
            CollectiveKind::ReduceScatter => {
                comm.reduce_scatter(NcclTransfer { to: own(output), ..whole }, op, stream)
            }
            CollectiveKind::AllToAll => match comm.all_to_all(whole, stream) {
                Some(done) => done,
                None => {
                    let sent =
                        blocks(false).map(|r| (r, NcclTransfer { from: block(input, r), ..whole }));
                    let came =
                        blocks(false).map(|r| (r, NcclTransfer { to: block(output, r), ..whole }));
                    comm.messages(sent, came, stream)
                }
            },
            // In place the root's own block is where it belongs.
            CollectiveKind::Gather => {
                let skips = in_place && at_root;
                let sent =
                    (!skips).then_some((call.root, NcclTransfer { from: own(input), ..whole }));
                let came = blocks(in_place).filter(|_| at_root);
                let came = came.map(|r| (r, NcclTransfer { to: block(output, r), ..whole }));
                comm.messages(sent.into_iter(), came, stream)
            }
            CollectiveKind::Scatter => {
                let skips = in_place && at_root;
                let sent = blocks(in_place).filter(|_| at_root);
                let sent = sent.map(|r| (r, NcclTransfer { from: block(input, r), ..whole }));
                let came =
                    (!skips).then_some((call.root, NcclTransfer { to: own(output), ..whole }));
                comm.messages(sent, came.into_iter(), stream)
            }
            CollectiveKind::SendRecv => {
                let sent = (self.rank == 0).then_some((1, whole));
                let came = (self.rank == 1).then_some((0, whole));
                comm.messages(sent.into_iter(), came.into_iter(), stream)
            }
            CollectiveKind::Barrier
            | CollectiveKind::Scan
            | CollectiveKind::ExScan
            | CollectiveKind::Custom(_) => Ok(()),
        }
    }
}

/// Returns NCCL's number of a type.
fn number(dtype: DType) -> Option<c_int> {
    Some(match dtype {
        DType::I8 => 0,
        DType::U8 => 1,
        DType::I32 => 2,
        DType::U32 => 3,
        DType::I64 => 4,
        DType::U64 => 5,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::Bf16 => 9,
        DType::Bool => return None,
    })
}

/// Returns NCCL's number of an operator.
fn operator(op: RedOp) -> Option<c_int> {
    Some(match op {
        RedOp::Sum => 0,
        RedOp::Prod => 1,
        RedOp::Max => 2,
        RedOp::Min => 3,
        RedOp::Avg => 4,
        RedOp::PremulSum | RedOp::And | RedOp::Or | RedOp::Xor => return None,
    })
}
