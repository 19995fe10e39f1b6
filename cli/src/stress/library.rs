//! Runs algorithms of the library, on every protocol, type and operator that they are offered with: exact on
//! whole numbers, and with the host's bits on others.

use std::ops::Range;
use std::time::Instant;

use roundelay::cuda::DeviceProtocol;
use roundelay::plan::{CallArgs, PlanCall};
use roundelay::{Algorithm, DType, Error, RedOp, internal};
use roundelay_algorithms::{CATALOGUE, CatalogueEntry};
use roundelay_compiler::{BufferPlacement, Shape};

use super::{CheckReport, StressOrder};
use crate::job::gpu::buffers::{AreaAddresses, room};
use crate::job::gpu::executor::{CallSettings, GpuExecutor};
use crate::job::gpu::load::of_library;
use crate::job::{FACTOR, ReadyAlgorithm, digest};

/// Elements of a call, in the unit of its collective.
const COUNTS: [u64; 4] = [1, 61, 4099, 65_536];
/// Bytes of data in an area.
const MOST: usize = 64 << 20;

/// Returns an algorithm of the library on these ranks, in one placement; none if it does not allow them.
pub(super) fn ready(
    executor: &mut GpuExecutor<'_>,
    entry: &CatalogueEntry,
    in_place: bool,
) -> Result<Option<ReadyAlgorithm<Algorithm>>, Error> {
    let ranks = executor.gpu.size();
    let shapes = std::iter::once(Shape::flat(ranks)).chain(grid(ranks));
    for shape in shapes {
        let name = format!("{}.{}", entry.collective, entry.name);
        if let Some(ready) = of_library(executor.gpu, &name, &shape, in_place)? {
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
fn goes_on(
    executor: &mut GpuExecutor<'_>,
    began: Instant,
    order: &StressOrder,
) -> Result<bool, Error> {
    Ok(internal::max_f64(executor.gpu, began.elapsed().as_secs_f64())? < order.seconds)
}

/// The calls that are run with an algorithm.
struct CallSweep<'a> {
    kinds: &'a [(DType, RedOp)],
    protocols: &'a [DeviceProtocol],
    counts: &'a [u64],
    /// Both placements of each protocol; otherwise one of them, which depends on the seed.
    placements: bool,
    /// Each kind is run by one of `share` combinations of algorithm, placement and protocol.
    share: usize,
    /// The part has not passed if the time was too short for some of it.
    whole: bool,
}

/// Runs algorithms until the time is over; the digest is that of all results.
fn all(
    order: &StressOrder,
    executor: &mut GpuExecutor<'_>,
    names: impl Fn(&CatalogueEntry) -> bool,
    sweep: &CallSweep<'_>,
) -> Result<CheckReport, Error> {
    let (mut said, began) = (CheckReport::default(), Instant::now());
    let buffers = [
        executor.gpu.alloc_device::<u8>(room(MOST))?,
        executor.gpu.alloc_device::<u8>(room(MOST))?,
    ];
    let areas = AreaAddresses::of(&buffers, 0)?;
    let (mut executed, mut refused, mut number) = (0, 0, order.seed as usize % 64);
    let mut left = 0;
    for entry in CATALOGUE.iter().filter(|e| names(e)) {
        let (inside, outside) = (ready(executor, entry, true)?, ready(executor, entry, false)?);
        for &protocol in sweep.protocols {
            number += 1;
            let both = [inside.as_ref(), outside.as_ref()].into_iter().flatten();
            let both: Vec<&ReadyAlgorithm<Algorithm>> = both.collect();
            let one = both.len().min(1);
            let some = if sweep.placements { both.len() } else { one };
            for at in 0..some {
                let ready = both[(number + at) % both.len()];
                if !goes_on(executor, began, order)? {
                    left += 1;
                    continue;
                }
                let combination = CallCombination { ready, protocol, number: number + at };
                let (done, all) =
                    combination.execute(order, executor, areas, sweep, began, &mut said)?;
                left += u64::from(!all);
                executed += usize::from(done);
                refused += usize::from(!done);
            }
        }
    }
    said.words = format!("{executed} algorithms and protocols, {refused} not offered");
    if sweep.whole {
        said.left = left;
    }
    if left > 0 {
        said.words += &format!(", {left} left out for lack of time");
    }
    Ok(said)
}

/// An algorithm, its placement, and a protocol.
struct CallCombination<'a> {
    ready: &'a ReadyAlgorithm<Algorithm>,
    protocol: DeviceProtocol,
    number: usize,
}

impl CallCombination<'_> {
    /// Runs its share: whether it is offered at all, and whether there was time for all of it.
    fn execute(
        &self,
        order: &StressOrder,
        executor: &mut GpuExecutor<'_>,
        areas: AreaAddresses,
        sweep: &CallSweep<'_>,
        began: Instant,
        said: &mut CheckReport,
    ) -> Result<(bool, bool), Error> {
        let mut offered = false;
        let mine = |i: usize| (i + self.number).is_multiple_of(sweep.share);
        for (_, &(dtype, op)) in sweep.kinds.iter().enumerate().filter(|(i, _)| mine(*i)) {
            if !goes_on(executor, began, order)? {
                return Ok((offered, false));
            }
            for &count in sweep.counts {
                let (ready, protocol) = (self.ready, Some(self.protocol));
                let calls = CallSettings { ready, count, dtype, op, protocol, blocks: None };
                offered |= checked(order, executor, calls, areas, said)?;
            }
        }
        Ok((offered, true))
    }
}

/// Runs calls on whole numbers and on others: whether they are offered.
fn checked(
    order: &StressOrder,
    executor: &mut GpuExecutor<'_>,
    calls: CallSettings<'_>,
    areas: AreaAddresses,
    said: &mut CheckReport,
) -> Result<bool, Error> {
    let CallSettings { ready, count, dtype, op, .. } = calls;
    let view = calls.view(executor.gpu, areas);
    if view.lens.iter().any(|&len| len > MOST) {
        return Ok(false);
    }
    let args = calls.args(&view);
    let (protocol, _) = match executor.tried(calls, &args) {
        Ok(how) => how,
        Err(Error::Unsupported(_) | Error::Usage(_)) => return Ok(false),
        Err(error) => return Err(error),
    };
    for turn in [0, 1] {
        let whole = turn == 0;
        let trial = calls.trial(executor.gpu, turn, order.seed ^ (count << 8) ^ turn, whole);
        let input = trial.prepare(&mut executor.at(view))?;
        let stream = executor.stream.clone();
        executor.gpu.call(ready.algorithm(turn), args, &stream)?;
        executor.gpu.synchronize(&stream)?;
        let (mut wrong, mut words) = trial.verify(&mut executor.at(view), input)?;
        if !same_bits(executor, calls, turn)? {
            wrong += 1;
            words.push("the host has other bits".into());
        }
        for bytes in meant(executor, calls, turn) {
            said.digest = said.digest.rotate_left(1) ^ digest(&executor.output.data()[bytes]);
        }
        let at = format!("{} {protocol} {count} {dtype} {op}", ready.algorithm(turn));
        said.add(wrong, words.into_iter().map(|w| format!("{at}: {w}")));
    }
    Ok(true)
}

/// Returns true if the host runs this plan to the bits of the result that was read last.
fn same_bits(
    executor: &mut GpuExecutor<'_>,
    calls: CallSettings<'_>,
    turn: u64,
) -> Result<bool, Error> {
    let CallSettings { ready, count, dtype, op, .. } = calls;
    let placement = match ready.in_place {
        true => BufferPlacement::InPlace,
        false => BufferPlacement::OutOfPlace,
    };
    let (input, result) = (executor.input.data(), executor.output.data());
    let host = &mut *executor.gpu;
    let plan = host.plan(ready.algorithm(turn), placement)?;
    let mut output = vec![0xff; result.len()];
    let args = match ready.in_place {
        true => {
            output.copy_from_slice(input);
            CallArgs::InPlace { data: &mut output[..] }
        }
        false => CallArgs::OutOfPlace { input, output: &mut output[..] },
    };
    host.run(&plan, PlanCall { count, dtype, op, factor: FACTOR, args })?;
    Ok(meant(executor, calls, turn).into_iter().all(|at| output[at.clone()] == result[at]))
}

/// Returns the bytes of a result that have a meaning. Elsewhere a plan may leave what it likes: devices and
/// hosts differ in that, and so do two runs.
fn meant(executor: &GpuExecutor<'_>, calls: CallSettings<'_>, turn: u64) -> Vec<Range<usize>> {
    let CallSettings { ready, count, dtype, .. } = calls;
    let places = ready.places(turn, executor.gpu.rank(), executor.gpu.size(), count as usize);
    let size = dtype.size();
    let after = places.after(ready.in_place).into_iter();
    after.map(|part| part.at * size..(part.at + part.len) * size).collect()
}

/// Runs the whole algorithm library, by every protocol.
pub(super) fn library(
    order: &StressOrder,
    executor: &mut GpuExecutor<'_>,
) -> Result<CheckReport, Error> {
    let kinds = [(DType::F32, RedOp::Sum)];
    all(
        order,
        executor,
        |_| true,
        &CallSweep {
            kinds: &kinds,
            protocols: &DeviceProtocol::TRIED,
            counts: &COUNTS,
            placements: false,
            share: 1,
            whole: false,
        },
    )
}

/// Runs every type with every operator, by a few algorithms.
pub(super) fn types(
    order: &StressOrder,
    executor: &mut GpuExecutor<'_>,
) -> Result<CheckReport, Error> {
    let pairs = |&dtype: &DType| RedOp::ALL.iter().map(move |&op| (dtype, op));
    let kinds: Vec<(DType, RedOp)> = DType::ALL.iter().flat_map(pairs).collect();
    let sums =
        |e: &CatalogueEntry| e.collective == "all_reduce" && matches!(e.name, "one_shot" | "ring");
    let names = |e: &CatalogueEntry| sums(e) || e.collective == "all_gather" && e.name == "direct";
    let protocols = [DeviceProtocol::Packet, DeviceProtocol::Put, DeviceProtocol::Engine];
    let sweep = CallSweep {
        kinds: &kinds,
        protocols: &protocols,
        counts: &[4099],
        placements: true,
        share: 4,
        whole: false,
    };
    all(order, executor, names, &sweep)
}

/// Bits that must be the same in every run.
pub(super) fn bits(
    order: &StressOrder,
    executor: &mut GpuExecutor<'_>,
) -> Result<CheckReport, Error> {
    let kinds = [(DType::F32, RedOp::Sum), (DType::F16, RedOp::Avg)];
    let sums = |e: &CatalogueEntry| matches!(e.collective, "all_reduce" | "reduce_scatter");
    let protocols = [DeviceProtocol::Packet, DeviceProtocol::Staged];
    let sweep = CallSweep {
        kinds: &kinds,
        protocols: &protocols,
        counts: &[10_007],
        placements: false,
        share: 1,
        whole: true,
    };
    all(order, executor, sums, &sweep)
}

/// Runs enough to see that everything works.
pub(super) fn few(
    order: &StressOrder,
    executor: &mut GpuExecutor<'_>,
) -> Result<CheckReport, Error> {
    let names = |e: &CatalogueEntry| e.collective == "all_reduce" && e.name == "one_shot";
    let kinds = [(DType::F32, RedOp::Sum)];
    let sweep = CallSweep {
        kinds: &kinds,
        protocols: &DeviceProtocol::TRIED,
        counts: &COUNTS,
        placements: true,
        share: 1,
        whole: false,
    };
    all(order, executor, names, &sweep)
}
