//! Measures time on a stream: between two events, with many calls between them, on the slowest rank.

use roundelay::cuda::CudaStream;
use roundelay::{Communicator, Error};

use super::super::measure::{Effort, measure};

/// Measures the microseconds of a call. `run` puts so many calls into the stream, rounded up to what it can,
/// and says how many that were.
pub(crate) fn measure_stream(
    gpu: &mut Communicator,
    stream: &CudaStream,
    effort: Effort,
    mut run: impl FnMut(&mut Communicator, u32) -> Result<u32, Error>,
) -> Result<f64, Error> {
    run(gpu, effort.warmup)?;
    gpu.synchronize(stream)?;
    measure(effort, |calls| {
        gpu.barrier()?;
        let began = gpu.work(stream)?;
        let calls = run(gpu, calls)?;
        let ended = gpu.work(stream)?;
        gpu.synchronize(stream)?;
        let each = ended.since_us(&began)? / 1e6 / f64::from(calls.max(1));
        gpu.max_f64(each)
    })
}
