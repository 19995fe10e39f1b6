//! Suspends the ranks of a communicator: what calls keep for the next ones goes back to the system, and is made anew by
//! the calls that need it.
//!
//! All ranks suspend together, in rounds of words. The first compares what they ask for. Rounds follow until nothing is
//! under way between them: in two rounds after each other all messages that were sent had been consumed, and no rank had
//! moved one in between. Then each drops its ends of all connections, and a round later, when no rank uses them, their
//! memory. After the last round all connections are as before their first message. So it takes no agreement to resume:
//! a call opens what it needs as the first call of a communicator does, on those ranks that it concerns.

use std::time::Instant;

use super::core::{CallStaging, EngineCore};
use super::suspension::{ACTIVE, REFUSING, RESUMING};
use crate::executor::ExecutionBuffers;
use crate::hints::SuspendedCalls;
use crate::messages::{MessageMemory, MessengerGuard};
use crate::tunables::SUSPEND_QUIET_TIMEOUT;
use roundelay_net::net::WaitPolicy;
use roundelay_support::error::Error;

/// The resources that a suspended communicator gives back to the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SuspendDepth {
    /// Memory: connections for data between hosts stay, with what their devices keep in place.
    #[default]
    Memory,
    /// Memory, and connections for data. Links for control stay.
    Connections,
}

/// Bits of the word in which ranks compare what they ask for.
const CLOSES: u64 = 1 << 0;
const RESUMES: u64 = 1 << 1;
const SUSPENDED: u64 = 1 << 2;
const CANNOT_FREE: u64 = 1 << 3;
const KEEPS_MESSAGES: u64 = 1 << 4;

/// Bits of the words of the rounds until nothing is under way: an operation has not ended, a message was moved since
/// the last round, this rank has waited long enough. The others are the messages sent less those consumed.
const BUSY: u64 = 1 << 63;
const MOVED: u64 = 1 << 62;
const EXPIRED: u64 = 1 << 61;
const UNDER_WAY: u64 = EXPIRED - 1;

impl EngineCore {
    /// Returns true if the ranks are suspended, and no call has resumed this one.
    pub fn is_suspended(&self) -> bool {
        !self.suspension.is_active()
    }

    /// Gives what calls keep for the next ones back to the system; see `Communicator::suspend`.
    pub fn suspend(&mut self, depth: SuspendDepth) -> Result<(), Error> {
        let hint = self.plans.merged_hints()?.suspended();
        let calls = hint.unwrap_or(SuspendedCalls::Refuse);
        // The rounds are calls too.
        let before = self.suspension.replace(ACTIVE);
        let after = match self.try_suspend(depth, calls, before != ACTIVE) {
            Ok(()) if calls == SuspendedCalls::Resume => Ok(RESUMING),
            Ok(()) => Ok(REFUSING),
            Err(error) => Err(error),
        };
        let state = *after.as_ref().unwrap_or(&before);
        self.suspension.replace(state);
        if let Some(MessengerGuard(messenger)) = &self.messages {
            messenger.admit_messages(state != REFUSING);
        }
        after.map(drop)
    }

    fn try_suspend(
        &mut self,
        depth: SuspendDepth,
        calls: SuspendedCalls,
        is_suspended: bool,
    ) -> Result<(), Error> {
        if let Some(MessengerGuard(messenger)) = &self.messages {
            messenger.admit_messages(false);
        }
        let closes = depth == SuspendDepth::Connections;
        let keeps = |MessengerGuard(messenger): &MessengerGuard| messenger.keeps_connections();
        let bits = [
            (CLOSES, closes),
            (RESUMES, calls == SuspendedCalls::Resume),
            (SUSPENDED, is_suspended),
            (CANNOT_FREE, !self.group.frees_memory()),
            (KEEPS_MESSAGES, self.messages.as_ref().is_some_and(keeps)),
        ];
        let own = bits.iter().filter(|(_, is_set)| *is_set).fold(0, |all, (bit, _)| all | bit);
        let words = self.words(own)?;
        check_terms(&words)?;
        let keeps_messages = words.iter().any(|word| word & KEEPS_MESSAGES != 0);
        self.wait_until_quiet(keeps_messages)?;
        self.bounds.clear();
        self.batches.clear();
        (self.current, self.work) = (None, ExecutionBuffers::default());
        (self.scratch, self.staging) = (None, CallStaging::default());
        let mut closing = self.endpoints.release(closes);
        if let Some(MessengerGuard(messenger)) = self.messages.as_ref().filter(|_| !keeps_messages)
        {
            closing.extend(messenger.release());
        }
        self.group.disregard(&closing);
        // Until all have come so far, a peer could take the end of a connection for a failure.
        self.words(0)?;
        drop(closing);
        self.group.free_connections(!keeps_messages).map_err(|error| self.fail(error))?;
        self.group.trim(&self.arena);
        // Until all have come so far, a message could be lost with the memory that it lies in.
        self.words(0).map(drop)
    }

    /// Waits until nothing is under way between the ranks; fails on all of them if something stays.
    fn wait_until_quiet(&mut self, keeps_messages: bool) -> Result<(), Error> {
        let (began, longest) = (Instant::now(), SUSPEND_QUIET_TIMEOUT.min(self.timeout / 2));
        let (mut before, mut was_quiet) = (None, false);
        loop {
            let (mut sent, mut received) = self.endpoints.traffic();
            let mut is_busy = false;
            let messenger = self.messages.as_ref().filter(|_| !keeps_messages);
            if let Some(MessengerGuard(messenger)) = messenger {
                let traffic = messenger.traffic();
                (sent, received) = (sent + traffic.sent, received + traffic.received);
                is_busy = traffic.is_busy;
            }
            let mut own = sent.wrapping_sub(received) & UNDER_WAY;
            own |= if is_busy { BUSY } else { 0 };
            own |= if before == Some((sent, received)) { 0 } else { MOVED };
            own |= if began.elapsed() >= longest { EXPIRED } else { 0 };
            before = Some((sent, received));
            let words = self.words(own)?;
            let under_way = words.iter().fold(0u64, |sum, word| sum.wrapping_add(word & UNDER_WAY));
            let any = words.iter().fold(0, |all, word| all | word);
            let is_quiet = under_way & UNDER_WAY == 0 && any & BUSY == 0;
            if is_quiet && was_quiet && any & MOVED == 0 {
                return Ok(());
            }
            if any & EXPIRED != 0 {
                return Err(unquiet(&words, under_way & UNDER_WAY));
            }
            was_quiet = is_quiet;
            rustix::thread::sched_yield();
        }
    }

    /// Returns the memory that messages with tags keep.
    pub fn message_memory(&self) -> MessageMemory {
        let messenger = self.messages.as_ref();
        messenger.map_or_else(MessageMemory::default, |MessengerGuard(m)| m.memory())
    }

    /// Resumes the ranks, all of which call together; see `Communicator::resume`.
    pub fn resume(&mut self) -> Result<(), Error> {
        let before = self.suspension.replace(ACTIVE);
        if let Some(MessengerGuard(messenger)) = &self.messages {
            messenger.admit_messages(true);
        }
        self.words(0)?;
        if before == ACTIVE {
            return Ok(());
        }
        let deadline = WaitPolicy { timeout: self.timeout, watch: &mut |_| None, members: &[] };
        match self.open_links(deadline) {
            Ok(()) => Ok(()),
            Err(error) => {
                let error = self.explain(error);
                Err(self.fail(error))
            }
        }
    }
}

/// Fails unless all ranks ask for the same, can do it, and some rank is not suspended yet.
fn check_terms(words: &[u64]) -> Result<(), Error> {
    let usage = |text: String| Err(Error::Usage(text));
    if words.iter().all(|word| word & SUSPENDED != 0) {
        return usage("this communicator is suspended already: resume it first".into());
    }
    let other = |bit| words.iter().position(|word| (word ^ words[0]) & bit != 0);
    if let Some(rank) = other(CLOSES) {
        return usage(format!(
            "rank {rank} and rank 0 differ in whether connections are to be given back: all ranks must suspend alike"
        ));
    }
    if let Some(rank) = other(RESUMES) {
        return usage(format!(
            "rank {rank} and rank 0 have different hints `suspended`: all ranks must have the same"
        ));
    }
    match words.iter().position(|word| word & CANNOT_FREE != 0) {
        None => Ok(()),
        Some(rank) => Err(Error::Unsupported(format!(
            "the system of rank {rank} does not take shared memory back (`fallocate` with FALLOC_FL_PUNCH_HOLE), so \
             ranks that share memory cannot be suspended"
        ))),
    }
}

/// Returns the error of ranks between which something stays under way.
fn unquiet(words: &[u64], under_way: u64) -> Error {
    let busy: Vec<usize> = (0..words.len()).filter(|&rank| words[rank] & BUSY != 0).collect();
    Error::Usage(match &busy[..] {
        [] => format!(
            "{under_way} messages between single ranks were sent and not received: receive them before the ranks \
             suspend"
        ),
        ranks => format!(
            "messages of ranks {ranks:?} have not ended, or were not received: wait for them before the ranks suspend"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_must_ask_for_the_same() {
        assert_eq!(check_terms(&[0, 0]), Ok(()));
        assert_eq!(check_terms(&[CLOSES | SUSPENDED, CLOSES]), Ok(()), "a call resumed rank 1");
        let text = |words: &[u64]| check_terms(words).expect_err("they differ").to_string();
        assert!(text(&[0, 0, CLOSES]).contains("rank 2 and rank 0 differ"));
        assert!(text(&[RESUMES, 0]).contains("rank 1 and rank 0 have different hints"));
        assert!(text(&[SUSPENDED; 2]).contains("suspended already"));
        let refused = check_terms(&[0, CANNOT_FREE]).expect_err("it cannot");
        assert!(matches!(&refused, Error::Unsupported(text) if text.contains("rank 1")));
    }
}
