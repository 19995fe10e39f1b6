//! The inter-host messages of a kernel: its far links, their messages, and the sizes of a call.

use std::sync::Arc;
use std::time::Duration;

use roundelay_compiler::device::{DeviceEvent, DeviceProgram, DeviceTask, TaskInput, TaskOutput};
use roundelay_compiler::plan::{ChunkSizes, MessageDirection, PlanHeader, SourceLine, WireType};

use roundelay_support::error::ErrorLocation;

/// The far links of a rank's program.
#[derive(Debug)]
pub(crate) struct ProxyProgram {
    rank: u32,
    header: PlanHeader,
    sites: Vec<SourceLine>,
    pub(super) links: Vec<ProxyLink>,
}

/// An end of a connection to a rank on another host.
#[derive(Debug)]
pub(super) struct ProxyLink {
    pub(super) peer: u32,
    pub(super) channel: u16,
    pub(super) dir: MessageDirection,
    pub(super) slots: u32,
    /// Chunks of a slot.
    chunks: u32,
    /// Chunks, a block, of the slots of links before this one.
    base: u32,
    /// The messages of a pass.
    messages: Vec<ProxyMessage>,
}

/// A message of a pass.
#[derive(Debug, Clone)]
struct ProxyMessage {
    chunks: MessageChunks,
    wire: Option<WireType>,
    site: u32,
    round: u32,
}

/// The chunks of a message, by their numbers in the vector, whose lengths they have; or a number of the longest ones.
#[derive(Debug, Clone)]
enum MessageChunks {
    Of(Vec<u32>),
    Full(u32),
}

impl ProxyProgram {
    /// Returns the inter-host messages of a rank's program, if it has far links.
    pub(crate) fn of(program: &DeviceProgram) -> Option<Arc<Self>> {
        if !program.is_far() {
            return None;
        }
        let far = (0u32..).zip(&program.links).filter(|(_, link)| link.far);
        let links = far.map(|(number, link)| {
            let nothing = ProxyMessage {
                chunks: MessageChunks::Full(0),
                wire: None,
                site: u32::MAX,
                round: u32::MAX,
            };
            let mut messages = vec![nothing; link.messages as usize];
            for task in program.phases.iter().flat_map(|phase| &phase.tasks) {
                for (message, wire) in staged(task) {
                    let place = messages.get_mut(message.index as usize);
                    if let (true, Some(place)) = (message.link == number, place) {
                        let (site, round) = (task.site, task.round);
                        *place = ProxyMessage {
                            chunks: MessageChunks::of(&task.sizes),
                            wire,
                            site,
                            round,
                        };
                    }
                }
                // Empty messages are only waited for.
                for wait in &task.waits {
                    let DeviceEvent::Sent(message) = wait.event else { continue };
                    match messages.get_mut(message.index as usize) {
                        Some(place) if message.link == number && place.site == u32::MAX => {
                            (place.site, place.round) = (task.site, task.round);
                        }
                        _ => {}
                    }
                }
            }
            ProxyLink {
                peer: link.peer,
                channel: link.channel,
                dir: link.dir,
                slots: link.slots.max(1),
                chunks: link.chunks,
                base: link.base,
                messages,
            }
        });
        Some(Arc::new(ProxyProgram {
            rank: program.rank,
            links: links.collect(),
            header: program.header.clone(),
            sites: program.sites.clone(),
        }))
    }
}

/// Returns the messages of a task that go through slots, with the type in which they travel.
fn staged(
    task: &DeviceTask,
) -> impl Iterator<Item = (roundelay_compiler::device::DeviceMessage, Option<WireType>)> + '_ {
    let inputs = task.inputs.iter().filter_map(|input| match input {
        TaskInput::Staged(message, wire) => Some((*message, *wire)),
        _ => None,
    });
    let outs = task.outs.iter().filter_map(|out| match out {
        TaskOutput::Staged(message, wire) => Some((*message, *wire)),
        _ => None,
    });
    inputs.chain(outs)
}

impl MessageChunks {
    fn of(sizes: &ChunkSizes) -> Self {
        match sizes {
            ChunkSizes::Full(chunks) => MessageChunks::Full(*chunks),
            ChunkSizes::Of(sets) => {
                MessageChunks::Of(sets.iter().flat_map(|set| set.iter()).collect())
            }
        }
    }
}

/// A call, as proxies carry it.
#[derive(Debug, Clone)]
pub(crate) struct ProxyCall {
    pub(crate) part: Arc<ProxyProgram>,
    /// The number by which a kernel publishes that it has entered the call, and true if it may do so again and again.
    pub(crate) number: u32,
    pub(crate) is_captured: bool,
    /// The number of the call among all of the communicator, which the kernel knows.
    pub(crate) epoch: u32,
    /// The longest time without progress of a kernel's wait.
    pub(crate) timeout: Duration,
    /// A digest of what all ranks have in common.
    pub(crate) digest: u64,
    /// Elements that the caller gave, and bytes of one.
    pub(crate) count: u64,
    pub(crate) size: u64,
    /// Blocks, elements of a chunk that one processes in a pass, passes, bytes of a chunk in a slot.
    pub(crate) blocks: u32,
    pub(crate) pass: u64,
    pub(crate) passes: u64,
    pub(crate) unit: u64,
}

impl ProxyCall {
    /// Returns the messages of a link in the call, for one block.
    pub(super) fn messages(&self, link: &ProxyLink) -> u32 {
        (link.messages.len() as u64 * self.passes) as u32
    }

    /// Returns the bytes of a slot.
    pub(super) fn slot_bytes(&self, link: &ProxyLink) -> u64 {
        u64::from(link.chunks) * self.unit
    }

    /// Returns where the slot of a message begins among the slots, in bytes; messages count from 1.
    pub(super) fn slot(&self, link: &ProxyLink, block: u32, number: u32) -> u64 {
        let turn = u64::from(block) * u64::from(link.slots) + u64::from((number - 1) % link.slots);
        let chunks = u64::from(link.base) * u64::from(self.blocks) + turn * u64::from(link.chunks);
        chunks * self.unit
    }

    /// Returns the bytes of a message's content from the beginning of its slot on.
    pub(super) fn bytes(&self, link: &ProxyLink, block: u32, number: u32) -> u64 {
        let a_pass = link.messages.len() as u64;
        let (pass, index) = (u64::from(number - 1) / a_pass, u64::from(number - 1) % a_pass);
        let message = &link.messages[index as usize];
        let elements = u64::from(self.part.header.blocks) * self.count;
        let chunks = u64::from(self.part.header.chunks.max(1));
        let (least, rest) = (elements / chunks, elements % chunks);
        let begin = |c: u64| c * least + c * rest / chunks;
        let from = (pass * u64::from(self.blocks) + u64::from(block)) * self.pass;
        let part = |length: u64| length.saturating_sub(from).min(self.pass);
        let wide = message.wire.map_or(self.size, |wire| match wire {
            WireType::F16 | WireType::Bf16 => 2,
            WireType::F32 => 4,
        });
        let end = |(k, length): (u64, u64)| match part(length) {
            0 => 0,
            elements => k * self.unit + elements * wide,
        };
        match &message.chunks {
            MessageChunks::Full(0) => 0,
            MessageChunks::Full(all) => end((u64::from(*all) - 1, least + u64::from(rest != 0))),
            MessageChunks::Of(list) => {
                let length = |&c: &u32| begin(u64::from(c) + 1) - begin(u64::from(c));
                (0..).zip(list.iter().map(length)).map(end).max().unwrap_or(0)
            }
        }
    }

    /// Returns the place in the algorithm of a message of a link.
    pub(super) fn location(&self, link: &ProxyLink, number: u32) -> ErrorLocation {
        let part = &self.part;
        let a_pass = link.messages.len().max(1) as u32;
        let message = link.messages.get((number.saturating_sub(1) % a_pass) as usize);
        let site = message.and_then(|message| part.sites.get(message.site as usize));
        ErrorLocation {
            rank: part.rank,
            name: format!("{}.{}", part.header.collective, part.header.algorithm),
            step: message.map_or(0, |m| if m.round == u32::MAX { 0 } else { m.round }),
            site: site.map(|s| format!("{}:{}:{}", s.file, s.line, s.column)).unwrap_or_default(),
            text: site.map(|s| s.text.clone()).unwrap_or_default(),
        }
    }
}
