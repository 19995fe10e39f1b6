//! Runs many calls: back to back at random, and in graphs.

use std::time::Instant;

use roundelay::cuda::DeviceProtocol;
use roundelay::{Algorithm, DType, Error, RedOp, internal};
use roundelay_algorithms::find;

use super::library::ready;
use super::{CheckReport, StressOrder};
use crate::job::gpu::buffers::{AreaAddresses, CallAreas, room};
use crate::job::gpu::executor::{CallSettings, GpuExecutor};
use crate::job::{GUARD, ReadyAlgorithm, digest};
use crate::random::RandomSource;

/// The menu from which calls are drawn.
pub(super) const MENU: [(&str, &str, DeviceProtocol); 17] = [
    ("all_reduce", "one_shot", DeviceProtocol::Packet),
    ("all_reduce", "two_shot", DeviceProtocol::Packet),
    ("all_reduce", "two_shot", DeviceProtocol::Get),
    ("all_reduce", "ring", DeviceProtocol::Put),
    ("all_reduce", "ring", DeviceProtocol::Staged),
    ("all_gather", "direct", DeviceProtocol::Packet),
    ("all_gather", "direct", DeviceProtocol::Put),
    ("all_gather", "direct", DeviceProtocol::Engine),
    ("reduce_scatter", "direct", DeviceProtocol::Packet),
    ("reduce_scatter", "direct", DeviceProtocol::Get),
    ("all_to_all", "direct", DeviceProtocol::Packet),
    ("all_to_all", "direct", DeviceProtocol::Put),
    ("all_to_all", "direct", DeviceProtocol::Engine),
    ("broadcast", "binomial", DeviceProtocol::Staged),
    ("broadcast", "chain", DeviceProtocol::Put),
    ("broadcast", "chain", DeviceProtocol::Engine),
    ("broadcast", "scatter_all_gather", DeviceProtocol::Packet),
];
const KINDS: [(DType, RedOp); 4] = [
    (DType::F32, RedOp::Sum),
    (DType::Bf16, RedOp::Sum),
    (DType::I32, RedOp::Max),
    (DType::U8, RedOp::Sum),
];
/// Calls that are in the stream together.
const TOGETHER: usize = 16;
/// Bytes of the largest call.
const MOST: u64 = 2 << 20;
/// Replays of a graph.
const REPLAYS: u64 = 1000;

/// Draws small numbers as often as large ones, by their digits; the same on all ranks.
fn size(random: &mut RandomSource, most: u64) -> u64 {
    let digits = u64::from(most.max(1).ilog2()) + 1;
    let top = 1u64 << random.below(digits);
    (top + random.below(top)).min(most)
}

/// Returns the menu, as far as it is offered here.
fn menu(
    executor: &mut GpuExecutor<'_>,
) -> Result<Vec<(ReadyAlgorithm<Algorithm>, DeviceProtocol)>, Error> {
    let mut menu = Vec::new();
    for (collective, name, protocol) in MENU {
        let Some(entry) = find(collective, name) else { continue };
        if let Some(ready) = ready(executor, entry, false)? {
            menu.push((ready, protocol));
        }
    }
    Ok(menu)
}

/// Returns the largest count of a call.
fn most(executor: &GpuExecutor<'_>, ready: &ReadyAlgorithm<Algorithm>, dtype: DType) -> u64 {
    let one = CallSettings { ready, count: 1, dtype, op: RedOp::Sum, protocol: None, blocks: None };
    let lens = one.lens(executor.gpu);
    MOST / (lens[0].max(lens[1]) as u64).max(1)
}

/// Returns the call with as much of its count as there is staging memory for, by its protocol between the ranks of the
/// executor.
fn offered<'a>(
    executor: &mut GpuExecutor<'_>,
    mut calls: CallSettings<'a>,
    turn: u64,
    areas: AreaAddresses,
) -> Result<(CallSettings<'a>, CallAreas), Error> {
    loop {
        let view = calls.view(executor.gpu, areas);
        match executor.gpu.how(calls.ready.algorithm(turn), &calls.args(&view)) {
            Err(Error::Unsupported(_)) if calls.count > 1 => calls.count /= 2,
            Err(error) => return Err(error),
            Ok(_) => return Ok((calls, view)),
        }
    }
}

/// Runs random calls of random sizes, `TOGETHER` of them in the stream at once, every result checked.
pub(super) fn random(
    order: &StressOrder,
    executor: &mut GpuExecutor<'_>,
) -> Result<CheckReport, Error> {
    let (mut said, mut random, began) =
        (CheckReport::default(), RandomSource::new(order.seed), Instant::now());
    let menu = menu(executor)?;
    let slot = room(MOST as usize);
    let bytes = slot * TOGETHER;
    let buffers =
        [executor.gpu.alloc_device::<u8>(bytes)?, executor.gpu.alloc_device::<u8>(bytes)?];
    let mut made = 0;
    while made < order.calls && !menu.is_empty() {
        let mut batch = Vec::new();
        for i in 0..TOGETHER {
            let (ready, protocol) = &menu[random.below(menu.len() as u64) as usize];
            let (dtype, op) = KINDS[random.below(KINDS.len() as u64) as usize];
            let count = size(&mut random, most(executor, ready, dtype));
            let calls =
                CallSettings { ready, count, dtype, op, protocol: Some(*protocol), blocks: None };
            // Off the usual alignment now and then, by whole elements.
            let off = if random.below(4) == 0 { dtype.size() } else { 0 };
            let mut areas = AreaAddresses::of(&buffers, i * slot)?;
            if off > 0 {
                let at = |buffer: usize| buffers[buffer].at(i * slot + GUARD + off);
                areas.data = [at(0)?, at(1)?];
            }
            let turn = random.below(64);
            let (calls, view) = offered(executor, calls, turn, areas)?;
            let seed = order.seed ^ (made + i as u64) << 20;
            let trial = calls.trial(executor.gpu, turn, seed, true);
            let input = trial.prepare(&mut executor.at(view))?;
            batch.push((calls, view, trial, input));
        }
        let stream = executor.stream.clone();
        for (calls, view, trial, _) in &batch {
            executor.gpu.call(calls.ready.algorithm(trial.turn), calls.args(view), &stream)?;
        }
        executor.gpu.synchronize(&stream)?;
        for (calls, view, trial, input) in &batch {
            let (wrong, words) = trial.verify(&mut executor.at(*view), *input)?;
            let protocol = calls.protocol.map_or("", DeviceProtocol::name);
            let name = calls.ready.algorithm(trial.turn);
            let at = format!("{name} {protocol} {} {}", calls.count, calls.dtype);
            said.add(wrong, words.into_iter().map(|w| format!("{at}: {w}")));
        }
        made += TOGETHER as u64;
        if internal::max_f64(executor.gpu, began.elapsed().as_secs_f64())? > order.seconds {
            break;
        }
    }
    let (kinds, drawn) = (KINDS.len(), menu.len());
    said.words = format!("{made} of {} calls, drawn from {drawn} x {kinds}", order.calls);
    if !menu.is_empty() {
        said.left = order.calls.saturating_sub(made);
    }
    Ok(said)
}

/// Replays a graph of calls a thousand times; every replay must give the bits of the first.
pub(super) fn graph(
    order: &StressOrder,
    executor: &mut GpuExecutor<'_>,
) -> Result<CheckReport, Error> {
    let (mut said, began) = (CheckReport::default(), Instant::now());
    let menu = menu(executor)?;
    let slot = room(MOST as usize);
    let bytes = slot * menu.len().max(1);
    let buffers =
        [executor.gpu.alloc_device::<u8>(bytes)?, executor.gpu.alloc_device::<u8>(bytes)?];
    let mut calls = Vec::new();
    for (i, (ready, protocol)) in menu.iter().enumerate() {
        let (dtype, op) = KINDS[i % KINDS.len()];
        // Small ones, and those of several passes.
        let count = (most(executor, ready, dtype) >> (i % 5 * 3)).max(1);
        let one = CallSettings { ready, count, dtype, op, protocol: Some(*protocol), blocks: None };
        let (one, view) = offered(executor, one, 0, AreaAddresses::of(&buffers, i * slot)?)?;
        let trial = one.trial(executor.gpu, 0, order.seed ^ i as u64, true);
        calls.push((one, view, trial));
    }
    let stream = executor.stream.clone();
    for (one, view, trial) in &calls {
        trial.prepare(&mut executor.at(*view))?;
        executor.gpu.call(one.ready.algorithm(0), one.args(view), &stream)?;
    }
    executor.gpu.synchronize(&stream)?;
    let graph = executor.gpu.capture(&stream, |gpu| {
        calls.iter().try_for_each(|(one, view, _)| {
            gpu.call(one.ready.algorithm(0), one.args(view), &stream)
        })
    })?;
    // Of the first replay: the digests of inputs, and of results.
    let (mut inputs, mut first): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    let mut replays = 0;
    for replay in 0..REPLAYS {
        for (_, view, trial) in &calls {
            // Fresh poison each time; contributions need writing only once.
            match replay {
                0 => inputs.push(trial.prepare(&mut executor.at(*view))?),
                _ => view.spoil(executor.gpu)?,
            }
        }
        graph.launch(&stream)?;
        executor.gpu.synchronize(&stream)?;
        for (i, (one, view, trial)) in calls.iter().enumerate() {
            let (wrong, words) = match replay {
                0 => trial.verify(&mut executor.at(*view), inputs[i])?,
                _ => (0, Vec::new()),
            };
            let intact = replay == 0 || view.read(executor.gpu, &mut executor.output)?;
            let bits = digest(executor.output.data());
            if replay == 0 {
                first.push(bits);
            }
            let same = intact && first[i] == bits;
            let at = format!("replay {replay}, {}", one.ready.algorithm(0));
            let other = (!same).then(|| "other bits than the first".to_string());
            let words = words.into_iter().chain(other).map(|w| format!("{at}: {w}"));
            said.add(wrong + u64::from(!same), words);
        }
        replays += 1;
        if internal::max_f64(executor.gpu, began.elapsed().as_secs_f64())? > order.seconds {
            break;
        }
    }
    said.words = format!("{replays} of {REPLAYS} replays of {} calls", calls.len());
    said.left = REPLAYS - replays;
    Ok(said)
}
