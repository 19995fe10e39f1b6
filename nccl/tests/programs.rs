//! A program in C runs the whole interface on memory of the host, by threads, by one thread, and by processes; others
//! see what the library says where something is missing.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use roundelay_tests::{CheckNeeds, compile_program, held_ports, listeners, port};

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// Returns the library, where cargo put it for this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this test is a file");
    let deps = own.parent().expect("it lies in a folder");
    let found = [deps, deps.parent().expect("a folder of the profile")];
    let files = found.into_iter().map(|folder| folder.join("libroundelay_nccl.so"));
    files.into_iter().find(|file| file.exists()).expect("cargo has built the library")
}

/// Compiles a program, once for each test process, against the library.
fn program(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nccl_{name}"));
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .arg(format!("{FOLDER}/tests/c/{name}.c"))
        .arg(library())
        .arg("-ldl");
    let out = compile_program(&mut compiler, &program).expect("the compiler runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    program
}

fn ranks() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("ranks"))
}

fn faults() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("faults"))
}

fn symbols() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("symbols"))
}

fn command(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "240"]).arg(program);
    // Cargo's own path may name an older library first.
    command.env("LD_LIBRARY_PATH", library().parent().expect("a folder"));
    let unset =
        ["NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_COMM_ID", "ROUNDELAY_HINTS", "ROUNDELAY_NCCL_HOST"];
    for name in unset {
        command.env_remove(name);
    }
    command
}

fn said(out: &Output) -> String {
    let [out, err] = [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// Runs all of the interface on memory of the host.
fn run(way: &str, ranks_of_it: u32) {
    let mut command = command(ranks());
    command.args([way, &ranks_of_it.to_string()]).env("ROUNDELAY_NCCL_HOST", "1");
    let out = command.output().expect("it runs");
    let said = said(&out);
    assert!(out.status.success(), "{:?}\n{said}", out.status);
    assert!(said.contains("all is as computed"), "{said}");
}

#[test]
fn threads_of_one_process() {
    run("threads", 3);
}

#[test]
fn one_thread_for_all_ranks() {
    run("group", 4);
}

#[test]
fn one_rank_alone() {
    run("group", 1);
}

#[test]
fn processes() {
    run("processes", 3);
}

#[test]
fn a_wrong_result_would_be_seen() {
    // Ranks of one call with other operators: the program must notice that something is wrong.
    let mut command = command(faults());
    let out = command.arg("mismatch").env("ROUNDELAY_NCCL_HOST", "1").output().expect("it runs");
    let said = said(&out);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("mismatch: code 5"), "{said}");
}

#[test]
fn calls_without_elements_are_counted() {
    let mut command = command(faults());
    let out = command.arg("empty").env("ROUNDELAY_NCCL_HOST", "1").output().expect("it runs");
    let said = said(&out);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("empty: code 5"), "{said}");
}

#[test]
fn a_killed_rank_is_named() {
    let mut command = command(faults());
    let out = command.arg("killed").env("ROUNDELAY_NCCL_HOST", "1").output().expect("it runs");
    let said = said(&out);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("killed: code 6") && said.contains("rank 1"), "{said}");
}

#[test]
fn what_is_printed_depends_on_the_level() {
    let of = |level: &str| {
        let mut command = command(faults());
        command.arg("quiet").env("ROUNDELAY_NCCL_HOST", "1").env("NCCL_DEBUG", level);
        said(&command.output().expect("it runs"))
    };
    let (none, version, warn, info) = (of(""), of("VERSION"), of("WARN"), of("INFO"));
    assert!(!none.contains("NCCL"), "{none}");
    assert!(
        version.contains("NCCL version 2.28.9 (roundelay ") && !version.contains("NCCL WARN"),
        "{version}"
    );
    assert!(
        warn.contains("NCCL WARN ncclAllReduce: sendbuff is NULL") && !warn.contains("INFO"),
        "{warn}"
    );
    assert!(info.contains("NCCL INFO rank 0 of 1 on GPU 0 is open"), "{info}");
}

#[test]
fn without_a_gpu_it_says_why() {
    let out = command(faults()).arg("quiet").output().expect("it runs");
    let said = said(&out);
    assert!(out.status.success(), "{said}");
    if said.contains("opened") {
        roundelay_tests::skip(CheckNeeds::Without, "this machine has a GPU");
        return;
    }
    assert!(said.contains("version 22809") && said.contains("init: code 1"), "{said}");
    assert!(said.contains("driver") || said.contains("GPU"), "{said}");
}

#[test]
fn all_of_the_interface_is_exported() {
    let names: Vec<&str> = include_str!("names.txt").lines().collect();
    assert_eq!(names.len(), 46);
    let out = command(symbols()).arg(library()).args(&names).output().expect("it runs");
    let said = said(&out);
    assert!(out.status.success(), "{said}");
    let missing = command(symbols()).arg(library()).arg("ncclNoSuch").output();
    assert!(!missing.expect("it runs").status.success(), "a name that is missing is seen");
}

#[test]
fn forked_children_are_no_ranks() {
    let out = command(&program("fork")).env("ROUNDELAY_NCCL_HOST", "1").output().expect("it runs");
    let said = said(&out);
    assert!(out.status.success(), "{:?}\n{said}", out.status);
    for way in ["fork", "clone"] {
        let line = format!("children by {way} are refused, and the ranks go on\n");
        assert!(said.contains(&line), "{said}");
    }
}

/// Has a process serve the board of a unique id, under these hints: where it listens, and what it printed.
fn board(hints: &str) -> (Vec<SocketAddr>, String) {
    let mut command = command(faults());
    command.arg("board").env("ROUNDELAY_HINTS", hints);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let line = lines.map(|line| line.expect("a line")).find(|line| line.starts_with("board: "));
    let line = line.expect("it says what it got");
    let process = line.split("process ").nth(1).and_then(|rest| rest.split(',').next());
    let process = process.and_then(|number| number.parse().ok()).expect("its number");
    let found = listeners(process);
    drop(child.stdin.take());
    assert!(child.wait().is_ok_and(|status| status.success()));
    (found, line)
}

#[test]
fn a_board_listens_at_the_interface_and_the_ports_of_hints_alone() {
    for interface in ["", ",interface=127.0.0.1", ",interface=lo"] {
        // A range of one port says which it is; should another process take it, the next one is tried.
        let tried = (0..20).map(|_| {
            let port = port();
            (port, board(&format!("ports={port}-{port}{interface}")))
        });
        let found = tried.into_iter().find(|(_, (_, line))| line.contains("code 0"));
        let (port, (found, line)) = found.expect("a free port");
        let ip = match interface {
            "" => None,
            _ => Some(IpAddr::from(Ipv4Addr::LOCALHOST)),
        };
        assert_eq!(found.len(), 1, "{line} {found:?}");
        assert_eq!(found[0].port(), port, "{interface}");
        assert!(ip.is_none_or(|ip| found[0].ip() == ip), "{interface}: {found:?}");
        assert!(ip.is_some() || found[0].ip().is_unspecified(), "{found:?}");
    }
    let (first, _held) = held_ports();
    let range = format!("{first}-{}", first + 1);
    let (found, line) = board(&format!("ports={range}"));
    assert_eq!(found, []);
    assert!(line.contains(&format!("all ports of the range {range} are taken")), "{line}");
}
