//! Binds calls: from plans, count, type and buffers to kernels and parameters, agreed on by all ranks once.

use std::sync::Arc;
use std::time::Duration;

use roundelay_compiler::Proved;
use roundelay_compiler::device::{Protocol, abi};
use roundelay_compiler::emit::cuda::{Element, KERNEL, aligned};

use super::call::addresses;
use super::control::{agree, same};
use super::cut::{Cut, Job};
use super::engine::{EngineCopy, pieces};
use super::far::FarCall;
use super::gpu::Gpu;
use super::named::DeviceCall;
use super::program::{BUFFERS, Lowered, WORDS, word, words};
use super::region::{Region, Spot};
use super::unplayable::Unplayable;
use crate::backend::{Aside, CudaStream, Kernel, Options};
use roundelay_engine::{Core, check_factor};
use roundelay_net::digest::mix;
use roundelay_net::dtype::{DType, RedOp};
use roundelay_net::error::{Error, Source};

/// Bound calls that are kept.
const KEPT: usize = 1024;

/// The key that tells one bound call from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) count: u64,
    pub(super) hash: [u8; 16],
    pub(super) dtype: DType,
    pub(super) op: RedOp,
    pub(super) protocol: Protocol,
    pub(super) blocks: u32,
    /// The places of those of the user's buffers that peers address.
    pub(super) spots: [Option<Spot>; 3],
}

impl Key {
    /// Returns one word for what all ranks must have in common.
    fn digest(&self) -> u64 {
        let (low, high) = self.hash.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().fold(0u64, |w, &b| (w << 8) | u64::from(b));
        let fixed = [
            word(low),
            word(high),
            self.count,
            self.dtype as u64,
            self.op as u64,
            self.protocol as u64,
            self.blocks.into(),
        ];
        let spots = self.spots.iter().flat_map(|spot| match spot {
            None => [0, 0],
            Some(spot) => [1 + u64::from(spot.region), spot.offset],
        });
        fixed.into_iter().chain(spots).fold(3, mix)
    }

    /// Returns true if a buffer lies in that region.
    pub(super) fn uses(&self, region: u32) -> bool {
        self.spots.iter().flatten().any(|spot| spot.region == region)
    }
}

/// A call, ready to be launched.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) lowered: Arc<Lowered>,
    cut: Cut,
    /// True if chunks begin at multiples of 16 bytes.
    even: bool,
    /// True if the buffers of peers begin at multiples of 16 bytes.
    peers_even: bool,
    dtype: DType,
    op: RedOp,
    /// The kernels for memory at any address, and at multiples of 16 bytes.
    kernels: [Option<Arc<Kernel>>; 2],
    params: Vec<u64>,
    /// The messages that lanes carry; each launch gives them a number.
    far: Option<FarCall>,
    /// The copies that engines make, where the protocol is theirs.
    pieces: Option<Vec<EngineCopy>>,
    /// The same call of a rank whose input is its output, once there was one.
    inside: Option<Box<Bound>>,
}

/// The arguments of a call beside its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaunchArgs {
    /// Addresses of data, input, output; 0 for none.
    pub(super) buffers: [u64; 3],
    pub(super) factor: f64,
    /// Nanoseconds.
    pub(super) timeout: u64,
}

impl Gpu {
    /// Returns the part of plans that a rank plays, by a protocol.
    pub(super) fn lower(
        &mut self,
        core: &Core,
        plans: &Proved,
        protocol: Protocol,
    ) -> Result<Arc<Lowered>, Unplayable> {
        let Some(first) = plans.plans().first() else { return Err(Unplayable::NoPlans) };
        let key = (first.header.hash, protocol);
        if let Some(known) = self.lowered.get(&key) {
            return known.clone();
        }
        let number = self.programs.len() as u32 + 1;
        let lowered = Lowered::new(plans, self.rank, protocol, number, core.group.hosts());
        self.programs.extend(lowered.iter().cloned());
        self.lowered.insert(key, lowered.clone());
        lowered
    }

    /// Returns the sizes of a call.
    pub(super) fn cut(&self, lowered: &Lowered, key: &Key) -> Result<(Cut, u64), Unplayable> {
        let job = job(lowered, key);
        let (_, half) = self.layout.staging(key.protocol);
        Ok((job.cut(key.blocks, half)?, job.scratch(abi::ALIGN)?))
    }

    /// Makes a call ready: all ranks together.
    pub(super) fn bind(
        &mut self,
        core: &mut Core,
        key: Key,
        lowered: &Arc<Lowered>,
        args: &LaunchArgs,
    ) -> Result<(), Error> {
        // A stream that is being captured would not let this thread load code or map memory.
        let _aside = Aside::step().map_err(|fault| self.fault(&fault))?;
        let cut = self.agreed(core, &key, 0, lowered, args)?;
        if key.protocol == Protocol::Multicast {
            self.unite(core, &key)?;
        }
        let bound = self.prepared(&key, cut, lowered.clone(), args);
        let bound = agree(core, bound)?;
        // All ranks forget the same ones, for they make the same calls.
        let at = self.next_bound % KEPT;
        self.next_bound += 1;
        self.known.retain(|_, known| *known != at);
        self.known.insert(key, at);
        match self.bounds.get_mut(at) {
            Some(oldest) => *oldest = Some(Box::new(bound)),
            None => self.bounds.push(Some(Box::new(bound))),
        }
        Ok(())
    }

    /// Maps the regions of a call's buffers as all ranks have them at one address: all ranks together.
    pub(super) fn unite(&mut self, core: &mut Core, key: &Key) -> Result<(), Error> {
        for spot in key.spots.iter().flatten() {
            if self.united.contains_key(&spot.region) {
                continue;
            }
            let region = self.regions.get(*spot).cloned();
            let own = region.as_deref().and_then(Region::whole);
            let range = self.sharing.unite(core, own)?;
            self.united.insert(spot.region, range);
        }
        Ok(())
    }

    /// Agrees with all ranks on a call of a kind (0 a launch, 1 a function), and on memory for it; returns its sizes.
    pub(super) fn agreed(
        &mut self,
        core: &mut Core,
        key: &Key,
        kind: u64,
        lowered: &Lowered,
        args: &LaunchArgs,
    ) -> Result<Cut, Error> {
        let sized = self.sized(key, lowered, args);
        let (cut, scratch) = agree(core, sized)?;
        if let Some(peer) = same(core, mix(key.digest(), kind))? {
            let detail = format!(
                "rank {} plays {} as `{}` of {} x {} with {} in {} blocks{}",
                self.rank,
                lowered.name(),
                key.protocol.name(),
                key.count,
                key.dtype,
                key.op,
                key.blocks,
                spelled(&key.spots)
            );
            let error = Error::PlanMismatch { rank: self.rank, peer, detail };
            return Err(core.fail(error));
        }
        self.grow(core, self.layout.scratch + scratch)?;
        Ok(cut)
    }

    /// Cuts a call, with the checks that need no other rank; the others are told of an error.
    fn sized(&self, key: &Key, lowered: &Lowered, args: &LaunchArgs) -> Result<(Cut, u64), Error> {
        check_factor(key.dtype, key.op, args.factor)?;
        for (i, name) in BUFFERS.iter().enumerate() {
            // A barrier's buffers have no elements.
            let is_empty = key.count == 0;
            if lowered.own[i] && args.buffers[i] == 0 && !is_empty {
                let name = format!("{}: the {name} of rank {} is null", lowered.name(), self.rank);
                return Err(Error::Usage(format!("{name}, and it is read or written there")));
            }
            if lowered.remote[i] && key.spots[i].is_none() && !is_empty {
                return Err(Error::Unsupported(format!(
                    "{} as `{}`: peers address the {name}, which is not memory of \
                     `Communicator::alloc_device` or `Communicator::register` on rank {}{}; `staged` and `packet` take any memory",
                    lowered.name(),
                    key.protocol.name(),
                    self.rank,
                    if i == 1 { ", or lies in the output" } else { "" }
                )));
            }
        }
        Ok(self.cut(lowered, key)?)
    }

    fn prepared(
        &mut self,
        key: &Key,
        cut: Cut,
        lowered: Arc<Lowered>,
        args: &LaunchArgs,
    ) -> Result<Bound, Error> {
        let (even, peers_even) = self.evenness(key, &lowered);
        let params = self.params(key, cut, &lowered, &key.spots);
        let (dtype, op) = (key.dtype, key.op);
        let kernels = [None, None];
        let pieces = (key.protocol == Protocol::Engine)
            .then(|| pieces(&lowered.program, key.count, key.dtype.size() as u64));
        let far = lowered.far.clone().map(|part| FarCall {
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
        let mut bound = Bound {
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
        self.kernel(&mut bound, even)?;
        Ok(bound)
    }

    /// Returns true if chunks begin at multiples of 16 bytes, and true if the buffers of peers do.
    pub(super) fn evenness(&self, key: &Key, lowered: &Lowered) -> (bool, bool) {
        let header = &lowered.program.header;
        let vector = u64::from(header.blocks) * key.count;
        let element = Element::named(key.dtype.name());
        let even = element.is_some_and(|element| aligned(header.chunks, vector, element));
        let spots = key.spots.iter().flatten();
        let peers_even = spots
            .copied()
            .all(|spot| (0..self.ranks).all(|r| self.regions.address(spot, r).is_multiple_of(16)));
        (even, peers_even)
    }

    /// Returns the parameters that do not change from call to call; the user's buffers lie at these places.
    pub(super) fn params(
        &self,
        key: &Key,
        cut: Cut,
        lowered: &Lowered,
        spots: &[Option<Spot>; 3],
    ) -> Vec<u64> {
        let (staging, halves) = self.layout.staging(key.protocol);
        let (abort, report) = self.mailbox.addresses();
        let size = key.dtype.size() as u64;
        let mut params = words(&abi::Params {
            count: key.count,
            pass: cut.pass,
            passes: cut.passes,
            groups: roundelay_engine::choose::device::groups(
                key.protocol,
                lowered.tasks,
                cut.pass * size,
            ),
            unit: cut.unit,
            staging,
            halves,
            packets: self.layout.packets,
            packet_half: self.layout.packet_half,
            scratch: self.layout.scratch,
            host: self.far.as_ref().map_or(0, |lanes| lanes.memory().device()),
            far: self.far.as_ref().map_or(0, |lanes| lanes.memory().to_slots()),
            state: self.arena.base(self.rank) + self.layout.states,
            abort,
            report,
            timeout: 0,
            part: 0,
            program: lowered.number.into(),
            number: 0,
            multicast: spots.map(|spot| {
                let range = spot.and_then(|spot| Some((self.united.get(&spot.region)?, spot)));
                range.map_or(0, |(range, spot)| range.base() + spot.offset)
            }),
            factor: 1.0,
        })
        .to_vec();
        params.extend((0..self.ranks).map(|rank| self.arena.base(rank)));
        for spot in spots {
            let address = |rank| spot.map_or(0, |spot| self.regions.address(spot, rank));
            params.extend((0..self.ranks).map(address));
        }
        params
    }

    /// Returns the kernel of a bound call for memory at multiples of 16 bytes, or for any.
    fn kernel(&mut self, bound: &mut Bound, even: bool) -> Result<Arc<Kernel>, Error> {
        let program = &bound.lowered.program;
        // Counts are parameters: calls of all sizes share a kernel.
        let which = (program.header.hash, program.protocol, bound.dtype, bound.op, even);
        let kernel = match self.compiled.get(&which) {
            Some(kernel) => kernel.clone(),
            None => {
                let text = bound.lowered.text(bound.dtype, bound.op, even);
                let kernel = self.kernels.get(&text?, KERNEL, abi::THREADS, Options::Exact);
                let name = bound.lowered.name();
                kernel.map_err(|error| {
                    self.failed(format!("the kernel of {name}: {error}"), Some(Source::new(error)))
                })?
            }
        };
        self.compiled.insert(which, kernel.clone());
        bound.kernels[usize::from(even)] = Some(kernel.clone());
        Ok(kernel)
    }

    /// Puts a bound call into a stream; returns true if it is known. `inside` is the program of a rank whose input is
    /// its output.
    pub(super) fn launch(
        &mut self,
        key: &Key,
        inside: Option<&Arc<Lowered>>,
        args: &LaunchArgs,
        stream: &CudaStream,
    ) -> Result<bool, Error> {
        let Some(&at) = self.known.get(key) else { return Ok(false) };
        let Some(mut bound) = self.bounds.get_mut(at).and_then(Option::take) else {
            return Ok(false);
        };
        let done = match inside {
            None => self.launch_bound(&mut bound, args, stream),
            Some(program) => self.launch_inside(&mut bound, (key, program), args, stream),
        };
        self.bounds[at] = Some(bound);
        done.map(|()| true)
    }

    fn launch_inside(
        &mut self,
        bound: &mut Bound,
        (key, program): (&Key, &Arc<Lowered>),
        args: &LaunchArgs,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let args = LaunchArgs { buffers: [args.buffers[2], 0, 0], ..*args };
        let mut inside = match bound.inside.take() {
            Some(inside) => inside,
            None => {
                let _aside = Aside::step().map_err(|fault| self.fault(&fault))?;
                // Cut as all ranks have agreed.
                Box::new(self.prepared(key, bound.cut, program.clone(), &args)?)
            }
        };
        let done = self.launch_bound(&mut inside, &args, stream);
        bound.inside = Some(inside);
        done
    }

    fn launch_bound(
        &mut self,
        bound: &mut Bound,
        args: &LaunchArgs,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let even = bound.is_even(args);
        let kernel = match &bound.kernels[usize::from(even)] {
            Some(kernel) => kernel.clone(),
            None => {
                let _aside = Aside::step().map_err(|fault| self.fault(&fault))?;
                self.kernel(bound, even)?
            }
        };
        let params = &mut bound.params;
        params[word!(timeout)] = args.timeout;
        params[word!(factor)] = args.factor.to_bits();
        for (i, &address) in args.buffers.iter().enumerate() {
            params[WORDS + (i + 1) * self.ranks as usize + self.rank as usize] = address;
        }
        let grid = (bound.cut.blocks, abi::THREADS);
        let order = match (&self.far, &mut bound.far) {
            (Some(lanes), Some(far)) => {
                far.number = lanes.number();
                far.is_captured = stream.is_captured().map_err(|fault| self.fault(&fault))?;
                far.timeout = Duration::from_nanos(args.timeout);
                params[word!(number)] = far.number.into();
                // Before a kernel enters it.
                lanes.order(far);
                Some((lanes, far.number))
            }
            _ => None,
        };
        // SAFETY: the words are those of the kernel's parameter. The arena, the mailbox and the regions live as long
        // as `self`; the caller's buffers are good as whoever made their addresses promised.
        let launched = self.journal.put(stream, || unsafe {
            match &bound.pieces {
                None => kernel.launch(stream, grid, params),
                Some(pieces) => self.in_parts(&kernel, stream, grid, params, pieces),
            }
        });
        launched.map_err(|fault| {
            order.iter().for_each(|(lanes, number)| lanes.forget(*number));
            self.fault(&fault)
        })
    }
}

impl LaunchArgs {
    /// Returns the arguments of a call.
    pub(super) fn of(core: &Core, call: &DeviceCall) -> Self {
        LaunchArgs {
            buffers: addresses(call),
            factor: call.factor,
            timeout: u64::try_from(core.timeout().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Returns true if all buffers of this rank begin at multiples of 16 bytes.
    pub(super) fn is_even(&self) -> bool {
        self.buffers.iter().all(|b| b.is_multiple_of(16))
    }
}

impl Bound {
    /// Returns true if everything of a call lies at multiples of 16 bytes.
    fn is_even(&self, args: &LaunchArgs) -> bool {
        self.even && self.peers_even && args.is_even()
    }
}

/// Returns the sizes by which a call is cut.
pub(super) fn job<'a>(lowered: &'a Lowered, key: &Key) -> Job<'a> {
    Job {
        header: &lowered.program.header,
        protocol: key.protocol,
        staging: lowered.program.staging,
        far: lowered.program.far,
        messages: lowered.messages,
        count: key.count,
        dtype: key.dtype,
    }
}

fn spelled(spots: &[Option<Spot>; 3]) -> String {
    let named = BUFFERS.iter().zip(spots).filter_map(|(name, spot)| Some((name, (*spot)?)));
    let texts = named.map(|(name, spot)| {
        format!(", {name} at byte {} of shared memory {}", spot.offset, spot.region)
    });
    texts.collect()
}
