//! Tests the verifier of device programs against the machine of this test: programs with small faults. The verifier
//! refuses every one that gives another result under some schedule, touches memory that is not its own, or stops.
//!
//! The machine executes accepted mutants on marks, which distinguish operands, their order, grouping and rounding, with
//! vectors of several lengths, most of which chunks do not divide. It executes a sample of the refused ones too, so
//! that the table says how many of them the machine shows to be wrong.
//!
//! `MUTANTS=100000` tries more, `SEED=7` others, `ONLY=all_reduce.ring` those of some algorithms alone.

use std::collections::BTreeMap;

use roundelay_algorithms::{CATALOGUE, CatalogueEntry};
use roundelay_compiler::device::{DeviceOptions, DeviceProgram, DeviceProtocol, prove, verify};
use roundelay_compiler::{ProvedPlans, Shape};
use roundelay_tests::{SeededRandom, is_grid, of_library};

use super::kernel::Call;
use super::machine;
use super::mutate::MUTATIONS;
use super::reference::Arithmetic;
use super::{outside, placed, setting, with_values};

/// Mutants tried in an ordinary run.
const TRIED: u64 = 1200;
/// Mutants of the same programs, one after the other.
const OF_PROGRAMS: usize = 25;
/// Schedules of an accepted mutant, and of a refused one.
const SCHEDULES: [u64; 2] = [10, 4];
/// One refused mutant in this number is executed.
const SAMPLED: usize = 25;

/// The outcomes of the mutants of one kind.
#[derive(Default)]
struct MutantCount {
    refused: usize,
    accepted: usize,
    /// Refused ones that were executed, and those that gave something else.
    executed: usize,
    shown: usize,
}

/// A campaign, and what it has found.
struct MutantCampaign {
    dice: SeededRandom,
    left: u64,
    programs: usize,
    kinds: BTreeMap<&'static str, MutantCount>,
    holes: Vec<String>,
}

/// Programs to be changed.
struct MutantBase<'p> {
    name: String,
    proved: &'p ProvedPlans,
    options: DeviceOptions,
    programs: Vec<DeviceProgram>,
}

impl MutantBase<'_> {
    /// Returns what programs do that these should not, under some schedules.
    fn execute(&self, programs: &[DeviceProgram], seed: u64, schedules: u64) -> Result<(), String> {
        for k in 0..schedules {
            let mut dice = SeededRandom(seed.wrapping_mul(31).wrapping_add(k));
            let arithmetic = match self.programs[0].protocol {
                DeviceProtocol::Multicast => Arithmetic::Unordered,
                _ if k % 4 == 3 => Arithmetic::Float,
                _ => Arithmetic::Tagged,
            };
            let call = |dice: &mut SeededRandom| {
                with_values(&self.name, self.proved, programs.to_vec(), arithmetic, dice)
            };
            let calls: Vec<Call> = (0..2).map(|_| call(&mut dice)).collect();
            calls.iter().try_for_each(outside::check)?;
            machine::run(&calls, machine::NONE, dice.0)?;
        }
        Ok(())
    }
}

impl MutantCampaign {
    /// Tries mutants of programs.
    fn try_base(&mut self, base: &MutantBase<'_>) {
        self.programs += 1;
        if let Err(what) = base.execute(&base.programs, self.dice.0, 1) {
            self.holes.push(format!("{}: unchanged: {what}", base.name));
        }
        for _ in 0..OF_PROGRAMS {
            if self.left == 0 {
                return;
            }
            self.try_mutant(base);
        }
    }

    fn try_mutant(&mut self, base: &MutantBase<'_>) {
        let dice = &mut self.dice;
        let seed = dice.0;
        let mut mutant = base.programs.clone();
        let (mut kind, mut names) = (None, Vec::new());
        for _ in 0..1 + usize::from(dice.below(4) == 0) {
            let (name, change) = MUTATIONS[dice.below(MUTATIONS.len())];
            if change(&mut mutant, dice) {
                kind = kind.or(Some(name));
                names.push(name);
            }
        }
        let Some(kind) = kind.filter(|_| mutant != base.programs) else { return };
        self.left -= 1;
        let count = self.kinds.entry(kind).or_default();
        match verify(base.proved, &base.options, mutant.clone()) {
            Ok(_) => {
                count.accepted += 1;
                if let Err(what) = base.execute(&mutant, seed, SCHEDULES[0]) {
                    let how = names.join(", ");
                    self.holes.push(format!("{}: {how} (dice {seed}): {what}", base.name));
                }
            }
            Err(_) => {
                count.refused += 1;
                if dice.below(SAMPLED) == 0 {
                    count.executed += 1;
                    count.shown += usize::from(base.execute(&mutant, seed, SCHEDULES[1]).is_err());
                }
            }
        }
    }

    /// Tries mutants of all programs of an algorithm at a shape.
    fn try_entry(&mut self, entry: &CatalogueEntry, shape: &Shape) {
        let (sources, program) = of_library(entry).expect("the library resolves");
        placed(&sources, &program, shape, &mut |placement, proved| {
            for protocol in DeviceProtocol::ALL {
                let ranks = shape.ranks() as u32;
                let hosts: Vec<u32> = match self.dice.below(3) {
                    0 if !protocol.is_of_one_host() => (0..ranks).map(|rank| rank / 2).collect(),
                    1 if !protocol.is_of_one_host() => (0..ranks).collect(),
                    _ => Vec::new(),
                };
                let slots = [None, Some(1), Some(8)][self.dice.below(3)];
                let options = DeviceOptions { slots, hosts };
                let Ok(programs) = prove(proved, protocol, &options) else { continue };
                let name = format!(
                    "{}.{} -n {shape} {placement:?} {protocol} {options:?}",
                    entry.collective, entry.name
                );
                let programs = programs.list().to_vec();
                self.try_base(&MutantBase { name, proved, options, programs });
            }
        });
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{:<30}{:>9}{:>10}{:>12}{:>8}\n",
            "change", "refused", "accepted", "executed", "shown"
        );
        let mut sum = MutantCount::default();
        for (kind, count) in &self.kinds {
            let MutantCount { refused, accepted, executed, shown } = count;
            text += &format!("{kind:<30}{refused:>9}{accepted:>10}{executed:>12}{shown:>8}\n");
            sum.refused += refused;
            sum.accepted += accepted;
            sum.executed += executed;
            sum.shown += shown;
        }
        text += &format!(
            "{:<30}{:>9}{:>10}{:>12}{:>8}\n{} programs of all ranks\n",
            "all", sum.refused, sum.accepted, sum.executed, sum.shown, self.programs
        );
        text
    }
}

/// Returns the algorithms and shapes whose programs are changed, in an order that a seed decides.
fn bases(dice: &mut SeededRandom) -> Vec<(&'static CatalogueEntry, Shape)> {
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut all = Vec::new();
    for entry in CATALOGUE {
        if !format!("{}.{}", entry.collective, entry.name).contains(&only) {
            continue;
        }
        let (_, program) = of_library(entry).expect("the library resolves");
        let shapes = match is_grid(&program) {
            true => [[2, 2], [3, 2]].map(|axes| Shape { axes: axes.to_vec() }).to_vec(),
            false => [2, 3, 4].map(Shape::flat).to_vec(),
        };
        all.extend(shapes.into_iter().map(|shape| (entry, shape)));
    }
    for i in (1..all.len()).rev() {
        all.swap(i, dice.below(i + 1));
    }
    all
}

#[test]
fn mutants_that_change_a_result_are_refused() {
    let (tried, seed) = (setting("MUTANTS", TRIED), setting("SEED", 1));
    let mut dice = SeededRandom(seed);
    let bases = bases(&mut dice);
    let mut campaign = MutantCampaign {
        dice,
        left: tried,
        programs: 0,
        kinds: BTreeMap::new(),
        holes: Vec::new(),
    };
    while campaign.left > 0 {
        let before = campaign.left;
        for (entry, shape) in &bases {
            if campaign.left > 0 {
                campaign.try_entry(entry, shape);
            }
        }
        assert!(campaign.left < before, "there is nothing to change");
    }
    let table = campaign.table();
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(table.as_bytes());
    let holes = &campaign.holes;
    assert!(holes.is_empty(), "{table}\n{} of {tried}:\n{}", holes.len(), holes.join("\n"));
    let [executed, shown] = [|c: &MutantCount| c.executed, |c: &MutantCount| c.shown]
        .map(|of| campaign.kinds.values().map(of).sum::<usize>());
    assert!(2 * shown > executed, "the machine shows {shown} of {executed} to be wrong");
}
