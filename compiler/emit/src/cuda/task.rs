//! The code of a task.
//!
//! A team of warps takes a chunk. Each of n threads takes every n-th group of the chunk's elements, `AHEAD` of
//! them at a time: it asks for all their operands before it needs the first, for a peer's memory is a microsecond
//! away. What is out of range is masked, so that short chunks cost what one round of loads costs.

use super::alike::number;
use super::body::{KernelBody, WriteLine};
use super::place;
use super::share::WARPS;
use super::types::of_wire;
use roundelay_compiler::device::abi::THREADS;
use roundelay_compiler::device::{
    DeviceMessage, DeviceProtocol, DeviceTask, DeviceWait, TaskInput, TaskOutput,
};
use roundelay_compiler::num::index;
use roundelay_compiler::plan::{PlanBuffer, PlanRegion, WireType};

/// Most operands that a thread asks for at once.
const AT_ONCE: usize = 8;

/// Most addresses that a function is given: more would go through memory.
const MOST_PASSED: usize = 24;

/// The access to an operand of a task.
#[derive(Clone)]
struct OperandAccess {
    /// Its variable in the code.
    name: String,
    /// Element type there, if not the buffer's.
    wire: Option<WireType>,
    /// The peer whose packets it is made of.
    packets: Option<u32>,
    /// To be multiplied by the factor, if it is read; to be divided, if it is written.
    scaled: bool,
    /// True if it is that of all ranks.
    everywhere: bool,
}

impl OperandAccess {
    /// Returns memory of all ranks at once, by its variable.
    fn everywhere(name: &str) -> Self {
        OperandAccess {
            name: name.into(),
            wire: None,
            packets: None,
            scaled: false,
            everywhere: true,
        }
    }
}

impl KernelBody<'_> {
    /// Writes the code of a task. If it is `alone` in its phase all warps run it, else those of the `share`
    /// at hand.
    pub(super) fn task(&mut self, task: &DeviceTask, sites: &[u32], alone: bool) {
        self.comment(sites);
        self.line("me.here();");
        // Peers' words are looked at by as few as can be: what comes in for the whole GPU queues behind it.
        let together = alone && !task.waits.is_empty() && !task.inputs.is_empty();
        if together {
            self.line("if (me.warp == 0) {");
            self.deeper();
        }
        self.waits(&task.waits, task.site, task.round);
        if together {
            self.shallower();
            self.line("}");
            self.line("follow();");
        }
        if !task.inputs.is_empty() && (task.store.is_some() || !task.outs.is_empty()) {
            self.fold(task, alone);
        }
    }

    /// Writes the source lines of a task as a comment.
    pub(super) fn comment(&mut self, sites: &[u32]) {
        for &site in sites {
            let site = &self.program.sites[index(site)];
            let text: String = site.text.lines().next().unwrap_or("").chars().take(100).collect();
            let line = format!("// {}:{}: {text}", site.file, site.line);
            self.line(line.replace(['\\', '?'], " ").trim_end());
        }
    }

    /// Writes waits, a lane each.
    pub(super) fn waits(&mut self, waits: &[DeviceWait], site: u32, round: u32) {
        let place = |x: u32| if x == u32::MAX { "NOWHERE".into() } else { number(x) };
        for acquire in [true, false] {
            let mut chosen: Vec<_> = waits.iter().filter(|wait| wait.acquire == acquire).collect();
            chosen.sort_by_key(|wait| self.distance(place::peer(self.program, wait.event)));
            for some in chosen.chunks(32) {
                let events = some.iter().map(|wait| place::awaited(self.program, wait.event));
                let events = self.together(&events.collect::<Vec<_>>());
                let (site, round) = (place(site), place(round));
                self.line(format!("wait<{acquire}>(me, {site}, {round}, {events});"));
            }
        }
    }

    /// Returns the number of ranks by which a peer follows this rank, less 1.
    pub(super) fn distance(&self, peer: u32) -> u32 {
        let (n, rank) = (self.program.header.ranks, self.program.rank);
        (peer + n - rank - 1) % n
    }

    fn fold(&mut self, task: &DeviceTask, alone: bool) {
        let switches = self.reads_all(task) || self.writes_all(task);
        if switches {
            self.line("alias();");
        }
        self.fold_chunks(task, alone);
        if switches {
            self.line("alias();");
        }
    }

    /// Returns true if the switch reads the operands of a task: one place on all ranks.
    fn reads_all(&self, task: &DeviceTask) -> bool {
        self.program.protocol == DeviceProtocol::Multicast && task.inputs.len() > 1
    }

    /// Returns true if the switch writes the result of a task: to one place on all ranks.
    fn writes_all(&self, task: &DeviceTask) -> bool {
        self.program.protocol == DeviceProtocol::Multicast && !task.outs.is_empty()
    }

    fn fold_chunks(&mut self, task: &DeviceTask, alone: bool) {
        let chunks = task.sizes.chunks();
        let (lead, team) = if alone { ("me.warp", "16") } else { ("share.lead", "share.team") };
        // Warps take the chunks in turn; several of one chunk divide its groups.
        let (first, step) = match (chunks, alone) {
            (1, true) => ("me.thread".into(), THREADS.to_string()),
            (1, false) => (format!("{lead} * 32 + me.lane"), format!("{team} * 32")),
            (_, true) if WARPS.is_multiple_of(chunks) => {
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
        self.line(format!("const u64 elements = me.part({});", place::length(&task.sizes)));
        self.line("const u32 groups = (u32)((elements + GROUP - 1) / GROUP);");
        self.line(format!("const u32 first = {first}, step = {step};"));
        self.line("if (first < groups) {");
        self.deeper();
        let inputs = self.inputs(task, chunks);
        let outs = self.outs(task, chunks);
        let packets = any_packets(&inputs) || any_packets(&outs);
        // The first packets are sent as soon as the epoch is known, which comes while the first elements do.
        let early = packets && !self.entered;
        if packets && !early {
            self.half();
        }
        let passed =
            inputs.len() + outs.len() <= MOST_PASSED && (!packets || inputs.len() <= AT_ONCE);
        match early || !passed {
            true => self.rounds(Some(task), &inputs, &outs),
            false => self.moved(task, &inputs, &outs),
        }
        for _ in 0..1 + u32::from(chunks > 1) {
            self.shallower();
            self.line("}");
        }
    }

    /// Writes all rounds of a thread. Without the task: for all tasks that do the same with other peers,
    /// which are variables.
    fn rounds(
        &mut self,
        task: Option<&DeviceTask>,
        inputs: &[OperandAccess],
        outs: &[OperandAccess],
    ) {
        let ahead = self.ahead(inputs);
        self.line("#pragma unroll 1");
        self.line(format!("for (u32 i = first; i < groups; i += {ahead} * step) {{"));
        self.deeper();
        self.round(task, inputs, outs, ahead);
        self.shallower();
        self.line("}");
    }

    /// Writes all rounds of a thread, or a call of the function that tasks share which move the same kinds of
    /// operands.
    fn moved(&mut self, task: &DeviceTask, inputs: &[OperandAccess], outs: &[OperandAccess]) {
        let numbered = |ends: &[OperandAccess], name: &str| -> Vec<OperandAccess> {
            let all = ends.iter().enumerate();
            all.map(|(i, end)| OperandAccess { name: format!("{name}{i}"), ..end.clone() })
                .collect()
        };
        let (from, to) = (numbered(inputs, "in"), numbered(outs, "out"));
        let code = self.at(1, |body| body.rounds(None, &from, &to));
        let mut takes: Vec<String> =
            from.iter().chain(&to).map(|end| format!("u64 {}", end.name)).collect();
        let mut given: Vec<String> =
            inputs.iter().chain(outs).map(|end| end.name.clone()).collect();
        let polls = any_packets(inputs);
        let some = polls || any_packets(outs);
        let scaled = inputs.iter().any(|input| input.scaled);
        if polls {
            // Here, for these may differ between tasks that are alike, and a loop may not.
            let (peers, site, round) = (peers(inputs), number(task.site), number(task.round));
            self.line(format!("const u64 peers = {peers};"));
            self.line(format!("const u32 site = {site}, round = {round};"));
        }
        for (kind, name, taken) in [
            ("u64 ", "elements", self.by_element()),
            ("u32 ", "groups", true),
            ("u32 ", "first", true),
            ("u32 ", "step", true),
            ("const Params &", "params", polls || scaled),
            ("u64 ", "half", some),
            ("u32 ", "epoch", some),
            ("u64 ", "peers", polls),
            ("u32 ", "site", polls),
            ("u32 ", "round", polls),
        ] {
            if taken {
                takes.push(format!("{kind}{name}"));
                given.push(name.into());
            }
        }
        let function = format!("({}) {{\n{code}}}\n", takes.join(", "));
        let here = self.at(0, |body| body.rounds(None, inputs, outs));
        let call = self.moves.call(function, here, &given.join(", "));
        self.line(call);
    }

    /// Names the inputs' addresses.
    fn inputs(&mut self, task: &DeviceTask, chunks: u32) -> Vec<OperandAccess> {
        let mut inputs = Vec::new();
        if let (true, Some(TaskInput::Local(region) | TaskInput::Pulled(_, region))) =
            (self.reads_all(task), task.inputs.first())
        {
            self.address("in0", &place::everywhere(region), false);
            return vec![OperandAccess::everywhere("in0")];
        }
        for (i, source) in task.inputs.iter().enumerate() {
            let name = format!("in{i}");
            let (address, wire, packets) = match source {
                TaskInput::Local(region) => (place::region(self.program.rank, region), None, None),
                TaskInput::Pulled(m, region) => (place::region(self.peer(*m), region), None, None),
                TaskInput::Staged(m, wire) => (self.staged(*m, chunks), *wire, None),
                TaskInput::Packet(m, wire) => {
                    (place::slot(self.program, *m, chunks), *wire, Some(self.peer(*m)))
                }
            };
            let scaled = self.scales_inputs()
                && match source {
                    TaskInput::Local(region) | TaskInput::Pulled(_, region) => in_input(region),
                    _ => false,
                };
            self.address(&name, &address, packets.is_some());
            let (wire, everywhere) = (self.spec.element.wire(wire), false);
            inputs.push(OperandAccess { name, wire, packets, scaled, everywhere });
        }
        inputs
    }

    /// Names the outputs' addresses: the store, then the outs, beginning with the rank after this one.
    fn outs(&mut self, task: &DeviceTask, chunks: u32) -> Vec<OperandAccess> {
        let mut outs = Vec::new();
        if let (true, Some(region)) = (self.writes_all(task), &task.store) {
            self.address("out0", &place::everywhere(region), false);
            return vec![OperandAccess::everywhere("out0")];
        }
        if let Some(region) = &task.store {
            let address = place::region(self.program.rank, region);
            self.line(format!("const u64 kept = {address};"));
            let scaled = self.is_average(region);
            let (name, everywhere) = ("kept".into(), false);
            outs.push(OperandAccess { name, wire: None, packets: None, scaled, everywhere });
        }
        let mut targets: Vec<_> = task
            .outs
            .iter()
            .map(|target| match target {
                TaskOutput::Packet(m, wire) => {
                    (*m, place::slot(self.program, *m, chunks), *wire, true)
                }
                TaskOutput::Staged(m, wire) => (*m, self.staged(*m, chunks), *wire, false),
                TaskOutput::Landed(m, region) => {
                    (*m, place::region(self.peer(*m), region), None, false)
                }
            })
            .collect();
        targets.sort_by_key(|(m, ..)| self.distance(self.peer(*m)));
        for (i, (m, address, wire, packets)) in targets.into_iter().enumerate() {
            let peer = self.peer(m);
            let name = format!("out{i}");
            self.address(&name, &address, packets);
            let packets = packets.then_some(peer);
            let (wire, scaled, everywhere) = (self.spec.element.wire(wire), false, false);
            outs.push(OperandAccess { name, wire, packets, scaled, everywhere });
        }
        outs
    }

    /// Returns the address of chunk k of a staged message. Far memory has no halves.
    fn staged(&self, message: DeviceMessage, chunks: u32) -> String {
        let far = self.program.links[index(message.link)].far;
        place::slot(self.program, message, chunks) + if far { "" } else { " + me.half()" }
    }

    /// Names an address. Those of packets are made at once: only the half, which comes with the epoch, is added
    /// when they are used.
    fn address(&mut self, name: &str, address: &str, packets: bool) {
        if packets {
            self.line(format!("u64 {name} = {address};"));
            self.line(format!("forget({name});"));
        } else {
            self.line(format!("const u64 {name} = {address};"));
        }
    }

    pub(super) fn peer(&self, message: DeviceMessage) -> u32 {
        self.program.links[index(message.link)].peer
    }

    /// Returns the number of groups that a thread handles at once. Packets are chosen where it has one or two
    /// in all: more would be copies of code for nothing.
    fn ahead(&self, inputs: &[OperandAccess]) -> u32 {
        match (self.program.protocol == DeviceProtocol::Packet, inputs.len()) {
            (false, 0..=2) => 4,
            (true, 0..=1) | (false, 3..=8) => 2,
            _ => 1,
        }
    }

    /// Writes one round of a thread: `ahead` groups.
    fn round(
        &mut self,
        task: Option<&DeviceTask>,
        inputs: &[OperandAccess],
        outs: &[OperandAccess],
        ahead: u32,
    ) {
        let copies = inputs.len() == 1
            && !inputs[0].scaled
            && outs.iter().all(|out| out.wire == inputs[0].wire);
        let many = inputs.len() > AT_ONCE;
        if many {
            self.line(format!("Values<Value, GROUP> sum[{ahead}];"));
        }
        for (batch, some) in inputs.chunks(AT_ONCE).enumerate() {
            if many {
                self.line("{");
                self.deeper();
            }
            self.loads(some, ahead);
            if batch == 0 && !self.entered && (any_packets(inputs) || any_packets(outs)) {
                self.half();
            }
            self.polls(task, some, ahead);
            if batch == 0 && !self.entered && any_packets(outs) {
                self.enter();
            }
            self.each(ahead);
            let sum = if many { "sum[j]" } else { "sum" };
            if !copies {
                self.combine(some, batch == 0, many, sum);
            }
            if (batch + 1) * AT_ONCE >= inputs.len() {
                self.writes(inputs, outs, copies, sum);
            }
            self.shallower();
            self.line("}");
            if many {
                self.shallower();
                self.line("}");
            }
        }
    }

    /// Names what packets are addressed by and known by.
    fn half(&mut self) {
        self.line("const u64 half = me.half();");
        self.line("const u32 epoch = me.epoch;");
    }

    /// Begins a loop over the groups of a round that there are; the first is always there.
    fn each(&mut self, ahead: u32) {
        let only = if ahead == 1 { "" } else { " if (at < groups)" };
        self.line("#pragma unroll");
        self.line(format!("for (u32 j = 0, at = i; j < {ahead}; ++j, at += step){only} {{"));
        self.deeper();
    }

    /// Asks for the operands of a round that lie in memory.
    fn loads(&mut self, inputs: &[OperandAccess], ahead: u32) {
        let memory: Vec<_> = inputs.iter().filter(|input| input.packets.is_none()).collect();
        if memory.is_empty() {
            return;
        }
        for input in &memory {
            let bytes = self.bytes(input.wire);
            self.line(format!("Piece<{bytes}> x{}[{ahead}] = {{}};", input.name));
        }
        self.each(ahead);
        for input in &memory {
            let (bytes, name) = (self.bytes(input.wire), &input.name);
            self.line(match input.wire {
                _ if input.everywhere => {
                    format!("x{name}[j] = reduced({name} + {bytes}ull * at);")
                }
                None if self.by_element() => format!(
                    "x{name}[j] = gather<{bytes}>({name} + {bytes}ull * at, elements - (u64)GROUP * at);"
                ),
                _ => format!("x{name}[j] = fetch<{bytes}>({name} + {bytes}ull * at);"),
            });
        }
        self.shallower();
        self.line("}");
    }

    /// Asks for the operands of a round that are made of packets, all of them at once, and waits for them.
    fn polls(&mut self, task: Option<&DeviceTask>, inputs: &[OperandAccess], ahead: u32) {
        let packets: Vec<_> = inputs.iter().filter(|input| input.packets.is_some()).collect();
        let Some(first) = packets.first() else { return };
        // For each message its groups, for each group its packets.
        let each: Vec<u32> = packets.iter().map(|p| self.bytes(p.wire) / 8).collect();
        let total = each.iter().sum::<u32>() * ahead;
        let of = first.name.clone();
        self.line(format!("Packet p{of}[{total}];"));
        self.line(format!("u64 from{of}[{total}];"));
        self.line("#pragma unroll");
        self.line(format!("for (u32 j = 0; j < {ahead}; ++j) {{"));
        self.deeper();
        // In place of a group that is not there the first is looked at again.
        self.line("const u32 at = i + j * step < groups ? i + j * step : i;");
        let mut next = 0;
        for (packet, &each) in packets.iter().zip(&each) {
            for unit in 0..each {
                let offset = next + unit;
                let index = match (offset, each) {
                    (0, 1) => "j".into(),
                    (_, 1) => format!("{offset} + j"),
                    _ => format!("{offset} + {each} * j"),
                };
                let plus = if unit == 0 { String::new() } else { format!(" + {}", unit * 16) };
                let name = &packet.name;
                self.line(format!(
                    "from{of}[{index}] = {name} + half + {}ull * at{plus};",
                    each * 16
                ));
            }
            next += each * ahead;
        }
        self.shallower();
        self.line("}");
        let known = match task {
            Some(task) => [peers(inputs), number(task.site), number(task.round)],
            None => ["peers", "site", "round"].map(String::from),
        };
        let ([peers, site, round], each_of) = (known, each[0] * ahead);
        self.line(format!(
            "poll(params, epoch, p{of}, from{of}, {peers}, {each_of}, {site}, {round});"
        ));
        let mut next = 0;
        for (packet, each) in packets.iter().zip(each) {
            let bytes = self.bytes(packet.wire);
            let opened: Vec<String> =
                (0..ahead).map(|j| format!("open<{bytes}>(p{of} + {})", next + j * each)).collect();
            self.line(format!(
                "Piece<{bytes}> x{}[{ahead}] = {{{}}};",
                packet.name,
                opened.join(", ")
            ));
            next += each * ahead;
        }
    }

    /// Folds operands in order.
    fn combine(&mut self, inputs: &[OperandAccess], begins: bool, many: bool, sum: &str) {
        for (i, input) in inputs.iter().enumerate() {
            let format = self.format(input.wire);
            let mut value = format!("wide<{format}>(x{}[j])", input.name);
            if input.scaled {
                value = format!("scaled(params, {value})");
            }
            match (begins && i == 0, many) {
                (true, true) => self.line(format!("{sum} = {value};")),
                (true, false) => self.line(format!("Values<Value, GROUP> {sum} = {value};")),
                _ => self.line(format!("fold<Operator>({sum}, {value});")),
            }
        }
    }

    /// Writes a group to all outputs.
    fn writes(
        &mut self,
        inputs: &[OperandAccess],
        outs: &[OperandAccess],
        copies: bool,
        sum: &str,
    ) {
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
            let result = if out.scaled { format!("average({result})") } else { result };
            let name = &out.name;
            self.line(match (out.packets, out.wire) {
                _ if out.everywhere => {
                    format!("put_all({name} + {bytes}ull * at, {result});")
                }
                (Some(_), _) => {
                    format!("send({name} + half + {}ull * at, {result}, epoch);", bytes * 2)
                }
                (None, None) if self.by_element() => format!(
                    "scatter({name} + {bytes}ull * at, {result}, elements - (u64)GROUP * at);"
                ),
                _ => format!("put({name} + {bytes}ull * at, {result});"),
            });
        }
    }

    /// Returns the bytes of a group in memory or on the wire.
    fn bytes(&self, wire: Option<WireType>) -> u32 {
        self.group * wire.map_or(self.spec.element.size(), |wire| of_wire(wire).0)
    }

    fn format(&self, wire: Option<WireType>) -> &'static str {
        wire.map_or(self.spec.element.format(), |wire| of_wire(wire).1)
    }

    /// Returns true if the caller's memory is accessed element by element, though groups are longer: it is
    /// not aligned to them, or does not consist of whole ones.
    fn by_element(&self) -> bool {
        self.group > 1 && (!self.spec.aligned || self.bytes(None) > 16)
    }
}

fn any_packets(ends: &[OperandAccess]) -> bool {
    ends.iter().any(|end| end.packets.is_some())
}

/// Returns the peers whose packets are awaited at once: a byte for each, lowest first.
fn peers(inputs: &[OperandAccess]) -> String {
    let peers: Vec<u64> = inputs.iter().filter_map(|input| input.packets.map(u64::from)).collect();
    match &peers[..] {
        [one] => number(*one),
        _ => format!("{:#x}", peers.iter().rev().fold(0, |all, peer| all << 8 | peer)),
    }
}

/// Returns true if the region lies in a buffer that is never written.
fn in_input(region: &PlanRegion) -> bool {
    region.pieces.iter().all(|piece| piece.buf == PlanBuffer::Input)
}
