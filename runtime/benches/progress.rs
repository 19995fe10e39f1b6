//! The clients of the progress engine between two processes: tagged messages, windows that are served, tolerant calls,
//! and the time of the processor that they take while nothing is asked of them.
//!
//! Prints `LABEL OPERATION BYTES MICROSECONDS` for each size; `rate` is of 8-byte messages a second, with the receives
//! first or last, `idle` and `behind` are milliseconds of the processor in a second: with nothing under way, and while
//! a rank computes and its peer sends to it. `TRANSPORT` chooses the transport, `PARTS` what is measured.

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

mod timing;

use std::time::{Duration, Instant};

use roundelay::message::TaggedMessages;
use roundelay::{Communicator, Error, RedOp};
use rustix::time::{ClockId, clock_gettime};
use timing::{SIZES, median, run_pair};

/// The time that is spent on each size and operation.
const TIME: Duration = Duration::from_millis(150);
/// Messages that are under way at once.
const FLIGHT: u64 = 512;
/// The message that ends a measurement.
const LAST: u8 = 1;

fn main() -> Result<(), Error> {
    if Communicator::is_launched()? {
        return run();
    }
    run_pair(std::env::var("TRANSPORT").ok().as_deref())
}

fn run() -> Result<(), Error> {
    let mut comm = Communicator::from_env()?;
    let label = std::env::var("LABEL").unwrap_or_else(|_| "roundelay".into());
    let parts =
        std::env::var("PARTS").unwrap_or_else(|_| "messages rate windows tolerant idle".into());
    let rank = comm.rank();
    let row = |what: &str, bytes: usize, value: f64| {
        if rank == 0 {
            println!("{label} {what} {bytes} {value:.3}");
        }
    };
    let messages = comm.messages()?;
    for part in parts.split(' ') {
        comm.barrier()?;
        match part {
            "messages" => ping_pong(&messages, rank, row)?,
            "rate" => rates(&mut comm, &messages, row)?,
            "windows" => windows(&mut comm, row)?,
            "tolerant" => tolerant(&mut comm, &messages, row)?,
            "idle" => idle(&mut comm, &messages, row)?,
            other => return Err(Error::Usage(format!("there is no part {other}"))),
        }
    }
    comm.barrier()
}

/// Repeats `call` on rank 0 until its median is known; the other rank repeats `answer` as often.
fn by_rank_0(
    messages: &TaggedMessages,
    rank: u32,
    mut call: impl FnMut() -> Result<(), Error>,
    mut answer: impl FnMut() -> Result<(), Error>,
) -> Result<f64, Error> {
    let mut word = [0u8];
    if rank == 0 {
        let us = median(TIME, || {
            messages.send(&[0u8], 1, 9)?;
            call()
        })?;
        messages.send(&[LAST], 1, 9)?;
        return Ok(us);
    }
    loop {
        messages.recv(&mut word, 0, 9)?;
        if word == [LAST] {
            return Ok(0.0);
        }
        answer()?;
    }
}

/// Half the time of a message and its answer.
fn ping_pong(
    messages: &TaggedMessages,
    rank: u32,
    row: impl Fn(&str, usize, f64),
) -> Result<(), Error> {
    let mut word = [0u8];
    let mut data = vec![0u8; SIZES[SIZES.len() - 1]];
    for bytes in SIZES {
        let data = &mut data[..bytes];
        let us = if rank == 0 {
            let us = median(TIME, || {
                messages.send(&data[..], 1, 0)?;
                messages.recv(&mut data[..], 1, 1).map(drop)
            })?;
            data[0] = LAST;
            messages.send(&data[..], 1, 0)?;
            data[0] = 0;
            us / 2.0
        } else {
            loop {
                messages.recv(&mut data[..], 0, 0)?;
                if data[0] == LAST {
                    break 0.0;
                }
                messages.send(&data[..], 0, 1)?;
            }
        };
        row("message", bytes, us);
        // Eight of them after one another, until the last is answered.
        let times = 8;
        let us = if rank == 0 {
            let us = median(TIME, || {
                messages.send(&[0u8], 1, 9)?;
                (0..times).try_for_each(|_| messages.send(&data[..], 1, 2))?;
                messages.recv(&mut word, 1, 3).map(drop)
            })?;
            messages.send(&[LAST], 1, 9)?;
            us / f64::from(times)
        } else {
            loop {
                messages.recv(&mut word, 0, 9)?;
                if word == [LAST] {
                    break 0.0;
                }
                (0..times).try_for_each(|_| messages.recv(&mut data[..], 0, 2).map(drop))?;
                messages.send(&[0u8], 0, 3)?;
            }
        };
        row("stream", bytes, us);
    }
    Ok(())
}

/// Messages of 8 bytes a second, each with a tag of its own.
fn rates(
    comm: &mut Communicator,
    messages: &TaggedMessages,
    row: impl Fn(&str, usize, f64),
) -> Result<(), Error> {
    for (name, first) in [("rate", false), ("rate-posted", true)] {
        let rank = comm.rank();
        let mut times = Vec::new();
        for _ in 0..60 {
            comm.barrier()?;
            let began = Instant::now();
            let mut all = Vec::new();
            if rank == 0 {
                if first {
                    comm.barrier()?;
                }
                for tag in 0..FLIGHT {
                    all.push(messages.send_async(vec![0u8; 8], 1, tag)?);
                }
            } else {
                for tag in (0..FLIGHT).rev() {
                    all.push(messages.recv_async(vec![0u8; 8], 0, tag)?);
                }
                if first {
                    comm.barrier()?;
                }
            }
            for one in all {
                one.wait()?;
            }
            comm.barrier()?;
            times.push(FLIGHT as f64 / began.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        row(name, 8, times[times.len() / 2]);
    }
    Ok(())
}

/// Puts with their flushes, gets and atomic additions of a rank at one that waits in a barrier. The parts of windows are
/// served where no rank maps them: with `TRANSPORT=tcp`.
fn windows(comm: &mut Communicator, row: impl Fn(&str, usize, f64)) -> Result<(), Error> {
    let most = SIZES[SIZES.len() - 1];
    let window = comm.window(comm.alloc::<u64>(most / 8)?)?;
    comm.barrier()?;
    if comm.rank() == 0 {
        let mut data = vec![1u64; most / 8];
        for bytes in SIZES {
            let len = bytes / 8;
            let us =
                median(TIME, || window.put(&data[..len], 1, 0).and_then(|()| window.flush(1)))?;
            row("put", bytes, us);
            let us = median(TIME, || window.get(&mut data[..len], 1, 0))?;
            row("get", bytes, us);
        }
        let us = median(TIME, || window.fetch_add(1u64, 1, 0).map(drop))?;
        row("fetch", 8, us);
    }
    comm.barrier()?;
    window.free(comm).map(drop)
}

/// Tolerant all_reduce.
fn tolerant(
    comm: &mut Communicator,
    messages: &TaggedMessages,
    row: impl Fn(&str, usize, f64),
) -> Result<(), Error> {
    let rank = comm.rank();
    for bytes in SIZES.into_iter().filter(|&bytes| bytes <= 8 << 20) {
        let mut data = vec![0u64; bytes / 8];
        let comm = std::cell::RefCell::new(&mut *comm);
        let data = std::cell::RefCell::new(&mut data);
        let call = || {
            let (mut comm, mut data) = (comm.borrow_mut(), data.borrow_mut());
            comm.tolerant_all_reduce(&mut data[..], RedOp::Max).map(drop)
        };
        let us = by_rank_0(messages, rank, call, call)?;
        row("tolerant", bytes, us);
    }
    Ok(())
}

/// The time of the processor that a rank has taken so far, in milliseconds.
fn processor() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// The time of the processor in a second: idle with windows that are served, and computing while messages come.
fn idle(
    comm: &mut Communicator,
    messages: &TaggedMessages,
    row: impl Fn(&str, usize, f64),
) -> Result<(), Error> {
    let window = comm.window(comm.alloc::<u64>(1 << 10)?)?;
    comm.barrier()?;
    std::thread::sleep(Duration::from_millis(200));
    let before = processor();
    std::thread::sleep(Duration::from_secs(1));
    row("idle", 0, processor() - before);
    comm.barrier()?;
    // Rank 1 sends now and then; rank 0, which has posted receives, computes.
    let mut all = Vec::new();
    let count = 100;
    if comm.rank() == 0 {
        for tag in 0..count {
            all.push(messages.recv_async(vec![0u8; 64 << 10], 1, tag)?);
        }
    }
    comm.barrier()?;
    let (began, before) = (Instant::now(), processor());
    if comm.rank() == 0 {
        let mut turns = 0u64;
        while began.elapsed() < Duration::from_secs(1) {
            turns = std::hint::black_box(turns + 1);
        }
        let took = processor() - before;
        row("behind", 64 << 10, took - began.elapsed().as_secs_f64() * 1e3);
    } else {
        for tag in 0..count {
            messages.send_async(vec![0u8; 64 << 10], 0, tag)?.wait()?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    for one in all {
        one.wait()?;
    }
    comm.barrier()?;
    window.free(comm).map(drop)
}
