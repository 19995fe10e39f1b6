//! Joins the ranks that somebody else started, where this process is one of them.

use std::cell::RefCell;
use std::time::Duration;

use roundelay::bootstrap::{ByHand, Membership, Setup, membership_with};
use roundelay::{Communicator, Error, Hints, Transports};
use roundelay_compiler::cost::Topology;

use crate::args::Play;
use crate::hints;
use crate::report::{Failure, usage};

thread_local! {
    /// A process joins once, and plays several jobs.
    static COMM: RefCell<Option<Communicator>> = const { RefCell::new(None) };
}

/// A rank that another launcher started, and the settings with which it joins.
pub(crate) struct Member {
    membership: Membership,
    hints: Hints,
    timeout: Duration,
    slot_bytes: Option<u64>,
}

impl Member {
    /// Returns this process as a rank, if it is one.
    pub(crate) fn of(play: &Play) -> Result<Option<Self>, Failure> {
        let Some(membership) = membership(play)? else { return Ok(None) };
        let hints = hints::merged(&hints::texts(play))?;
        let timeout = hints.timeout().unwrap_or(play.timeout);
        let slot_bytes = play.slot_bytes.or(hints.slot_bytes());
        Ok(Some(Member { membership, hints, timeout, slot_bytes }))
    }

    /// Uses the communicator, which is joined when it is first needed.
    pub(crate) fn with<T>(
        &self,
        used: impl FnOnce(&mut Communicator) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        COMM.with_borrow_mut(|kept| match kept {
            Some(comm) => used(comm),
            none => used(none.insert(self.join()?)),
        })
    }

    fn join(&self) -> Result<Communicator, Error> {
        let setup = Setup::from_env()?.hints(&self.hints).timeout(self.timeout);
        let setup = match self.slot_bytes {
            Some(bytes) => setup.slot_bytes(bytes),
            None => setup,
        };
        Communicator::join(&self.membership, &setup)
    }
}

/// Returns the rank of this process, if another launcher started it as one.
pub(crate) fn membership(play: &Play) -> Result<Option<Membership>, Failure> {
    let by_hand = ByHand { rank: play.rank, size: play.size, store: play.store.clone() };
    membership_with(&by_hand).map_err(usage)
}

/// Returns the topology and the transports that carry calls, if another launcher started the ranks; joins to learn them.
pub(crate) fn topology(play: &Play) -> Result<Option<(Topology, Transports)>, Failure> {
    let topology = |member: Member| member.with(|comm| Ok(comm.topology()?));
    Member::of(play)?.map(topology).transpose()
}
