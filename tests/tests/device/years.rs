//! Runs calls across the last epoch, and across the end of a year, on memory that is as old as it may be.

use roundelay_compiler::device::DeviceProtocol;
use roundelay_compiler::device::abi::YEAR;
use roundelay_tests::SeededRandom;

use super::machine::Past;
use super::{Call, call, machine, proofs};

/// Runs six calls by the same protocol each, among them the last two epochs of a year. Returns the number of
/// such series, and the failures.
fn played(year_ends: u32, renews: bool) -> (usize, Vec<String>) {
    let (mut played, mut failures) = (0, Vec::new());
    proofs(|name, shape, proved| {
        if shape.ranks() > 3 {
            return;
        }
        for protocol in DeviceProtocol::ALL {
            let seed = played as u64 * 31 + 5;
            let mut dice = SeededRandom(seed);
            let past = Past { first: year_ends.wrapping_sub(1 + dice.below(3) as u32), renews };
            let calls: Vec<Call> =
                (0..6).filter_map(|_| call(name, proved, protocol, None, &mut dice)).collect();
            if calls.is_empty() {
                continue;
            }
            played += 1;
            if let Err(e) = machine::play(&calls, past, seed) {
                failures.push(format!("{protocol} from {}: {}: {e}", past.first, calls[0].name));
            }
        }
    });
    (played, failures)
}

#[test]
fn calls_go_on_after_the_last_epoch() {
    let (played, failures) = played(u32::MAX, true);
    assert!(failures.is_empty(), "{} of {played}\n{}", failures.len(), failures.join("\n"));
    assert!(played > 200, "{played}");
}

#[test]
fn calls_go_on_after_the_end_of_a_year() {
    let (played, failures) = played(YEAR - 1, true);
    assert!(failures.is_empty(), "{} of {played}\n{}", failures.len(), failures.join("\n"));
}

/// The packets of calls of four years before are taken for those of this one.
#[test]
fn nothing_may_be_left_of_the_years_before() {
    let (played, failures) = played(u32::MAX, false);
    let packets = failures.iter().filter(|f| f.starts_with("packet")).count();
    assert!(packets == failures.len() && 5 * packets > played / 2, "{packets} of {played}");
}
