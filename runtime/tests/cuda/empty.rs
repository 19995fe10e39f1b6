//! Makes calls without elements on buffers of a GPU: they keep their place among others, and are compared.

use std::time::Duration;

use roundelay::cuda::{CudaBuffer, DeviceProtocol, DevicePtr};
use roundelay::{Communicator, DType, Error, RedOp};

use crate::cuda::scenes::{equal, filled, in_place, usable};
use crate::support::scene::say;

const COUNT: usize = 5000;

/// Makes a call of every collective without elements on any rank, and messages of none.
fn nothing(gpu: &mut Communicator, a: &CudaBuffer<f32>, b: &CudaBuffer<f32>) -> Result<(), Error> {
    let (n, rank) = (gpu.size(), gpu.rank());
    let (input, mut output) = (a.slice(0..0)?, b.slice(0..0)?);
    gpu.all_reduce_into(&mut output, &input, RedOp::Sum)?;
    gpu.all_reduce(&mut output, RedOp::Max)?;
    gpu.broadcast(&mut output, n - 1)?;
    gpu.reduce_scatter(&mut output, &input, RedOp::Sum)?;
    gpu.all_gather(&mut output, &input)?;
    gpu.all_to_all(&mut output, &input)?;
    gpu.reduce(&mut output, 0, RedOp::Sum)?;
    gpu.all_gather_v(&mut output, &input, &vec![0; n as usize])?;
    let ring = gpu.algorithm("all_reduce", "ring")?;
    let stream = gpu.stream()?;
    gpu.call(&ring, in_place(DevicePtr::NULL, 0, DType::F32, DeviceProtocol::Staged), &stream)?;
    let mut batch = gpu.batch();
    batch.send(&input, (rank + 1) % n).recv(&mut output, (rank + n - 1) % n);
    batch.run(gpu)
}

/// Calls without elements between others, and captured with others.
pub(crate) fn empty(gpu: &mut Communicator) -> Result<(), Error> {
    let stream = gpu.stream()?;
    let (a, mut b) = (gpu.alloc_device::<f32>(COUNT)?, gpu.alloc_device::<f32>(COUNT)?);
    let mut wanted = filled(gpu, &a, 1)?;
    gpu.all_reduce(&mut wanted, RedOp::Sum)?;
    let mut got = vec![0.0; COUNT];
    let mut compare = |gpu: &mut Communicator, b: &CudaBuffer<f32>, what| {
        gpu.synchronize(&stream)?;
        b.copy_to(&mut got)?;
        equal(gpu, what, &got, &wanted)
    };
    for _ in 0..3 {
        b.fill(0xff)?;
        nothing(gpu, &a, &b)?;
        gpu.all_reduce_into(&mut b, &a, RedOp::Sum)?;
        nothing(gpu, &a, &b)?;
        compare(gpu, &b, "all_reduce between calls without elements")?;
    }
    let graph = gpu.capture(&stream, |gpu| {
        nothing(gpu, &a, &b)?;
        gpu.all_reduce_into(&mut b, &a, RedOp::Sum)?;
        nothing(gpu, &a, &b)?;
        gpu.broadcast(&mut b, 0)
    })?;
    for _ in 0..10 {
        b.fill(0xff)?;
        gpu.barrier()?;
        graph.launch(&stream)?;
        nothing(gpu, &a, &b)?;
        compare(gpu, &b, "a graph with calls without elements")?;
    }
    Ok(())
}

/// The last rank has no elements in a call in which the others have some: of a kind that has been made before, of one
/// that has not, or while it is captured. No rank may succeed.
pub(crate) fn alone(scene: &str, mut gpu: Communicator) -> Result<(), Error> {
    let stream = gpu.stream()?;
    let buffer = gpu.alloc_device::<f32>(COUNT)?;
    if scene != "first" {
        gpu.all_reduce(&mut buffer.slice(0..COUNT)?, RedOp::Sum)?;
        gpu.synchronize(&stream)?;
    }
    gpu.barrier()?;
    gpu.set_timeout(Duration::from_secs(3));
    let count = if gpu.rank() + 1 == gpu.size() { 0 } else { COUNT };
    let mut part = buffer.slice(0..count)?;
    let result = match scene {
        "captured" => gpu
            .capture(&stream, |gpu| gpu.all_reduce(&mut part, RedOp::Sum))
            .and_then(|graph| graph.launch(&stream)),
        _ => gpu.all_reduce(&mut part, RedOp::Sum),
    };
    let result = result.and_then(|()| gpu.synchronize(&stream));
    let error = result.expect_err("the ranks make different calls");
    say(&format!("{} {error}", error.code()));
    assert!(gpu.barrier().is_err(), "the job is over");
    drop(gpu);
    usable()
}
