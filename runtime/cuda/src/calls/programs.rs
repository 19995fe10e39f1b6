//! The programs of a rank: those that were lowered from plans, by plan and protocol, and by their numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use roundelay_compiler::ProvedPlans;
use roundelay_compiler::device::{DeviceOptions, DeviceProtocol, interchangeable, prove};

use super::program::LoweredProgram;
use super::unsupported_call::UnsupportedCall;

/// A plan, by its hash, and the protocol by which it is lowered.
type ProgramKey = ([u8; 16], DeviceProtocol);

/// The programs that a rank has lowered so far.
#[derive(Default)]
pub(crate) struct ProgramTable {
    rank: u32,
    /// Programs, or why there is none.
    lowered: BTreeMap<ProgramKey, Result<Arc<LoweredProgram>, UnsupportedCall>>,
    /// Programs in place that go with those of other buffers: by plan and protocol of these.
    insides: BTreeMap<ProgramKey, Option<Arc<LoweredProgram>>>,
    /// Programs by their numbers, from 1.
    list: Vec<Arc<LoweredProgram>>,
}

impl ProgramTable {
    /// Returns an empty table of that rank.
    pub(crate) fn new(rank: u32) -> Self {
        ProgramTable { rank, ..ProgramTable::default() }
    }

    /// Returns the program of that number; a report of no program has the number 0.
    pub(crate) fn get(&self, number: u32) -> Option<&LoweredProgram> {
        let at = number.checked_sub(1)?;
        self.list.get(at as usize).map(|program| &**program)
    }

    /// Returns this rank's program of plans, by a protocol. `hosts` are the hosts of all ranks.
    pub(super) fn lower(
        &mut self,
        hosts: &[u32],
        plans: &ProvedPlans,
        protocol: DeviceProtocol,
    ) -> Result<Arc<LoweredProgram>, UnsupportedCall> {
        let Some(first) = plans.plans().first() else { return Err(UnsupportedCall::NoPlans) };
        let key = (first.header.hash, protocol);
        if let Some(known) = self.lowered.get(&key) {
            return known.clone();
        }
        let number = self.list.len() as u32 + 1;
        let lowered = LoweredProgram::new(plans, self.rank, protocol, number, hosts);
        self.list.extend(lowered.iter().cloned());
        self.lowered.insert(key, lowered.clone());
        lowered
    }

    /// Returns this rank's program in place, if ranks may run it while others run that of buffers apart.
    pub(super) fn inside(
        &mut self,
        hosts: &[u32],
        (plans, inside): (&ProvedPlans, &ProvedPlans),
        protocol: DeviceProtocol,
    ) -> Option<Arc<LoweredProgram>> {
        let hash = plans.plans().first()?.header.hash;
        if let Some(known) = self.insides.get(&(hash, protocol)) {
            return known.clone();
        }
        let options = DeviceOptions { hosts: hosts.into(), ..DeviceOptions::default() };
        let [apart, within] = [plans, inside].map(|plans| prove(plans, protocol, &options).ok());
        let alike = match (apart, within) {
            (Some(apart), Some(within)) => interchangeable(&apart, &within),
            _ => false,
        };
        let lowered = match alike {
            true => self.lower(hosts, inside, protocol).ok(),
            false => None,
        };
        self.insides.insert((hash, protocol), lowered.clone());
        lowered
    }
}
