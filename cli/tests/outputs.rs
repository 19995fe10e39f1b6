//! Tests files that verbs write: those that cannot be written are reported alike by all of them, and soon.

use std::fs::File;
use std::process::Stdio;

use crate::support::{RunOutput, command, file, roundelay};

const NOWHERE: &str = "no_such_folder/file";

#[test]
fn a_failed_write_has_one_title_and_one_exit_code() {
    let said = ["error[RL0711]: a file cannot be written", NOWHERE];
    roundelay(&["draw", "all_reduce.ring", "-o", NOWHERE]).fails(3, &said);
    roundelay(&["show", "all_reduce.ring", "--rank", "0", "-o", NOWHERE]).fails(3, &said);
    roundelay(&["emit", "--cuda-device", "all_reduce.ring", "-o", NOWHERE]).fails(3, &said);
    roundelay(&["bench", "all_reduce.ring", "-n", "2", "--plot", NOWHERE]).fails(3, &said);
    let out = File::options().write(true).open("/dev/full").expect("a full device");
    let full = command(&["check", "all_reduce.ring", "-n", "2"]).stdout(out).output();
    RunOutput::of(full.expect("the binary runs")).fails(3, &["RL0711", "standard output"]);
}

/// The job is never begun: not a line of a result is printed.
#[test]
fn what_is_needed_at_the_end_is_tried_at_the_start() {
    for option in ["--flight", "--trace"] {
        let run = ["run", "all_reduce.ring", "-n", "2", "--bytes", "1K", option, NOWHERE];
        let ran = roundelay(&run).fails(3, &["RL0711", NOWHERE]);
        assert_eq!(ran.out, "");
    }
    // What is there stays as it is, and nothing is left where nothing was.
    let kept = file("kept.json", "as it was");
    let new = format!("{kept}.new");
    for flight in [&kept, &new] {
        roundelay(&["run", "all_reduce.ring", "-n", "2", "--bytes", "8", "--flight", flight]).ok();
    }
    assert_eq!(std::fs::read_to_string(&kept).expect("a file"), "as it was");
    assert!(!std::path::Path::new(&new).exists());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_fault() {
    let mut child = command(&["explain"]).stdout(Stdio::piped()).spawn().expect("the binary runs");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
