//! Runs the programs of all ranks on symbolic values, and checks every access.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::expression::{ExpressionTable, PlanExpressions};
use super::fault::ProgramFault;
use super::links::LinkNumbers;
use super::memory::{
    AccessAuthor, KnownSections, MemoryPlace, PROXY, PlaceContent, SymbolicMemory,
};
use super::results::{add, check_results};
use super::shape::lengths;
use crate::device::program::{
    DeviceConnection, DeviceEvent, DeviceMessage, DeviceProgram, DeviceTask, DeviceWait, TaskInput,
    TaskOutput,
};
use crate::instance::ProgramInstance;
use crate::num::{count, index};
use crate::plan::{MessageDirection, PlanBuffer, PlanRegion};
use crate::program::CollectiveKind;
use crate::ranks::RankSet;
use crate::verify::value::PlaceValue;

/// The position of a rank in its program, with its knowledge.
struct RankPosition {
    pass: u32,
    phase: usize,
    task: usize,
    /// Tasks run.
    tasks: u32,
    /// Block barriers so far.
    section: u32,
    /// The knowledge that all threads have since the last block barrier, and that which some have.
    all: KnownSections,
    some: KnownSections,
    /// The ranks on whose entry the values that this rank has read depend.
    entered: RankSet,
    left: bool,
}

/// A value of a word: its number, and the progress that a rank which acquires it may count on.
type PublishedWord = (u64, Option<KnownSections>);

/// The carrier of the messages of a far link, one after the other.
struct LinkProxy {
    /// Messages carried.
    carried: u64,
    known: KnownSections,
}

struct SymbolicRun<'a> {
    instance: &'a ProgramInstance,
    programs: &'a [DeviceProgram],
    wires: &'a LinkNumbers,
    passes: u32,
    ranks: Vec<RankPosition>,
    /// By far link.
    proxies: Vec<LinkProxy>,
    /// By link, whether it is the word `consumed`, and whether a proxy writes it.
    words: BTreeMap<(u32, bool, bool), Vec<PublishedWord>>,
    memory: SymbolicMemory,
    table: &'a mut ExpressionTable,
    /// By rank and link: true if all signals of the link's word release.
    releases: Vec<Vec<bool>>,
}

/// Runs `passes` passes of the programs of all ranks.
pub(super) fn run(
    instance: &ProgramInstance,
    programs: &[DeviceProgram],
    wires: &LinkNumbers,
    asked: &mut PlanExpressions,
    passes: u32,
) -> Result<(), ProgramFault> {
    let n = programs.len();
    let all = n + wires.far.len();
    let start = |rank: usize| {
        let mut known = vec![0; all];
        known[rank] = 1;
        let all: KnownSections = Arc::new(known);
        RankPosition {
            pass: 0,
            phase: 0,
            task: 0,
            tasks: 0,
            section: 0,
            some: all.clone(),
            all,
            entered: RankSet::one(count(rank)),
            left: false,
        }
    };
    let mut run = SymbolicRun {
        instance,
        programs,
        wires,
        passes,
        ranks: (0..n).map(start).collect(),
        proxies: wires
            .far
            .iter()
            .map(|_| LinkProxy { carried: 0, known: Arc::new(vec![0; all]) })
            .collect(),
        words: BTreeMap::new(),
        memory: SymbolicMemory::new(instance, programs, passes, &mut asked.table),
        table: &mut asked.table,
        releases: programs.iter().map(releases).collect(),
    };
    loop {
        let mut moved = false;
        for rank in 0..n {
            while run.step(rank)? {
                moved = true;
            }
        }
        for proxy in 0..run.proxies.len() {
            while run.carry(proxy)? {
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    if run.end()? {
        check_results(instance, &programs[0].header, &mut run.memory, asked, passes)?;
    }
    Ok(())
}

impl SymbolicRun<'_> {
    /// Advances by a task, the end of a phase, or leaving; returns true if it could.
    fn step(&mut self, rank: usize) -> Result<bool, ProgramFault> {
        let program = &self.programs[rank];
        let at = &self.ranks[rank];
        if at.left {
            return Ok(false);
        }
        if at.pass == self.passes {
            let Some(known) = self.wait(rank, self.passes - 1, &program.leave) else {
                return Ok(false);
            };
            // The kernel ends when all threads have.
            let at = &mut self.ranks[rank];
            at.some = joined(&at.some, &known);
            at.left = true;
            return Ok(true);
        }
        let Some(phase) = program.phases.get(at.phase) else {
            let at = &mut self.ranks[rank];
            (at.pass, at.phase) = (at.pass + 1, 0);
            return Ok(true);
        };
        if let Some(task) = phase.tasks.get(at.task) {
            let outcome = self.task(rank, task);
            let site = program.sites.get(index(task.site));
            return outcome.map_err(|ProgramFault(what)| match site {
                Some(s) => ProgramFault(format!("step {} (line {}): {what}", task.round, s.line)),
                None => ProgramFault(what),
            });
        }
        if phase.block_barrier {
            self.block_barrier(rank);
        }
        for s in &phase.signals {
            let releases = self.releases[rank][index(s.message.link)];
            let known = releases.then(|| self.ranks[rank].all.clone());
            self.tell(rank, s.message, known)?;
        }
        let at = &mut self.ranks[rank];
        (at.phase, at.task) = (at.phase + 1, 0);
        Ok(true)
    }

    fn block_barrier(&mut self, rank: usize) {
        let at = &mut self.ranks[rank];
        at.section += 1;
        let known = Arc::make_mut(&mut at.some);
        known[rank] = at.section + 1;
        at.all = at.some.clone();
    }

    fn number(&self, rank: usize, pass: u32, m: DeviceMessage) -> u64 {
        let link = self.programs[rank].links[index(m.link)];
        u64::from(pass) * u64::from(link.messages) + u64::from(m.index) + 1
    }

    fn tell(
        &mut self,
        rank: usize,
        m: DeviceMessage,
        known: Option<KnownSections>,
    ) -> Result<(), ProgramFault> {
        let number = self.number(rank, self.ranks[rank].pass, m);
        let link = self.programs[rank].links[index(m.link)];
        let wire = self.wires.numbers[rank][index(m.link)];
        let word = self.words.entry((wire, link.dir == MessageDirection::Recv, false)).or_default();
        if word.last().is_some_and(|last| last.0 >= number) {
            return Err(ProgramFault(format!(
                "rank {rank} tells a word of rank {} that does not grow",
                link.peer
            )));
        }
        word.push((number, known));
        Ok(())
    }

    /// Returns the knowledge of a rank once all waits are over; `None` if they are not yet.
    fn wait(&self, rank: usize, pass: u32, waits: &[DeviceWait]) -> Option<KnownSections> {
        let mut known = self.ranks[rank].all.clone();
        for w in waits {
            let (m, consumed, wanted) = match w.event {
                DeviceEvent::Entered { peer } => {
                    if !self.programs[index(peer)].greets.contains(&count(rank)) {
                        return None;
                    }
                    if w.acquire && known[index(peer)] == 0 {
                        Arc::make_mut(&mut known)[index(peer)] = 1;
                    }
                    continue;
                }
                DeviceEvent::Sent(m) => (m, false, self.number(rank, pass, m)),
                DeviceEvent::Consumed(m) => (m, true, self.number(rank, pass, m)),
                DeviceEvent::Room(m) => {
                    let slots = u64::from(self.programs[rank].links[index(m.link)].slots);
                    match self.number(rank, pass, m).checked_sub(slots) {
                        None | Some(0) => continue,
                        Some(wanted) => (m, true, wanted),
                    }
                }
            };
            // The first one that is enough, whatever comes later.
            let link = index(m.link);
            let by_proxy = self.programs[rank].links[link].far;
            let published =
                self.published((self.wires.numbers[rank][link], consumed, by_proxy), wanted)?;
            if let (true, Some(progress)) = (w.acquire, &published.1) {
                known = joined(&known, progress);
            }
        }
        Some(known)
    }

    /// Returns the first value of a word that is enough; `None` if none has been written yet.
    fn published(&self, word: (u32, bool, bool), wanted: u64) -> Option<&PublishedWord> {
        let word = self.words.get(&word)?;
        word.get(word.partition_point(|t| t.0 < wanted))
    }

    /// Returns the place of chunk k of a message on its receiver, or in the far memory of the rank; with the message.
    fn slot(&self, rank: usize, m: DeviceMessage, k: u32) -> (MemoryPlace, (u32, u64)) {
        let link = self.programs[rank].links[index(m.link)];
        let receiver = if link.dir == MessageDirection::Send { link.peer } else { count(rank) };
        let number = self.number(rank, self.ranks[rank].pass, m);
        let slot = count((number - 1) % u64::from(link.slots.max(1)));
        let chunk = link.base + slot * link.chunks + k;
        let at = match link.far {
            true => MemoryPlace::Far { rank: count(rank), chunk },
            false => MemoryPlace::Staging { rank: receiver, chunk },
        };
        (at, (self.wires.numbers[rank][index(m.link)], number))
    }

    /// Carries the next message of a far link: once the sender has signalled it, and the receiver has signalled
    /// that it has read what was in the slot. The sender's signal means that its slot is free; the receiver's
    /// carries all that the sender knew.
    fn carry(&mut self, proxy: usize) -> Result<bool, ProgramFault> {
        let wire = &self.wires.far[proxy];
        let end = |(rank, link): (u32, u32)| self.programs[index(rank)].links[index(link)];
        let (from, to) = (end(wire.source), end(wire.target));
        let carried = self.proxies[proxy].carried;
        if carried == u64::from(from.messages) * u64::from(self.passes) {
            return Ok(false);
        }
        let number = carried + 1;
        let Some((_, sent)) = self.published((wire.number, false, false), number) else {
            return Ok(false);
        };
        let mut known = self.proxies[proxy].known.clone();
        known = sent.as_ref().map_or_else(|| known.clone(), |sent| joined(&known, sent));
        if let Some(read @ 1..) = number.checked_sub(u64::from(from.slots)) {
            let Some((_, freed)) = self.published((wire.number, true, false), read) else {
                return Ok(false);
            };
            known = freed.as_ref().map_or_else(|| known.clone(), |freed| joined(&known, freed));
        }
        let actor = self.programs.len() + proxy;
        let slot = count(carried % u64::from(from.slots.max(1)));
        for k in 0..wire.chunks[index(count(carried % u64::from(from.messages)))] {
            let who =
                AccessAuthor { rank: count(actor), section: count(carried), task: PROXY, chunk: k };
            let at = |rank, link: DeviceConnection| MemoryPlace::Far {
                rank,
                chunk: link.base + slot * link.chunks + k,
            };
            let content = self.memory.read(at(wire.source.0, from), who, &known)?;
            if content.message != Some((wire.number, number)) {
                return Err(ProgramFault(format!(
                    "a proxy reads another message of rank {}, or none",
                    wire.source.0
                )));
            }
            self.memory.write(at(wire.target.0, to), who, &known, content)?;
        }
        Arc::make_mut(&mut known)[actor] = count(carried) + 2;
        let mut own = vec![0; known.len()];
        own[actor] = known[actor];
        self.words
            .entry((wire.number, true, true))
            .or_default()
            .push((number, Some(Arc::new(own))));
        let landed = self.words.entry((wire.number, false, true)).or_default();
        landed.push((number, Some(known.clone())));
        self.proxies[proxy] = LinkProxy { carried: number, known };
        Ok(true)
    }

    fn task(&mut self, rank: usize, task: &DeviceTask) -> Result<bool, ProgramFault> {
        let pass = self.ranks[rank].pass;
        let Some(known) = self.wait(rank, pass, &task.waits) else { return Ok(false) };
        let chunks = if task.inputs.is_empty() { 0 } else { task.sizes.chunks() };
        for input in &task.inputs {
            if let TaskInput::Packet(m, _) = input {
                for k in 0..chunks {
                    let (at, message) = self.slot(rank, *m, k);
                    if self.memory.content(at).message != Some(message) {
                        return Ok(false);
                    }
                }
            }
        }
        let lengths = lengths(self.instance, &task.sizes);
        for k in 0..chunks {
            let at = &self.ranks[rank];
            let who =
                AccessAuthor { rank: count(rank), section: at.section, task: at.tasks, chunk: k };
            let content = self.fold(task, who, &known)?;
            let own = content.value.as_ref().map(|v| v.class);
            let asked = lengths.get(index(k)).copied().flatten();
            if asked.is_some_and(|asked| own.is_some_and(|own| own != asked)) {
                return Err(ProgramFault(format!(
                    "rank {rank} moves a chunk as one of another length"
                )));
            }
            self.ranks[rank].entered = self.ranks[rank].entered.union(&content.entered);
            self.hand(task, who, &known, content)?;
        }
        let at = &mut self.ranks[rank];
        at.some = joined(&at.some, &known);
        (at.task, at.tasks) = (at.task + 1, at.tasks + 1);
        Ok(true)
    }

    fn buffer(&self, rank: u32, by: usize, region: &PlanRegion, k: u32) -> MemoryPlace {
        let (buf, chunk) = region.iter().nth(index(k)).unwrap_or((PlanBuffer::Data, 0));
        MemoryPlace::Buffer { rank, pass: self.ranks[by].pass, buf, chunk }
    }

    /// Folds chunk k of the inputs.
    fn fold(
        &mut self,
        task: &DeviceTask,
        who: AccessAuthor,
        known: &KnownSections,
    ) -> Result<PlaceContent, ProgramFault> {
        let rank = index(who.rank);
        let mut sum: Option<PlaceValue> = None;
        let mut operands = Vec::with_capacity(task.inputs.len());
        let mut entered = RankSet::one(who.rank);
        for input in &task.inputs {
            let (content, wire) = match input {
                TaskInput::Local(r) => {
                    let at = self.buffer(who.rank, rank, r, who.chunk);
                    (self.memory.read(at, who, known)?, None)
                }
                TaskInput::Pulled(m, r) => {
                    let peer = self.programs[rank].links[index(m.link)].peer;
                    let at = self.buffer(peer, rank, r, who.chunk);
                    (self.memory.read(at, who, known)?, None)
                }
                TaskInput::Packet(m, wire) => {
                    let (at, _) = self.slot(rank, *m, who.chunk);
                    (self.memory.content(at).clone(), *wire)
                }
                TaskInput::Staged(m, wire) => {
                    let (at, message) = self.slot(rank, *m, who.chunk);
                    let content = self.memory.read(at, who, known)?;
                    if content.message != Some(message) {
                        return Err(ProgramFault(format!(
                            "rank {rank} reads another message, or none"
                        )));
                    }
                    (content, *wire)
                }
            };
            entered = entered.union(&content.entered);
            operands.extend(content.expression.map(|of| self.table.round(of, wire)));
            sum = Some(add(rank, sum, content.value, wire)?);
        }
        let expression = self.table.fold(self.programs[rank].protocol, operands);
        Ok(PlaceContent { value: sum, expression, entered, message: None })
    }

    /// Hands chunk k of the result to the store and the outs.
    fn hand(
        &mut self,
        task: &DeviceTask,
        who: AccessAuthor,
        known: &KnownSections,
        content: PlaceContent,
    ) -> Result<(), ProgramFault> {
        let rank = index(who.rank);
        if let Some(store) = &task.store {
            let at = self.buffer(who.rank, rank, store, who.chunk);
            self.memory.write(at, who, known, content.clone())?;
        }
        for out in &task.outs {
            let content = content.clone();
            match out {
                TaskOutput::Landed(m, r) => {
                    let peer = self.programs[rank].links[index(m.link)].peer;
                    let at = self.buffer(peer, rank, r, who.chunk);
                    self.memory.write(at, who, known, content)?;
                }
                TaskOutput::Staged(m, _) => {
                    let (at, message) = self.slot(rank, *m, who.chunk);
                    let content = PlaceContent { message: Some(message), ..content };
                    self.memory.write(at, who, known, content)?;
                }
                TaskOutput::Packet(m, _) => {
                    // A place of its own, and read only once it is there.
                    let (at, message) = self.slot(rank, *m, who.chunk);
                    let content = PlaceContent { message: Some(message), ..content };
                    self.memory.write(at, who, known, content)?;
                }
            }
        }
        Ok(())
    }

    /// Checks that all ranks have left; returns true if there are results.
    fn end(&self) -> Result<bool, ProgramFault> {
        if let Some(rank) = self.ranks.iter().position(|r| !r.left) {
            let at = &self.ranks[rank];
            return Err(ProgramFault(format!(
                "rank {rank} waits for ever in phase {} of pass {}",
                at.phase, at.pass
            )));
        }
        for (rank, at) in self.ranks.iter().enumerate() {
            self.memory.left(count(rank), &at.some)?;
        }
        let n = count(self.programs.len());
        let barrier = self.instance.spec.kind == CollectiveKind::Barrier;
        if barrier || self.programs[0].synchronizes {
            for (rank, at) in self.ranks.iter().enumerate() {
                let depends_on =
                    |r: u32| at.some[index(r)] > 0 || (!barrier && at.entered.contains(r));
                if let Some(other) = (0..n).find(|&r| !depends_on(r)) {
                    return Err(ProgramFault(format!(
                        "rank {rank} ends before anything of rank {other} has reached it"
                    )));
                }
            }
        }
        Ok(!barrier)
    }
}

/// Returns, for each link of a rank, true if all its signals release. A rank that waits for one may see a later
/// one: if that does not release, it is not known what came before the earlier one either.
fn releases(program: &DeviceProgram) -> Vec<bool> {
    let mut releases = vec![true; program.links.len()];
    for signal in program.phases.iter().flat_map(|phase| &phase.signals) {
        releases[index(signal.message.link)] &= signal.release;
    }
    releases
}

fn joined(a: &KnownSections, b: &KnownSections) -> KnownSections {
    if a.iter().zip(b.iter()).all(|(a, b)| a >= b) {
        return a.clone();
    }
    Arc::new(a.iter().zip(b.iter()).map(|(a, b)| *a.max(b)).collect())
}
