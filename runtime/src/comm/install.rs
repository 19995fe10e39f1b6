//! The choice of a call's algorithm: hints, and installed algorithms.

use roundelay_compiler::plan::BufferPlacement;

use super::communicator::Communicator;
use crate::prototype::RunnableAlgorithm;
use roundelay_engine::choose::AlgorithmChoice;
use roundelay_engine::hints::Hints;
use roundelay_engine::{Collective, NamedCall, SERVED, served};
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::Error;

impl Communicator {
    /// Sets the hints of this communicator, in place of those it had: they hold for the calls that
    /// follow, where a call brings none of its own. All ranks must set the same. What has been settled
    /// when the ranks joined (transports, connections) stays.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the environment's hints or the tuned table are wrong.
    pub fn set_hints(&mut self, hints: Hints) -> Result<(), Error> {
        let core = self.core()?;
        let merged = core.resolver()?.merged(&Hints::default(), &hints);
        let timeout = merged.hints().timeout();
        core.plans.set_hints(hints);
        if let Some(timeout) = timeout {
            self.set_timeout(timeout);
        }
        Ok(())
    }

    /// Returns what a call would run, and the reason: what is [installed](Communicator::install), or else what is
    /// chosen by the hints in force for calls made now ([`Communicator::with`]), those of this communicator, the
    /// environment, the tuned table and the cost model. Moves nothing. `bytes` are those of the whole vector.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] and [`Error::Usage`] if a hint names what cannot be run.
    pub fn explain(
        &mut self,
        collective: &str,
        bytes: u64,
        dtype: DType,
        op: RedOp,
    ) -> Result<AlgorithmChoice, Error> {
        let Some(Collective { name: collective, .. }) = served(collective) else {
            let names = SERVED.map(|served| served.name).join(", ");
            let text = format!("there is no call `{collective}`; there are {names}");
            return Err(Error::Usage(text));
        };
        let placement = match *collective {
            "all_reduce" | "broadcast" | "reduce" | "barrier" => BufferPlacement::InPlace,
            _ => BufferPlacement::OutOfPlace,
        };
        let core = self.core()?;
        let transport = core.transports().to_string();
        let call = NamedCall { collective, bytes, dtype, op, root: 0, placement, is_cut: false };
        let mut choice = core.choice(&call, &transport)?;
        let encrypted = self.routes().iter().filter(|route| route.is_encrypted).count();
        if encrypted > 0 {
            let from = format!("connections from this rank to {encrypted} others are encrypted");
            choice.remarks.push(from);
        }
        Ok(choice)
    }

    /// Installs this algorithm for its collective on this communicator, at every size, in the place of those
    /// of the library or of one installed before. All ranks call this together, each with its own copy of the
    /// algorithm; it takes effect only if all copies are the same.
    ///
    /// # Errors
    ///
    /// [`Error::PlanMismatch`] if ranks disagree, on all ranks; [`Error::Refused`] and
    /// [`Error::Usage`] if the algorithm cannot be run here. Nothing has changed then, and the
    /// communicator stays usable. Otherwise the errors of [`Communicator::barrier`].
    pub fn install(&mut self, algorithm: &impl RunnableAlgorithm) -> Result<(), Error> {
        self.core()?.install(algorithm.algorithm()?)
    }

    /// Undoes [`Communicator::install`] for a collective, on all ranks together; returns true if there
    /// was something to undo.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::install`].
    pub fn uninstall(&mut self, collective: &str) -> Result<bool, Error> {
        self.core()?.uninstall(collective)
    }
}
