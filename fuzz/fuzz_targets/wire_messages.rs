//! Any bytes as each kind of message that comes from another process.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roundelay::internal::wires;

fuzz_target!(|input: (u8, &[u8])| {
    let (which, bytes) = input;
    let mut wires = wires();
    let wire = wires.swap_remove(usize::from(which) % wires.len());
    if let Some(written) = (wire.read)(bytes) {
        assert_eq!((wire.read)(&written), Some(written), "{}", wire.name);
    }
});
