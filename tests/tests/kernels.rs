//! Compares kernels as text, for algorithms whose kernels a person has read; and checks what holds of the
//! kernels of all. `UPDATE_EXPECT=1 cargo test -p roundelay-tests --test cross_tests kernels::` writes new texts. That
//! they compile is tested in the runtime, where the CUDA compiler is.

use expect_test::{ExpectFile, expect_file};
use roundelay_algorithms::{CATALOGUE, CatalogueEntry, find};
use roundelay_compiler::device::{DeviceOptions as Lower, DeviceProtocol, ProvedProgram, prove};
use roundelay_compiler::{BufferPlacement, CompileOptions, Shape, compile};
use roundelay_emit::cuda::{Element, KernelSpec, Operator, UnsupportedKernel, cuda, cuda_function};
use roundelay_tests::{is_grid, of_library};

const SUM: KernelSpec =
    KernelSpec { element: Element::F32, operator: Operator::Sum, aligned: true };

/// Returns what a device runs of an algorithm, by rank; nothing if there are no such plans, or it cannot.
fn programs(
    entry: &CatalogueEntry,
    n: u32,
    placement: BufferPlacement,
    protocol: DeviceProtocol,
) -> Vec<ProvedProgram> {
    let (sources, program) = of_library(entry).expect("the library resolves");
    let shape = if is_grid(&program) { Shape { axes: vec![2, n / 2] } } else { Shape::flat(n) };
    let proved = compile(&program, &sources, &shape, &CompileOptions::default(), placement);
    let programs = proved.ok().and_then(|proved| prove(&proved, protocol, &Lower::default()).ok());
    let programs = programs.iter().flat_map(|all| (0..n).filter_map(|rank| all.of(rank)));
    programs.collect()
}

fn golden(
    name: (&str, &str),
    n: u32,
    rank: usize,
    protocol: DeviceProtocol,
    spec: KernelSpec,
    text: ExpectFile,
) {
    let entry = find(name.0, name.1).expect("the library has it");
    let programs = programs(entry, n, BufferPlacement::InPlace, protocol);
    text.assert_eq(&cuda(&programs[rank], &spec).expect("there is a kernel").to_string());
}

#[test]
fn ring() {
    let text = expect_file!["../golden/kernel_ring_4_put.txt"];
    golden(("all_reduce", "ring"), 4, 1, DeviceProtocol::Put, SUM, text);
}

#[test]
fn two_shot() {
    let text = expect_file!["../golden/kernel_two_shot_4_packet.txt"];
    golden(("all_reduce", "two_shot"), 4, 1, DeviceProtocol::Packet, SUM, text);
}

#[test]
fn one_shot() {
    let spec = KernelSpec { element: Element::Bf16, operator: Operator::Avg, aligned: false };
    let text = expect_file!["../golden/kernel_one_shot_4_packet_unaligned.txt"];
    golden(("all_reduce", "one_shot"), 4, 1, DeviceProtocol::Packet, spec, text);
}

#[test]
fn two_shot_pulled() {
    let text = expect_file!["../golden/kernel_two_shot_4_get.txt"];
    golden(("all_reduce", "two_shot"), 4, 1, DeviceProtocol::Get, SUM, text);
}

#[test]
fn all_to_all() {
    let text = expect_file!["../golden/kernel_all_to_all_4_staged.txt"];
    // The own block is copied beside what goes to peers.
    let entry = find("all_to_all", "direct").expect("the library has it");
    let programs = programs(entry, 4, BufferPlacement::OutOfPlace, DeviceProtocol::Staged);
    text.assert_eq(&cuda(&programs[1], &SUM).expect("there is a kernel").to_string());
}

/// A ring of two ranks on each of two hosts: rank 1 receives from its neighbour, and sends through its host's proxy.
#[test]
fn ring_between_hosts() {
    let text = expect_file!["../golden/kernel_ring_4_put_far.txt"];
    let programs = between_hosts(find("all_reduce", "ring").expect("the library has it"), 4);
    text.assert_eq(&cuda(&programs[1], &SUM).expect("there is a kernel").to_string());
}

/// Returns what devices on two hosts run of an algorithm, with messages that land where they can.
fn between_hosts(entry: &CatalogueEntry, n: u32) -> Vec<ProvedProgram> {
    let (sources, program) = of_library(entry).expect("the library resolves");
    let shape = if is_grid(&program) { Shape { axes: vec![2, n / 2] } } else { Shape::flat(n) };
    let proved =
        compile(&program, &sources, &shape, &CompileOptions::default(), BufferPlacement::InPlace);
    let hosts = (0..n).map(|rank| rank / (n / 2)).collect();
    let lower = Lower { hosts, ..Lower::default() };
    let programs = proved.ok().and_then(|proved| prove(&proved, DeviceProtocol::Put, &lower).ok());
    programs.iter().flat_map(|all| (0..n).filter_map(|rank| all.of(rank))).collect()
}

/// A kernel with inter-host links signals its entry to its proxy before it sends, and addresses nothing of ranks on
/// other hosts.
#[test]
fn kernels_between_hosts_address_their_own_host_alone() {
    let mut seen = 0;
    for entry in CATALOGUE {
        for program in between_hosts(entry, 4) {
            let Ok(source) = cuda(&program, &SUM) else { continue };
            let text = source.to_string();
            let far = program.is_far();
            assert_eq!(text.contains("arrive(me);"), far, "{}", entry.name);
            assert_eq!(text.contains("constexpr bool FAR = true;"), far, "{}", entry.name);
            let signal = text.find("said(");
            assert!(signal.is_none_or(|signal| text.find("arrive(me);") < Some(signal)));
            seen += u32::from(far);
        }
    }
    assert!(seen > 50, "{seen}");
}

/// Two parts, between which engines copy.
#[test]
fn all_gather_by_engines() {
    let text = expect_file!["../golden/kernel_all_gather_4_engine.txt"];
    golden(("all_gather", "direct"), 4, 1, DeviceProtocol::Engine, SUM, text);
}

#[test]
fn chain() {
    let text = expect_file!["../golden/kernel_chain_4_staged.txt"];
    golden(("broadcast", "chain"), 4, 1, DeviceProtocol::Staged, SUM, text);
}

/// A function for kernels of users: the same text as the kernel's, in a namespace.
#[test]
fn two_shot_as_a_function() {
    let entry = find("all_reduce", "two_shot").expect("the library has it");
    let programs = programs(entry, 4, BufferPlacement::InPlace, DeviceProtocol::Packet);
    let source = cuda_function(&programs[1..2], &SUM, "ours").expect("there is a function");
    expect_file!["../golden/function_two_shot_4_packet.txt"].assert_eq(&source.to_string());
    let kernel = cuda(&programs[1], &SUM).expect("there is a kernel").to_string();
    let (run, _) = kernel.split_once("extern \"C\"").expect("a kernel follows it");
    let (_, run) = run.split_once("#include \"prelude.cuh\"\n").expect("the prelude");
    assert!(source.to_string().contains(run.trim_end()), "there is no second way");
}

#[test]
fn functions_of_all_ranks_are_distinct() {
    let entry = find("all_gather", "direct").expect("the library has it");
    let programs = programs(entry, 4, BufferPlacement::OutOfPlace, DeviceProtocol::Put);
    let all = cuda_function(&programs, &SUM, "ours").expect("there is a function");
    let text = all.text();
    whole(&(text.clone() + "// roundelay_kernel"));
    for (rank, identity) in all.identities().iter().enumerate() {
        let one = cuda_function(&programs[rank..=rank], &SUM, "alone").expect("one of them");
        assert_eq!(one.identities(), [*identity], "whatever the name, and beside whichever others");
        assert!(text.contains(&format!("IDENTITY = {identity:#x};")));
        assert_eq!(all.identities().iter().filter(|other| *other == identity).count(), 1);
    }
    let doubles = cuda_function(&programs, &KernelSpec { element: Element::F64, ..SUM }, "ours");
    assert_ne!(doubles.expect("there is one").identities(), all.identities());
    assert_eq!(cuda_function(&programs, &SUM, "a b"), Err(UnsupportedKernel::Name("a b".into())));
    assert_eq!(cuda_function(&[], &SUM, "ours"), Err(UnsupportedKernel::Ranks(0)));
}

#[test]
fn every_kernel_of_the_library_is_whole() {
    for entry in CATALOGUE {
        for placement in [BufferPlacement::InPlace, BufferPlacement::OutOfPlace] {
            for (protocol, n) in
                DeviceProtocol::ALL.into_iter().flat_map(|protocol| [(protocol, 2), (protocol, 4)])
            {
                for program in programs(entry, n, placement, protocol) {
                    for spec in [SUM, KernelSpec { aligned: false, ..SUM }] {
                        let source = match cuda(&program, &spec) {
                            Err(UnsupportedKernel::Unaligned)
                                if protocol == DeviceProtocol::Multicast =>
                            {
                                continue;
                            }
                            source => source.expect("there is a kernel"),
                        };
                        whole(&source.text());
                        let shown = source.to_string();
                        let tasks = program.phases.iter().flat_map(|phase| &phase.tasks);
                        for site in tasks.map(|task| &program.sites[task.site as usize]) {
                            let line = format!("// {}:{}:", site.file, site.line);
                            assert!(shown.contains(&line), "{line} in {shown}");
                        }
                    }
                }
            }
        }
    }
}

/// Checks that every bracket is closed, nothing is included, and no mark of a number is left.
fn whole(text: &str) {
    let mut open = Vec::new();
    for c in text.lines().filter_map(|line| line.split("//").next()).flat_map(str::chars) {
        match c {
            '(' | '[' | '{' => open.push(c),
            ')' => assert_eq!(open.pop(), Some('(')),
            ']' => assert_eq!(open.pop(), Some('[')),
            '}' => assert_eq!(open.pop(), Some('{')),
            _ => assert!(!c.is_control(), "{c:?}"),
        }
    }
    assert!(open.is_empty() && !text.contains("#include") && text.contains("roundelay_kernel"));
}

#[test]
fn what_has_no_meaning_is_refused() {
    let ring = find("all_reduce", "ring").expect("the library has it");
    let program = &programs(ring, 2, BufferPlacement::InPlace, DeviceProtocol::Put)[0];
    let xor = KernelSpec { operator: Operator::Xor, ..SUM };
    assert_eq!(cuda(program, &xor), Err(UnsupportedKernel::Operator(Element::F32, Operator::Xor)));
    let compressed = find("all_reduce", "compressed").expect("the library has it");
    let program = &programs(compressed, 2, BufferPlacement::InPlace, DeviceProtocol::Put)[0];
    let error = cuda(program, &KernelSpec { element: Element::I32, ..SUM }).expect_err("no float");
    assert!(error.to_string().contains("i32 cannot travel as bf16"), "{error}");
}
