//! The time from the text of an algorithm to the proved plans of all ranks: parsed, resolved, unrolled, verified,
//! lowered for calls in place, and verified again.
//!
//!     cargo bench -p roundelay-compiler --bench compile

use divan::{Bencher, Divan};
use roundelay_compiler::{
    BufferPlacement, CompileOptions, NoLibrary, ProvedPlans, Shape, compile, resolve,
};
use roundelay_dsl::span::SourceMap;

/// Algorithms of the library that use no other one, by name and text.
const ALGORITHMS: [(&str, &str); 4] = [
    ("all_reduce.ring", include_str!("../../algorithms/all_reduce/ring.algo")),
    (
        "all_reduce.halving_doubling",
        include_str!("../../algorithms/all_reduce/halving_doubling.algo"),
    ),
    ("all_gather.ring", include_str!("../../algorithms/all_gather/ring.algo")),
    ("broadcast.binomial", include_str!("../../algorithms/broadcast/binomial.algo")),
];

fn main() {
    Divan::from_args().main();
}

fn plans(name: &str, text: &str, ranks: u32) -> ProvedPlans {
    let mut sources = SourceMap::new();
    let id = sources.add(name, text);
    let programs = resolve(&mut sources, id, &NoLibrary).expect("an algorithm of the library");
    let options = CompileOptions::default();
    let placement = BufferPlacement::InPlace;
    compile(&programs[0], &sources, &Shape::flat(ranks), &options, placement)
        .expect("proved for every power of two")
}

#[divan::bench(args = ALGORITHMS.map(|(name, _)| name), consts = [4, 16, 64])]
fn proved_plans<const N: u32>(bencher: Bencher<'_, '_>, name: &str) {
    let (_, text) = ALGORITHMS.into_iter().find(|(known, _)| *known == name).expect("a row");
    bencher.bench_local(|| plans(name, text, N));
}
