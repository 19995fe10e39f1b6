//! Tests what reads messages of other processes: bytes at random are refused, or mean one message.

use roundelay::internal::{WireMessage, wires};
use roundelay_tests::SeededRandom;
use roundelay_tests::fuzz::mutated;

/// Reads bytes; returns true if they are a message, which is read from what it writes as itself.
fn is_message(wire: &WireMessage, bytes: &[u8]) -> Result<bool, String> {
    let Some(written) = (wire.read)(bytes) else { return Ok(false) };
    match (wire.read)(&written) == Some(written) {
        true => Ok(true),
        false => Err(format!("{}: written as another message", wire.name)),
    }
}

#[test]
fn messages_are_read_as_they_were_written() {
    for wire in wires() {
        assert!(!wire.samples.is_empty(), "{}", wire.name);
        for sample in &wire.samples {
            assert_eq!((wire.read)(sample).as_ref(), Some(sample), "{}", wire.name);
        }
    }
}

/// `ROUNDS=100` tries a hundred times as many, `SEED=7` others.
#[test]
fn bytes_at_random_are_refused_or_one_message() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
    };
    for wire in wires() {
        let (mut messages, mut refused) = (0, 0);
        for trial in 0..20_000 * number("ROUNDS", 1) {
            let mut dice = SeededRandom(number("SEED", 1) << 32 ^ trial);
            let bytes = match dice.below(10) {
                0 => (0..dice.below(200)).map(|_| dice.below(256) as u8).collect(),
                _ => mutated(&wire.samples[dice.below(wire.samples.len())], &mut dice),
            };
            let is = std::panic::catch_unwind(|| is_message(&wire, &bytes));
            let Ok(Ok(is)) = is else { panic!("{}, trial {trial}: {is:?} {bytes:?}", wire.name) };
            if is { messages += 1 } else { refused += 1 }
        }
        assert!(messages > 1000 && refused > 1000, "{}: {messages}, {refused}", wire.name);
    }
}
