//! Waits for a stream, and reports what went wrong in it.

use std::time::{Duration, Instant};

use roundelay_compiler::device::abi::Report;

use super::CudaComm;
use super::comm::drain;
use super::gpu::LEAVE;
use super::program::Lowered;
use crate::backend::cuda::{CudaStream, Fault};
use crate::error::{Error, Location};

/// The number of polls before the core is given away.
const SPINS: u32 = 2000;
/// The interval at which the others are heard.
const HEAR: Duration = Duration::from_millis(1);
/// The time that the kernels of a rank that is gone may still take to be seen.
const LINGER: Duration = Duration::from_secs(1);
/// The number of timeouts after which a stream is given up in which no kernel of ours reports anything: other
/// work is in it.
const STALLED: u32 = 10;

impl CudaComm {
    /// Waits until everything in the stream is done.
    ///
    /// Kernels give up by themselves when nothing moves for the communicator's timeout. Other work in the
    /// stream may take ten times as long.
    ///
    /// # Errors
    ///
    /// These end the communicator; the process and its GPU stay usable. [`Error::Timeout`] if a wait of a
    /// kernel passed its deadline, with rank, algorithm, step, peer and source line; [`Error::LostRank`];
    /// [`Error::Aborted`] if another rank failed; [`Error::Cuda`] if the driver reports a fault.
    pub fn synchronize(&mut self, stream: &CudaStream) -> Result<(), Error> {
        self.watch(|| stream.is_done())
    }

    /// Waits until `done` says so.
    pub(super) fn watch(&mut self, done: impl Fn() -> Result<bool, Fault>) -> Result<(), Error> {
        self.comm.core()?.usable()?;
        let mut polls = 0u32;
        let (mut heard, began) = (Instant::now(), Instant::now());
        let mut gone: Option<Instant> = None;
        loop {
            match done() {
                Ok(true) => break,
                Ok(false) => {}
                Err(fault) => {
                    let error = self.fault(&fault);
                    return Err(self.end(error));
                }
            }
            polls = polls.saturating_add(1);
            if polls < SPINS {
                std::hint::spin_loop();
                continue;
            }
            rustix::thread::sched_yield();
            if heard.elapsed() < HEAR {
                continue;
            }
            heard = Instant::now();
            if self.gpu.mailbox.report().is_some() {
                break;
            }
            if let Err(error) = self.look(began, &mut gone) {
                return Err(self.end(error));
            }
        }
        match self.gpu.mailbox.report() {
            None => Ok(()),
            Some(report) => {
                let error = self.reported(&report)?;
                Err(self.end(error))
            }
        }
    }

    /// Listens to the other ranks, and sees whether they are still there.
    fn look(&mut self, began: Instant, gone: &mut Option<Instant>) -> Result<(), Error> {
        let stalled = self.gpu.failed(format!(
            "the stream did not come to its end within {:?}: work of others in it takes longer, or the GPU hangs",
            began.elapsed()
        ));
        let core = self.comm.core()?;
        core.hear(None)?;
        if let Some((peer, how)) = core.dead()
            && gone.get_or_insert_with(Instant::now).elapsed() > LINGER
        {
            return Err(core.lost(peer, how, None));
        }
        match began.elapsed() > core.timeout() * STALLED {
            true => Err(stalled),
            false => Ok(()),
        }
    }

    /// Ends the communicator: the others are told, kernels leave.
    pub(super) fn end(&mut self, error: Error) -> Error {
        let error = match self.comm.core() {
            Ok(core) => core.fail(error),
            Err(_) => error,
        };
        self.gpu.mailbox.abort();
        let latest = self.gpu.journal.lock().latest();
        if let Some(stream) = latest {
            let _ = drain(&stream, LEAVE);
        }
        error
    }

    /// Returns the error of a wait that a kernel gave up.
    fn reported(&mut self, report: &Report) -> Result<Error, Error> {
        let call = self.gpu.journal.lock().call(report.epoch);
        let location = location(self.rank(), call.as_deref(), report);
        let core = self.comm.core()?;
        // Somebody may have failed first, or be gone: that is the cause.
        if let Err(error) = core.hear(Some(&location)) {
            return Ok(error);
        }
        if let Some(how) = core.gone(report.peer, true) {
            let how = format!("{how} while rank {} waited for {}", core.rank(), awaited(report));
            return Ok(core.lost(report.peer, how, Some(location)));
        }
        Ok(match report.what {
            2 => self.gpu.failed("its kernels were told to leave".into()),
            _ => Error::Timeout {
                location: Box::new(location),
                awaited: awaited(report),
                peer: report.peer,
                after: core.timeout(),
                remark: remark(report),
            },
        })
    }
}

/// Returns the place in an algorithm at which a kernel was.
fn location(rank: u32, call: Option<&Lowered>, report: &Report) -> Location {
    let site = call.and_then(|call| call.site(report.site));
    Location {
        rank,
        name: call.map_or_else(|| "a call of a graph".into(), Lowered::name),
        step: if report.round == u32::MAX { 0 } else { report.round },
        site: site.map(|s| format!("{}:{}:{}", s.file, s.line, s.column)).unwrap_or_default(),
        text: site.map(|s| s.text.clone()).unwrap_or_default(),
    }
}

fn awaited(report: &Report) -> String {
    let peer = report.peer;
    match report.word {
        0 => format!("rank {peer} to enter the call"),
        1 => format!("a message from rank {peer}"),
        2 => format!("rank {peer} to take a message"),
        3 => format!("a packet from rank {peer}"),
        _ => format!("rank {peer} to enter the call before"),
    }
}

fn remark(report: &Report) -> String {
    let Report { peer, block, wanted, seen, epoch, .. } = report;
    format!(
        " in block {block} of call {epoch} on the GPU (wanted {wanted:#x}, saw {seen:#x}); rank {peer} is alive: see \
         whether it makes the same call and is not far behind, or raise the timeout"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_who_waited_for_whom() {
        let report = Report {
            what: 1,
            word: 1,
            peer: 3,
            block: 7,
            site: u32::MAX,
            round: 2,
            wanted: 0x1_0000_0002,
            seen: 0x1_0000_0001,
            epoch: 1,
            reserved: 0,
        };
        assert_eq!(awaited(&report), "a message from rank 3");
        let text = format!("{}{}", location(0, None, &report), remark(&report));
        assert_eq!(
            text,
            "rank 0, a call of a graph, step 2 in block 7 of call 1 on the GPU (wanted 0x100000002, saw 0x100000001); \
             rank 3 is alive: see whether it makes the same call and is not far behind, or raise the timeout"
        );
    }
}
