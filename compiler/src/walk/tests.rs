//! Tests that the transfers of one rank are those of all, and that bounds of messages hold.

use std::ops::ControlFlow;

use roundelay_dsl::span::SourceMap;

use super::{ChunkTransfer, walk};
use crate::bounds::expressions::ExprGenerator;
use crate::{CompileOptions, NoLibrary, ProgramInstance, Shape, resolve};

/// Returns a program of one round, in which peers, conditions and regions are random expressions.
fn program(make: &mut ExprGenerator) -> String {
    let k = make.named(&["n", "n", "3"]).number(2);
    make.named(&["r", "n", "r", "k"]);
    let filter = match make.below(3) {
        0 => format!("where {}", make.condition(2)),
        _ => String::new(),
    };
    let bound = match make.below(3) {
        0 => format!("let x = {} ", make.number(3)),
        1 => format!("let x = ({}) % {} ", make.number(3), 1 + make.below(9)),
        _ => "let x = r + 1 ".into(),
    };
    make.named(&["r", "n", "r", "k", "x"]);
    let (from, peer) = (format!("({}) % n", make.number(3)), format!("({}) % n", make.number(3)));
    let (src, dst) = match make.below(3) {
        0 => (peer, "r".to_string()),
        1 => (peer, format!("(r + {}) % n", make.below(3))),
        _ => ("r".into(), peer),
    };
    let region = match make.below(4) {
        0 => format!("data[{from}]"),
        1 => format!("data[{from} ..+ ({}) % n]", make.number(3)),
        2 => format!("data[{from} .. min(n, {from} + ({}) % 4)]", make.number(3)),
        _ => format!("data[{from} ..+ {}]", make.number(3)),
    };
    let inner = match make.below(3) {
        0 => format!("for i in 0..{} {{ {src} -> {dst} : copy {region} }}", 1 + make.below(3)),
        _ => format!("{src} -> {dst} : copy {region}"),
    };
    format!(
        "algorithm a implements all_reduce on n ranks {{ chunks n
            let k = {k}
            each r {filter} {{ {bound} {inner} }} }}"
    )
}

/// A rank's transfers are those of all in which it takes part, and no message is longer than the bound of its
/// round, whatever the values on the way. `ROUNDS=20` tries twenty times as many.
#[test]
#[expect(clippy::disallowed_methods, reason = "the number of rounds is the tester's choice")]
fn a_rank_misses_nothing() {
    let rounds = std::env::var("ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(1u64);
    let (mut some, mut none) = (0, 0);
    for seed in 0..4000 * rounds {
        let text = program(&mut ExprGenerator::new(seed, &["n"]));
        let mut sources = SourceMap::new();
        let id = sources.add("here.algo", text.clone());
        let Ok(programs) = resolve(&mut sources, id, &NoLibrary) else { continue };
        for n in [2, 5, 8] {
            let Ok(instance) =
                ProgramInstance::new(&programs[0], &Shape::flat(n), &CompileOptions::default())
            else {
                continue;
            };
            let done = walk(&instance, &mut |round| {
                let (mut all, mut own) = (Vec::new(), Vec::new());
                round.all(&mut all)?;
                let most = all.iter().map(|t: &ChunkTransfer| t.from.chunks()).max().unwrap_or(0);
                let bound = round.message_bound()?;
                assert!(most <= bound, "{most} chunks, not {bound}, on {n}: {text}");
                for rank in 0..n {
                    own.clear();
                    round.of(rank, &mut own)?;
                    let of = |t: &&ChunkTransfer| t.src == rank || t.dst == rank;
                    let wanted: Vec<ChunkTransfer> = all.iter().filter(of).cloned().collect();
                    assert_eq!(own, wanted, "rank {rank} of {n}: {text}");
                }
                some += all.len();
                Ok(ControlFlow::Continue(()))
            });
            none += usize::from(done.is_err());
        }
    }
    assert!(some > 2000, "{some} transfers, {none} without a value");
}
