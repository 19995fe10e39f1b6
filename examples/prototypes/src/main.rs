//! `prototypes run zigzag -n 4`, and every other verb of `roundelay`.
#![forbid(unsafe_code)]

use roundelay_prototypes::{quantised, rows_first, zigzag};

fn main() -> std::process::ExitCode {
    roundelay_cli::main(&[&zigzag, &quantised, &rows_first])
}
