//! Takes away every wait, signal, fence, meeting and greeting, one at a time: the proof refuses what remains, and
//! the machine shows why.

use roundelay_compiler::device::{DeviceProgram, Options, Way, prove, verify};
use roundelay_compiler::{Placement, Proved};
use roundelay_tests::Dice;

use super::{Call, machine, proofs, setting, with};

/// Everything that can be taken away from the programs, by name, with what remains.
fn removals(programs: &[DeviceProgram]) -> Vec<(String, Vec<DeviceProgram>)> {
    let mut all = Vec::new();
    let mut add = |rank: usize, name: String, change: &dyn Fn(&mut DeviceProgram)| {
        let mut rest = programs.to_vec();
        change(&mut rest[rank]);
        all.push((format!("rank {rank}: {name}"), rest));
    };
    for (rank, p) in programs.iter().enumerate() {
        for g in 0..p.greets.len() {
            add(rank, format!("greet {g}"), &|p| drop(p.greets.remove(g)));
        }
        for (i, phase) in p.phases.iter().enumerate() {
            for (j, arm) in phase.arms.iter().enumerate() {
                for w in 0..arm.waits.len() {
                    let at = format!("phase {i} arm {j} {:?}", arm.waits[w].event);
                    add(rank, format!("wait {at}"), &|p| {
                        drop(p.phases[i].arms[j].waits.remove(w));
                    });
                    add(rank, format!("acquire {at}"), &|p| {
                        p.phases[i].arms[j].waits[w].acquire = false;
                    });
                }
            }
            if phase.meet {
                add(rank, format!("meet {i}"), &|p| p.phases[i].meet = false);
            }
            for s in 0..phase.signals.len() {
                let at = format!("phase {i} {:?}", phase.signals[s].message);
                add(rank, format!("signal {at}"), &|p| drop(p.phases[i].signals.remove(s)));
                add(rank, format!("release {at}"), &|p| p.phases[i].signals[s].release = false);
            }
        }
        for w in 0..p.leave.len() {
            add(rank, format!("leave {w}"), &|p| drop(p.leave.remove(w)));
            add(rank, format!("acquire of leave {w}"), &|p| p.leave[w].acquire = false);
        }
    }
    all
}

/// Whether the machine finds that something is missing.
fn found(name: &str, proved: &Proved, rest: &[DeviceProgram], seeds: u64) -> bool {
    (0..seeds).any(|seed| {
        let mut dice = Dice(seed);
        let calls: Vec<Call> =
            (0..2).map(|_| with(name, proved, rest.to_vec(), &mut dice)).collect();
        machine::play(&calls, seed).is_err()
    })
}

#[test]
fn nothing_can_be_taken_away() {
    let most = setting("RANKS", 4);
    let seeds = setting("SEEDS", 40);
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut dice = Dice(setting("SEED", 1));
    let (mut tried, mut played, mut shown) = (0, 0, 0);
    let (mut accepted, mut unseen) = (Vec::new(), Vec::new());
    proofs(|name, shape, proved| {
        let placement = proved.plans()[0].header.placement;
        if shape.ranks() > most || !name.contains(&only) {
            return;
        }
        for way in Way::ALL {
            let Ok(programs) = prove(proved, way, &Options::default()) else { continue };
            for (what, rest) in removals(programs.list()) {
                let what = format!("{name} {way} {what}");
                tried += 1;
                let refused = verify(&proved.graph().instance, rest.clone()).is_err();
                if !refused {
                    accepted.push(what.clone());
                    continue;
                }
                // Playing takes longer than proving: some.
                if dice.below(16) == 0 && (placement == Placement::InPlace || shape.ranks() == 3) {
                    played += 1;
                    match found(name, proved, &rest, seeds) {
                        true => shown += 1,
                        false => unseen.push(what),
                    }
                }
            }
        }
    });
    eprintln_all(&format!("{tried} removals, {played} played, {shown} shown"), &unseen);
    assert!(accepted.is_empty(), "{} of {tried}:\n{}", accepted.len(), accepted.join("\n"));
}

fn eprintln_all(head: &str, lines: &[String]) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{head}\n{}", lines.join("\n"));
}
