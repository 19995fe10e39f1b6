//! Replays the rounds on symbolic values, and checks what one round may do.
//!
//! A sum that counts a contribution twice, or adds different chunks, is no fault of its round:
//! perhaps no result needs it. It is remembered as spoilt, with the reason, and reported if a result holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use super::faults::{GraphFaults, MOST};
use super::value::{PlaceValue, SpoiltSum, SumClash};
use crate::cells::PlaceCells;
use crate::graph::{ChunkTransfer, asked, buf_name};
use crate::instance::ProgramInstance;
use crate::num::index;
use crate::places::PlaceNumbers;
use crate::plan::PlanBuffer;
use crate::program::{BufferStyle, CollectiveKind, ProgramBuffer};
use crate::ranks::RankSet;
use crate::walk::walk;

/// The values of all places after a round.
pub(crate) struct RoundState {
    /// By place; see [`PlaceNumbers`].
    pub(crate) values: PlaceCells<Option<PlaceValue>>,
    pub(crate) places: PlaceNumbers,
    /// For each rank of a barrier, the ranks on whose start its progress depends.
    pub(crate) started: Vec<RankSet>,
    /// Rounds with statements of them that changed nothing: every place held what was copied there.
    pub(crate) idle: BTreeSet<(u32, Span)>,
    /// Intervals of ranks that the values hold beside their own size.
    pub(crate) scattered: u64,
}

/// More intervals of ranks are not held by all values together: they take a gigabyte.
const MOST_SCATTERED: u64 = 1 << 27;

impl RoundState {
    /// Returns the value of a place; `None` if it holds none.
    pub(crate) fn value(&self, place: usize) -> Option<&PlaceValue> {
        self.values.get(place)?.as_ref()
    }

    /// Stores a value; an error if all of them hold too many intervals of ranks.
    fn store(&mut self, place: usize, value: PlaceValue) -> Result<(), TooScattered> {
        self.scattered += value.scattered();
        let old = self.values.at(place).replace(value);
        let gone = old.map_or(0, |old| old.scattered());
        // What was there from the start was not counted.
        self.scattered -= gone.min(self.scattered);
        if self.scattered > MOST_SCATTERED { Err(TooScattered) } else { Ok(()) }
    }
}

/// Values, or the sets of ranks that ranks know to have arrived, are of too many intervals of ranks together.
struct TooScattered;

impl TooScattered {
    /// Returns the refusal to replay more, at a transfer.
    fn refusal(self, instance: &ProgramInstance, t: &ChunkTransfer) -> StatementFinding {
        let d = Diagnostic::error(
            codes::TOO_BIG,
            format!(
                "`{}` is too large to prove: its sums are of too scattered ranks",
                instance.program.name
            ),
        )
        .label(t.span, format!("on {} ranks, in round {}", instance.shape, t.round))
        .help("check it at fewer ranks, or sum along the last axis of the grid first");
        (t.span, d)
    }
}

/// Replays the graph from the initial state of its collective. Of strands with a fault, what comes after it is left
/// out.
pub(super) fn replay(faults: &mut GraphFaults<'_>) -> RoundState {
    let graph = faults.graph;
    let instance = &graph.instance;
    let mut state = initial(instance);
    let barrier = instance.spec.kind == CollectiveKind::Barrier;
    let mut lanes: BTreeMap<u16, Vec<RankSet>> = BTreeMap::new();
    let steps: Vec<&ChunkTransfer> = graph.graph.node_weights().collect();
    for round in steps.chunk_by(|a, b| a.round == b.round) {
        if barrier {
            spread(&mut lanes, &state.started, round);
            let own = |started: &RankSet| started.unshared();
            if lanes.values().flatten().map(own).sum::<u64>() > MOST_SCATTERED {
                faults.extend(vec![TooScattered.refusal(instance, round[0])]);
                break;
            }
        }
        // A round that is left because of one strand is run without it.
        loop {
            let mut found = Vec::new();
            let executed = step(instance, &mut state, &faults.sound(round), &mut found);
            faults.extend(found);
            if executed {
                break;
            }
        }
        if faults.full() {
            break;
        }
    }
    join_lanes(&mut state, &lanes);
    state
}

/// Joins, over all lanes, which ranks the ranks of a barrier know to have arrived.
fn join_lanes(state: &mut RoundState, lanes: &BTreeMap<u16, Vec<RankSet>>) {
    for lane in lanes.values() {
        for (started, on_lane) in state.started.iter_mut().zip(lane) {
            *started = started.union(on_lane);
        }
    }
}

/// The end of a replay that needs no graph.
pub(crate) enum ReplayEnd {
    /// The state after the last round, and the chunks that were moved.
    Whole(RoundState, u64),
    /// The number of the first round with a fault, of which nothing more is known, and the chunks that were moved.
    Fault(u32, u64),
    /// Something cannot be evaluated, at this place, or more chunks are moved than are allowed; the number moved.
    Stopped(Option<Span>, u64),
}

/// Replays an instance round by round, up to the first fault.
pub(crate) fn replay_instance(instance: &ProgramInstance) -> ReplayEnd {
    if asked(instance) > instance.options.limit {
        return ReplayEnd::Stopped(None, 0);
    }
    let mut state = initial(instance);
    let barrier = instance.spec.kind == CollectiveKind::Barrier;
    let mut lanes: BTreeMap<u16, Vec<RankSet>> = BTreeMap::new();
    let (mut transfers, mut found, mut moves) = (Vec::new(), Vec::new(), 0);
    let (mut fault, mut large) = (None, false);
    let done = walk(instance, &mut |round| {
        transfers.clear();
        round.visit(&mut |t| {
            moves += 1 + u64::from(t.from.chunks());
            large = moves > instance.options.limit;
            if large {
                // A round may have more transfers than can be visited.
                let text = "more chunks are moved than are allowed";
                return Err(Box::new(Diagnostic::error(codes::TOO_BIG, text)));
            }
            transfers.push(t);
            Ok(())
        })?;
        transfers.sort_unstable_by(|a: &ChunkTransfer, b| a.key.cmp(&b.key));
        let steps: Vec<&ChunkTransfer> = transfers.iter().collect();
        if barrier {
            spread(&mut lanes, &state.started, &steps);
        }
        if !step(instance, &mut state, &steps, &mut found) || !found.is_empty() {
            fault = Some(round.index);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    });
    join_lanes(&mut state, &lanes);
    match fault {
        Some(round) => ReplayEnd::Fault(round, moves),
        None if large => ReplayEnd::Stopped(None, moves),
        None => match done {
            Ok(()) => ReplayEnd::Whole(state, moves),
            Err(d) => ReplayEnd::Stopped(d.span(), moves),
        },
    }
}

/// Returns the state before the first round.
pub(crate) fn initial(instance: &ProgramInstance) -> RoundState {
    let places = PlaceNumbers::new(instance);
    let n = instance.ranks();
    // Unrolling refuses more places than can be numbered.
    let mut values = PlaceCells::new(places.all(n).unwrap_or(usize::MAX));
    let (buffer, buf) = match instance.program.style {
        BufferStyle::Data => (ProgramBuffer::Data, PlanBuffer::Data),
        BufferStyle::InputOutput => (ProgramBuffer::Input, PlanBuffer::Input),
    };
    for rank in 0..n {
        for chunk in instance.spec.initial_chunks(buffer, rank).iter().flat_map(|set| set.iter()) {
            if let Some((from, c)) = instance.spec.initial(buffer, rank, chunk) {
                let leaf = PlaceValue::leaf(from, c, class_of(instance, chunk));
                *values.at(places.of(rank, buf, chunk)) = Some(leaf.of(&instance.spec));
            }
        }
    }
    let started = (0..n).map(RankSet::one).collect();
    RoundState { values, places, started, idle: BTreeSet::new(), scattered: 0 }
}

/// Returns the class of a chunk. Chunks of one class have the same number of elements, whatever the count.
pub(crate) fn class_of(instance: &ProgramInstance, chunk: u32) -> u32 {
    if instance.spec.blocks() > 1 { chunk % instance.spec.per_block().max(1) } else { chunk }
}

/// Spreads the ranks on whose start progress depends along the messages of a round of a barrier. Lanes do not wait
/// for each other, so what arrived on one is sent on by it alone.
fn spread(lanes: &mut BTreeMap<u16, Vec<RankSet>>, start: &[RankSet], round: &[&ChunkTransfer]) {
    for steps in round.chunk_by(|a, b| a.lane == b.lane) {
        let after = lanes.entry(steps[0].lane).or_insert_with(|| start.to_vec());
        let before = after.clone();
        for t in steps {
            let own = &mut after[index(t.dst)];
            *own = own.union(&before[index(t.src)]);
        }
    }
}

/// One write into one place.
struct RoundWrite {
    to: usize,
    step: usize,
    src: u32,
    op: TransferOp,
    value: PlaceValue,
}

/// The value that a transfer reads at a chunk of a buffer of its source.
type ReadValue<'r> = &'r dyn Fn(&RoundState, &ChunkTransfer, PlanBuffer, u32) -> Option<PlaceValue>;

/// Returns the value of a place of a rank; `None` if it holds none.
pub(crate) fn place_value(
    state: &RoundState,
    rank: u32,
    buf: PlanBuffer,
    chunk: u32,
) -> Option<&PlaceValue> {
    state.value(state.places.of(rank, buf, chunk))
}

fn step(
    instance: &ProgramInstance,
    state: &mut RoundState,
    round: &[&ChunkTransfer],
    found: &mut Vec<StatementFinding>,
) -> bool {
    round_of(instance, state, round, found, &|state, t, buf, chunk| {
        place_value(state, t.src, buf, chunk).cloned()
    })
}

/// A finding, and the statement at fault.
pub(crate) type StatementFinding = (Span, Diagnostic);

/// Runs one round on the places of the state, reading through `read`; `false` if it was left before it changed any,
/// since it reads what was never stored.
pub(crate) fn round_of(
    instance: &ProgramInstance,
    state: &mut RoundState,
    round: &[&ChunkTransfer],
    found: &mut Vec<StatementFinding>,
    read: ReadValue<'_>,
) -> bool {
    let chunks = round.iter().map(|t| index(t.from.chunks())).sum();
    let mut writes: Vec<RoundWrite> = Vec::with_capacity(chunks);
    for (i, t) in round.iter().enumerate() {
        let targets = t.to.iter().map(|(buf, chunk)| state.places.of(t.dst, buf, chunk));
        for ((buf, chunk), to) in t.from.iter().zip(targets) {
            let Some(value) = read(state, t, buf, chunk) else {
                report(found, instance, t, || uninitialised(instance, t, buf, chunk));
                return false;
            };
            let value = value.rounded(t.wire);
            writes.push(RoundWrite { to, step: i, src: t.src, op: t.op, value });
        }
    }
    let shapes = targets(round);
    let mut reasons = BTreeMap::new();
    let mut changing: Vec<Span> = Vec::new();
    writes.sort_unstable_by_key(|write| (write.to, write.step));
    let mut writes = writes.into_iter().peekable();
    let mut list: Vec<RoundWrite> = Vec::new();
    while let Some(write) = writes.next() {
        let to = write.to;
        list.clear();
        list.push(write);
        list.extend(std::iter::from_fn(|| writes.next_if(|next| next.to == to)));
        let rank = state.places.rank(to);
        let span = |write: &RoundWrite| round[write.step].span;
        // Once a statement is known to change something, its other places need not be compared.
        if list.iter().any(|write| !changing.contains(&span(write)))
            && !matches!(list.as_slice(), [write] if write.op == TransferOp::Copy && state.value(to) == Some(&write.value))
        {
            changing.extend(list.iter().map(span));
            changing.sort_unstable();
            changing.dedup();
        }
        let first = list[0].step;
        if instance.spec.kind.leaves_untouched(rank)
            && !matches!(state.places.name(to).0, PlanBuffer::Scratch(_))
        {
            report(found, instance, round[first], || touched(instance, state, round[first], to));
            continue;
        }
        if let Some(d) = conflict(instance, state, round, to, &list, &shapes) {
            report(found, instance, round[first], || d);
            continue;
        }
        match fold(instance, state, round, (to, rank), &mut list, &mut reasons) {
            Ok(value) => {
                if let Err(too) = state.store(to, value) {
                    found.push(too.refusal(instance, round[first]));
                    return true;
                }
            }
            Err((step, d)) => report(found, instance, round[step], || *d),
        }
        if found.len() >= MOST {
            return true;
        }
    }
    let idle = round.iter().filter(|t| !changing.contains(&t.span));
    state.idle.extend(idle.map(|t| (t.round, t.span)));
    true
}

/// Adds a finding with the values of the variables, unless its line has one already.
fn report(
    found: &mut Vec<StatementFinding>,
    instance: &ProgramInstance,
    t: &ChunkTransfer,
    d: impl FnOnce() -> Diagnostic,
) {
    if found.iter().all(|(span, _)| *span != t.span) {
        found.push((t.span, with_values(instance, t, d())));
    }
}

/// Returns a finding about a transfer, with the values of the variables that made it, and behind the `use`
/// lines that lead to it.
pub(crate) fn with_values(
    instance: &ProgramInstance,
    t: &ChunkTransfer,
    d: Diagnostic,
) -> Diagnostic {
    // What ends a walk comes back through every `use` that it was in.
    let done = walk(instance, &mut |round| {
        if round.index != t.round {
            return Ok(ControlFlow::Continue(()));
        }
        let d = d.clone();
        Err(Box::new(match round.values(&t.key) {
            Some(note) => d.note(note),
            None => d,
        }))
    });
    done.map_or_else(|located| *located, |()| d)
}

/// Returns, for each transfer of the round, a number that is equal for transfers into the same region of the
/// same rank.
fn targets(round: &[&ChunkTransfer]) -> Vec<usize> {
    let mut seen: BTreeMap<(u32, &crate::plan::PlanRegion), usize> = BTreeMap::new();
    round
        .iter()
        .map(|t| {
            let next = seen.len();
            *seen.entry((t.dst, &t.to)).or_insert(next)
        })
        .collect()
}

/// Returns the name of a place, as `rank 1's data[2]`.
pub(crate) fn place_name(
    instance: &ProgramInstance,
    places: &PlaceNumbers,
    place: usize,
) -> String {
    let rank = places.rank(place);
    let (buf, chunk) = places.name(place);
    format!("rank {rank}'s {}[{chunk}]", buf_name(instance, buf))
}

fn second(d: Diagnostic, first: Span, other: Span, text: &str) -> Diagnostic {
    if first == other { d } else { d.label(other, text) }
}

/// Returns the finding about a write into a result that the collective leaves as it is.
fn touched(
    instance: &ProgramInstance,
    state: &RoundState,
    t: &ChunkTransfer,
    to: usize,
) -> Diagnostic {
    let (name, collective) = (place_name(instance, &state.places, to), instance.spec.kind.name());
    Diagnostic::error(
        codes::WRONG_VALUE,
        format!("{name} is written, and {collective} leaves it as it is"),
    )
    .label(t.span, format!("rank {} writes it", t.src))
    .note(format!("on {} ranks, in round {}", instance.shape, t.round))
    .help(format!("leave rank {} out with `where`, or store in scratch", state.places.rank(to)))
}

fn conflict(
    instance: &ProgramInstance,
    state: &RoundState,
    round: &[&ChunkTransfer],
    to: usize,
    list: &[RoundWrite],
    shapes: &[usize],
) -> Option<Diagnostic> {
    if list.len() == 1 {
        return None;
    }
    let name = place_name(instance, &state.places, to);
    let copies: Vec<&RoundWrite> = list.iter().filter(|w| w.op == TransferOp::Copy).collect();
    if let [a, b, ..] = copies.as_slice() {
        let (x, y) = (round[a.step], round[b.step]);
        let d =
            Diagnostic::error(codes::TWO_WRITES, format!("{name} is written twice in one `each`"))
                .label(x.span, format!("written from rank {}", x.src));
        return Some(
            second(d, x.span, y.span, "and here")
                .note(format!("on {} ranks, from ranks {} and {}", instance.shape, x.src, y.src))
                .help("put the writes into two `each`, or send to different chunks"),
        );
    }
    let odd = list.iter().find(|w| shapes[w.step] != shapes[list[0].step])?;
    let (x, y) = (round[list[0].step], round[odd.step]);
    let d = Diagnostic::error(
        codes::OVERLAP,
        format!("two writes of one `each` into {name} cover different chunks"),
    )
    .label(x.span, format!("writes {}", crate::graph::region_text(instance, &x.to)));
    Some(
        second(d, x.span, y.span, "and this differs")
            .note(format!("on {} ranks, from ranks {} and {}", instance.shape, x.src, y.src))
            .help("reductions into one place must cover the same chunks; split them, or use two `each`"),
    )
}

/// The reason for which sums of one round are spoilt: the first of each statement.
type SpoiltReasons = BTreeMap<Span, Arc<SpoiltSum>>;

/// Folds what arrives at one place in one round, in order of source rank; the place's old value (or
/// the one copied there) at its own rank's position.
fn fold(
    instance: &ProgramInstance,
    state: &RoundState,
    round: &[&ChunkTransfer],
    (to, rank): (usize, u32),
    list: &mut Vec<RoundWrite>,
    reasons: &mut SpoiltReasons,
) -> Result<PlaceValue, (usize, Box<Diagnostic>)> {
    list.sort_by_key(|w| w.src);
    let name = || place_name(instance, &state.places, to);
    let first = list[0].step;
    let copied = list.iter().any(|w| w.op == TransferOp::Copy);
    // (rank, step, value); the old value goes before what the rank itself adds.
    let mut operands: Vec<(u32, usize, PlaceValue)> =
        list.drain(..).map(|w| (w.src, w.step, w.value)).collect();
    if !copied {
        let Some(old) = state.value(to).cloned() else {
            let t = round[first];
            let d = Diagnostic::error(
                codes::UNINITIALISED,
                format!("{} is added to before anything was stored there", name()),
            )
            .label(t.span, format!("rank {} adds to it", t.src))
            .note(format!("on {} ranks, in round {}", instance.shape, t.round))
            .help("copy the first contribution, and reduce the others");
            return Err((first, Box::new(d)));
        };
        let at = operands.partition_point(|o| o.0 < rank);
        operands.insert(at, (rank, first, old));
    }
    let several = operands.len() > 1;
    let mut sum: Option<PlaceValue> = None;
    for (_, step, value) in operands {
        let t = round[step];
        let Some(before) = sum else {
            sum = Some(value);
            continue;
        };
        let reason = |clash| clashed(instance, t, &name(), &before, &value, clash);
        sum = Some(match before.sum(&value) {
            Ok(sum) => sum,
            Err(SumClash::Sizes) => return Err((step, Box::new(reason(SumClash::Sizes)))),
            Err(clash) => {
                let spoilt =
                    || Arc::new(SpoiltSum { reason: reason(clash), step: Some(t.clone()) });
                before.spoilt_by(&value, reasons.entry(t.span).or_insert_with(spoilt).clone())
            }
        });
    }
    let value = sum.ok_or_else(|| {
        (first, Box::new(Diagnostic::error(codes::UNINITIALISED, "nothing arrives")))
    })?;
    let value = if several { value.stored() } else { value };
    let (buf, chunk) = state.places.name(to);
    if !matches!(buf, PlanBuffer::Scratch(_)) && class_of(instance, chunk) != value.class {
        let t = round[first];
        let d = Diagnostic::error(codes::SIZES, format!("{} may differ in bytes from what is stored there", name()))
            .label(t.span, format!("stores {value}"))
            .note(format!("on {} ranks: chunk i of C over N elements is [iN/C, (i+1)N/C), rounded down", instance.shape))
            .help("keep the chunk's index (or, in collectives with blocks, its place in the block); scratch takes any chunk");
        return Err((first, Box::new(d)));
    }
    Ok(value)
}

fn clashed(
    instance: &ProgramInstance,
    t: &ChunkTransfer,
    name: &str,
    sum: &PlaceValue,
    value: &PlaceValue,
    clash: SumClash,
) -> Diagnostic {
    let at = format!(
        "on {} ranks, in round {}: it holds {sum}; rank {} adds {value}",
        instance.shape, t.round, t.src
    );
    match clash {
        SumClash::Twice(r, c) => Diagnostic::error(
            codes::DUPLICATE,
            format!("rank {r}'s chunk {c} is counted twice in {name}"),
        )
        .label(t.span, format!("rank {} adds it again", t.src))
        .note(at)
        .help("reduce each contribution once; use `copy` to spread a finished sum"),
        SumClash::Chunks(a, b) => {
            Diagnostic::error(codes::MIXED, format!("chunk {b} is added to chunk {a} in {name}"))
                .label(t.span, format!("rank {} adds chunk {b}", t.src))
                .note(at)
                .help("check the chunk index on both sides")
        }
        SumClash::Order(before, behind) => Diagnostic::error(
            codes::ORDER,
            format!("{behind} is added behind {before} in {name}, out of the order of ranks"),
        )
        .label(t.span, format!("rank {} adds to it", t.src))
        .note(format!("on {} ranks, in round {}", instance.shape, t.round))
        .note(format!(
            "{} asks for sums of consecutive ranks, each added behind those before it; what arrives in one round is \
             added in the order of its source ranks, the place's own value at its rank",
            instance.spec.kind.name()
        ))
        .help("add ranges that lie side by side, and send partial sums to higher ranks only"),
        SumClash::Sizes => Diagnostic::error(
            codes::SIZES,
            format!("chunks that may differ in bytes are added in {name}"),
        )
        .label(t.span, format!("rank {} adds {value}", t.src))
        .note(at)
        .help("keep the chunk's index, so that lengths agree for every element count"),
    }
}

fn uninitialised(
    instance: &ProgramInstance,
    t: &ChunkTransfer,
    buf: PlanBuffer,
    chunk: u32,
) -> Diagnostic {
    let name = format!("rank {}'s {}[{chunk}]", t.src, buf_name(instance, buf));
    Diagnostic::error(codes::UNINITIALISED, format!("{name} is read before anything was stored there"))
        .label(t.span, format!("rank {} sends it to rank {}", t.src, t.dst))
        .note(format!("on {} ranks, in round {}", instance.shape, t.round))
        .help("every read of an `each` sees the state before it; move the chunk here in an earlier `each`")
}

/// Replays one round of a graph that is known to fold without fault up to there; faults leave the
/// place as it was.
pub(crate) fn replay_round(
    instance: &ProgramInstance,
    state: &mut RoundState,
    round: &[&ChunkTransfer],
) {
    step(instance, state, round, &mut Vec::new());
}
