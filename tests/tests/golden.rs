//! Compares what the stages print, for algorithms whose output a person has read.
//! `UPDATE_EXPECT=1 cargo test -p roundelay-tests --test cross_tests golden::` writes new texts.

use std::sync::Arc;

use expect_test::{ExpectFile, expect_file};
use roundelay_algorithms::find;
use roundelay_compiler::device::{DeviceProtocol, prove};
use roundelay_compiler::{BufferPlacement, CompileOptions, Shape, compile, graph, project};
use roundelay_tests::{instance, of_library};

/// Compares the graph, and one rank's plan.
fn golden(collective: &str, name: &str, n: u32, rank: u32, text: ExpectFile) {
    let entry = find(collective, name).expect("the library has it");
    let (sources, program) = of_library(entry).expect("the library resolves");
    let shape = Shape::flat(n);
    let instance: Option<Arc<_>> = instance(&program, &shape, 0).expect("the shape fits");
    let instance = instance.expect("the shape is allowed");
    let steps = graph::unroll(&instance).expect("it unrolls");
    let mut all = graph::text(&steps, &sources);
    let proved =
        compile(&program, &sources, &shape, &CompileOptions::default(), BufferPlacement::InPlace)
            .expect("it is proved");
    all += &proved.plans()[rank as usize].to_string();
    let apart =
        project(&instance, &sources, BufferPlacement::OutOfPlace, rank).expect("it is lowered");
    all += &apart.to_string();
    text.assert_eq(&all);
}

/// The protocols by which kernels run sums.
const KERNELS: [DeviceProtocol; 4] =
    [DeviceProtocol::Packet, DeviceProtocol::Staged, DeviceProtocol::Put, DeviceProtocol::Get];

/// Prints what the blocks of one rank run, and compares it.
fn device(
    collective: &str,
    name: &str,
    n: u32,
    rank: usize,
    protocols: &[DeviceProtocol],
    text: ExpectFile,
) {
    let entry = find(collective, name).expect("the library has it");
    let (sources, program) = of_library(entry).expect("the library resolves");
    let proved = compile(
        &program,
        &sources,
        &Shape::flat(n),
        &CompileOptions::default(),
        BufferPlacement::InPlace,
    )
    .expect("it is proved");
    let mut all = String::new();
    for &protocol in protocols {
        let programs = prove(&proved, protocol, &Default::default()).expect("a device can run it");
        all += &programs.list()[rank].to_string();
    }
    text.assert_eq(&all);
}

/// A ring that is split over two paths: lanes, parts and connections.
#[test]
fn a_ring_over_two_paths() {
    let entry = find("all_reduce", "multipath").expect("the library has it");
    let (sources, program) = of_library(entry).expect("the library resolves");
    let options = CompileOptions { paths: 2, ..CompileOptions::default() };
    let proved =
        compile(&program, &sources, &Shape::flat(2), &options, BufferPlacement::OutOfPlace);
    let proved = proved.expect("it is proved");
    expect_file!["../golden/multipath_2.txt"].assert_eq(&proved.plans()[0].to_string());
}

#[test]
fn ring_on_devices() {
    let text = expect_file!["../golden/device_ring_3.txt"];
    device("all_reduce", "ring", 3, 0, &KERNELS, text);
}

#[test]
fn two_shot_on_devices() {
    let text = expect_file!["../golden/device_two_shot_3.txt"];
    device("all_reduce", "two_shot", 3, 0, &KERNELS, text);
}

#[test]
fn chain_on_devices() {
    let text = expect_file!["../golden/device_chain_3.txt"];
    device(
        "broadcast",
        "chain",
        3,
        1,
        &[DeviceProtocol::Staged, DeviceProtocol::Put, DeviceProtocol::Engine],
        text,
    );
}

/// Copies apart from waits and signals; peers are signalled before a rank copies for itself.
#[test]
fn all_gather_by_engines() {
    let text = expect_file!["../golden/device_all_gather_3.txt"];
    device("all_gather", "direct", 3, 1, &[DeviceProtocol::Engine], text);
}

#[test]
fn ring() {
    golden("all_reduce", "ring", 3, 0, expect_file!["../golden/ring_3.txt"]);
}

#[test]
fn halving_doubling() {
    golden(
        "all_reduce",
        "halving_doubling",
        4,
        1,
        expect_file!["../golden/halving_doubling_4.txt"],
    );
}

#[test]
fn two_shot() {
    golden("all_reduce", "two_shot", 3, 0, expect_file!["../golden/two_shot_3.txt"]);
}

/// Rank 0 writes nothing; what is passed on is in the order of ranks.
#[test]
fn linear_exscan() {
    golden("exscan", "linear", 4, 1, expect_file!["../golden/exscan_linear_4.txt"]);
}

/// A rank copies its own block while the others' are on their way.
#[test]
fn direct() {
    golden("all_gather", "direct", 3, 1, expect_file!["../golden/all_gather_direct_3.txt"]);
}

#[test]
fn double_binary_tree() {
    golden(
        "all_reduce",
        "double_binary_tree",
        4,
        1,
        expect_file!["../golden/double_binary_tree_4.txt"],
    );
}

#[test]
fn bruck() {
    golden("all_to_all", "bruck", 3, 2, expect_file!["../golden/all_to_all_bruck_3.txt"]);
}
