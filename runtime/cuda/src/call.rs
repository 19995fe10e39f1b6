//! Calls of one algorithm.

use std::sync::Arc;

use roundelay_compiler::Proved;
use roundelay_compiler::device::{Options, abi, interchangeable, prove};
use roundelay_compiler::plan::Header;

use super::bound::{Key, LaunchArgs};
use super::far::{Lanes, MOST_BLOCKS};
use super::gpu::Gpu;
use super::named::DeviceCall;
use super::program::Lowered;
use super::region::Spot;
use super::unplayable::Unplayable;
use super::{CudaStream, Protocol};
use roundelay_engine::choose::{How, device};
use roundelay_engine::custom::Algorithm;
use roundelay_engine::{Args, BARRIER, Core, served};
use roundelay_net::error::Error;

/// A call, and how it is played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Launch {
    /// The call. A buffer without meaning on this rank may be [`DevicePtr::NULL`](super::DevicePtr::NULL).
    pub call: DeviceCall,
    /// The protocol by which messages travel; chosen by size and memory if left out. It is the same on all ranks.
    ///
    /// [`Protocol::Put`], [`Protocol::Get`] and [`Protocol::Engine`] ask that what peers address is memory of
    /// `Communicator::alloc_device` or
    /// `Communicator::register`, at the same place of it on every rank. Where the
    /// protocol is left out that decides it: then all ranks must give such memory, or none.
    pub protocol: Option<Protocol>,
    /// Blocks of the kernel; by size if left out. The same on all ranks.
    pub blocks: Option<u32>,
}

impl From<DeviceCall> for Launch {
    fn from(call: DeviceCall) -> Self {
        Launch { call, protocol: None, blocks: None }
    }
}

/// A call with all that is left out filled in.
pub(super) type Ready = (Key, Arc<Lowered>, LaunchArgs);

/// Returns the addresses of data, input, output.
pub(super) fn addresses(call: &DeviceCall) -> [u64; 3] {
    match call.args {
        Args::InPlace { data } => [data.0, 0, 0],
        Args::OutOfPlace { input, output } => [0, input.0, output.0],
    }
}

impl Gpu {
    /// Puts a call of proved plans into a stream.
    pub fn play(
        &mut self,
        core: &mut Core,
        plans: &Proved,
        launch: &Launch,
        measured: Option<How>,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let Some(ready) = self.ready(core, plans, launch, measured)? else { return Ok(()) };
        self.put(core, &ready, None, stream)
    }

    /// Puts a call of plans for an input and an output into a stream, on a rank whose input is its output. Other ranks
    /// may have two buffers, and none knows of the others: so all agree on these plans, and this rank plays those in
    /// place if peers see no difference. If there are none, its input is copied first.
    pub(super) fn put_inside(
        &mut self,
        core: &mut Core,
        (plans, inside): (&Proved, Option<&Proved>),
        mut ready: Ready,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (key, lowered, args) = &mut ready;
        let inside = inside.and_then(|inside| self.inside(core, (plans, inside), key.protocol));
        if inside.is_none() {
            let header = &lowered.program.header;
            let bytes = u64::from(header.blocks) * key.count * key.dtype.size() as u64;
            let kept = self.stage(core, bytes)?;
            self.copy_in(core, stream, [(kept.0, args.buffers[1], bytes)])?;
            args.buffers[1] = kept.0;
        }
        self.put(core, &ready, inside.as_ref(), stream)
    }

    /// Returns this rank's program in place, if ranks may play it while others play that of buffers apart.
    fn inside(
        &mut self,
        core: &Core,
        (plans, inside): (&Proved, &Proved),
        protocol: Protocol,
    ) -> Option<Arc<Lowered>> {
        let hash = plans.plans().first()?.header.hash;
        if let Some(known) = self.insides.get(&(hash, protocol)) {
            return known.clone();
        }
        let options = Options { hosts: core.group.hosts().into(), ..Options::default() };
        let [apart, within] = [plans, inside].map(|plans| prove(plans, protocol, &options).ok());
        let alike = match (apart, within) {
            (Some(apart), Some(within)) => interchangeable(&apart, &within),
            _ => false,
        };
        let lowered = match alike {
            true => self.lower(core, inside, protocol).ok(),
            false => None,
        };
        self.insides.insert((hash, protocol), lowered.clone());
        lowered
    }

    /// Returns a call with all that is left out filled in, if it has something to play; fails if none may be put into the
    /// stream. A call without elements is compared, and that is all.
    fn ready(
        &mut self,
        core: &mut Core,
        plans: &Proved,
        launch: &Launch,
        measured: Option<How>,
    ) -> Result<Option<Ready>, Error> {
        core.usable()?;
        self.listen(core)?;
        let Some(plan) = plans.plans().get(self.rank as usize) else { return Ok(None) };
        if launch.call.count == 0 && plan.header.collective != BARRIER.name {
            checked(plans, launch)?;
            core.run_empty(plan, launch.call.dtype, launch.call.op)?;
            return Ok(None);
        }
        let (key, lowered) = self.key(core, plans, launch, measured)?;
        let args = LaunchArgs::of(core, &launch.call);
        Ok(Some((key, lowered, args)))
    }

    /// Puts a call into a stream, made ready by all ranks together if it is the first of its kind.
    pub(super) fn put(
        &mut self,
        core: &mut Core,
        (key, lowered, args): &Ready,
        inside: Option<&Arc<Lowered>>,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let mut launched = self.launch(key, inside, args, stream);
        if launched == Ok(false) {
            self.bind(core, *key, lowered, args)?;
            launched = self.launch(key, inside, args, stream);
        }
        // A call that one rank does not make ends the others' too.
        launched.map(drop).map_err(|error| self.end(core, error))
    }

    /// Returns how a call would be played: the protocol, and the number of blocks, those that are left out filled in.
    pub fn how(
        &mut self,
        core: &mut Core,
        algorithm: &Algorithm,
        launch: &Launch,
    ) -> Result<(Protocol, u32), Error> {
        let plans = self.plans(algorithm, launch)?;
        let (key, lowered) = self.key(core, &plans, launch, None)?;
        self.cut(&lowered, &key)?;
        Ok((key.protocol, key.blocks))
    }

    /// Returns the kernel that a call would play, as text. Compiles nothing and moves nothing.
    pub fn source(
        &mut self,
        core: &mut Core,
        algorithm: &Algorithm,
        launch: &Launch,
    ) -> Result<String, Error> {
        let plans = self.plans(algorithm, launch)?;
        let (key, lowered) = self.key(core, &plans, launch, None)?;
        Ok(lowered.text(key.dtype, key.op, false)?)
    }

    /// Returns the plans of an algorithm for a call.
    pub fn plans(&self, algorithm: &Algorithm, launch: &Launch) -> Result<Arc<Proved>, Error> {
        algorithm.proved(self.ranks, algorithm.root(), launch.call.args.placement())
    }

    /// Returns the key of a call, with all that is left out filled in: the same on all ranks. The setting
    /// that was measured to be best is played if the buffers allow it.
    pub(super) fn key(
        &mut self,
        core: &mut Core,
        plans: &Proved,
        launch: &Launch,
        measured: Option<How>,
    ) -> Result<(Key, Arc<Lowered>), Error> {
        let header = checked(plans, launch)?;
        let args = &launch.call;
        let vector = u64::from(header.blocks).saturating_mul(args.count);
        let bytes = vector.saturating_mul(args.dtype.size() as u64);
        let merged = core.plans.merged_hints()?;
        let sms = self.sms;
        let share = self.overlaps.then(|| device::beside_others(sms));
        let most = merged.max_sms().or(share);
        let ranks = header.ranks;
        let lanes = self.far.as_ref().map(Lanes::count);
        let most = match lanes {
            None => most,
            Some(_) => Some(most.unwrap_or(MOST_BLOCKS).min(MOST_BLOCKS).min(sms)),
        };
        let by_size = |protocol| match lanes {
            None => device::blocks(&header.collective, protocol, bytes, ranks, sms, most),
            Some(lanes) => device::blocks_between_hosts(bytes, lanes, most.unwrap_or(1)),
        };
        let hinted = launch.protocol.or(merged.protocol());
        if hinted == Some(Protocol::Multicast) && merged.deterministic() == Some(true) {
            return Err(Error::Unsupported(
                "`multicast` adds the ranks in an order of the switch's own, and the hint `deterministic` asks for that \
                 of the ranks"
                    .into(),
            ));
        }
        let how = |protocol| (protocol, launch.blocks.unwrap_or_else(|| by_size(protocol)));
        let offered = match self.far {
            None => device::protocols(&header.collective, bytes, ranks),
            Some(_) => device::BETWEEN_HOSTS.to_vec(),
        };
        let mut hows: Vec<(Protocol, u32)> = match (hinted, measured) {
            (Some(protocol), _) => vec![how(protocol)],
            (None, measured) => {
                let limit = most.unwrap_or(abi::BLOCKS);
                let measured = measured.map(|m| (m.protocol, m.blocks.min(limit)));
                measured.into_iter().chain(offered.into_iter().map(how)).collect()
            }
        };
        // One block has the largest slots.
        hows.extend(hinted.is_none().then_some((Protocol::Staged, 1)));
        let mut refused = Unplayable::NoPlans;
        for (protocol, blocks) in hows {
            let lowered = match self.lower(core, plans, protocol) {
                Ok(lowered) => lowered,
                Err(why) => {
                    refused = Unplayable::As { protocol, why: Box::new(why) };
                    continue;
                }
            };
            let spots = self.spots(header, &lowered, args);
            let (op, hash) = (args.op, header.hash);
            let (count, dtype) = (args.count, args.dtype);
            let key = Key { count, hash, dtype, op, protocol, blocks, spots };
            let hidden =
                |i: usize| lowered.remote[i] && (spots[i].is_none() || optional(header, i));
            if hinted.is_some() {
                return Ok((key, lowered));
            }
            if (0..3).any(hidden) {
                refused = Unplayable::Private(protocol);
                continue;
            }
            match self.cut(&lowered, &key) {
                Ok(_) => return Ok((key, lowered)),
                Err(why) => refused = why,
            }
        }
        let name = format!("{}.{}", header.collective, header.algorithm);
        Err(Error::Unsupported(format!("{name} cannot be played on GPUs: {refused}")))
    }

    /// Returns the places of the buffers that peers address.
    fn spots(&self, header: &Header, lowered: &Lowered, args: &DeviceCall) -> [Option<Spot>; 3] {
        let chunks = [header.chunks, header.input_chunks, header.output_chunks];
        let size = args.dtype.size() as u64;
        let vector = u64::from(header.blocks).saturating_mul(args.count).saturating_mul(size);
        let addresses = addresses(args);
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
            let is_overwritten = match lowered.program.protocol {
                Protocol::Engine => output.contains(&addresses[1]),
                // What peers read there would be copied aside first: see `put_inside`.
                _ => addresses[1] == addresses[2] && is_inside(header),
            };
            if i == 1 && is_overwritten {
                return None;
            }
            self.regions.find(addresses[i], bytes(i)?)
        })
    }
}

/// Returns the header of plans that fit a call.
fn checked<'a>(plans: &'a Proved, launch: &Launch) -> Result<&'a Header, Error> {
    let Some(header) = plans.plans().first().map(|plan| &plan.header) else {
        return Err(Error::Plan("there are no plans".into()));
    };
    if header.placement != launch.call.args.placement() {
        return Err(Error::Usage("the plan and the buffers differ in placement".into()));
    }
    match launch.blocks.filter(|blocks| !(1..=abi::BLOCKS).contains(blocks)) {
        None => Ok(header),
        Some(blocks) => {
            Err(Error::Usage(format!("{blocks} blocks: a kernel has from 1 to {}", abi::BLOCKS)))
        }
    }
}

/// Returns true if an input that is the output asks for a call in place.
fn is_inside(header: &Header) -> bool {
    served(&header.collective).is_some_and(|collective| collective.is_inside())
}

/// Returns true if a buffer has no meaning on some ranks, so that they may give none.
fn optional(header: &Header, buffer: usize) -> bool {
    served(&header.collective).is_some_and(|collective| match buffer {
        1 => collective.is_input_optional(),
        2 => collective.is_output_optional(),
        _ => false,
    })
}
