//! Lowers the plans of all ranks to device programs.
//!
//! `order` puts operations into phases, `travel` decides how each message travels, `build` makes tasks and
//! what they would have to wait for, `prune` leaves out what is known anyway, `barriers` finds where block
//! barriers must be; `engine` puts copies apart for engines, `multicast` unites them for the switch; `rules` names
//! the rule that a task breaks, `evidence` finds if the end of a rank depends on the entry of all. A signal is sent
//! only if a rank waits for it. The result is proved by [`super::verify`].

mod barriers;
mod build;
mod engine;
mod evidence;
mod multicast;
mod order;
mod prune;
mod rules;
mod travel;

use std::collections::{BTreeMap, BTreeSet};

use super::abi;
use super::options::DeviceOptions;
use super::program::{
    DeviceConnection, DeviceEvent, DeviceMessage, DevicePhase, DeviceProgram, DeviceSignal,
    DeviceTask, DeviceWait,
};
use super::protocol::DeviceProtocol;
use super::refusal::LoweringRefusal;
use crate::num::{count, index, short};
use crate::plan::{MessageDirection, Plan};
use build::{TaskBuilder, TaskDraft, WaitCondition};
use order::{PhaseOrder, WaitRules, places};
use travel::MessageTravel;

/// Plans with memories of more chunks a rank are refused: lowering and its proof hold each place of every rank.
const MOST_PLACES: usize = 1 << 24;

/// Lowers the plans of all ranks, in order of rank. The result is not yet proved.
///
/// # Errors
/// Returns [`LoweringRefusal`] if a device cannot execute the plans.
pub fn lower(
    plans: &[Plan],
    protocol: DeviceProtocol,
    options: &DeviceOptions,
) -> Result<Vec<DeviceProgram>, LoweringRefusal> {
    possible(plans, protocol, options)?;
    let usual = plans.first().map_or(1, |plan| plan.header.slots);
    if let (None, Some(few)) = (options.slots, few(plans, protocol, options).filter(|&k| k < usual))
        && let Ok(programs) = with_slots(plans, protocol, options, few)
    {
        return Ok(programs);
    }
    with_slots(plans, protocol, options, options.slots.unwrap_or(usual).max(1))
}

/// Returns the number of slots that serve as well as more, where one is known: those for the messages of two passes,
/// where every rank receives from all others in each pass, so that no rank is two passes ahead. Of the memory for
/// slots a few long ones take more in a pass than many short ones: an all-to-all of 512 MiB on four H200 took 1.21
/// ms with two, 1.48 with four, a reduce-scatter of two 0.76 and 0.83. Along a chain those in front run ahead, and
/// a broadcast took 1.51 and 1.49 (docs/results/2026-11-26-nccl-h200x4).
fn few(plans: &[Plan], protocol: DeviceProtocol, options: &DeviceOptions) -> Option<u32> {
    let both_ways = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"];
    let is_one_host = (0..count(plans.len())).all(|rank| !options.is_far(rank, 0));
    let collective = plans.first().map(|plan| plan.header.collective.as_str());
    if protocol != DeviceProtocol::Staged || !is_one_host || !both_ways.contains(&collective?) {
        return None;
    }
    let messages = plans.iter().flat_map(|plan| &plan.part.conns).map(|conn| conn.messages).max();
    messages.map(|messages| 2 * messages.max(1))
}

/// Lowers plans that a device can execute, with `slots` slots.
fn with_slots(
    plans: &[Plan],
    protocol: DeviceProtocol,
    options: &DeviceOptions,
    slots: u32,
) -> Result<Vec<DeviceProgram>, LoweringRefusal> {
    let drains = protocol.pulls();
    let waiting = WaitRules { slots: (!protocol.is_one_pass()).then_some(slots), drains };
    let order = PhaseOrder::new(plans, waiting, &|a, b| options.is_far(a, b))?;
    let (travels, mut needs) = travel::travels(&order, protocol);
    if protocol == DeviceProtocol::Engine {
        engine::readable(&order, &travels)?;
    }
    let build = TaskBuilder { order: &order, travels: &travels, slots };
    let mut drafts: Vec<Vec<Vec<TaskDraft>>> = Vec::new();
    for phases in &order.phases {
        let tasks = |ids: &Vec<u32>| ids.iter().map(|&id| build.task(id)).collect();
        drafts.push(phases.iter().map(tasks).collect());
    }
    let mut leave: Vec<Vec<WaitCondition>> =
        (0..plans.len()).map(|rank| build.leave(count(rank))).collect();
    let pruned = prune::prune(&order, &mut drafts, &mut leave, &mut needs);
    let synchronizes = match protocol {
        DeviceProtocol::Packet => evidence::synchronizes(&order),
        _ => all_synchronize(&pruned.end),
    };
    let all_signals = phase_signals(&order, &drafts, &leave);
    let links = links(&order, &travels, slots)?;
    let [staging, far] = [false, true].map(|far| staging(&links, far));
    let greets = greets(&drafts);
    let mut programs = Vec::with_capacity(plans.len());
    for (rank, (plan, drafts)) in plans.iter().zip(drafts).enumerate() {
        let signals = &all_signals[rank];
        let barriers = barriers::RankBarriers {
            plan,
            drafts: &drafts,
            landed: &pruned.landed[rank],
            signals,
            needs: &needs[rank],
            around: &pruned.around[rank],
            renewed: pruned.renewed[rank],
        }
        .all();
        programs.push(DeviceProgram {
            header: plan.header.clone(),
            rank: count(rank),
            protocol,
            links: links[rank].clone(),
            greets: greets[rank].iter().copied().collect(),
            elsewhere: (0..count(plans.len()))
                .filter(|&r| options.is_far(r, count(rank)))
                .collect(),
            phases: phases(drafts, signals, &barriers),
            leave: waits(&leave[rank]),
            staging,
            far,
            synchronizes,
            sites: plan.part.sites.clone(),
        });
    }
    match protocol {
        DeviceProtocol::Engine => engine::apart(programs),
        DeviceProtocol::Multicast => multicast::united(programs),
        _ => Ok(programs),
    }
}

/// Checks that a device can execute the plans at all.
fn possible(
    plans: &[Plan],
    protocol: DeviceProtocol,
    options: &DeviceOptions,
) -> Result<(), LoweringRefusal> {
    let Some(first) = plans.first() else {
        return Err(LoweringRefusal("there are no plans".into()));
    };
    let held = places(first).per_rank;
    if held > MOST_PLACES {
        return Err(LoweringRefusal(format!(
            "the memories of a rank have {held} chunks together; a device has room for {MOST_PLACES}"
        )));
    }
    for (rank, plan) in plans.iter().enumerate() {
        if plan.header != first.header || plan.part.rank != count(rank) {
            return Err(LoweringRefusal(
                "the plans are not those of all ranks of one schedule".into(),
            ));
        }
    }
    if plans.len() != index(first.header.ranks) {
        return Err(LoweringRefusal("the plans are not those of all ranks of one schedule".into()));
    }
    if !options.hosts.is_empty() && options.hosts.len() != plans.len() {
        let (hosts, ranks) = (options.hosts.len(), plans.len());
        return Err(LoweringRefusal(format!(
            "the hosts of {hosts} ranks were given, and there are {ranks}"
        )));
    }
    let mut conns =
        plans.iter().flat_map(|p| p.part.conns.iter().map(move |c| (p.part.rank, c.peer)));
    if protocol.is_of_one_host()
        && let Some((rank, peer)) = conns.find(|&(rank, peer)| options.is_far(rank, peer))
    {
        return Err(LoweringRefusal(format!(
            "ranks {rank} and {peer} are on different hosts: `{protocol}` reaches as far as one host; `staged`, \
             `put` and `get` go through slots between hosts"
        )));
    }
    if protocol == DeviceProtocol::Packet && first.header.collective == "barrier" {
        return Err(LoweringRefusal(
            "a barrier's messages are empty: there is nothing to carry as packets".into(),
        ));
    }
    Ok(())
}

/// Returns true if the end of every rank depends on the entry of every rank.
fn all_synchronize(end: &[Vec<u32>]) -> bool {
    end.iter()
        .enumerate()
        .all(|(rank, known)| known.iter().enumerate().all(|(other, &k)| k > 0 || other == rank))
}

/// For each rank and phase, the latest message of each of its links that a rank waits for, by link.
type PhaseSignals = Vec<Vec<BTreeMap<u32, u32>>>;

fn phase_signals(
    order: &PhaseOrder<'_>,
    drafts: &[Vec<Vec<TaskDraft>>],
    leave: &[Vec<WaitCondition>],
) -> PhaseSignals {
    let mut signals: PhaseSignals =
        order.phases.iter().map(|phases| vec![BTreeMap::new(); phases.len()]).collect();
    let all = drafts.iter().flatten().flatten().flat_map(|d| &d.conditions);
    for c in all.chain(leave.iter().flatten()) {
        if let ((rank, Some(phase)), Some((wire, number, consumed))) = (c.source, c.by) {
            let link = order.wires[index(wire)].ends[usize::from(consumed)];
            let latest = signals[index(rank)][index(phase)].entry(link).or_insert(number);
            *latest = number.max(*latest);
        }
    }
    // Every message is signalled to a proxy.
    for wire in order.wires.iter().filter(|wire| wire.far) {
        for (number, ends) in wire.messages.iter().enumerate() {
            for (&(id, _), link) in ends.iter().zip(wire.ends) {
                let node = &order.nodes[index(id)];
                let latest = signals[index(node.rank)][index(node.phase)].entry(link).or_insert(0);
                *latest = count(number).max(*latest);
            }
        }
    }
    signals
}

/// Returns, for each rank, the peers to which it signals its entry.
fn greets(drafts: &[Vec<Vec<TaskDraft>>]) -> Vec<BTreeSet<u32>> {
    let mut greets = vec![BTreeSet::new(); drafts.len()];
    for (rank, phases) in drafts.iter().enumerate() {
        for c in phases.iter().flatten().flat_map(|d| &d.conditions) {
            if let DeviceEvent::Entered { peer } = c.event {
                greets[index(peer)].insert(count(rank));
            }
        }
    }
    greets
}

/// Returns the links of all ranks, with their places in the receivers' staging memory.
fn links(
    order: &PhaseOrder<'_>,
    travels: &[Vec<MessageTravel>],
    slots: u32,
) -> Result<Vec<Vec<DeviceConnection>>, LoweringRefusal> {
    let channels = channels(order)?;
    let mut links: Vec<Vec<DeviceConnection>> = Vec::new();
    for plan in order.plans {
        let conns = plan.part.conns.iter().zip(&order.wire_of[index(plan.part.rank)]);
        let list = conns.map(|(c, &w)| {
            let messages = order.wires[index(w)].messages.iter().zip(&travels[index(w)]);
            let staged = messages
                .filter(|(_, t)| matches!(t, MessageTravel::Packet | MessageTravel::Staged));
            let chunks = staged.map(|(m, _)| order.nodes[index(m[0].0)].op.sizes.chunks()).max();
            let room = match travels[index(w)].first() {
                Some(MessageTravel::Packet) => c.messages,
                _ if chunks.is_some() => slots,
                _ => 0,
            };
            DeviceConnection {
                peer: c.peer,
                channel: channels[index(w)],
                dir: c.dir,
                messages: c.messages,
                chunks: chunks.unwrap_or(0),
                slots: room,
                base: 0,
                far: order.wires[index(w)].far,
            }
        });
        links.push(list.collect());
    }
    let mut bases = vec![0; order.wires.len()];
    for (list, of) in links.iter().zip(&order.wire_of) {
        let mut base = 0;
        for (link, &w) in
            list.iter().zip(of).filter(|(l, _)| l.dir == MessageDirection::Recv && !l.far)
        {
            bases[index(w)] = base;
            base = after(base, link)?;
        }
    }
    for (list, of) in links.iter_mut().zip(&order.wire_of) {
        let mut own = 0;
        for (link, &w) in list.iter_mut().zip(of) {
            link.base = if link.far { own } else { bases[index(w)] };
            own = if link.far { after(own, link)? } else { own };
        }
    }
    Ok(links)
}

/// Returns the first chunk of staging memory after the slots of a link that begin at `base`.
fn after(base: u32, link: &DeviceConnection) -> Result<u32, LoweringRefusal> {
    let slots = link.slots.checked_mul(link.chunks);
    slots.and_then(|chunks| base.checked_add(chunks)).ok_or_else(|| {
        let (slots, chunks) = (link.slots, link.chunks);
        LoweringRefusal(format!(
            "the slots of a rank take more chunks than can be numbered: {slots} for messages of {chunks} chunks from \
             each of its peers; ask for fewer slots, or send shorter messages"
        ))
    })
}

/// Returns the channels of a device, numbered without gaps between any two ranks.
fn channels(order: &PhaseOrder<'_>) -> Result<Vec<u16>, LoweringRefusal> {
    let mut sorted: Vec<usize> = (0..order.wires.len()).collect();
    let pair = |&w: &usize| (order.wires[w].source, order.wires[w].target);
    sorted.sort_unstable_by_key(|w| (pair(w), order.wires[*w].channel));
    let mut channels = vec![0; order.wires.len()];
    for wires in sorted.chunk_by(|a, b| pair(a) == pair(b)) {
        if wires.len() > index(abi::CHANNELS) {
            let (count, most) = (wires.len(), abi::CHANNELS);
            return Err(LoweringRefusal(format!(
                "the schedule has {count} channels between two ranks; a device has {most}"
            )));
        }
        for (channel, &w) in wires.iter().enumerate() {
            channels[w] = short(channel);
        }
    }
    Ok(channels)
}

/// Returns the chunks of staging memory, or of far memory, on the rank that needs most.
fn staging(links: &[Vec<DeviceConnection>], far: bool) -> u32 {
    let has =
        |l: &&DeviceConnection| if far { l.far } else { !l.far && l.dir == MessageDirection::Recv };
    let of =
        |list: &Vec<DeviceConnection>| list.iter().filter(has).map(|l| l.slots * l.chunks).sum();
    links.iter().map(of).max().unwrap_or(0)
}

fn waits(conditions: &[WaitCondition]) -> Vec<DeviceWait> {
    conditions.iter().map(|c| DeviceWait { event: c.event, acquire: true }).collect()
}

/// Returns the phases of which something is left.
fn phases(
    drafts: Vec<Vec<TaskDraft>>,
    signals: &[BTreeMap<u32, u32>],
    barriers: &[bool],
) -> Vec<DevicePhase> {
    let mut phases: Vec<DevicePhase> = Vec::new();
    for ((drafts, signals), &block_barrier) in drafts.into_iter().zip(signals).zip(barriers) {
        let tasks = drafts
            .into_iter()
            .filter(TaskDraft::works)
            .map(|d| DeviceTask { waits: waits(&d.conditions), ..d.task });
        let tasks: Vec<DeviceTask> = tasks.collect();
        let signals: Vec<DeviceSignal> = signals
            .iter()
            .map(|(&link, &index)| DeviceSignal {
                message: DeviceMessage { link, index },
                release: true,
            })
            .collect();
        if !tasks.is_empty() || !signals.is_empty() {
            phases.push(DevicePhase { tasks, block_barrier, signals });
        } else if let (true, Some(last)) = (block_barrier, phases.last_mut()) {
            last.block_barrier = true;
        }
    }
    phases
}
