//! Compares two evaluators with each other, on programs of `ranks`: one rank's transfers against those of all
//! ranks, and the proof by symmetry against unrolling.

use std::ops::ControlFlow;

use roundelay_compiler::walk::walk;
use roundelay_compiler::{ProgramInstance, Shape};
use roundelay_tests::{instance, read, roots};

use crate::random::judge::At;
use crate::random::{Count, dice, guarded, number, ranks};

/// Returns the shapes of a program; of many ranks some only.
fn shapes(grid: bool, dice: &mut roundelay_tests::SeededRandom) -> Vec<Shape> {
    if grid {
        let all = [[2, 2], [2, 4], [3, 2], [4, 2], [1, 3], [3, 1]];
        return all.map(|axes| Shape { axes: axes.to_vec() }).to_vec();
    }
    let mut shapes: Vec<Shape> = (2..=9).map(Shape::flat).collect();
    if dice.below(8) == 0 {
        shapes.push(Shape::flat(10 + u32::try_from(dice.below(7)).unwrap_or(0)));
    }
    if dice.below(30) == 0 {
        shapes.push(Shape::flat(32));
    }
    shapes
}

/// Compares what each rank takes part in with what all ranks do. Gives the number of transfers, or
/// `None` if the rounds themselves are refused.
///
/// # Errors
/// The difference between the two.
pub(crate) fn of_is_all(instance: &ProgramInstance) -> Result<Option<u64>, String> {
    let (mut count, mut why, mut refused) = (0, None, false);
    let done = walk(instance, &mut |round| {
        let mut all = Vec::new();
        if round.all(&mut all).is_err() {
            refused = true;
            return Ok(ControlFlow::Break(()));
        }
        for rank in 0..instance.ranks() {
            let mut own = Vec::new();
            let result = round.of(rank, &mut own);
            let want: Vec<_> =
                all.iter().filter(|t| t.src == rank || t.dst == rank).cloned().collect();
            if result.is_err() || own != want {
                let (own, want) = (own.len(), want.len());
                why = Some(format!(
                    "round {}, rank {rank}: {own} transfers, among all {want} (refused: {})",
                    round.index,
                    result.is_err()
                ));
                return Ok(ControlFlow::Break(()));
            }
            count += want.len() as u64;
        }
        Ok(ControlFlow::Continue(()))
    });
    match why {
        Some(why) => Err(why),
        None => Ok((done.is_ok() && !refused).then_some(count)),
    }
}

#[test]
fn one_ranks_transfers_are_those_among_all() {
    let mut count = Count::default();
    for i in 0..600 * number("ROUNDS", 1) {
        let mut dice = dice(i);
        let made = ranks::program(&mut dice);
        let source = match read("random.algo", &made.text) {
            Ok(source) => source,
            // A rank that begins with `if` is read as a statement, once in some 200 texts.
            Err(_) => {
                count.add("not resolved", 1);
                continue;
            }
        };
        let Some(program) = source.programs.iter().find(|p| p.name == "main") else { continue };
        count.add("programs", 1);
        for shape in shapes(made.grid, &mut dice) {
            let all = roots(program, u32::try_from(shape.ranks()).unwrap_or(0));
            let root = all[dice.below(all.len())];
            let Ok(Some(instance)) = instance(program, &shape, root) else {
                count.add("unfit shape", 1);
                continue;
            };
            match guarded(|| of_is_all(&instance)) {
                Ok(Some(_)) => count.add("shapes", 1),
                Ok(None) => count.add("refused", 1),
                Err(why) => {
                    count.differs(i, &made.text, &format!("on {shape}: {why}"));
                    break;
                }
            }
        }
    }
    count.finish("transfers of one rank", &[("shapes", 1500)]);
}

#[test]
fn symmetry_proves_of_ranks_what_unrolling_proves() {
    let mut count = Count::default();
    for i in 0..250 * number("ROUNDS", 1) {
        let mut dice = dice(i);
        let made = ranks::program(&mut dice);
        let Ok(source) = read("random.algo", &made.text) else { continue };
        let Some(program) = source.programs.iter().find(|p| p.name == "main") else { continue };
        for shape in shapes(made.grid, &mut dice) {
            let all = roots(program, u32::try_from(shape.ranks()).unwrap_or(0));
            let root = all[dice.below(all.len())];
            let at = At { program, sources: &source.sources, shape, root };
            match guarded(|| at.symmetry()) {
                Err(why) => {
                    count.differs(i, &made.text, &why);
                    break;
                }
                Ok(None) => count.add("no symmetry", 1),
                Ok(Some(true)) => count.add("proved", 1),
                Ok(Some(false)) => count.add("refuted", 1),
            }
        }
    }
    count.finish("symmetry of ranks", &[("proved", 30), ("refuted", 10)]);
}
