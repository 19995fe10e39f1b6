//! The code of an arm.
//!
//! A team of warps takes a chunk. Each of its threads takes every so many-th group of the chunk's elements, `AHEAD`
//! of them at a time: it asks for all their operands before it needs the first, for a peer's memory is a microsecond
//! away. What is out of range is masked, so that short chunks cost what one round of loads costs.

use std::fmt::Write;

use super::alike::number;
use super::body::{Body, Line};
use super::place;
use super::share::WARPS;
use super::types::of_wire;
use crate::device::abi::THREADS;
use crate::device::{Arm, Message, Source, Target, Wait, Way};
use crate::plan::{Buf, Region, Wire};

/// Most operands that a thread asks for at once.
const AT_ONCE: usize = 8;

/// How an operand of an arm is reached.
struct Operand {
    /// Its variable in the code.
    name: String,
    /// Element type there, if not the buffer's.
    wire: Option<Wire>,
    /// The peer whose packets it is made of.
    packets: Option<u32>,
    /// To be multiplied by the factor.
    scaled: bool,
}

impl Body<'_> {
    /// The code of an arm. If it is `alone` in its phase all warps play it, else those of the `share` at hand.
    pub(super) fn arm(&mut self, arm: &Arm, sites: &[u32], alone: bool) {
        self.comment(sites);
        self.line("me.here();");
        self.waits(&arm.waits, arm.site, arm.round);
        if !arm.inputs.is_empty() && (arm.store.is_some() || !arm.outs.is_empty()) {
            self.fold(arm, alone);
        }
    }

    /// The source lines of an arm.
    fn comment(&mut self, sites: &[u32]) {
        for &site in sites {
            let site = &self.program.sites[site as usize];
            let text: String = site.text.lines().next().unwrap_or("").chars().take(100).collect();
            let line = format!("// {}:{}: {text}", site.file, site.line);
            self.line(line.replace(['\\', '?'], " ").trim_end());
        }
    }

    /// Waits, a lane each.
    pub(super) fn waits(&mut self, waits: &[Wait], site: u32, round: u32) {
        for acquire in [true, false] {
            let chosen: Vec<_> = waits.iter().filter(|wait| wait.acquire == acquire).collect();
            for some in chosen.chunks(32) {
                let place = |x: u32| if x == u32::MAX { "NOWHERE".into() } else { number(x) };
                let mut call = format!("wait<{acquire}>(me, {}, {}", place(site), place(round));
                for wait in some {
                    let _ = write!(call, ", {}", place::awaited(self.program, wait.event));
                }
                self.line(call + ");");
            }
        }
    }

    fn fold(&mut self, arm: &Arm, alone: bool) {
        let chunks = arm.sizes.chunks();
        let (lead, team) = if alone { ("me.warp", "16") } else { ("share.lead", "share.team") };
        // Warps take the chunks in turn; several of one chunk divide its groups.
        let (first, step) = match (chunks, alone) {
            (1, true) => ("me.thread".into(), THREADS.to_string()),
            (1, false) => (format!("{lead} * 32 + me.lane"), format!("{team} * 32")),
            (_, true) if WARPS % chunks == 0 => {
                (format!("{lead} / {chunks} * 32 + me.lane"), (WARPS / chunks * 32).to_string())
            }
            _ => {
                let step = format!("({team} - k + {}) / {chunks} * 32", chunks - 1);
                (format!("{lead} / {chunks} * 32 + me.lane"), step)
            }
        };
        if chunks > 1 {
            self.line("#pragma unroll 1");
            self.line(format!("for (u32 k = {lead} % {chunks}; k < {chunks}; k += {team}) {{"));
            self.deeper();
        }
        self.line(format!("const u64 elements = me.part({});", place::length(&arm.sizes)));
        let inputs = self.inputs(arm, chunks);
        let outs = self.outs(arm, chunks);
        self.line("const u32 groups = (u32)((elements + GROUP - 1) / GROUP);");
        let ahead = self.ahead(&inputs);
        self.line(format!("const u32 step = {step};"));
        self.line("#pragma unroll 1");
        self.line(format!("for (u32 i = {first}; i < groups; i += {ahead} * step) {{"));
        self.deeper();
        self.round(arm, &inputs, &outs, ahead);
        self.shallower();
        self.line("}");
        if chunks > 1 {
            self.shallower();
            self.line("}");
        }
    }

    /// Names the inputs' addresses.
    fn inputs(&mut self, arm: &Arm, chunks: u32) -> Vec<Operand> {
        let mut inputs = Vec::new();
        for (i, source) in arm.inputs.iter().enumerate() {
            let name = format!("in{i}");
            let (address, wire, packets) = match source {
                Source::Local(region) => (place::region(self.program.rank, region), None, None),
                Source::Pulled(m, region) => (place::region(self.peer(*m), region), None, None),
                Source::Staged(m, wire) => (place::slot(self.program, *m, chunks), *wire, None),
                Source::Packet(m, wire) => {
                    (place::slot(self.program, *m, chunks), *wire, Some(self.peer(*m)))
                }
            };
            let scaled = self.scales_inputs()
                && match source {
                    Source::Local(region) | Source::Pulled(_, region) => in_input(region),
                    _ => false,
                };
            self.line(format!("const u64 {name} = {address};"));
            inputs.push(Operand { name, wire: self.spec.element.wire(wire), packets, scaled });
        }
        inputs
    }

    /// Names the outputs' addresses: the store, then the outs, beginning with the rank after this one.
    fn outs(&mut self, arm: &Arm, chunks: u32) -> Vec<Operand> {
        let mut outs = Vec::new();
        if let Some(region) = &arm.store {
            let address = place::region(self.program.rank, region);
            self.line(format!("const u64 kept = {address};"));
            outs.push(Operand { name: "kept".into(), wire: None, packets: None, scaled: false });
        }
        let mut targets: Vec<_> = arm
            .outs
            .iter()
            .map(|target| match target {
                Target::Packet(m, wire) => (*m, place::slot(self.program, *m, chunks), *wire, true),
                Target::Staged(m, wire) => {
                    (*m, place::slot(self.program, *m, chunks), *wire, false)
                }
                Target::Landed(m, region) => {
                    (*m, place::region(self.peer(*m), region), None, false)
                }
            })
            .collect();
        let (n, rank) = (self.program.header.ranks, self.program.rank);
        targets.sort_by_key(|(m, ..)| (self.peer(*m) + n - rank - 1) % n);
        for (i, (m, address, wire, packets)) in targets.into_iter().enumerate() {
            let peer = self.peer(m);
            let name = format!("out{i}");
            self.line(format!("const u64 {name} = {address};"));
            let packets = packets.then_some(peer);
            outs.push(Operand { name, wire: self.spec.element.wire(wire), packets, scaled: false });
        }
        outs
    }

    pub(super) fn peer(&self, message: Message) -> u32 {
        self.program.links[message.link as usize].peer
    }

    /// How many groups a thread has in hand at once.
    fn ahead(&self, inputs: &[Operand]) -> u32 {
        let loads = inputs.len() as u32 * if self.program.way == Way::Packet { 2 } else { 1 };
        match loads {
            0..=2 => 4,
            3..=8 => 2,
            _ => 1,
        }
    }

    /// One round of a thread: `ahead` groups.
    fn round(&mut self, arm: &Arm, inputs: &[Operand], outs: &[Operand], ahead: u32) {
        let copies = inputs.len() == 1
            && !inputs[0].scaled
            && outs.iter().all(|out| out.wire == inputs[0].wire);
        let many = inputs.len() > AT_ONCE;
        if many {
            self.line(format!("Values<Value, GROUP> sum[{ahead}];"));
        }
        for (batch, some) in inputs.chunks(AT_ONCE).enumerate() {
            self.line("{".repeat(usize::from(many)));
            self.loads(arm, some, batch * AT_ONCE, ahead);
            if batch == 0 && outs.iter().any(|out| out.packets.is_some()) && !self.entered {
                self.enter();
            }
            self.line("#pragma unroll");
            self.line(format!("for (u32 j = 0; j < {ahead}; ++j) if (i + j * step < groups) {{"));
            self.deeper();
            let sum = if many { "sum[j]" } else { "sum" };
            if !copies {
                self.combine(some, batch == 0, many, sum);
            }
            if (batch + 1) * AT_ONCE >= inputs.len() {
                self.writes(inputs, outs, copies, sum);
            }
            self.shallower();
            self.line("}");
            self.line("}".repeat(usize::from(many)));
        }
    }

    /// Asks for the operands of a round.
    fn loads(&mut self, arm: &Arm, inputs: &[Operand], first: usize, ahead: u32) {
        let memory: Vec<_> = inputs.iter().filter(|input| input.packets.is_none()).collect();
        for input in &memory {
            self.line(format!(
                "Piece<{}> x{}[{ahead}] = {{}};",
                self.bytes(input.wire),
                input.name
            ));
        }
        if !memory.is_empty() {
            self.line("#pragma unroll");
            self.line(format!("for (u32 j = 0; j < {ahead}; ++j) if (i + j * step < groups) {{"));
            for input in &memory {
                let (bytes, name) = (self.bytes(input.wire), &input.name);
                let at = format!("{name} + (u64)(i + j * step) * {bytes}");
                let load = match input.wire {
                    None if self.by_element() => format!(
                        "gather<{bytes}>({at}, (u32)(elements - (u64)(i + j * step) * GROUP))"
                    ),
                    _ => format!("fetch<{bytes}>({at})"),
                };
                self.line(format!("    x{name}[j] = {load};"));
            }
            self.line("}");
        }
        let packets: Vec<_> = inputs.iter().filter(|input| input.packets.is_some()).collect();
        if packets.is_empty() {
            return;
        }
        // All packets of a round in one row: for each message its groups, for each group its units.
        let units: Vec<u32> = packets.iter().map(|p| self.bytes(p.wire) / 8 * ahead).collect();
        let total: u32 = units.iter().sum();
        self.line(format!("Packet got{first}[{total}];"));
        self.line(format!("u64 from{first}[{total}];"));
        self.line("#pragma unroll");
        self.line(format!("for (u32 j = 0; j < {ahead}; ++j) {{"));
        let mut next = 0;
        for (packet, total) in packets.iter().zip(&units) {
            let each = total / ahead;
            for unit in 0..each {
                let at = format!("{next} + j * {each} + {unit}");
                self.line(format!(
                    "    from{first}[{at}] = i + j * step < groups ? {} + (u64)(i + j * step) * {} + {} : 0;",
                    packet.name,
                    each * 16,
                    unit * 16
                ));
            }
            next += total;
        }
        self.line("}");
        let peers =
            packets.iter().rev().fold(0_u64, |all, p| all << 8 | u64::from(p.packets.unwrap_or(0)));
        let peers = if packets.len() == 1 { number(peers) } else { format!("{peers:#x}") };
        let each = units[0];
        self.line(format!(
            "poll(me, got{first}, from{first}, {peers}, {each}, {}, {});",
            number(arm.site),
            number(arm.round)
        ));
        let mut next = 0;
        for (packet, total) in packets.iter().zip(&units) {
            let bytes = self.bytes(packet.wire);
            let name = &packet.name;
            let mut text = format!("Piece<{bytes}> x{name}[{ahead}] = {{");
            for j in 0..ahead {
                let _ = write!(
                    text,
                    "{}open<{bytes}>(got{first} + {})",
                    if j == 0 { "" } else { ", " },
                    next + j * total / ahead
                );
            }
            self.line(text + "};");
            next += total;
        }
    }

    /// Folds operands in order.
    fn combine(&mut self, inputs: &[Operand], begins: bool, many: bool, sum: &str) {
        for (i, input) in inputs.iter().enumerate() {
            let format = self.format(input.wire);
            let mut value = format!("wide<{format}>(x{}[j])", input.name);
            if input.scaled {
                value = format!("scaled(me, {value})");
            }
            match (begins && i == 0, many) {
                (true, true) => self.line(format!("{sum} = {value};")),
                (true, false) => self.line(format!("Values<Value, GROUP> {sum} = {value};")),
                _ => self.line(format!("fold<Operator>({sum}, {value});")),
            }
        }
    }

    /// Writes a group to all outputs.
    fn writes(&mut self, inputs: &[Operand], outs: &[Operand], copies: bool, sum: &str) {
        let mut made = Vec::new();
        for out in outs {
            let bytes = self.bytes(out.wire);
            let format = self.format(out.wire);
            let result = if copies {
                format!("x{}[j]", inputs[0].name)
            } else {
                let name = format!("as{format}");
                if !made.contains(&name) {
                    self.line(format!("const Piece<{bytes}> {name} = slim<{format}>({sum});"));
                    made.push(name.clone());
                }
                name
            };
            let name = &out.name;
            let index = format!("(u64)(i + j * step)");
            self.line(match (out.packets, out.wire) {
                (Some(_), _) => format!("send({name} + {index} * {}, {result}, me.epoch);", bytes * 2),
                (None, None) if self.by_element() => format!(
                    "scatter({name} + {index} * {bytes}, {result}, (u32)(elements - {index} * GROUP));"
                ),
                _ => format!("put({name} + {index} * {bytes}, {result});"),
            });
        }
    }

    /// Bytes of a group in memory or on the wire.
    fn bytes(&self, wire: Option<Wire>) -> u32 {
        self.group * wire.map_or(self.spec.element.size(), |wire| of_wire(wire).0)
    }

    fn format(&self, wire: Option<Wire>) -> &'static str {
        wire.map_or(self.spec.element.format(), |wire| of_wire(wire).1)
    }

    /// Whether the caller's memory is read and written element by element, though groups are longer.
    fn by_element(&self) -> bool {
        !self.spec.aligned && self.group > 1
    }
}

/// Whether the region lies in a buffer that is never written.
fn in_input(region: &Region) -> bool {
    region.pieces.iter().all(|piece| piece.buf == Buf::Input)
}
