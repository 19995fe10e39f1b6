//! Device programs, with what calls need to know of them.

use std::sync::Arc;

use roundelay_compiler::ProvedPlans;
use roundelay_compiler::device::{
    DeviceOptions, DeviceProgram, DeviceProtocol, ProvedProgram, TaskInput, TaskOutput, prove,
};
use roundelay_compiler::plan::{PlanBuffer, PlanRegion, SourceLine};
use roundelay_emit::cuda::{Element, FunctionSource, KernelSpec, Operator, cuda, cuda_function};

use super::unsupported_call::UnsupportedCall;
use crate::proxy::ProxyProgram;
use roundelay_support::dtype::{DType, RedOp};

/// The user's buffers of a call: data, input, output.
pub(crate) const BUFFERS: [&str; 3] = ["data", "input", "output"];

/// A rank's program.
#[derive(Debug)]
pub(crate) struct LoweredProgram {
    /// Its number among the programs of the communicator, from 1: reports name it.
    pub(crate) number: u32,
    pub(crate) program: ProvedProgram,
    /// True for each of the user's buffers that this rank's kernel addresses.
    pub(crate) own: [bool; 3],
    /// True for each buffer of which some rank's kernel addresses that of another one.
    pub(crate) remote: [bool; 3],
    /// Most messages a pass of a connection, over all ranks.
    pub(crate) messages: u32,
    /// Most tasks of a phase, over all ranks.
    pub(crate) tasks: u32,
    /// The messages that this rank's proxies carry, if it has far links.
    pub(crate) far: Option<Arc<ProxyProgram>>,
}

impl LoweredProgram {
    /// Compiles the program of a rank; those of all ranks are proved together. `hosts` are the hosts of the ranks.
    ///
    /// # Errors
    ///
    /// The reason for which a device cannot execute the plans so.
    pub(crate) fn new(
        plans: &ProvedPlans,
        rank: u32,
        protocol: DeviceProtocol,
        number: u32,
        hosts: &[u32],
    ) -> Result<Arc<Self>, UnsupportedCall> {
        let programs = prove(
            plans,
            protocol,
            &DeviceOptions { hosts: hosts.into(), ..DeviceOptions::default() },
        )?;
        let list = programs.list();
        let most = |of: &dyn Fn(&DeviceProgram) -> u32| list.iter().map(of).max().unwrap_or(0);
        let messages = most(&|p| p.links.iter().map(|l| l.messages).max().unwrap_or(0));
        let tasks = most(&|p| p.phases.iter().map(|f| f.tasks.len() as u32).max().unwrap_or(0));
        let mut remote = [false; 3];
        for program in list {
            visit(program, |region, is_remote| mark(region, &mut remote, is_remote));
        }
        let program = programs.of(rank).ok_or(UnsupportedCall::NoRank(rank))?;
        let mut own = [false; 3];
        visit(&program, |region, is_remote| mark(region, &mut own, !is_remote));
        let far = ProxyProgram::of(&program);
        Ok(Arc::new(LoweredProgram { number, program, own, remote, messages, tasks, far }))
    }

    /// Returns `collective.algorithm`.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.program.header.collective, self.program.header.algorithm)
    }

    /// Returns the source line of an task.
    pub(crate) fn site(&self, index: u32) -> Option<&SourceLine> {
        self.program.sites.get(index as usize)
    }

    /// Returns the text of its kernel.
    ///
    /// # Errors
    ///
    /// Why there is none: type and operator do not go together, too many ranks.
    pub(super) fn text(
        &self,
        dtype: DType,
        op: RedOp,
        aligned: bool,
    ) -> Result<String, UnsupportedCall> {
        Ok(cuda(&self.program, &spec(dtype, op, aligned)?)?.text())
    }

    /// Returns the header with its function, as the namespace `name`.
    ///
    /// # Errors
    ///
    /// The errors of [`LoweredProgram::text`]; also if it is run by copy engines, or the name is none.
    pub(super) fn function(
        &self,
        dtype: DType,
        op: RedOp,
        aligned: bool,
        name: &str,
    ) -> Result<FunctionSource, UnsupportedCall> {
        let program = std::slice::from_ref(&self.program);
        Ok(cuda_function(program, &spec(dtype, op, aligned)?, name)?)
    }
}

/// Returns the facts that a text depends on beside its program.
fn spec(dtype: DType, op: RedOp, aligned: bool) -> Result<KernelSpec, UnsupportedCall> {
    let (element, operator) = (Element::named(dtype.name()), Operator::named(op.name()));
    match (element, operator) {
        (Some(element), Some(operator)) => Ok(KernelSpec { element, operator, aligned }),
        _ => Err(UnsupportedCall::Arithmetic { dtype, op }),
    }
}

/// Shows every region that a kernel addresses, and whether it is a peer's.
fn visit(program: &DeviceProgram, mut see: impl FnMut(&PlanRegion, bool)) {
    for task in program.phases.iter().flat_map(|phase| &phase.tasks) {
        for source in &task.inputs {
            match source {
                TaskInput::Local(region) => see(region, false),
                TaskInput::Pulled(_, region) => see(region, true),
                TaskInput::Packet(..) | TaskInput::Staged(..) => {}
            }
        }
        if let Some(region) = &task.store {
            see(region, false);
        }
        for target in &task.outs {
            if let TaskOutput::Landed(_, region) = target {
                see(region, true);
            }
        }
    }
}

fn mark(region: &PlanRegion, into: &mut [bool; 3], counts: bool) {
    for piece in region.pieces.iter().filter(|_| counts) {
        let index = match piece.buf {
            PlanBuffer::Data => 0,
            PlanBuffer::Input => 1,
            PlanBuffer::Output => 2,
            PlanBuffer::Scratch(_) => continue,
        };
        into[index] = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_operators_have_the_compilers_names() {
        for dtype in DType::ALL {
            let element = Element::named(dtype.name()).expect("a type");
            assert_eq!(element.size() as usize, dtype.size());
        }
        assert!(RedOp::ALL.iter().all(|op| Operator::named(op.name()).is_some()));
    }
}
