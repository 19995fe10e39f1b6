//! Puts to windows of device memory, gets from them, and signals; compares what is there with a model.

use std::time::Duration;

use half::{bf16, f16};
use roundelay::cuda::{
    Cuda, CudaBuffer, CudaSlice, DevicePtr, DeviceWindow, KernelArg, KernelGrid,
};
use roundelay::memory::MemoryMut;
use roundelay::{Communicator, Element, Error, RedOp};
use roundelay_dsl::diag::codes;
use roundelay_tests::SeededRandom;
use rustix::process::{Signal, getpid, kill_process};

use crate::support::scene::say;

/// Elements of a part for each rank that puts there.
pub(crate) const STRIPE: usize = 3000;
const ROUNDS: u64 = 40;
/// Atomic operations of a rank.
const CHANGES: usize = 200;

pub(crate) fn windows(gpu: &mut Communicator) -> Result<(), Error> {
    let n = gpu.size() as usize;
    let buffer = gpu.alloc_device::<u32>(n * STRIPE)?;
    let window = gpu.device_window(buffer)?;
    model(gpu, &window)?;
    let buffer = window.free(gpu)?;
    gpu.free(buffer)?;
    words(gpu)?;
    accumulates(gpu)?;
    foreign(gpu)?;
    refused(gpu)?;
    let rounds = std::env::var("TEST_WINDOW_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    signals(gpu, rounds.unwrap_or(20_000))
}

/// A range of elements of a stripe, and their values.
fn drawn(from: usize, to: usize, round: u64) -> (usize, Vec<u32>) {
    let mut dice = SeededRandom(round * 64 + (from * 8 + to) as u64 + 1);
    let first = dice.below(STRIPE);
    let len = [dice.below(4), dice.below(STRIPE)][dice.below(2)].min(STRIPE - first);
    (first, (0..len).map(|i| (round as usize * 7919 + from * 131 + to * 17 + i) as u32).collect())
}

/// Every rank puts ranges into its stripe of every part, and signals; who has waited finds them, and gets them.
pub(crate) fn model<M>(gpu: &mut Communicator, window: &DeviceWindow<M>) -> Result<(), Error>
where
    M: MemoryMut<Element = u32, Engine = Cuda>,
{
    let (n, rank) = (gpu.size() as usize, gpu.rank() as usize);
    let stream = gpu.stream()?;
    let data = gpu.alloc_device::<u32>(n * STRIPE)?;
    let mut parts = vec![vec![0; n * STRIPE]; n];
    let mut fill = data.slice(0..data.len())?;
    window.get(gpu, &mut fill, rank as u32, 0)?;
    gpu.synchronize(&stream)?;
    data.copy_to(&mut parts[rank])?;
    let zeros = parts[rank].clone();
    parts.iter_mut().for_each(|part| part.clone_from(&zeros));
    gpu.barrier()?;
    for round in 0..ROUNDS {
        let mut own = vec![0; n * STRIPE];
        for to in 0..n {
            let (first, values) = drawn(rank, to, round);
            own[to * STRIPE + first..][..values.len()].copy_from_slice(&values);
        }
        data.copy_from(&own)?;
        for to in 0..n {
            let (first, values) = drawn(rank, to, round);
            let at = to * STRIPE + first;
            let from = data.slice(at..at + values.len())?;
            window.put(gpu, &from, to as u32, rank * STRIPE + first)?;
            window.signal(gpu, to as u32)?;
        }
        for (to, part) in parts.iter_mut().enumerate() {
            for from in 0..n {
                let (first, values) = drawn(from, to, round);
                part[from * STRIPE + first..][..values.len()].copy_from_slice(&values);
            }
        }
        for from in 0..n {
            window.wait_signal(gpu, from as u32)?;
        }
        // What follows the waits sees what was put.
        let mut seen = data.slice(0..n * STRIPE)?;
        window.get(gpu, &mut seen, rank as u32, 0)?;
        gpu.synchronize(&stream)?;
        let mut content = vec![0; n * STRIPE];
        data.copy_to(&mut content)?;
        same(gpu, "its own part", round, &content, &parts[rank])?;
        gpu.barrier()?;
        let peer = (rank + 1 + round as usize) % n;
        let mut seen = data.slice(5..n * STRIPE)?;
        window.get(gpu, &mut seen, peer as u32, 5)?;
        gpu.synchronize(&stream)?;
        data.copy_to(&mut content)?;
        same(gpu, "a peer's part", round, &content[5..], &parts[peer][5..])?;
        gpu.barrier()?;
    }
    gpu.free(data)
}

fn same(
    gpu: &Communicator,
    what: &str,
    round: u64,
    seen: &[u32],
    wanted: &[u32],
) -> Result<(), Error> {
    match (0..wanted.len()).find(|&i| seen[i] != wanted[i]) {
        None => Ok(()),
        Some(i) => Err(Error::Usage(format!(
            "rank {}: {what}, round {round}: element {i} is {}, not {}",
            gpu.rank(),
            seen[i],
            wanted[i]
        ))),
    }
}

/// Atomic operations of all ranks on a word of rank 0: each addition is seen once, and one swap of each value succeeds.
pub(crate) fn words(gpu: &mut Communicator) -> Result<(), Error> {
    let (n, rank) = (gpu.size() as usize, gpu.rank() as usize);
    let (stream, buffer) = (gpu.stream()?, gpu.alloc_device::<u64>(4)?);
    let results = gpu.alloc_device::<u64>(2 * CHANGES)?;
    let window = gpu.device_window(buffer)?;
    for k in 0..CHANGES {
        let mut result = results.slice(k..k + 1)?;
        window.fetch_add(gpu, 1, 0, 1, &mut result)?;
        let mut result = results.slice(CHANGES + k..CHANGES + k + 1)?;
        window.compare_swap(gpu, k as u64, k as u64 + 1, 0, 3, &mut result)?;
    }
    gpu.synchronize(&stream)?;
    let mut seen = vec![0; 2 * CHANGES];
    results.copy_to(&mut seen)?;
    let mut all = vec![0; n * 2 * CHANGES];
    gpu.all_gather(&mut all, &seen)?;
    let mut added: Vec<u64> = all.chunks(2 * CHANGES).flat_map(|x| x[..CHANGES].to_vec()).collect();
    added.sort_unstable();
    let wanted: Vec<u64> = (0..(n * CHANGES) as u64).collect();
    assert!(added == wanted, "rank {rank}: additions were lost");
    // A swap whose value was there has succeeded: each does on one rank at the most, and the word is their number.
    let swapped = |k: usize| all.chunks(2 * CHANGES).filter(|x| x[CHANGES + k] == k as u64).count();
    let swaps: Vec<usize> = (0..CHANGES).map(swapped).collect();
    let mut word = [0; 4];
    window.memory().copy_to(&mut word)?;
    if rank == 0 {
        assert!(swaps.iter().all(|&swaps| swaps <= 1), "{swaps:?}");
        assert_eq!((word[1], word[3]), ((n * CHANGES) as u64, swaps.iter().sum::<usize>() as u64));
    }
    window.free(gpu).map(drop)
}

/// All ranks accumulate to places of rank 0 that overlap, of types of each size: nothing is lost.
pub(crate) fn accumulates(gpu: &mut Communicator) -> Result<(), Error> {
    accumulated(gpu, RedOp::Sum, |k| k as u8, u8::wrapping_add)?;
    accumulated(gpu, RedOp::Xor, |k| k as i8, |a, b| a ^ b)?;
    accumulated(gpu, RedOp::Max, |k| f16::from_f32(k as f32), f16::max)?;
    accumulated(gpu, RedOp::Sum, |k| bf16::from_f32((k % 2) as f32), |a, b| a + b)?;
    accumulated(gpu, RedOp::Sum, |k| k as f32, |a, b| a + b)?;
    accumulated(gpu, RedOp::Min, |k| -(k as i32), i32::min)?;
    accumulated(gpu, RedOp::Prod, |k| 2 * k as u64 + 1, u64::wrapping_mul)?;
    accumulated(gpu, RedOp::Sum, |k| k as f64, |a, b| a + b)
}

/// One of them. Values are such that every order of combinations gives the same.
fn accumulated<T>(
    gpu: &mut Communicator,
    op: RedOp,
    value: impl Fn(usize) -> T,
    combine: impl Fn(T, T) -> T,
) -> Result<(), Error>
where
    T: Element + PartialEq + std::fmt::Debug,
{
    let (n, rank, turns) = (gpu.size() as usize, gpu.rank() as usize, 5);
    let (stream, room) = (gpu.stream()?, STRIPE + n);
    let buffer = gpu.alloc_device::<T>(room)?;
    let window = gpu.device_window(buffer)?;
    let begin: Vec<T> = (0..room).map(|at| value(at % 5)).collect();
    window.memory().copy_from(&begin)?;
    gpu.barrier()?;
    let data = gpu.alloc_device::<T>(STRIPE)?;
    let given = |rank: usize| (0..STRIPE).map(move |at| (at * 7 + rank * 3) % 11);
    data.copy_from(&given(rank).map(&value).collect::<Vec<T>>())?;
    for _ in 0..turns {
        // An odd place, which differs between ranks.
        window.accumulate(gpu, &data, op, 0, 1 + rank)?;
    }
    gpu.synchronize(&stream)?;
    gpu.barrier()?;
    let mut content = begin.clone();
    window.memory().copy_to(&mut content)?;
    if rank == 0 {
        let mut wanted = begin;
        for from in (0..turns * n).map(|k| k % n) {
            for (at, k) in given(from).enumerate() {
                let place = &mut wanted[1 + from + at];
                *place = combine(*place, value(k));
            }
        }
        assert_eq!(content[n + 1..n + 9], wanted[n + 1..n + 9], "{op:?} of {}", T::DTYPE);
        assert!(content == wanted, "{op:?} of {}", T::DTYPE);
    }
    let other = gpu.alloc_device::<T>(room)?;
    let refused =
        |done: Result<(), Error>| matches!(done, Err(Error::Usage(_) | Error::Window { .. }));
    assert!(refused(window.accumulate(gpu, &data, RedOp::Avg, 0, 0)), "an average of two ranks");
    assert!(refused(window.accumulate(gpu, &other, op, 0, 1)), "one element beyond its end");
    gpu.barrier()?;
    window.free(gpu).map(drop)
}

/// The same in memory of another allocator.
pub(crate) fn foreign(gpu: &mut Communicator) -> Result<(), Error> {
    let count = gpu.size() as usize * STRIPE;
    // SAFETY: the context is current; the memory is kept until the process ends.
    let base = unsafe { cudarc::driver::result::malloc_sync(4 * count + 512) }.expect("room");
    // SAFETY: it has the bytes that calls here need.
    let at = unsafe { DevicePtr::new(base + 512 - 256 * u64::from(gpu.rank() % 2)) };
    gpu.fill(at, 0, 4 * count)?;
    let memory = CudaSlice::<u32>::new(at, count);
    let window = gpu.device_window(memory)?;
    model(gpu, &window)?;
    window.free(gpu).map(drop)
}

/// Tries what does not fit into a peer's part of 1000 elements, with data of 500, and an odd word.
pub(crate) fn beyond_its_end(
    gpu: &mut Communicator,
    window: &DeviceWindow<CudaBuffer<f32>>,
    data: &mut CudaBuffer<f32>,
    peer: u32,
) -> Result<(), Error> {
    let code = |result: Result<(), Error>| result.map_err(|error| error.code());
    assert_eq!(code(window.put(gpu, data, peer, 501)), Err(codes::WINDOW));
    assert_eq!(code(window.put(gpu, data, peer, usize::MAX)), Err(codes::WINDOW));
    assert_eq!(code(window.get(gpu, data, peer, 501)), Err(codes::WINDOW));
    let mut word = gpu.alloc_device::<u64>(1)?;
    assert_eq!(code(window.fetch_add(gpu, 1, peer, 999, &mut word)), Err(codes::WINDOW));
    assert!(matches!(window.fetch_add(gpu, 1, peer, 1, &mut word), Err(Error::Usage(_))));
    Ok(())
}

/// Refused operations write nothing, and all goes on.
fn refused(gpu: &mut Communicator) -> Result<(), Error> {
    let (stream, last) = (gpu.stream()?, gpu.size() - 1);
    let buffer = gpu.alloc_device::<f32>(1000)?;
    let mut other = gpu.alloc_device::<f32>(500)?;
    other.fill(0x11)?;
    let window = gpu.device_window(buffer)?;
    beyond_its_end(gpu, &window, &mut other, last)?;
    assert!(matches!(window.put(gpu, &other, last + 1, 0), Err(Error::Usage(_))));
    assert!(matches!(window.signal(gpu, 99), Err(Error::Usage(_))));
    // Words of 8 bytes are at multiples of 8, whatever the elements are, and their results have 8 bytes.
    let mut half = other.slice(0..1)?;
    assert!(matches!(window.fetch_add(gpu, 1, last, 2, &mut half), Err(Error::Usage(_))));
    assert!(window.map_remote(gpu, last).is_ok_and(|at| !at.is_null()));
    gpu.synchronize(&stream)?;
    gpu.barrier()?;
    let mut content = [1.0; 1000];
    window.memory().copy_to(&mut content)?;
    assert!(content.iter().all(|&x| x == 0.0), "something was written");
    let few = gpu.alloc_device::<f32>(10)?;
    let lens = if gpu.rank() == 0 { 0..10 } else { 0..5 };
    assert!(matches!(gpu.device_window(few.slice(lens)?), Err(Error::Usage(_))));
    window.free(gpu).map(drop)
}

pub(crate) const KERNELS: &str = r#"
extern "C" __global__ void next(unsigned long long *count, unsigned long long *data) { *data = ++*count; }
extern "C" __global__ void check(const unsigned long long *seen, const unsigned long long *count,
                                 unsigned long long *wrong) {
    *wrong += *(const volatile unsigned long long *)seen != *count;
}
"#;

/// Rounds of a put and a signal around a ring, replayed by graphs: no rank may see an older value than was signalled.
/// Two words take turns, so that a rank which is a round ahead overwrites nothing that is yet to be read.
fn signals(gpu: &mut Communicator, rounds: usize) -> Result<(), Error> {
    const OF_A_GRAPH: usize = 50;
    let n = gpu.size();
    let (next, before) = ((gpu.rank() + 1) % n, (gpu.rank() + n - 1) % n);
    let stream = gpu.stream()?;
    let kernels = [gpu.kernel(KERNELS, "next")?, gpu.kernel(KERNELS, "check")?];
    let state: CudaBuffer<u64> = gpu.alloc_device(3)?;
    let buffer = gpu.alloc_device::<u64>(2)?;
    let window = gpu.device_window(buffer)?;
    let grid = KernelGrid { blocks: 1, threads: 1, shared_bytes: 0 };
    let (count, data, wrong) = (state.ptr(), state.at(1)?, state.at(2)?);
    let pointer = KernelArg::Pointer;
    let graph = gpu.capture(&stream, |gpu| {
        for round in 0..OF_A_GRAPH {
            let at = round % 2;
            // SAFETY: the kernels take these pointers, to memory that lives as long as the graph.
            unsafe { gpu.launch(&kernels[0], grid, &[pointer(count), pointer(data)], &stream) }?;
            window.put(gpu, &state.slice(1..2)?, next, at)?;
            window.signal(gpu, next)?;
            window.wait_signal(gpu, before)?;
            let seen = window.memory().at(at)?;
            let args = [pointer(seen), pointer(count), pointer(wrong)];
            // SAFETY: as above.
            unsafe { gpu.launch(&kernels[1], grid, &args, &stream) }?;
            // No rank is two rounds ahead of one that reads what it put.
            window.signal(gpu, before)?;
            window.wait_signal(gpu, next)?;
        }
        Ok::<_, Error>(())
    })?;
    for launch in 0..rounds / OF_A_GRAPH {
        graph.launch(&stream)?;
        if launch % 100 == 99 {
            gpu.synchronize(&stream)?;
        }
    }
    gpu.synchronize(&stream)?;
    let mut seen = [0; 3];
    state.copy_to(&mut seen)?;
    let executed = (rounds / OF_A_GRAPH * OF_A_GRAPH) as u64;
    assert_eq!((seen[0], seen[2]), (executed, 0), "rounds, and stale values among them");
    say(&format!("{executed} rounds of put and signal"));
    drop(graph);
    window.free(gpu).map(drop)
}

/// Waits for a signal that does not come, as rank 1 does not signal, or is no more.
pub(crate) fn ill(scene: &str, mut gpu: Communicator) -> Result<(), Error> {
    let stream = gpu.stream()?;
    let buffer = gpu.alloc_device::<u64>(10)?;
    let window = gpu.device_window(buffer)?;
    gpu.set_timeout(Duration::from_secs(3));
    gpu.barrier()?;
    if gpu.rank() == 1 {
        if scene == "window killed" {
            kill_process(getpid(), Signal::KILL).expect("the end");
        }
        gpu.set_timeout(Duration::from_secs(600));
        let error = (0..).find_map(|_| gpu.barrier().err());
        say(&error.map(|e| e.to_string()).unwrap_or_default());
        return Ok(());
    }
    window.wait_signal(&mut gpu, 1)?;
    let error = gpu.synchronize(&stream).expect_err("rank 1 is ill");
    say(&format!("{} {error}", error.code()));
    let one = window.memory().slice(0..1)?;
    assert!(window.put(&mut gpu, &one, 0, 0).is_err(), "it cannot be used any more");
    drop(gpu);
    crate::cuda::scenes::usable()
}
