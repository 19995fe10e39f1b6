//! Calls of plans, and calls by name, whose algorithm is found first.

use std::sync::Arc;

use roundelay_compiler::{BufferPlacement, ProvedPlans};

use super::bound::{BoundTable, ReadyCall};
use super::choice::choose_key;
use super::key::CallKey;
use super::launch::{CudaLaunch, DeviceCall, LaunchArgs, checked};
use super::program::LoweredProgram;
use crate::backend::CudaStream;
use crate::rank::GpuRank;
use roundelay_engine::choose::ProtocolChoice;
use roundelay_engine::{
    BARRIER, CallArgs, Collective, EngineCore, NamedCall, PlanCall, RecentList, writes_output,
};
use roundelay_support::error::Error;

/// The choice for a call by name.
#[derive(Debug, Clone)]
struct PlanChoice {
    plans: Arc<ProvedPlans>,
    /// The plans in place beside plans for an input and an output, where the algorithm has them.
    inside: Option<Arc<ProvedPlans>>,
    /// The way in which they are best run, as measured.
    how: Option<ProtocolChoice>,
    /// The key and the program that came of it, where nothing but the name of the call and this word decides: see
    /// [`CallTable::kept_key`].
    kept: Option<(bool, CallKey, Arc<LoweredProgram>)>,
}

/// Calls by name and the plans that they execute.
type PlanChoices = RecentList<(NamedCall, PlanChoice), 256>;

/// The collective calls that a rank has made: bound calls, and choices of calls by name.
#[derive(Default)]
pub(crate) struct CallTable {
    pub(crate) bound: BoundTable,
    /// Choices of calls by name, and the version of the settings that have made them.
    choices: PlanChoices,
    chosen_by: u64,
}

impl CallTable {
    /// Puts a call of proved plans into a stream.
    pub(crate) fn execute(
        &mut self,
        rank: &mut GpuRank,
        core: &mut EngineCore,
        plans: &ProvedPlans,
        launch: &CudaLaunch,
        measured: Option<ProtocolChoice>,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let Some(ready) = ready(rank, core, plans, launch, measured)? else { return Ok(()) };
        self.bound.put(rank, core, &ready, None, stream)
    }

    /// Puts a call of plans for an input and an output into a stream, on a rank whose input is its output. Other ranks
    /// may have two buffers, and none knows of the others: so all agree on these plans, and this rank executes those in
    /// place if peers see no difference. If there are none, its input is copied first.
    fn put_inside(
        &mut self,
        rank: &mut GpuRank,
        core: &mut EngineCore,
        (plans, inside): (&ProvedPlans, Option<&ProvedPlans>),
        mut ready: ReadyCall,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (key, lowered, args) = &mut ready;
        let inside = inside.and_then(|inside| {
            rank.programs.inside(core.group.hosts(), (plans, inside), key.protocol)
        });
        if inside.is_none() {
            let header = &lowered.program.header;
            let bytes = u64::from(header.blocks) * key.count * key.dtype.size() as u64;
            let staged = rank.stage(core, bytes)?;
            rank.copy_in(core, stream, [(staged.0, args.buffers[1], bytes)])?;
            args.buffers[1] = staged.0;
        }
        self.bound.put(rank, core, &ready, inside.as_ref(), stream)
    }

    /// Performs a call. A buffer that has no meaning on this rank, and so is null, is replaced by memory that is
    /// kept if the plan needs it.
    pub(crate) fn perform(
        &mut self,
        rank: &mut GpuRank,
        core: &mut EngineCore,
        collective: &Collective,
        root: u32,
        call: DeviceCall,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        core.usable()?;
        rank.listen(core)?;
        let named = collective.named(rank.device.ranks, root, &call);
        if call.count == 0 && collective.has_operands() {
            // A kernel would compare nothing.
            return core.perform_empty(named);
        }
        let (at, chosen) = self.choice(core, collective, named)?;
        let Some(plan) = chosen.plans.plans().get(rank.device.rank as usize) else { return Ok(()) };
        let args = match call.args {
            CallArgs::InPlace { data } if plan.header.placement == BufferPlacement::OutOfPlace => {
                let input = rank.stage(core, named.bytes)?;
                rank.copy_in(core, stream, [(input.0, data.0, named.bytes)])?;
                CallArgs::OutOfPlace { input, output: data }
            }
            CallArgs::OutOfPlace { input, output } if output.is_null() && writes_output(plan) => {
                CallArgs::OutOfPlace { input, output: rank.stage(core, named.bytes)? }
            }
            args => args,
        };
        let launch: CudaLaunch = PlanCall { args, ..call }.into();
        let (key, lowered) = self.kept_key(rank, core, at, &chosen, &launch)?;
        let ready = (key, lowered, LaunchArgs::of(core, &launch.call));
        match args {
            CallArgs::OutOfPlace { input, output }
                if collective.is_inside() && input == output && !input.is_null() =>
            {
                self.put_inside(
                    rank,
                    core,
                    (&chosen.plans, chosen.inside.as_deref()),
                    ready,
                    stream,
                )
            }
            _ => self.bound.put(rank, core, &ready, None, stream),
        }
    }

    /// Returns the choice for a call, and its place among those that are kept; one that hints of the call's own have
    /// made is not.
    fn choice(
        &mut self,
        core: &mut EngineCore,
        collective: &Collective,
        named: NamedCall,
    ) -> Result<(Option<usize>, PlanChoice), Error> {
        if core.plans.is_hinted() {
            return Ok((None, chosen(core, collective, &named)?));
        }
        let version = core.plans.version();
        if self.chosen_by != version {
            self.choices.clear();
            self.chosen_by = version;
        }
        if let Some(at) = self.choices.position(|(known, _)| *known == named) {
            return Ok((Some(at), self.choices[at].1.clone()));
        }
        let chosen = chosen(core, collective, &named)?;
        Ok((Some(self.choices.keep((named, chosen.clone()))), chosen))
    }

    /// Returns the key of a call by name. It is kept with the choice as long as no memory is shared: else the places of
    /// the call's buffers decide too.
    fn kept_key(
        &mut self,
        rank: &mut GpuRank,
        core: &mut EngineCore,
        at: Option<usize>,
        chosen: &PlanChoice,
        launch: &CudaLaunch,
    ) -> Result<(CallKey, Arc<LoweredProgram>), Error> {
        let is_private = rank.memory.regions.is_empty();
        match &chosen.kept {
            Some((overlaps, key, lowered)) if is_private && *overlaps == rank.overlaps => {
                Ok((*key, lowered.clone()))
            }
            _ => {
                let (key, lowered) = choose_key(rank, core, &chosen.plans, launch, chosen.how)?;
                if let Some(at) = at.filter(|_| is_private) {
                    self.choices[at].1.kept = Some((rank.overlaps, key, lowered.clone()));
                }
                Ok((key, lowered))
            }
        }
    }
}

/// Returns a call with all that is left out filled in, if it has something to run; fails if none may be put into the
/// stream. A call without elements is compared, and that is all.
fn ready(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    plans: &ProvedPlans,
    launch: &CudaLaunch,
    measured: Option<ProtocolChoice>,
) -> Result<Option<ReadyCall>, Error> {
    core.usable()?;
    rank.listen(core)?;
    let Some(plan) = plans.plans().get(rank.device.rank as usize) else { return Ok(None) };
    if launch.call.count == 0 && plan.header.collective != BARRIER.name {
        checked(plans, launch)?;
        core.run_empty(plan, launch.call.dtype, launch.call.op)?;
        return Ok(None);
    }
    let (key, lowered) = choose_key(rank, core, plans, launch, measured)?;
    let args = LaunchArgs::of(core, &launch.call);
    Ok(Some((key, lowered, args)))
}

fn chosen(
    core: &mut EngineCore,
    collective: &Collective,
    call: &NamedCall,
) -> Result<PlanChoice, Error> {
    let (algorithm, how) = core.device_algorithm(call)?;
    let placement = match algorithm.allows(call.placement) {
        true => call.placement,
        false => BufferPlacement::OutOfPlace,
    };
    let plans = algorithm.proved(core.size(), call.root, placement)?;
    let has_inside = collective.is_inside()
        && call.placement == BufferPlacement::OutOfPlace
        && algorithm.allows(BufferPlacement::InPlace);
    let inside = match has_inside {
        true => Some(algorithm.proved(core.size(), call.root, BufferPlacement::InPlace)?),
        false => None,
    };
    Ok(PlanChoice { plans, inside, how, kept: None })
}
