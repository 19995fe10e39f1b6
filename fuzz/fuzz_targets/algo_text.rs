//! Any text as an algorithm.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| roundelay_tests::fuzz::text(text));
