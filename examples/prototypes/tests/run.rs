//! The prototypes through the real command line, between processes.

use std::process::{Command, Output};

fn prototypes(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_prototypes");
    Command::new(program).args(arguments).output().expect("the program starts")
}

fn good(arguments: &[&str]) -> String {
    let output = prototypes(arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}\n{text}\n{errors}");
    text
}

#[test]
fn they_run_between_processes() {
    for (name, n) in [("zigzag", "5"), ("quantised", "3"), ("all_to_all.rows_first", "2x2")] {
        let text = good(&["run", name, "-n", n, "--bytes", "0,1000,64K", "--iters", "2"]);
        assert!(text.contains("proved"), "{text}");
        let rows =
            text.lines().filter(|l| l.trim_start().starts_with(|c: char| c.is_ascii_digit()));
        assert_eq!(rows.count(), 3, "{text}");
    }
}

#[test]
fn every_verb_knows_them() {
    assert!(good(&["check", "zigzag", "-n", "2..16"]).contains("all_reduce.zigzag"));
    assert!(good(&["show", "zigzag", "--stage", "graph", "-n", "3"]).contains("seat(p, n).to("));
    assert!(good(&["info"]).contains("all_to_all.rows_first"));
    assert!(
        good(&["check", "all_reduce.ring"]).contains("all_reduce.ring"),
        "the algorithm library too"
    );
}

#[test]
fn an_unknown_name_is_told_the_near_one() {
    let output = prototypes(&["run", "zigzg", "-n", "4"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("this program has `zigzag`"), "{errors}");
}

#[test]
fn another_program_is_asked() {
    // `roundelay --from PROGRAM`: here the program hands over to itself.
    let program = env!("CARGO_BIN_EXE_prototypes");
    assert!(good(&["check", "--from", program, "zigzag", "-n", "4"]).contains("zigzag"));
    let output = prototypes(&["check", "--from", "no/such/program", "zigzag"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("RL0708"));
}
