//! Runs programs whose ranks are on several hosts: the same results, with proxies between.

use roundelay_compiler::device::abi::YEAR;
use roundelay_compiler::device::{
    DeviceOptions, DeviceProgram, DeviceProtocol, TaskInput, TaskOutput, prove, verify,
};
use roundelay_compiler::{ProvedPlans, Shape};
use roundelay_tests::SeededRandom;

use super::kernel::Call;
use super::machine::Past;
use super::proxy::Orders;
use super::remove::{removals, repeats_waits, spared, tolerates};
use super::{machine, proofs, setting, with};

/// The protocols that pass between hosts.
const PROTOCOLS: [DeviceProtocol; 3] =
    [DeviceProtocol::Staged, DeviceProtocol::Put, DeviceProtocol::Get];

/// Returns hosts for the ranks: as a grid has them, or one each, or two, in turns or not.
fn hosts(shape: &Shape, dice: &mut SeededRandom) -> Vec<u32> {
    let ranks = shape.ranks() as u32;
    let inner = match &shape.axes[..] {
        [_, inner] => *inner,
        _ => [1, 2, ranks.div_ceil(2)][dice.below(3)],
    };
    let turned = shape.axes.len() == 1 && dice.below(4) == 0;
    (0..ranks).map(|rank| if turned { rank % 2 } else { rank / inner }).collect()
}

fn lowered(
    proved: &ProvedPlans,
    protocol: DeviceProtocol,
    hosts: &[u32],
) -> Option<Vec<DeviceProgram>> {
    let options = DeviceOptions { hosts: hosts.to_vec(), ..DeviceOptions::default() };
    match prove(proved, protocol, &options) {
        Ok(programs) => Some(programs.list().to_vec()),
        Err(refused) => {
            let text = refused.to_string();
            assert!(text.contains("channels between two ranks"), "{hosts:?} {protocol}: {text}");
            None
        }
    }
}

/// Returns two calls in a row of the programs of some protocol.
fn calls(
    name: &str,
    proved: &ProvedPlans,
    hosts: &[u32],
    protocol: DeviceProtocol,
    dice: &mut SeededRandom,
) -> Vec<Call> {
    let protocols = [protocol, PROTOCOLS[dice.below(3)], protocol];
    let programs = protocols.iter().filter_map(|&p| lowered(proved, p, hosts));
    programs.map(|p| with(name, proved, p, dice)).collect()
}

#[test]
fn the_library_is_run_between_hosts() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let (mut runs, mut far, mut failures) = (0, 0, Vec::new());
    proofs(|name, shape, proved| {
        if !name.contains(&only) || shape.ranks() > 6 {
            return;
        }
        for protocol in PROTOCOLS {
            let seed = setting("SEED", 1) * 1000 + runs;
            let mut dice = SeededRandom(seed);
            let hosts = hosts(shape, &mut dice);
            let calls = calls(name, proved, &hosts, protocol, &mut dice);
            runs += 1;
            far += u64::from(calls.iter().any(|c| c.programs.iter().any(DeviceProgram::is_far)));
            if let Err(e) = machine::run(&calls, machine::NONE, seed) {
                failures.push(format!("{name} {hosts:?} {protocol}: {e}"));
            }
        }
    });
    assert!(failures.is_empty(), "{} of {runs}\n{}", failures.len(), failures.join("\n"));
    assert!(far > 300 || !only.is_empty(), "{far} of {runs} are far");
}

/// Runs calls of which one is the last of a year; returns how many have far links, and the failures.
fn over_a_year(renews: bool) -> (usize, Vec<String>) {
    let (mut runs, mut failures) = (0, Vec::new());
    proofs(|name, shape, proved| {
        if shape.ranks() > 3 {
            return;
        }
        for protocol in PROTOCOLS {
            let seed = 70 + runs as u64;
            let mut dice = SeededRandom(seed);
            let hosts = hosts(shape, &mut dice);
            let calls = calls(name, proved, &hosts, protocol, &mut dice);
            if !calls.iter().any(|c| c.programs.iter().any(DeviceProgram::is_far)) {
                continue;
            }
            runs += 1;
            let past = Past { first: YEAR - 1 - dice.below(2) as u32, renews };
            if let Err(e) = machine::run(&calls, past, seed) {
                failures.push(format!("{name} {hosts:?} {protocol}: {e}"));
            }
        }
    });
    (runs, failures)
}

#[test]
fn words_of_far_memory_are_renewed() {
    let (runs, failures) = over_a_year(true);
    assert!(failures.is_empty(), "{} of {runs}\n{}", failures.len(), failures.join("\n"));
    // Those of long ago would be taken for new ones.
    let (_, failures) = over_a_year(false);
    assert!(runs > 100 && 2 * failures.len() > runs, "{} of {runs}", failures.len());
}

#[test]
fn nothing_crosses_hosts_but_through_slots() {
    let mut seen = 0;
    proofs(|name, shape, proved| {
        if shape.ranks() != 4 {
            return;
        }
        let hosts = [0, 0, 1, 1];
        for protocol in PROTOCOLS {
            for program in lowered(proved, protocol, &hosts).unwrap_or_default() {
                let far = |link: u32| program.links[link as usize].far;
                for task in program.phases.iter().flat_map(|p| &p.tasks) {
                    let lands =
                        |t: &TaskOutput| matches!(t, TaskOutput::Landed(m, _) if far(m.link));
                    let pulls = |i: &TaskInput| matches!(i, TaskInput::Pulled(m, _) if far(m.link));
                    assert!(!task.outs.iter().any(lands), "{name}");
                    assert!(!task.inputs.iter().any(pulls), "{name}");
                    seen += 1;
                }
                for link in &program.links {
                    let own = hosts[program.rank as usize];
                    assert_eq!(link.far, hosts[link.peer as usize] != own, "{name}");
                }
            }
        }
        for protocol in [DeviceProtocol::Packet, DeviceProtocol::Engine] {
            let options = DeviceOptions { hosts: hosts.to_vec(), ..DeviceOptions::default() };
            if let Err(refused) = prove(proved, protocol, &options) {
                let text = refused.to_string();
                let whole = proved.plans()[0].header.collective == "barrier";
                assert!(text.contains("different hosts") || whole, "{name}: {text}");
            }
        }
    });
    assert!(seen > 100, "{seen}");
}

/// Takes away every wait, signal, fence and barrier of far programs, one at a time. The proof refuses what remains. It
/// may accept it where a proxy's flow control is implied by messages between the ranks: then the machine does too.
#[test]
fn nothing_can_be_taken_away_between_hosts() {
    const KINDS: [&str; 10] = [
        "wait Sent",
        "acquire Sent",
        "wait Room",
        "acquire Room",
        "signal",
        "release",
        "block barrier",
        "leave",
        "acquire of leave",
        "greet",
    ];
    let kind = |what: &str| {
        let words = |kind: &&&str| kind.split(' ').all(|word| what.contains(word));
        KINDS.iter().filter(words).max_by_key(|kind| kind.len()).copied()
    };
    let (mut tried, mut wrong, mut refused) = (0, Vec::new(), Vec::new());
    proofs(|name, shape, proved| {
        if shape.ranks() > 3 || tolerates(name) {
            return;
        }
        let hosts: Vec<u32> = (0..shape.ranks() as u32).map(|rank| rank / 2 + rank % 2).collect();
        let options = DeviceOptions { hosts: hosts.clone(), ..DeviceOptions::default() };
        for protocol in PROTOCOLS {
            let Some(programs) = lowered(proved, protocol, &hosts) else { continue };
            for (what, rest) in removals(&programs) {
                tried += 1;
                if verify(proved, &options, rest.clone()).is_err() {
                    refused.extend(kind(&what));
                    continue;
                }
                let flow =
                    ["Room(", "signal ", "release ", "leave"].iter().any(|f| what.contains(f));
                let mut dice = SeededRandom(tried);
                let calls: Vec<Call> =
                    (0..2).map(|_| with(name, proved, rest.clone(), &mut dice)).collect();
                // A barrier before the signal of a consumption may be implied, as that of the next pass comes first.
                let is_implied = repeats_waits(name) || what.contains("block barrier");
                if !flow && !is_implied && !spared(&what, &programs, &rest)
                    || (is_implied || tried % 8 == 0)
                        && machine::run(&calls, machine::NONE, tried).is_err()
                {
                    wrong.push(format!("{name} {protocol} {what}"));
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(tried > 1000, "{tried}");
    for kind in KINDS {
        assert!(refused.contains(&kind), "{kind} is never needed");
    }
}

/// Each order that proxies keep is needed: the machine shows what comes of it if it is not kept.
#[test]
fn every_order_of_proxies_is_needed() {
    let all = Orders::default();
    let without = [
        ("acquire", Orders { acquire: false, ..all }),
        ("release", Orders { release: false, ..all }),
        ("credit", Orders { credit: false, ..all }),
        ("entered", Orders { entered: false, ..all }),
    ];
    for (order, orders) in without {
        let mut shown = false;
        proofs(|name, shape, proved| {
            if shown || shape.ranks() > 3 || name.contains("barrier") {
                return;
            }
            let hosts: Vec<u32> = (0..shape.ranks() as u32).collect();
            shown |= (0..20).any(|seed| {
                let mut dice = SeededRandom(seed);
                let calls = calls(name, proved, &hosts, DeviceProtocol::Staged, &mut dice);
                machine::run(&calls, machine::NONE, seed).expect("all orders are kept");
                machine::run_with(&calls, machine::NONE, orders, seed).is_err()
            });
        });
        assert!(shown, "{order} is not needed");
    }
}
