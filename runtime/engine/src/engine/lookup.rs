//! Finds the plan that a call by name executes: that of the algorithm installed for its collective, else that of
//! an algorithm of the library.

use std::sync::Arc;

use roundelay_compiler::Plan;
use roundelay_compiler::plan::BufferPlacement;

use super::core::EngineCore;
use crate::choose::{AlgorithmChoice, ChoiceRequest, ChoiceResolver, NVLINK, ProtocolChoice};
use crate::custom::Algorithm;
use crate::operation::{NamedCall, served};
use roundelay_support::digest::mix;
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::Error;

impl EngineCore {
    /// Runs a call by its plan, which is out of place where an installed algorithm cannot do it in
    /// place. The plans of calls made before are lent, not counted: to count is an atomic operation,
    /// and waits until the message just sent has left the processor.
    pub(crate) fn with_plan<R>(
        &mut self,
        call: NamedCall,
        execute: impl FnOnce(&mut EngineCore, &Plan) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let known = self.plans.calls.position(|(known, _)| *known == call);
        match known.filter(|_| self.plans.call.is_none()) {
            Some(at) => {
                let lent = std::mem::take(&mut self.plans.calls);
                let done = execute(self, &lent[at].1);
                self.plans.calls = lent;
                done
            }
            None => {
                let plan = self.first_plan_for(call)?;
                execute(self, &plan)
            }
        }
    }

    #[cold]
    fn first_plan_for(&mut self, call: NamedCall) -> Result<Arc<Plan>, Error> {
        let algorithm = match self.plans.installed(call.collective) {
            Some(algorithm) => {
                let algorithm = algorithm.clone();
                self.check_invariance(&algorithm, call.root, call.dtype, call.op)?;
                algorithm
            }
            None => self.chosen(&call)?,
        };
        let placement = match algorithm.allows(call.placement) {
            true => call.placement,
            false => BufferPlacement::OutOfPlace,
        };
        let plan = algorithm.plan(self.size(), self.rank(), call.root, placement, self.paths())?;
        let plans = &mut self.plans;
        if plans.call.is_some() {
            return Ok(plan);
        }
        plans.calls.keep((call, plan.clone()));
        Ok(plan)
    }

    /// Returns the algorithm of the library for a call.
    fn chosen(&mut self, call: &NamedCall) -> Result<Algorithm, Error> {
        let choice = self.choice(call, &self.transports().to_string())?;
        self.algorithm(choice)
    }

    /// Returns the algorithm for a call on GPUs, the one installed or the library's; and how it is best
    /// run, as measured.
    pub fn device_algorithm(
        &mut self,
        call: &NamedCall,
    ) -> Result<(Algorithm, Option<ProtocolChoice>), Error> {
        if let Some(algorithm) = self.plans.installed(call.collective).cloned() {
            self.check_invariance(&algorithm, call.root, call.dtype, call.op)?;
            return Ok((algorithm, None));
        }
        let choice = self.choice(call, NVLINK)?;
        let how = choice.how;
        Ok((self.algorithm(choice)?, how))
    }

    /// Checks that an algorithm which was not chosen by hints may run under the hint `deterministic`, if it is given.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if an element's bits depend on more than the contributions to it.
    pub fn check_invariance(
        &mut self,
        algorithm: &Algorithm,
        root: u32,
        dtype: DType,
        op: RedOp,
    ) -> Result<(), Error> {
        match self.plans.is_deterministic()? {
            true => algorithm.check_invariance(self.size(), root, dtype, op),
            false => Ok(()),
        }
    }

    fn algorithm(
        &mut self,
        AlgorithmChoice { entry, shape, .. }: AlgorithmChoice,
    ) -> Result<Algorithm, Error> {
        let algorithm = self.plans.of_library(entry)?;
        Ok(if shape.axes.len() > 1 { algorithm.on(shape) } else { algorithm })
    }

    /// Returns what a call over these links runs: what is installed, or the resolver's choice.
    pub fn choice(&mut self, call: &NamedCall, transport: &str) -> Result<AlgorithmChoice, Error> {
        let NamedCall { collective, bytes, dtype, op, root, placement, is_cut } = *call;
        let request = ChoiceRequest {
            collective,
            topology: &self.topology(),
            grid: None,
            root,
            bytes,
            dtype,
            op,
            placement,
            is_cut,
            slot_bytes: Some(self.slot_bytes()),
            transport,
        };
        let hints = self.plans.call.as_deref().cloned().unwrap_or_default();
        let own = self.plans.hints.clone();
        let mut choice = self.resolver()?.choose(&request, &hints, &own)?;
        choice.remarks.extend(self.plans.remarks(collective));
        if let Some(installed) = self.plans.installed(collective) {
            choice.install(installed.name());
        }
        Ok(choice)
    }

    /// Returns the resolver of calls by name, made of the environment when it is first wanted.
    pub fn resolver(&mut self) -> Result<&mut ChoiceResolver, Error> {
        match &mut self.plans.resolver {
            Some(resolver) => Ok(resolver),
            none => Ok(none.insert(ChoiceResolver::from_env()?)),
        }
    }

    /// Returns true if an algorithm is installed for a collective.
    pub fn is_installed(&self, collective: &str) -> bool {
        self.plans.installed(collective).is_some()
    }

    /// Returns a plan that stands for an algorithm in agreements: the one for root 0, out of place.
    fn standard_plan(&self, algorithm: &Algorithm) -> Result<Arc<Plan>, Error> {
        algorithm.plan(self.size(), self.rank(), 0, BufferPlacement::OutOfPlace, self.paths())
    }

    /// Fails unless all ranks pass the same word; `what` names in the error what this rank does.
    fn agree_on(&mut self, word: u64, what: &str) -> Result<(), Error> {
        let words = self.words(word)?;
        match words.iter().position(|&theirs| theirs != word) {
            None => Ok(()),
            Some(peer) => Err(Error::PlanMismatch {
                rank: self.rank(),
                peer: peer as u32,
                detail: format!("rank {} {what}, and nothing was changed", self.rank()),
            }),
        }
    }

    /// Makes the settings of another communicator of this rank those of this one: calls that were planned for
    /// other ranks are forgotten, and of the installed algorithms those rest that these ranks cannot run. Returns
    /// the word by which ranks know that they have the same.
    pub fn sort_installed(&mut self) -> u64 {
        self.plans.forget();
        if let Some(resolver) = &mut self.plans.resolver {
            resolver.forget();
        }
        let mut all = std::mem::take(&mut self.plans.installed);
        let resting = std::mem::take(&mut self.plans.resting);
        all.extend(resting.into_iter().map(|(collective, algorithm, _)| (collective, algorithm)));
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut word = 1;
        for (collective, algorithm) in all {
            word = mix(word, digest("has", algorithm.to_string().as_bytes()));
            match self.standard_plan(&algorithm) {
                Ok(plan) => {
                    word = mix(word, digest("plays", &plan.header.hash));
                    self.plans.installed.push((collective, algorithm));
                }
                Err(error) => {
                    let why = error.to_string().lines().next().unwrap_or_default().to_owned();
                    self.plans.resting.push((collective, algorithm, why));
                }
            }
        }
        word
    }

    /// Keeps the installed algorithms if all ranks have the same, and none of them otherwise.
    pub fn agree_on_installed(&mut self) -> Result<(), Error> {
        let word = self.sort_installed();
        let words = self.words(word)?;
        let Some(other) = words.iter().position(|&theirs| theirs != words[0]) else {
            return Ok(());
        };
        self.plans.dropped = Some(format!(
            "no algorithm is installed any more: rank {other} did not have the same ones as rank 0 when \
             the ranks changed; all ranks may install them again"
        ));
        self.plans.installed.clear();
        self.plans.resting.clear();
        Ok(())
    }

    /// Installs an algorithm for its collective, if all ranks do.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the collective is not called by name, [`Error::Refused`] if the algorithm is not proved, and
    /// [`Error::Aborted`] or [`Error::Usage`] if ranks install different ones.
    pub fn install(&mut self, algorithm: &Algorithm) -> Result<(), Error> {
        self.usable()?;
        let collective = algorithm.collective().to_string();
        // A rank that cannot install it tells the others so, by a word that none of them has.
        let plan = match served(&collective).is_some() {
            true => self.standard_plan(algorithm),
            false => Err(Error::Usage(format!(
                "{algorithm} cannot be installed: `{collective}` is not called by name; run it by \
                 run_algorithm"
            ))),
        };
        let (word, refusal) = match plan {
            Ok(plan) => (digest("install", &plan.header.hash), None),
            Err(error) => (0, Some(error)),
        };
        let agreed = self.agree_on(word, &format!("installs {algorithm}"));
        match refusal {
            Some(refusal) if self.usable().is_ok() => return Err(refusal),
            _ => agreed?,
        }
        self.plans.forget();
        self.plans.resting.retain(|(c, ..)| *c != collective);
        self.plans.dropped = None;
        self.plans.installed.retain(|(c, _)| *c != collective);
        self.plans.installed.push((collective, algorithm.clone()));
        Ok(())
    }

    /// Removes the algorithm that is installed for a collective, if all ranks do; returns false if there was none.
    ///
    /// # Errors
    ///
    /// Those of [`EngineCore::install`].
    pub fn uninstall(&mut self, collective: &str) -> Result<bool, Error> {
        self.usable()?;
        let installed = self.plans.installed(collective).cloned();
        let word = match &installed {
            None => digest("uninstall nothing", collective.as_bytes()),
            Some(algorithm) => match self.standard_plan(algorithm) {
                Ok(plan) => digest("uninstall", &plan.header.hash),
                Err(_) => 0,
            },
        };
        let what = match &installed {
            Some(algorithm) => format!("uninstalls {algorithm}"),
            None => format!("has no algorithm installed for `{collective}`"),
        };
        self.agree_on(word, &what)?;
        self.plans.forget();
        self.plans.resting.retain(|(c, ..)| c != collective);
        self.plans.installed.retain(|(c, _)| c != collective);
        Ok(installed.is_some())
    }
}

/// Returns a word, not 0, for what is done with something.
fn digest(what: &str, with: &[u8]) -> u64 {
    what.bytes().chain(with.iter().copied()).fold(1, |d, byte| mix(d, byte.into())) | 1
}
