//! The time of writes and reads of two endpoints in two processes, and of a ping-pong by notifications.
//!
//! Prints `TRANSPORT OPERATION BYTES MICROSECONDS` for each size: for `write` and `read` until the bytes are there, for
//! `pingpong` half of the time until both sides have written and the other one has seen it. The time is the median of
//! blocks of operations. `TRANSPORT` chooses the transport, shared memory by default.

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::time::{Duration, Instant};

use roundelay::{Communicator, Endpoint, Error, Launcher, Link, RemoteRegion, Rights, Setup};

const SIZES: [usize; 8] = [8, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20];
/// The time that is spent on each size and operation.
const TIME: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(60);
/// The value that ends a ping-pong.
const LAST: u64 = 1;

fn main() -> Result<(), Error> {
    if Communicator::is_launched()? {
        return play();
    }
    let program = std::env::current_exe().map_err(|e| Error::Start(e.to_string()))?;
    let outcome = Launcher::new(2).program(program).run(|_rank, line| println!("{line}"))?;
    assert!(outcome.cause.is_none(), "{:?}", outcome.cause);
    Ok(())
}

fn play() -> Result<(), Error> {
    let transport = std::env::var("TRANSPORT").unwrap_or_else(|_| "shm".into());
    // The job is only what passes addresses and keys on.
    let mut comm = Communicator::from_env()?;
    let (messages, other) = (comm.messages()?, 1 - comm.rank());
    let pass = |mut own: Vec<u8>| {
        own.resize(4096, 0);
        let theirs = messages.start_recv(vec![0u8; 4096], other, 0)?;
        messages.send(&own, other, 0)?;
        Ok::<_, Error>(theirs.wait()?.0)
    };
    let hints = format!("transport={transport}").parse()?;
    let endpoint = Endpoint::bind(&Setup::from_env()?.hints(&hints))?;
    let address = pass(endpoint.address())?;
    let end = address.iter().position(|&byte| byte == 0).unwrap_or(address.len());
    let link = endpoint.connect(&address[..end], LIMIT)?;
    let most = SIZES[SIZES.len() - 1];
    let region = endpoint.register(vec![0u8; most], Rights::READ | Rights::WRITE)?;
    let key = pass(region.key())?;
    let there = link.region(&key[..region.key().len()])?;

    let mut data = vec![1u8; most];
    for bytes in SIZES {
        if comm.rank() == 0 {
            let us = median(|| there.write(&data[..bytes], 0))?;
            println!("{transport} write {bytes} {us:.3}");
            let us = median(|| there.read(&mut data[..bytes], 0))?;
            println!("{transport} read {bytes} {us:.3}");
            let us = median(|| ping(&link, &there, &data[..bytes], 0).map(drop))? / 2.0;
            println!("{transport} pingpong {bytes} {us:.3}");
            link.notify(LAST)?;
        } else {
            while taken(&link)? != LAST {
                there.write_notify(&data[..bytes], 0, 0)?;
            }
        }
    }
    link.notify(LAST)?;
    taken(&link)?;
    Ok(())
}

fn ping(link: &Link, there: &RemoteRegion, data: &[u8], value: u64) -> Result<u64, Error> {
    there.write_notify(data, 0, value)?;
    taken(link)
}

fn taken(link: &Link) -> Result<u64, Error> {
    link.wait_notification(LIMIT)?.ok_or_else(|| Error::Start("the peer says nothing".into()))
}

/// Returns the median of the times of blocks of calls, in microseconds a call.
fn median(mut call: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let began = Instant::now();
    (0..3).try_for_each(|_| call())?;
    // A block takes a twentieth of the time, or one call.
    let block = (TIME.as_secs_f64() / 20.0 / (began.elapsed().as_secs_f64() / 3.0)).max(1.0) as u32;
    let mut times = Vec::new();
    let until = Instant::now() + TIME;
    while times.len() < 5 || Instant::now() < until {
        let began = Instant::now();
        (0..block).try_for_each(|_| call())?;
        times.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(block));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
