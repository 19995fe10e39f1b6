//! Prepares a call: the plan's addresses, the caller's buffers, scratch memory, and what `avg` and
//! `premul_sum` do before and after.

use roundelay_compiler::plan::{BufferPlacement, Plan};

use super::core::EngineCore;
use crate::bind::CallStats;
use crate::bind::{BoundPlan, CallSizing, PlanKey, bind};
use crate::executor::{BufferAddress, ExecutionBuffers, PlanExecution, run_ahead};
use crate::operation::CallArgs;
use crate::progress::wait::WaitLoop;
use crate::tunables::ABORT_CHECK_BYTES;
use roundelay_support::backend::{FoldSource, FoldTarget, HostKernel, kernel};
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::Error;

impl EngineCore {
    pub(crate) fn bind(
        &mut self,
        plan: &Plan,
        key: PlanKey,
        sizing: CallSizing<'_>,
    ) -> Result<usize, Error> {
        let kernel = kernel_for(plan, key.dtype, key.op)?;
        let bound =
            bind(plan, key, sizing, kernel, &mut self.group, &mut self.endpoints, self.timeout);
        let bound = match bound {
            Ok(bound) => bound,
            // All ranks find that alike, before anything has moved.
            Err(error @ (Error::Usage(_) | Error::Plan(_))) => return Err(error),
            Err(error @ Error::Unsupported(_)) if sizing.counts.is_empty() => return Err(error),
            // Memory is short, a connection did not come about, or the plan is unfit for blocks of
            // unequal length, on this rank only: the others must not wait for it.
            Err(error) => {
                let error = self.explain(error);
                return Err(self.fail(error));
            }
        };
        self.recorder.learn(self.bounds.next(), &bound);
        Ok(self.bounds.keep(bound))
    }

    /// Compares the buffers of a call with its plan, and notes where they lie.
    pub(crate) fn buffers(
        &mut self,
        at: usize,
        args: &mut CallArgs<&[u8], &mut [u8]>,
    ) -> Result<(), Error> {
        let bound = &self.bounds[at];
        let placement = bound.header.placement;
        let wanted = |index: usize| (bound.shape.lens[index] * bound.shape.size) as usize;
        let refused = |what: &str, has: usize, wanted: usize| {
            Err(Error::Usage(format!(
                "the {what} has {has} bytes, and {} of {} x {} needs {wanted}",
                bound.name(),
                bound.extent(),
                bound.key.dtype
            )))
        };
        let none = (std::ptr::null_mut(), 0);
        let lent = match (args, placement) {
            (CallArgs::InPlace { data }, BufferPlacement::InPlace) => {
                if data.len() != wanted(0) {
                    return refused("data", data.len(), wanted(0));
                }
                [(data.as_mut_ptr(), data.len()), none, none]
            }
            (CallArgs::OutOfPlace { input, output }, BufferPlacement::OutOfPlace) => {
                if input.len() != wanted(1) && (bound.reads_input || !input.is_empty()) {
                    return refused("input", input.len(), wanted(1));
                }
                if output.len() != wanted(2) && (bound.writes_output || !output.is_empty()) {
                    return refused("output", output.len(), wanted(2));
                }
                // The plan never writes to its input: `bind` checked that.
                let input = (input.as_ptr().cast_mut(), input.len());
                [none, input, (output.as_mut_ptr(), output.len())]
            }
            (_, BufferPlacement::InPlace) => {
                return Err(Error::Usage("the plan is in place".into()));
            }
            (_, BufferPlacement::OutOfPlace) => {
                return Err(Error::Usage("the plan is out of place".into()));
            }
        };
        self.work.bases.clear();
        for (address, len) in lent {
            // An empty slice has an address too, but nothing may be read or written there.
            let address = if len == 0 { std::ptr::null_mut() } else { address };
            let mapped = self.arena.find(address, len);
            self.work.bases.push(BufferAddress { address, mapped });
        }
        Ok(())
    }

    /// Cuts the scratch buffers of a plan, and room for a scaled copy of the input, from memory that
    /// is kept between calls.
    fn scratch(&mut self, at: usize, copies_input: bool) -> Result<(), Error> {
        let shape = &self.bounds[at].shape;
        let size = |index: usize| (shape.lens[index] * shape.size).next_multiple_of(64) as usize;
        let input = if copies_input { size(1) } else { 0 };
        let total = input + (3..shape.buffers.len()).map(size).sum::<usize>();
        if total == 0 {
            return Ok(());
        }
        if self.scratch.as_ref().is_none_or(|cut| cut.bytes() < total) {
            self.scratch = None;
            self.scratch = Some(self.arena.cut(total)?);
        }
        let Some(cut) = &self.scratch else { return Ok(()) };
        let mut address = cut.address();
        let mut next = |len: usize| {
            let base = BufferAddress { address, mapped: self.arena.find(address, len) };
            address = address.wrapping_add(len);
            base
        };
        for index in 3..shape.buffers.len() {
            self.work.bases.push(next(size(index)));
        }
        if copies_input {
            self.work.bases.push(next(input));
        }
        Ok(())
    }

    pub(crate) fn execute(
        &mut self,
        at: usize,
        factor: f64,
        in_place: bool,
    ) -> Result<CallStats, Error> {
        let call_digest = self.enter(self.bounds[at].digest, Some(at));
        let op = self.bounds[at].key.op;
        let reduces = self.bounds[at].reduces;
        let (premul, avg) = (reduces && op == RedOp::PremulSum, reduces && op == RedOp::Avg);
        self.scratch(at, premul && !in_place)?;
        if !self.bounds[at].agreed {
            self.agree(at, call_digest)?;
            self.bounds[at].agreed = true;
            self.endpoints.try_reach();
        }
        if premul {
            let stopped = || self.group.is_stopped();
            scale(&self.bounds[at], &mut self.work, factor, in_place, &stopped);
            self.not_stopped()?;
        }
        self.measure(at);
        let stats = self.execute_bound(at, call_digest)?;
        self.measured(at);
        if avg {
            let bound = &self.bounds[at];
            let index = if in_place { 0 } else { 2 };
            let data = self.work.bases[index].address;
            let count = if data.is_null() { 0 } else { bound.shape.lens[index] };
            let ranks = u64::from(self.group.size());
            for (part, count) in parts(data, count as usize, bound.shape.size as usize) {
                self.not_stopped()?;
                // SAFETY: `buffers` compared the buffer with that size, and the call is over: it is
                // this rank's alone.
                unsafe { bound.kernel.divide(part, count, ranks) };
            }
        }
        Ok(stats)
    }

    /// Executes a plan whose buffers are noted.
    fn execute_bound(&mut self, at: usize, call_digest: u32) -> Result<CallStats, Error> {
        let bound = &self.bounds[at];
        // A poll of a socket is a system call: to yield as well costs little beside it.
        let yields = bound.posted || self.group.layout().crowded;
        let mut done = 0;
        if let (Some(stats), None) = (&bound.short, &self.recorder.tracer) {
            let polls = WaitLoop::polls(yields);
            done = run_ahead(bound, &mut self.work, &mut self.endpoints, call_digest, polls);
            if done as usize == bound.steps.len() {
                return Ok(*stats);
            }
        }
        let mut execution = PlanExecution {
            bound,
            work: &mut self.work,
            endpoints: &mut self.endpoints,
            kernel: bound.kernel,
            rank: self.group.rank(),
            call: self.calls,
            digest: call_digest,
            entered: Some(call_digest),
            wait: WaitLoop::new(self.timeout, yields).for_sockets(bound.posted),
            group: &mut self.group,
            stats: CallStats::default(),
            reads_peer: false,
            moved: 0,
            taken: 0,
            recorder: &mut self.recorder,
        };
        let stats = execution.execute(done)?;
        Ok(bound.short.unwrap_or(stats))
    }
}

/// Returns the arithmetic of a call. Copies need none, and so have no operator.
pub(super) fn kernel_for(plan: &Plan, dtype: DType, op: RedOp) -> Result<HostKernel, Error> {
    let sums = matches!(op, RedOp::Sum | RedOp::Avg | RedOp::PremulSum);
    if plan.header.lossy && plan.header.reduces && !sums {
        return Err(Error::Unsupported(format!(
            "{}.{} rounds on the wire, which is for sums only, not for {}: choose an algorithm \
             without a wire type",
            plan.header.collective,
            plan.header.algorithm,
            op.name()
        )));
    }
    match plan.header.reduces {
        true => kernel(dtype, op).map_err(|e| Error::Unsupported(e.to_string())),
        false => Ok(HostKernel::copies(dtype)),
    }
}

/// Returns the parts of a buffer of that many elements of that size which are written before it is looked whether the
/// job has been aborted.
fn parts(data: *mut u8, count: usize, size: usize) -> impl Iterator<Item = (*mut u8, usize)> {
    let most = (ABORT_CHECK_BYTES / size.max(1)).max(1);
    (0..count).step_by(most).map(move |at| (data.wrapping_add(at * size), most.min(count - at)))
}

/// Multiplies this rank's elements before a call: in place, or in a copy that replaces the input.
fn scale(
    bound: &BoundPlan,
    work: &mut ExecutionBuffers,
    factor: f64,
    in_place: bool,
    stopped: &dyn Fn() -> bool,
) {
    let kernel = &bound.kernel;
    let data = work.bases[usize::from(!in_place)];
    let count = bound.shape.lens[usize::from(!in_place)] as usize;
    if data.address.is_null() {
        return;
    }
    let target = match in_place {
        true => data.address,
        false => {
            let Some(copy) = work.bases.pop() else { return };
            let from = FoldSource { ptr: data.address, wire: None };
            let to = FoldTarget { ptr: copy.address, wire: None, stream: false };
            // SAFETY: `buffers` compared the input with `count` elements, and `scratch` cut a copy
            // of that size; they do not overlap.
            unsafe { kernel.fold(&[from], &[to], count) };
            work.bases[1] = copy;
            copy.address
        }
    };
    for (part, count) in parts(target, count, bound.shape.size as usize) {
        if stopped() {
            return;
        }
        // SAFETY: `count` elements lie there, as above, and no call is in progress.
        unsafe { kernel.scale(part, count, factor) };
    }
}
