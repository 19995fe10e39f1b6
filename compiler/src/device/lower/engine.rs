//! All copies of a rank as one phase of nothing else, for engines that make them between two parts of its kernel.
//!
//! What the copies wait for is waited for in the phases before. Signals that tell that this rank's memory may be read
//! go before the copies too, unless these write there: so peers do not wait for what a rank copies for itself.

use super::super::{Arm, DeviceProgram, Event, Phase, Source, Wait};
use super::{Refused, reads};
use crate::num::{count, index};
use crate::plan::{Buf, Dir, Region};

/// Programs whose messages are pulled, with the copies of each in one phase.
pub(super) fn apart(mut programs: Vec<DeviceProgram>) -> Result<Vec<DeviceProgram>, Refused> {
    let offered: Vec<Vec<Region>> =
        (0..count(programs.len())).map(|r| read(&programs, r)).collect();
    for (program, offered) in programs.iter_mut().zip(&offered) {
        let reduces = program.header.reduces;
        for arm in program.phases.iter().flat_map(|phase| &phase.arms).filter(|arm| arm.moves()) {
            let can =
                if reduces { Err("adds operands, here or in another step") } else { copies(arm) };
            can.map_err(|what| refused(program, arm, what))?;
        }
        let phases = program.phases.iter();
        if let Some(last) = phases.clone().rposition(|phase| phase.arms.iter().any(Arm::moves)) {
            movable(program, last, offered)?;
            split(program, last, offered);
        }
    }
    Ok(programs)
}

fn refused(program: &DeviceProgram, arm: &Arm, what: &str) -> Refused {
    let (rank, line) = (program.rank, program.sites.get(index(arm.site)).map_or(0, |s| s.line));
    Refused(format!(
        "copy engines only copy, once a call: rank {rank}, step {} (line {line}) {what}",
        arm.round
    ))
}

/// What peers read of a rank's memory.
fn read(programs: &[DeviceProgram], rank: u32) -> Vec<Region> {
    let mut regions = Vec::new();
    for program in programs {
        for source in program.phases.iter().flat_map(|p| &p.arms).flat_map(|arm| &arm.inputs) {
            if let Source::Pulled(m, region) = source
                && program.links[index(m.link)].peer == rank
            {
                regions.push(region.clone());
            }
        }
    }
    regions
}

/// Whether an arm is a copy from one of the callers' buffers to another.
fn copies(arm: &Arm) -> Result<(), &'static str> {
    let from = match &arm.inputs[..] {
        [Source::Local(region) | Source::Pulled(_, region)] => region,
        [_] => return Err("moves what cannot be read where it lies, or is rounded on the way"),
        _ => return Err("adds operands"),
    };
    let (Some(to), []) = (&arm.store, &arm.outs[..]) else {
        return Err("moves what cannot be read where it lies, or is rounded on the way");
    };
    let mut pieces = from.pieces.iter().chain(&to.pieces);
    match pieces.any(|piece| matches!(piece.buf, Buf::Scratch(_))) {
        true => Err("uses scratch memory"),
        false => Ok(()),
    }
}

/// Whether copies before the last phase of them can be made in that one: they are this rank's own, and nobody counts
/// on them.
fn movable(program: &DeviceProgram, last: usize, offered: &[Region]) -> Result<(), Refused> {
    let (before, from) = program.phases.split_at(last);
    let later = &from[0].arms;
    for arm in before.iter().flat_map(|phase| &phase.arms).filter(|arm| arm.moves()) {
        let overlaps = |a: &Region, b: &Region| a.overlaps(b);
        let stores = arm.store.iter().any(|store| {
            offered.iter().any(|region| overlaps(store, region))
                || later.iter().flat_map(reads).any(|region| overlaps(store, region))
                || later.iter().flat_map(|l| &l.store).any(|region| overlaps(store, region))
        });
        let overwritten =
            reads(arm).any(|r| later.iter().flat_map(|l| &l.store).any(|s| overlaps(r, s)));
        let pulls = matches!(arm.inputs[..], [Source::Pulled(..)]);
        if pulls || stores || overwritten {
            return Err(refused(program, arm, "copies what a later step counts on"));
        }
    }
    Ok(())
}

fn split(program: &mut DeviceProgram, last: usize, offered: &[Region]) {
    let rest = program.phases.split_off(last + 1);
    let (mut copies, mut phases) = (Vec::new(), Vec::new());
    for mut phase in std::mem::take(&mut program.phases) {
        let (moving, mut arms): (Vec<Arm>, Vec<Arm>) = phase.arms.drain(..).partition(Arm::moves);
        for mut arm in moving {
            let waits = std::mem::take(&mut arm.waits);
            if !waits.is_empty() {
                let (inputs, outs) = (Vec::new(), Vec::new());
                arms.push(Arm { waits, inputs, store: None, outs, ..arm.clone() });
            }
            copies.push(arm);
        }
        phases.push(Phase { arms, ..phase });
    }
    latest(&mut phases);
    let stored = copies.iter().flat_map(|copy: &Arm| &copy.store);
    let written = stored.into_iter().any(|s| offered.iter().any(|region| region.overlaps(s)));
    let links = &program.links;
    let mut late = Vec::new();
    if let Some(phase) = phases.last_mut() {
        let early = |link: u32| links[index(link)].dir == Dir::Send && !written;
        (phase.signals, late) = phase.signals.drain(..).partition(|s| early(s.message.link));
    }
    // Meetings are there for what was waited for, not for copies any more.
    let mut unmet = false;
    for phase in phases {
        unmet |= !phase.arms.is_empty();
        let meet = phase.meet && unmet;
        unmet &= !meet;
        if !phase.arms.is_empty() || !phase.signals.is_empty() {
            program.phases.push(Phase { meet, ..phase });
        } else if let (true, Some(before)) = (meet, program.phases.last_mut()) {
            before.meet = true;
        }
    }
    if let (true, Some(before)) = (unmet, program.phases.last_mut()) {
        before.meet = true;
    }
    program.phases.push(Phase { arms: copies, meet: !late.is_empty(), signals: late });
    program.phases.extend(rest);
}

/// Of waits for several messages of a link only the last is kept: it stands for all.
fn latest(phases: &mut [Phase]) {
    let all: Vec<Wait> =
        phases.iter().flat_map(|p| &p.arms).flat_map(|a| &a.waits).copied().collect();
    let later = |wait: &Wait| match wait.event {
        Event::Sent(m) => all.iter().any(|other| match other.event {
            Event::Sent(o) => o.link == m.link && o.index > m.index,
            _ => false,
        }),
        _ => false,
    };
    for phase in phases {
        phase.arms.iter_mut().for_each(|arm| arm.waits.retain(|wait| !later(wait)));
        phase.arms.retain(|arm| !arm.waits.is_empty());
    }
}
