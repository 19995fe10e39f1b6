//! Computes what a call must give: the plans run one operation at a time, on plain memory.

use std::collections::{BTreeMap, VecDeque};

use roundelay_compiler::chunks::ChunkSet;
use roundelay_compiler::plan::{
    ChunkSizes, MessageDirection, OperationInput, Plan, PlanBuffer, PlanHeader, PlanRegion,
    WireType,
};

/// The arithmetic of folds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// Numbers, whose sums depend on their grouping now and then.
    Float,
    /// Marks of expressions: two sums are the same mark if they have the same operands in the same order and
    /// grouping, and are rounded alike.
    Tagged,
    /// Marks of expressions in which the two sides of an addition may be swapped.
    Commuting,
    /// Marks of sets of operands, for the switch, which adds in an order of its own.
    Unordered,
}

impl Arithmetic {
    pub(crate) fn add(self, a: f32, b: f32) -> f32 {
        let (x, y) = (a.to_bits(), b.to_bits());
        match self {
            Arithmetic::Float => a + b,
            Arithmetic::Tagged => tag(u64::from(x) << 32 | u64::from(y)),
            Arithmetic::Commuting => tag(u64::from(x.min(y)) << 32 | u64::from(x.max(y))),
            Arithmetic::Unordered => f32::from_bits(x.wrapping_add(y) & TAG),
        }
    }

    pub(crate) fn round(self, x: f32, wire: Option<WireType>) -> f32 {
        match (self, wire) {
            (Arithmetic::Float, wire) => rounded(x, wire),
            (_, None) => x,
            (_, Some(wire)) => tag(u64::from(x.to_bits()) ^ (wire as u64 + 1) << 40),
        }
    }
}

/// The bits of marks: none of them is a NaN.
const TAG: u32 = 0x3fff_ffff;

/// Returns a mark that is hardly another's.
pub(crate) fn tag(of: u64) -> f32 {
    let mut z = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    f32::from_bits((z ^ (z >> 31)) as u32 & TAG)
}

/// Rounds as a wire type does, so that it is seen whether and where that happens.
fn rounded(x: f32, wire: Option<WireType>) -> f32 {
    match wire {
        None => x,
        Some(WireType::F32) => f32::from_bits(x.to_bits() & !0xff),
        Some(WireType::F16) => f32::from_bits(x.to_bits() & !0x1fff),
        Some(WireType::Bf16) => f32::from_bits(x.to_bits() & !0xffff),
    }
}

/// The chunks of a vector of N elements.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) elements: usize,
    pub(crate) chunks: usize,
}

impl Cut {
    pub(crate) fn new(header: &PlanHeader, count: usize) -> Self {
        Cut { elements: count * header.blocks as usize, chunks: header.chunks as usize }
    }

    /// Returns the first element of a chunk.
    pub(crate) fn begin(&self, chunk: usize) -> usize {
        chunk * self.elements / self.chunks
    }

    pub(crate) fn length(&self, chunk: usize) -> usize {
        self.begin(chunk + 1) - self.begin(chunk)
    }

    /// Returns the number of elements of the longest chunk.
    pub(crate) fn most(&self) -> usize {
        self.elements.div_ceil(self.chunks)
    }

    /// Returns the first element of a chunk in its buffer.
    pub(crate) fn place(&self, buf: PlanBuffer, chunk: u32) -> usize {
        match buf {
            PlanBuffer::Scratch(_) => chunk as usize * self.most(),
            _ => self.begin(chunk as usize),
        }
    }

    /// Returns the number of elements of each chunk of an operation.
    pub(crate) fn lengths(&self, sizes: &ChunkSizes) -> Vec<usize> {
        match sizes {
            ChunkSizes::Full(n) => vec![self.most(); *n as usize],
            ChunkSizes::Of(sets) => {
                sets.iter().flat_map(ChunkSet::iter).map(|c| self.length(c as usize)).collect()
            }
        }
    }

    /// Returns the number of elements of a buffer.
    pub(crate) fn size(&self, plan: &Plan, buf: PlanBuffer) -> usize {
        let chunks = plan.buffer_chunks(buf).unwrap_or(0);
        self.place(buf, chunks)
    }
}

/// The buffers of a rank.
pub(crate) type Buffers = BTreeMap<PlanBuffer, Vec<f32>>;

/// Returns all buffers that a plan may have.
pub(crate) fn buffers(plan: &Plan) -> Vec<PlanBuffer> {
    let scratch = (0..plan.header.scratch.len()).map(|i| PlanBuffer::Scratch(i as u16));
    [PlanBuffer::Data, PlanBuffer::Input, PlanBuffer::Output].into_iter().chain(scratch).collect()
}

/// The values of a message, and the type as which they travel.
type WireMessage = (Vec<f32>, Option<WireType>);

/// Runs the plans on the ranks' buffers.
pub(crate) fn run(plans: &[Plan], cut: Cut, arithmetic: Arithmetic, memory: &mut [Buffers]) {
    let mut wires: BTreeMap<(u32, u32, u16), VecDeque<WireMessage>> = BTreeMap::new();
    let mut done: Vec<Vec<usize>> = plans.iter().map(|p| vec![0; p.part.lanes.len()]).collect();
    loop {
        let mut moved = false;
        for (plan, memory) in plans.iter().zip(memory.iter_mut()) {
            let rank = plan.part.rank;
            for l in 0..plan.part.lanes.len() {
                let Some(op) = plan.part.lanes[l].ops.get(done[rank as usize][l]) else { continue };
                let key = |conn: u32| {
                    let c = plan.part.conns[conn as usize];
                    match c.dir {
                        MessageDirection::Send => (rank, c.peer, c.channel),
                        MessageDirection::Recv => (c.peer, rank, c.channel),
                    }
                };
                let ready = op.inputs.iter().all(|i| match i {
                    OperationInput::Local(_) => true,
                    OperationInput::Message { conn, .. } => {
                        wires.get(&key(*conn)).is_some_and(|w| !w.is_empty())
                    }
                });
                let after =
                    op.after.iter().all(|a| done[rank as usize][a.lane as usize] > a.op as usize);
                if !ready || !after {
                    continue;
                }
                let lengths = cut.lengths(&op.sizes);
                let mut sum: Option<Vec<f32>> = None;
                for input in &op.inputs {
                    let values = match input {
                        OperationInput::Local(region) => gather(memory, cut, region, &lengths),
                        OperationInput::Message { conn, wire, .. } => {
                            let next = wires.get_mut(&key(*conn)).and_then(VecDeque::pop_front);
                            let (mut values, sent) = next.expect("it is there");
                            if *wire != sent {
                                // Its bytes are taken for other numbers.
                                values.iter_mut().for_each(|x| *x = tag(x.to_bits().into()));
                            }
                            values
                        }
                    };
                    sum = Some(match sum {
                        None => values,
                        Some(sum) => {
                            let both = sum.iter().zip(&values);
                            both.map(|(&a, &b)| arithmetic.add(a, b)).collect()
                        }
                    });
                }
                let values = sum.unwrap_or_default();
                for out in &op.outs {
                    let content = values.iter().map(|&x| arithmetic.round(x, out.wire)).collect();
                    wires.entry(key(out.conn)).or_default().push_back((content, out.wire));
                }
                if let Some(store) = &op.store {
                    scatter(memory, cut, &store.region, &lengths, &values);
                }
                done[rank as usize][l] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    for (plan, done) in plans.iter().zip(&done) {
        assert!(plan.part.lanes.iter().zip(done).all(|(l, &d)| l.ops.len() == d), "the plans end");
    }
}

fn gather(memory: &Buffers, cut: Cut, region: &PlanRegion, lengths: &[usize]) -> Vec<f32> {
    let mut values = Vec::new();
    for ((buf, c), &length) in region.iter().zip(lengths) {
        let at = cut.place(buf, c);
        values.extend_from_slice(&memory[&buf][at..at + length]);
    }
    values
}

fn scatter(memory: &mut Buffers, cut: Cut, region: &PlanRegion, lengths: &[usize], values: &[f32]) {
    let mut from = 0;
    for ((buf, c), &length) in region.iter().zip(lengths) {
        let at = cut.place(buf, c);
        if let Some(buffer) = memory.get_mut(&buf) {
            buffer[at..at + length].copy_from_slice(&values[from..from + length]);
        }
        from += length;
    }
}
