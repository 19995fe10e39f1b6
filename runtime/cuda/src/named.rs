//! Calls by name on GPUs: the algorithm of the call is found and played.

use std::sync::Arc;

use roundelay_compiler::{Placement, Proved};

use super::bound::{Key, LaunchArgs};
use super::gpu::Gpu;
use super::program::Lowered;
use super::{CudaStream, DevicePtr, Launch};
use roundelay_engine::choose::How;
use roundelay_engine::{Args, Call, Collective, Core, Named, Recent, writes_output};
use roundelay_net::error::Error;

/// The choice for a call by name.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    plans: Arc<Proved>,
    /// The plans in place beside plans for an input and an output, where the algorithm has them.
    inside: Option<Arc<Proved>>,
    /// The way in which they are best played, as measured.
    how: Option<How>,
    /// The key and the program that came of it, where nothing but the name of the call and this word decides: see
    /// [`Gpu::settled`].
    settled: Option<(bool, Key, Arc<Lowered>)>,
}

/// Calls by name and the plans that they play.
pub(crate) type Choices = Recent<(Named, Chosen), 256>;

/// A call on device memory.
pub(crate) type DeviceCall = Call<DevicePtr, DevicePtr>;

impl Gpu {
    /// Performs a call. A buffer that has no meaning on this rank, and so is null, is replaced by memory that is
    /// kept if the plan needs it.
    pub fn perform(
        &mut self,
        core: &mut Core,
        collective: &Collective,
        root: u32,
        call: DeviceCall,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        core.usable()?;
        self.listen(core)?;
        let named = collective.named(self.ranks, root, &call);
        if call.count == 0 && collective.has_operands() {
            // A kernel would compare nothing.
            return core.perform_empty(named);
        }
        let (at, chosen) = self.choice(core, collective, named)?;
        let Some(plan) = chosen.plans.plans().get(self.rank as usize) else { return Ok(()) };
        let args = match call.args {
            Args::InPlace { data } if plan.header.placement == Placement::OutOfPlace => {
                let input = self.stage(core, named.bytes)?;
                self.copy_in(core, stream, [(input.0, data.0, named.bytes)])?;
                Args::OutOfPlace { input, output: data }
            }
            Args::OutOfPlace { input, output } if output.is_null() && writes_output(plan) => {
                Args::OutOfPlace { input, output: self.stage(core, named.bytes)? }
            }
            args => args,
        };
        let launch: Launch = Call { args, ..call }.into();
        let (key, lowered) = self.settled(core, at, &chosen, &launch)?;
        let ready = (key, lowered, LaunchArgs::of(core, &launch.call));
        match args {
            Args::OutOfPlace { input, output }
                if collective.is_inside() && input == output && !input.is_null() =>
            {
                self.put_inside(core, (&chosen.plans, chosen.inside.as_deref()), ready, stream)
            }
            _ => self.put(core, &ready, None, stream),
        }
    }

    /// Returns the choice for a call, and its place among those that are kept; one that hints of the call's own have
    /// made is not.
    fn choice(
        &mut self,
        core: &mut Core,
        collective: &Collective,
        named: Named,
    ) -> Result<(Option<usize>, Chosen), Error> {
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
    fn settled(
        &mut self,
        core: &mut Core,
        at: Option<usize>,
        chosen: &Chosen,
        launch: &Launch,
    ) -> Result<(Key, Arc<Lowered>), Error> {
        let is_private = self.regions.is_empty();
        match &chosen.settled {
            Some((overlaps, key, lowered)) if is_private && *overlaps == self.overlaps => {
                Ok((*key, lowered.clone()))
            }
            _ => {
                let (key, lowered) = self.key(core, &chosen.plans, launch, chosen.how)?;
                if let Some(at) = at.filter(|_| is_private) {
                    self.choices[at].1.settled = Some((self.overlaps, key, lowered.clone()));
                }
                Ok((key, lowered))
            }
        }
    }
}

fn chosen(core: &mut Core, collective: &Collective, call: &Named) -> Result<Chosen, Error> {
    let (algorithm, how) = core.device_algorithm(call)?;
    let placement = match algorithm.allows(call.placement) {
        true => call.placement,
        false => Placement::OutOfPlace,
    };
    let plans = algorithm.proved(core.size(), call.root, placement)?;
    let has_inside = collective.is_inside()
        && call.placement == Placement::OutOfPlace
        && algorithm.allows(Placement::InPlace);
    let inside = match has_inside {
        true => Some(algorithm.proved(core.size(), call.root, Placement::InPlace)?),
        false => None,
    };
    Ok(Chosen { plans, inside, how, settled: None })
}
