//! Tests of NCCL's interface: programs in C, and buffers that overlap. One program for all: each would link everything
//! once more.

mod aliases;
mod programs;
