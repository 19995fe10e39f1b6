//! Groups: the calls of a thread are collected until its outermost group ends, and then made at once.

use std::cell::RefCell;
use std::sync::Arc;

use roundelay::internal::run_together;

use crate::call::NcclCall;
use crate::comm::{Handle, NcclComm, soon};
use crate::failure::{CallFailure, Outcome, ResultCode};
use crate::last_error::remember;
use crate::open::{OpenComm, is_host};

/// The ranks of a communicator that come together; `None` is a rank that is in none.
type Opening = Box<dyn FnOnce() -> Outcome<Option<OpenComm>> + Send>;

/// A communicator that opens, and the place of the caller's handle.
pub(crate) struct OpeningJob {
    /// None for a rank that only takes part.
    pub(crate) comm: Option<Arc<NcclComm>>,
    /// The place of the caller's handle, which becomes NULL if it fails.
    pub(crate) out: usize,
    /// True if the caller does not wait for it.
    pub(crate) is_nonblocking: bool,
    pub(crate) work: Opening,
}

/// The calls of a thread in its groups.
#[derive(Default)]
struct CallGroup {
    depth: u32,
    failed: Option<CallFailure>,
    jobs: Vec<OpeningJob>,
    /// By communicator, in the order of their first calls.
    calls: Vec<(Arc<NcclComm>, Vec<NcclCall>)>,
}

thread_local! {
    static GROUP: RefCell<CallGroup> = RefCell::default();
}

/// Begins a group.
pub(crate) fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// Records that a call of a group has failed: the group will not be run.
pub(crate) fn note(failure: &CallFailure) {
    GROUP.with(|group| {
        if let Ok(mut group) = group.try_borrow_mut()
            && group.depth > 0
        {
            group.failed.get_or_insert_with(|| failure.clone());
        }
    });
}

/// Makes a call, or leaves it to the end of the group.
pub(crate) fn submit(comm: &Arc<NcclComm>, call: NcclCall) -> Outcome<ResultCode> {
    let is_grouped = GROUP.with_borrow_mut(|group| {
        if group.depth > 0 {
            group.add(comm, call);
        }
        group.depth > 0
    });
    if !is_grouped {
        comm.run(&[call])?;
    }
    Ok(ResultCode::Success)
}

/// Opens a communicator, or leaves it to the end of the group.
pub(crate) fn submit_job(job: OpeningJob) -> Outcome<ResultCode> {
    let job = GROUP.with_borrow_mut(|group| match group.depth {
        0 => Some(job),
        _ => {
            group.jobs.push(job);
            None
        }
    });
    job.map_or(Ok(ResultCode::Success), |job| open_all(vec![job]))
}

/// Ends a group; the outermost one makes its calls.
pub(crate) fn end() -> Outcome<ResultCode> {
    match leave()? {
        None => Ok(ResultCode::Success),
        Some(CallGroup { failed: Some(failure), jobs, .. }) => {
            jobs.iter().for_each(|job| job.fail(&failure));
            Err(failure)
        }
        Some(CallGroup { jobs, calls, .. }) => {
            let code = if jobs.is_empty() { ResultCode::Success } else { open_all(jobs)? };
            run_all(calls)?;
            Ok(code)
        }
    }
}

/// Ends a group without making its calls.
pub(crate) fn forget() -> Outcome {
    if let Some(group) = leave()? {
        let failure = CallFailure::usage("the group was simulated, and not run");
        group.jobs.iter().for_each(|job| job.fail(&failure));
    }
    Ok(())
}

/// Leaves a group; returns what the outermost one has collected.
fn leave() -> Outcome<Option<CallGroup>> {
    GROUP.with_borrow_mut(|group| match group.depth {
        0 => Err(CallFailure::usage("ncclGroupEnd was called without ncclGroupStart")),
        1 => Ok(Some(std::mem::take(group))),
        _ => {
            group.depth -= 1;
            Ok(None)
        }
    })
}

impl CallGroup {
    fn add(&mut self, comm: &Arc<NcclComm>, call: NcclCall) {
        match self.calls.iter_mut().find(|(known, _)| Arc::ptr_eq(known, comm)) {
            Some((_, calls)) => calls.push(call),
            None => self.calls.push((comm.clone(), vec![call])),
        }
    }
}

impl OpeningJob {
    /// Opens the communicator.
    fn run(self) -> Outcome {
        let OpeningJob { comm, out, is_nonblocking, work } = self;
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let panicked = || CallFailure {
            code: ResultCode::InternalError,
            text: "roundelay panicked while the ranks came together".into(),
        };
        let opened = caught.unwrap_or_else(|_| Err(panicked()));
        let Some(comm) = comm else { return opened.map(drop) };
        let nowhere = || CallFailure::system("this rank is in no part");
        comm.opened(opened.and_then(|open| open.ok_or_else(nowhere))).inspect_err(|_| {
            if !is_nonblocking {
                withdraw(&comm, out);
            }
        })
    }

    /// Has the communicator fail without being opened.
    fn fail(&self, failure: &CallFailure) {
        if let Some(comm) = &self.comm {
            let _ = comm.opened(Err(failure.clone()));
            withdraw(comm, self.out);
        }
    }
}

/// Takes the handle of a communicator back that did not open.
fn withdraw(comm: &NcclComm, out: usize) {
    comm.forget();
    let out = std::ptr::with_exposed_provenance_mut::<Handle>(out);
    // SAFETY: the caller of ncclCommInitRank and its like keeps the place of the handle until the group has ended.
    unsafe { out.write(std::ptr::null_mut()) };
}

/// Opens communicators, each on a thread of its own: their ranks wait for each other.
fn open_all(jobs: Vec<OpeningJob>) -> Outcome<ResultCode> {
    if jobs.iter().any(|job| job.is_nonblocking) {
        for job in jobs {
            let begun = std::thread::Builder::new().name("roundelay-open".into()).spawn(|| {
                if let Err(failure) = job.run() {
                    remember("ncclCommInitRankConfig", &failure);
                }
            });
            begun.map_err(|error| {
                CallFailure::system(format!("no thread could be started: {error}"))
            })?;
        }
        return Ok(ResultCode::InProgress);
    }
    if jobs.len() < 2 {
        return jobs.into_iter().try_for_each(OpeningJob::run).map(|()| ResultCode::Success);
    }
    let opened = run_together(jobs, OpeningJob::run)
        .map_err(|error| CallFailure::system(format!("no thread could be started: {error}")))?;
    let gone = |_| Err(CallFailure::system("a thread that opened a communicator is gone"));
    opened.into_iter().try_for_each(|opened| opened.unwrap_or_else(gone))?;
    Ok(ResultCode::Success)
}

/// Runs the calls of a group. Those on several communicators are run side by side, since each may wait for the
/// others.
fn run_all(mut calls: Vec<(Arc<NcclComm>, Vec<NcclCall>)>) -> Outcome {
    let wait_for_nobody = |(_, calls): &(Arc<NcclComm>, Vec<NcclCall>)| {
        !is_host() && calls.iter().all(|call| call.kind.is_message())
    };
    if calls.iter().all(wait_for_nobody) {
        return calls.iter().try_for_each(|(comm, calls)| comm.run(calls));
    }
    let Some((own, on_this_thread)) = calls.pop() else { return Ok(()) };
    // All or none: a rank that executes would wait for one that cannot.
    own.prepare(&on_this_thread, false)?;
    calls.iter().try_for_each(|(comm, calls)| comm.prepare(calls, true).map(drop))?;
    let begun: Vec<_> = calls.into_iter().map(|(comm, calls)| comm.run_aside(calls)).collect();
    let mut result = own.run(&on_this_thread);
    for answer in begun {
        let gone = || Err(CallFailure::system("the thread of a communicator is gone"));
        result = result.and(soon(&answer).unwrap_or_else(gone));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::CallKind;
    use crate::comm;
    use crate::config::CommConfig;
    use crate::operator::CallOperator;
    use roundelay::DType;

    fn call(kind: CallKind, number: u64) -> NcclCall {
        let (operator, dtype) = (CallOperator::NONE, DType::F32);
        NcclCall {
            kind,
            send: number,
            recv: number,
            count: 1,
            dtype,
            operator,
            other: 0,
            stream: 0,
        }
    }

    #[test]
    fn calls_are_collected_by_communicator_in_their_order() {
        let [a, b] = [0, 1].map(|rank| comm::make(Some((rank, 2)), 0, CommConfig::default()));
        start();
        start();
        for (comm, number) in [(&a, 1), (&b, 2), (&a, 3)] {
            assert_eq!(submit(comm, call(CallKind::AllReduce, number)), Ok(ResultCode::Success));
        }
        assert!(leave().expect("a group").is_none(), "the inner one ends alone");
        assert_eq!(submit(&b, call(CallKind::Send, 4)), Ok(ResultCode::Success));
        let group = leave().expect("a group").expect("the outer one");
        let numbers: Vec<(u32, Vec<u64>)> = group
            .calls
            .iter()
            .map(|(comm, calls)| {
                (comm.place().expect("a place").rank, calls.iter().map(|call| call.send).collect())
            })
            .collect();
        assert_eq!(numbers, [(0, vec![1, 3]), (1, vec![2, 4])]);
        assert!(leave().is_err(), "there is no group any more");
        [a, b].iter().for_each(|comm| comm.close(None));
    }

    #[test]
    fn a_group_with_a_wrong_call_is_not_run() {
        let comm = comm::make(Some((0, 1)), 0, CommConfig::default());
        start();
        assert_eq!(submit(&comm, call(CallKind::AllReduce, 1)), Ok(ResultCode::Success));
        note(&CallFailure::argument("count is wrong"));
        note(&CallFailure::argument("a later one"));
        assert_eq!(end(), Err(CallFailure::argument("count is wrong")));
        // The next group begins anew, and its call finds that the ranks are not together.
        start();
        assert_eq!(submit(&comm, call(CallKind::AllReduce, 1)), Ok(ResultCode::Success));
        assert!(end().is_err_and(|failure| failure.text.contains("come together")));
        note(&CallFailure::argument("outside a group"));
        start();
        assert_eq!(end(), Ok(ResultCode::Success));
        comm.close(None);
    }

    #[test]
    fn a_handle_that_did_not_open_becomes_null() {
        let comm = comm::make(Some((0, 1)), 0, CommConfig::default());
        let mut handle = comm.handle();
        let out = (&raw mut handle).expose_provenance();
        let work: Opening = Box::new(|| Err(CallFailure::system("no rank came")));
        start();
        assert_eq!(
            submit_job(OpeningJob { comm: Some(comm.clone()), out, is_nonblocking: false, work }),
            Ok(ResultCode::Success)
        );
        assert!(!handle.is_null());
        assert_eq!(end(), Err(CallFailure::system("no rank came")));
        assert!(handle.is_null() && comm::find(comm.handle()).is_err());
    }
}
