//! Plays algorithms of the library, on every protocol, type and operator that they are offered with: exact on
//! whole numbers, and with the host's bits on others.

use std::ops::Range;
use std::time::Instant;

use roundelay::cuda::Protocol;
use roundelay::{Algorithm, Args, Call, DType, Error, RedOp, internal};
use roundelay_algorithms::{CATALOGUE, Entry};
use roundelay_compiler::{Placement, Shape};

use super::{Said, StressOrder};
use crate::job::gpu::buffers::{Areas, room};
use crate::job::gpu::load::of_library;
use crate::job::gpu::player::{Calls, Player};
use crate::job::{FACTOR, Ready, digest};

/// Elements of a call, in the unit of its collective.
const COUNTS: [u64; 4] = [1, 61, 4099, 65_536];
/// Bytes of data in an area.
const MOST: usize = 64 << 20;

/// Returns an algorithm of the library on these ranks, in one placement; none if it does not allow them.
pub(super) fn ready(
    player: &mut Player<'_>,
    entry: &Entry,
    in_place: bool,
) -> Result<Option<Ready<Algorithm>>, Error> {
    let ranks = player.gpu.size();
    let shapes = std::iter::once(Shape::flat(ranks)).chain(grid(ranks));
    for shape in shapes {
        let name = format!("{}.{}", entry.collective, entry.name);
        if let Some(ready) = of_library(player.gpu, &name, &shape, in_place)? {
            return Ok(Some(ready));
        }
    }
    Ok(None)
}

/// Returns two rows, for algorithms on a grid.
fn grid(ranks: u32) -> Option<Shape> {
    (ranks > 2 && ranks.is_multiple_of(2)).then(|| Shape { axes: vec![2, ranks / 2] })
}

/// Returns true if another call is begun: all ranks go by the clock of the slowest.
fn goes_on(player: &mut Player<'_>, began: Instant, order: &StressOrder) -> Result<bool, Error> {
    Ok(internal::max_f64(player.gpu, began.elapsed().as_secs_f64())? < order.seconds)
}

/// The calls that are played with an algorithm.
struct Plays<'a> {
    kinds: &'a [(DType, RedOp)],
    protocols: &'a [Protocol],
    counts: &'a [u64],
    /// Both placements of each protocol; otherwise one of them, which depends on the seed.
    placements: bool,
    /// Each kind is played by one of so many combinations of algorithm, placement and protocol.
    share: usize,
    /// The part has not passed if the time was too short for some of it.
    whole: bool,
}

/// Plays algorithms until the time is over; the digest is that of all results.
fn all(
    order: &StressOrder,
    player: &mut Player<'_>,
    names: impl Fn(&Entry) -> bool,
    plays: &Plays<'_>,
) -> Result<Said, Error> {
    let (mut said, began) = (Said::default(), Instant::now());
    let buffers =
        [player.gpu.alloc_device::<u8>(room(MOST))?, player.gpu.alloc_device::<u8>(room(MOST))?];
    let areas = Areas::of(&buffers, 0)?;
    let (mut played, mut refused, mut number) = (0, 0, order.seed as usize % 64);
    let mut left = 0;
    for entry in CATALOGUE.iter().filter(|e| names(e)) {
        let (inside, outside) = (ready(player, entry, true)?, ready(player, entry, false)?);
        for &protocol in plays.protocols {
            number += 1;
            let both = [inside.as_ref(), outside.as_ref()].into_iter().flatten();
            let both: Vec<&Ready<Algorithm>> = both.collect();
            let one = both.len().min(1);
            let some = if plays.placements { both.len() } else { one };
            for at in 0..some {
                let ready = both[(number + at) % both.len()];
                if !goes_on(player, began, order)? {
                    left += 1;
                    continue;
                }
                let combination = Combination { ready, protocol, number: number + at };
                let (done, all) =
                    combination.play(order, player, areas, plays, began, &mut said)?;
                left += u64::from(!all);
                played += usize::from(done);
                refused += usize::from(!done);
            }
        }
    }
    said.words = format!("{played} algorithms and protocols, {refused} not offered");
    if plays.whole {
        said.left = left;
    }
    if left > 0 {
        said.words += &format!(", {left} left out for lack of time");
    }
    Ok(said)
}

/// An algorithm, its placement, and a protocol.
struct Combination<'a> {
    ready: &'a Ready<Algorithm>,
    protocol: Protocol,
    number: usize,
}

impl Combination<'_> {
    /// Plays its share: whether it is offered at all, and whether there was time for all of it.
    fn play(
        &self,
        order: &StressOrder,
        player: &mut Player<'_>,
        areas: Areas,
        plays: &Plays<'_>,
        began: Instant,
        said: &mut Said,
    ) -> Result<(bool, bool), Error> {
        let mut offered = false;
        let mine = |i: usize| (i + self.number).is_multiple_of(plays.share);
        for (_, &(dtype, op)) in plays.kinds.iter().enumerate().filter(|(i, _)| mine(*i)) {
            if !goes_on(player, began, order)? {
                return Ok((offered, false));
            }
            for &count in plays.counts {
                let (ready, protocol) = (self.ready, Some(self.protocol));
                let calls = Calls { ready, count, dtype, op, protocol, blocks: None };
                offered |= checked(order, player, calls, areas, said)?;
            }
        }
        Ok((offered, true))
    }
}

/// Plays calls on whole numbers and on others: whether they are offered.
fn checked(
    order: &StressOrder,
    player: &mut Player<'_>,
    calls: Calls<'_>,
    areas: Areas,
    said: &mut Said,
) -> Result<bool, Error> {
    let Calls { ready, count, dtype, op, .. } = calls;
    let view = calls.view(player.gpu, areas);
    if view.lens.iter().any(|&len| len > MOST) {
        return Ok(false);
    }
    let args = calls.args(&view);
    let (protocol, _) = match player.tried(calls, &args) {
        Ok(how) => how,
        Err(Error::Unsupported(_) | Error::Usage(_)) => return Ok(false),
        Err(error) => return Err(error),
    };
    for turn in [0, 1] {
        let whole = turn == 0;
        let trial = calls.trial(player.gpu, turn, order.seed ^ (count << 8) ^ turn, whole);
        let input = trial.prepare(&mut player.at(view))?;
        let stream = player.stream.clone();
        player.gpu.call(ready.algorithm(turn), args, &stream)?;
        player.gpu.synchronize(&stream)?;
        let (mut wrong, mut words) = trial.verify(&mut player.at(view), input)?;
        if !same_bits(player, calls, turn)? {
            wrong += 1;
            words.push("the host has other bits".into());
        }
        for bytes in meant(player, calls, turn) {
            said.digest = said.digest.rotate_left(1) ^ digest(&player.output.data()[bytes]);
        }
        let at = format!("{} {protocol} {count} {dtype} {op}", ready.algorithm(turn));
        said.add(wrong, words.into_iter().map(|w| format!("{at}: {w}")));
    }
    Ok(true)
}

/// Returns true if the host plays this plan to the bits of the result that was read last.
fn same_bits(player: &mut Player<'_>, calls: Calls<'_>, turn: u64) -> Result<bool, Error> {
    let Calls { ready, count, dtype, op, .. } = calls;
    let placement = match ready.in_place {
        true => Placement::InPlace,
        false => Placement::OutOfPlace,
    };
    let (input, result) = (player.input.data(), player.output.data());
    let host = &mut *player.gpu;
    let plan = host.plan(ready.algorithm(turn), placement)?;
    let mut output = vec![0xff; result.len()];
    let args = match ready.in_place {
        true => {
            output.copy_from_slice(input);
            Args::InPlace { data: &mut output[..] }
        }
        false => Args::OutOfPlace { input, output: &mut output[..] },
    };
    host.run(&plan, Call { count, dtype, op, factor: FACTOR, args })?;
    Ok(meant(player, calls, turn).into_iter().all(|at| output[at.clone()] == result[at]))
}

/// Returns the bytes of a result that have a meaning. Elsewhere a plan may leave what it likes: devices and
/// hosts differ in that, and so do two runs.
fn meant(player: &Player<'_>, calls: Calls<'_>, turn: u64) -> Vec<Range<usize>> {
    let Calls { ready, count, dtype, .. } = calls;
    let places = ready.places(turn, player.gpu.rank(), player.gpu.size(), count as usize);
    let size = dtype.size();
    let after = places.after(ready.in_place).into_iter();
    after.map(|part| part.at * size..(part.at + part.len) * size).collect()
}

/// Plays the whole algorithm library, by every protocol.
pub(super) fn library(order: &StressOrder, player: &mut Player<'_>) -> Result<Said, Error> {
    let kinds = [(DType::F32, RedOp::Sum)];
    all(
        order,
        player,
        |_| true,
        &Plays {
            kinds: &kinds,
            protocols: &Protocol::TRIED,
            counts: &COUNTS,
            placements: false,
            share: 1,
            whole: false,
        },
    )
}

/// Plays every type with every operator, by a few algorithms.
pub(super) fn types(order: &StressOrder, player: &mut Player<'_>) -> Result<Said, Error> {
    let pairs = |&dtype: &DType| RedOp::ALL.iter().map(move |&op| (dtype, op));
    let kinds: Vec<(DType, RedOp)> = DType::ALL.iter().flat_map(pairs).collect();
    let sums = |e: &Entry| e.collective == "all_reduce" && matches!(e.name, "one_shot" | "ring");
    let names = |e: &Entry| sums(e) || e.collective == "all_gather" && e.name == "direct";
    let protocols = [Protocol::Packet, Protocol::Put, Protocol::Engine];
    let plays = Plays {
        kinds: &kinds,
        protocols: &protocols,
        counts: &[4099],
        placements: true,
        share: 4,
        whole: false,
    };
    all(order, player, names, &plays)
}

/// Bits that must be the same in every run.
pub(super) fn bits(order: &StressOrder, player: &mut Player<'_>) -> Result<Said, Error> {
    let kinds = [(DType::F32, RedOp::Sum), (DType::F16, RedOp::Avg)];
    let sums = |e: &Entry| matches!(e.collective, "all_reduce" | "reduce_scatter");
    let protocols = [Protocol::Packet, Protocol::Staged];
    let plays = Plays {
        kinds: &kinds,
        protocols: &protocols,
        counts: &[10_007],
        placements: false,
        share: 1,
        whole: true,
    };
    all(order, player, sums, &plays)
}

/// Plays enough to see that everything works.
pub(super) fn few(order: &StressOrder, player: &mut Player<'_>) -> Result<Said, Error> {
    let names = |e: &Entry| e.collective == "all_reduce" && e.name == "one_shot";
    let kinds = [(DType::F32, RedOp::Sum)];
    let plays = Plays {
        kinds: &kinds,
        protocols: &Protocol::TRIED,
        counts: &COUNTS,
        placements: true,
        share: 1,
        whole: false,
    };
    all(order, player, names, &plays)
}
