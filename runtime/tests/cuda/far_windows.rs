//! Windows of device memory between hosts: of ranks that believe to be on several.

use std::time::{Duration, Instant};

use roundelay::cuda::{CudaBuffer, CudaSlice, DevicePtr, KernelArg, KernelGrid};
use roundelay::{Communicator, Error, RedOp};
use roundelay_dsl::diag::codes;
use roundelay_tests::SeededRandom;
use rustix::process::{Signal, getpid, kill_process};

use crate::cuda::windows::{KERNELS, beyond_its_end, foreign, model, words};
use crate::support::scene::say;

/// Bytes of the longest put.
const MOST: usize = 64 << 20;

/// The rank of another host with which a rank has to do.
fn other(gpu: &Communicator) -> u32 {
    (gpu.rank() + gpu.size() / 2) % gpu.size()
}

pub(crate) fn windows(gpu: &mut Communicator) -> Result<(), Error> {
    let buffer = gpu.alloc_device::<u32>(gpu.size() as usize * crate::cuda::windows::STRIPE)?;
    let window = gpu.device_window(buffer)?;
    model(gpu, &window)?;
    let buffer = window.free(gpu)?;
    gpu.free(buffer)?;
    words(gpu)?;
    foreign(gpu)?;
    refused(gpu)?;
    sizes(gpu)?;
    among_calls(gpu)?;
    let rounds = std::env::var("TEST_WINDOW_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    signals(gpu, rounds.unwrap_or(10_000))
}

fn random(seed: u64, len: usize) -> Vec<u64> {
    let mut word = SeededRandom(seed).below(1 << 30) as u64 | 1;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word
    };
    (0..len).map(|_| next()).collect()
}

fn equal(gpu: &Communicator, what: &str, seen: &[u64], wanted: &[u64]) -> Result<(), Error> {
    match (0..wanted.len()).find(|&at| seen[at] != wanted[at]) {
        None => Ok(()),
        Some(at) => Err(Error::Usage(format!(
            "rank {}: {what} of {} words: word {at} is {:#x}, not {:#x}",
            gpu.rank(),
            wanted.len(),
            seen[at],
            wanted[at]
        ))),
    }
}

fn write(gpu: &mut Communicator, to: DevicePtr, words: &[u64]) -> Result<(), Error> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    gpu.write(to, &bytes)
}

fn read(gpu: &mut Communicator, from: DevicePtr, len: usize) -> Result<Vec<u64>, Error> {
    let mut bytes = vec![0; 8 * len];
    gpu.read(from, &mut bytes)?;
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
    Ok(bytes.chunks_exact(8).map(word).collect())
}

/// Fresh random data of all sizes is put, flushed, read by its owner, and got again; both ways at once.
fn sizes(gpu: &mut Communicator) -> Result<(), Error> {
    let (peer, stream) = (other(gpu), gpu.stream()?);
    let buffer = gpu.alloc_device::<u64>(MOST / 8)?;
    let window = gpu.device_window(buffer)?;
    let data = gpu.alloc_device::<u64>(MOST / 8)?;
    let mut bytes = 8;
    while bytes <= MOST {
        let len = bytes / 8;
        for (round, at) in [0, (MOST / 8 - len) / 3].into_iter().enumerate() {
            let seed = |rank: u32| (bytes as u64) << 20 | (round as u64) << 10 | u64::from(rank);
            let (mine, theirs) = (random(seed(gpu.rank()), len), random(seed(peer), len));
            write(gpu, data.ptr(), &mine)?;
            gpu.barrier()?;
            let since = Instant::now();
            window.put(gpu, &data.slice(0..len)?, peer, at)?;
            window.flush(gpu, peer)?;
            let put = since.elapsed();
            gpu.barrier()?;
            let seen = read(gpu, window.memory().at(at)?, len)?;
            equal(gpu, "what was put", &seen, &theirs)?;
            write(gpu, data.ptr(), &vec![0; len])?;
            let since = Instant::now();
            window.get(gpu, &mut data.slice(0..len)?, peer, at)?;
            gpu.synchronize(&stream)?;
            let got = since.elapsed();
            let seen = read(gpu, data.ptr(), len)?;
            equal(gpu, "what was got", &seen, &mine)?;
            if gpu.rank() == 0 && round == 1 {
                let [put, got] = [put, got].map(|time| time.as_secs_f64() * 1e6);
                say(&format!("{bytes} bytes: put and flush {put:.1} us, get {got:.1} us"));
            }
        }
        bytes *= if bytes < 1 << 20 { 8 } else { 4 };
    }
    gpu.barrier()?;
    window.free(gpu).map(drop)
}

/// Puts, gets and signals in several streams between collective calls and messages; data that follows in the stream
/// overwrites what was put.
fn among_calls(gpu: &mut Communicator) -> Result<(), Error> {
    const LEN: usize = 300_000;
    let (peer, n) = (other(gpu), gpu.size());
    let streams = [gpu.stream()?, gpu.new_stream()?];
    let windows = [gpu.alloc_device::<f32>(2 * LEN)?, gpu.alloc_device::<f32>(LEN)?];
    let [first, second] = windows;
    let (first, second) = (gpu.device_window(first)?, gpu.device_window(second)?);
    let mut data = gpu.alloc_device::<f32>(LEN)?;
    let mut copy = gpu.alloc_device::<f32>(LEN)?;
    for round in 0..40 {
        let value = |rank: u32| (round * 100 + rank) as f32;
        data.copy_from(&vec![value(gpu.rank()); LEN])?;
        gpu.barrier()?;
        let at = round as usize % 2 * LEN;
        let mut on = gpu.on(&streams[round as usize % 2]);
        first.put(&mut on, &data, peer, at)?;
        // The sum follows in the stream, in place.
        on.all_reduce(&mut data, RedOp::Sum)?;
        drop(on);
        let mut on = gpu.on(&streams[round as usize / 2 % 2]);
        second.put(&mut on, &data, peer, 0)?;
        first.signal(&mut on, peer)?;
        first.wait_signal(&mut on, peer)?;
        let own = on.rank();
        first.get(&mut on, &mut copy, own, at)?;
        second.flush(&mut on, peer)?;
        drop(on);
        gpu.finish()?;
        gpu.barrier()?;
        let (mut seen, mut sums) = (vec![0.0; LEN], vec![0.0; LEN]);
        copy.copy_to(&mut seen)?;
        second.memory().copy_to(&mut sums)?;
        let sum: f32 = (0..n).map(value).sum();
        if seen.iter().any(|&x| x != value(peer)) || sums.iter().any(|&x| x != sum) {
            let text = format!("rank {}, round {round}: something else was put", gpu.rank());
            return Err(Error::Usage(text));
        }
        gpu.barrier()?;
    }
    first.free(gpu)?;
    second.free(gpu).map(drop)
}

/// Refused operations do nothing, and all goes on.
fn refused(gpu: &mut Communicator) -> Result<(), Error> {
    let (stream, peer) = (gpu.stream()?, other(gpu));
    let buffer = gpu.alloc_device::<f32>(1000)?;
    let mut data = gpu.alloc_device::<f32>(500)?;
    data.fill(0x11)?;
    let window = gpu.device_window(buffer)?;
    beyond_its_end(gpu, &window, &mut data, peer)?;
    let mut word = gpu.alloc_device::<u64>(1)?;
    assert!(matches!(window.flush(gpu, 99), Err(Error::Usage(_))));
    let mapped = window.map_remote(gpu, peer).map(drop);
    assert!(mapped.as_ref().is_err_and(|error| error.to_string().contains("served by its own")));
    assert_eq!(mapped.map_err(|error| error.code()), Err(codes::WINDOW));
    for operation in 0..4 {
        let captured = gpu.capture(&stream, |gpu| match operation {
            0 => window.put(gpu, &data, peer, 0),
            1 => window.signal(gpu, peer),
            2 => window.wait_signal(gpu, peer),
            _ => window.fetch_add(gpu, 1, peer, 0, &mut word),
        });
        let error = captured.map(drop).expect_err("it goes to another host");
        assert!(error.to_string().contains("in a graph"), "{error}");
        assert_eq!(error.code(), codes::UNSUPPORTED);
    }
    gpu.synchronize(&stream)?;
    gpu.barrier()?;
    let mut content = [1.0; 1000];
    window.memory().copy_to(&mut content)?;
    assert!(content.iter().all(|&x| x == 0.0), "something was written");
    let odd = gpu.alloc_device::<f32>(12)?;
    let odd: CudaSlice<f32> = odd.slice(1..11)?;
    assert!(matches!(gpu.device_window(odd), Err(Error::Usage(_))));
    window.free(gpu).map(drop)
}

/// Rounds of a put and a signal between two hosts: no rank may see an older value than was signalled. Two words take
/// turns, so that a rank which is a round ahead overwrites nothing that is yet to be read.
fn signals(gpu: &mut Communicator, rounds: usize) -> Result<(), Error> {
    let (peer, stream) = (other(gpu), gpu.stream()?);
    let kernels = [gpu.kernel(KERNELS, "next")?, gpu.kernel(KERNELS, "check")?];
    let state: CudaBuffer<u64> = gpu.alloc_device(3)?;
    let buffer = gpu.alloc_device::<u64>(2)?;
    let window = gpu.device_window(buffer)?;
    let grid = KernelGrid { blocks: 1, threads: 1, shared_bytes: 0 };
    let (count, data, wrong) = (state.ptr(), state.at(1)?, state.at(2)?);
    let pointer = KernelArg::Pointer;
    gpu.barrier()?;
    let since = Instant::now();
    for round in 0..rounds {
        let at = round % 2;
        // SAFETY: the kernels take these pointers, to memory that lives until the stream has come past.
        unsafe { gpu.launch(&kernels[0], grid, &[pointer(count), pointer(data)], &stream) }?;
        window.put(gpu, &state.slice(1..2)?, peer, at)?;
        window.signal(gpu, peer)?;
        window.wait_signal(gpu, peer)?;
        let args = [pointer(window.memory().at(at)?), pointer(count), pointer(wrong)];
        // SAFETY: as above.
        unsafe { gpu.launch(&kernels[1], grid, &args, &stream) }?;
        window.signal(gpu, peer)?;
        window.wait_signal(gpu, peer)?;
        if round % 500 == 499 {
            gpu.synchronize(&stream)?;
        }
    }
    gpu.synchronize(&stream)?;
    let each = since.elapsed().as_secs_f64() * 1e6 / rounds as f64;
    let mut seen = [0; 3];
    state.copy_to(&mut seen)?;
    assert_eq!((seen[0], seen[2]), (rounds as u64, 0), "rounds, and stale values among them");
    say(&format!("{rounds} rounds of put and signal between hosts, {each:.1} us each"));
    window.free(gpu).map(drop)
}

/// Has to do with a rank that does not signal, is killed, or leaves.
pub(crate) fn ill(scene: &str, mut gpu: Communicator) -> Result<(), Error> {
    let stream = gpu.stream()?;
    let buffer = gpu.alloc_device::<u64>(1 << 20)?;
    let window = gpu.device_window(buffer)?;
    let mut word = gpu.alloc_device::<u64>(1)?;
    let last = gpu.size() - 1;
    gpu.set_timeout(Duration::from_secs(3));
    gpu.barrier()?;
    if gpu.rank() == last {
        match scene {
            "far window killed" => kill_process(getpid(), Signal::KILL).expect("the end"),
            // It leaves as a program does that has nothing more to do.
            "far window dropped" => return Ok(()),
            _ => {}
        }
    }
    if gpu.rank() > 0 {
        gpu.set_timeout(Duration::from_secs(600));
        let error = (0..).find_map(|_| gpu.barrier().err());
        say(&error.map(|e| e.to_string()).unwrap_or_default());
        return Ok(());
    }
    let error = match scene {
        "far window late" => {
            window.wait_signal(&mut gpu, last)?;
            gpu.synchronize(&stream).expect_err("no rank signals")
        }
        _ => {
            let data = window.memory().slice(0..1 << 20)?;
            let failed = (0..).find_map(|_| {
                let put = window.put(&mut gpu, &data, last, 0);
                let add = put.and_then(|()| window.fetch_add(&mut gpu, 1, last, 0, &mut word));
                add.and_then(|()| window.flush(&mut gpu, last)).err()
            });
            failed.expect("it ended with an error")
        }
    };
    say(&format!("{} {error}", error.code()));
    let one = window.memory().slice(0..1)?;
    assert!(window.put(&mut gpu, &one, last, 0).is_err(), "it cannot be used any more");
    drop(gpu);
    crate::cuda::scenes::usable()
}
