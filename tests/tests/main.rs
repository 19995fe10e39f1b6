//! Tests that cross packages. One program for all: each would link everything once more.

mod blame;
mod compile_fail;
mod decode;
mod deep;
mod dependencies;
mod determinism;
mod device;
mod editors;
mod executed;
mod golden;
mod host;
mod imports;
mod kernels;
mod large;
mod mutants;
mod names;
mod packaging;
mod pages;
mod random;
mod solver;
mod tunables;
mod twins;
mod variables;
mod waste;
mod wire;
mod words;
