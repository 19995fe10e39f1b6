//! Runs calls across the last epoch, and across the end of a year, on memory that is as old as it may be.

use roundelay_compiler::device::DeviceProtocol;
use roundelay_compiler::device::abi::YEAR;
use roundelay_tests::SeededRandom;

use super::machine::Past;
use super::{Call, call, machine, proofs};

/// Runs six calls by the same protocol each, among them the last two epochs of a year. Returns the number of
/// such series, and the failures.
fn run_years(year_ends: u32, renews: bool) -> (usize, Vec<String>) {
    let (mut runs, mut failures) = (0, Vec::new());
    proofs(|name, shape, proved| {
        if shape.ranks() > 3 {
            return;
        }
        for protocol in DeviceProtocol::ALL {
            let seed = runs as u64 * 31 + 5;
            let mut dice = SeededRandom(seed);
            let past = Past { first: year_ends.wrapping_sub(1 + dice.below(3) as u32), renews };
            let calls: Vec<Call> =
                (0..6).filter_map(|_| call(name, proved, protocol, None, &mut dice)).collect();
            if calls.is_empty() {
                continue;
            }
            runs += 1;
            if let Err(e) = machine::run(&calls, past, seed) {
                failures.push(format!("{protocol} from {}: {}: {e}", past.first, calls[0].name));
            }
        }
    });
    (runs, failures)
}

#[test]
fn calls_go_on_after_the_last_epoch() {
    let (runs, failures) = run_years(u32::MAX, true);
    assert!(failures.is_empty(), "{} of {runs}\n{}", failures.len(), failures.join("\n"));
    assert!(runs > 200, "{runs}");
}

#[test]
fn calls_go_on_after_the_end_of_a_year() {
    let (runs, failures) = run_years(YEAR - 1, true);
    assert!(failures.is_empty(), "{} of {runs}\n{}", failures.len(), failures.join("\n"));
}

/// The packets of calls of four years before are taken for those of this one.
#[test]
fn nothing_may_be_left_of_the_years_before() {
    let (runs, failures) = run_years(u32::MAX, false);
    let packets = failures.iter().filter(|f| f.starts_with("packet")).count();
    assert!(packets == failures.len() && 5 * packets > runs / 2, "{packets} of {runs}");
}
