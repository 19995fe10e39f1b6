//! Tests what copy engines can run, and what is refused.

use roundelay_algorithms::find;
use roundelay_compiler::device::{
    DeviceOptions, DevicePhase, DeviceProgram, DeviceProtocol, prove, verify,
};
use roundelay_compiler::plan::PlanBuffer;
use roundelay_compiler::{BufferPlacement, ProvedPlans, Shape, compile};
use roundelay_tests::of_library;

use super::proofs;

fn proved(collective: &str, name: &str, n: u32) -> ProvedPlans {
    let entry = find(collective, name).expect("the library has it");
    let (sources, program) = of_library(entry).expect("the library resolves");
    let options = roundelay_compiler::CompileOptions::default();
    compile(&program, &sources, &Shape::flat(n), &options, BufferPlacement::OutOfPlace)
        .expect("a proof")
}

fn refusal(collective: &str, name: &str, n: u32) -> String {
    let refused =
        prove(&proved(collective, name, n), DeviceProtocol::Engine, &DeviceOptions::default());
    refused.expect_err("more than copies").to_string()
}

#[test]
fn algorithms_that_only_copy_once_are_offered() {
    let direct = [
        "all_gather.direct",
        "all_to_all.direct",
        "broadcast.chain",
        "gather.linear",
        "scatter.linear",
    ];
    let mut offered = 0;
    proofs(|name, shape, proved| {
        let copies = prove(proved, DeviceProtocol::Engine, &DeviceOptions::default());
        offered += usize::from(copies.is_ok());
        // Ranks that change blocks need memory for one of them.
        let changes = name.starts_with("all_to_all") && name.contains("InPlace");
        if direct.iter().any(|direct| name.starts_with(direct)) {
            assert_eq!(copies.is_ok(), !changes, "{name}: {copies:?}");
        }
        // On two ranks whatever copies is one step.
        let reduces = proved.plans()[0].header.reduces;
        assert!(!reduces || copies.is_err(), "{name} {shape} adds");
    });
    assert!(offered > 50, "{offered}");
}

#[test]
fn others_are_refused_and_say_why() {
    let text = refusal("all_reduce", "ring", 2);
    assert!(text.starts_with("copy engines only copy") && text.contains("adds operands"), "{text}");
    assert!(refusal("all_reduce", "one_shot", 4).contains("adds operands"));
    let text = refusal("all_gather", "ring", 4);
    assert!(text.contains("step 0 (line 9) copies what a later step counts on"), "{text}");
    // Its messages are of several places in scratch memory.
    assert!(refusal("all_to_all", "bruck", 4).contains("cannot be read where it lies"));
}

/// Messages that are rounded go through slots, of which one may be enough.
#[test]
fn few_slots_are_refused_as_more_are() {
    for slots in [None, Some(1), Some(2)] {
        let proved = proved("all_reduce", "compressed", 3);
        let options = DeviceOptions { slots, ..DeviceOptions::default() };
        let refused =
            prove(&proved, DeviceProtocol::Engine, &options).expect_err("more than copies");
        assert!(refused.0.starts_with("copy engines only copy"), "{refused}");
    }
}

/// Programs whose copies are not one phase of nothing else could not be taken apart.
#[test]
fn copies_stand_alone() {
    let proved = proved("all_gather", "direct", 3);
    let programs =
        prove(&proved, DeviceProtocol::Engine, &DeviceOptions::default()).expect("it only copies");
    let refused = |change: &dyn Fn(&mut DeviceProgram)| {
        let mut rest = programs.list().to_vec();
        change(&mut rest[1]);
        verify(&proved, &DeviceOptions::default(), rest).expect_err("it is damaged").0
    };
    let alone = "its copies are not one phase of nothing else";
    let joined = refused(&|p| {
        let waits = p.phases.remove(1).tasks.remove(0).waits;
        p.phases[1].tasks[1].waits = waits;
    });
    assert!(joined.contains(alone), "{joined}");
    let twice = refused(&|p| {
        let copy = p.phases[2].tasks.pop().expect("a copy");
        p.phases.push(DevicePhase { tasks: vec![copy], block_barrier: false, signals: Vec::new() });
    });
    assert!(twice.contains(alone), "{twice}");
    let aside = refused(&|p| {
        let store = p.phases[2].tasks[0].store.as_mut().expect("a place");
        store.pieces[0].buf = PlanBuffer::Scratch(0);
    });
    assert!(aside.contains(alone), "{aside}");
}
