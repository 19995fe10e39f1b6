//! Calls by name on GPUs: the algorithm of the call is found and played.

use std::sync::Arc;

use roundelay_compiler::{Placement, Proved};

use super::gpu::Gpu;
use super::{CudaStream, DevicePtr};
use crate::choose::How;
use crate::engine::{Args, Call, Collective, Core, Named, Recent, writes_output};
use crate::error::Error;

/// The choice for a call by name.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    plans: Arc<Proved>,
    /// The plans in place beside plans for an input and an output, where the algorithm has them.
    inside: Option<Arc<Proved>>,
    /// The way in which they are best played, as measured.
    how: Option<How>,
}

/// Calls by name and the plans that they play.
pub(crate) type Choices = Recent<(Named, Chosen), 256>;

/// A call on device memory.
pub(crate) type DeviceCall = Call<DevicePtr, DevicePtr>;

impl Gpu {
    /// Performs a call. A buffer that has no meaning on this rank, and so is null, is replaced by memory that is
    /// kept if the plan needs it.
    pub(crate) fn perform(
        &mut self,
        core: &mut Core,
        collective: &Collective,
        root: u32,
        call: DeviceCall,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        core.usable()?;
        if call.count == 0 && collective.name != "barrier" {
            return Ok(());
        }
        let named = collective.named(self.ranks, root, &call);
        let Chosen { plans, inside, how } =
            match self.choices.position(|(known, _)| *known == named) {
                Some(at) => self.choices[at].1.clone(),
                None => {
                    let chosen = chosen(core, collective, &named)?;
                    self.choices.keep((named, chosen.clone()));
                    chosen
                }
            };
        let Some(plan) = plans.plans().get(self.rank as usize) else { return Ok(()) };
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
        let launch = Call { args, ..call }.into();
        match args {
            Args::OutOfPlace { input, output }
                if collective.is_inside() && input == output && !input.is_null() =>
            {
                self.play_inside(core, (&plans, inside.as_deref()), &launch, how, stream)
            }
            _ => self.play(core, &plans, &launch, how, stream),
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
    Ok(Chosen { plans, inside, how })
}
