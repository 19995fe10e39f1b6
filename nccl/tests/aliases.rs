//! Callers of NCCL give an input that is a part of the output, or an output that is a part of the input, and the root
//! of a reduce both in one. Plans out of place are proved for buffers apart; here it is shown for the programs of the
//! algorithm library that they do as well on such buffers.

use roundelay_algorithms::{AlgorithmLibrary, CATALOGUE, CatalogueEntry};
use roundelay_compiler::device::{
    DeviceOptions as Lower, DeviceProgram, DeviceProtocol, DeviceTask, TaskInput, interchangeable,
    prove,
};
use roundelay_compiler::plan::PlanBuffer;
use roundelay_compiler::{BufferPlacement, CompileOptions, Shape, compile, resolve};
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

/// Returns the buffers and chunks of this rank's own memory that a task reads, each list in the order of elements.
fn reads(task: &DeviceTask) -> Vec<Vec<(PlanBuffer, u32)>> {
    let local = |input: &TaskInput| match input {
        TaskInput::Local(region) => Some(region.iter().collect()),
        _ => None,
    };
    task.inputs.iter().filter_map(local).collect()
}

fn stores(task: &DeviceTask) -> Vec<(PlanBuffer, u32)> {
    task.store.iter().flat_map(|region| region.iter()).collect()
}

/// Returns what goes wrong in a program whose buffers overlap as they do in place. Where a chunk of the output is
/// written, the chunk of the input that lies there may be read by the task that writes it, each element at its place,
/// and by tasks on whose results that one depends, element by element: so an element is read before it is written.
/// Between other tasks there need be no barrier.
fn fault(program: &DeviceProgram, root: u32) -> Option<String> {
    let tasks: Vec<&DeviceTask> = program.phases.iter().flat_map(|phase| &phase.tasks).collect();
    for (writer, task) in tasks.iter().enumerate() {
        for (k, place) in stores(task).into_iter().enumerate() {
            let (PlanBuffer::Output, Some(input)) = (place.0, under(program, root, place.1)) else {
                continue;
            };
            let under = (PlanBuffer::Input, input);
            if task.inputs.len() == 1 && reads(task).iter().any(|list| list.get(k) == Some(&under))
            {
                // What is copied to where it lies stays as it is.
                continue;
            }
            for (reader, other) in tasks.iter().enumerate() {
                let lists = reads(other);
                let at = lists.iter().flat_map(|list| list.iter().enumerate());
                let mut at = at.filter(|(_, read)| **read == under).map(|(j, _)| j);
                let is_lost = |j: usize| match reader == writer {
                    true => j != k,
                    false => !leads(&tasks[reader..=writer.max(reader)], j, k),
                };
                if at.any(is_lost) {
                    return Some(format!(
                        "task {reader} reads input[{input}], which task {writer} overwrites"
                    ));
                }
            }
        }
    }
    None
}

/// Returns true if element k of the last of these tasks depends on element j of the first one.
fn leads(tasks: &[&DeviceTask], j: usize, k: usize) -> bool {
    let Some((first, later)) = tasks.split_first() else { return false };
    let mut known: Vec<(PlanBuffer, u32)> = stores(first).get(j).copied().into_iter().collect();
    let mut reached = false;
    for task in later {
        let (lists, places) = (reads(task), stores(task));
        let depends =
            |at: usize| lists.iter().any(|l| l.get(at).is_some_and(|read| known.contains(read)));
        reached = depends(k);
        let more: Vec<_> =
            (0..places.len()).filter(|&at| depends(at)).map(|at| places[at]).collect();
        known.extend(more);
    }
    reached
}

/// Shows the programs of an algorithm: of every rank, for one to eight ranks and each root, as packets and staged.
fn each_program(
    entry: &CatalogueEntry,
    is_rooted: bool,
    placement: BufferPlacement,
    mut see: impl FnMut(&DeviceProgram, u32, DeviceProtocol),
) {
    let mut sources = SourceMap::new();
    let id = sources.add(entry.path, entry.text);
    let programs = resolve(&mut sources, id, &AlgorithmLibrary).expect("it resolves");
    let program = programs.iter().find(|p| p.name == entry.name).expect("it declares it");
    for (n, root) in (1..=8).flat_map(|n| (0..if is_rooted { n } else { 1 }).map(move |r| (n, r))) {
        let options = CompileOptions { root, ..CompileOptions::default() };
        let plans = compile(program, &sources, &Shape::flat(n), &options, placement);
        // An algorithm need not allow every number of ranks, or one path alone.
        let Ok(plans) = plans else { continue };
        for protocol in [DeviceProtocol::Packet, DeviceProtocol::Staged] {
            let Ok(programs) = prove(&plans, protocol, &Lower::default()) else { continue };
            programs.list().iter().for_each(|program| see(program, root, protocol));
        }
    }
}

#[test]
fn plans_out_of_place_serve_buffers_that_overlap_as_nccl_has_them() {
    let (mut faults, mut seen) = (Vec::new(), 0);
    for entry in CATALOGUE {
        let (collective, name) = (entry.collective, entry.name);
        let is_rooted = match collective {
            // What overwrites the root's input is the sum of it and others: it comes from a peer that has it already.
            "reduce" if name == "two_shot" => continue,
            "reduce" | "gather" | "scatter" => true,
            "all_gather" | "reduce_scatter" | "all_to_all" => false,
            _ => continue,
        };
        each_program(entry, is_rooted, BufferPlacement::OutOfPlace, |program, root, protocol| {
            seen += 1;
            if let Some(why) = fault(program, root) {
                let (n, rank, protocol) = (program.header.ranks, program.rank, protocol.name());
                faults.push(format!(
                    "{collective}.{name}, {n} ranks, root {root}, rank {rank}, {protocol}: {why}"
                ));
            }
        });
    }
    let (swaps, faults): (Vec<String>, Vec<String>) =
        faults.into_iter().partition(|fault| fault.starts_with("all_to_all"));
    assert!(swaps.len() > 50, "what does not do in place is seen: {swaps:?}");
    assert!(faults.is_empty(), "{} of {seen}:\n{}", faults.len(), faults.join("\n"));
}

/// Roots of a broadcast, and ranks of an all-to-all, are in place or not as each likes: what is chosen on GPUs has
/// programs in place that peers cannot tell from those of buffers apart.
#[test]
fn what_gpus_choose_is_run_in_place_beside_ranks_that_are_not() {
    let is_between = |collective: &str,
                      name: &str,
                      (n, per_host): (u32, u32),
                      root: u32,
                      protocol: DeviceProtocol| {
        let hosts = (0..n).map(|rank| rank / per_host).collect();
        let lower = Lower { hosts, ..Lower::default() };
        let entry = roundelay_algorithms::find(collective, name).expect("an algorithm");
        let [apart, inside] =
            [BufferPlacement::OutOfPlace, BufferPlacement::InPlace].map(|placement| {
                let mut sources = SourceMap::new();
                let id = sources.add(entry.path, entry.text);
                let programs = resolve(&mut sources, id, &AlgorithmLibrary).expect("it resolves");
                let program =
                    programs.iter().find(|p| p.name == entry.name).expect("it declares it");
                let options = CompileOptions { root, ..CompileOptions::default() };
                let plans = compile(program, &sources, &Shape::flat(n), &options, placement);
                prove(&plans.expect("plans"), protocol, &lower).expect("programs")
            });
        interchangeable(&apart, &inside)
    };
    let is_alike = |collective: &str, name: &str, n: u32, root: u32, protocol: DeviceProtocol| {
        is_between(collective, name, (n, n), root, protocol)
    };
    for n in 2..=8 {
        for protocol in [DeviceProtocol::Packet, DeviceProtocol::Staged] {
            assert!(is_alike("all_to_all", "direct", n, 0, protocol), "{n}, {protocol:?}");
            for root in 0..n {
                for name in ["binomial", "chain"] {
                    let alike = is_alike("broadcast", name, n, root, protocol);
                    assert!(alike, "{name}, {n}, root {root}, {protocol:?}");
                }
            }
        }
        // So between hosts, of a rank each or of two.
        for (per_host, root) in [(1, 0), (2, n - 1)] {
            let of = |collective, name| {
                is_between(collective, name, (n, per_host), root, DeviceProtocol::Staged)
            };
            assert!(of("all_to_all", "direct"), "{n}, {per_host} a host");
            assert!(
                of("broadcast", "chain") && of("broadcast", "binomial"),
                "{n}, {per_host} a host"
            );
        }
        // Peers would address a buffer that such a rank has not.
        assert!(!is_alike("broadcast", "chain", n, 0, DeviceProtocol::Put));
        assert!(!is_alike("all_to_all", "direct", n, 0, DeviceProtocol::Put));
    }
}
