//! Loses ranks, which die or do not come: the others must end with an error in time.

use std::time::{Duration, Instant};

use roundelay::cuda::DeviceProtocol;
use roundelay::launch::ProcessEnding;
use roundelay::{Algorithm, DType, Error, RedOp};
use roundelay_algorithms::find;
use rustix::process::{Signal, getpid, kill_process};

use super::library::ready;
use super::report::{RankFailure, RankReport, write};
use super::{CheckReport, StressOrder, StressOutcome};
use crate::args::StressPart;
use crate::job::ReadyAlgorithm;
use crate::job::gpu::buffers::{AreaAddresses, room};
use crate::job::gpu::executor::{CallSettings, GpuExecutor};

/// Calls before a rank is lost.
const BEFORE: u32 = 20;
/// Calls of the others after that: more than can be made without it.
const AFTER: u32 = 4;
/// Elements of a call.
const COUNT: u64 = 1 << 16;
/// Elements of the broadcast behind the call that fails.
const BEHIND: usize = 64;

/// The calls that are made in turn: by kernels alone, and with copy engines between their parts. The seed
/// decides which is first, and so finds a rank lost.
const CALLS: [(&str, &str, bool, DeviceProtocol); 2] = [
    ("all_reduce", "ring", true, DeviceProtocol::Staged),
    ("all_gather", "direct", false, DeviceProtocol::Engine),
];

fn named(
    executor: &mut GpuExecutor<'_>,
    at: u64,
) -> Result<(ReadyAlgorithm<Algorithm>, DeviceProtocol), Error> {
    let (collective, name, in_place, protocol) = CALLS[(at % 2) as usize];
    let found = match find(collective, name) {
        Some(entry) => ready(executor, entry, in_place)?,
        None => None,
    };
    let none = || Error::Usage(format!("the algorithm library has no {collective}.{name}"));
    Ok((found.ok_or_else(none)?, protocol))
}

/// Runs calls as `lose` says: the last rank ends itself in the middle, or stays away.
fn executed(
    order: &StressOrder,
    executor: &mut GpuExecutor<'_>,
    lose: impl FnOnce(),
) -> Result<CheckReport, Error> {
    executor.gpu.set_timeout(Duration::from_millis(order.timeout_ms));
    let both = [named(executor, order.seed)?, named(executor, order.seed + 1)?];
    let (dtype, op, stream) = (DType::F32, RedOp::Sum, executor.stream.clone());
    let (mut kept, mut calls) = (Vec::new(), Vec::new());
    for (ready, protocol) in &both {
        let one = CallSettings {
            ready,
            count: COUNT,
            dtype,
            op,
            protocol: Some(*protocol),
            blocks: None,
        };
        let room = one.lens(executor.gpu).map(room);
        let buffers =
            [executor.gpu.alloc_device::<u8>(room[0])?, executor.gpu.alloc_device::<u8>(room[1])?];
        let view = one.view(executor.gpu, AreaAddresses::of(&buffers, 0)?);
        view.clear(executor.gpu)?;
        calls.push((ready.algorithm(0), one.args(&view)));
        kept.push(buffers);
    }
    // What comes behind a failed call is not run: the first rank's values would arrive at the second.
    let mut behind = executor.gpu.alloc_device::<u32>(BEHIND)?;
    let own = [executor.gpu.rank() + 1; BEHIND];
    let mut call = |executor: &mut GpuExecutor<'_>, times: u32| {
        behind.copy_from(&own)?;
        let mut all = calls.iter().cycle().take(times as usize);
        all.try_for_each(|(algorithm, args)| executor.gpu.call(algorithm, *args, &stream))?;
        executor.gpu.on(&stream).broadcast(&mut behind, 0)?;
        executor.gpu.synchronize(&stream)
    };
    call(executor, BEFORE)?;
    executor.gpu.barrier()?;
    if executor.gpu.rank() + 1 == executor.gpu.size() {
        lose();
    }
    let began = Instant::now();
    if let Err(error) = call(executor, AFTER) {
        // An error is what is asked for.
        let mut lost = RankFailure::of(&error, began);
        let mut now = [0; BEHIND];
        behind.copy_to(&mut now)?;
        lost.ran_on = now != own;
        write(&RankReport::Lost(lost));
    }
    Ok(CheckReport { words: "it ended".into(), ..CheckReport::default() })
}

/// Runs calls in which the last rank ends itself.
pub(super) fn killed(
    order: &StressOrder,
    executor: &mut GpuExecutor<'_>,
) -> Result<CheckReport, Error> {
    executed(order, executor, || {
        let _ = kill_process(getpid(), Signal::KILL);
    })
}

/// Runs calls of which the last rank makes no more, for longer than the others wait.
pub(super) fn absent(
    order: &StressOrder,
    executor: &mut GpuExecutor<'_>,
) -> Result<CheckReport, Error> {
    let away = Duration::from_millis(order.timeout_ms) * 2 + Duration::from_secs(2);
    executed(order, executor, || std::thread::sleep(away))
}

/// Checks that all others got an error in time, and that those that waited themselves say for whom.
pub(super) fn verdict(order: &StressOrder, job: &StressOutcome) -> CheckReport {
    let mut said = CheckReport::default();
    let lost = job.endings.len() as u32 - 1;
    let allowed = Duration::from_millis(order.timeout_ms) + Duration::from_secs(3);
    for rank in 0..lost {
        let error = job.errors.iter().find(|(r, _)| *r == rank);
        let fault = match error {
            None => Some(format!("rank {rank} got no error ({})", job.endings[rank as usize])),
            Some((_, l)) if l.seconds > allowed.as_secs_f64() => {
                Some(format!("rank {rank} got its error after {:.1} s", l.seconds))
            }
            Some((_, l)) if l.ran_on => {
                Some(format!("rank {rank} run the call behind the one that failed: {}", l.message))
            }
            Some(_) => None,
        };
        said.add(u64::from(fault.is_some()), fault);
    }
    let names = |text: &str| text.contains(&format!("rank {lost}"));
    if lost > 0 && !job.errors.iter().any(|(_, l)| names(&l.message)) {
        said.add(1, [format!("no error names rank {lost}: {}", job.trouble())]);
    }
    if order.part == StressPart::Killed && job.endings.last() != Some(&ProcessEnding::Signalled(9))
    {
        said.add(1, [format!("rank {lost} was not killed")]);
    }
    let slowest = job.errors.iter().map(|(_, l)| l.seconds).fold(0.0, f64::max);
    // The rank that saw it itself knows most.
    let first = job.errors.iter().filter(|(r, _)| *r < lost).min_by_key(|(_, l)| l.aborted);
    let first = first.map_or(String::new(), |(rank, l)| format!("; rank {rank}: {}", l.message));
    said.words = format!("errors after at most {slowest:.1} s{first}");
    said
}
