//! Plays many calls: back to back at random, and in graphs.

use std::time::Instant;

use roundelay::cuda::Protocol;
use roundelay::{Algorithm, DType, Error, RedOp, internal};
use roundelay_algorithms::find;

use super::library::ready;
use super::{Said, StressOrder};
use crate::job::gpu::buffers::{Areas, View, room};
use crate::job::gpu::player::{Calls, Player};
use crate::job::{GUARD, Ready, digest};
use crate::random::Random;

/// The menu from which calls are drawn.
pub(super) const MENU: [(&str, &str, Protocol); 17] = [
    ("all_reduce", "one_shot", Protocol::Packet),
    ("all_reduce", "two_shot", Protocol::Packet),
    ("all_reduce", "two_shot", Protocol::Get),
    ("all_reduce", "ring", Protocol::Put),
    ("all_reduce", "ring", Protocol::Staged),
    ("all_gather", "direct", Protocol::Packet),
    ("all_gather", "direct", Protocol::Put),
    ("all_gather", "direct", Protocol::Engine),
    ("reduce_scatter", "direct", Protocol::Packet),
    ("reduce_scatter", "direct", Protocol::Get),
    ("all_to_all", "direct", Protocol::Packet),
    ("all_to_all", "direct", Protocol::Put),
    ("all_to_all", "direct", Protocol::Engine),
    ("broadcast", "binomial", Protocol::Staged),
    ("broadcast", "chain", Protocol::Put),
    ("broadcast", "chain", Protocol::Engine),
    ("broadcast", "scatter_all_gather", Protocol::Packet),
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
fn size(random: &mut Random, most: u64) -> u64 {
    let digits = u64::from(most.max(1).ilog2()) + 1;
    let top = 1u64 << random.below(digits);
    (top + random.below(top)).min(most)
}

/// Returns the menu, as far as it is offered here.
fn menu(player: &mut Player<'_>) -> Result<Vec<(Ready<Algorithm>, Protocol)>, Error> {
    let mut menu = Vec::new();
    for (collective, name, protocol) in MENU {
        let Some(entry) = find(collective, name) else { continue };
        if let Some(ready) = ready(player, entry, false)? {
            menu.push((ready, protocol));
        }
    }
    Ok(menu)
}

/// Returns the largest count of a call.
fn most(player: &Player<'_>, ready: &Ready<Algorithm>, dtype: DType) -> u64 {
    let one = Calls { ready, count: 1, dtype, op: RedOp::Sum, protocol: None, blocks: None };
    let lens = one.lens(player.gpu);
    MOST / (lens[0].max(lens[1]) as u64).max(1)
}

/// Returns the call with as much of its count as there is staging memory for, by its protocol between so many ranks.
fn offered<'a>(
    player: &mut Player<'_>,
    mut calls: Calls<'a>,
    turn: u64,
    areas: Areas,
) -> Result<(Calls<'a>, View), Error> {
    loop {
        let view = calls.view(player.gpu, areas);
        match player.gpu.how(calls.ready.algorithm(turn), &calls.args(&view)) {
            Err(Error::Unsupported(_)) if calls.count > 1 => calls.count /= 2,
            Err(error) => return Err(error),
            Ok(_) => return Ok((calls, view)),
        }
    }
}

/// Plays random calls of random sizes, `TOGETHER` of them in the stream at once, every result checked.
pub(super) fn random(order: &StressOrder, player: &mut Player<'_>) -> Result<Said, Error> {
    let (mut said, mut random, began) = (Said::default(), Random::new(order.seed), Instant::now());
    let menu = menu(player)?;
    let slot = room(MOST as usize);
    let bytes = slot * TOGETHER;
    let buffers = [player.gpu.alloc_device::<u8>(bytes)?, player.gpu.alloc_device::<u8>(bytes)?];
    let mut made = 0;
    while made < order.calls && !menu.is_empty() {
        let mut batch = Vec::new();
        for i in 0..TOGETHER {
            let (ready, protocol) = &menu[random.below(menu.len() as u64) as usize];
            let (dtype, op) = KINDS[random.below(KINDS.len() as u64) as usize];
            let count = size(&mut random, most(player, ready, dtype));
            let calls = Calls { ready, count, dtype, op, protocol: Some(*protocol), blocks: None };
            // Off the usual alignment now and then, by whole elements.
            let off = if random.below(4) == 0 { dtype.size() } else { 0 };
            let mut areas = Areas::of(&buffers, i * slot)?;
            if off > 0 {
                let at = |buffer: usize| buffers[buffer].at(i * slot + GUARD + off);
                areas.data = [at(0)?, at(1)?];
            }
            let turn = random.below(64);
            let (calls, view) = offered(player, calls, turn, areas)?;
            let seed = order.seed ^ (made + i as u64) << 20;
            let trial = calls.trial(player.gpu, turn, seed, true);
            let input = trial.prepare(&mut player.at(view))?;
            batch.push((calls, view, trial, input));
        }
        let stream = player.stream.clone();
        for (calls, view, trial, _) in &batch {
            player.gpu.call(calls.ready.algorithm(trial.turn), calls.args(view), &stream)?;
        }
        player.gpu.synchronize(&stream)?;
        for (calls, view, trial, input) in &batch {
            let (wrong, words) = trial.verify(&mut player.at(*view), *input)?;
            let protocol = calls.protocol.map_or("", Protocol::name);
            let name = calls.ready.algorithm(trial.turn);
            let at = format!("{name} {protocol} {} {}", calls.count, calls.dtype);
            said.add(wrong, words.into_iter().map(|w| format!("{at}: {w}")));
        }
        made += TOGETHER as u64;
        if internal::max_f64(player.gpu, began.elapsed().as_secs_f64())? > order.seconds {
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
pub(super) fn graph(order: &StressOrder, player: &mut Player<'_>) -> Result<Said, Error> {
    let (mut said, began) = (Said::default(), Instant::now());
    let menu = menu(player)?;
    let slot = room(MOST as usize);
    let bytes = slot * menu.len().max(1);
    let buffers = [player.gpu.alloc_device::<u8>(bytes)?, player.gpu.alloc_device::<u8>(bytes)?];
    let mut calls = Vec::new();
    for (i, (ready, protocol)) in menu.iter().enumerate() {
        let (dtype, op) = KINDS[i % KINDS.len()];
        // Small ones, and those of several passes.
        let count = (most(player, ready, dtype) >> (i % 5 * 3)).max(1);
        let one = Calls { ready, count, dtype, op, protocol: Some(*protocol), blocks: None };
        let (one, view) = offered(player, one, 0, Areas::of(&buffers, i * slot)?)?;
        let trial = one.trial(player.gpu, 0, order.seed ^ i as u64, true);
        calls.push((one, view, trial));
    }
    let stream = player.stream.clone();
    for (one, view, trial) in &calls {
        trial.prepare(&mut player.at(*view))?;
        player.gpu.call(one.ready.algorithm(0), one.args(view), &stream)?;
    }
    player.gpu.synchronize(&stream)?;
    let graph = player.gpu.capture(&stream, |gpu| {
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
                0 => inputs.push(trial.prepare(&mut player.at(*view))?),
                _ => view.spoil(player.gpu)?,
            }
        }
        graph.launch(&stream)?;
        player.gpu.synchronize(&stream)?;
        for (i, (one, view, trial)) in calls.iter().enumerate() {
            let (wrong, words) = match replay {
                0 => trial.verify(&mut player.at(*view), inputs[i])?,
                _ => (0, Vec::new()),
            };
            let intact = replay == 0 || view.read(player.gpu, &mut player.output)?;
            let bits = digest(player.output.data());
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
        if internal::max_f64(player.gpu, began.elapsed().as_secs_f64())? > order.seconds {
            break;
        }
    }
    said.words = format!("{replays} of {REPLAYS} replays of {} calls", calls.len());
    said.left = REPLAYS - replays;
    Ok(said)
}
