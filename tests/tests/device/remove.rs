//! Takes away every wait, signal, fence, block barrier and greeting, one at a time: the proof refuses what remains, and
//! the machine shows why.

use roundelay_compiler::ProvedPlans;
use roundelay_compiler::device::{
    DeviceConnection, DeviceOptions, DeviceProgram, DeviceProtocol, DeviceTask, TaskOutput, prove,
    verify,
};
use roundelay_tests::SeededRandom;

use super::{Call, machine, proofs, setting, with};

/// Returns everything that can be taken away from the programs, by name, with what remains.
pub(crate) fn removals(programs: &[DeviceProgram]) -> Vec<(String, Vec<DeviceProgram>)> {
    let mut all = Vec::new();
    let mut add = |rank: usize, name: String, change: &dyn Fn(&mut DeviceProgram)| {
        let mut rest = programs.to_vec();
        change(&mut rest[rank]);
        all.push((format!("rank {rank}: {name}"), rest));
    };
    for (rank, p) in programs.iter().enumerate() {
        for g in 0..p.greets.len() {
            add(rank, format!("greet {g}"), &|p| {
                p.greets.remove(g);
            });
        }
        for (i, phase) in p.phases.iter().enumerate() {
            for (j, task) in phase.tasks.iter().enumerate() {
                for w in 0..task.waits.len() {
                    let at = format!("phase {i} task {j} {:?}", task.waits[w].event);
                    add(rank, format!("wait {at}"), &|p| {
                        p.phases[i].tasks[j].waits.remove(w);
                    });
                    add(rank, format!("acquire {at}"), &|p| {
                        p.phases[i].tasks[j].waits[w].acquire = false;
                    });
                }
            }
            if phase.block_barrier {
                add(rank, format!("block barrier {i}"), &|p| p.phases[i].block_barrier = false);
            }
            for s in 0..phase.signals.len() {
                let at = format!("phase {i} {:?}", phase.signals[s].message);
                add(rank, format!("signal {at}"), &|p| {
                    p.phases[i].signals.remove(s);
                });
                add(rank, format!("release {at}"), &|p| p.phases[i].signals[s].release = false);
            }
        }
        for w in 0..p.leave.len() {
            add(rank, format!("leave {w}"), &|p| {
                p.leave.remove(w);
            });
            add(rank, format!("acquire of leave {w}"), &|p| p.leave[w].acquire = false);
        }
    }
    all
}

/// Returns programs damaged otherwise, each in one place.
fn damages(programs: &[DeviceProgram]) -> Vec<(String, Vec<DeviceProgram>)> {
    type Change = fn(&mut DeviceProgram);
    fn link(p: &mut DeviceProgram, change: fn(&mut DeviceConnection)) {
        p.links.iter_mut().take(1).for_each(change);
    }
    fn task(p: &mut DeviceProgram, change: fn(&mut DeviceTask)) {
        let tasks = p.phases.iter_mut().flat_map(|p| &mut p.tasks);
        tasks.filter(|a| !a.inputs.is_empty()).take(1).for_each(change);
    }
    let changes: [(&str, Change); 12] = [
        ("base", |p| link(p, |l| l.base += 1)),
        ("slots", |p| link(p, |l| l.slots += 1)),
        ("messages", |p| link(p, |l| l.messages += 1)),
        ("channel", |p| link(p, |l| l.channel += 1)),
        ("no link", |p| p.links.truncate(p.links.len().saturating_sub(1))),
        ("staging", |p| p.staging += 1),
        ("synchronizes", |p| p.synchronizes ^= true),
        ("site", |p| task(p, |a| a.site += 1000)),
        ("no input", |p| task(p, |a| a.inputs.truncate(a.inputs.len() - 1))),
        ("an input twice", |p| task(p, |a| a.inputs.extend(a.inputs.first().cloned()))),
        ("no task", |p| {
            let works = |a: &DeviceTask| !a.inputs.is_empty();
            if let Some(phase) = p.phases.iter_mut().find(|p| p.tasks.iter().any(works))
                && let Some(at) = phase.tasks.iter().position(works)
            {
                phase.tasks.remove(at);
            }
        }),
        ("another index", |p| {
            let outs = p.phases.iter_mut().flat_map(|p| &mut p.tasks).flat_map(|a| &mut a.outs);
            if let Some(
                TaskOutput::Packet(m, _) | TaskOutput::Staged(m, _) | TaskOutput::Landed(m, _),
            ) = outs.last()
            {
                m.index += 1;
            }
        }),
    ];
    let mut all = Vec::new();
    for rank in 0..programs.len() {
        for (name, change) in changes {
            let mut rest = programs.to_vec();
            change(&mut rest[rank]);
            if rest != programs {
                all.push((format!("rank {rank}: {name}"), rest));
            }
        }
    }
    let mut lie = programs.to_vec();
    if !lie[0].synchronizes {
        lie.iter_mut().for_each(|p| p.synchronizes = true);
        all.push(("all: synchronizes".into(), lie));
    }
    all
}

#[test]
fn damaged_programs_are_refused() {
    let (mut tried, mut accepted) = (0, Vec::new());
    proofs(|name, shape, proved| {
        // Of a barrier's contents nothing is asked.
        if shape.ranks() != 3 || name.starts_with("barrier") {
            return;
        }
        for protocol in DeviceProtocol::ALL {
            let Ok(programs) = prove(proved, protocol, &DeviceOptions::default()) else { continue };
            for (what, rest) in damages(programs.list()) {
                tried += 1;
                if verify(proved, &DeviceOptions::default(), rest).is_ok() {
                    accepted.push(format!("{name} {protocol} {what}"));
                }
            }
        }
    });
    assert!(tried > 1000, "{tried}");
    assert!(accepted.is_empty(), "{} of {tried}:\n{}", accepted.len(), accepted.join("\n"));
}

/// Returns true if the machine finds that something is missing.
fn found(name: &str, proved: &ProvedPlans, rest: &[DeviceProgram], seeds: u64) -> bool {
    (0..seeds).any(|seed| {
        let mut dice = SeededRandom(seed);
        let calls: Vec<Call> =
            (0..2).map(|_| with(name, proved, rest.to_vec(), &mut dice)).collect();
        machine::run(&calls, machine::NONE, seed).is_err()
    })
}

/// Returns true if the proof may accept the program without it: a word that a later signal repeats, so that peers only
/// wait longer; a block barrier between passes that another rank's stands for; and of several channels that signal at
/// once that engines may read, all but one.
pub(crate) fn spared(what: &str, programs: &[DeviceProgram], rest: &[DeviceProgram]) -> bool {
    let signals_of = |p: &DeviceProgram| {
        let signals = p.phases.iter().flat_map(|phase| &phase.signals);
        signals.map(|s| s.message).collect::<Vec<_>>()
    };
    let changed = programs.iter().zip(rest).find(|(a, b)| a != b);
    let Some((whole, rest)) = changed else { return false };
    let (all, left) = (signals_of(whole), signals_of(rest));
    let missing = all.iter().find(|m| !left.contains(m));
    let again = missing.is_some_and(|m| left.iter().any(|l| l.link == m.link && l.index > m.index));
    let last = whole.phases.len() - 1;
    let end = |link: &DeviceConnection| (link.peer, link.dir);
    let twins = |link: &&DeviceConnection| {
        whole.links.iter().filter(|other| end(other) == end(link)).count() > 1
    };
    let told_twice =
        whole.protocol == DeviceProtocol::Engine && whole.links.iter().any(|link| twins(&link));
    let orders = !what.contains("block barrier");
    what.contains("signal ") && again
        || what.contains(&format!("block barrier {last}"))
        || told_twice && orders
}

/// Returns true if no machine without branches taken before their time can show it: after a wait for an
/// entry, for room, or for a consumption, the rank only writes.
pub(crate) fn hidden(what: &str) -> bool {
    what.contains("acquire") && !what.contains("Sent")
}

/// Returns true of an algorithm that sends what is there already, for the case that a rank fails: without a failure
/// some of it can go.
pub(crate) fn tolerates(name: &str) -> bool {
    name.starts_with("all_reduce.tolerant ")
}

/// Returns true for algorithms in which a rank takes two messages of one peer in a row: the wait for the second stands
/// for that for the first.
pub(crate) fn repeats_waits(name: &str) -> bool {
    name.starts_with("exscan.")
}

#[test]
fn nothing_can_be_taken_away() {
    let (most, seeds) = (setting("RANKS", 3), setting("SEEDS", 60));
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut dice = SeededRandom(setting("SEED", 1));
    let (mut tried, mut accepted, mut runs, mut shown) = (0, 0, 0, 0);
    let (mut wrong, mut unseen) = (Vec::new(), Vec::new());
    proofs(|name, shape, proved| {
        if shape.ranks() > most || !name.contains(&only) || tolerates(name) {
            return;
        }
        for protocol in DeviceProtocol::ALL {
            let Ok(programs) = prove(proved, protocol, &DeviceOptions::default()) else { continue };
            for (what, rest) in removals(programs.list()) {
                let what = format!("{name} {protocol} {what}");
                tried += 1;
                // Running takes longer than proving: some.
                let sampled = dice.below(24) == 0;
                if verify(proved, &DeviceOptions::default(), rest.clone()).is_ok() {
                    accepted += 1;
                    // Of what repeats its waits, all that is accepted is executed.
                    let is_repeated = repeats_waits(name);
                    if !is_repeated && !spared(&what, programs.list(), &rest) {
                        wrong.push(format!("accepted: {what}"));
                    } else if (sampled || is_repeated) && found(name, proved, &rest, seeds) {
                        wrong.push(format!("accepted, and wrong: {what}"));
                    }
                } else if sampled && !hidden(&what) {
                    runs += 1;
                    match found(name, proved, &rest, seeds) {
                        true => shown += 1,
                        false => unseen.push(what),
                    }
                }
            }
        }
    });
    say(&format!(
        "{tried} removals, {accepted} accepted; {runs} of the others executed, {shown} shown"
    ));
    say(&unseen.join("\n"));
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(10 * shown >= 9 * runs, "{shown} of {runs} shown:\n{}", unseen.join("\n"));
}

fn say(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{text}");
}
