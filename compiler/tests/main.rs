//! Tests of the compiler through its public interface. One program for all: each would link everything once more.

#![deny(clippy::disallowed_methods)]

mod all_n;
mod findings;
mod proofs;
mod reduction_order;
mod tolerance;
