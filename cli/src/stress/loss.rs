//! Loses ranks, which die or do not come: the others must end with an error in time.

use std::time::{Duration, Instant};

use roundelay::cuda::Protocol;
use roundelay::{Algorithm, DType, Ending, Error, RedOp};
use roundelay_algorithms::find;
use rustix::process::{Signal, getpid, kill_process};

use super::library::ready;
use super::report::{Lost, RankReport, say};
use super::{Played, Said, StressOrder};
use crate::args::StressPart;
use crate::job::Ready;
use crate::job::gpu::buffers::{Areas, room};
use crate::job::gpu::player::{Calls, Player};

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
const CALLS: [(&str, &str, bool, Protocol); 2] = [
    ("all_reduce", "ring", true, Protocol::Staged),
    ("all_gather", "direct", false, Protocol::Engine),
];

fn named(player: &mut Player<'_>, at: u64) -> Result<(Ready<Algorithm>, Protocol), Error> {
    let (collective, name, in_place, protocol) = CALLS[(at % 2) as usize];
    let found = match find(collective, name) {
        Some(entry) => ready(player, entry, in_place)?,
        None => None,
    };
    let none = || Error::Usage(format!("the algorithm library has no {collective}.{name}"));
    Ok((found.ok_or_else(none)?, protocol))
}

/// Plays calls as `lose` says: the last rank ends itself in the middle, or stays away.
fn played(
    order: &StressOrder,
    player: &mut Player<'_>,
    lose: impl FnOnce(),
) -> Result<Said, Error> {
    player.gpu.set_timeout(Duration::from_millis(order.timeout_ms));
    let both = [named(player, order.seed)?, named(player, order.seed + 1)?];
    let (dtype, op, stream) = (DType::F32, RedOp::Sum, player.stream.clone());
    let (mut kept, mut calls) = (Vec::new(), Vec::new());
    for (ready, protocol) in &both {
        let one = Calls { ready, count: COUNT, dtype, op, protocol: Some(*protocol), blocks: None };
        let room = one.lens(player.gpu).map(room);
        let buffers =
            [player.gpu.alloc_device::<u8>(room[0])?, player.gpu.alloc_device::<u8>(room[1])?];
        let view = one.view(player.gpu, Areas::of(&buffers, 0)?);
        view.clear(player.gpu)?;
        calls.push((ready.algorithm(0), one.args(&view)));
        kept.push(buffers);
    }
    // What comes behind a failed call is not played: the first rank's values would arrive at the second.
    let mut behind = player.gpu.alloc_device::<u32>(BEHIND)?;
    let own = [player.gpu.rank() + 1; BEHIND];
    let mut call = |player: &mut Player<'_>, times: u32| {
        behind.copy_from(&own)?;
        let mut all = calls.iter().cycle().take(times as usize);
        all.try_for_each(|(algorithm, args)| player.gpu.call(algorithm, *args, &stream))?;
        player.gpu.on(&stream).broadcast(&mut behind, 0)?;
        player.gpu.synchronize(&stream)
    };
    call(player, BEFORE)?;
    player.gpu.barrier()?;
    if player.gpu.rank() + 1 == player.gpu.size() {
        lose();
    }
    let began = Instant::now();
    if let Err(error) = call(player, AFTER) {
        // An error is what is asked for.
        let mut lost = Lost::of(&error, began);
        let mut now = [0; BEHIND];
        behind.copy_to(&mut now)?;
        lost.played_on = now != own;
        say(&RankReport::Lost(lost));
    }
    Ok(Said { words: "it ended".into(), ..Said::default() })
}

/// Plays calls in which the last rank ends itself.
pub(super) fn killed(order: &StressOrder, player: &mut Player<'_>) -> Result<Said, Error> {
    played(order, player, || {
        let _ = kill_process(getpid(), Signal::KILL);
    })
}

/// Plays calls of which the last rank makes no more, for longer than the others wait.
pub(super) fn absent(order: &StressOrder, player: &mut Player<'_>) -> Result<Said, Error> {
    let away = Duration::from_millis(order.timeout_ms) * 2 + Duration::from_secs(2);
    played(order, player, || std::thread::sleep(away))
}

/// Checks that all others got an error in time, and that those that waited themselves say for whom.
pub(super) fn verdict(order: &StressOrder, job: &Played) -> Said {
    let mut said = Said::default();
    let lost = job.endings.len() as u32 - 1;
    let allowed = Duration::from_millis(order.timeout_ms) + Duration::from_secs(3);
    for rank in 0..lost {
        let told = job.errors.iter().find(|(r, _)| *r == rank);
        let fault = match told {
            None => Some(format!("rank {rank} got no error ({})", job.endings[rank as usize])),
            Some((_, l)) if l.seconds > allowed.as_secs_f64() => {
                Some(format!("rank {rank} got its error after {:.1} s", l.seconds))
            }
            Some((_, l)) if l.played_on => Some(format!(
                "rank {rank} played the call behind the one that failed: {}",
                l.message
            )),
            Some(_) => None,
        };
        said.add(u64::from(fault.is_some()), fault);
    }
    let names = |text: &str| text.contains(&format!("rank {lost}"));
    if lost > 0 && !job.errors.iter().any(|(_, l)| names(&l.message)) {
        said.add(1, [format!("no error names rank {lost}: {}", job.trouble())]);
    }
    if order.part == StressPart::Killed && job.endings.last() != Some(&Ending::Signalled(9)) {
        said.add(1, [format!("rank {lost} was not killed")]);
    }
    let slowest = job.errors.iter().map(|(_, l)| l.seconds).fold(0.0, f64::max);
    // The rank that saw it itself tells most.
    let first = job.errors.iter().filter(|(r, _)| *r < lost).min_by_key(|(_, l)| l.aborted);
    let first = first.map_or(String::new(), |(rank, l)| format!("; rank {rank}: {}", l.message));
    said.words = format!("errors after at most {slowest:.1} s{first}");
    said
}
