//! Calls without elements: they move nothing, and are counted and compared as all other calls are.
//!
//! Engines of all kinds of memory leave them to this one, for they need no memory.
//!
//! The ranks exchange one word each through the control pages, in every such call: a rank without elements awaits no
//! data by which it could find that others have some. A rank with elements awaits data of this one, or its words, and
//! finds that it makes another call.

use roundelay_compiler::Plan;

use super::call::kernel_for;
use super::core::EngineCore;
use crate::bind::{BoundPlan, CallStats, PlanKey, references};
use crate::operation::{NamedCall, PlanCall};
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::Error;

impl EngineCore {
    /// Performs a call by name without elements, on memory of any kind.
    #[cold]
    pub fn perform_empty(&mut self, named: NamedCall) -> Result<(), Error> {
        self.with_plan(named, |core, plan| {
            let at = core.bind_empty(plan, named.dtype, named.op)?;
            core.compare_empty(at)
        })
    }

    /// Makes a call of a plan without elements, on memory of any kind.
    pub fn run_empty(&mut self, plan: &Plan, dtype: DType, op: RedOp) -> Result<(), Error> {
        let at = self.bind_empty(plan, dtype, op)?;
        self.compare_empty(at)
    }

    /// Makes a call of a plan without elements, on memory of this host.
    #[cold]
    pub(super) fn call_empty(
        &mut self,
        plan: &Plan,
        mut call: PlanCall<&[u8], &mut [u8]>,
    ) -> Result<CallStats, Error> {
        references(plan, &self.group)?;
        let at = self.bind_empty(plan, call.dtype, call.op)?;
        self.buffers(at, &mut call.args)?;
        self.compare_empty(at).map(|()| CallStats::default())
    }

    /// Returns the place of what such a call is known by; nothing of its plan is bound.
    fn bind_empty(&mut self, plan: &Plan, dtype: DType, op: RedOp) -> Result<usize, Error> {
        let key = PlanKey { hash: plan.header.hash, count: 0, dtype, op };
        if let Some(at) = self.bounds.position(|bound| bound.key == key) {
            return Ok(at);
        }
        let bound = BoundPlan::without_elements(key, kernel_for(plan, dtype, op)?, plan);
        self.recorder.learn(self.bounds.next(), &bound);
        Ok(self.bounds.keep(bound))
    }

    /// Counts such a call, and fails unless all ranks make it.
    fn compare_empty(&mut self, at: usize) -> Result<(), Error> {
        self.current = Some(at);
        let compared = self.not_aborted().and_then(|()| {
            let call_digest = self.enter(self.bounds[at].digest, Some(at));
            self.agree(at, call_digest)
        });
        compared.map_err(|error| self.fail(error))
    }
}
