//! Runs kernels where there is no GPU: their own texts, with instructions of this processor in place of a GPU's
//! (`machine.h` for `machine.cuh`), a process for each block and a thread for each thread. The memory is not weak,
//! which `tests/device` looks at; what is tried here is the text: functions in kernels of others, exchanges whose
//! counts lie in memory, with calls that must be refused, messages between single ranks, and signals of windows.

use std::path::{Path, PathBuf};
use std::process::Command;

use roundelay_algorithms::find;
use roundelay_compiler::device::{DeviceOptions as Lower, DeviceProtocol, prove};
use roundelay_compiler::{BufferPlacement, CompileOptions, Shape, compile};
use roundelay_emit::cuda::batch::{ARRIVED, OTHER, SLOT, batch};
use roundelay_emit::cuda::counted::{BOUNDS, LENGTH, counted};
use roundelay_emit::cuda::function::{COUNT, GRID, MISUSED, PLACE};
use roundelay_emit::cuda::window::{SERVED, SIGNALLED, window};
use roundelay_emit::cuda::{Element, KernelSpec, Operator, cuda_function};
use roundelay_tests::{CheckNeeds, compile_program, of_library, skip};

const MACHINE: &str = include_str!("../../../compiler/emit/src/cuda/machine.cuh");
const DEVICE: &str = include_str!("device.h");

/// Returns a text for this processor. `renamed` says how macros of the prelude are called in it.
fn ported(text: &str, renamed: impl Fn(&str) -> String) -> String {
    let weak = MACHINE.find("// Nothing is read twice").expect("what instructions stand behind");
    let (machine, ours) = (renamed(&MACHINE[weak..]), renamed(include_str!("machine.h")));
    assert!(text.contains(&machine), "the text has the instructions of a GPU");
    text.replace(&machine, &ours)
        .replace("static __shared__", "__shared__")
        .replace("++polls % 4096", "++polls % 64")
        .replace(
            "asm volatile(\"red.release.gpu.global.add.u32 [%0], 1;\" ::\"l\"(word) : \"memory\");",
            "++*word;",
        )
}

/// Compiles a text with what runs it; `None` where there is no C++ compiler.
fn built(name: &str, text: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host");
    std::fs::create_dir_all(&folder).expect("a folder");
    let source = folder.join(format!("{name}.{}.cpp", std::process::id()));
    let program = folder.join(name);
    std::fs::write(&source, format!("{DEVICE}{text}")).expect("a file");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut command = Command::new(&compiler);
    command.args(["-std=c++17", "-O1", "-w", "-pthread"]).arg(&source);
    let made = compile_program(&mut command, &program);
    let _ = std::fs::remove_file(&source);
    match made {
        Ok(made) if made.status.success() => Some(program),
        Ok(made) => panic!("{name}: {}", String::from_utf8_lossy(&made.stderr)),
        Err(why) => {
            skip(CheckNeeds::Tool, format!("{compiler}: {why}"));
            None
        }
    }
}

fn said(program: &Path, args: &[u64]) -> String {
    let args = args.iter().map(u64::to_string);
    let ran = Command::new(program).args(args).output().expect("it runs");
    assert!(ran.status.success(), "{:?} {}", ran.status, String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[test]
fn counts_that_lie_in_memory() {
    let text = ported(&counted(16), str::to_string).replace("THREADS = 512", "THREADS = 8");
    let text = short_slots(&text);
    let Some(program) = built("counted", &format!("{text}{}", include_str!("counted.cpp"))) else {
        return;
    };
    assert_eq!(said(&program, &[2, 5]), "well\n");
    assert_eq!(said(&program, &[3, 4]), "well\n");
    // Rank 0 reports its count, and the others that they received no signal of it, or of each other; nothing is
    // written.
    let beyond = said(&program, &[3, 2, 1]);
    let first = format!("rank 0: report {BOUNDS}, word {LENGTH}, peer 1, wanted 900, seen 901\n");
    assert!(beyond.starts_with(&first) && beyond.ends_with("well\n"), "{beyond}");
    for rank in [1, 2] {
        assert!(beyond.contains(&format!("rank {rank}: report 1, word ")), "{beyond}");
    }
    // A kernel that does not look writes.
    let blind = text.replace("if (counts[k] > most) fail", "if (false) fail");
    assert_ne!(blind, text);
    let Some(program) = built("blind", &(blind + include_str!("counted.cpp"))) else { return };
    let written = said(&program, &[3, 2, 1]);
    assert!(!written.contains(&first) && written.ends_with("wrong\n"), "{written}");
}

/// Makes slots short, so that blocks and messages are several pieces.
fn short_slots(text: &str) -> String {
    let short = text.replace(&format!("SLOT = {SLOT};"), "SLOT = 2064;");
    assert_ne!(short, text);
    short
}

#[test]
fn messages_in_packets_and_pieces() {
    let text = ported(&batch(16), str::to_string).replace("THREADS = 512", "THREADS = 8");
    // Shares of lanes are those of that number of threads.
    let text = short_slots(&text).replace(" LEAST = 1024,", " LEAST = 16,");
    let changed = |name: &str, changes: &[(&str, &str)]| {
        let text = changes.iter().fold(text.clone(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        let patient = include_str!("messages.cpp");
        // What loses pieces waits for them.
        let main = match name {
            "lossy" => patient.replace("60000000000ull", "5000000000ull"),
            "few" => patient.replace("(u32)parts(bytes)", "1u"),
            _ => patient.to_owned(),
        };
        built(name, &(text + &main))
    };
    let Some(program) = changed("messages", &[]) else { return };
    assert_eq!(said(&program, &[2, 20]), "well\n");
    assert_eq!(said(&program, &[3, 6]), "well\n");
    // A launch of fewer lanes than have a part leaves those parts where they were.
    let Some(program) = changed("few", &[]) else { return };
    assert!(said(&program, &[2, 4]).ends_with("wrong\n"));
    // The first lane of the message that is another than the one that was sent says so, with both tags.
    let other = said(&program, &[2, 2, 1]);
    assert!(
        other.contains(&format!("rank 1: report {OTHER}, word {ARRIVED}, peer 0, wanted ")),
        "{other}"
    );
    // Packets whose numbers soon come again are distinct, since the receiver clears them before. One that does not
    // takes some twice.
    let soon = ("(u32)count | 1u << 31", "(u32)(count % (4 * SLOTS)) | 1u << 31");
    let often = ("USES = 1 << 24", "USES = 3");
    let Some(program) = changed("soon", &[soon, often]) else { return };
    assert_eq!(said(&program, &[2, 20]), "well\n");
    let Some(program) = changed("twice", &[soon]) else { return };
    assert!(said(&program, &[2, 20]).ends_with("wrong\n"));
    // A sender that does not wait for room writes over pieces.
    let hasty = ("if (lane.count > SLOTS) await_count", "if (false) await_count");
    let Some(program) = changed("lossy", &[hasty]) else { return };
    let lost = said(&program, &[2, 20]);
    assert!(lost.ends_with("wrong\n"), "{lost}");
}

#[test]
fn signals_and_words_of_windows() {
    let text = ported(&window(), str::to_string);
    let run =
        |name: &str, text: &str| built(name, &format!("{text}{}", include_str!("window.cpp")));
    let Some(program) = run("window", &text) else { return };
    assert_eq!(said(&program, &[2, 20]), "well\n");
    assert_eq!(said(&program, &[3, 10]), "well\n");
    let late = format!("rank 0: report 1, word {SIGNALLED}, peer 1, wanted 5, seen 4\nwell\n");
    assert_eq!(said(&program, &[2, 4, 1]), late);
    let behind = format!("rank 0: report 1, word {SERVED}, peer 1, wanted 5, seen 4\nwell\n");
    assert_eq!(said(&program, &[2, 4, 2]), behind);
    // A kernel that does not wait lets the stream go on too early.
    let hasty =
        text.replace("await_count(w.params, w.word", "if (false) await_count(w.params, w.word");
    assert_ne!(hasty, text);
    let Some(program) = run("hasty", &hasty) else { return };
    // By luck ranks keep step.
    assert!((0..20).any(|_| said(&program, &[2, 20]) == "wrong\n"));
}

/// Returns a text with what a switch does in place of its instructions, if there are any.
fn switched(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("asm volatile(\"multimem.") {
        let (before, instruction) = rest.split_at(at);
        let end = instruction.find(": \"memory\")").expect("its end") + ": \"memory\")".len();
        kept.push_str(before);
        kept.push_str(match instruction.starts_with("asm volatile(\"multimem.st.") {
            true => "for (char *base : united) memcpy(base + (at - (u64)united_base), &x, 16)",
            false => {
                assert!(instruction.contains(".add.u32 %0"), "the sum of a word of each rank");
                "x.w[k] = 0; for (char *base : united) x.w[k] += *(u32 *)(base + (at + 4 * k - (u64)united_base))"
            }
        });
        rest = &instruction[end..];
    }
    kept.push_str(rest);
    kept.replace("asm volatile(\"fence.proxy.alias;\" ::: \"memory\");", "")
}

/// Runs a function of two ranks with these arguments: elements, elements before them, blocks.
fn function(protocol: DeviceProtocol, runs: &[([u64; 3], &str)]) {
    let entry = find("all_reduce", "two_shot").expect("the library has it");
    let (sources, program) = of_library(entry).expect("it resolves");
    let shape = Shape::flat(2);
    let proved =
        compile(&program, &sources, &shape, &CompileOptions::default(), BufferPlacement::InPlace);
    let programs = prove(&proved.expect("it is right"), protocol, &Lower::default());
    let programs = programs.expect("it can be run so");
    let ranks: Vec<_> = (0..2).filter_map(|rank| programs.of(rank)).collect();
    let aligned = protocol == DeviceProtocol::Multicast;
    let spec = KernelSpec { element: Element::I32, operator: Operator::Sum, aligned };
    let header = cuda_function(&ranks, &spec, "theirs").expect("there is a header").text();
    let renamed =
        |text: &str| text.replace("INLINE", "ROUNDELAY_INLINE").replace("EACH", "ROUNDELAY_EACH");
    let mut text = switched(&ported(&header, renamed));
    let united = protocol == DeviceProtocol::Multicast;
    let registered = united || matches!(protocol, DeviceProtocol::Get | DeviceProtocol::Put);
    text += &format!(
        "static constexpr bool REGISTERED = {registered}, ONE_PASS = {}, UNITED = {united};\n",
        protocol.is_one_pass()
    );
    let name = format!("function_{}", protocol.name());
    let Some(program) = built(&name, &(text + include_str!("function.cpp"))) else { return };
    for (args, wanted) in runs {
        assert_eq!(said(&program, args), *wanted, "{protocol} {args:?}");
    }
}

#[test]
fn functions_of_packets() {
    let more = format!("word {COUNT}, wanted 1000, seen 1001\n");
    let more = format!("rank 0: report {MISUSED}, {more}rank 1: report {MISUSED}, {more}");
    let few = format!("word {GRID}, wanted 2, seen 1\n");
    let few = format!("rank 0: report {MISUSED}, {few}rank 1: report {MISUSED}, {few}");
    function(
        DeviceProtocol::Packet,
        &[
            ([1000, 0, 2], "well\n"),
            ([37, 5, 3], "well\n"),
            ([0, 0, 2], "well\n"),
            ([1001, 0, 2], &more),
            ([1000, 0, 1], &few),
        ],
    );
}

#[test]
fn functions_that_read_and_write_peers() {
    let past = format!("word {PLACE}, wanted 8000, seen 4004\n");
    let past = format!("rank 0: report {MISUSED}, {past}rank 1: report {MISUSED}, {past}");
    function(
        DeviceProtocol::Get,
        &[([1000, 0, 2], "well\n"), ([333, 129, 3], "well\n"), ([1000, 1001, 2], &past)],
    );
}

#[test]
fn functions_that_the_switch_serves() {
    function(DeviceProtocol::Multicast, &[([1000, 0, 2], "well\n"), ([336, 128, 3], "well\n")]);
}
