//! Tests of the runtime as programs use it: ranks as threads, as processes, and on several hosts. One program for all:
//! each would link everything once more.

mod abort;
mod async_calls;
mod build;
mod collectives;
mod conformance;
#[cfg(feature = "cuda")]
mod cuda;
mod deaths;
mod elastic;
mod empty;
#[cfg(target_arch = "x86_64")]
mod environment;
mod fail;
mod fork;
mod hints;
mod launchers;
mod load;
mod messages;
mod p2p;
mod paths;
mod plans;
mod private;
mod processes;
mod ragged;
mod reproducible;
mod resources;
mod scans;
mod split;
mod stayed;
mod support;
mod suspend;
mod tolerant;
mod trace;
mod transport;
mod transport_words;
mod windows;
