//! Callers of NCCL give an input that is a part of the output, or an output that is a part of the input, and the root
//! of a reduce both in one. Plans out of place are proved for buffers apart; here it is shown for the programs of the
//! algorithm library that they do as well on such buffers: none reads a chunk of its input after a chunk of its output
//! that lies in the same place was written with something else.

use roundelay_algorithms::{AlgorithmLibrary, CATALOGUE};
use roundelay_compiler::device::{DeviceProgram, Options as Lower, Protocol, TaskInput, prove};
use roundelay_compiler::plan::{Buf, Region};
use roundelay_compiler::{Options, Placement, Shape, compile, resolve};
use roundelay_dsl::span::SourceMap;

/// Returns the input's chunk that lies where a chunk of the output does, for a call as NCCL has it in place.
fn under(program: &DeviceProgram, root: u32, output: u32) -> Option<u32> {
    let header = &program.header;
    let (rank, n, chunks) = (program.rank, header.ranks, header.chunks);
    let block = chunks / n;
    let own = rank * block;
    match header.collective.as_str() {
        "reduce" => (rank == root).then_some(output),
        "all_gather" => (own..own + block).contains(&output).then(|| output - own),
        "gather" if rank == root => (own..own + block).contains(&output).then(|| output - own),
        "scatter" if rank == root => Some(own + output),
        "reduce_scatter" => Some(own + output),
        // There is no such form: what a rank sends would be overwritten by what it receives.
        "all_to_all" => Some(output),
        _ => None,
    }
}

/// Returns what goes wrong in a program whose buffers overlap as they do in place.
fn fault(program: &DeviceProgram, root: u32) -> Option<String> {
    let mut written: Vec<u32> = Vec::new();
    for (number, phase) in program.phases.iter().enumerate() {
        let mut now = Vec::new();
        for (at, task) in phase.tasks.iter().enumerate() {
            let local = |input: &TaskInput| match input {
                TaskInput::Local(region) => Some(region.clone()),
                _ => None,
            };
            let reads: Vec<Region> = task.inputs.iter().filter_map(local).collect();
            for region in &reads {
                let lost = region.iter().find(|(buf, c)| *buf == Buf::Input && written.contains(c));
                if let Some((_, c)) = lost {
                    return Some(format!("phase {number} reads input[{c}], which was overwritten"));
                }
            }
            let Some(store) = &task.store else { continue };
            for (k, (buf, output)) in store.iter().enumerate() {
                let (Buf::Output, Some(input)) = (buf, under(program, root, output)) else {
                    continue;
                };
                // What the task reads at the same element it reads before.
                let same = reads.iter().map(|region| region.iter().nth(k));
                let is_copy = task.inputs.len() == 1
                    && same.clone().any(|place| place == Some((Buf::Input, input)));
                let elsewhere = reads.iter().any(|region| {
                    region
                        .iter()
                        .enumerate()
                        .any(|(j, place)| j != k && place == (Buf::Input, input))
                });
                if elsewhere {
                    return Some(format!("phase {number} moves input[{input}] within itself"));
                }
                if !is_copy {
                    now.push((at, input));
                }
            }
        }
        // Tasks of one phase have no order.
        for (at, task) in phase.tasks.iter().enumerate() {
            for input in &task.inputs {
                let TaskInput::Local(region) = input else { continue };
                let raced = region.iter().find(|(buf, c)| {
                    *buf == Buf::Input
                        && now.iter().any(|(writer, input)| *writer != at && input == c)
                });
                if let Some((_, c)) = raced {
                    return Some(format!(
                        "phase {number} reads input[{c}] while it is overwritten"
                    ));
                }
            }
        }
        written.extend(now.into_iter().map(|(_, input)| input));
    }
    None
}

#[test]
fn plans_out_of_place_serve_buffers_that_overlap_as_nccl_has_them() {
    let (mut faults, mut seen) = (Vec::new(), 0);
    for entry in CATALOGUE {
        let (collective, name) = (entry.collective, entry.name);
        let is_rooted = match collective {
            "reduce" | "gather" | "scatter" => true,
            "all_gather" | "reduce_scatter" | "all_to_all" => false,
            _ => continue,
        };
        let mut sources = SourceMap::new();
        let id = sources.add(entry.path, entry.text);
        let programs = resolve(&mut sources, id, &AlgorithmLibrary).expect("it resolves");
        let program = programs.iter().find(|p| p.name == name).expect("it declares it");
        for (n, root) in
            (1..=8).flat_map(|n| (0..if is_rooted { n } else { 1 }).map(move |r| (n, r)))
        {
            let options = Options { root, ..Options::default() };
            let placement = Placement::OutOfPlace;
            let plans = compile(program, &sources, &Shape::flat(n), &options, placement);
            // An algorithm need not allow every number of ranks, or more than one path.
            let Ok(plans) = plans else { continue };
            for protocol in [Protocol::Packet, Protocol::Staged] {
                let Ok(programs) = prove(&plans, protocol, &Lower::default()) else { continue };
                for program in programs.list() {
                    seen += 1;
                    if let Some(why) = fault(program, root) {
                        let (rank, protocol) = (program.rank, protocol.name());
                        faults.push(format!(
                            "{collective}.{name}, {n} ranks, root {root}, rank {rank}, {protocol}: {why}"
                        ));
                    }
                }
            }
        }
    }
    assert!(seen > 1000, "{seen}");
    let (swaps, faults): (Vec<String>, Vec<String>) =
        faults.into_iter().partition(|fault| fault.starts_with("all_to_all"));
    assert!(swaps.len() > 50, "what does not do in place is seen: {swaps:?}");
    assert!(faults.is_empty(), "{} of {seen}:\n{}", faults.len(), faults.join("\n"));
}
