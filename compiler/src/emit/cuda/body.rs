//! The kernel around the arms.

use std::fmt::Write;

use super::share;
use super::types::{of_wire, wires};
use super::{INCLUDE, KERNEL, Operator, Spec, place};
use crate::device::abi::THREADS;
use crate::device::{DeviceProgram, Phase, Target, Way};
use crate::plan::{Placement, Wire};

/// A body that is being written.
pub(super) struct Body<'a> {
    pub(super) program: &'a DeviceProgram,
    pub(super) spec: &'a Spec,
    /// Elements that are handled at once.
    pub(super) group: u32,
    text: String,
    depth: usize,
}

/// Adds a line at the depth at hand.
pub(super) trait Line<T> {
    fn line(&mut self, line: T);
}

impl Line<&str> for Body<'_> {
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

impl Line<String> for Body<'_> {
    fn line(&mut self, line: String) {
        Line::<&str>::line(self, &line);
    }
}

impl<'a> Body<'a> {
    pub(super) fn new(program: &'a DeviceProgram, spec: &'a Spec) -> Self {
        let size = spec.element.size();
        let narrowest = wires(program).map(|wire: Wire| of_wire(wire).0).fold(size, u32::min);
        let group = match (program.way, spec.aligned) {
            (Way::Packet, _) => 8 / narrowest,
            (_, true) => 16 / size,
            (_, false) => 1,
        };
        Body { program, spec, group, text: String::new(), depth: 0 }
    }

    pub(super) fn deeper(&mut self) {
        self.depth += 1;
    }

    pub(super) fn shallower(&mut self) {
        self.depth -= 1;
    }

    /// Whether operands are multiplied where they are read: inputs are, data in place once before all else.
    pub(super) fn scales_inputs(&self) -> bool {
        self.scales() && self.program.header.placement == Placement::OutOfPlace
    }

    fn scales(&self) -> bool {
        self.program.header.reduces && self.spec.operator == Operator::PremulSum
    }

    fn divides(&self) -> bool {
        self.program.header.reduces && self.spec.operator == Operator::Avg
    }

    pub(super) fn write(mut self) -> String {
        self.head();
        self.line(format!(
            "extern \"C\" __global__ void __launch_bounds__({THREADS}, 1)\n{KERNEL}(const __grid_constant__ Params params) {{"
        ));
        self.deeper();
        self.start();
        let packets = self.program.way == Way::Packet;
        if !packets {
            self.line("for (u64 t = 0; t < params.passes; ++t) {");
            self.deeper();
            self.line("me.pass(t);");
        }
        for (i, phase) in self.program.phases.iter().enumerate() {
            self.phase(i, phase);
        }
        if !packets {
            self.shallower();
            self.line("}");
        }
        self.end();
        self.shallower();
        self.line("}");
        self.text
    }

    /// What the prelude must know, and what it makes of it.
    fn head(&mut self) {
        let (h, spec) = (&self.program.header, self.spec);
        let way = match self.program.way {
            Way::Packet => "packets",
            Way::Staged => "staged",
            Way::Put => "put into the peers' buffers, sums staged",
            Way::Get => "put into the peers' buffers, sums read there",
        };
        let what = match h.reduces {
            true => format!("{} {}", spec.element.name(), spec.operator.name()),
            false => spec.element.name().into(),
        };
        let aligned = if spec.aligned { "aligned" } else { "not aligned" };
        let (n, rank) = (h.ranks, self.program.rank);
        self.line(format!(
            "// {}.{}, rank {rank} of {n}: {way}; {what}, {aligned}",
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
        self.line(INCLUDE.trim_end());
        self.line(format!("using Value = {};", spec.element.value()));
        if h.reduces {
            self.line(format!("using Operator = {};", spec.operator.pair()));
        }
        self.line(format!("constexpr u32 GROUP = {};", self.group));
        self.text.push_str(GROUPS);
        if self.scales_inputs() {
            self.text.push_str(&SCALED.replace("FORMAT", spec.element.format()));
        }
        self.text.push('\n');
    }

    fn start(&mut self) {
        self.line("Me me(params);");
        let mut before = String::from("params.scratch");
        for (i, chunks) in self.program.header.scratch.iter().enumerate() {
            self.line(format!("const u64 scratch{i} = {before};"));
            before = format!("(scratch{i} + {chunks} * SIZE * me.most + 255) / 256 * 256");
        }
        let signals = self.program.phases.iter().any(|phase| !phase.signals.is_empty());
        if signals {
            self.line("if (me.thread == 0) failed = 0;");
            self.line("__syncthreads();");
        }
        if self.scales() && !self.scales_inputs() {
            self.each_own("data", self.program.header.chunks, "times");
            self.line("__syncthreads();");
        }
        self.line("announce(me);");
        if !self.program.greets.is_empty() {
            let peers: Vec<_> = self.program.greets.iter().map(u32::to_string).collect();
            self.line(format!("{{ const u32 peers[] = {{{}}};", peers.join(", ")));
            self.line("  greet(me, peers); }");
        }
        if self.program.way != Way::Packet {
            self.enter();
        }
    }

    /// Before the first write into staging memory.
    pub(super) fn enter(&mut self) {
        let mut peers: Vec<u32> = self
            .program
            .phases
            .iter()
            .flat_map(|phase| &phase.arms)
            .flat_map(|arm| &arm.outs)
            .filter_map(|out| match out {
                Target::Packet(m, _) | Target::Staged(m, _) => Some(self.peer(*m)),
                Target::Landed(..) => None,
            })
            .filter(|&peer| peer != self.program.rank)
            .collect();
        peers.sort_unstable();
        peers.dedup();
        if !peers.is_empty() {
            let peers: Vec<_> = peers.iter().map(u32::to_string).collect();
            self.line(format!("{{ const u32 peers[] = {{{}}};", peers.join(", ")));
            self.line("  enter(me, peers); }");
        }
    }

    fn phase(&mut self, i: usize, phase: &Phase) {
        self.text.push('\n');
        self.line(format!("// phase {i}"));
        let arms = share::merged(&phase.arms);
        let warps = share::warps(arms.iter().map(|(arm, _)| arm));
        for ((arm, sites), warps) in arms.iter().zip(warps) {
            self.arm(arm, sites, warps);
        }
        if phase.meet {
            self.line("__syncthreads();");
        }
        for release in [true, false] {
            let told: Vec<_> = phase.signals.iter().filter(|s| s.release == release).collect();
            for some in told.chunks(32) {
                let events: Vec<_> =
                    some.iter().map(|s| place::told(self.program, s.message)).collect();
                self.line(format!("{{ const Event events[] = {{{}}};", events.join(", ")));
                self.line(format!("  signal<{release}>(me, events); }}"));
            }
        }
    }

    fn end(&mut self) {
        self.text.push('\n');
        if !self.program.leave.is_empty() {
            self.line("if (me.warp == 0) {");
            let leave = self.program.leave.clone();
            self.waits(&leave, u32::MAX, u32::MAX);
            self.line("}");
        }
        self.line("__syncthreads();");
        if self.divides() {
            let header = &self.program.header;
            match header.placement {
                Placement::InPlace => self.each_own("data", header.chunks, "divide"),
                Placement::OutOfPlace => self.each_own("output", header.output_chunks, "divide"),
            }
        }
        self.line("leave(me);");
    }

    /// Something done to the block's part of all chunks of one of the callers' buffers.
    fn each_own(&mut self, buffer: &str, chunks: u32, what: &str) {
        let (rank, format) = (self.program.rank, self.spec.element.format());
        self.line(format!("if (params.{buffer}[{rank}] != 0)"));
        self.line(format!("    each_own(me, params.{buffer}[{rank}], {chunks}, [&](u64 at) {{ {what}<{format}, Value>(me, at); }});"));
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
INLINE Values<Value, GROUP> scaled(const Me &me, Values<Value, GROUP> x) {
    const Value by = factor(me.params.factor, Value());
#pragma unroll
    for (u32 k = 0; k < GROUP; ++k) x.v[k] = Prod::of(x.v[k], by);
    return wide<FORMAT>(slim<FORMAT>(x));
}
";
