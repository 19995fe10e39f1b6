//! The function around the tasks.

use std::fmt::Write;
use std::ops::Range;

use super::alike::{alike, number, plain, unite};
use super::average::LastStores;
use super::moves::CopyLoops;
use super::share::{self, TaskOwner};
use super::spec::{INCLUDE, KernelSpec};
use super::types::Operator;
use super::types::{of_wire, wires};
use super::{multicast, place};
use roundelay_compiler::device::{
    DevicePhase, DeviceProgram, DeviceProtocol, DeviceTask, TaskOutput,
};
use roundelay_compiler::num::index;
use roundelay_compiler::plan::{BufferPlacement, PlanRegion, WireType};

/// A body that is being written.
pub(super) struct KernelBody<'a> {
    pub(super) program: &'a DeviceProgram,
    pub(super) spec: &'a KernelSpec,
    /// Elements that are handled at once.
    pub(super) group: u32,
    /// True if all threads know that they may write into the peers' staging memory.
    pub(super) entered: bool,
    /// The phases in which results are divided as they are stored; `None` if they are divided at the end, or
    /// never.
    averages: Option<LastStores>,
    /// The loops over elements, which become functions where they occur often.
    pub(super) moves: CopyLoops,
    /// The phase that is being written.
    phase: usize,
    /// True if the rank has signalled its entry.
    announced: bool,
    text: String,
    depth: usize,
}

/// Tasks of a phase that are alike.
struct AlikeTasks {
    texts: Vec<String>,
    role: TaskOwner,
    weight: u64,
}

/// Adds a line at the depth at hand.
pub(super) trait WriteLine<T> {
    fn line(&mut self, line: T);
}

impl WriteLine<&str> for KernelBody<'_> {
    fn line(&mut self, line: &str) {
        if line.is_empty() {
            return;
        }
        if !line.starts_with('#') {
            let _ = write!(self.text, "{:1$}", "", 4 * self.depth);
        }
        self.text.push_str(line);
        self.text.push('\n');
    }
}

impl WriteLine<String> for KernelBody<'_> {
    fn line(&mut self, line: String) {
        WriteLine::<&str>::line(self, &line);
    }
}

impl<'a> KernelBody<'a> {
    pub(super) fn new(program: &'a DeviceProgram, spec: &'a KernelSpec) -> Self {
        let size = spec.element.size();
        let narrowest = wires(program).map(|wire: WireType| of_wire(wire).0).fold(size, u32::min);
        let group = match (program.protocol, spec.aligned) {
            (DeviceProtocol::Packet, _) => 8 / narrowest,
            (_, true) => 16 / size,
            (_, false) => 1,
        };
        let mut body = KernelBody {
            program,
            spec,
            group,
            entered: false,
            averages: None,
            moves: CopyLoops::default(),
            phase: 0,
            announced: program.protocol != DeviceProtocol::Packet,
            text: String::new(),
            depth: 0,
        };
        if body.divides() {
            body.averages = LastStores::of(program);
        }
        body
    }

    /// Returns true if a task of the phase at hand stores a result of `avg` in `store`.
    pub(super) fn is_average(&self, store: &PlanRegion) -> bool {
        self.averages.as_ref().is_some_and(|stores| stores.are_last(self.phase, store))
    }

    pub(super) fn deeper(&mut self) {
        self.depth += 1;
    }

    pub(super) fn shallower(&mut self) {
        self.depth -= 1;
    }

    /// Returns true if operands are multiplied where they are read: inputs are; data in place is multiplied
    /// once before all else.
    pub(super) fn scales_inputs(&self) -> bool {
        self.scales() && self.program.header.placement == BufferPlacement::OutOfPlace
    }

    fn scales(&self) -> bool {
        self.program.header.reduces && self.spec.operator == Operator::PremulSum
    }

    fn divides(&self) -> bool {
        self.program.header.reduces && self.spec.operator == Operator::Avg
    }

    /// Writes `run`, the function that runs the program, and all that it stands on.
    pub(super) fn write(mut self) -> String {
        let run = self.at(0, Self::run);
        self.head();
        let (functions, run) = self.moves.settle(&run);
        self.text + &functions + &run
    }

    /// Writes the function; its loops are settled later.
    fn run(&mut self) {
        self.line("static INLINE void run(const Params &params, const Call &call) {");
        self.deeper();
        self.me();
        match self.program.protocol {
            DeviceProtocol::Engine => self.parts(),
            _ => self.whole(),
        }
        self.end();
        self.shallower();
        self.line("}");
    }

    /// Writes the constants and types that the prelude needs, and the definitions that it builds from them.
    fn head(&mut self) {
        let (h, spec) = (&self.program.header, self.spec);
        let protocol = match self.program.protocol {
            DeviceProtocol::Packet => "packets",
            DeviceProtocol::Staged => "staged",
            DeviceProtocol::Put => "put into the peers' buffers, sums staged",
            DeviceProtocol::Get => "put into the peers' buffers, sums read there",
            DeviceProtocol::Engine => "read in the peers' buffers by copy engines",
            DeviceProtocol::Multicast => "read and written on all ranks at once by the switch",
        };
        let what = match h.reduces {
            true => format!("{} {}", spec.element.name(), spec.operator.name()),
            false => spec.element.name().into(),
        };
        let aligned = if spec.aligned { "aligned" } else { "not aligned" };
        let (n, rank) = (h.ranks, self.program.rank);
        self.line(format!(
            "// {}.{}, rank {rank} of {n}: {protocol}; {what}, {aligned}",
            h.collective, h.algorithm
        ));
        for (name, value) in [
            ("RANKS", n),
            ("RANK", rank),
            ("PARTS", h.chunks),
            ("BLOCKS_OF", h.blocks),
            ("SIZE", spec.element.size()),
        ] {
            self.line(format!("constexpr unsigned {name} = {value};"));
        }
        self.line(format!("constexpr bool PROVES = {};", self.program.synchronizes));
        self.line(format!(
            "constexpr bool PACKETS = {};",
            self.program.protocol == DeviceProtocol::Packet
        ));
        self.line(format!("constexpr bool FAR = {};", self.program.is_far()));
        self.line(INCLUDE.trim_end());
        self.line(format!("using Value = {};", spec.element.value()));
        if h.reduces {
            self.line(format!("using Operator = {};", spec.operator.pair()));
        }
        self.line(format!("constexpr u32 GROUP = {};", self.group));
        self.text.push_str(GROUPS);
        if self.program.protocol == DeviceProtocol::Multicast {
            self.text.push_str(multicast::TEXT);
            let reduced = multicast::reduced(spec.element, spec.operator).filter(|_| h.reduces);
            self.text.push_str(&reduced.unwrap_or_default());
        }
        if self.scales_inputs() {
            self.text.push_str(&SCALED.replace("FORMAT", spec.element.format()));
        }
        if self.averages.is_some() {
            self.text.push_str(&AVERAGE.replace("FORMAT", spec.element.format()));
        }
        self.text.push('\n');
    }

    /// Writes all phases.
    fn whole(&mut self) {
        self.start();
        let one_pass = self.program.protocol.is_one_pass();
        if !one_pass {
            self.line("#pragma unroll 1");
            self.line("for (u64 t = 0; t < me.call.passes; ++t) {");
            self.deeper();
            self.line("me.pass(t);");
        }
        self.phases(0..self.program.phases.len());
        if !one_pass {
            self.shallower();
            self.line("}");
        }
    }

    /// Writes the phases before the copies of engines, and those from there on: two launches.
    fn parts(&mut self) {
        let (copying, all) = (self.program.copying(), self.program.phases.len());
        self.line("if (params.part == 0) {");
        self.deeper();
        self.start();
        self.phases(0..copying);
        self.line("return;");
        self.shallower();
        self.line("}");
        self.phases(copying..all);
    }

    fn me(&mut self) {
        self.line("Me me(params, call);");
        let mut before = String::from("params.scratch");
        for (i, chunks) in self.program.header.scratch.iter().enumerate() {
            self.line(format!("[[maybe_unused]] const u64 scratch{i} = {before};"));
            before = format!("(scratch{i} + {chunks} * SIZE * me.most + 255) / 256 * 256");
        }
        if self.program.protocol != DeviceProtocol::Packet {
            // All threads of a block go on, or none does.
            self.line("if (me.thread == 0) failed = me.over;");
            self.line("__syncthreads();");
            self.line("if (failed) return;");
        }
    }

    /// Writes the code before the first phase.
    fn start(&mut self) {
        if self.scales() && !self.scales_inputs() {
            self.each_own("data", self.program.header.chunks, "TIMES");
            self.line("__syncthreads();");
        }
        if self.program.is_far() {
            self.line("arrive(me);");
        }
        if self.program.protocol != DeviceProtocol::Packet {
            self.announce();
        }
        if !self.program.greets.is_empty() {
            let peers = self.peers(self.program.greets.clone());
            self.line(format!("greet(me, {peers});"));
        }
        if self.program.protocol != DeviceProtocol::Packet {
            self.enter();
        }
    }

    /// Tells those that are not greeted that this rank has entered.
    fn announce(&mut self) {
        let (n, rank) = (self.program.header.ranks, self.program.rank);
        let DeviceProgram { greets, elsewhere, .. } = self.program;
        let others = (0..n)
            .filter(|peer| *peer != rank && !greets.contains(peer) && !elsewhere.contains(peer));
        let others: Vec<_> = others.collect();
        if !others.is_empty() {
            let others = self.peers(others);
            self.line(format!("announce(me, {others});"));
        }
    }

    /// Returns arguments for peers, beginning with those after this rank: their number, and the k-th.
    fn peers(&self, mut peers: Vec<u32>) -> String {
        peers.sort_by_key(|&peer| self.distance(peer));
        plain(&self.kth(&peers.into_iter().map(number).collect::<Vec<_>>()))
    }

    /// Returns arguments for what is done to several things at once, a thread for each: their number and the
    /// k-th, if they are alike, else all of them.
    pub(super) fn together(&self, things: &[String]) -> String {
        match things {
            [first, _, ..] if things.iter().all(|thing| alike(first, thing)) => self.kth(things),
            _ => things.join(", "),
        }
    }

    /// Returns arguments for things that are alike: their number, and the k-th.
    fn kth(&self, things: &[String]) -> String {
        let texts: Vec<&str> = things.iter().map(String::as_str).collect();
        let kth = unite(&texts, "k", &self.moduli());
        format!("{}, [&](u32 k) {{ return {kth}; }}", things.len())
    }

    /// Writes the code before the first write into staging memory.
    pub(super) fn enter(&mut self) {
        let mut peers: Vec<u32> = self
            .program
            .phases
            .iter()
            .flat_map(|phase| &phase.tasks)
            .flat_map(|task| &task.outs)
            .filter_map(|out| match out {
                TaskOutput::Packet(m, _) | TaskOutput::Staged(m, _) => {
                    Some(&self.program.links[index(m.link)])
                }
                TaskOutput::Landed(..) => None,
            })
            .filter(|link| !link.far && link.peer != self.program.rank)
            .map(|link| link.peer)
            .collect();
        peers.sort_unstable();
        peers.dedup();
        if !peers.is_empty() {
            let peers: Vec<_> = peers.iter().map(u32::to_string).collect();
            self.line(format!("enter<{}>(me);", peers.join(", ")));
        }
    }

    /// Writes the code of some phases; those that are alike and follow each other are a loop.
    fn phases(&mut self, which: Range<usize>) {
        let (program, mut first) = (self.program, which.start);
        let mut phases = Vec::new();
        for i in which {
            self.phase = i;
            phases.push(self.phase(&program.phases[i]));
        }
        for some in phases.chunk_by(|a, b| alike(a, b)) {
            if first > 0 && !self.announced {
                // Not earlier: the first elements are asked for before the epoch is known.
                self.announce();
                self.announced = true;
            }
            let last = first + some.len() - 1;
            self.text.push('\n');
            if let [one] = some {
                self.line(format!("// phase {first}"));
                self.line("{");
                self.text.push_str(&plain(one));
            } else {
                let texts: Vec<&str> = some.iter().map(String::as_str).collect();
                self.line(format!("// phases {first} to {last}"));
                self.line("#pragma unroll 1");
                self.line(format!("for (u32 p = 0; p < {}; ++p) {{", some.len()));
                self.text.push_str(&plain(&unite(&texts, "p", &self.moduli())));
            }
            self.line("}");
            first = last + 1;
        }
    }

    /// Returns the numbers at which indices wrap: ranks and chunks.
    fn moduli(&self) -> [u32; 2] {
        [self.program.header.ranks, self.program.header.chunks]
    }

    /// Returns the text that `write` writes, indented one deeper than the rest.
    fn apart(&mut self, write: impl FnOnce(&mut Self)) -> String {
        self.at(self.depth + 1, write)
    }

    /// Returns the text that `write` writes at the given depth.
    pub(super) fn at(&mut self, depth: usize, write: impl FnOnce(&mut Self)) -> String {
        let text = std::mem::take(&mut self.text);
        let depth = std::mem::replace(&mut self.depth, depth);
        write(self);
        self.depth = depth;
        std::mem::replace(&mut self.text, text)
    }

    /// Writes the tasks of a phase: those that are alike are one, with an index.
    fn tasks(&mut self, phase: &DevicePhase) {
        let program = self.program;
        let tasks = match program.protocol {
            DeviceProtocol::Packet => share::turned(program, share::merged(&phase.tasks)),
            _ => {
                let tasks =
                    phase.tasks.iter().map(|task| (task.clone(), vec![task.site])).collect();
                share::kept(share::turned(program, tasks))
            }
        };
        if let [(task, sites)] = &tasks[..] {
            return self.task(task, sites, true);
        }
        let mut kinds: Vec<AlikeTasks> = Vec::new();
        for (task, sites) in tasks {
            let text = self.apart(|body| body.task(&task, &sites, false));
            let (role, weight) = (TaskOwner::of(&task), share::weight(&task));
            match kinds.iter_mut().find(|kind| alike(&kind.texts[0], &text)) {
                Some(kind) => {
                    kind.texts.push(text);
                    kind.weight += weight;
                }
                None => kinds.push(AlikeTasks { texts: vec![text], role, weight }),
            }
        }
        let weights: Vec<u64> = kinds.iter().map(|kind| kind.weight).collect();
        let roles: Vec<_> = kinds.iter().map(|kind| (kind.role, kind.weight)).collect();
        for (kind, warps) in kinds.iter().zip(share::warps(&weights)) {
            let (first, count, tasks) = (warps.start, warps.end - warps.start, kind.texts.len());
            let texts: Vec<&str> = kind.texts.iter().map(String::as_str).collect();
            let mut among = String::new();
            let turn = kind.role.warps(&roles);
            if turn != (0..share::WARPS) {
                among = format!(", {}, {}", turn.start, turn.end - turn.start);
            }
            if let [one] = texts[..] {
                self.line(format!(
                    "if (const Team share(me, {first}, {count}{among}); share.team != 0) {{"
                ));
                self.text.push_str(one);
                self.line("}");
                continue;
            }
            self.line("#pragma unroll 1");
            self.line(format!(
                "for (Share share(me, {first}, {count}, {tasks}{among}); share.task < {tasks}; share.task += share.stride) {{"
            ));
            self.text.push_str(&unite(&texts, "share.task", &self.moduli()));
            self.line("}");
        }
    }

    fn phase(&mut self, phase: &DevicePhase) -> String {
        self.apart(|body| {
            match body.program.protocol == DeviceProtocol::Engine
                && phase.tasks.iter().any(DeviceTask::moves)
            {
                true => phase.tasks.iter().for_each(|task| body.comment(&[task.site])),
                false => body.tasks(phase),
            }
            body.after(phase);
        })
    }

    /// Writes the code that follows the tasks of a phase.
    fn after(&mut self, phase: &DevicePhase) {
        let sends = |target: &TaskOutput| matches!(target, TaskOutput::Packet(..));
        if !self.entered && phase.tasks.iter().flat_map(|task| &task.outs).any(sends) {
            // Threads that had nothing to send here may have later.
            self.enter();
            self.entered = true;
        }
        if phase.block_barrier {
            self.line("__syncthreads();");
        }
        for release in [true, false] {
            let mut signals: Vec<_> =
                phase.signals.iter().filter(|s| s.release == release).collect();
            signals.sort_by_key(|signal| self.distance(self.peer(signal.message)));
            let news = signals.iter().map(|signal| place::signal(self.program, signal.message));
            let news: Vec<String> = news.collect();
            if !news.is_empty() {
                self.line(format!("signal<{release}>(me, {});", self.together(&news)));
            }
        }
    }

    fn end(&mut self) {
        self.text.push('\n');
        if !self.announced {
            self.announce();
        }
        if !self.program.leave.is_empty() {
            self.line("if (me.warp == 0) {");
            let leave = self.apart(|body| {
                let leave = body.program.leave.clone();
                body.waits(&leave, u32::MAX, u32::MAX);
            });
            self.text.push_str(&plain(&leave));
            self.line("}");
        }
        self.line("__syncthreads();");
        if self.divides() && self.averages.is_none() {
            let header = &self.program.header;
            match header.placement {
                BufferPlacement::InPlace => self.each_own("data", header.chunks, "OVER"),
                BufferPlacement::OutOfPlace => {
                    self.each_own("output", header.output_chunks, "OVER");
                }
            }
        }
        self.line("leave(me);");
    }

    /// Writes a step over the block's part of all chunks of one of the callers' buffers.
    fn each_own(&mut self, buffer: &str, chunks: u32, what: &str) {
        let (rank, format) = (self.program.rank, self.spec.element.format());
        let count = if self.spec.aligned { 16 / self.spec.element.size() } else { 1 };
        self.line(format!(
            "if (me.{buffer}({rank}) != 0) own<Own::{what}, {format}, Value, {count}>(me, me.{buffer}({rank}), {chunks});"
        ));
    }
}

/// Groups of the body's values.
const GROUPS: &str = "
template <class FORMAT> INLINE Values<Value, GROUP> wide(const Piece<FORMAT::BYTES * GROUP> &x) {
    return widen<FORMAT, Value, GROUP>(x);
}
template <class FORMAT> INLINE Piece<FORMAT::BYTES * GROUP> slim(const Values<Value, GROUP> &x) {
    return narrow<FORMAT, Value, GROUP>(x);
}
";

/// Operands of `premul_sum`, rounded as if they had been stored between.
const SCALED: &str = "
INLINE Values<Value, GROUP> scaled(const Params &params, const Values<Value, GROUP> &x) {
    return wide<FORMAT>(slim<FORMAT>(multiplied(x, factor(params.factor, Value()))));
}
";

/// Results of `avg`, of sums as they are stored.
const AVERAGE: &str = "
INLINE Piece<SIZE * GROUP> average(const Piece<SIZE * GROUP> &sum) {
    return slim<FORMAT>(divided(wide<FORMAT>(sum)));
}
";
