//! Makes plans by hand, small enough to be right by inspection, and threads that execute them.
#![allow(dead_code, reason = "each test file uses a part of this")]

pub(crate) mod scene;

use std::time::Duration;

use roundelay::error::AccessRefusal;
use roundelay::launch::JobSetup;
use roundelay::transport::{SegmentLayout, TransportSet};
use roundelay::{Communicator, Error};
use roundelay_compiler::chunks::ChunkSet;
use roundelay_compiler::plan::{
    BufferPlacement, ChunkSizes, ConnectionEnd, CopyPolicy, MessageDirection, MessageRef, OpRef,
    OperationInput, OperationOutput, OperationStore, Plan, PlanBuffer, PlanHeader, PlanLane,
    PlanOperation, PlanRegion, RankPlan, SourceLine, UnprovedPlan, WireType,
};

/// Returns a header for `ranks` ranks and `chunks` chunks in place.
pub(crate) fn header(collective: &str, algorithm: &str, ranks: u32, chunks: u32) -> PlanHeader {
    let mut hash = [0; 16];
    for (i, byte) in format!("{collective}.{algorithm}/{ranks}").bytes().enumerate() {
        hash[i % 16] = (hash[i % 16] as u32 * 31 + u32::from(byte)) as u8;
    }
    PlanHeader {
        hash,
        algorithm: algorithm.into(),
        collective: collective.into(),
        ranks,
        root: 0,
        placement: BufferPlacement::InPlace,
        chunks,
        blocks: 1,
        input_chunks: 0,
        output_chunks: 0,
        scratch: vec![],
        slots: 2,
        pipeline: 1,
        message: chunks,
        reduces: true,
        lossy: false,
        protocol: CopyPolicy::Auto,
        split: None,
    }
}

/// The part of one rank, being written.
pub(crate) struct Part {
    pub(crate) header: PlanHeader,
    part: RankPlan,
}

impl Part {
    pub(crate) fn new(header: &PlanHeader, rank: u32) -> Self {
        let site = |line| SourceLine {
            file: "hand.algo".into(),
            line,
            column: 5,
            text: format!("statement {line}"),
        };
        let sites = (1..9).map(site).collect();
        let part = RankPlan { rank, conns: vec![], lanes: vec![PlanLane::default()], sites };
        Part { header: header.clone(), part }
    }

    fn conn(&mut self, peer: u32, channel: u16, dir: MessageDirection) -> u32 {
        let found = |c: &ConnectionEnd| (c.peer, c.channel, c.dir) == (peer, channel, dir);
        let at = self.part.conns.iter().position(found).unwrap_or_else(|| {
            self.part.conns.push(ConnectionEnd { peer, channel, path: 0, dir, messages: 0 });
            self.part.conns.len() - 1
        });
        self.part.conns[at].messages += 1;
        at as u32
    }

    /// Returns a message from a peer, whose memory at `pull` may be read instead.
    pub(crate) fn recv(
        &mut self,
        peer: u32,
        channel: u16,
        pull: Option<PlanRegion>,
    ) -> OperationInput {
        OperationInput::Message {
            conn: self.conn(peer, channel, MessageDirection::Recv),
            wire: None,
            pull,
        }
    }

    /// Returns a message to a peer, which may read `pull` instead.
    pub(crate) fn send(
        &mut self,
        peer: u32,
        channel: u16,
        pull: Option<PlanRegion>,
    ) -> OperationOutput {
        OperationOutput {
            conn: self.conn(peer, channel, MessageDirection::Send),
            wire: None,
            pull,
            origin: 0,
        }
    }

    /// Returns the message that the next [`Part::send`] on that connection will be.
    pub(crate) fn next_message(&mut self, peer: u32, channel: u16) -> MessageRef {
        let conn = self.conn(peer, channel, MessageDirection::Send);
        let messages = &mut self.part.conns[conn as usize].messages;
        *messages -= 1;
        MessageRef { conn, message: *messages }
    }

    pub(crate) fn lane(&mut self, lane: usize) -> &mut Vec<PlanOperation> {
        self.part.lanes.resize(self.part.lanes.len().max(lane + 1), PlanLane::default());
        &mut self.part.lanes[lane].ops
    }

    pub(crate) fn op(
        &mut self,
        inputs: Vec<OperationInput>,
        store: Option<PlanRegion>,
        outs: Vec<OperationOutput>,
        set: ChunkSet,
    ) {
        self.op_in(0, inputs, store, outs, set);
    }

    pub(crate) fn op_in(
        &mut self,
        lane: usize,
        inputs: Vec<OperationInput>,
        store: Option<PlanRegion>,
        outs: Vec<OperationOutput>,
        set: ChunkSet,
    ) {
        let round = self.lane(lane).len() as u32;
        let store = store.map(|region| OperationStore { region, dead: false });
        let sizes = ChunkSizes::Of(vec![set]);
        let (after, drained) = (vec![], vec![]);
        let site = round % 8;
        self.lane(lane).push(PlanOperation {
            inputs,
            store,
            outs,
            sizes,
            after,
            drained,
            site,
            round,
        });
    }

    /// Returns the latest operation of the first lane.
    pub(crate) fn last(&mut self) -> &mut PlanOperation {
        self.lane(0).last_mut().expect("an operation")
    }

    pub(crate) fn wire(mut self, wire: WireType) -> Self {
        self.header.lossy = true;
        for op in self.part.lanes.iter_mut().flat_map(|l| &mut l.ops) {
            for input in &mut op.inputs {
                if let OperationInput::Message { wire: w, pull, .. } = input {
                    (*w, *pull) = (Some(wire), None);
                }
            }
            for out in &mut op.outs {
                (out.wire, out.pull) = (Some(wire), None);
            }
        }
        self
    }

    pub(crate) fn plan(self) -> Plan {
        let plan = UnprovedPlan { header: self.header, part: self.part };
        plan.check().expect("a consistent plan")
    }
}

pub(crate) fn chunk(c: u32, of: u32) -> ChunkSet {
    ChunkSet::interval(c, 1, of)
}

pub(crate) fn data(set: ChunkSet) -> PlanRegion {
    PlanRegion::of(PlanBuffer::Data, set)
}

pub(crate) fn local(region: PlanRegion) -> OperationInput {
    OperationInput::Local(region)
}

/// Makes plans in which rank 0 sends everything to rank 1.
pub(crate) fn send_recv(header: &PlanHeader) -> Vec<Plan> {
    let all = ChunkSet::all(header.chunks);
    let mut parts = [Part::new(header, 0), Part::new(header, 1)];
    let out = parts[0].send(1, 0, Some(data(all)));
    parts[0].op(vec![local(data(all))], None, vec![out], all);
    let message = parts[1].recv(0, 0, Some(data(all)));
    parts[1].op(vec![message], Some(data(all)), vec![], all);
    parts.map(Part::plan).into()
}

/// Returns the ring, one operation a message, fused. Message `s` of a rank carries chunk `r - s`, message
/// `n - 1 + t` the result in chunk `r + 1 - t`.
pub(crate) fn ring(header: &PlanHeader) -> Vec<Plan> {
    let n = header.ranks;
    let mut header = header.clone();
    header.message = 1;
    let part = |r: u32| {
        let mut part = Part::new(&header, r);
        let (left, right) = ((r + n - 1) % n, (r + 1) % n);
        let region = |c: u32| data(chunk(c % n, n));
        let out = part.send(right, 0, Some(region(r)));
        part.op(vec![local(region(r))], None, vec![out], chunk(r, n));
        for s in 1..n {
            let c = (r + n - s) % n;
            let inputs = vec![local(region(c)), part.recv(left, 0, Some(region(c)))];
            let out = part.send(right, 0, Some(region(c)));
            part.op(inputs, Some(region(c)), vec![out], chunk(c, n));
            part.last().store.as_mut().expect("a store").dead = s + 1 < n;
        }
        for t in 1..n {
            let c = (r + 1 + n - t) % n;
            let drained = MessageRef { conn: 0, message: t - 1 };
            let message = part.recv(left, 0, Some(region(c)));
            let outs = match t + 1 < n {
                true => vec![part.send(right, 0, Some(region(c)))],
                false => vec![],
            };
            part.op(vec![message], Some(region(c)), outs, chunk(c, n));
            part.last().drained = vec![drained];
        }
        part.plan()
    };
    (0..n).map(part).collect()
}

/// Makes plans in which each rank sends everything to each other one and folds in rank order. With `pull`, peers
/// may read the data where it lies; as no rank may overwrite it before, the sum goes to scratch first.
pub(crate) fn one_shot(header: &PlanHeader, pull: bool) -> Vec<Plan> {
    let (n, all) = (header.ranks, ChunkSet::all(header.chunks));
    let mut header = header.clone();
    header.scratch = if pull { vec![header.chunks] } else { vec![] };
    let part = |r: u32| {
        let mut part = Part::new(&header, r);
        let peers = || (1..n).map(move |d| (r + d) % n);
        let region = || pull.then(|| data(all));
        let drained: Vec<MessageRef> = peers().map(|p| part.next_message(p, 0)).collect();
        let outs: Vec<OperationOutput> = peers().map(|p| part.send(p, 0, region())).collect();
        if n > 1 {
            part.op(vec![local(data(all))], None, outs, all);
        }
        let inputs = (0..n)
            .map(|p| match p == r {
                true => local(data(all)),
                false => part.recv(p, 0, region()),
            })
            .collect();
        if !pull {
            part.op(inputs, Some(data(all)), vec![], all);
            return part.plan();
        }
        let scratch = || PlanRegion::of(PlanBuffer::Scratch(0), all);
        part.op(inputs, Some(scratch()), vec![], all);
        part.op(vec![local(scratch())], Some(data(all)), vec![], all);
        part.last().drained = drained;
        part.plan()
    };
    (0..n).map(part).collect()
}

/// Makes plans in which everybody reduces one chunk and sends it to everybody; each peer's result is in a
/// lane of its own, and therefore on a channel of its own.
pub(crate) fn two_shot(header: &PlanHeader) -> Vec<Plan> {
    let n = header.ranks;
    let mut header = header.clone();
    header.message = 1;
    let part = |r: u32| {
        let mut part = Part::new(&header, r);
        let region = |c: u32| data(chunk(c, n));
        let peers = || (1..n).map(move |d| (r + d) % n);
        let mut drained = Vec::new();
        for p in peers() {
            drained.push(part.next_message(p, 0));
            let out = part.send(p, 0, Some(region(p)));
            part.op(vec![local(region(p))], None, vec![out], chunk(p, n));
        }
        let inputs = (0..n)
            .map(|p| match p == r {
                true => local(region(r)),
                false => part.recv(p, 0, Some(region(r))),
            })
            .collect();
        let outs = peers().map(|p| part.send(p, 1, Some(region(r)))).collect();
        part.op(inputs, Some(region(r)), outs, chunk(r, n));
        let reduce = OpRef { lane: 0, op: part.lane(0).len() as u32 - 1 };
        for (i, p) in peers().enumerate() {
            let message = part.recv(p, 1, Some(region(p)));
            part.op_in(i + 1, vec![message], Some(region(p)), vec![], chunk(p, n));
            let op = part.lane(i + 1).last_mut().expect("an operation");
            (op.after, op.drained) = (vec![reduce], vec![drained[i]]);
        }
        part.plan()
    };
    (0..n).map(part).collect()
}

/// Makes plans after which all ranks have come when all ranks leave.
pub(crate) fn barrier(ranks: u32) -> Vec<Plan> {
    let header = header("barrier", "dissemination", ranks, 1);
    let part = |r: u32| {
        let mut part = Part::new(&header, r);
        let none = PlanRegion::of(PlanBuffer::Data, chunk(0, 1));
        let mut distance = 1;
        while distance < ranks {
            let out = part.send((r + distance) % ranks, 0, None);
            part.op(vec![local(none.clone())], None, vec![out], chunk(0, 1));
            let message = part.recv((r + ranks - distance) % ranks, 0, None);
            part.op(vec![message], Some(none.clone()), vec![], chunk(0, 1));
            distance *= 2;
        }
        part.plan()
    };
    (0..ranks).map(part).collect()
}

/// Returns a small layout: slots so small that plans take many passes.
pub(crate) fn layout(ranks: u32, slot_bytes: u64) -> SegmentLayout {
    SegmentLayout { slot_bytes, arena_bytes: 64 << 20, ..SegmentLayout::new(ranks) }
}

/// Waits until a process is stopped.
pub(crate) fn until_stopped(pid: u64) {
    until(pid, 'T');
}

/// Waits until a process has ended that its parent has not waited for.
pub(crate) fn until_ended(pid: u64) {
    until(pid, 'Z');
}

fn until(pid: u64, state: char) {
    let is_so = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(state))
    };
    while !is_so() {
        std::thread::yield_now();
    }
}

/// Tries with longer and longer timeouts, until `body` finds what it wants: on a busy machine a rank may
/// not come to do its part within a short one, and looks as if it were late.
pub(crate) fn patiently(body: impl Fn(Duration) -> Result<(), String>) {
    let tries = (0..8).map(|i| body(Duration::from_millis(100 << i)));
    let mut failures: Vec<String> = Vec::new();
    for result in tries {
        match result {
            Ok(()) => return,
            Err(why) => failures.push(why),
        }
    }
    panic!("however long the timeout, up to 12.8 s: {failures:#?}");
}

/// Runs `body` for every rank of a job, each in a thread.
pub(crate) fn threads<T: Send>(
    layout: SegmentLayout,
    body: impl Fn(&mut Communicator, usize) -> T + Sync,
) -> Vec<T> {
    run_ranks(roundelay::internal::local_with(layout).expect("shared memory"), body)
}

pub(crate) fn run_ranks<T: Send>(
    ranks: Vec<Communicator>,
    body: impl Fn(&mut Communicator, usize) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let start = |(r, mut comm): (usize, Communicator)| scope.spawn(move || body(&mut comm, r));
        let threads: Vec<_> = ranks.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|t| t.join().expect("a rank")).collect()
    })
}

/// Runs the body over shared memory, over sockets, and over both: memory between ranks r and r + 2.
pub(crate) fn everywhere<T: Send>(
    ranks: u32,
    slot_bytes: u64,
    body: impl Fn(&mut Communicator, usize) -> T + Sync,
) -> Vec<Vec<T>> {
    let tcp = |_| JobSetup::new().transports(TransportSet::TCP);
    let mixed = |rank: u32| JobSetup::new().host_label(format!("machine {}", rank % 2));
    let over = |setup: &(dyn Fn(u32) -> JobSetup + Sync)| {
        let setup = |rank| setup(rank).slot_bytes(slot_bytes);
        run_ranks(Communicator::local_over(ranks, setup).expect("the ranks join"), &body)
    };
    vec![threads(layout(ranks, slot_bytes), &body), over(&tcp), over(&mixed)]
}

/// Returns the refusal of an operation on a window, which must have one.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> AccessRefusal {
    match result.expect_err("refused") {
        Error::Window { refusal, .. } => refusal,
        other => panic!("another error: {other}"),
    }
}

/// Returns what a rank contributes: small whole numbers, so that every sum is exact.
pub(crate) fn contribution(rank: usize, i: usize, salt: usize) -> f32 {
    ((i * 7 + rank * 13 + salt * 5) % 101) as f32 - 50.0
}

/// Returns the sum of all contributions.
pub(crate) fn total(ranks: usize, i: usize, salt: usize) -> f32 {
    (0..ranks).map(|r| contribution(r, i, salt)).sum()
}
