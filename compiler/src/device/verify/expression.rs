//! Expressions: which contributions a place holds, added in which order, and rounded where.
//!
//! Addition of floating-point numbers is neither associative nor, for the payloads of NaNs, commutative. So the
//! programs must compute the very expressions of the proved plans: the same operands, in the same order, added one
//! after the other in the same groups, stored between at the same points (which rounds sums of 16-bit floats), and
//! rounded to the same types on the way. Expressions are numbered: equal
//! numbers are equal expressions. The switch adds its operands in an order of its own, the same for all ranks: what it
//! folds is a set of operands.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use super::fault::ProgramFault;
use crate::device::protocol::DeviceProtocol;
use crate::instance::ProgramInstance;
use crate::num::{count, index};
use crate::places::PlaceNumbers;
use crate::plan::{
    BufferPlacement, MessageDirection, OperationInput, Plan, PlanBuffer, PlanOperation, PlanRegion,
    WireType,
};
use crate::program::{CollectiveKind, ProgramBuffer};

/// The number of an expression in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExpressionId(u32);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ValueExpression {
    /// The contribution of a rank, by its chunk.
    Leaf(u32, u32),
    Rounded(ExpressionId, WireType),
    Sum(ExpressionId, ExpressionId),
    /// The result of a fold of several operands: between them it is as wide as the type that sums are made in, and then
    /// it is rounded to the element type.
    Stored(ExpressionId),
    /// The sum of operands in an order that the switch chooses; they are sorted.
    Switched(Vec<ExpressionId>),
}

/// All expressions that plans and programs compute.
#[derive(Default)]
pub(super) struct ExpressionTable {
    numbers: BTreeMap<ValueExpression, ExpressionId>,
    list: Vec<ValueExpression>,
}

impl ExpressionTable {
    fn add(&mut self, expression: ValueExpression) -> ExpressionId {
        match self.numbers.entry(expression) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let id = ExpressionId(count(self.list.len()));
                self.list.push(new.key().clone());
                *new.insert(id)
            }
        }
    }

    /// Returns the contribution of a rank.
    pub(super) fn leaf(&mut self, rank: u32, chunk: u32) -> ExpressionId {
        self.add(ValueExpression::Leaf(rank, chunk))
    }

    /// Returns an expression after it has travelled as a type of the wire.
    pub(super) fn round(&mut self, id: ExpressionId, wire: Option<WireType>) -> ExpressionId {
        match wire {
            Some(wire) => self.add(ValueExpression::Rounded(id, wire)),
            None => id,
        }
    }

    /// Returns the expression of a fold of operands, in this order; `None` if there are none.
    pub(super) fn fold(
        &mut self,
        protocol: DeviceProtocol,
        mut operands: Vec<ExpressionId>,
    ) -> Option<ExpressionId> {
        if protocol == DeviceProtocol::Multicast && operands.len() > 1 {
            operands.sort_unstable();
            return Some(self.add(ValueExpression::Switched(operands)));
        }
        let several = operands.len() > 1;
        let sum =
            operands.into_iter().reduce(|sum, next| self.add(ValueExpression::Sum(sum, next)))?;
        Some(if several { self.add(ValueExpression::Stored(sum)) } else { sum })
    }

    /// Says how two expressions differ: the first parts of them, from the left, that do.
    pub(super) fn explain(&self, is: ExpressionId, asked: ExpressionId) -> String {
        let (mut a, mut b) = (is, asked);
        loop {
            let [x, y] = [a, b].map(|id| self.list.get(index(id.0)));
            (a, b) = match (x, y) {
                (Some(ValueExpression::Rounded(c, v)), Some(ValueExpression::Rounded(d, w)))
                    if v == w =>
                {
                    (*c, *d)
                }
                (Some(ValueExpression::Stored(c)), Some(ValueExpression::Stored(d))) => (*c, *d),
                (Some(ValueExpression::Sum(c, e)), Some(ValueExpression::Sum(d, f))) if e == f => {
                    (*c, *d)
                }
                (Some(ValueExpression::Sum(c, e)), Some(ValueExpression::Sum(d, f))) if c == d => {
                    (*e, *f)
                }
                _ => break,
            };
        }
        format!("{}, and the proved plan computes {}", self.text(a), self.text(b))
    }

    /// Returns an expression as text, cut where it is long.
    fn text(&self, id: ExpressionId) -> String {
        let (mut text, mut stack) = (String::new(), vec![TextPart::Of(id)]);
        while let Some(part) = stack.pop() {
            if text.len() > MOST_TEXT {
                return text + " …";
            }
            let id = match part {
                TextPart::Of(id) => id,
                TextPart::Text(part) => {
                    text += part;
                    continue;
                }
            };
            match self.list.get(index(id.0)) {
                Some(ValueExpression::Leaf(rank, chunk)) => text += &format!("r{rank}[{chunk}]"),
                Some(ValueExpression::Rounded(of, wire)) => {
                    text += wire.name();
                    stack.extend([TextPart::Text(")"), TextPart::Of(*of), TextPart::Text("(")]);
                }
                Some(ValueExpression::Sum(a, b)) => {
                    text += "(";
                    let all = [
                        TextPart::Text(")"),
                        TextPart::Of(*b),
                        TextPart::Text(" + "),
                        TextPart::Of(*a),
                    ];
                    stack.extend(all);
                }
                Some(ValueExpression::Stored(of)) => {
                    text += "[";
                    stack.extend([TextPart::Text("]"), TextPart::Of(*of)]);
                }
                Some(ValueExpression::Switched(all)) => {
                    text += "{";
                    stack.push(TextPart::Text("}"));
                    for (i, &id) in all.iter().enumerate().rev() {
                        stack.push(TextPart::Of(id));
                        stack.extend((i > 0).then_some(TextPart::Text(" + ")));
                    }
                }
                None => text += "nothing",
            }
        }
        text
    }
}

/// Characters after which the text of an expression is cut.
const MOST_TEXT: usize = 240;

/// The rest of a text that is being made.
enum TextPart {
    Of(ExpressionId),
    Text(&'static str),
}

/// The expressions that proved plans compute, which programs must compute too.
pub(super) struct PlanExpressions {
    pub(super) table: ExpressionTable,
    /// By rank and chunk of the result's buffer; `None` where the chunk holds nothing.
    pub(super) results: Vec<Vec<Option<ExpressionId>>>,
}

impl PlanExpressions {
    /// Executes plans on expressions.
    pub(super) fn compute(
        instance: &ProgramInstance,
        plans: &[Plan],
        protocol: DeviceProtocol,
    ) -> Result<Self, ProgramFault> {
        let mut table = ExpressionTable::default();
        let results = match instance.spec.kind {
            // Its messages carry nothing.
            CollectiveKind::Barrier => vec![Vec::new(); plans.len()],
            _ => replay_plans(instance, plans, protocol, &mut table)?,
        };
        Ok(PlanExpressions { table, results })
    }
}

/// Executes plans on expressions, and returns the results.
fn replay_plans(
    instance: &ProgramInstance,
    plans: &[Plan],
    protocol: DeviceProtocol,
    table: &mut ExpressionTable,
) -> Result<Vec<Vec<Option<ExpressionId>>>, ProgramFault> {
    let mut replay = DevicePlanReplay {
        protocol,
        ranks: plans.iter().map(|plan| PlanMemory::new(instance, plan, table)).collect(),
        messages: BTreeMap::new(),
        table,
    };
    let mut ready: VecDeque<usize> = (0..plans.len()).collect();
    let mut idle = 0;
    // A rank executes all that it can before the next one does.
    while let Some(rank) = ready.pop_front() {
        let Some(plan) = plans.get(rank) else { continue };
        idle = if replay.advance(rank, plan)? { 0 } else { idle + 1 };
        let done = &replay.ranks[rank].done;
        if plan.part.lanes.iter().zip(done).any(|(lane, &done)| lane.ops.len() > done) {
            ready.push_back(rank);
        }
        if idle > plans.len() {
            return Err(ProgramFault("the plans wait for ever".into()));
        }
    }
    let results = replay.ranks.into_iter().zip(plans).map(|(memory, plan)| {
        let (buf, chunks) = match plan.header.placement {
            BufferPlacement::InPlace => (PlanBuffer::Data, plan.header.chunks),
            BufferPlacement::OutOfPlace => (PlanBuffer::Output, plan.header.output_chunks),
        };
        (0..chunks).map(|chunk| memory.cells[memory.places.local(buf, chunk)]).collect()
    });
    Ok(results.collect())
}

/// The memory of a rank that executes its plan.
struct PlanMemory {
    places: PlaceNumbers,
    cells: Vec<Option<ExpressionId>>,
    /// Operations executed, by lane.
    done: Vec<usize>,
}

impl PlanMemory {
    fn new(instance: &ProgramInstance, plan: &Plan, table: &mut ExpressionTable) -> Self {
        let user = [PlanBuffer::Data, PlanBuffer::Input, PlanBuffer::Output]
            .map(|b| plan.buffer_chunks(b).unwrap_or(0));
        let places = PlaceNumbers::of_sizes(user, plan.header.scratch.iter().copied());
        let mut cells = vec![None; index(places.per_rank)];
        let (buf, buffer) = match plan.header.placement {
            BufferPlacement::InPlace => (PlanBuffer::Data, ProgramBuffer::Data),
            BufferPlacement::OutOfPlace => (PlanBuffer::Input, ProgramBuffer::Input),
        };
        for chunk in 0..plan.buffer_chunks(buf).unwrap_or(0) {
            if let Some((rank, c)) = instance.spec.initial(buffer, plan.part.rank, chunk) {
                cells[places.local(buf, chunk)] = Some(table.leaf(rank, c));
            }
        }
        PlanMemory { places, cells, done: vec![0; plan.part.lanes.len()] }
    }

    fn read(&self, region: &PlanRegion) -> Vec<Option<ExpressionId>> {
        region.iter().map(|(buf, chunk)| self.cells[self.places.local(buf, chunk)]).collect()
    }
}

/// Source, target and channel of a connection.
type ConnectionKey = (u32, u32, u16);

/// The execution of plans, with the messages under way.
struct DevicePlanReplay<'t> {
    protocol: DeviceProtocol,
    ranks: Vec<PlanMemory>,
    messages: BTreeMap<ConnectionKey, VecDeque<Vec<ExpressionId>>>,
    table: &'t mut ExpressionTable,
}

impl DevicePlanReplay<'_> {
    /// Executes all operations of a rank whose operands are there; returns true if there were any.
    fn advance(&mut self, rank: usize, plan: &Plan) -> Result<bool, ProgramFault> {
        let (mut any, mut moved) = (false, true);
        while moved {
            moved = false;
            for (l, lane) in plan.part.lanes.iter().enumerate() {
                while let Some(op) = lane.ops.get(self.ranks[rank].done[l]) {
                    if !self.is_ready(rank, plan, op) {
                        break;
                    }
                    self.execute(rank, plan, op)?;
                    self.ranks[rank].done[l] += 1;
                    moved = true;
                }
            }
            any |= moved;
        }
        Ok(any)
    }

    fn is_ready(&self, rank: usize, plan: &Plan, op: &PlanOperation) -> bool {
        let done = &self.ranks[rank].done;
        let has_come = |input: &OperationInput| match input {
            OperationInput::Local(_) => true,
            OperationInput::Message { conn, .. } => {
                self.messages.get(&key(plan, *conn)).is_some_and(|m| !m.is_empty())
            }
        };
        op.after.iter().all(|a| done[index(a.lane)] > index(a.op)) && op.inputs.iter().all(has_come)
    }

    fn execute(
        &mut self,
        rank: usize,
        plan: &Plan,
        op: &PlanOperation,
    ) -> Result<(), ProgramFault> {
        let missing =
            || ProgramFault(format!("the plan of rank {rank} reads what was never stored"));
        let mut operands: Vec<Vec<ExpressionId>> = Vec::new();
        for input in &op.inputs {
            operands.push(match input {
                OperationInput::Local(region) => {
                    let read: Option<Vec<_>> = self.ranks[rank].read(region).into_iter().collect();
                    read.ok_or_else(missing)?
                }
                OperationInput::Message { conn, wire, .. } => {
                    let queue = self.messages.get_mut(&key(plan, *conn));
                    let values = queue.and_then(VecDeque::pop_front).ok_or_else(missing)?;
                    values.into_iter().map(|id| self.table.round(id, *wire)).collect()
                }
            });
        }
        let mut values = Vec::new();
        for k in 0..index(op.sizes.chunks()) {
            let of_chunk: Option<Vec<_>> = operands.iter().map(|o| o.get(k).copied()).collect();
            let folded = of_chunk.and_then(|list| self.table.fold(self.protocol, list));
            values.push(folded.ok_or_else(missing)?);
        }
        if let Some(store) = &op.store {
            let memory = &mut self.ranks[rank];
            for ((buf, chunk), &id) in store.region.iter().zip(&values) {
                memory.cells[memory.places.local(buf, chunk)] = Some(id);
            }
        }
        for out in &op.outs {
            self.messages.entry(key(plan, out.conn)).or_default().push_back(values.clone());
        }
        Ok(())
    }
}

/// Returns the source, target and channel of a rank's connection.
fn key(plan: &Plan, conn: u32) -> ConnectionKey {
    let conn = plan.part.conns[index(conn)];
    match conn.dir {
        MessageDirection::Send => (plan.part.rank, conn.peer, conn.channel),
        MessageDirection::Recv => (conn.peer, plan.part.rank, conn.channel),
    }
}
