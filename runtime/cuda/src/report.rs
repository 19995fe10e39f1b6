//! The reports of kernels that gave up, as errors.

use roundelay_compiler::device::abi::WaitReport;
use roundelay_emit::cuda::{batch, counted, function, window};

use super::calls::{LoweredProgram, ProgramTable};
use super::device::RankDevice;
use roundelay_engine::EngineCore;
use roundelay_engine::bind::tagged;
use roundelay_support::error::{Error, ErrorLocation};

/// Returns the error of a wait that a kernel gave up.
pub(crate) fn report_error(
    device: &RankDevice,
    programs: &ProgramTable,
    core: &mut EngineCore,
    report: &WaitReport,
) -> Error {
    let location = location(device.rank, programs.get(report.program), report);
    // Another rank may have failed first, or be gone: that is the cause.
    if let Err(error) = core.hear(Some(&location)) {
        return error;
    }
    // The rank that is waited for may itself wait for another, which is gone.
    let gone = core.gone(report.peer, true).map(|how| (report.peer, how));
    if let Some((peer, how)) = gone.or_else(|| core.dead()) {
        let how = format!("{how} while rank {} waited for {}", core.rank(), awaited(report));
        return core.lost(peer, how, Some(location));
    }
    match report.what {
        function::MISUSED => {
            Error::Usage(format!("rank {}, {}: {}", device.rank, location.name, misuse(report)))
        }
        1 if [function::GATHERED, function::REACHED].contains(&report.word) => device.failed(
            format!(
                "{}: block {} of a kernel waited {:?} for other blocks of its grid",
                location.name,
                report.block,
                core.timeout().saturating_mul(2)
            ),
            None,
        ),
        counted::BOUNDS => {
            Error::Usage(format!("rank {}, {}: {}", device.rank, location.name, excess(report)))
        }
        2 => device.failed("its kernels were aborted".into(), None),
        batch::OTHER => Error::MessageMismatch {
            location: Box::new(location),
            peer: report.peer,
            sent: tagged(report.seen as u32),
        },
        _ => {
            let stopped = core.stopped();
            Error::Timeout {
                location: Box::new(location),
                awaited: awaited(report),
                peer: stopped.map_or(report.peer, |(peer, _)| peer),
                after: core.timeout(),
                remark: remark(report, stopped),
            }
        }
    }
}

/// Returns the place in an algorithm at which a kernel was.
fn location(rank: u32, program: Option<&LoweredProgram>, report: &WaitReport) -> ErrorLocation {
    if [batch::ARRIVED, batch::ROOM].contains(&report.word) {
        let text = match report.what {
            batch::OTHER => {
                format!("receive {} from rank {}", tagged(report.wanted as u32), report.peer)
            }
            _ => String::new(),
        };
        return ErrorLocation { rank, name: "batch".into(), step: 0, site: String::new(), text };
    }
    let of_no_program = match report.word {
        counted::LENGTH..=counted::COUNTED => Some("all_to_all_counted"),
        window::SIGNALLED | window::SERVED => Some("window"),
        _ => None,
    };
    if let Some(name) = of_no_program {
        let (name, site, text) = (name.into(), String::new(), String::new());
        return ErrorLocation { rank, name, step: 0, site, text };
    }
    let site = program.and_then(|program| program.site(report.site));
    ErrorLocation {
        rank,
        name: program.map_or_else(|| "a call".into(), LoweredProgram::name),
        step: if report.round == u32::MAX { 0 } else { report.round },
        site: site.map(|s| format!("{}:{}:{}", s.file, s.line, s.column)).unwrap_or_default(),
        text: site.map(|s| s.text.clone()).unwrap_or_default(),
    }
}

/// Says which counts are too large.
fn excess(report: &WaitReport) -> String {
    let WaitReport { wanted, seen, peer, .. } = report;
    match report.word {
        counted::LENGTH => {
            format!("the block for or from rank {peer} has {seen} rows, and {wanted} are the most")
        }
        _ => format!("all blocks together have {seen} rows, and the vector has {wanted}"),
    }
}

/// Says how a function was called that cannot be called so.
fn misuse(report: &WaitReport) -> String {
    let WaitReport { wanted, seen, .. } = report;
    match report.word {
        function::GRID => format!(
            "the kernel that calls it was launched with {seen} blocks, or threads a block along x; {wanted} are needed"
        ),
        function::COUNT => {
            format!("a call of {seen} elements, with a handle that was made for {wanted} at most")
        }
        function::PLACE => format!(
            "a buffer does not lie in the memory that the handle was made for: {wanted} bytes, of which those from \
             {seen} on are too few, or before it"
        ),
        function::ALIGNMENT => format!(
            "a call of {seen} elements at {wanted:#x} (all addresses or'ed): the handle was made for chunks and buffers \
             that begin at multiples of 16 bytes; make it for a count and buffers that do not"
        ),
        _ => {
            format!("the handle is for another header ({seen:#x}, and the header has {wanted:#x})")
        }
    }
}

fn awaited(report: &WaitReport) -> String {
    let peer = report.peer;
    match report.word {
        0 => format!("rank {peer} to enter the call"),
        1 | batch::ARRIVED => format!("a message from rank {peer}"),
        2 | batch::ROOM => format!("rank {peer} to take a message"),
        3 => format!("a packet from rank {peer}"),
        counted::COUNTED => format!("the count of rank {peer}"),
        window::SIGNALLED => format!("a signal of rank {peer}"),
        window::SERVED => format!("rank {peer} to serve its window"),
        _ => format!("rank {peer} to enter the call before"),
    }
}

/// Returns what is known of a wait that took too long; `stopped` is a rank that is stopped, and its process.
fn remark(report: &WaitReport, stopped: Option<(u32, i32)>) -> String {
    let WaitReport { peer, block, wanted, seen, .. } = report;
    if let Some((rank, pid)) = stopped {
        return format!(
            " on the GPU; rank {rank} is stopped, by a signal or a debugger (process {pid}): let it go on, or end the job"
        );
    }
    if report.word == window::SIGNALLED {
        return format!(
            " on the GPU (its signal {wanted} was awaited, and {seen} have come); rank {peer} is alive: see whether it \
             signals as often as it is waited for, or raise the timeout"
        );
    }
    let call = match report.word {
        batch::ARRIVED | batch::ROOM | counted::COUNTED => "a batch".into(),
        _ => format!("call {}", report.epoch),
    };
    format!(
        " in block {block} of {call} on the GPU (wanted {wanted:#x}, saw {seen:#x}); rank {peer} is alive: see \
         whether it makes the same call and is not far behind, or raise the timeout"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misuse_says_what_was_wanted() {
        let of =
            |word| misuse(&WaitReport { word, wanted: 64, seen: 100, ..WaitReport::default() });
        assert_eq!(
            of(function::COUNT),
            "a call of 100 elements, with a handle that was made for 64 at most"
        );
        assert!(
            of(function::GRID).contains("100 blocks")
                && of(function::GRID).contains("64 are needed")
        );
        assert!(of(function::PLACE).contains("64 bytes"));
        assert!(of(function::HEADER).contains("another header"));
        assert_ne!(of(function::ALIGNMENT), of(function::HEADER));
    }

    #[test]
    fn a_report_says_who_waited_for_whom() {
        let report = WaitReport {
            what: 1,
            word: 1,
            peer: 3,
            block: 7,
            site: u32::MAX,
            round: 2,
            wanted: 0x1_0000_0002,
            seen: 0x1_0000_0001,
            epoch: 1,
            program: 0,
        };
        assert_eq!(awaited(&report), "a message from rank 3");
        let text = format!("{}{}", location(0, None, &report), remark(&report, None));
        assert_eq!(
            text,
            "rank 0, a call, step 2 in block 7 of call 1 on the GPU (wanted 0x100000002, saw 0x100000001); \
             rank 3 is alive: see whether it makes the same call and is not far behind, or raise the timeout"
        );
        assert_eq!(
            remark(&report, Some((2, 77))),
            " on the GPU; rank 2 is stopped, by a signal or a debugger (process 77): let it go on, or end the job"
        );
    }
}
