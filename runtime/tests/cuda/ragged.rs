//! Runs lists, and blocks of unequal length.

use roundelay::cuda::{CudaBuffer, CudaSlice};
use roundelay::{Communicator, Error, RedOp};

use crate::cuda::scenes::{equal, filled};

/// Runs lists, and blocks of unequal length, and compares them with the host's.
pub(crate) fn ragged(gpu: &mut Communicator) -> Result<(), Error> {
    let (n, rank, root) = (gpu.size() as usize, gpu.rank() as usize, gpu.size() - 1);
    let stream = gpu.stream()?;
    for unit in [1usize, 700, 50_001] {
        let counts: Vec<usize> = (0..n).map(|r| r * unit).collect();
        let total = counts.iter().sum::<usize>();
        let whole = n * n * unit;
        let (a, b) = (gpu.alloc_device::<f32>(whole)?, gpu.alloc_device::<f32>(whole)?);
        let mut all = vec![0.0; whole];

        let values = filled(gpu, &a, 1)?;
        let (own, mut output) = (a.slice(0..counts[rank])?, b.slice(0..total)?);
        gpu.all_gather_v(&mut output, &own, &counts)?;
        gpu.synchronize(&stream)?;
        b.copy_to(&mut all)?;
        let mut wanted = vec![0.0; total];
        gpu.all_gather_v(&mut wanted, &values[..counts[rank]], &counts)?;
        equal(gpu, "all_gather_v", &all[..total], &wanted)?;

        let values = filled(gpu, &a, 2)?;
        let (input, mut output) = (a.slice(0..total)?, b.slice(0..counts[rank])?);
        gpu.reduce_scatter_v(&mut output, &input, &counts, RedOp::Max)?;
        gpu.synchronize(&stream)?;
        b.copy_to(&mut all)?;
        let mut wanted = vec![0.0; counts[rank]];
        gpu.reduce_scatter_v(&mut wanted, &values[..total], &counts, RedOp::Max)?;
        equal(gpu, "reduce_scatter_v", &all[..counts[rank]], &wanted)?;

        // From rank a to rank b go a + b units.
        let values = filled(gpu, &a, 3)?;
        let both: Vec<usize> = (0..n).map(|peer| (rank + peer) * unit / 2).collect();
        let sum = both.iter().sum::<usize>();
        let (input, mut output) = (a.slice(0..sum)?, b.slice(0..sum)?);
        gpu.all_to_all_v(&mut output, &both, &input, &both)?;
        gpu.synchronize(&stream)?;
        b.copy_to(&mut all)?;
        let mut wanted = vec![0.0; sum];
        gpu.all_to_all_v(&mut wanted, &both, &values[..sum], &both)?;
        equal(gpu, "all_to_all_v", &all[..sum], &wanted)?;

        // Lists whose buffers lie in the order of ranks turned round.
        let values = filled(gpu, &a, 4)?;
        let turned = |r: usize| (n - 1 - r) * unit..(n - r) * unit;
        let mut places: Vec<CudaSlice<f32>> =
            (0..n).map(|r| b.slice(turned(r))).collect::<Result<_, Error>>()?;
        let mut outputs: Vec<&mut CudaSlice<f32>> = places.iter_mut().collect();
        gpu.all_gather_list(&mut outputs, &a.slice(0..unit)?)?;
        gpu.synchronize(&stream)?;
        b.copy_to(&mut all)?;
        let mut wanted = vec![0.0; n * unit];
        gpu.all_gather(&mut wanted, &values[..unit])?;
        let turned_back: Vec<f32> = (0..n).flat_map(|r| all[turned(r)].to_vec()).collect();
        equal(gpu, "all_gather, listed", &turned_back, &wanted)?;

        let values = filled(gpu, &a, 5)?;
        let inputs: Vec<CudaSlice<f32>> =
            (0..n).map(|r| a.slice(turned(r))).collect::<Result<_, Error>>()?;
        let inputs: Vec<&CudaSlice<f32>> = inputs.iter().collect();
        gpu.reduce_scatter_list(&mut b.slice(0..unit)?, &inputs, RedOp::Max)?;
        gpu.synchronize(&stream)?;
        b.copy_to(&mut all)?;
        let inputs: Vec<&[f32]> = (0..n).map(|r| &values[turned(r)]).collect();
        let mut wanted = vec![0.0; unit];
        gpu.reduce_scatter_list(&mut wanted, &inputs, RedOp::Max)?;
        equal(gpu, "reduce_scatter, listed", &all[..unit], &wanted)?;

        filled(gpu, &a, 6)?;
        let before = if rank as u32 == root { values_of(&a)? } else { Vec::new() };
        let inputs: Vec<CudaSlice<f32>> =
            (0..n).map(|r| a.slice(turned(r))).collect::<Result<_, Error>>()?;
        let inputs: Vec<&CudaSlice<f32>> = inputs.iter().collect();
        let inputs = if rank as u32 == root { inputs } else { Vec::new() };
        gpu.scatter_list(&mut b.slice(0..unit)?, &inputs, root)?;
        gpu.synchronize(&stream)?;
        b.copy_to(&mut all)?;
        let mut wanted = vec![0.0; unit];
        let inputs: Vec<&[f32]> = if before.is_empty() {
            Vec::new()
        } else {
            (0..n).map(|r| &before[turned(r)]).collect()
        };
        gpu.scatter_list(&mut wanted, &inputs, root)?;
        equal(gpu, "scatter, listed", &all[..unit], &wanted)?;
        gpu.free(a)?;
        gpu.free(b)?;
    }
    Ok(())
}

pub(crate) fn values_of(buffer: &CudaBuffer<f32>) -> Result<Vec<f32>, Error> {
    let mut values = vec![0.0; buffer.len()];
    buffer.copy_to(&mut values)?;
    Ok(values)
}
