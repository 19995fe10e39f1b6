//! Compiles the kernels of the library, where there is the CUDA compiler, and reads what it says of them: registers,
//! spills, instructions. A sample of them, or all if `ROUNDELAY_CI` is `full`.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use roundelay_algorithms::{AlgorithmLibrary, CATALOGUE, CatalogueEntry};
use roundelay_compiler::device::{DeviceOptions as Lower, DeviceProtocol, prove};
use roundelay_compiler::{BufferPlacement, CompileOptions, Shape, compile, resolve};
use roundelay_dsl::span::SourceMap;
use roundelay_emit::cuda::accumulate::{accumulate, accumulates};
use roundelay_emit::cuda::batch::batch;
use roundelay_emit::cuda::counted::counted;
use roundelay_emit::cuda::window::window;
use roundelay_emit::cuda::{Element, KernelSpec, Operator, cuda, cuda_function};
use roundelay_tests::is_full;

use super::nvrtc::{CompileMode as How, NvrtcLibrary};

const SUM: KernelSpec =
    KernelSpec { element: Element::F32, operator: Operator::Sum, aligned: true };
/// The most registers of a thread, so that a block of 512 threads fits.
const REGISTERS: u32 = 128;
/// The distance of the kernels in the sample; and, where all of the library are compiled, of those of all types, and of
/// functions, whose bodies those kernels have too. Types come by pairs, functions by placements and protocols: a
/// distance that had 2 or 3 as a factor would pass over the same ones every time.
const STRIDE: usize = 47;
const TYPES: usize = 7;
const FUNCTIONS: usize = 5;

/// The most milliseconds of a processor that a kernel should take; those that take longer are named, and fail
/// no test.
const LONG: u128 = 300;
/// The number of texts that a failure names.
const SHOWN: usize = 8;

/// Returns the processor time that this thread has used.
fn processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A kernel's name and text.
type Text = (String, String);

/// Returns the compiler; or says why there is none.
fn compiler() -> Option<Arc<NvrtcLibrary>> {
    let found = NvrtcLibrary::load(None);
    if let Err(why) = &found {
        roundelay_tests::skip(roundelay_tests::CheckNeeds::Nvrtc, why);
    }
    found.ok()
}

/// Adds the kernels of rank 1 of an algorithm on n ranks, on that number of hosts.
fn kernels(
    entry: &CatalogueEntry,
    (n, hosts): (u32, u32),
    specs: &[KernelSpec],
    into: &mut Vec<Text>,
) {
    let mut sources = SourceMap::new();
    let id = sources.add(entry.path, entry.text);
    let programs =
        resolve(&mut sources, id, &AlgorithmLibrary).expect("the algorithm library resolves");
    let program = programs.iter().find(|p| p.name == entry.name).expect("it declares it");
    let grid = program.axes.names.len() > 1;
    let shape = if grid { Shape { axes: vec![2, n / 2] } } else { Shape::flat(n) };
    for placement in [BufferPlacement::InPlace, BufferPlacement::OutOfPlace] {
        let proved = compile(program, &sources, &shape, &CompileOptions::default(), placement);
        let Ok(proved) = proved else { continue };
        for protocol in DeviceProtocol::ALL {
            let hosts = (0..n).map(|rank| rank * hosts / n).collect();
            let lower = Lower { hosts, ..Lower::default() };
            let Ok(lowered) = prove(&proved, protocol, &lower) else { continue };
            for spec in specs {
                let rank = lowered.of(1).expect("two ranks at least");
                let Ok(source) = cuda(&rank, spec) else { continue };
                let name = format!(
                    "{}.{} n {n} {placement:?} {protocol:?} {} {} aligned {}",
                    entry.collective,
                    entry.name,
                    spec.element.name(),
                    spec.operator.name(),
                    spec.aligned
                );
                into.push((name, source.text()));
            }
        }
    }
}

#[test]
fn the_kernel_of_counts_compiles() {
    let Some(nvrtc) = compiler() else { return };
    assert_eq!(fault(&nvrtc, &counted(2)), None);
    assert_eq!(fault(&nvrtc, &counted(8)), None);
}

#[test]
fn the_kernel_of_messages_compiles() {
    let Some(nvrtc) = compiler() else { return };
    assert_eq!(fault(&nvrtc, &batch(2)), None);
}

#[test]
fn the_kernel_of_windows_compiles() {
    let Some(nvrtc) = compiler() else { return };
    assert_eq!(fault(&nvrtc, &window()), None);
    let options = NvrtcLibrary::options((9, 0), How::Exact);
    let ptx = nvrtc.assembly(&window(), &options).expect("it compiles");
    for instruction in
        ["fence.acq_rel.sys", "ld.acquire.sys.global.u64", "atom.acq_rel.sys.global.add.u64"]
    {
        assert!(ptx.contains(instruction), "{instruction}");
    }
}

#[test]
fn the_kernels_of_accumulates_compile() {
    let Some(nvrtc) = compiler() else { return };
    let kinds = Element::ALL.iter().flat_map(|&e| Operator::ALL.iter().map(move |&o| (e, o)));
    let kinds: Vec<_> = kinds.filter(|&(e, o)| accumulates(e, o)).collect();
    assert_eq!(kinds.len(), 4 * 4 + 6 * 7 + 5);
    // A type of each size, and all operators, in the gate.
    let kept = |(e, o): &(Element, Operator)| {
        is_full() || matches!((e, o), (Element::U8 | Element::I64, _) | (_, Operator::Sum))
    };
    for (element, operator) in kinds.into_iter().filter(kept) {
        assert_eq!(fault(&nvrtc, &accumulate(element, operator)), None, "{element:?} {operator:?}");
    }
    let options = NvrtcLibrary::options((9, 0), How::Exact);
    for (element, instruction) in [
        (Element::Bf16, "atom.relaxed.sys.global.cas.b32"),
        (Element::F64, "atom.relaxed.sys.global.cas.b64"),
    ] {
        let text = accumulate(element, Operator::Sum);
        let ptx = nvrtc.assembly(&text, &options).expect("it compiles");
        assert!(ptx.contains(instruction), "{instruction}");
    }
}

/// Returns the first number before a word of the log.
fn before(log: &str, word: &str) -> u32 {
    let at = log.find(word).unwrap_or_else(|| panic!("`{word}` is not in {log}"));
    let number = log[..at].trim_end().rsplit([' ', '\n']).next().and_then(|n| n.parse().ok());
    number.unwrap_or_else(|| panic!("no number before `{word}` in {log}"))
}

/// Returns the compiler's log of a kernel, if there is a fault in it.
fn fault(nvrtc: &NvrtcLibrary, text: &str) -> Option<String> {
    let mut options = NvrtcLibrary::options((9, 0), How::Exact);
    // The compiler says nothing of what the driver's cache has.
    options.extend(["--ptxas-options=-v", "--no-cache"].map(String::from));
    let log = match nvrtc.compile_and_say(text, &options) {
        Ok((_, log)) => log,
        Err(error) => return Some(error.to_string()),
    };
    let wrong =
        |word: &str| log.matches(word).count() != log.matches(&format!(" 0 {word}")).count();
    let spills = ["bytes stack frame", "bytes spill stores", "bytes spill loads"];
    let many = before(&log, "registers") > REGISTERS;
    (many || spills.iter().any(|word| wrong(word)) || log.contains("warning")).then_some(log)
}

/// Returns a text without its comments, which are all that many kernels differ in.
fn code(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Compiles them, or each `stride`-th where all of the library are asked for: each code once, two at a time.
fn check(nvrtc: &NvrtcLibrary, texts: &[Text], stride: usize) {
    let mut known = BTreeSet::new();
    let mut chosen: Vec<&Text> = texts.iter().collect();
    chosen.retain(|(_, text)| known.insert(code(text)));
    let distinct = chosen.len();
    let chosen: Vec<&Text> =
        chosen.into_iter().step_by(if is_full() { stride } else { STRIDE }).collect();
    let (next, faults, started) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Instant::now());
    let times = Mutex::new(Vec::new());
    let work = || {
        while let Some((name, text)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let began = processor();
            if let Some(why) = fault(nvrtc, text) {
                faults.lock().expect("no panic").push(format!("{name}: {why}"));
            }
            let took = processor().saturating_sub(began);
            times.lock().expect("no panic").push((took.as_millis(), name));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let took = started.elapsed().as_secs_f64();
    let _ = writeln!(
        std::io::stderr(),
        "{} of {distinct} codes of {} kernels in {took:.1} s, {:.0} ms each, two at a time",
        chosen.len(),
        texts.len(),
        took / chosen.len().max(1) as f64 * 1e3
    );
    let mut times = times.into_inner().expect("no panic");
    times.sort_unstable_by(|a, b| b.cmp(a));
    let long = times.iter().take_while(|(ms, _)| *ms > LONG).count();
    let _ = writeln!(std::io::stderr(), "{long} took more than {LONG} ms of a processor");
    for (ms, name) in times.iter().take(SHOWN) {
        let _ = writeln!(std::io::stderr(), "{ms:6} ms  {name}");
    }
    let faults = faults.into_inner().expect("no panic");
    assert!(faults.is_empty(), "{} kernels: {}", faults.len(), faults.join("\n\n"));
}

#[test]
fn kernels_of_the_library_compile() {
    let Some(nvrtc) = compiler() else { return };
    let mut texts = Vec::new();
    for entry in CATALOGUE {
        for n in [2, 4, 8] {
            kernels(entry, (n, 1), &[SUM], &mut texts);
        }
    }
    assert!(texts.len() > 500, "only {}", texts.len());
    check(&nvrtc, &texts, 1);
}

#[test]
fn kernels_between_hosts_compile() {
    let Some(nvrtc) = compiler() else { return };
    let mut texts = Vec::new();
    for entry in CATALOGUE {
        for (n, hosts) in [(2, 2), (4, 2), (8, 2)] {
            kernels(entry, (n, hosts), &[SUM], &mut texts);
        }
    }
    texts.retain(|(_, text)| text.contains("constexpr bool FAR = true;"));
    assert!(texts.len() > 100, "only {}", texts.len());
    check(&nvrtc, &texts, 1);
}

#[test]
fn kernels_of_all_types_compile() {
    let Some(nvrtc) = compiler() else { return };
    let mut specs = Vec::new();
    for &element in Element::ALL {
        for &operator in Operator::ALL.iter().filter(|&&op| element.has(op)) {
            specs.extend([true, false].map(|aligned| KernelSpec { element, operator, aligned }));
        }
    }
    let mut texts = Vec::new();
    for entry in CATALOGUE.iter().filter(|e| e.collective == "all_reduce") {
        if ["two_shot", "compressed"].contains(&entry.name) {
            kernels(entry, (4, 1), &specs, &mut texts);
        }
    }
    check(&nvrtc, &texts, TYPES);
}

/// The switch reads and writes for all ranks, and nothing goes to one of them but words.
#[test]
fn kernels_for_the_switch_have_its_instructions() {
    let Some(nvrtc) = compiler() else { return };
    for (name, spec, reads, writes) in [
        ("all_reduce.two_shot", SUM, Some("add.v4.f32"), true),
        (
            "all_reduce.two_shot",
            KernelSpec { element: Element::Bf16, ..SUM },
            Some("add.acc::f32.v4.bf16x2"),
            true,
        ),
        (
            "reduce_scatter.direct",
            KernelSpec { element: Element::I64, operator: Operator::Max, aligned: true },
            Some("max.s64"),
            false,
        ),
        ("all_gather.direct", SUM, None, true),
    ] {
        let (collective, algorithm) = name.split_once('.').expect("a name");
        let entry = CATALOGUE.iter().find(|e| (e.collective, e.name) == (collective, algorithm));
        let mut texts = Vec::new();
        kernels(entry.expect("the library has it"), (4, 1), &[spec], &mut texts);
        texts.retain(|(name, _)| name.contains("Multicast"));
        assert!(!texts.is_empty(), "{name}");
        for (name, text) in &texts {
            assert_eq!(fault(&nvrtc, text), None, "{name}");
            let ptx = nvrtc
                .assembly(text, &NvrtcLibrary::options((9, 0), How::Exact))
                .expect("it compiles");
            let reading = "multimem.ld_reduce.relaxed.sys.global.";
            let found: Vec<&str> = ptx.lines().filter(|line| line.contains(reading)).collect();
            match reads {
                Some(what) => {
                    assert!(!found.is_empty(), "{name}");
                    assert!(found.iter().all(|line| line.contains(&format!("{reading}{what}"))));
                }
                None => assert_eq!(found.len(), 0, "{name}"),
            }
            assert_eq!(ptx.contains("multimem.st.relaxed.sys.global.v4.f32"), writes, "{name}");
            assert!(ptx.contains("fence.proxy.alias"), "{name}");
        }
    }
}

/// The instructions that the protocols rely on are in the compiled code.
#[test]
fn kernels_have_the_instructions_they_need() {
    let Some(nvrtc) = compiler() else { return };
    let mut texts = Vec::new();
    for entry in CATALOGUE.iter().filter(|e| e.collective == "all_reduce" && e.name == "two_shot") {
        kernels(entry, (4, 1), &[SUM], &mut texts);
    }
    for (name, text) in texts.iter().filter(|(name, _)| name.contains("InPlace")) {
        let ptx =
            nvrtc.assembly(text, &NvrtcLibrary::options((9, 0), How::Exact)).expect("it compiles");
        let words = ["ld.acquire.sys.global.u64", "fence.acq_rel.sys", "st.relaxed.sys.global.u64"];
        let plain = ["ld.global.L1::no_allocate.v4.u32", "st.global.v4.u32"];
        let needed = match () {
            () if name.contains("Packet") => {
                vec!["ld.relaxed.sys.global.v4.u32", "st.relaxed.sys.global.v4.u32"]
            }
            () if name.contains("Multicast") => {
                assert!(plain.iter().all(|moves| !ptx.contains(moves)), "{name}: to one rank");
                words.to_vec()
            }
            () => [&words[..], &plain].concat(),
        };
        for instruction in needed {
            assert!(ptx.contains(instruction), "{name}: no {instruction}");
        }
        assert!(!ptx.contains("fma.rn"), "{name}: contracted");
        assert!(!name.contains("Packet") || !ptx.contains("fence.acq_rel.sys;\n\tst.relaxed"));
    }
}

/// Both parts of kernels beside copy engines: they wait and tell, and move nothing.
#[test]
fn kernels_beside_engines_move_nothing() {
    let Some(nvrtc) = compiler() else { return };
    let mut texts = Vec::new();
    for entry in CATALOGUE.iter().filter(|e| e.collective != "barrier") {
        kernels(entry, (4, 1), &[SUM], &mut texts);
    }
    texts.retain(|(name, _)| name.contains(" Engine "));
    assert!(texts.len() >= 8, "only {}", texts.len());
    for (name, text) in &texts {
        assert_eq!(fault(&nvrtc, text), None, "{name}");
        let ptx =
            nvrtc.assembly(text, &NvrtcLibrary::options((9, 0), How::Exact)).expect("it compiles");
        for instruction in ["ld.global.L1::no_allocate", "st.global.v4.u32"] {
            assert!(!ptx.contains(instruction), "{name}: {instruction}");
        }
        let leaf = !ptx.contains("ld.acquire.sys.global.u64");
        assert!(!leaf || !name.contains("direct"), "{name} waits for no rank");
        assert!(ptx.contains("fence.acq_rel.sys"), "{name} signals no rank");
    }
}

/// Adds kernels that call the function of an algorithm on n ranks, that of rank 1, or of all: once, and accesses to its
/// memory of their own before and after it; or the same twice.
fn callers(
    entry: &CatalogueEntry,
    (n, all): (u32, bool),
    spec: &KernelSpec,
    calls: usize,
    into: &mut Vec<Text>,
) {
    let mut sources = SourceMap::new();
    let id = sources.add(entry.path, entry.text);
    let programs =
        resolve(&mut sources, id, &AlgorithmLibrary).expect("the algorithm library resolves");
    let program = programs.iter().find(|p| p.name == entry.name).expect("it declares it");
    let shape = Shape::flat(n);
    for placement in [BufferPlacement::InPlace, BufferPlacement::OutOfPlace] {
        let proved = compile(program, &sources, &shape, &CompileOptions::default(), placement);
        let Ok(proved) = proved else { continue };
        for protocol in DeviceProtocol::ALL {
            let Ok(lowered) = prove(&proved, protocol, &Lower::default()) else { continue };
            let ranks = if all { 0..n } else { 1..2 };
            let ranks: Vec<_> = ranks.filter_map(|rank| lowered.of(rank)).collect();
            let Ok(source) = cuda_function(&ranks, spec, "theirs") else { continue };
            // Some are out of place whatever is asked for.
            let placement = lowered.list()[0].header.placement;
            let given = match (entry.collective, placement) {
                ("barrier", _) => "",
                (_, BufferPlacement::InPlace) => ", to, count",
                (_, BufferPlacement::OutOfPlace) => ", from, to, count",
            };
            let caller = CALLER.replace("CALLS", &CALL.repeat(calls)).replace("GIVEN", given);
            let name = format!(
                "{}.{} n {n} {placement:?} {protocol:?} {} {}",
                entry.collective,
                entry.name,
                spec.element.name(),
                spec.operator.name(),
            );
            into.push((name, source.text() + &caller));
        }
    }
}

/// A kernel with names and macros of its own.
const CALLER: &str = r#"
#define INLINE 1
struct Params { float x[INLINE]; };
extern "C" __global__ void __launch_bounds__(theirs::THREADS, 1)
kernel(const __grid_constant__ theirs::Handle handle, float *from, float *to, unsigned long long count) {
    const unsigned long long first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (unsigned long long i = first; i < count; i += step) from[i] = to[i] * 2;
CALLS
}
"#;
/// A call, and accesses after it.
const CALL: &str = r#"
    theirs::sync(handle);
    theirs::call(handleGIVEN);
    {
        Params sum{};
        for (unsigned long long i = first; i < count; i += step) sum.x[0] += to[count - 1 - i];
        to[first] = sum.x[0];
    }
"#;

#[test]
fn functions_compile_in_kernels_of_others() {
    let Some(nvrtc) = compiler() else { return };
    let of = |element, operator| KernelSpec { element, operator, aligned: true };
    let mut texts = Vec::new();
    for entry in CATALOGUE.iter().filter(|e| {
        ["one_shot", "two_shot", "ring", "direct", "chain", "dissemination"].contains(&e.name)
    }) {
        for spec in [SUM, of(Element::Bf16, Operator::Max), KernelSpec { aligned: false, ..SUM }] {
            callers(entry, (4, false), &spec, 1, &mut texts);
        }
        for spec in [of(Element::F64, Operator::Avg), of(Element::U8, Operator::PremulSum)] {
            callers(entry, (2, true), &spec, 1, &mut texts);
        }
    }
    assert!(texts.len() > 100, "only {}", texts.len());
    check(&nvrtc, &texts, FUNCTIONS);
}

/// Two calls of one function are two copies of its text, and both come behind what the kernel wrote before.
#[test]
fn functions_have_the_instructions_they_need() {
    let Some(nvrtc) = compiler() else { return };
    let mut texts = Vec::new();
    for entry in CATALOGUE.iter().filter(|e| e.collective == "all_reduce" && e.name == "two_shot") {
        callers(entry, (4, false), &SUM, 2, &mut texts);
    }
    for (name, text) in &texts {
        assert_eq!(fault(&nvrtc, text), None, "{name}");
        let ptx =
            nvrtc.assembly(text, &NvrtcLibrary::options((9, 0), How::Usual)).expect("it compiles");
        for instruction in [
            "atom.acq_rel.gpu.global.add.u32",
            "st.release.gpu.global.u32",
            "ld.acquire.gpu.global.u32",
            "bar.sync",
        ] {
            assert!(ptx.contains(instruction), "{name}: no {instruction}");
        }
        let packets = name.contains("Packet");
        let kind =
            if packets { "st.relaxed.sys.global.v4.u32" } else { "ld.acquire.sys.global.u64" };
        assert!(ptx.contains(kind), "{name}: no {kind}");
    }
    assert!(texts.len() >= 4, "{}", texts.len());
}

#[test]
fn a_kernel_that_spills_is_found() {
    let Some(nvrtc) = compiler() else { return };
    let text = "extern \"C\" __global__ void roundelay_kernel(int *p, int n) {
        int a[64] = {};
        for (int i = 0; i < n; ++i) a[p[i] & 63] += i;
        p[0] = a[n & 63]; }";
    assert!(fault(&nvrtc, text).is_some_and(|log| log.contains("stack frame")));
}
