//! All operations of all ranks, and who waits for whom.

use std::collections::{BTreeMap, VecDeque};

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::SourceMap;

use super::{fault, span};
use crate::instance::Instance;
use crate::num::{count, index, short};
use crate::plan::{Dir, Input, OpRef, Plan};

/// All operations of all ranks, and who waits for whom.
pub(super) struct Events {
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

impl Events {
    pub(super) fn new(instance: &Instance, plans: &[Plan]) -> Result<Self, Diagnostic> {
        let mut e = Events {
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
                    Dir::Send => (part.rank, c.peer, c.channel),
                    Dir::Recv => (c.peer, part.rank, c.channel),
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
                        if let Input::Message { conn, .. } = input {
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

    /// An order in which everything can be played, or the events that wait for ever.
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
        // A rank plays all that it can before another one does: what a rank touches lies close together.
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

    /// Names a cycle among the events that wait for ever.
    pub(super) fn explain(
        &self,
        instance: &Instance,
        sources: &SourceMap,
        plans: &[Plan],
        stuck: &[u32],
        slots: Option<(u32, u32)>,
    ) -> Diagnostic {
        let k = slots.map_or(u32::MAX, |s| s.0);
        let mut before: BTreeMap<u32, (u32, String)> = BTreeMap::new();
        let waits = |v: u32| stuck.binary_search(&v).is_ok();
        for &(a, b) in &self.edges {
            if waits(a) && waits(b) {
                before.entry(b).or_insert((a, "what comes before it".into()));
            }
        }
        for (sent, received) in &self.messages {
            for (i, (&s, &r)) in sent.iter().zip(received).enumerate() {
                if waits(s) && waits(r) && s != r {
                    before.insert(r, (s, format!("a message from rank {}", self.at[index(s)].0)));
                }
                if let Some(&later) = sent.get(i + index(k.min(u32::MAX - 1)))
                    && waits(r)
                    && waits(later)
                {
                    before.insert(
                        later,
                        (
                            r,
                            format!(
                                "a free slot, once rank {} has taken a message",
                                self.at[index(r)].0
                            ),
                        ),
                    );
                }
            }
        }
        let mut path: Vec<u32> = Vec::new();
        let mut v = stuck.first().copied().unwrap_or(0);
        while !path.contains(&v) {
            path.push(v);
            match before.get(&v) {
                Some((next, _)) => v = *next,
                None => break,
            }
        }
        let cycle: Vec<u32> = path.iter().copied().skip_while(|&x| x != v).collect();
        let mut notes = Vec::new();
        for &x in cycle.iter().take(6) {
            let (rank, at) = self.at[index(x)];
            let part = &plans[index(rank)].part;
            let op = &part.lanes[index(at.lane)].ops[index(at.op)];
            let site = &part.sites[index(op.site)];
            let what = before.get(&x).map_or("…", |b| b.1.as_str());
            notes.push(format!(
                "rank {rank}, round {} (line {}: {}) waits for {what}",
                op.round, site.line, site.text
            ));
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
                let op = cycle.first().or(stuck.first()).map(|&x| {
                    let (rank, at) = self.at[index(x)];
                    let part = &plans[index(rank)].part;
                    span(sources, part, &part.lanes[index(at.lane)].ops[index(at.op)])
                });
                d.label(op.flatten().unwrap_or(instance.program.header), "waits here")
            }
        };
        d.note(format!("on {} ranks: {}", instance.shape, notes.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoLibrary, Options, Placement, Shape, compile, resolve};

    /// Ranks take few turns, though each waits for a message in every round.
    #[test]
    fn a_rank_plays_all_that_it_can() {
        let mut sources = SourceMap::new();
        let text = "algorithm ring implements all_gather on n ranks {
            for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r - s) % n] } } }";
        let id = sources.add("ring.algo", text);
        let programs = resolve(&mut sources, id, &NoLibrary).expect("the text resolves");
        let (shape, options) = (Shape::flat(32), Options::default());
        let proved = compile(&programs[0], &sources, &shape, &options, Placement::InPlace);
        let proved = proved.expect("it is right");
        let events = Events::new(&proved.graph().instance, proved.plans()).expect("they match");
        let order = events.order(4).expect("it can be played");
        let rank = |v: u32| events.at[index(v)].0;
        let turns = 1 + order.windows(2).filter(|w| rank(w[0]) != rank(w[1])).count();
        assert!(order.len() >= 32 * 32 && turns < 32 * 16, "{turns} turns, {} events", order.len());
    }
}
