//! Tests of the C interface: its header, and programs in C. One program for all: each would link everything once more.

mod header;
mod programs;
