//! Any bytes as the body of a plan, with a digest that fits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roundelay_tests::fuzz::{plan, sealed};

fuzz_target!(|body: &[u8]| {
    let mut head = b"RLPLAN\0\0".to_vec();
    head.extend(roundelay_compiler::plan::VERSION.to_le_bytes());
    if let Err(why) = plan(&sealed(&head, body)) {
        panic!("{why}");
    }
});
