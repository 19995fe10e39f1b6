//! All operations of all ranks, and who waits for whom.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::SourceMap;

use super::fault::{fault, span};
use crate::instance::ProgramInstance;
use crate::num::{count, index, short};
use crate::plan::{MessageDirection, OpRef, OperationInput, UnprovedPlan};

/// All operations of all ranks, and who waits for whom.
pub(super) struct OperationEvents {
    /// First event of each (rank, lane).
    pub(super) first: Vec<Vec<u32>>,
    /// Rank and operation of each event.
    pub(super) at: Vec<(u32, OpRef)>,
    /// Waits that slots do not change: (before, after).
    pub(super) edges: Vec<(u32, u32)>,
    /// Senders and receivers of each connection, message by message.
    pub(super) messages: Vec<(Vec<u32>, Vec<u32>)>,
    /// Connection of a rank's connection end.
    pub(super) conn: Vec<Vec<u32>>,
}

impl OperationEvents {
    pub(super) fn new(
        instance: &ProgramInstance,
        plans: &[UnprovedPlan],
    ) -> Result<Self, Diagnostic> {
        let mut e = OperationEvents {
            first: Vec::new(),
            at: Vec::new(),
            edges: Vec::new(),
            messages: Vec::new(),
            conn: Vec::new(),
        };
        let mut known: BTreeMap<(u32, u32, u16), u32> = BTreeMap::new();
        for plan in plans {
            let part = &plan.part;
            e.conn.push(Vec::with_capacity(part.conns.len()));
            for c in &part.conns {
                let key = match c.dir {
                    MessageDirection::Send => (part.rank, c.peer, c.channel),
                    MessageDirection::Recv => (c.peer, part.rank, c.channel),
                };
                let next = count(known.len());
                let id = *known.entry(key).or_insert(next);
                if id == next {
                    e.messages.push(Default::default());
                }
                if let Some(list) = e.conn.last_mut() {
                    list.push(id);
                }
            }
            let mut first = Vec::new();
            for (l, lane) in part.lanes.iter().enumerate() {
                first.push(count(e.at.len()));
                for (i, op) in lane.ops.iter().enumerate() {
                    let id = count(e.at.len());
                    e.at.push((part.rank, OpRef { lane: short(l), op: count(i) }));
                    if i > 0 {
                        e.edges.push((id - 1, id));
                    }
                    for input in &op.inputs {
                        if let OperationInput::Message { conn, .. } = input {
                            let c = e.conn[index(part.rank)][index(*conn)];
                            e.messages[index(c)].1.push(id);
                        }
                    }
                    for out in &op.outs {
                        let c = e.conn[index(part.rank)][index(out.conn)];
                        e.messages[index(c)].0.push(id);
                    }
                }
            }
            e.first.push(first);
        }
        for plan in plans {
            let part = &plan.part;
            let rank = index(part.rank);
            for (l, lane) in part.lanes.iter().enumerate() {
                for (i, op) in lane.ops.iter().enumerate() {
                    let id = e.first[rank][l] + count(i);
                    for a in &op.after {
                        e.edges.push((e.first[rank][index(a.lane)] + a.op, id));
                    }
                    for m in &op.drained {
                        let c = e.conn[rank][index(m.conn)];
                        if let Some(&receiver) = e.messages[index(c)].1.get(index(m.message)) {
                            e.edges.push((receiver, id));
                        }
                    }
                }
            }
        }
        for (&(a, b, channel), &c) in &known {
            let (sent, received) = &e.messages[index(c)];
            if sent.len() != received.len() {
                return Err(fault(
                    instance,
                    format!(
                        "rank {a} sends {} messages to rank {b} on channel {channel}, which receives {}",
                        sent.len(),
                        received.len()
                    ),
                ));
            }
            e.edges.extend(sent.iter().copied().zip(received.iter().copied()));
        }
        e.edges.shrink_to_fit();
        Ok(e)
    }

    /// Returns an order in which everything can be executed, or the events that wait for ever.
    pub(super) fn order(&self, slots: u32) -> Result<Vec<u32>, Vec<u32>> {
        let n = self.at.len();
        let credits = self.messages.iter().flat_map(|(sent, received)| {
            received.iter().copied().zip(sent.iter().copied().skip(index(slots)))
        });
        let mut waiting = vec![0u32; n];
        let mut start = vec![0u32; n + 1];
        let all = self.edges.iter().copied().chain(credits);
        for (a, b) in all.clone() {
            start[index(a) + 1] += 1;
            waiting[index(b)] += 1;
        }
        for i in 0..n {
            start[i + 1] += start[i];
        }
        let mut fill = start.clone();
        let mut next = vec![0u32; index(start[n])];
        for (a, b) in all {
            next[index(fill[index(a)])] = b;
            fill[index(a)] += 1;
        }
        // A rank runs all that it can before another one does: what a rank touches lies close together.
        let mut ready: Vec<Vec<u32>> = vec![Vec::new(); self.first.len()];
        for v in (0..count(n)).rev().filter(|&v| waiting[index(v)] == 0) {
            ready[index(self.at[index(v)].0)].push(v);
        }
        let mut ranks: VecDeque<usize> =
            (0..ready.len()).filter(|&rank| !ready[rank].is_empty()).collect();
        let mut order: Vec<u32> = Vec::with_capacity(n);
        while let Some(rank) = ranks.pop_front() {
            while let Some(v) = ready[rank].pop() {
                order.push(v);
                for &w in &next[index(start[index(v)])..index(start[index(v) + 1])] {
                    waiting[index(w)] -= 1;
                    if waiting[index(w)] == 0 {
                        let other = index(self.at[index(w)].0);
                        if other != rank && ready[other].is_empty() {
                            ranks.push_back(other);
                        }
                        ready[other].push(w);
                    }
                }
            }
        }
        if order.len() == n {
            Ok(order)
        } else {
            Err((0..count(n)).filter(|&v| waiting[index(v)] > 0).collect())
        }
    }

    /// Returns the least number of slots with which everything can be executed; `None` if no number is enough.
    pub(super) fn least_slots(&self) -> Option<u32> {
        let most = self.most_slots();
        self.order(most).ok()?;
        Some(least_enough(most, |slots| self.order(slots).is_ok()))
    }

    /// Returns the number of slots beyond which more change nothing.
    fn most_slots(&self) -> u32 {
        self.messages.iter().map(|(sent, _)| count(sent.len())).max().unwrap_or(0).max(1)
    }

    /// Names a cycle among the events that wait for ever with these slots.
    pub(super) fn explain(
        &self,
        instance: &ProgramInstance,
        sources: &SourceMap,
        plans: &[UnprovedPlan],
        slots: u32,
    ) -> Diagnostic {
        let slots = self.least_slots().map(|least| (slots, least));
        let few = slots.map_or(u32::MAX, |s| s.0);
        let stuck = self.order(few.min(self.most_slots())).err().unwrap_or_default();
        let waits = self.waits(&stuck, few);
        let circle = circle(&waits, &stuck);
        let op = |event: u32| {
            let (rank, at) = self.at[index(event)];
            let part = &plans[index(rank)].part;
            (part, &part.lanes[index(at.lane)].ops[index(at.op)])
        };
        // Steps of one rank that only come before each other say nothing new.
        let mut shown = circle.clone();
        shown.dedup_by_key(|(event, (_, why))| match why {
            EventWait::Order => (self.at[index(*event)].0, None),
            _ => (0, Some(*event)),
        });
        let (mut lines, mut last) = (Vec::new(), None);
        for &(event, (before, why)) in shown.iter().take(MOST_WAITS) {
            let (part, op) = op(event);
            let (other, site) = (self.at[index(before)].0, &part.sites[index(op.site)]);
            let what = match why {
                EventWait::Order => "its step before".into(),
                EventWait::Message => format!("a message from rank {other}"),
                EventWait::Slot => format!("a free slot, once rank {other} has taken a message"),
                EventWait::Drained => format!("rank {other}, which may still read what it writes"),
            };
            let place = (&site.file, site.line);
            let text = match last.replace(place) == Some(place) {
                true => String::new(),
                false => format!(": {}", site.text),
            };
            let (rank, round, line) = (part.rank, op.round, site.line);
            lines.push(format!("rank {rank} waits for {what} (round {round}, line {line}{text})"));
        }
        if shown.len() > MOST_WAITS {
            lines.push(format!("and {} more", shown.len() - MOST_WAITS));
        }
        let message = match slots {
            Some((k, least)) => format!(
                "with {k} slot{} the schedule deadlocks; {least} are enough",
                if k == 1 { "" } else { "s" }
            ),
            None => "the schedule deadlocks whatever the number of slots".to_string(),
        };
        let mut d = Diagnostic::error(codes::DEADLOCK, message);
        d = match (slots, instance.program.schedule.span) {
            (Some((_, least)), Some(span)) => d
                .label(span, "asked for here")
                .help(format!("write `slots {least}`, or leave `slots` out")),
            _ => {
                let first = circle.first().map(|c| c.0).or(stuck.first().copied());
                let place = first.and_then(|event| {
                    let (part, op) = op(event);
                    span(sources, part, op)
                });
                d.label(place.unwrap_or(instance.program.header), "waits here")
            }
        };
        let d =
            d.note(format!("on {} ranks, each waits for the next in a circle:", instance.shape));
        lines.into_iter().fold(d, Diagnostic::note)
    }

    /// Returns the events that each of the stuck ones waits for, of those that are stuck.
    fn waits(&self, stuck: &[u32], slots: u32) -> EventWaits {
        let mut waits = EventWaits::new();
        let mut add = |before: u32, event: u32, why: EventWait| {
            let both = [before, event].iter().all(|e| stuck.binary_search(e).is_ok());
            if both && before != event {
                waits.entry(event).or_default().push((before, why));
            }
        };
        for (sent, received) in &self.messages {
            for (i, (&s, &r)) in sent.iter().zip(received).enumerate() {
                add(s, r, EventWait::Message);
                if let Some(&later) = index(slots).checked_add(i).and_then(|i| sent.get(i)) {
                    add(r, later, EventWait::Slot);
                }
            }
        }
        for &(a, b) in &self.edges {
            let same = self.at[index(a)].0 == self.at[index(b)].0;
            add(a, b, if same { EventWait::Order } else { EventWait::Drained });
        }
        waits
    }
}

/// Waits of a circle that are shown.
const MOST_WAITS: usize = 6;

/// Stuck events from which a circle is looked for.
const MOST_STARTS: usize = 8;

/// The reason for which an event waits for another.
#[derive(Debug, Clone, Copy)]
enum EventWait {
    /// The other comes before it on its rank.
    Order,
    /// The other sends what it receives.
    Message,
    /// The other takes the message whose slot it needs.
    Slot,
    /// The other takes a message that may be read where this one writes.
    Drained,
}

/// For each event, the events that it waits for.
type EventWaits = BTreeMap<u32, Vec<(u32, EventWait)>>;

/// Returns the shortest circle through one of the first stuck events that are in one: each waits for the
/// next.
fn circle(waits: &EventWaits, stuck: &[u32]) -> Vec<(u32, (u32, EventWait))> {
    let mut best: Vec<(u32, (u32, EventWait))> = Vec::new();
    for &start in stuck.iter().take(MOST_STARTS) {
        // The event by which each was reached, and what it waits for there.
        let mut reached: BTreeMap<u32, (u32, (u32, EventWait))> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(event) = queue.pop_front() {
            if reached.contains_key(&start) {
                break;
            }
            for &(before, why) in waits.get(&event).into_iter().flatten() {
                if let Entry::Vacant(new) = reached.entry(before) {
                    new.insert((event, (before, why)));
                    queue.push_back(before);
                }
            }
        }
        let mut found = Vec::new();
        let mut at = start;
        while let Some(&step) = reached.get(&at).filter(|_| reached.contains_key(&start)) {
            found.push(step);
            at = step.0;
            if at == start {
                break;
            }
        }
        found.reverse();
        if !found.is_empty() && (best.is_empty() || found.len() < best.len()) {
            best = found;
        }
    }
    best
}

/// Returns the least number of slots up to `most` that is enough, if `most` is: by doubling and bisection.
///
/// More slots never harm. Messages of a connection leave on one lane, one after the other; so with one
/// slot more, what a message waits for (that an earlier one was consumed) is what the message before
/// it waits for, and is implied by the order of the lane. Every cycle with more slots is one with less.
fn least_enough(most: u32, enough: impl Fn(u32) -> bool) -> u32 {
    let (mut few, mut many) = (0, 1);
    while many < most && !enough(many) {
        (few, many) = (many, many.saturating_mul(2).min(most));
    }
    // `few` is too few, and `many` enough.
    while many - few > 1 {
        let middle = few + (many - few) / 2;
        match enough(middle) {
            true => many = middle,
            false => few = middle,
        }
    }
    many
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{BufferPlacement, CompileOptions, NoLibrary, Shape, compile, resolve};

    /// Ranks take few turns, though each waits for a message in every round.
    #[test]
    fn a_rank_runs_all_that_it_can() {
        let mut sources = SourceMap::new();
        let text = "algorithm ring implements all_gather on n ranks {
            for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r - s) % n] } } }";
        let id = sources.add("ring.algo", text);
        let programs = resolve(&mut sources, id, &NoLibrary).expect("the text resolves");
        let (shape, options) = (Shape::flat(32), CompileOptions::default());
        let proved = compile(&programs[0], &sources, &shape, &options, BufferPlacement::InPlace);
        let proved = proved.expect("it is right");
        let instance = proved.graph().instance.clone();
        let plans: Vec<_> =
            proved.into_plans().into_iter().map(|plan| plan.into_unproved()).collect();
        let events = OperationEvents::new(&instance, &plans).expect("they match");
        let order = events.order(4).expect("it can be executed");
        let rank = |v: u32| events.at[index(v)].0;
        let turns = 1 + order.windows(2).filter(|w| rank(w[0]) != rank(w[1])).count();
        assert!(order.len() >= 32 * 32 && turns < 32 * 16, "{turns} turns, {} events", order.len());
    }

    /// The least number is found whatever it is, in few tries.
    #[test]
    fn slots_are_found_by_bisection() {
        for most in [1u32, 2, 3, 7, 100, 1000] {
            for least in 1..=most {
                let tries = Cell::new(0);
                let enough = |slots| {
                    tries.set(tries.get() + 1);
                    slots >= least
                };
                assert_eq!(least_enough(most, enough), least);
                assert!(tries.get() <= 2 * most.ilog2() + 2, "{least} of {most}");
            }
        }
    }
}
