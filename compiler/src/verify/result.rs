//! Checks that after the last round every rank holds what the collective asks for.

use std::collections::BTreeMap;

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::{Diagnostic, codes};

use super::faults::{GraphFaults, StrandId};
use super::reduction_order::{OrderRecord, ReductionOrder};
use super::rounds::{RoundState, initial, place_name, with_values};
use super::value::{PlaceValue, SpoiltSum, ordered_tree};
use crate::collective::{ExpectedContent, SpecRanks};
use crate::graph::{ChunkTransfer, StepGraph};
use crate::instance::ProgramInstance;
use crate::plan::PlanBuffer;
use crate::program::{BufferStyle, CollectiveKind, ProgramBuffer};
use crate::ranks::RankSet;

/// The properties of the sums that ranks end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SumProperties {
    /// True if each is bitwise equal on all ranks that hold it.
    pub equal: bool,
    /// The order in which contributions are combined.
    pub order: ReductionOrder,
}

/// The additions and stores that make a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResultTree {
    /// See [`PlaceValue::tree`].
    tree: u64,
    /// See [`PlaceValue::fold`].
    fold: u64,
}

impl ResultTree {
    /// Returns those of a value.
    pub(crate) fn of(value: &PlaceValue) -> Self {
        ResultTree { tree: value.tree, fold: value.fold }
    }
}

/// The trees of additions that results have in a proved graph.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResultTrees {
    /// By result, that of the first rank which holds it.
    first: BTreeMap<ExpectedContent, ResultTree>,
    /// By rank and result, where it is not the first one's.
    others: BTreeMap<(u32, ExpectedContent), ResultTree>,
}

impl ResultTrees {
    /// Returns the tree of a rank's result; `None` if no such result is known.
    pub(crate) fn tree(&self, rank: u32, expected: &ExpectedContent) -> Option<ResultTree> {
        let other = match self.others.is_empty() {
            true => None,
            false => self.others.get(&(rank, expected.clone())),
        };
        other.or_else(|| self.first.get(expected)).copied()
    }
}

/// Checks the final state; returns the trees of the results, and what is known of the sums, if the collective has any
/// and all are right.
pub(super) fn check(
    faults: &mut GraphFaults<'_>,
    state: &RoundState,
) -> (ResultTrees, Option<SumProperties>) {
    let graph = faults.graph;
    let instance = &graph.instance;
    if instance.spec.kind == CollectiveKind::Barrier {
        if let (true, Some(d)) = (faults.none(), barrier(graph, state)) {
            faults.add(None, d);
        }
        return (ResultTrees::default(), None);
    }
    let (buffer, buf) = match instance.program.style {
        BufferStyle::Data => (ProgramBuffer::Data, PlanBuffer::Data),
        BufferStyle::InputOutput => (ProgramBuffer::Output, PlanBuffer::Output),
    };
    let n = instance.ranks();
    let (mut trees, mut in_order) = (ResultTrees::default(), OrderedTrees::default());
    let (mut equal, mut ordered) = (true, true);
    let mut record = OrderRecord::default();
    let mut wrong: BTreeMap<StrandId, WrongPlace<'_>> = BTreeMap::new();
    for rank in 0..n {
        let asked = instance.spec.result(instance.program.style, rank);
        for chunk in asked.iter().flat_map(|(_, set)| set.iter()) {
            let Some(expected) = instance.spec.expected(buffer, rank, chunk) else { continue };
            if faults.knows(buf, chunk) {
                continue;
            }
            let place = state.places.of(rank, buf, chunk);
            let value = state.value(place);
            if let Some(value) = value.filter(|value| value.is(&expected, n)) {
                let (known, tree) = (trees.first.get(&expected).copied(), ResultTree::of(value));
                if instance.spec.kind.reduces() {
                    record.note((rank, chunk), &expected, value, n);
                }
                match known {
                    None => {
                        ordered = ordered && value.tree == in_order.tree(&expected, n);
                        trees.first.insert(expected, tree);
                    }
                    Some(known) if known != tree => {
                        equal = equal && known.tree == tree.tree;
                        trees.others.insert((rank, expected), tree);
                    }
                    Some(_) => {}
                }
                continue;
            }
            let spoilt = value.and_then(|value| value.spoilt.as_deref());
            let found = WrongPlace { place, rank, expected, spoilt };
            let first = wrong.entry(faults.of_chunk(buf, chunk)).or_insert_with(|| found.clone());
            // A sum that cannot have been meant says more than what is missing.
            if first.spoilt.is_none() && spoilt.is_some() {
                *first = found;
            }
        }
    }
    // What no statement touches may be missing because of any fault.
    let others = wrong.len() > 1;
    let mut all: Vec<(StrandId, WrongPlace<'_>)> =
        wrong.into_iter().filter(|(strand, _)| strand.is_some() || !others).collect();
    all.sort_by_key(|(_, wrong)| (wrong.spoilt.is_none(), wrong.place));
    for (strand, WrongPlace { place, rank, expected, spoilt }) in all {
        if faults.full() {
            break;
        }
        let d = match spoilt {
            Some(spoilt) => unmeant(graph, state, place, spoilt),
            None => explain(graph, state, place, rank, &expected, state.value(place)),
        };
        faults.add(strand, d);
    }
    let sums = SumProperties { equal, order: record.order(equal && ordered) };
    (trees, instance.spec.kind.reduces().then_some(sums))
}

/// Counts the contributions that are missing or too many in all places together; of a barrier, the ranks on
/// whose start others do not depend.
pub(crate) fn count_wrong(instance: &ProgramInstance, state: &RoundState) -> usize {
    let n = instance.ranks();
    if instance.spec.kind == CollectiveKind::Barrier {
        let missing = |started: &RankSet| (0..n).filter(|&r| !started.contains(r)).count();
        return state.started.iter().map(missing).sum();
    }
    let (buffer, buf) = match instance.program.style {
        BufferStyle::Data => (ProgramBuffer::Data, PlanBuffer::Data),
        BufferStyle::InputOutput => (ProgramBuffer::Output, PlanBuffer::Output),
    };
    let mut wrong = 0;
    for rank in 0..n {
        let asked = instance.spec.result(instance.program.style, rank);
        for chunk in asked.iter().flat_map(|(_, set)| set.iter()) {
            let Some(expected) = instance.spec.expected(buffer, rank, chunk) else { continue };
            let value = state.value(state.places.of(rank, buf, chunk));
            if !value.is_some_and(|value| value.is(&expected, n)) {
                wrong += distance(value, &expected.contributions(n));
            }
        }
    }
    wrong
}

/// Counts the contributions that a wrong value lacks, and those that are too many in it; 1 at least.
fn distance(value: Option<&PlaceValue>, wanted: &[(u32, u32)]) -> usize {
    let Some(value) = value.filter(|value| value.spoilt.is_none()) else {
        return wanted.len() + 1;
    };
    let held = value.parts.iter().flat_map(|(c, ranks)| ranks.iter().map(move |r| (r, *c)));
    let (right, more): (Vec<_>, Vec<_>) = held.partition(|c| wanted.binary_search(c).is_ok());
    (wanted.len() - right.len() + more.len()).max(1)
}

/// A place that ends with something else than it must.
#[derive(Clone)]
struct WrongPlace<'s> {
    place: usize,
    rank: u32,
    expected: ExpectedContent,
    /// The reason for which it holds a sum that no collective asks for.
    spoilt: Option<&'s SpoiltSum>,
}

/// The trees of sums that take contributions in ascending order of rank.
#[derive(Default)]
struct OrderedTrees {
    /// By chunk, the ranks below a number, and their tree: the next rank's result often has one more.
    prefixes: BTreeMap<u32, (u32, u64)>,
}

impl OrderedTrees {
    /// Returns the tree of a result.
    fn tree(&mut self, expected: &ExpectedContent, n: u32) -> u64 {
        let chunk = expected.chunk;
        let end = match &expected.ranks {
            SpecRanks::All => n,
            SpecRanks::These(ranks) => match ranks.intervals() {
                [(0, end)] => *end,
                _ => return ordered_tree(None, expected.contributions(n)),
            },
            _ => return ordered_tree(None, expected.contributions(n)),
        };
        let known = self.prefixes.get(&chunk).filter(|(known, _)| *known <= end);
        let (from, tree) = known.map_or((0, None), |(known, tree)| (*known, Some(*tree)));
        let tree = ordered_tree(tree, (from..end).map(|rank| (rank, chunk)));
        self.prefixes.insert(chunk, (end, tree));
        tree
    }
}

/// Returns the diagnostic for a barrier that a rank can leave too early.
fn barrier(graph: &StepGraph, state: &RoundState) -> Option<Diagnostic> {
    let instance = &graph.instance;
    for (rank, started) in state.started.iter().enumerate() {
        if let Some(missing) = (0..instance.ranks()).find(|&r| !started.contains(r)) {
            return Some(
                Diagnostic::error(
                    codes::MISSING,
                    format!("rank {rank} can leave before rank {missing} has come"),
                )
                .label(
                    graph.graph.node_weights().last().map_or(instance.program.header, |t| t.span),
                    format!("on {} ranks, this comes last", instance.shape),
                )
                .note(format!("rank {rank} waits for messages that depend on {started} only"))
                .help("every rank must hear, over some chain of messages, of every other"),
            );
        }
    }
    None
}

/// Returns the text of the content that a place must hold.
pub(super) fn asked(expected: &ExpectedContent, n: u32) -> String {
    match &expected.ranks {
        SpecRanks::All if n == 1 => format!("chunk {} of {{r0}}", expected.chunk),
        SpecRanks::All => format!("chunk {} of {{r0..r{}}}", expected.chunk, n - 1),
        SpecRanks::One(r) => format!("chunk {} of {{r{r}}}", expected.chunk),
        SpecRanks::These(ranks) => format!("chunk {} of {ranks}", expected.chunk),
        SpecRanks::Mixed(parts) => {
            let parts: Vec<String> =
                parts.iter().take(8).map(|(c, ranks)| format!("chunk {c} of {ranks}")).collect();
            parts.join(" + ")
        }
    }
}

/// Returns the diagnostic for a result that holds a sum of what does not go together.
fn unmeant(graph: &StepGraph, state: &RoundState, place: usize, spoilt: &SpoiltSum) -> Diagnostic {
    let instance = &graph.instance;
    let d = match &spoilt.step {
        Some(step) => with_values(instance, step, spoilt.reason.clone()),
        None => spoilt.reason.clone(),
    };
    d.note(format!("{} ends with that sum", place_name(instance, &state.places, place)))
}

/// Returns the fate of the contribution that is missing, with the shortest trace that shows it.
fn explain(
    graph: &StepGraph,
    state: &RoundState,
    place: usize,
    rank: u32,
    expected: &ExpectedContent,
    value: Option<&PlaceValue>,
) -> Diagnostic {
    let instance = &graph.instance;
    let n = instance.ranks();
    let name = place_name(instance, &state.places, place);
    let ends = value.map_or("nothing".to_string(), PlaceValue::to_string);
    let wanted = expected.contributions(n);
    let held = |(r, chunk): &(u32, u32)| {
        value.is_some_and(|v| v.parts.iter().any(|(c, s)| c == chunk && s.contains(*r)))
    };
    let missing: Vec<(u32, u32)> = wanted.iter().copied().filter(|r| !held(r)).collect();
    let only_missing = value.is_none_or(|v| {
        v.parts.iter().all(|(c, s)| s.iter().all(|r| wanted.binary_search(&(r, *c)).is_ok()))
    });
    let history = history(graph, place);
    let mixed = matches!(expected.ranks, SpecRanks::Mixed(_));
    let name_of = |(r, c): &(u32, u32)| {
        if mixed { format!("r{r}'s chunk {c}") } else { format!("r{r}") }
    };
    let d = if only_missing && !missing.is_empty() {
        let who: Vec<String> = missing.iter().take(6).map(name_of).collect();
        let more = if missing.len() > 6 {
            format!(" and {} more", missing.len() - 6)
        } else {
            String::new()
        };
        let verb = if missing.len() == 1 { "is" } else { "are" };
        Diagnostic::error(
            codes::MISSING,
            format!(
                "on {} ranks, {name} ends as {ends}: {}{more} {verb} missing",
                instance.shape,
                who.join(", ")
            ),
        )
    } else {
        Diagnostic::error(
            codes::WRONG_VALUE,
            format!(
                "on {} ranks, {name} ends as {ends}, not as {}",
                instance.shape,
                asked(expected, n)
            ),
        )
    };
    let d = d.note(format!(
        "{} asks that rank {rank} ends with {}",
        instance.spec.kind.name(),
        asked(expected, n)
    ));
    let d = match holders(graph, state, expected) {
        Some(note) => d.note(note),
        None => d,
    };
    let d = match (history.is_empty(), sibling(graph, state, place)) {
        (true, Some(t)) => {
            let d = d.label(t.span, "nothing is ever stored there; this stores beside it");
            with_values(instance, t, d).help("should this have sent it there, too?")
        }
        _ => place_label(instance, d, &history, &missing),
    };
    let steps = journey(graph, place);
    if steps.is_empty() { d } else { d.note(format!("how it came: {}", steps.join("; "))) }
}

/// Returns the last transfer that stores into places like this one, where nothing ever is: other chunks of
/// the rank, or else the chunk of other ranks, or else anything in such a buffer.
fn sibling<'g>(
    graph: &'g StepGraph,
    state: &RoundState,
    place: usize,
) -> Option<&'g ChunkTransfer> {
    let places = &state.places;
    let name = |p: usize| places.name(p);
    let (rank, (buf, chunk)) = (places.rank(place), name(place));
    let likeness = |t: &ChunkTransfer| {
        let into = places.region(t.dst, &t.to).filter(|&p| name(p).0 == buf);
        into.map(|p| match (places.rank(p) == rank, name(p).1 == chunk) {
            (true, _) => 3,
            (false, true) => 2,
            (false, false) => 1,
        })
        .max()
    };
    let alike = graph.graph.node_weights().filter_map(|t| Some((likeness(t)?, t)));
    alike.max_by_key(|(likeness, _)| *likeness).map(|(_, t)| t)
}

/// Returns a remark on up to four places that hold the expected value and did not send it on; `None` if there
/// are none.
fn holders(graph: &StepGraph, state: &RoundState, expected: &ExpectedContent) -> Option<String> {
    let n = graph.instance.ranks();
    let mut found: Vec<String> = Vec::new();
    for place in state.values.touched() {
        if state.value(place).is_some_and(|v| v.is(expected, n)) {
            found.push(place_name(&graph.instance, &state.places, place));
            if found.len() == 4 {
                break;
            }
        }
    }
    (!found.is_empty())
        .then(|| format!("it is in {}, and is not sent on from there", found.join(", ")))
}

/// Returns the way back of the content that a place ends with, last step first: over copies to where it was
/// made.
fn journey(graph: &StepGraph, place: usize) -> Vec<String> {
    let instance = &graph.instance;
    let start = initial(instance);
    let name = |p| place_name(instance, &start.places, p);
    let (mut at, mut before, mut lines) = (place, u32::MAX, Vec::new());
    while lines.len() < 6 {
        let mut events = history(graph, at);
        events.retain(|e| e.step.round < before);
        let Some(last) = events.last() else {
            if let Some(value) = start.value(at) {
                lines.push(format!("{} is {value} from the start", name(at)));
            }
            break;
        };
        let (round, t) = (last.step.round, &last.step);
        let after = last.after.as_ref().map_or("nothing".into(), PlaceValue::to_string);
        if t.op == TransferOp::Copy && events.iter().filter(|e| e.step.round == round).count() == 1
        {
            let position = start.places.region(t.dst, &t.to).position(|p| p == at).unwrap_or(0);
            let Some(from) = start.places.region(t.src, &t.from).nth(position) else { break };
            lines.push(format!(
                "in round {round} {} is copied to {}, which is then {after}",
                name(from),
                name(at)
            ));
            (at, before) = (from, round);
        } else {
            let from: Vec<String> = events
                .iter()
                .filter(|e| e.step.round == round)
                .map(|e| format!("rank {}", e.step.src))
                .collect();
            lines.push(format!(
                "in round {round} {} adds to {}, which is then {after}",
                from.join(", "),
                name(at)
            ));
            before = round;
        }
    }
    lines
}

/// A write to the place at fault.
struct PlaceWrite {
    step: ChunkTransfer,
    after: Option<PlaceValue>,
}

/// Returns all writes to one place, with its content after each.
fn history(graph: &StepGraph, place: usize) -> Vec<PlaceWrite> {
    let instance = &graph.instance;
    let mut state = initial(instance);
    let mut events = Vec::new();
    let steps: Vec<&ChunkTransfer> = graph.graph.node_weights().collect();
    for round in steps.chunk_by(|a, b| a.round == b.round) {
        super::rounds::replay_round(instance, &mut state, round);
        for t in round {
            if state.places.region(t.dst, &t.to).any(|p| p == place) {
                events.push(PlaceWrite { step: (*t).clone(), after: state.value(place).cloned() });
            }
        }
    }
    events
}

fn place_label(
    instance: &ProgramInstance,
    d: Diagnostic,
    history: &[PlaceWrite],
    missing: &[(u32, u32)],
) -> Diagnostic {
    let has = |v: &Option<PlaceValue>, (r, chunk): (u32, u32)| {
        v.as_ref().is_some_and(|v| v.parts.iter().any(|(c, s)| *c == chunk && s.contains(r)))
    };
    let Some(last) = history.last() else {
        return d
            .label(instance.program.header, "nothing is ever stored there")
            .help("some rank must send it there");
    };
    // The write that lost a contribution which was there before.
    let lost = history.windows(2).find_map(|w| {
        let gone = missing.iter().find(|r| has(&w[0].after, **r) && !has(&w[1].after, **r))?;
        (w[1].step.op == TransferOp::Copy).then_some((&w[1].step, gone.0))
    });
    let (d, at) = match lost {
        Some((step, r)) => (
            d.label(
                step.span,
                format!(
                    "r{r}'s contribution was there, and is overwritten here, in round {}",
                    step.round
                ),
            ),
            step,
        ),
        None => (
            d.label(
                last.step.span,
                format!(
                    "last written here, in round {}, by rank {}",
                    last.step.round, last.step.src
                ),
            ),
            &last.step,
        ),
    };
    with_values(instance, at, d)
        .help("follow the missing contribution from its rank: who should have sent it on?")
}
