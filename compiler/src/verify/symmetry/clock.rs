//! Deadlock and races on one rank's plan, with the round as a clock.
//!
//! Time is the round of the program, and in it first what waits for no message, then what does. On every
//! rank a message is sent at the time of its own round or before, and taken in the second half of that
//! round. If no operation waits for anything of its own time or later, but for earlier ones of its own
//! rank, then the operation of least time and place that is stuck waits for one that is not: nothing is.
//!
//! The checks use this rank's plan and its own transfers, and not the order in which operations and messages
//! of one round stand. So their results hold for the ranks that this one stands for too, whose chunks are
//! numbered otherwise and whose operations of a round may stand in another order.

use std::collections::BTreeMap;

use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use roundelay_dsl::span::SourceMap;

use super::attempt::RankLowering;
use crate::instance::ProgramInstance;
use crate::num::{count, index};
use crate::plan::{BufferPlacement, MAX_SLOTS, MessageDirection, OperationInput, UnprovedPlan};
use crate::verify::plan::races;
use crate::walk::{ChunkTransfer, RankProjection};

/// A round, and its half.
type HalfRound = (u32, u8);

/// The rounds of the messages of each connection, ascending: peer, channel, direction.
type ConnectionRounds = BTreeMap<(u32, u16, bool), Vec<u32>>;

/// Proves the plans of a rank that stands for others.
pub(super) fn check(
    instance: &ProgramInstance,
    sources: &SourceMap,
    lower: RankLowering<'_>,
    own: &RankProjection,
) -> Result<(), Diagnostics> {
    let rounds = rounds(&own.transfers, own.rank);
    let one = |placement: BufferPlacement| {
        let plan = lower(own, placement)?;
        plan.consistent().map_err(|e| vec![fault(instance, e.to_string())])?;
        races(instance, sources, &plan.part).map_err(|d| vec![d])?;
        times(instance, &plan, &rounds).map_err(|d| vec![d])
    };
    // The placements have nothing in common, and are two thirds of a proof of many rounds.
    match *instance.program.style.placements() {
        [a, b] => {
            let (first, second) = std::thread::scope(|scope| {
                let second = std::thread::Builder::new().spawn_scoped(scope, || one(b));
                let first = one(a);
                // The system may start no thread: then one after the other.
                (first, second.map_or_else(|_| Ok(one(b)), |second| second.join()))
            });
            first.and(second.unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
        }
        ref all => all.iter().try_for_each(|&placement| one(placement)),
    }
}

fn fault(instance: &ProgramInstance, message: String) -> Diagnostic {
    Diagnostic::error(codes::DEADLOCK, message)
        .label(instance.program.header, format!("on {} ranks", instance.shape))
}

fn rounds(transfers: &[ChunkTransfer], rank: u32) -> ConnectionRounds {
    let mut rounds = ConnectionRounds::new();
    for t in transfers {
        if t.src == rank {
            rounds.entry((t.dst, t.lane, true)).or_default().push(t.round);
        }
        if t.dst == rank {
            rounds.entry((t.src, t.lane, false)).or_default().push(t.round);
        }
    }
    rounds
}

/// Checks that every wait is for something of an earlier time.
fn times(
    instance: &ProgramInstance,
    plan: &UnprovedPlan,
    rounds: &ConnectionRounds,
) -> Result<(), Diagnostic> {
    let (part, placement) = (&plan.part, plan.header.placement);
    let wrong = |what: String| Err(fault(instance, format!("rank {}: {what}", part.rank)));
    let of = |conn: u32| {
        let c = &part.conns[index(conn)];
        rounds
            .get(&(c.peer, c.channel, c.dir == MessageDirection::Send))
            .map_or(&[][..], Vec::as_slice)
    };
    let mut at: Vec<Vec<HalfRound>> = Vec::with_capacity(part.lanes.len());
    let mut next = vec![0usize; part.conns.len()];
    let mut sent: Vec<Vec<HalfRound>> = vec![Vec::new(); part.conns.len()];
    for lane in &part.lanes {
        let (mut last, mut own) = ((0, 0), Vec::with_capacity(lane.ops.len()));
        for op in &lane.ops {
            // Copies of what no round writes stand wherever there is time.
            let loose =
                op.round == u32::MAX && placement == BufferPlacement::OutOfPlace && !op.receives();
            let now = if loose { last } else { (op.round, u8::from(op.receives())) };
            if now < last {
                return wrong(format!("round {} is run after a later one", op.round));
            }
            last = now;
            own.push(now);
            for input in &op.inputs {
                if let OperationInput::Message { conn, .. } = input {
                    let i = &mut next[index(*conn)];
                    if of(*conn).get(*i) != Some(&op.round) {
                        return wrong(format!("round {} takes another round's message", op.round));
                    }
                    *i += 1;
                }
            }
            for out in &op.outs {
                let list = &mut sent[index(out.conn)];
                let own = of(out.conn).get(list.len());
                // A message that leaves with what made it leaves in an earlier round.
                if own.is_none_or(|&round| now > (round, 0)) {
                    return wrong(format!("a message leaves after its round, in {}", op.round));
                }
                list.push(now);
            }
        }
        at.push(own);
    }
    for (c, (taken, sent)) in next.iter().zip(&sent).enumerate() {
        if (*taken).max(sent.len()) != of(count(c)).len() {
            return wrong("messages are left over".into());
        }
    }
    for (lane, own) in part.lanes.iter().zip(&at) {
        for (op, &now) in lane.ops.iter().zip(own) {
            if op.after.iter().any(|a| at[index(a.lane)][index(a.op)] > now) {
                return wrong(format!("round {} waits for a later one", op.round));
            }
            let late = |conn: u32, message: u32| {
                of(conn).get(index(message)).is_none_or(|&round| (round, 1) >= now)
            };
            if op.drained.iter().any(|m| late(m.conn, m.message)) {
                return wrong(format!(
                    "round {} waits for a message that is taken later",
                    op.round
                ));
            }
        }
    }
    slots(instance, &sent, of)
}

/// Checks the messages in flight on a connection: message i leaves once message i - k was taken, for the
/// least number k of slots that serves all of them.
fn slots<'r>(
    instance: &ProgramInstance,
    sent: &[Vec<HalfRound>],
    of: impl Fn(u32) -> &'r [u32],
) -> Result<(), Diagnostic> {
    let mut least = 1;
    for (c, sent) in sent.iter().enumerate() {
        let taken = of(count(c));
        for (i, &now) in sent.iter().enumerate() {
            let before = taken[..i].partition_point(|&round| (round, 1) < now);
            least = least.max(i + 1 - before);
        }
    }
    match instance.slots {
        Some(k) if least > index(k) => Err(fault(
            instance,
            format!("{least} messages may be in flight on a connection, and {k} slots are asked for"),
        )
        .help(format!("write `slots {least}`, or leave `slots` out; check at fewer ranks for the least number: this proof is by a clock and stricter than it need be"))),
        _ if least > index(MAX_SLOTS) => Err(Diagnostic::error(
            codes::SLOTS,
            format!("{least} messages are in flight on one connection; {MAX_SLOTS} are possible"),
        )
        .label(instance.program.header, format!("on {} ranks", instance.shape))
        .help("send fewer messages between two ranks in one `each`: join their chunks into one region")),
        _ => Ok(()),
    }
}
