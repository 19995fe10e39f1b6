//! Calls of one algorithm.

use std::sync::Arc;

use roundelay_algorithms::find;
use roundelay_compiler::Proved;
use roundelay_compiler::device::abi;
use roundelay_compiler::plan::{Header, Placement};

use super::bound::{Key, Lent};
use super::comm::CudaComm;
use super::program::Lowered;
use super::{CudaStream, DevicePtr, Protocol};
use crate::choose::{How, device};
use crate::collectives::Reduction;
use crate::custom::Algorithm;
use crate::dtype::DType;
use crate::error::Error;

/// The buffers of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CudaBuffers {
    /// The buffer of a call in place: the whole vector.
    InPlace {
        /// The vector, read and written.
        data: DevicePtr,
    },
    /// The buffers of a call out of place. A buffer without meaning on this rank may be [`DevicePtr::NULL`].
    OutOfPlace {
        /// The input, which is never written.
        input: DevicePtr,
        /// The output, which is written.
        output: DevicePtr,
    },
}

/// One call of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CudaArgs {
    /// The buffers.
    pub buffers: CudaBuffers,
    /// Elements, in the unit of the plan's collective: the vector has `blocks * count`, as in
    /// [`Call`](crate::Call).
    pub count: u64,
    /// Type of the elements.
    pub dtype: DType,
    /// The operator that reduces contributions; of no meaning where the collective only copies.
    pub reduction: Reduction,
    /// The way in which messages travel; chosen by size and memory if left out. It is the same on all ranks.
    ///
    /// [`Protocol::Put`], [`Protocol::Get`] and [`Protocol::Engine`] ask that what peers address is memory of
    /// [`CudaComm::alloc`] or [`CudaComm::register`], at the same place of it on every rank. Where the protocol is
    /// left out that decides it: then all ranks must give such memory, or none.
    pub protocol: Option<Protocol>,
    /// Blocks of the kernel; by size if left out. The same on all ranks.
    pub blocks: Option<u32>,
}

impl CudaBuffers {
    pub(super) fn placement(&self) -> Placement {
        match self {
            CudaBuffers::InPlace { .. } => Placement::InPlace,
            CudaBuffers::OutOfPlace { .. } => Placement::OutOfPlace,
        }
    }

    /// Returns the addresses of data, input, output.
    fn addresses(&self) -> [u64; 3] {
        match *self {
            CudaBuffers::InPlace { data } => [data.0, 0, 0],
            CudaBuffers::OutOfPlace { input, output } => [0, input.0, output.0],
        }
    }
}

impl CudaComm {
    /// Puts a call of an algorithm (of a text, or of the library by [`CudaComm::algorithm`]) into a stream.
    /// Returns before it is played. The first call of its kind compiles and loads its kernel, and waits for
    /// the other ranks to do so; later ones talk to nobody.
    ///
    /// # Errors
    ///
    /// On all ranks: [`Error::Refused`], [`Error::Unsupported`], [`Error::Usage`] if the call cannot be made; the
    /// communicator stays usable. [`Error::PlanMismatch`] if ranks call different things, [`Error::Cuda`] if the
    /// driver refuses: these end it.
    pub fn call(
        &mut self,
        algorithm: &Algorithm,
        args: CudaArgs,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let plans = self.plans(algorithm, args.buffers.placement())?;
        self.play(&plans, &args, None, stream)
    }

    /// Puts a call of proved plans into a stream.
    pub(super) fn play(
        &mut self,
        plans: &Proved,
        args: &CudaArgs,
        measured: Option<How>,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        self.comm.core()?.usable()?;
        let Some(header) = plans.plans().first().map(|plan| &plan.header) else { return Ok(()) };
        if args.count == 0 && header.collective != "barrier" {
            return Ok(());
        }
        let (key, lowered) = self.key(plans, args, measured)?;
        let core = self.comm.core()?;
        let lent = Lent {
            buffers: args.buffers.addresses(),
            factor: args.reduction.factor,
            timeout: u64::try_from(core.timeout().as_nanos()).unwrap_or(u64::MAX),
        };
        let mut launched = self.gpu.launch(&key, &lent, stream);
        if launched == Ok(false) {
            self.gpu.bind(core, key, &lowered, &lent)?;
            launched = self.gpu.launch(&key, &lent, stream);
        }
        // A call that one rank does not make ends the others' too.
        launched.map(drop).map_err(|error| self.end(error))
    }

    /// Returns how a call would be played: the protocol, and the number of blocks, those that are left out filled in.
    ///
    /// # Errors
    ///
    /// The errors of [`CudaComm::call`].
    pub fn how(
        &mut self,
        algorithm: &Algorithm,
        args: &CudaArgs,
    ) -> Result<(Protocol, u32), Error> {
        let plans = self.plans(algorithm, args.buffers.placement())?;
        let (key, lowered) = self.key(&plans, args, None)?;
        self.gpu.cut(&lowered, &key).map_err(Error::Unsupported)?;
        Ok((key.protocol, key.blocks))
    }

    /// Returns an algorithm of the library, by collective and name.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if there is none; the message lists what there is.
    pub fn algorithm(&mut self, collective: &str, name: &str) -> Result<Algorithm, Error> {
        match find(collective, name) {
            Some(entry) => self.comm.core()?.plans.of_book(entry),
            None => {
                let names: Vec<&str> =
                    roundelay_algorithms::of(collective).map(|entry| entry.name).collect();
                Err(Error::Usage(format!(
                    "the algorithm library has no {collective}.{name}; for {collective} it has {}",
                    if names.is_empty() { "nothing".into() } else { names.join(", ") }
                )))
            }
        }
    }

    /// Returns the kernel that a call would play, as text. Compiles nothing and moves nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`CudaComm::call`].
    pub fn source(&mut self, algorithm: &Algorithm, args: CudaArgs) -> Result<String, Error> {
        let plans = self.plans(algorithm, args.buffers.placement())?;
        let (key, lowered) = self.key(&plans, &args, None)?;
        lowered.text(key.dtype, key.op, false).map_err(Error::Unsupported)
    }

    fn plans(&self, algorithm: &Algorithm, placement: Placement) -> Result<Arc<Proved>, Error> {
        algorithm.proved(self.size(), algorithm.root(), placement)
    }

    /// Returns the key of a call, with all that is left out filled in: the same on all ranks. The setting
    /// that was measured to be best is played if the buffers allow it.
    fn key(
        &mut self,
        plans: &Proved,
        args: &CudaArgs,
        measured: Option<How>,
    ) -> Result<(Key, Arc<Lowered>), Error> {
        let header = checked(plans, args)?;
        let vector = u64::from(header.blocks).saturating_mul(args.count);
        let bytes = vector.saturating_mul(args.dtype.size() as u64);
        let merged = self.comm.core()?.plans.merged_hints()?;
        let (sms, most) = (self.gpu.sms, merged.max_sms());
        let ranks = header.ranks;
        let by_size =
            |protocol| device::blocks(&header.collective, protocol, bytes, ranks, sms, most);
        let hinted = args.protocol.or(merged.protocol());
        let how = |protocol| (protocol, args.blocks.unwrap_or_else(|| by_size(protocol)));
        let mut hows: Vec<(Protocol, u32)> = match (hinted, measured) {
            (Some(protocol), _) => vec![how(protocol)],
            (None, measured) => {
                let measured = measured.map(|m| (m.protocol, m.blocks.min(abi::BLOCKS)));
                measured
                    .into_iter()
                    .chain(device::protocols(&header.collective, bytes, ranks).into_iter().map(how))
                    .collect()
            }
        };
        // One block has the largest slots.
        hows.extend(hinted.is_none().then_some((Protocol::Staged, 1)));
        let mut refused = String::new();
        for (protocol, blocks) in hows {
            let lowered = match self.gpu.lower(plans, protocol) {
                Ok(lowered) => lowered,
                Err(why) => {
                    refused = format!("as `{}`: {why}", protocol.name());
                    continue;
                }
            };
            let spots = self.spots(header, &lowered, args);
            let (op, hash) = (args.reduction.op, header.hash);
            let (count, dtype) = (args.count, args.dtype);
            let key = Key { count, hash, dtype, op, protocol, blocks, spots };
            let hidden =
                |i: usize| lowered.remote[i] && (spots[i].is_none() || optional(header, i));
            if hinted.is_some() {
                return Ok((key, lowered));
            }
            if (0..3).any(hidden) {
                refused = format!("as `{}`: peers would address the buffers", protocol.name());
                continue;
            }
            match self.gpu.cut(&lowered, &key) {
                Ok(_) => return Ok((key, lowered)),
                Err(why) => refused = why,
            }
        }
        let name = format!("{}.{}", header.collective, header.algorithm);
        Err(Error::Unsupported(format!("{name} cannot be played on GPUs: {refused}")))
    }

    /// Returns the places of the buffers that peers address.
    fn spots(
        &self,
        header: &Header,
        lowered: &Lowered,
        args: &CudaArgs,
    ) -> [Option<super::region::Spot>; 3] {
        let chunks = [header.chunks, header.input_chunks, header.output_chunks];
        let size = args.dtype.size() as u64;
        let vector = u64::from(header.blocks).saturating_mul(args.count).saturating_mul(size);
        let addresses = args.buffers.addresses();
        let bytes = |i: usize| {
            let all = u128::from(vector) * u128::from(chunks[i]);
            u64::try_from(all.div_ceil(u128::from(header.chunks.max(1)))).ok()
        };
        std::array::from_fn(|i| {
            if !lowered.remote[i] || addresses[i] == 0 {
                return None;
            }
            // A part of the output, as callers of NCCL give it: at another place of it on each rank.
            let output = addresses[2]..addresses[2].saturating_add(bytes(2)?);
            if lowered.program.protocol == Protocol::Engine
                && i == 1
                && output.contains(&addresses[1])
            {
                return None;
            }
            self.gpu.regions.find(addresses[i], bytes(i)?)
        })
    }
}

/// Returns the header of plans that fit a call.
fn checked<'a>(plans: &'a Proved, args: &CudaArgs) -> Result<&'a Header, Error> {
    let Some(header) = plans.plans().first().map(|plan| &plan.header) else {
        return Err(Error::Plan("there are no plans".into()));
    };
    if header.placement != args.buffers.placement() {
        return Err(Error::Usage("the plan and the buffers differ in placement".into()));
    }
    match args.blocks.filter(|blocks| !(1..=abi::BLOCKS).contains(blocks)) {
        None => Ok(header),
        Some(blocks) => {
            Err(Error::Usage(format!("{blocks} blocks: a kernel has from 1 to {}", abi::BLOCKS)))
        }
    }
}

/// Returns true if a buffer has no meaning on some ranks, so that they may give none.
fn optional(header: &Header, buffer: usize) -> bool {
    match header.collective.as_str() {
        "gather" | "reduce" => buffer == 2,
        "scatter" | "broadcast" => buffer == 1,
        _ => false,
    }
}
