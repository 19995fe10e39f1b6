//! Bound calls: from plans, count, type and buffers to kernels and parameters, agreed on by all ranks once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use roundelay_compiler::device::{DeviceProtocol, abi};

use super::agreement::agree_call;
use super::call_params::{call_params, evenness};
use super::cut::CallCut;
use super::engine_copies::{EngineCopy, in_parts, pieces};
use super::key::CallKey;
use super::launch::LaunchArgs;
use super::program::LoweredProgram;
use crate::backend::{CudaStream, LoadedKernel, RelaxedCapture};
use crate::control::agree;
use crate::device::RankDevice;
use crate::params::{WORDS, word};
use crate::proxy::ProxyCall;
use crate::rank::GpuRank;
use crate::tunables::BOUND_CALLS_MAX;
use roundelay_engine::EngineCore;
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::Error;

/// A call with all that is left out filled in.
pub(super) type ReadyCall = (CallKey, Arc<LoweredProgram>, LaunchArgs);

/// Plan, protocol, type, operator, and whether memory lies at multiples of 16 bytes.
type KernelKey = ([u8; 16], DeviceProtocol, DType, RedOp, bool);

/// A call, ready to be launched.
#[derive(Debug)]
struct BoundCall {
    lowered: Arc<LoweredProgram>,
    cut: CallCut,
    /// True if chunks begin at multiples of 16 bytes.
    even: bool,
    /// True if the buffers of peers begin at multiples of 16 bytes.
    peers_even: bool,
    dtype: DType,
    op: RedOp,
    /// The kernels for memory at any address, and at multiples of 16 bytes.
    kernels: [Option<Arc<LoadedKernel>>; 2],
    params: Vec<u64>,
    /// The messages that proxies carry; each launch gives them a number.
    far: Option<ProxyCall>,
    /// The copies that engines make, where the protocol is theirs.
    pieces: Option<Vec<EngineCopy>>,
    /// The same call of a rank whose input is its output, once there was one.
    inside: Option<Box<BoundCall>>,
}

/// The calls that were made ready, the latest ones, and their kernels.
#[derive(Debug, Default)]
pub(crate) struct BoundTable {
    /// The place of each call among `bounds`.
    known: BTreeMap<CallKey, usize>,
    bounds: Vec<Option<Box<BoundCall>>>,
    next: usize,
    /// Kernels, whatever the count.
    compiled: BTreeMap<KernelKey, Arc<LoadedKernel>>,
}

impl BoundTable {
    /// Puts a call into a stream, made ready by all ranks together if it is the first of its kind. `inside` is the
    /// program of a rank whose input is its output.
    pub(super) fn put(
        &mut self,
        rank: &mut GpuRank,
        core: &mut EngineCore,
        (key, lowered, args): &ReadyCall,
        inside: Option<&Arc<LoweredProgram>>,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let mut launched = self.launch(rank, key, inside, args, stream);
        if launched == Ok(false) {
            self.bind(rank, core, *key, lowered, args)?;
            launched = self.launch(rank, key, inside, args, stream);
        }
        // A call that one rank does not make ends the others' too.
        launched.map(drop).map_err(|error| rank.end(core, error))
    }

    /// Forgets the calls that use a region.
    pub(crate) fn forget(&mut self, region: u32) {
        let bounds = &mut self.bounds;
        self.known.retain(|key, at| {
            if key.uses(region) {
                bounds[*at] = None;
            }
            !key.uses(region)
        });
    }

    /// Leaves the kernels loaded until the process ends.
    pub(crate) fn abandon(&self) {
        self.compiled.values().cloned().for_each(std::mem::forget);
    }

    /// Makes a call ready: all ranks together.
    fn bind(
        &mut self,
        rank: &mut GpuRank,
        core: &mut EngineCore,
        key: CallKey,
        lowered: &Arc<LoweredProgram>,
        args: &LaunchArgs,
    ) -> Result<(), Error> {
        // A stream that is being captured would not let this thread load code or map memory.
        let _aside = RelaxedCapture::begin().map_err(|fault| rank.device.fault(&fault))?;
        let cut = agree_call(rank, core, &key, 0, lowered, args)?;
        if key.protocol == DeviceProtocol::Multicast {
            rank.memory.unite(core, &key.spots)?;
        }
        let bound = self.prepared(rank, &key, cut, lowered.clone(), args);
        let bound = agree(core, bound)?;
        // All ranks forget the same ones, for they make the same calls.
        let at = self.next % BOUND_CALLS_MAX;
        self.next += 1;
        self.known.retain(|_, known| *known != at);
        self.known.insert(key, at);
        match self.bounds.get_mut(at) {
            Some(oldest) => *oldest = Some(Box::new(bound)),
            None => self.bounds.push(Some(Box::new(bound))),
        }
        Ok(())
    }

    fn prepared(
        &mut self,
        rank: &mut GpuRank,
        key: &CallKey,
        cut: CallCut,
        lowered: Arc<LoweredProgram>,
        args: &LaunchArgs,
    ) -> Result<BoundCall, Error> {
        let (even, peers_even) = evenness(&rank.memory.regions, rank.device.ranks, key, &lowered);
        let params = call_params(rank, key, cut, &lowered, &key.spots);
        let (dtype, op) = (key.dtype, key.op);
        let kernels = [None, None];
        let pieces = (key.protocol == DeviceProtocol::Engine)
            .then(|| pieces(&lowered.program, key.count, key.dtype.size() as u64));
        let far = lowered.far.clone().map(|part| ProxyCall {
            part,
            number: 0,
            is_captured: false,
            epoch: 0,
            timeout: Duration::ZERO,
            digest: key.digest(),
            count: key.count,
            size: key.dtype.size() as u64,
            blocks: cut.blocks,
            pass: cut.pass,
            passes: cut.passes,
            unit: cut.unit,
        });
        let inside = None;
        let mut bound = BoundCall {
            lowered,
            cut,
            even,
            peers_even,
            dtype,
            op,
            kernels,
            params,
            far,
            pieces,
            inside,
        };
        let even = bound.is_even(args);
        self.kernel(&mut rank.device, &mut bound, even)?;
        Ok(bound)
    }

    /// Returns the kernel of a bound call for memory at multiples of 16 bytes, or for any.
    fn kernel(
        &mut self,
        device: &mut RankDevice,
        bound: &mut BoundCall,
        even: bool,
    ) -> Result<Arc<LoadedKernel>, Error> {
        let program = &bound.lowered.program;
        // Counts are parameters: calls of all sizes share a kernel.
        let which = (program.header.hash, program.protocol, bound.dtype, bound.op, even);
        let kernel = match self.compiled.get(&which) {
            Some(kernel) => kernel.clone(),
            None => {
                let text = bound.lowered.text(bound.dtype, bound.op, even)?;
                device.load(&text, &bound.lowered.name())?
            }
        };
        self.compiled.insert(which, kernel.clone());
        bound.kernels[usize::from(even)] = Some(kernel.clone());
        Ok(kernel)
    }

    /// Puts a bound call into a stream; returns true if it is known. `inside` is the program of a rank whose input is
    /// its output.
    fn launch(
        &mut self,
        rank: &mut GpuRank,
        key: &CallKey,
        inside: Option<&Arc<LoweredProgram>>,
        args: &LaunchArgs,
        stream: &CudaStream,
    ) -> Result<bool, Error> {
        let Some(&at) = self.known.get(key) else { return Ok(false) };
        let Some(mut bound) = self.bounds.get_mut(at).and_then(Option::take) else {
            return Ok(false);
        };
        let done = match inside {
            None => self.launch_bound(rank, &mut bound, args, stream),
            Some(program) => self.launch_inside(rank, &mut bound, (key, program), args, stream),
        };
        self.bounds[at] = Some(bound);
        done.map(|()| true)
    }

    fn launch_inside(
        &mut self,
        rank: &mut GpuRank,
        bound: &mut BoundCall,
        (key, program): (&CallKey, &Arc<LoweredProgram>),
        args: &LaunchArgs,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let args = LaunchArgs { buffers: [args.buffers[2], 0, 0], ..*args };
        let mut inside = match bound.inside.take() {
            Some(inside) => inside,
            None => {
                let _aside = RelaxedCapture::begin().map_err(|fault| rank.device.fault(&fault))?;
                // Cut as all ranks have agreed.
                Box::new(self.prepared(rank, key, bound.cut, program.clone(), &args)?)
            }
        };
        let done = self.launch_bound(rank, &mut inside, &args, stream);
        bound.inside = Some(inside);
        done
    }

    fn launch_bound(
        &mut self,
        rank: &mut GpuRank,
        bound: &mut BoundCall,
        args: &LaunchArgs,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let even = bound.is_even(args);
        let kernel = match &bound.kernels[usize::from(even)] {
            Some(kernel) => kernel.clone(),
            None => {
                let _aside = RelaxedCapture::begin().map_err(|fault| rank.device.fault(&fault))?;
                self.kernel(&mut rank.device, bound, even)?
            }
        };
        let (own, ranks) = (rank.device.rank, rank.device.ranks);
        let params = &mut bound.params;
        params[word!(timeout)] = args.timeout;
        params[word!(factor)] = args.factor.to_bits();
        for (i, &address) in args.buffers.iter().enumerate() {
            params[WORDS + (i + 1) * ranks as usize + own as usize] = address;
        }
        let grid = (bound.cut.blocks, abi::THREADS);
        let order = match (&rank.proxies, &mut bound.far) {
            (Some(proxies), Some(far)) => {
                far.number = proxies.next_number();
                far.is_captured =
                    stream.is_captured().map_err(|fault| rank.device.fault(&fault))?;
                far.timeout = Duration::from_nanos(args.timeout);
                params[word!(number)] = far.number.into();
                // Before a kernel enters it.
                proxies.order_call(far);
                Some((proxies, far.number))
            }
            _ => None,
        };
        // SAFETY: the words are those of the kernel's parameter. The arena, the mailbox and the regions live as long
        // as `rank`; the caller's buffers are good by the promise with which their addresses were made.
        let launched = rank.device.journal.put(stream, || unsafe {
            match &bound.pieces {
                None => kernel.launch(stream, grid, params),
                Some(pieces) => in_parts(&rank.device, &kernel, stream, (grid, params), pieces),
            }
        });
        launched.map_err(|fault| {
            order.iter().for_each(|(proxies, number)| proxies.forget_call(*number));
            rank.device.fault(&fault)
        })
    }
}

impl BoundCall {
    /// Returns true if everything of a call lies at multiples of 16 bytes.
    fn is_even(&self, args: &LaunchArgs) -> bool {
        self.even && self.peers_even && args.is_even()
    }
}
