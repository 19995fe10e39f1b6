//! The proof of a program on `n ranks`, or on a grid.

use crate::program::Program;

use super::driver::{ProofOptions, prove_flat};
use super::effort::ProofEffort;
use super::grid_steps::whole_use;
use super::grids::prove_grid;
use super::verdict::{AllRanksProof, FlatProof, NotProved, ProofRecord};

/// Proves that a program does what its collective asks for with every number of ranks that it is meant for, up to the
/// 2^24 that are supported.
///
/// # Errors
///
/// Why it is not proved, and where. It may be right all the same.
pub fn prove(program: &Program, options: ProofOptions) -> Result<AllRanksProof, NotProved> {
    prove_within(program, options, ProofEffort::FULL)
}

/// Proves a program as [`prove`] does, and gives up after a limit of counted work.
///
/// # Errors
///
/// Why it is not proved, and where.
pub fn prove_within(
    program: &Program,
    options: ProofOptions,
    effort: ProofEffort,
) -> Result<AllRanksProof, NotProved> {
    let mut record = ProofRecord::new(effort);
    if program.axes.sizes.len() == 1 {
        let FlatProof { record, invariants, certificate } =
            prove_flat(program, options, false, record)?;
        return Ok(AllRanksProof { obligations: record.obligations, invariants, certificate });
    }
    // Of a program on a grid there is no certificate.
    if let Some(own) = whole_use(program) {
        return Ok(AllRanksProof { certificate: None, ..prove_within(own, options, effort)? });
    }
    let mut invariants = Vec::new();
    let mut proved: Vec<*const Program> = Vec::new();
    let mut prove_used = |used: &Program| {
        if proved.contains(&std::ptr::from_ref(used)) {
            return Ok(());
        }
        let own = std::mem::replace(&mut record, ProofRecord::new(effort));
        let found = prove_flat(used, options, true, own)?;
        record = found.record;
        invariants.extend(found.invariants);
        proved.push(std::ptr::from_ref(used));
        Ok(())
    };
    let mut own = ProofRecord::new(effort);
    prove_grid(program, &mut prove_used, &mut own)?;
    record.obligations.extend(own.obligations);
    Ok(AllRanksProof { obligations: record.obligations, invariants, certificate: None })
}
