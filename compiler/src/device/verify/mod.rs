//! The proof of the device programs of all ranks together. It takes nothing from lowering.
//!
//! * **Shape** (`shape`): every index, region and count is in bounds; only what the protocol allows is used. What the
//!   switch reads or writes is one place on every rank: the checks below take it for one access on each rank, in no
//!   order.
//! * **Matching** (`links`): both ends of a link agree on messages, slots and places in staging memory; every
//!   message is written and read as it should be, once; links share no staging memory.
//! * **Deadlock** (`symbolic`): the programs are run, task by task, as if a block had one thread: no more order than
//!   that is ever asked for, and a wait that is fulfilled stays so. So if all end, all always do.
//! * **Races and unseen data** (`symbolic`, `memory`): each access is behind every access to the same place that it
//!   must come after: on the same rank behind a block barrier; between ranks behind a wait that acquires on a signal
//!   that releases and that comes behind a block barrier. Elements are the same thread's only within a task.
//! * **Far links** (`symbolic`): a proxy carries each message from the sender's slot into the receiver's, when the
//!   sender has signalled it and the receiver has signalled that it has read what the slot held. Its signal to the
//!   sender means that the slot is free, and no more. Every access of a proxy is checked like those of ranks.
//! * **Leaving**: what peers do in a rank's buffers is over when it ends, and what its proxies read in its slots.
//! * **Lengths** (`shape`, `links`): every chunk that is read or written is as long as its place, and both ends of a
//!   message take it for equally long. `ceil(N/C)` elements fit in scratch memory alone.
//! * **Result** (`results`, `expression`): the contributions of every place are what the collective asks for, and the
//!   expression of every result is that of the proved plan: the same operands in the same order and grouping, rounded
//!   at the same places to the same types. So what devices compute is bitwise what hosts do. Of what the switch folds
//!   the operands are compared as a set.
//! * **Entering**: if the programs say that they synchronise, the end of every rank depends on the entry of every
//!   rank.
//!
//! **Passes.** Everything is proved for one pass, and, where there may be more, for a number of passes in which each
//! wait for room reaches back to a pass before. Passes touch different elements of the buffers and the same
//! staging memory; each adds the same signals, so what is known in one pass is known of the next.

mod expression;
mod fault;
mod links;
mod memory;
mod results;
mod shape;
mod symbolic;

pub use fault::ProgramFault;

use super::lower::lower;
use super::options::DeviceOptions;
use super::program::{DeviceProgram, TaskOutput};
use super::protocol::DeviceProtocol;
use super::refusal::LoweringRefusal;
use crate::compile::ProvedPlans;
use crate::num::index;
use expression::PlanExpressions;

/// Device programs of all ranks, proved. Only [`prove`] and [`verify`] make them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvedPrograms {
    list: Vec<DeviceProgram>,
}

impl ProvedPrograms {
    /// Returns the programs, by rank.
    pub fn list(&self) -> &[DeviceProgram] {
        &self.list
    }

    /// Returns the program of a rank.
    pub fn of(&self, rank: u32) -> Option<ProvedProgram> {
        self.list.get(index(rank)).cloned().map(ProvedProgram)
    }
}

/// A rank's device program, proved together with those of all others: what kernels are made of. Only
/// [`ProvedPrograms::of`] gives one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvedProgram(DeviceProgram);

impl std::ops::Deref for ProvedProgram {
    type Target = DeviceProgram;

    fn deref(&self) -> &DeviceProgram {
        &self.0
    }
}

/// Lowers proved plans to device programs, and proves these.
///
/// # Errors
/// Returns the reasons for which a device cannot execute the plans.
pub fn prove(
    proved: &ProvedPlans,
    protocol: DeviceProtocol,
    options: &DeviceOptions,
) -> Result<ProvedPrograms, LoweringRefusal> {
    let programs = lower(proved.plans(), protocol, options)?;
    verify(proved, options, programs).map_err(|fault| {
        LoweringRefusal(format!(
            "{fault}; this is a fault of the compiler, please report it with the algorithm"
        ))
    })
}

/// Proves the programs of all ranks: that they do what the proved plans do, on ranks of these hosts.
///
/// # Errors
/// Returns the fault of the programs.
pub fn verify(
    proved: &ProvedPlans,
    options: &DeviceOptions,
    programs: Vec<DeviceProgram>,
) -> Result<ProvedPrograms, ProgramFault> {
    let instance = &proved.graph().instance;
    shape::check(proved, options, &programs)?;
    let wires = links::check(instance, &programs)?;
    let mut asked = PlanExpressions::compute(instance, proved.plans(), programs[0].protocol)?;
    symbolic::run(instance, &programs, &wires, &mut asked, 1)?;
    if !programs[0].protocol.is_one_pass() {
        symbolic::run(instance, &programs, &wires, &mut asked, passes(&programs))?;
    }
    Ok(ProvedPrograms { list: programs })
}

/// Returns a number of passes in which every wait for room looks back at a pass before, twice (66 at most).
fn passes(programs: &[DeviceProgram]) -> u32 {
    let mut most = 1;
    for program in programs {
        let tasks = program.phases.iter().flat_map(|p| &p.tasks);
        for out in tasks.flat_map(|a| &a.outs) {
            if let TaskOutput::Staged(m, _) = out {
                let link = program.links[index(m.link)];
                most = most.max(link.slots.div_ceil(link.messages.max(1)));
            }
        }
    }
    most.min(64) + 2
}
