//! Ranks give the memory of their GPUs back and take it again: the driver has more of it meanwhile, and results, graphs
//! and messages are right afterwards.

use roundelay::cuda::CudaBuffer;
use roundelay::{Communicator, Error, ErrorKind, RedOp, SuspendDepth};

use crate::cuda::scenes::{equal, filled};
use crate::support::scene::say;

/// Elements of a call: more than a packet has, several passes of staging memory.
const COUNT: usize = 3 << 20;

/// Returns the free bytes of this rank's GPU.
fn free() -> usize {
    cudarc::driver::result::mem_get_info().expect("a context is current").0
}

/// Returns the bytes of this process that lie in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number") << 10
}

/// Sums in place and out of place, and passes a vector on; compares with what the host sums.
fn calls(
    gpu: &mut Communicator,
    (a, b): (&CudaBuffer<f32>, &mut CudaBuffer<f32>),
    round: u64,
) -> Result<(), Error> {
    let (own, stream) = (filled(gpu, a, round)?, gpu.stream()?);
    let mut wanted = own.clone();
    gpu.all_reduce(&mut wanted, RedOp::Sum)?;
    let mut seen = vec![-1.0; COUNT];
    b.fill(0xff)?;
    gpu.all_reduce_into(b, a, RedOp::Sum)?;
    gpu.synchronize(&stream)?;
    b.copy_to(&mut seen)?;
    equal(gpu, "a sum", &seen, &wanted)?;
    // Short ones go as packets.
    let (n, rank) = (gpu.size(), gpu.rank());
    for count in [100, COUNT] {
        let (sent, mut received) = (a.slice(0..count)?, b.slice(0..count)?);
        b.fill(0xff)?;
        gpu.barrier()?;
        let mut batch = gpu.batch();
        batch.send(&sent, (rank + 1) % n).recv(&mut received, (rank + n - 1) % n);
        batch.run(gpu)?;
        gpu.synchronize(&stream)?;
        let mut all = vec![0.0f32; n as usize * count];
        gpu.all_gather(&mut all, &own[..count])?;
        let from = ((rank + n - 1) % n) as usize;
        b.copy_to(&mut seen)?;
        equal(gpu, "a message", &seen[..count], &all[from * count..(from + 1) * count])?;
    }
    Ok(())
}

pub(crate) fn suspended(gpu: &mut Communicator) -> Result<(), Error> {
    let (a, mut b) = (gpu.alloc_device::<f32>(COUNT)?, gpu.alloc_device::<f32>(COUNT)?);
    let stream = gpu.stream()?;
    calls(gpu, (&a, &mut b), 1)?;
    let graph = gpu.capture(&stream, |gpu| gpu.all_reduce_into(&mut b, &a, RedOp::Sum))?;
    // Between hosts the slots through which calls go lie in pinned memory.
    let slots = if gpu.topology()?.0.hosts() > 1 { 64 << 20 } else { 0 };
    for round in 2..6 {
        calls(gpu, (&a, &mut b), round)?;
        gpu.barrier()?;
        let (before, had, held) = (free(), gpu.memory_stats()?, resident());
        assert!(had.device_bytes > 64 << 20 && !had.suspended, "{had:?}");
        assert!(had.device_buffer_bytes >= 8 * COUNT as u64, "{had:?}");
        gpu.barrier()?;
        gpu.suspend(SuspendDepth::Memory)?;
        let (meanwhile, has) = (free(), gpu.memory_stats()?);
        assert_eq!((has.device_bytes, has.device_buffer_bytes), (0, had.device_buffer_bytes));
        assert!(has.suspended);
        assert_eq!(had.device_pinned_bytes - has.device_pinned_bytes, slots, "{had:?}, {has:?}");
        let fell = held.saturating_sub(resident());
        assert!(fell >= slots / 8 * 7, "{held} bytes were resident, then {fell} less");
        // Ranks may share a GPU: each gives its own back.
        let fell = meanwhile.saturating_sub(before) as u64;
        assert!(fell >= had.device_bytes, "{before} bytes were free, then {meanwhile}: {had:?}");
        let refused = gpu.all_reduce_into(&mut b, &a, RedOp::Sum).expect_err("it is suspended");
        assert_eq!(refused.kind(), ErrorKind::Usage, "{refused}");
        // Those that look do not resume it, and what stays is readable.
        gpu.look()?;
        gpu.finish()?;
        gpu.synchronize(&stream)?;
        a.copy_to(&mut vec![0.0; COUNT])?;
        assert!(gpu.suspend(SuspendDepth::Memory).is_err_and(|e| e.kind() == ErrorKind::Usage));
        assert!(gpu.memory_stats()?.suspended);
        gpu.resume()?;
        let again = gpu.memory_stats()?;
        assert_eq!(again.device_bytes, had.device_bytes);
        assert_eq!(again.device_pinned_bytes, had.device_pinned_bytes);
        say(&format!("{} MiB went and came", fell >> 20));
        let mut wanted = filled(gpu, &a, 10 * round)?;
        gpu.all_reduce(&mut wanted, RedOp::Sum)?;
        b.fill(0xff)?;
        gpu.barrier()?;
        graph.launch(&stream)?;
        gpu.synchronize(&stream)?;
        let mut seen = vec![-1.0; COUNT];
        b.copy_to(&mut seen)?;
        equal(gpu, "a replay", &seen, &wanted)?;
    }
    gpu.set_hints("suspended=resume".parse().expect("hints"))?;
    gpu.suspend(SuspendDepth::Connections)?;
    calls(gpu, (&a, &mut b), 7)?;
    assert!(!gpu.memory_stats()?.suspended);
    unreceived(gpu, (&a, &mut b))
}

/// A message that was not received keeps the ranks from suspending, and is received afterwards.
fn unreceived(
    gpu: &mut Communicator,
    (a, b): (&CudaBuffer<f32>, &mut CudaBuffer<f32>),
) -> Result<(), Error> {
    let (rank, stream) = (gpu.rank(), gpu.stream()?);
    let own = filled(gpu, a, 8)?;
    if rank == 0 {
        gpu.send(&a.slice(0..10)?, 1)?;
        gpu.synchronize(&stream)?;
    }
    gpu.barrier()?;
    match gpu.suspend(SuspendDepth::Memory) {
        Err(refused) => assert_eq!(refused.kind(), ErrorKind::Usage, "{refused}"),
        // Between hosts it lies in memory of the receiver's host, which stays.
        Ok(()) => {
            assert!(gpu.topology()?.0.hosts() > 1, "a message is under way");
            gpu.resume()?;
        }
    }
    let mut sent = own;
    gpu.broadcast(&mut sent, 0)?;
    if rank == 1 {
        b.fill(0xff)?;
        gpu.recv(&mut b.slice(0..10)?, 0)?;
        gpu.synchronize(&stream)?;
        let mut seen = vec![0.0; COUNT];
        b.copy_to(&mut seen)?;
        assert_eq!(seen[..10], sent[..10]);
    }
    gpu.suspend(SuspendDepth::Memory)?;
    gpu.resume()
}
