//! The example programs in C and C++ are compiled against the header and the library, without warnings, and run.

use std::path::{Path, PathBuf};
use std::process::Command;

use roundelay_tests::{CheckNeeds, compile_program};

/// Returns the folder in which cargo put the library for this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this test is a file");
    let deps = own.parent().expect("it lies in a folder");
    let found = [deps, deps.parent().expect("a folder of the profile")];
    let has = |folder: &&Path| folder.join("libroundelay_ffi.so").exists();
    found.into_iter().find(has).expect("cargo has built the library").to_owned()
}

/// Compiles and runs a program; returns what it printed.
fn run(compiler: &str, flags: &[&str], source: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("../examples").join(source);
    let name = source.file_name().expect("a file").to_string_lossy().replace('.', "_");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let folder = library();
    let mut command = Command::new(compiler);
    command
        .args(flags)
        .args(["-Wall", "-Wextra", "-Werror", "-pthread"])
        .arg("-I")
        .arg(root.join("include"))
        .arg(&source)
        .arg("-L")
        .arg(&folder)
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .arg("-lroundelay_ffi");
    let out = compile_program(&mut command, &program).expect("the compiler runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // Cargo's own path may name an older library first.
    let mut run = Command::new("timeout");
    run.arg("60").arg(&program).env("LD_LIBRARY_PATH", &folder).current_dir(root.join(".."));
    let out = run.output().expect("the program runs");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{:?}\n{said}\n{err}", out.status);
    said
}

#[test]
fn a_program_in_c() {
    let said = run("cc", &["-std=c11"], "c/all_reduce.c");
    assert!(said.contains("rank 0 of 4: the sum of element 0 is 6"), "{said}");
    assert!(said.contains("rank 3 of 4: the sum of element 0 is 6"), "{said}");
    assert!(said.contains("would use all_reduce."), "{said}");
}

#[test]
fn a_collective_of_ones_own_runs_in_c() {
    let said = run("cc", &["-std=c11"], "c/own_collective.c");
    assert!(said.contains("rank 0 of 4: the sum of its neighbours is 4"), "{said}");
    assert!(said.contains("rank 1 of 4: the sum of its neighbours is 2"), "{said}");
}

#[test]
fn mistakes_in_c() {
    let said = run("cc", &["-std=c11"], "c/mistakes.c");
    for part in [
        "712: comm is NULL",
        "712: broadcast: root 2 is not one of 2 ranks",
        "712: 99 is no type of elements",
        "703: ",
        "715: rank 1 stopped because rank 0 failed: abort was called: enough",
        // Of windows, and of GPUs.
        "712: this communicator has no GPUs",
        "712: window is NULL",
        "712: before is NULL",
        "712: this window is of memory of this host, and the buffer of the call is of a GPU",
        "712: map the part of rank 1: there is no rank 1, the ranks are 0 to 0",
        "712: allocation is NULL",
        "712: a buffer of 18446744073709551615 elements exceeds the address space",
        "705: no room for a buffer (1073741824 GiB wanted)",
        "712: 9 is no kind of memory",
        "712: hosts is NULL",
        "712: the options have size 8: set it to sizeof(rl_options), which is 48 here, or to 0",
        "710: ",
    ] {
        assert!(said.contains(part), "no `{part}` in\n{said}");
    }
}

#[test]
fn windows_in_c() {
    let said = run("cc", &["-std=c11"], "c/window.c");
    for rank in 0..4 {
        assert!(
            said.contains(&format!("rank {rank} of 4: 101 numbers were added, and 4")),
            "{said}"
        );
    }
    assert!(said.contains("the peer's part ends at byte 808"), "{said}");
}

#[test]
fn memory_in_c() {
    let said = run("cc", &["-std=c11"], "c/alloc.c");
    for rank in 0..4 {
        let next = (rank + 1) % 4;
        let line = format!("rank {rank} of 4: rank {next} holds {next} and 10");
        assert!(said.contains(&line), "no `{line}` in\n{said}");
    }
}

/// The program runs by itself, too, on a machine that has nothing but it and the library.
#[test]
fn gpus_in_c() {
    let said = run("cc", &["-std=c11"], "c/gpu.c");
    let all = |parts: &[&str]| {
        for part in parts {
            for rank in 0..2 {
                let line = format!("rank {rank}: {part}");
                assert!(said.contains(&line), "no `{line}` in\n{said}");
            }
        }
    };
    all(&["of a host: 712: this communicator has no GPUs"]);
    if let Some((_, why)) = said.split_once("no GPU: 710: ") {
        all(&["no GPU: 710: ", "with its host, the sum is 3", "not everywhere: 712: "]);
        roundelay_tests::skip(CheckNeeds::Gpus, why.lines().next().unwrap_or_default());
        return;
    }
    all(&[
        "998 numbers were put",
        "the words are 5 and 2",
        "the additions saw 1, the swaps 5",
        "beyond: 716: ",
        "nobody: 712: ",
        "of the host: 712: this window is of GPU memory",
        "accumulate: 706: ",
        "background: 706: ",
        "rights: 706: ",
        "host memory: 710: ",
    ]);
    for line in [
        "rank 0: with a GPU, the sum is 3",
        "rank 1: with its host, the sum is 3",
        "rank 0: not everywhere: 706: ",
        "rank 0: late: 703: ",
        "rank 1: ended: ",
    ] {
        assert!(said.contains(line), "no `{line}` in\n{said}");
    }
}

#[test]
fn endpoints_in_c() {
    let said = run("cc", &["-std=c11"], "c/endpoint.c");
    for (side, value, letter) in [(0, 41, 'A'), (1, 40, 'B')] {
        let line = format!(
            "side {side}: notified by {value}, 100000 bytes were written here, read back {letter}{letter}"
        );
        assert!(said.contains(&line), "no `{line}` in\n{said}");
        let line = format!("side {side}: its word was added to, and swapped once: yes");
        assert!(said.contains(&line), "no `{line}` in\n{said}");
    }
    assert!(said.contains("the peer's part ends at byte 100000"), "{said}");
    assert!(
        said.contains("the place is byte 12, and atomic operations need a multiple of 8"),
        "{said}"
    );
}

#[test]
fn ranks_that_come_and_go_in_c() {
    let said = run("cc", &["-std=c11"], "c/elastic.c");
    assert!(said.contains("without it: rank 1 of 2, the sum is 2"), "{said}");
    assert!(said.contains("with another: rank 2 of 3, the sum is 3"), "{said}");
    let left = "those that are left: rank 1 of 2, the sum is 2 of the ranks 0x3";
    assert!(said.contains(left), "{said}");
}

#[test]
fn a_program_in_cpp() {
    if Command::new("c++").arg("--version").output().is_err() {
        roundelay_tests::skip(CheckNeeds::Tool, "there is no C++ compiler (c++)");
        return;
    }
    let said = run("c++", &["-std=c++17"], "cpp/overlap.cpp");
    assert!(said.contains("rank 0: 4 works done, sum 10"), "{said}");
    assert!(said.contains("rank 1: 4 works done, sum 10"), "{said}");
}

#[test]
fn forked_children_in_c() {
    let said = run("cc", &["-std=gnu11"], "../ffi/tests/c/fork.c");
    for way in ["fork", "clone"] {
        let line = format!("children by {way} are refused, and the ranks go on\n");
        assert!(said.contains(&line), "{said}");
    }
}

#[test]
fn scans_in_c() {
    let said = run("cc", &["-std=c11"], "../ffi/tests/c/scan.c");
    assert!(said.contains("sums of the ranks up to each, and of those before\n"), "{said}");
}

#[test]
fn memory_that_is_given_back_in_c() {
    let said = run("cc", &["-std=gnu11"], "../ffi/tests/c/suspend.c");
    assert!(said.contains("memory went and came back\n"), "{said}");
}

/// The last error has the reason for which there is no memory.
#[test]
fn memory_of_gpus_in_c() {
    let said = run("cc", &["-std=c11"], "../ffi/tests/c/device_memory.c");
    assert!(said.contains("no bytes: 0 bytes of a GPU cannot be allocated"), "{said}");
    assert!(said.contains("no device: -1 is no GPU"), "{said}");
    assert!(said.contains("device 1000: memory of GPU 1000: "), "{said}");
    let wanted = match roundelay::cuda::probe() {
        Ok(_) => "1 MiB: allocated".to_owned(),
        Err(why) => format!("1 MiB: memory of GPU 0: {why}"),
    };
    assert!(said.contains(&wanted), "{said}");
}
