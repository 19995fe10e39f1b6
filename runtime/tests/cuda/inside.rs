//! Calls whose input is their output, on all ranks and on some.

use roundelay::cuda::{CudaBuffer, CudaSlice};
use roundelay::{Communicator, Error, Hints};

use crate::cuda::scenes::{equal, filled};

pub(crate) fn inside(gpu: &mut Communicator) -> Result<(), Error> {
    for hints in ["", "protocol=packet", "protocol=staged", "protocol=put"] {
        let text = hints.to_owned();
        gpu.set_hints(hints.parse::<Hints>().map_err(|e| Error::Usage(e.to_string()))?)?;
        for count in [1, 1000, 4096, 70_001, 600_000] {
            // That many elements do not fit into the memory of packets on many ranks.
            if hints == "protocol=packet" && count > 100_000 {
                continue;
            }
            // Peers that write into the output ask for the same memory on all ranks.
            let mixed = ["protocol=packet", "protocol=staged"].contains(&hints);
            let named = |e: Error| Error::Usage(format!("{text}, {count}: {e}"));
            all_to_all(gpu, count, mixed).map_err(named)?;
            broadcast(gpu, count, mixed).map_err(named)?;
        }
    }
    // What has no program in place is copied first.
    gpu.set_hints(
        "algorithm=all_to_all.pairwise"
            .parse::<Hints>()
            .map_err(|e| Error::Usage(e.to_string()))?,
    )?;
    all_to_all(gpu, 5000, true)
}

/// Copies a buffer to the host, after all calls.
fn read(gpu: &mut Communicator, from: &CudaBuffer<f32>, n: usize) -> Result<Vec<f32>, Error> {
    let stream = gpu.stream()?;
    gpu.synchronize(&stream)?;
    let mut all = vec![0.0; n];
    from.copy_to(&mut all)?;
    Ok(all)
}

fn all_to_all(gpu: &mut Communicator, count: usize, mixed: bool) -> Result<(), Error> {
    let (n, rank) = (gpu.size() as usize, gpu.rank() as usize);
    let elements = n * count;
    let (mut a, mut b) = (gpu.alloc_device::<f32>(elements)?, gpu.alloc_device::<f32>(elements)?);
    let values = filled(gpu, &a, 1)?;
    let mut wanted = vec![0.0; elements];
    gpu.all_to_all(&mut wanted, &values)?;
    gpu.all_to_all_in_place(&mut a)?;
    let has = read(gpu, &a, elements)?;
    equal(gpu, "all_to_all_in_place", &has, &wanted)?;
    // All of them have one buffer, then some, then none, then others.
    for turn in 0..6 {
        filled(gpu, &a, 1)?;
        b.fill(0)?;
        gpu.barrier()?;
        let is_inside = match mixed {
            true => [true, rank == 0, false, rank != 0, rank % 2 == 0, true][turn],
            false => turn % 2 == 0,
        };
        let input: CudaSlice<f32> = a.slice(0..elements)?;
        match is_inside {
            true => gpu.all_to_all(&mut a.slice(0..elements)?, &input)?,
            false => gpu.all_to_all(&mut b, &input)?,
        }
        let has = read(gpu, if is_inside { &a } else { &b }, elements)?;
        equal(gpu, "all_to_all where some are in place", &has, &wanted)?;
    }
    gpu.free(a)?;
    gpu.free(b)
}

fn broadcast(gpu: &mut Communicator, count: usize, mixed: bool) -> Result<(), Error> {
    let (n, rank) = (gpu.size(), gpu.rank());
    let (a, mut b) = (gpu.alloc_device::<f32>(count)?, gpu.alloc_device::<f32>(count)?);
    for root in [0, n - 1] {
        let mut wanted = filled(gpu, &a, u64::from(2 + root))?;
        gpu.broadcast(&mut wanted, root)?;
        for is_inside in [false, true, false] {
            filled(gpu, &a, u64::from(2 + root))?;
            b.fill(0)?;
            gpu.barrier()?;
            let input = match rank == root {
                true => a.slice(0..count)?,
                false => CudaSlice::NONE,
            };
            let is_inside = is_inside && mixed && rank == root;
            match is_inside {
                true => gpu.broadcast_into(&mut a.slice(0..count)?, &input, root)?,
                false => gpu.broadcast_into(&mut b, &input, root)?,
            }
            let has = read(gpu, if is_inside { &a } else { &b }, count)?;
            equal(gpu, "broadcast_into", &has, &wanted)?;
        }
    }
    gpu.free(a)?;
    gpu.free(b)
}
