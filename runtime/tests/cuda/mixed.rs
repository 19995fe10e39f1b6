//! Runs calls of ranks of which some have a GPU, and others have none, and compares them with the host's.

use roundelay::cuda::{CudaOptions, CudaSlice, DevicePtr};
use roundelay::{Communicator, Error, RedOp};
use roundelay_tests::SeededRandom;

use crate::support::scene::say;

const ROUNDS: u64 = 12;

/// Returns memory of the GPU with this content.
fn upload(gpu: &mut Communicator, content: &[f32]) -> Result<CudaSlice<f32>, Error> {
    let bytes = size_of_val(content);
    // SAFETY: the context is current; the memory is kept until the process ends.
    let base = unsafe { cudarc::driver::result::malloc_sync(bytes.max(1)) }.expect("room");
    // SAFETY: it has the bytes that calls here need.
    let at = unsafe { DevicePtr::new(base) };
    let raw: Vec<u8> = content.iter().flat_map(|x| x.to_ne_bytes()).collect();
    gpu.write(at, &raw)?;
    Ok(CudaSlice::new(at, content.len()))
}

fn download(gpu: &mut Communicator, memory: CudaSlice<f32>) -> Result<Vec<f32>, Error> {
    let mut raw = vec![0; 4 * memory.len()];
    gpu.read(memory.ptr(), &mut raw)?;
    Ok(raw.chunks_exact(4).map(|x| f32::from_ne_bytes([x[0], x[1], x[2], x[3]])).collect())
}

/// Makes a call on this rank's memory, of GPU or host, then on all hosts, and compares the outputs.
macro_rules! alike {
    ($what:expr, $comms:expr, $has_gpu:expr, $input:expr, $len:expr, |$comm:ident, $out:ident, $in:ident| $call:expr) => {{
        let (host, gpu): (&mut Communicator, &mut Communicator) = $comms;
        let input: Vec<f32> = $input;
        let poison = vec![-7.0f32; $len];
        let seen = if $has_gpu {
            let $in = upload(gpu, &input)?;
            let mut $out = upload(gpu, &poison)?;
            let $comm = &mut *gpu;
            $call?;
            download(gpu, $out)?
        } else {
            let ($in, mut $out) = (input.clone(), poison.clone());
            let $comm = &mut *gpu;
            $call?;
            $out
        };
        let ($in, mut $out) = (input, poison);
        let $comm = &mut *host;
        $call?;
        if seen != $out {
            return Err(Error::Usage(format!("rank {}: {} differs", host.rank(), $what)));
        }
    }};
}

/// Every second rank has a GPU.
pub(crate) fn mixed(mut comm: Communicator) -> Result<(), Error> {
    let (n, rank) = (comm.size() as usize, comm.rank() as usize);
    let has_gpu = rank.is_multiple_of(2);
    let device = Some(0);
    let options = has_gpu.then(|| CudaOptions { device, ..CudaOptions::default() });
    let mut gpu = comm.cuda_mixed(options)?;
    assert_eq!(gpu.device().is_ok(), has_gpu);
    for round in 0..ROUNDS {
        let mut dice = SeededRandom(round);
        let (count, root) = ([1, 1000, 70_001][dice.below(3)], dice.below(n) as u32);
        let content = |len: usize| -> Vec<f32> {
            let mut dice = SeededRandom(round * 100 + rank as u64 + 1);
            (0..len).map(|_| dice.below(1 << 20) as f32 * 0.37).collect()
        };
        let comms = (&mut comm, &mut gpu);
        alike!("all_reduce", comms, has_gpu, content(count), count, |c, out, input| c
            .all_reduce_into(&mut out, &input, RedOp::Sum));
        let comms = (&mut comm, &mut gpu);
        alike!("broadcast", comms, has_gpu, content(0), count, |c, out, input| {
            let _ = &input;
            c.broadcast(&mut out, root)
        });
        let comms = (&mut comm, &mut gpu);
        alike!("all_gather", comms, has_gpu, content(count), n * count, |c, out, input| c
            .all_gather(&mut out, &input));
        let comms = (&mut comm, &mut gpu);
        alike!("reduce_scatter", comms, has_gpu, content(n * count), count, |c, out, input| c
            .reduce_scatter(&mut out, &input, RedOp::Sum));
        let comms = (&mut comm, &mut gpu);
        alike!("all_to_all", comms, has_gpu, content(n * count), n * count, |c, out, input| c
            .all_to_all(&mut out, &input));
        let (next, before) = ((rank + 1) % n, (rank + n - 1) % n);
        let comms = (&mut comm, &mut gpu);
        alike!("messages", comms, has_gpu, content(count), count, |c, out, input| {
            let mut batch = c.batch();
            batch.send(&input, next as u32).recv(&mut out, before as u32);
            batch.run(c).map(drop)
        });
    }
    let refused = gpu.alloc_device::<f32>(10).map(drop).map_err(|error| error.to_string());
    assert!(refused.is_err_and(|text| !has_gpu || text.contains("ranks without a GPU")));
    say(&format!("{ROUNDS} rounds"));
    Ok(())
}
