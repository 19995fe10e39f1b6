//! Programs for the switch: which there are, and what is refused.

use roundelay_compiler::device::{
    DeviceOptions, DeviceProgram, DeviceProtocol, TaskInput, TaskOutput, prove, verify,
};
use roundelay_compiler::{BufferPlacement, ProvedPlans, Shape, compile};

use roundelay_tests::of_library;

fn proved(collective: &str, name: &str, n: u32, placement: BufferPlacement) -> Option<ProvedPlans> {
    let entry = roundelay_algorithms::find(collective, name).expect("the library has it");
    let (sources, program) = of_library(entry).expect("it resolves");
    let options = roundelay_compiler::CompileOptions::default();
    compile(&program, &sources, &Shape::flat(n), &options, placement).ok()
}

fn lowered(proved: &ProvedPlans) -> Result<Vec<DeviceProgram>, String> {
    let programs = prove(proved, DeviceProtocol::Multicast, &DeviceOptions::default());
    programs.map(|programs| programs.list().to_vec()).map_err(|refused| refused.0)
}

#[test]
fn what_reads_and_writes_one_place_on_all_ranks_goes_by_the_switch() {
    let mut supported = Vec::new();
    for entry in roundelay_algorithms::CATALOGUE {
        for placement in [BufferPlacement::InPlace, BufferPlacement::OutOfPlace] {
            let Some(proved) = proved(entry.collective, entry.name, 4, placement) else { continue };
            match lowered(&proved) {
                Ok(_) => {
                    supported.push(format!("{}.{} {placement:?}", entry.collective, entry.name));
                }
                Err(why) => {
                    let known =
                        why.starts_with("the switch reads or writes one place on all ranks: rank ");
                    assert!(known || entry.collective == "barrier", "{why}");
                }
            }
        }
    }
    supported.sort();
    supported.retain(|name| !name.starts_with("barrier"));
    assert_eq!(supported, WANTED, "{supported:#?}");
}

const WANTED: &[&str] = &[
    "all_gather.direct InPlace",
    "all_gather.direct OutOfPlace",
    "all_reduce.one_shot OutOfPlace",
    "all_reduce.two_shot InPlace",
    "all_reduce.two_shot OutOfPlace",
    "reduce.linear InPlace",
    "reduce.linear OutOfPlace",
    "reduce_scatter.direct InPlace",
    "reduce_scatter.direct OutOfPlace",
];

#[test]
fn an_instruction_stands_for_what_it_does_on_each_rank() {
    let proved =
        proved("all_gather", "direct", 4, BufferPlacement::OutOfPlace).expect("it is right");
    let programs = lowered(&proved).expect("it goes by the switch");
    for program in &programs {
        let moving = program.phases.iter().flat_map(|phase| &phase.tasks).filter(|t| t.moves());
        let [task] = &moving.collect::<Vec<_>>()[..] else { panic!("one task for all copies") };
        assert_eq!((task.outs.len(), task.store.is_some(), task.inputs.len()), (3, true, 1));
        // It waits until all have entered.
        assert_eq!(task.waits.len(), 3);
    }
}

/// Changes the first task for which `change` returns true.
fn changed(
    programs: &[DeviceProgram],
    change: impl FnMut(&mut roundelay_compiler::device::DeviceTask) -> bool,
) -> Vec<DeviceProgram> {
    let mut programs = programs.to_vec();
    let mut tasks = programs.iter_mut().flat_map(|p| &mut p.phases).flat_map(|p| &mut p.tasks);
    assert!(tasks.any(change), "there is one");
    programs
}

#[test]
fn what_does_something_else_on_a_rank_is_no_program_for_the_switch() {
    let proved =
        proved("all_reduce", "two_shot", 3, BufferPlacement::InPlace).expect("it is right");
    let programs = lowered(&proved).expect("it goes by the switch");
    let verified = |programs| verify(&proved, &DeviceOptions::default(), programs);
    assert!(verified(programs.clone()).is_ok());
    let refused = |programs| verified(programs).err().map(|fault| fault.0).unwrap_or_default();
    // A rank is left out, an operand stands twice, and an operand lies elsewhere.
    let fewer = changed(&programs, |task| task.outs.pop().is_some());
    assert!(refused(fewer).contains("writes at some ranks"), "left out");
    let twice = changed(&programs, |task| {
        let first = task.inputs.first().cloned().filter(|_| task.inputs.len() > 1);
        first.is_some_and(|first| {
            task.inputs[1] = first;
            true
        })
    });
    assert!(refused(twice).contains("reads at some ranks"), "twice");
    let elsewhere = changed(&programs, |task| {
        let landed = task.outs.iter_mut().find_map(|out| match out {
            TaskOutput::Landed(_, region) => Some(region),
            _ => None,
        });
        let pulled = task.inputs.iter().find_map(|input| match input {
            TaskInput::Pulled(_, region) => Some(region.clone()),
            _ => None,
        });
        match (landed, pulled) {
            (Some(landed), Some(_)) => {
                let Some(piece) = landed.pieces.first_mut() else { return false };
                piece.set.start = (piece.set.start + 1) % 3;
                true
            }
            _ => false,
        }
    });
    // Another chunk, which may have an element less.
    assert!(refused(elsewhere).contains("is of another length"), "elsewhere");
}
