//! The program `roundelay`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    roundelay_cli::main(&[])
}
