//! Device programs, with what calls need to know of them.

use std::sync::Arc;

use roundelay_compiler::Proved;
use roundelay_compiler::device::{
    DeviceProgram, Options, Protocol, ProvedProgram, Target, TaskInput, abi, prove,
};
use roundelay_compiler::emit::cuda::{
    Element, FunctionSource, Operator, Spec, cuda, cuda_function,
};
use roundelay_compiler::plan::{Buf, Region, Site};

use super::far::FarPart;
use super::unplayable::Unplayable;
use roundelay_net::dtype::{DType, RedOp};

/// The user's buffers of a call: data, input, output.
pub(super) const BUFFERS: [&str; 3] = ["data", "input", "output"];

/// A rank's program.
#[derive(Debug)]
pub(super) struct Lowered {
    /// Its number among the programs of the communicator, from 1: reports name it.
    pub(super) number: u32,
    pub(super) program: ProvedProgram,
    /// True for each of the user's buffers that this rank's kernel addresses.
    pub(super) own: [bool; 3],
    /// True for each buffer of which some rank's kernel addresses that of another one.
    pub(super) remote: [bool; 3],
    /// Most messages a pass of a connection, over all ranks.
    pub(super) messages: u32,
    /// Most tasks of a phase, over all ranks.
    pub(super) tasks: u32,
    /// The messages that this rank's lanes carry, if it has far links.
    pub(super) far: Option<Arc<FarPart>>,
}

impl Lowered {
    /// Compiles the program of a rank; those of all ranks are proved together. `hosts` are the hosts of the ranks.
    ///
    /// # Errors
    ///
    /// The reason for which a device cannot play the plans so.
    pub(super) fn new(
        plans: &Proved,
        rank: u32,
        protocol: Protocol,
        number: u32,
        hosts: &[u32],
    ) -> Result<Arc<Self>, Unplayable> {
        let programs =
            prove(plans, protocol, &Options { hosts: hosts.into(), ..Options::default() })?;
        let list = programs.list();
        let most = |of: &dyn Fn(&DeviceProgram) -> u32| list.iter().map(of).max().unwrap_or(0);
        let messages = most(&|p| p.links.iter().map(|l| l.messages).max().unwrap_or(0));
        let tasks = most(&|p| p.phases.iter().map(|f| f.tasks.len() as u32).max().unwrap_or(0));
        let mut remote = [false; 3];
        for program in list {
            visit(program, |region, is_remote| mark(region, &mut remote, is_remote));
        }
        let program = programs.of(rank).ok_or(Unplayable::NoRank(rank))?;
        let mut own = [false; 3];
        visit(&program, |region, is_remote| mark(region, &mut own, !is_remote));
        let far = FarPart::of(&program);
        Ok(Arc::new(Lowered { number, program, own, remote, messages, tasks, far }))
    }

    /// Returns `collective.algorithm`.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.program.header.collective, self.program.header.algorithm)
    }

    /// Returns the source line of an task.
    pub(super) fn site(&self, index: u32) -> Option<&Site> {
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
    ) -> Result<String, Unplayable> {
        Ok(cuda(&self.program, &spec(dtype, op, aligned)?)?.text())
    }

    /// Returns the header with its function, as the namespace `name`.
    ///
    /// # Errors
    ///
    /// The errors of [`Lowered::text`]; also if it is played by copy engines, or the name is none.
    pub(super) fn function(
        &self,
        dtype: DType,
        op: RedOp,
        aligned: bool,
        name: &str,
    ) -> Result<FunctionSource, Unplayable> {
        let program = std::slice::from_ref(&self.program);
        Ok(cuda_function(program, &spec(dtype, op, aligned)?, name)?)
    }
}

/// Returns the facts that a text depends on beside its program.
fn spec(dtype: DType, op: RedOp, aligned: bool) -> Result<Spec, Unplayable> {
    let (element, operator) = (Element::named(dtype.name()), Operator::named(op.name()));
    match (element, operator) {
        (Some(element), Some(operator)) => Ok(Spec { element, operator, aligned }),
        _ => Err(Unplayable::Arithmetic { dtype, op }),
    }
}

/// Shows every region that a kernel addresses, and whether it is a peer's.
fn visit(program: &DeviceProgram, mut see: impl FnMut(&Region, bool)) {
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
            if let Target::Landed(_, region) = target {
                see(region, true);
            }
        }
    }
}

fn mark(region: &Region, into: &mut [bool; 3], counts: bool) {
    for piece in region.pieces.iter().filter(|_| counts) {
        let index = match piece.buf {
            Buf::Data => 0,
            Buf::Input => 1,
            Buf::Output => 2,
            Buf::Scratch(_) => continue,
        };
        into[index] = true;
    }
}

/// Parameters of a kernel as words: those of [`abi::Params`], then four addresses a rank.
pub(super) const WORDS: usize = size_of::<abi::Params>() / 8;

/// The index of a parameter among the words.
macro_rules! word {
    ($field:ident) => {
        std::mem::offset_of!(roundelay_compiler::device::abi::Params, $field) / 8
    };
}
pub(super) use word;

/// Returns the words of parameters, in the kernel's order.
pub(super) fn words(params: &abi::Params) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    macro_rules! set {
        ($($field:ident),*) => {{
            let abi::Params { $($field,)* multicast, factor } = *params;
            $(words[word!($field)] = $field;)*
            words[word!(multicast)..][..3].copy_from_slice(&multicast);
            words[word!(factor)] = factor.to_bits();
        }};
    }
    set!(
        count,
        pass,
        passes,
        groups,
        unit,
        staging,
        halves,
        packets,
        packet_half,
        scratch,
        host,
        far,
        state,
        abort,
        report,
        timeout,
        part,
        program,
        number
    );
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_as_the_structure_does() {
        let params = abi::Params {
            count: 1,
            pass: 2,
            passes: 3,
            groups: 4,
            unit: 5,
            staging: 6,
            halves: 7,
            packets: 8,
            packet_half: 9,
            scratch: 10,
            host: 11,
            far: 12,
            state: 13,
            abort: 14,
            report: 15,
            timeout: 16,
            part: 17,
            program: 18,
            number: 19,
            multicast: [20, 21, 22],
            factor: 1.5,
        };
        let mut wanted: Vec<u64> = (1..=22).collect();
        wanted.push(1.5f64.to_bits());
        assert_eq!(words(&params).to_vec(), wanted);
    }

    #[test]
    fn types_and_operators_have_the_compilers_names() {
        for dtype in DType::ALL {
            let element = Element::named(dtype.name()).expect("a type");
            assert_eq!(element.size() as usize, dtype.size());
        }
        assert!(RedOp::ALL.iter().all(|op| Operator::named(op.name()).is_some()));
    }
}
