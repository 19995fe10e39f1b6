//! Proof by symmetry: one rank stands for all.
//!
//! If the program maps onto itself when every rank r becomes r + 1 modulo n (*shift*) or, for n a
//! power of two, r xor 1, 2, 4, … (*xor*), and chunks move along, then what holds of rank 0 holds of
//! every rank. Only rank 0's memory is replayed; what it reads of rank g is its own memory moved by
//! g. The map is checked before it is used: by form, where indices are `(r + c) % n`, or else by
//! comparing every rank's transfers with the images of rank 0's.
//!
//! Deadlock and races are proved on rank 0's plan alone, with the round as a clock: every wait must
//! be for something of an earlier time, and equal ranks keep equal time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use roundelay_dsl::span::SourceMap;

use super::Facts;
use super::plan::races;
use super::rounds::{State, place_value, round_of};
use super::value::{RankSet, Value};
use crate::collective::Kind;
use crate::instance::Instance;
use crate::places::Places;
use crate::plan::{Buf, Dir, Input, Op, Piece, Placement, Plan, Region};
use crate::program::{Buffer, Style};
use crate::walk::{Transfer, walk};

/// The group that maps the program onto itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Shift,
    Xor,
}

impl Group {
    /// Where rank 0's image under `g` has what rank 0 has at `x`, among `n`.
    fn apply(self, x: u32, g: u32, n: u32) -> u32 {
        match self {
            Group::Shift => ((x as u64 + g as u64) % n as u64) as u32,
            Group::Xor => x ^ g,
        }
    }

    /// The element that takes `g` back to 0.
    fn inverse(self, g: u32, n: u32) -> u32 {
        match self {
            Group::Shift => (n - g) % n,
            Group::Xor => g,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Group::Shift => "shift",
            Group::Xor => "xor",
        }
    }
}

/// How chunks move along with ranks.
struct Action {
    group: Group,
    n: u32,
    chunks: u32,
    /// Chunks that a rank's step moves the vector by; 0 if it stays.
    data: u32,
    /// Whether input and output are the whole vector, and not a rank's own block.
    whole: [bool; 2],
    /// Whether chunks of different index differ in size, so that classes move like chunks.
    classes: bool,
}

/// More rank-by-rank comparisons than this are not made.
const MOST_CHECKS: u64 = 1 << 25;

/// Tries both groups. `None` if the program has no symmetry that this recognises.
pub fn prove(
    instance: &Arc<Instance>,
    sources: &SourceMap,
) -> Result<Option<(Facts, &'static str)>, Diagnostics> {
    let spec = &instance.spec;
    let kind = &spec.kind;
    let shape = instance.shape.axes.len() == 1 && instance.channels == 1;
    // Knowledge spreads lane by lane, which the replay of one rank does not follow.
    let torn = *kind == Kind::Barrier && instance.program.composed;
    if !shape
        || torn
        || kind.rooted()
        || matches!(kind, Kind::Custom(_) | Kind::SendRecv)
        || spec.ranks < 2
    {
        return Ok(None);
    }
    let data = if spec.chunks.is_multiple_of(spec.ranks) { spec.chunks / spec.ranks } else { 0 };
    for group in [Group::Shift, Group::Xor] {
        if group == Group::Xor && !(spec.ranks.is_power_of_two() && spec.chunks.is_power_of_two()) {
            continue;
        }
        let whole = [Buffer::Input, Buffer::Output].map(|b| spec.size(b) == spec.chunks);
        let classes = spec.blocks() == 1;
        let action = Action { group, n: spec.ranks, chunks: spec.chunks, data, whole, classes };
        if equivariant(instance, &action)? {
            return orbit(instance, sources, &action).map(|facts| Some((facts, group.name())));
        }
    }
    Ok(None)
}

impl Action {
    /// The image of a chunk of a buffer.
    fn chunk(&self, buf: Buf, chunk: u32, g: u32) -> u32 {
        if self.data == 0 || !self.moves(buf) {
            return chunk;
        }
        match self.group {
            Group::Shift => {
                ((chunk as u64 + g as u64 * self.data as u64) % self.chunks as u64) as u32
            }
            Group::Xor => chunk ^ (g * self.data),
        }
    }

    /// Whether a buffer is indexed by rank: the vector is; scratch and blocks belong to their rank.
    fn moves(&self, buf: Buf) -> bool {
        match buf {
            Buf::Data => true,
            Buf::Input => self.whole[0],
            Buf::Output => self.whole[1],
            Buf::Scratch(_) => false,
        }
    }

    fn value(&self, v: &Value, g: u32) -> Value {
        let mut v = v.clone();
        for (chunk, ranks) in &mut v.parts {
            *chunk = self.chunk(Buf::Data, *chunk, g);
            *ranks = match self.group {
                Group::Shift => ranks.shifted(g, self.n),
                Group::Xor => ranks.xored(g, self.n),
            };
        }
        if self.classes {
            v.class = self.chunk(Buf::Data, v.class, g);
        }
        v
    }
}

/// Whether every round maps onto itself.
fn equivariant(instance: &Instance, action: &Action) -> Result<bool, Diagnostics> {
    let (mut holds, mut checks) = (true, 0u64);
    let mut all: Vec<Transfer> = Vec::new();
    let done = walk(instance, &mut |round| {
        if action.group == Group::Shift
            && round.shifts(&|buf| action.data != 0 && action.moves(buf))
        {
            return Ok(ControlFlow::Continue(()));
        }
        checks += action.n as u64;
        if checks > MOST_CHECKS {
            holds = false;
            return Ok(ControlFlow::Break(()));
        }
        all.clear();
        round.all(&mut all)?;
        holds = images(&mut all, action);
        Ok(if holds { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    match done {
        Ok(()) => Ok(holds),
        // Faults of evaluation are found again, and explained, by the other proof.
        Err(_) => Ok(false),
    }
}

/// Whether the transfers into every rank are the images of those into rank 0.
fn images(all: &mut [Transfer], action: &Action) -> bool {
    all.sort_by_key(|t| (t.dst, t.key));
    let mut by_rank: Vec<&[Transfer]> = vec![&[]; action.n as usize];
    for list in all.chunk_by(|a, b| a.dst == b.dst) {
        by_rank[list[0].dst as usize] = list;
    }
    let zero = by_rank[0];
    by_rank.iter().enumerate().all(|(g, list)| {
        let g = g as u32;
        // Order within a rank follows the source's number, which the map permutes: compare as sets.
        list.len() == zero.len()
            && zero.iter().all(|t| {
                let src = action.group.apply(t.src, g, action.n);
                list.iter().any(|u| {
                    u.src == src && u.op == t.op && u.wire == t.wire && moved(t, u, g, action)
                })
            })
    })
}

/// Whether the regions of `u` are the images of those of `t`, chunk for chunk.
fn moved(t: &Transfer, u: &Transfer, g: u32, action: &Action) -> bool {
    let pieces = |r: &'_ Region| match r.pieces.as_slice() {
        [p] => Some(*p),
        _ => None,
    };
    let all = [pieces(&t.from), pieces(&u.from), pieces(&t.to), pieces(&u.to)];
    let [Some(fa), Some(fb), Some(ta), Some(tb)] = all else { return false };
    if fa.buf != fb.buf
        || ta.buf != tb.buf
        || fa.set.total != fb.set.total
        || ta.set.total != tb.set.total
    {
        return false;
    }
    let exact = |a: Piece, b: Piece| {
        a.set.total <= 64
            && a.set.iter().zip(b.set.iter()).all(|(x, y)| action.chunk(a.buf, x, g) == y)
    };
    if exact(fa, fb) && exact(ta, tb) {
        return true;
    }
    // Same region on both sides: the pairing is the identity, so equal sets suffice.
    if fa.set != ta.set || fb.set != tb.set || fa.buf != ta.buf {
        return false;
    }
    let total = fa.set.total;
    let still = action.data == 0 || !action.moves(fa.buf) || total == fa.set.modulus;
    if still {
        return fa.set == fb.set;
    }
    let aligned = |s: u32| total.is_power_of_two() && s.is_multiple_of(total);
    match action.group {
        Group::Shift => {
            fa.set.is_interval()
                && fb.set.is_interval()
                && action.chunk(fa.buf, fa.set.start, g) == fb.set.start
        }
        Group::Xor => {
            fa.set.is_interval()
                && fb.set.is_interval()
                && aligned(fa.set.start)
                && aligned(fb.set.start)
                && action.chunk(fa.buf, fa.set.start, g) / total == fb.set.start / total
        }
    }
}

/// Replays rank 0, whose peers are its images.
fn orbit(
    instance: &Arc<Instance>,
    sources: &SourceMap,
    action: &Action,
) -> Result<Facts, Diagnostics> {
    let mut state = own_state(instance, action);
    let mut crowded = false;
    let barrier = instance.spec.kind == Kind::Barrier;
    let mut found: Vec<Diagnostic> = Vec::new();
    let mut facts = Facts {
        depth: 0,
        messages: 0,
        sent: 0,
        received: 0,
        bitwise: None,
        ordered: None,
        lossy: false,
    };
    let mut list: Vec<Transfer> = Vec::new();
    let done = walk(instance, &mut |round| {
        list.clear();
        round.of(0, &mut list)?;
        let away = |t: &&Transfer| t.src != t.dst;
        facts.depth += u32::from(list.iter().any(|t| away(&t)));
        facts.messages +=
            list.iter().filter(|t| t.src == 0 && away(t)).count() as u64 * action.n as u64;
        facts.sent += list
            .iter()
            .filter(|t| t.src == 0 && away(t))
            .map(|t| t.from.chunks() as u64)
            .sum::<u64>();
        facts.received += list
            .iter()
            .filter(|t| t.dst == 0 && away(t))
            .map(|t| t.from.chunks() as u64)
            .sum::<u64>();
        facts.lossy |= list.iter().filter(away).any(|t| t.wire.is_some());
        let into: Vec<&Transfer> = list.iter().filter(|t| t.dst == 0).collect();
        crowded |= into.iter().enumerate().any(|(i, t)| into[..i].iter().any(|u| u.to == t.to));
        if barrier {
            let before = state.heard[0].clone();
            for t in &into {
                let of = match action.group {
                    Group::Shift => before.shifted(t.src, action.n),
                    Group::Xor => before.xored(t.src, action.n),
                };
                state.heard[0] = state.heard[0].union(&of);
            }
        }
        round_of(instance, &mut state, &into, &mut found, &|state, t, buf, chunk| {
            let back = action.group.inverse(t.src, action.n);
            let own = action.chunk(buf, chunk, back);
            place_value(state, 0, buf, own).map(|v| action.value(v, t.src))
        });
        Ok(if found.is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    done.map_err(|d| vec![*d])?;
    if !found.is_empty() {
        return Err(found);
    }
    // Sums of more than two are ordered by rank, which the map permutes.
    let same = result(instance, &state, action)?;
    facts.bitwise = (same && !crowded).then_some(true);
    let placement = match instance.program.style {
        Style::Data => Placement::InPlace,
        Style::InputOutput => Placement::OutOfPlace,
    };
    let plan = crate::lower::project(instance, sources, placement, 0)?;
    plan.check().map_err(|e| vec![fault(instance, e)])?;
    races(instance, sources, &plan.part).map_err(|d| vec![d])?;
    clock(instance, &plan, action).map_err(|d| vec![d])?;
    Ok(facts)
}

fn fault(instance: &Instance, message: String) -> Diagnostic {
    Diagnostic::error(codes::DEADLOCK, message)
        .label(instance.program.header, format!("on {} ranks", instance.shape))
}

/// Rank 0's memory before the first round.
///
/// Leaves of the trees of additions are named by their rank as seen from the chunk's own rank, which
/// the map does not change: so the image of a tree has the tree's hash.
fn own_state(instance: &Instance, action: &Action) -> State {
    let places = Places::new(instance);
    let mut values = vec![None; places.per_rank as usize];
    let (buffer, buf) = match instance.program.style {
        Style::Data => (Buffer::Data, Buf::Data),
        Style::InputOutput => (Buffer::Input, Buf::Input),
    };
    for chunk in 0..instance.spec.size(buffer) {
        if let Some((rank, c)) = instance.spec.initial(buffer, 0, chunk) {
            let class = super::rounds::class_of(instance, chunk);
            let per = action.data.max(1);
            let back = action.group.inverse(c / per % action.n, action.n);
            let seen = Value::leaf(action.group.apply(rank, back, action.n), c % per, class);
            let value = Value { tree: seen.tree, ..Value::leaf(rank, c, class) };
            values[places.local(buf, chunk)] = Some(value);
        }
    }
    State { values, places, heard: vec![RankSet::one(0)] }
}

/// Checks rank 0's result; gives whether its sums, seen from their chunks' own ranks, are alike, so
/// that every rank holds the same ones.
fn result(instance: &Instance, state: &State, action: &Action) -> Result<bool, Diagnostics> {
    let n = instance.ranks();
    let missing = |text: String| {
        Err(vec![
            Diagnostic::error(codes::MISSING, text)
                .label(instance.program.header, format!("on {} ranks", instance.shape))
                .note("found by symmetry: every rank fails alike")
                .help("check it at a small number of ranks for a full trace"),
        ])
    };
    if instance.spec.kind == Kind::Barrier {
        let heard = &state.heard[0];
        return if *heard == RankSet::all(n) {
            Ok(false)
        } else {
            missing(format!("rank 0 has heard of {heard} only"))
        };
    }
    let (buffer, buf) = match instance.program.style {
        Style::Data => (Buffer::Data, Buf::Data),
        Style::InputOutput => (Buffer::Output, Buf::Output),
    };
    let (mut trees, mut same) = (BTreeMap::new(), true);
    for chunk in 0..instance.spec.size(buffer) {
        let Some(expected) = instance.spec.expected(buffer, 0, chunk) else { continue };
        let value = place_value(state, 0, buf, chunk);
        if !value.is_some_and(|v| v.is(&expected, n)) {
            let ends = value.map_or("nothing".into(), Value::to_string);
            return missing(format!("rank 0's chunk {chunk} ends as {ends}, not as {expected:?}"));
        }
        let per = action.data.max(1);
        let tree = value.map_or(0, |v| v.tree);
        let first = *trees.entry(expected.chunk % per).or_insert(tree);
        same &= first == tree;
    }
    let single = instance.spec.kind == Kind::ReduceScatter;
    Ok(instance.spec.kind.reduces() && (single || (same && action.data != 0)))
}

/// Every wait of rank 0's plan is for an earlier time. The time of an operation is its round, sends
/// before what receives; a peer's message i is consumed when rank 0 consumes message i of the mirror
/// connection.
fn clock(instance: &Instance, plan: &Plan, action: &Action) -> Result<(), Diagnostic> {
    let part = &plan.part;
    let mut sent: BTreeMap<(u32, u16), Vec<(u32, u8)>> = BTreeMap::new();
    let mut taken: BTreeMap<(u32, u16), Vec<(u32, u8)>> = BTreeMap::new();
    for lane in &part.lanes {
        let mut last = (0, 0);
        for op in &lane.ops {
            let now = time(op);
            if now < last {
                return Err(fault(
                    instance,
                    format!("round {} is played after a later one", op.round),
                ));
            }
            last = now;
            for input in &op.inputs {
                if let Input::Message { conn, .. } = input {
                    let c = part.conns[*conn as usize];
                    taken.entry((c.peer, c.channel)).or_default().push(now);
                }
            }
            for out in &op.outs {
                let c = part.conns[out.conn as usize];
                sent.entry((c.peer, c.channel)).or_default().push(now);
            }
        }
    }
    let slots = plan.header.slots as usize;
    let none = Vec::new();
    for ((peer, channel), out) in &sent {
        // Rank 0 sends to `peer` what the rank that `peer` mirrors sends to rank 0.
        let mirror = action.group.inverse(*peer, action.n);
        let into = taken.get(&(mirror, *channel)).unwrap_or(&none);
        if into.len() != out.len() {
            return Err(fault(
                instance,
                format!("{} messages leave for rank {peer}, {} are taken", out.len(), into.len()),
            ));
        }
        for (i, (&s, &t)) in out.iter().zip(into).enumerate() {
            if s >= t {
                return Err(fault(
                    instance,
                    format!("message {i} to rank {peer} is taken before it is sent"),
                ));
            }
            if i >= slots && into[i - slots] >= s {
                return Err(fault(instance, format!("message {i} to rank {peer} needs more than {slots} slots"))
                    .help("this proof is by a clock and stricter than it need be; check at fewer ranks for the exact answer"));
            }
        }
    }
    for op in part.lanes.iter().flat_map(|l| &l.ops) {
        for m in &op.drained {
            let c = part.conns[m.conn as usize];
            debug_assert!(c.dir == Dir::Send);
            let mirror = action.group.inverse(c.peer, action.n);
            let consumed = taken.get(&(mirror, c.channel)).and_then(|t| t.get(m.message as usize));
            if consumed.is_none_or(|&t| t >= time(op)) {
                return Err(fault(
                    instance,
                    format!("round {} waits for a message that is taken later", op.round),
                ));
            }
        }
    }
    Ok(())
}

/// The round; sends, which wait for no message, come first in it.
fn time(op: &Op) -> (u32, u8) {
    let receives = op.inputs.iter().any(|i| matches!(i, Input::Message { .. }));
    (op.round, u8::from(receives || op.outs.is_empty()))
}
