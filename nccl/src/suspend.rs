//! Suspends communicators, and says how much memory of the GPU they have.

use std::ffi::c_int;

use roundelay::{Communicator, Error, SuspendDepth};

use crate::failure::{CallFailure, Outcome};
use crate::open::{OpenComm, is_host};

/// A figure of `ncclCommMemStats`, by its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryStat {
    /// Bytes that suspending gives back.
    Suspendable,
    /// 1 while the memory is given back, else 0.
    IsSuspended,
    /// Bytes that stay.
    Persistent,
    /// All bytes.
    Total,
}

impl MemoryStat {
    /// Returns the figure of a number.
    pub(crate) fn of(number: c_int) -> Outcome<MemoryStat> {
        let all = [
            MemoryStat::Suspendable,
            MemoryStat::IsSuspended,
            MemoryStat::Persistent,
            MemoryStat::Total,
        ];
        let found = usize::try_from(number).ok().and_then(|at| all.get(at));
        found.copied().ok_or_else(|| {
            CallFailure::argument(format!(
                "stat is {number}: it goes from 0 to 3, ncclStatGpuMemTotal"
            ))
        })
    }
}

impl OpenComm {
    /// Gives the memory back: all ranks together, after all calls.
    pub(crate) fn suspend(&self) -> Outcome {
        self.finish()?;
        self.calls.with(|calls| calls.suspend(SuspendDepth::Memory))?;
        let hosts = self.hosts.with(|hosts| hosts.suspend(SuspendDepth::Memory));
        if hosts.is_err() {
            self.calls.with(Communicator::resume)?;
        }
        Ok(hosts?)
    }

    /// Makes the memory again: all ranks together.
    pub(crate) fn resume(&self) -> Outcome {
        let is_suspended = self.calls.with(|calls| Ok(calls.memory_stats()?.suspended))?;
        if !is_suspended {
            return Err(CallFailure::usage("the communicator is not suspended"));
        }
        self.hosts.with(Communicator::resume)?;
        Ok(self.calls.with(Communicator::resume)?)
    }

    /// Returns a figure. Where buffers are memory of the host, that stands for the GPU's.
    pub(crate) fn memory_stat(&self, stat: MemoryStat) -> Outcome<u64> {
        let stats = self.calls.with(|calls| -> Result<_, Error> { calls.memory_stats() })?;
        let (given_back, stays) = match is_host() {
            true => (stats.shared_bytes + stats.staging_bytes, 0),
            false => (stats.device_bytes, stats.device_buffer_bytes),
        };
        Ok(match stat {
            MemoryStat::Suspendable => given_back,
            MemoryStat::IsSuspended => stats.suspended.into(),
            MemoryStat::Persistent => stays,
            MemoryStat::Total => given_back + stays,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_numbers_of_nccl() {
        let numbers = [0, 1, 2, 3].map(MemoryStat::of);
        let wanted = [
            MemoryStat::Suspendable,
            MemoryStat::IsSuspended,
            MemoryStat::Persistent,
            MemoryStat::Total,
        ];
        assert_eq!(numbers, wanted.map(Ok));
        for number in [-1, 4] {
            let refused = MemoryStat::of(number).expect_err("no such figure");
            assert!(refused.text.contains("0 to 3"), "{}", refused.text);
        }
    }
}
