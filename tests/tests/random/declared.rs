//! Tests the tables that proofs make of postconditions, on random declared collectives.

use std::sync::Arc;

use roundelay_compiler::program::CollectiveKind;
use roundelay_compiler::program::ProgramBuffer;
use roundelay_compiler::{CompileOptions, Program, ProgramInstance, Shape, postcondition};
use roundelay_tests::{declared, is_grid, read};

use crate::random::{Count, number};

/// Compares the table that the proofs use with the postconditions, at one shape; returns true if it is refused.
fn compare(program: &Arc<Program>, shape: &Shape) -> Result<bool, String> {
    let CollectiveKind::Custom(custom) = &program.kind else { return Err("not declared".into()) };
    let plain: Result<Vec<_>, _> = (0..u32::try_from(shape.ranks()).unwrap_or(0))
        .map(|rank| postcondition::asked(custom, &shape.axes, rank))
        .collect();
    let instance = ProgramInstance::new(program, shape, &CompileOptions::default());
    let (plain, instance) = match (plain, instance) {
        (Err(_), Err(_)) => return Ok(true),
        (Ok(_), Err(d)) => return Err(format!("on {shape}: refused: {}", d[0].message)),
        (Err(e), Ok(_)) => return Err(format!("on {shape}: {e}, and not refused")),
        (Ok(plain), Ok(instance)) => (plain, instance),
    };
    let per = instance.spec.per_block();
    for (rank, asked) in (0..).zip(plain) {
        let mut all = vec![None; instance.spec.size(ProgramBuffer::Output) as usize];
        for a in asked {
            for k in 0..per {
                let mut of: Vec<(u32, u32)> = a.of.iter().map(|&(r, c)| (r, c * per + k)).collect();
                of.sort_unstable();
                all[(a.output * per + k) as usize] = Some(of);
            }
        }
        for (chunk, asked) in (0..).zip(all) {
            let is = instance.spec.expected(ProgramBuffer::Output, rank, chunk);
            let is = is.map(|e| e.contributions(instance.spec.ranks));
            if is != asked {
                return Err(format!("on {shape}, rank {rank}, {chunk}: {is:?}, not {asked:?}"));
            }
        }
    }
    Ok(false)
}

#[test]
fn tables_hold_what_postconditions_ask() {
    let mut count = Count::default();
    for i in 0..2000 * number("ROUNDS", 1) {
        let text = declared::program(&mut crate::random::dice(i)).0;
        let source = match read("random.algo", &text) {
            Ok(source) => source,
            Err((sources, faults)) => {
                count.differs(i, &text, &roundelay_tests::say(&sources, &faults));
                continue;
            }
        };
        let Some(program) = source.programs.first() else { continue };
        let shapes: Vec<Shape> = match is_grid(program) {
            true => [[2, 2], [2, 3], [3, 1]].map(|axes| Shape { axes: axes.to_vec() }).to_vec(),
            false => [1, 2, 3, 5].map(Shape::flat).to_vec(),
        };
        for shape in shapes {
            match compare(program, &shape) {
                Ok(refused) => count.add(if refused { "refused" } else { "alike" }, 1),
                Err(why) => count.differs(i, &text, &why),
            }
        }
    }
    count.finish("tables", &[("alike", 2000), ("refused", 500)]);
}

/// A proof by a table that keeps the last chunk of a sum only: the oracle does not believe it.
#[test]
fn the_oracle_notices_a_wrong_table() {
    let text = |asked: &str| {
        format!(
            "collective own on n ranks {{ input n output 1
    each r {{ output[0] = reduce p in 0..n : input[{asked}] at p }} }}
algorithm main implements own on n ranks {{
    each r {{ r -> r : copy input[n - 1] -> output[0] }}
    each r {{ for q in 0..n where q != r {{ r -> q : reduce input[n - 1] -> output[0] }} }}
}}
"
        )
    };
    let made = |asked: &str| {
        let source = read("own.algo", &text(asked))
            .unwrap_or_else(|(s, d)| panic!("{}", roundelay_tests::say(&s, &d)));
        ProgramInstance::new(&source.programs[0], &Shape::flat(3), &CompileOptions::default())
            .expect("it fits")
    };
    let verdict = |instance: &ProgramInstance| {
        let graph = roundelay_compiler::graph::unroll(&Arc::new(instance.clone()));
        graph.and_then(roundelay_compiler::verify::verify).is_ok()
    };
    let mut wrong = made("p");
    assert!(!verdict(&wrong));
    // The old table.
    wrong.spec.custom = made("n - 1").spec.custom;
    assert!(verdict(&wrong), "proved by a wrong table");
    let outcome = roundelay_compiler::interpret::interpret(&wrong, 1).expect("it runs");
    assert!(!outcome.right, "the oracle asks the postconditions");
}
