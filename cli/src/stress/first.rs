//! Measures first calls: what the host does before a kernel is launched for the first time.

use std::time::Instant;

use roundelay::cuda::{CudaLaunch, CudaOptions};
use roundelay::plan::{CallArgs, PlanCall};
use roundelay::{Communicator, DType, Error, RedOp};
use roundelay_algorithms::find;

use super::series::MENU;
use super::{CheckReport, StressOrder};

/// Elements of a call, in the unit of its collective, and of another one that shares its kernel.
const COUNTS: [u64; 2] = [4096, 8192];
/// The first call of all in a process loads the compiler's library; its time is reported separately.
const LIBRARY: (&str, &str) = ("barrier", "dissemination");

/// Milliseconds of calls on this rank.
#[derive(Default)]
struct FirstTimes(Vec<f64>);

impl FirstTimes {
    fn text(&mut self) -> String {
        self.0.sort_by(f64::total_cmp);
        let at = |i: usize| self.0.get(i).copied().unwrap_or(0.0);
        let (middle, most) = (at(self.0.len() / 2), at(self.0.len().saturating_sub(1)));
        format!("{middle:.1} ms (most {most:.1})")
    }
}

/// Makes the menu's calls by a communicator of its own with nothing in memory; returns the times of the first ones,
/// of those that find their kernel in memory, and of the very first.
fn round(
    comm: &mut Communicator,
    options: &CudaOptions,
    said: &mut CheckReport,
) -> Result<[FirstTimes; 3], Error> {
    let mut gpu = comm.cuda(options.clone())?;
    let n = u64::from(gpu.size());
    let bytes = (COUNTS[1] * n * 4) as usize;
    let (input, output) = (gpu.alloc_device::<u8>(bytes)?, gpu.alloc_device::<u8>(bytes)?);
    let mut times = <[FirstTimes; 3]>::default();
    let began = Instant::now();
    let barrier = gpu.algorithm(LIBRARY.0, LIBRARY.1)?;
    let nothing = CallArgs::InPlace { data: input.ptr() };
    let (dtype, op) = (DType::F32, RedOp::Sum);
    let mut args = CudaLaunch::from(PlanCall { count: 0, dtype, op, factor: 1.0, args: nothing });
    let stream = gpu.stream()?;
    gpu.call(&barrier, args, &stream)?;
    times[2].0.push(began.elapsed().as_secs_f64() * 1e3);
    args.call.args = CallArgs::OutOfPlace { input: input.ptr(), output: output.ptr() };
    for (collective, name, protocol) in MENU {
        if find(collective, name).is_none() {
            continue;
        }
        args.protocol = Some(protocol);
        for (of, count) in COUNTS.into_iter().enumerate() {
            args.call.count = count;
            one(&mut gpu, (collective, name), args, &mut times[of], said)?;
        }
    }
    Ok(times)
}

/// Makes one call: from its name to its launch.
fn one(
    gpu: &mut Communicator,
    (collective, name): (&str, &str),
    args: CudaLaunch,
    times: &mut FirstTimes,
    said: &mut CheckReport,
) -> Result<(), Error> {
    let stream = gpu.stream()?;
    gpu.barrier()?;
    let began = Instant::now();
    let algorithm = gpu.algorithm(collective, name)?;
    gpu.call(&algorithm, args, &stream)?;
    times.0.push(began.elapsed().as_secs_f64() * 1e3);
    gpu.synchronize(&stream)?;
    said.add(0, []);
    Ok(())
}

/// Kernels are compiled in the first round, found on disk in the second.
pub(super) fn first(_: &StressOrder, comm: &mut Communicator) -> Result<CheckReport, Error> {
    let mut said = CheckReport::default();
    let folder = std::env::temp_dir().join(format!("roundelay-first-{}", std::process::id()));
    let options = CudaOptions { cache_dir: Some(folder.clone()), ..CudaOptions::default() };
    let rounds = round(comm, &options, &mut said)
        .and_then(|made| Ok((made, round(comm, &options, &mut said)?)));
    let _ = std::fs::remove_dir_all(&folder);
    let ([mut made, _, mut library], [mut kept, mut known, _]) = rounds?;
    said.words = format!(
        "first calls, median of the host's time: compiled {}, from disk {}, another count {}; the very first {}",
        made.text(),
        kept.text(),
        known.text(),
        library.text()
    );
    Ok(said)
}
