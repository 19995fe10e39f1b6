//! The proofs on what will run: all ranks' plans together.
//!
//! * **Matching**: every message sent is received, in the same order and with the same lengths.
//! * **Deadlock** with `slots` messages in flight a connection: operations wait for those before them
//!   on their lane, for `after`, for their messages, for a free slot (the consumption of the message
//!   `slots` before), and for drained messages. There must be no cycle. Whether a message is copied
//!   or pulled is decided at run time; all waits of both ways are edges here, so every mixture is
//!   covered.
//! * **Races**, rank by rank: operations of different lanes that touch one place are ordered by lanes
//!   and `after`; and memory offered to a peer is not overwritten before the message was drained.
//!   Nobody else touches a rank's memory, so this is all.
//! * **Result**: replayed from the operations, dead stores left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use roundelay_dsl::span::{SourceMap, Span};

use super::rounds::class_of;
use super::value::{Clash, Spoilt, Value};
use crate::collective::Kind;
use crate::instance::Instance;
use crate::plan::{Buf, Dir, Input, MessageRef, Op, OpRef, Placement, Plan, RankPlan, Region};
use crate::program::{Buffer, Style};

/// Proves the plans of all ranks; gives the least number of slots with which they cannot deadlock.
pub fn verify(
    instance: &Instance,
    sources: &SourceMap,
    plans: &mut [Plan],
) -> Result<u32, Diagnostics> {
    let one = |d: Diagnostic| vec![d];
    for plan in plans.iter() {
        plan.check().map_err(|e| one(fault(instance, format!("rank {}: {e}", plan.part.rank))))?;
        races(instance, sources, &plan.part).map_err(one)?;
    }
    let events = Events::new(instance, plans).map_err(one)?;
    let most =
        plans.iter().flat_map(|p| &p.part.conns).map(|c| c.messages).max().unwrap_or(0).max(1);
    let order = events
        .order(most)
        .map_err(|stuck| one(events.explain(instance, sources, plans, &stuck, None)))?;
    let mut least = 1;
    while least < most && events.order(least).is_err() {
        least += 1;
    }
    let slots = match instance.slots {
        Some(k) if k < least => {
            let stuck = events.order(k).err().unwrap_or_default();
            return Err(one(events.explain(instance, sources, plans, &stuck, Some((k, least)))));
        }
        Some(k) => k,
        None => least.max(crate::lower::DEFAULT_SLOTS),
    };
    if slots > 64 {
        return Err(one(
            Diagnostic::error(codes::SLOTS, format!("{slots} messages are in flight on one connection; 64 are possible"))
                .label(instance.program.header, format!("on {} ranks", instance.shape))
                .help("send fewer messages between two ranks in one `each`: join their chunks into one region"),
        ));
    }
    for plan in plans.iter_mut() {
        plan.header.slots = slots;
    }
    replay(instance, sources, plans, &order, &events).map_err(one)?;
    Ok(least)
}

fn fault(instance: &Instance, message: String) -> Diagnostic {
    Diagnostic::error(codes::PLAN_DAMAGED, message)
        .label(instance.program.header, format!("lowered for {} ranks", instance.shape))
        .help("this is a fault of the compiler: please report it with the file")
}

/// The span of the statement that an operation comes from.
fn span(sources: &SourceMap, part: &RankPlan, op: &Op) -> Option<Span> {
    let site = &part.sites[op.site as usize];
    let id = sources.find(&site.file)?;
    let text = &sources.get(id).text;
    let line: usize = text.split_inclusive('\n').take(site.line as usize - 1).map(str::len).sum();
    let column = text[line..].char_indices().nth(site.column as usize - 1).map_or(0, |(i, _)| i);
    let end = text[line + column..].find('\n').map_or(text.len(), |i| line + column + i);
    Some(Span::new(id, line + column, end))
}

/// All operations of all ranks, and who waits for whom.
struct Events {
    /// First event of each (rank, lane).
    first: Vec<Vec<u32>>,
    /// Rank and operation of each event.
    at: Vec<(u32, OpRef)>,
    /// Waits that slots do not change: (before, after).
    edges: Vec<(u32, u32)>,
    /// Senders and receivers of each connection, message by message.
    messages: Vec<(Vec<u32>, Vec<u32>)>,
    /// Connection of a rank's connection end.
    conn: Vec<Vec<u32>>,
}

impl Events {
    fn new(instance: &Instance, plans: &[Plan]) -> Result<Self, Diagnostic> {
        let mut e = Events {
            first: Vec::new(),
            at: Vec::new(),
            edges: Vec::new(),
            messages: Vec::new(),
            conn: Vec::new(),
        };
        let mut index: BTreeMap<(u32, u32, u16), u32> = BTreeMap::new();
        for plan in plans {
            let part = &plan.part;
            e.conn.push(Vec::with_capacity(part.conns.len()));
            for c in &part.conns {
                let key = match c.dir {
                    Dir::Send => (part.rank, c.peer, c.channel),
                    Dir::Recv => (c.peer, part.rank, c.channel),
                };
                let next = index.len() as u32;
                let id = *index.entry(key).or_insert(next);
                if id == next {
                    e.messages.push(Default::default());
                }
                if let Some(list) = e.conn.last_mut() {
                    list.push(id);
                }
            }
            let mut first = Vec::new();
            for (l, lane) in part.lanes.iter().enumerate() {
                first.push(e.at.len() as u32);
                for (i, op) in lane.ops.iter().enumerate() {
                    let id = e.at.len() as u32;
                    e.at.push((part.rank, OpRef { lane: l as u16, op: i as u32 }));
                    if i > 0 {
                        e.edges.push((id - 1, id));
                    }
                    for input in &op.inputs {
                        if let Input::Message { conn, .. } = input {
                            let c = e.conn[part.rank as usize][*conn as usize];
                            e.messages[c as usize].1.push(id);
                        }
                    }
                    for out in &op.outs {
                        let c = e.conn[part.rank as usize][out.conn as usize];
                        e.messages[c as usize].0.push(id);
                    }
                }
            }
            e.first.push(first);
        }
        for plan in plans {
            let part = &plan.part;
            let rank = part.rank as usize;
            for (l, lane) in part.lanes.iter().enumerate() {
                for (i, op) in lane.ops.iter().enumerate() {
                    let id = e.first[rank][l] + i as u32;
                    for a in &op.after {
                        e.edges.push((e.first[rank][a.lane as usize] + a.op, id));
                    }
                    for m in &op.drained {
                        let c = e.conn[rank][m.conn as usize];
                        if let Some(&receiver) = e.messages[c as usize].1.get(m.message as usize) {
                            e.edges.push((receiver, id));
                        }
                    }
                }
            }
        }
        for (&(a, b, channel), &c) in &index {
            let (sent, received) = &e.messages[c as usize];
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
        Ok(e)
    }

    /// An order in which everything can be played, or the events that wait for ever.
    fn order(&self, slots: u32) -> Result<Vec<u32>, Vec<u32>> {
        let n = self.at.len();
        let credits = self.messages.iter().flat_map(|(sent, received)| {
            received.iter().copied().zip(sent.iter().copied().skip(slots as usize))
        });
        let mut waiting = vec![0u32; n];
        let mut start = vec![0u32; n + 1];
        let all: Vec<(u32, u32)> = self.edges.iter().copied().chain(credits).collect();
        for &(a, b) in &all {
            start[a as usize + 1] += 1;
            waiting[b as usize] += 1;
        }
        for i in 0..n {
            start[i + 1] += start[i];
        }
        let mut fill = start.clone();
        let mut next = vec![0u32; all.len()];
        for &(a, b) in &all {
            next[fill[a as usize] as usize] = b;
            fill[a as usize] += 1;
        }
        let mut order: Vec<u32> = (0..n as u32).filter(|&v| waiting[v as usize] == 0).collect();
        let mut at = 0;
        while at < order.len() {
            let v = order[at] as usize;
            at += 1;
            for &w in &next[start[v] as usize..start[v + 1] as usize] {
                waiting[w as usize] -= 1;
                if waiting[w as usize] == 0 {
                    order.push(w);
                }
            }
        }
        if order.len() == n {
            Ok(order)
        } else {
            Err((0..n as u32).filter(|&v| waiting[v as usize] > 0).collect())
        }
    }

    /// Names a cycle among the events that wait for ever.
    fn explain(
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
                    before.insert(r, (s, format!("a message from rank {}", self.at[s as usize].0)));
                }
                if let Some(&later) = sent.get(i + k.min(u32::MAX - 1) as usize)
                    && waits(r)
                    && waits(later)
                {
                    before.insert(
                        later,
                        (
                            r,
                            format!(
                                "a free slot, once rank {} has taken a message",
                                self.at[r as usize].0
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
            let (rank, at) = self.at[x as usize];
            let part = &plans[rank as usize].part;
            let op = &part.lanes[at.lane as usize].ops[at.op as usize];
            let site = &part.sites[op.site as usize];
            let what = before.get(&x).map_or("…", |b| b.1.as_str());
            notes.push(format!(
                "rank {rank}, round {} (line {}: {}) waits for {what}",
                op.round, site.line, site.text
            ));
        }
        let message = match slots {
            Some((k, least)) => format!(
                "with {k} slot{} the schedule deadlocks; it needs {least}",
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
                    let (rank, at) = self.at[x as usize];
                    let part = &plans[rank as usize].part;
                    span(sources, part, &part.lanes[at.lane as usize].ops[at.op as usize])
                });
                d.label(op.flatten().unwrap_or(instance.program.header), "waits here")
            }
        };
        d.note(format!("on {} ranks: {}", instance.shape, notes.join("; ")))
    }
}

/// Races of one rank.
pub(super) fn races(
    instance: &Instance,
    sources: &SourceMap,
    part: &RankPlan,
) -> Result<(), Diagnostic> {
    let race = |op: &Op, what: String| {
        let d = Diagnostic::error(codes::RACE, what);
        d.label(
            span(sources, part, op).unwrap_or(instance.program.header),
            format!("rank {}, round {}", part.rank, op.round),
        )
    };
    let used = part.lanes.iter().filter(|l| !l.ops.is_empty()).count();
    let order = local_order(part).ok_or_else(|| {
        Diagnostic::error(
            codes::DEADLOCK,
            format!("the lanes of rank {} wait for each other", part.rank),
        )
        .label(instance.program.header, "here")
    })?;
    // Memory that peers may be reading: by place, messages offered. Drained up to, by connection.
    let mut offers: BTreeMap<(Buf, u32), Vec<MessageRef>> = BTreeMap::new();
    let mut sent: Vec<u32> = vec![0; part.conns.len()];
    for &at in &order {
        let op = &part.lanes[at.lane as usize].ops[at.op as usize];
        if let Some(store) = &op.store
            && !offers.is_empty()
        {
            for place in store.region.iter() {
                for m in offers.remove(&place).unwrap_or_default() {
                    if !op.drained.iter().any(|d| d.conn == m.conn && d.message >= m.message) {
                        return Err(race(
                            op,
                            format!(
                                "rank {} overwrites memory that a peer may still be reading",
                                part.rank
                            ),
                        ));
                    }
                }
            }
        }
        for out in &op.outs {
            let message = sent[out.conn as usize];
            sent[out.conn as usize] += 1;
            for place in out.pull.iter().flat_map(Region::iter) {
                offers.entry(place).or_default().push(MessageRef { conn: out.conn, message });
            }
        }
    }
    if used > 1 { lanes(part, &order).map_err(|(op, what)| race(op, what)) } else { Ok(()) }
}

/// Operations of a rank in an order that its lanes and `after` allow.
fn local_order(part: &RankPlan) -> Option<Vec<OpRef>> {
    let mut done: Vec<u32> = vec![0; part.lanes.len()];
    let total: usize = part.lanes.iter().map(|l| l.ops.len()).sum();
    let mut order = Vec::with_capacity(total);
    while order.len() < total {
        let before = order.len();
        for (l, lane) in part.lanes.iter().enumerate() {
            while let Some(op) = lane.ops.get(done[l] as usize) {
                if op.after.iter().any(|a| done[a.lane as usize] <= a.op) {
                    break;
                }
                order.push(OpRef { lane: l as u16, op: done[l] });
                done[l] += 1;
            }
        }
        if order.len() == before {
            return None;
        }
    }
    Some(order)
}

/// Conflicting operations of different lanes are ordered by `after`.
fn lanes<'p>(part: &'p RankPlan, order: &[OpRef]) -> Result<(), (&'p Op, String)> {
    let width = part.lanes.len();
    // How far each lane is known to be done when an operation starts.
    let mut clocks: Vec<Vec<Vec<u32>>> = part.lanes.iter().map(|_| Vec::new()).collect();
    let mut accesses: BTreeMap<(Buf, u32), Vec<(OpRef, bool)>> = BTreeMap::new();
    for &at in order {
        let lane = &part.lanes[at.lane as usize];
        let op = &lane.ops[at.op as usize];
        let mut clock = match clocks[at.lane as usize].last() {
            Some(c) => c.clone(),
            None => vec![0; width],
        };
        clock[at.lane as usize] = at.op;
        for a in &op.after {
            let other = &clocks[a.lane as usize][a.op as usize];
            for (c, o) in clock.iter_mut().zip(other) {
                *c = (*c).max(*o);
            }
            clock[a.lane as usize] = clock[a.lane as usize].max(a.op + 1);
        }
        let reads = op.inputs.iter().filter_map(|i| match i {
            Input::Local(r) => Some((r, false)),
            Input::Message { .. } => None,
        });
        for (region, write) in reads.chain(op.store.iter().map(|s| (&s.region, true))) {
            for place in region.iter() {
                let list = accesses.entry(place).or_default();
                for &(other, wrote) in list.iter() {
                    if other.lane != at.lane
                        && (wrote || write)
                        && clock[other.lane as usize] <= other.op
                    {
                        return Err((
                            op,
                            format!(
                                "lanes {} and {} of rank {} touch one place without waiting",
                                other.lane, at.lane, part.rank
                            ),
                        ));
                    }
                }
                list.push((at, write));
            }
        }
        clocks[at.lane as usize].push(clock);
    }
    Ok(())
}

/// A rank's memory, and the messages under way.
struct Memory {
    first: Vec<u32>,
    values: Vec<Option<Value>>,
}

impl Memory {
    fn new(instance: &Instance, plan: &Plan) -> Self {
        let mut first = Vec::new();
        let mut at = 0;
        let sizes: Vec<u32> = [Buf::Data, Buf::Input, Buf::Output]
            .into_iter()
            .map(|b| plan.buffer_chunks(b).unwrap_or(0))
            .chain(plan.header.scratch.iter().copied())
            .collect();
        for size in &sizes {
            first.push(at);
            at += size;
        }
        let mut memory = Memory { first, values: vec![None; at as usize] };
        let (buf, buffer) = match plan.header.placement {
            Placement::InPlace => (Buf::Data, Buffer::Data),
            Placement::OutOfPlace => (Buf::Input, Buffer::Input),
        };
        for chunk in 0..plan.buffer_chunks(buf).unwrap_or(0) {
            if let Some((rank, c)) = instance.spec.initial(buffer, plan.part.rank, chunk) {
                let at = memory.at(buf, chunk);
                memory.values[at] = Some(Value::leaf(rank, c, class_of(instance, chunk)));
            }
        }
        memory
    }

    fn at(&self, buf: Buf, chunk: u32) -> usize {
        let i = match buf {
            Buf::Data => 0,
            Buf::Input => 1,
            Buf::Output => 2,
            Buf::Scratch(i) => 3 + i as usize,
        };
        (self.first[i] + chunk) as usize
    }
}

/// A message under way: its values, and where they may be pulled from.
type Sent = (Vec<Value>, Option<(u32, Region)>);

fn replay(
    instance: &Instance,
    sources: &SourceMap,
    plans: &[Plan],
    order: &[u32],
    events: &Events,
) -> Result<(), Diagnostic> {
    if instance.spec.kind == Kind::Barrier {
        return Ok(());
    }
    let mut memory: Vec<Memory> = plans.iter().map(|p| Memory::new(instance, p)).collect();
    let mut wires: Vec<std::collections::VecDeque<Sent>> =
        events.messages.iter().map(|_| Default::default()).collect();
    for &event in order {
        let (rank, at) = events.at[event as usize];
        let part = &plans[rank as usize].part;
        let op = &part.lanes[at.lane as usize].ops[at.op as usize];
        let wrong = |what: String| {
            let d = fault(instance, format!("rank {rank}, round {}: {what}", op.round));
            match span(sources, part, op) {
                Some(s) => d.label(s, "lowered from here"),
                None => d,
            }
        };
        let mut sum: Option<Vec<Value>> = None;
        for input in &op.inputs {
            let values: Vec<Value> = match input {
                Input::Local(region) => {
                    let m = &memory[rank as usize];
                    let read: Option<Vec<Value>> =
                        region.iter().map(|(b, c)| m.values[m.at(b, c)].clone()).collect();
                    read.ok_or_else(|| wrong("reads what was never stored".into()))?
                }
                Input::Message { conn, wire, .. } => {
                    let c = events.conn[rank as usize][*conn as usize] as usize;
                    let (values, pull) =
                        wires[c].pop_front().ok_or_else(|| wrong("no message is there".into()))?;
                    if let Some((peer, region)) = pull {
                        let m = &memory[peer as usize];
                        let same = region
                            .iter()
                            .zip(&values)
                            .all(|((b, c), v)| m.values[m.at(b, c)].as_ref() == Some(v));
                        if !same {
                            return Err(wrong(
                                "the peer's memory changed before it was pulled".into(),
                            ));
                        }
                    }
                    if wire.is_some() {
                        values.into_iter().map(Value::rounded).collect()
                    } else {
                        values
                    }
                }
            };
            if values.len() != op.sizes.chunks() as usize {
                return Err(wrong(format!(
                    "{} chunks arrive for {}",
                    values.len(),
                    op.sizes.chunks()
                )));
            }
            sum = Some(match sum {
                None => values,
                Some(sum) => {
                    let added = sum.iter().zip(&values).map(|(a, b)| match a.sum(b) {
                        // Proved of the graph already: no result holds it. If one does here, it is found below.
                        Err(c @ (Clash::Twice(..) | Clash::Chunks(..))) => Ok(a.spoilt_by(
                            b,
                            Arc::new(Spoilt { reason: wrong(format!("{c:?}")), step: None }),
                        )),
                        other => other.map_err(|c| wrong(format!("{c:?}"))),
                    });
                    added.collect::<Result<Vec<Value>, Diagnostic>>()?
                }
            });
        }
        let values = sum.unwrap_or_default();
        let mut dead = false;
        if let Some(store) = &op.store {
            dead = store.dead;
            for ((b, c), v) in store.region.iter().zip(&values) {
                let m = &mut memory[rank as usize];
                let at = m.at(b, c);
                // What is not kept must not be read: leave nothing there.
                m.values[at] = (!dead).then(|| v.clone());
            }
        }
        for out in &op.outs {
            let c = events.conn[rank as usize][out.conn as usize] as usize;
            let pull = if dead { None } else { out.pull.clone().map(|r| (rank, r)) };
            wires[c].push_back((values.clone(), pull));
        }
    }
    results(instance, plans, &memory)
}

fn results(instance: &Instance, plans: &[Plan], memory: &[Memory]) -> Result<(), Diagnostic> {
    for (plan, m) in plans.iter().zip(memory) {
        let (buf, buffer) = match plan.header.placement {
            Placement::InPlace => (Buf::Data, Buffer::Data),
            Placement::OutOfPlace => (Buf::Output, Buffer::Output),
        };
        let rank = plan.part.rank;
        for chunk in 0..plan.buffer_chunks(buf).unwrap_or(0) {
            let Some(expected) = instance.spec.expected(buffer, rank, chunk) else { continue };
            let value = &m.values[m.at(buf, chunk)];
            if !value.as_ref().is_some_and(|v| v.is(&expected, instance.ranks())) {
                let ends = value.as_ref().map_or("nothing".into(), Value::to_string);
                return Err(fault(instance, format!("rank {rank}'s chunk {chunk} ends as {ends}")));
            }
        }
    }
    Ok(())
}

/// The placements that a program can be lowered to.
pub(crate) fn placements(style: Style) -> &'static [Placement] {
    match style {
        Style::Data => &[Placement::InPlace, Placement::OutOfPlace],
        Style::InputOutput => &[Placement::OutOfPlace],
    }
}
