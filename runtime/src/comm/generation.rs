//! The next generation of a communicator: other ranks, and what this one keeps of the last.

use std::sync::Arc;
use std::time::Duration;

use super::communicator::Communicator;
use roundelay_engine::EngineCore;
use roundelay_net::group::{KeptMemory, RankGroup, RankIdentity};
use roundelay_net::memory::Arena;
use roundelay_net::net::WaitPolicy;
use roundelay_support::error::Error;

impl Communicator {
    /// Returns this rank's identity, which it has once its handle was asked for, or since it joined.
    pub(crate) fn identity(&mut self) -> &mut Option<Box<RankIdentity>> {
        &mut self.identity
    }

    /// Returns the number that the memory of this communicator has, and no other.
    pub(crate) fn memory(&self) -> u64 {
        self.stop.memory()
    }

    /// Returns the memory that the next generation may keep. Waits for pending work.
    pub(crate) fn kept(&mut self) -> Result<KeptMemory, Error> {
        Ok(self.core()?.group.kept())
    }

    /// Goes on as a rank of that group, whose ranks have all come so far. `left` is the time that is left. If it
    /// fails here, it fails on all of them, sooner or later, and this communicator is what it was.
    pub(crate) fn go_on_in(
        &mut self,
        group: RankGroup,
        left: &dyn Fn() -> Duration,
        watch: &mut dyn FnMut(u32) -> Option<Error>,
    ) -> Result<(), Error> {
        let own = group.local(group.rank()).map_or(0, |local| local.heap);
        let timeout = self.settings.timeout;
        let old = self.core()?;
        let arena = match Arc::ptr_eq(group.heap(), old.group.heap()) {
            true => old.arena.clone(),
            false => Arena::new(group.heap().clone(), own),
        };
        let mut core = Box::new(EngineCore::new(group, arena, left()));
        core.plans = std::mem::take(&mut old.plans);
        let linked = core.open_links(WaitPolicy { timeout: left(), watch, members: &[] });
        let linked = linked.map_err(|error| core.fail(error));
        core.timeout = left();
        if let Err(error) = linked.and_then(|()| core.agree_on_installed()) {
            old.plans = std::mem::take(&mut core.plans);
            old.sort_installed();
            return Err(error);
        }
        // Ranks that are left out may still read this one's memory: they hear of it before that serves others.
        old.life.end();
        old.group.supersede();
        core.timeout = timeout;
        #[cfg(feature = "cuda")]
        self.leave_gpu();
        (self.rank, self.size, self.paths) = (core.rank(), core.size(), core.paths());
        self.routes = core.group.routes().into();
        self.arena = core.arena.clone();
        self.stop = core.stop.clone();
        self.messenger = None;
        self.home = Some(core);
        Ok(())
    }
}
