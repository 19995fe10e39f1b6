//! Tests of files, one each: the algorithm library, `suite/`, and the examples of the documentation. It is the last
//! test program of the workspace, and sums up the checks that all of them skipped.

mod docs;
mod library;
mod suite;

use std::io::Write as _;

use libtest_mimic::{Arguments, run};

fn main() {
    let arguments = Arguments::from_args();
    let trials =
        [docs::trials(), library::trials(), suite::trials()].into_iter().flatten().collect();
    let outcome = run(&arguments, trials);
    if !arguments.list {
        let _ = write!(std::io::stderr().lock(), "\n{}", roundelay_tests::skipped());
    }
    outcome.exit();
}
