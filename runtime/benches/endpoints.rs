//! The time of writes and reads of two endpoints in two processes, and of a ping-pong by notifications.
//!
//! Prints `TRANSPORT OPERATION BYTES MICROSECONDS` for each size: for `write` and `read` until the bytes are there, for
//! `pingpong` half of the time until both sides have written and the other one has seen it. The time is the median of
//! blocks of operations. `TRANSPORT` chooses the transport, shared memory by default.

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

mod timing;

use std::time::Duration;

use roundelay::endpoint::{Endpoint, EndpointLink, RemoteRegion};
use roundelay::launch::JobSetup;
use roundelay::window::WindowRights;
use roundelay::{Communicator, Error};
use timing::{SIZES, median, run_pair};

/// The time that is spent on each size and operation.
const TIME: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(60);
/// The value that ends a ping-pong.
const LAST: u64 = 1;

fn main() -> Result<(), Error> {
    if Communicator::is_launched()? {
        return run();
    }
    run_pair(None)
}

fn run() -> Result<(), Error> {
    let transport = std::env::var("TRANSPORT").unwrap_or_else(|_| "shm".into());
    // The job is only what passes addresses and keys on.
    let mut comm = Communicator::from_env()?;
    let (messages, other) = (comm.messages()?, 1 - comm.rank());
    let pass = |mut own: Vec<u8>| {
        own.resize(4096, 0);
        let theirs = messages.recv_async(vec![0u8; 4096], other, 0)?;
        messages.send(&own, other, 0)?;
        Ok::<_, Error>(theirs.wait()?.0)
    };
    let hints = format!("transport={transport}").parse()?;
    let endpoint = Endpoint::bind(&JobSetup::from_env()?.hints(&hints))?;
    let address = pass(endpoint.address())?;
    let end = address.iter().position(|&byte| byte == 0).unwrap_or(address.len());
    let link = endpoint.connect(&address[..end], LIMIT)?;
    let most = SIZES[SIZES.len() - 1];
    let region = endpoint.register(vec![0u8; most], WindowRights::READ | WindowRights::WRITE)?;
    let key = pass(region.key())?;
    let there = link.region(&key[..region.key().len()])?;

    let mut data = vec![1u8; most];
    for bytes in SIZES {
        if comm.rank() == 0 {
            let us = median(TIME, || there.put(&data[..bytes], 0))?;
            println!("{transport} write {bytes} {us:.3}");
            let us = median(TIME, || there.get(&mut data[..bytes], 0))?;
            println!("{transport} read {bytes} {us:.3}");
            let us = median(TIME, || ping(&link, &there, &data[..bytes], 0).map(drop))? / 2.0;
            println!("{transport} pingpong {bytes} {us:.3}");
            link.signal(LAST)?;
        } else {
            while taken(&link)? != LAST {
                there.put_signal(&data[..bytes], 0, 0)?;
            }
        }
    }
    link.signal(LAST)?;
    taken(&link)?;
    Ok(())
}

fn ping(link: &EndpointLink, there: &RemoteRegion, data: &[u8], value: u64) -> Result<u64, Error> {
    there.put_signal(data, 0, value)?;
    taken(link)
}

fn taken(link: &EndpointLink) -> Result<u64, Error> {
    link.wait_signal(LIMIT)?.ok_or_else(|| Error::Start("the peer says nothing".into()))
}
