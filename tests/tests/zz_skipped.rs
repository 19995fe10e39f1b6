//! Runs last of all test programs of the workspace, which cargo sorts by package and name, and says which checks were
//! skipped.

use std::io::Write;

#[test]
fn skipped_checks_are_summed_up() {
    // Past the harness, which keeps what passing tests say to itself.
    let text = format!("\n{}", roundelay_tests::skipped());
    std::io::stderr().lock().write_all(text.as_bytes()).expect("written");
}
