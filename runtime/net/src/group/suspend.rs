//! Memory of a group that goes back to the system while its ranks make no calls.

use std::sync::{Arc, Weak};

use super::rank_group::RankGroup;
use crate::memory::Arena;
use crate::transport::stream::StreamConnection;
use roundelay_support::error::Error;

impl RankGroup {
    /// Returns true if the system takes memory back that ranks share. Asked of a page that no rank uses.
    pub fn frees_memory(&self) -> bool {
        let (own, last) = (self.own(), self.layout().channels - 1);
        let unused = self.layout().connection(own, own, last);
        self.control.free(unused, self.layout().connection_bytes()).is_ok()
    }

    /// Stops looking after connections that are about to be closed: what their peers do there is no failure.
    pub fn disregard(&mut self, closing: &[Arc<StreamConnection>]) {
        let goes = |known: &Weak<StreamConnection>| {
            closing.iter().any(|going| std::ptr::eq(known.as_ptr(), Arc::as_ptr(going)))
        };
        self.streamed.retain(|known| known.strong_count() > 0 && !goes(known));
    }

    /// Gives the memory of the connections into this rank back, those of messages with tags only if they go too. No
    /// rank has an end of them open, and this one calls before others open them again.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the system refuses.
    pub fn free_connections(&self, with_messages: bool) -> Result<(), Error> {
        let channels = self.layout().channels - u32::from(!with_messages);
        for from in self.locals.iter().flatten() {
            self.control.free_connections(from.control, self.own(), channels).map_err(|errno| {
                let text = format!("rank {} cannot give shared memory back: {errno}", self.rank);
                Error::system(text, errno, "")
            })?;
        }
        self.control.unmap_connections();
        self.net().into_iter().for_each(|net| net.forget_incoming());
        Ok(())
    }

    /// Gives the memory of the free parts of this rank's arena back, unless devices write from it now.
    pub fn trim(&self, arena: &Arena) {
        self.means.registrations.release(|| arena.trim());
    }

    /// Returns the bytes of this process's address space that the shared memory takes.
    pub fn mapped_bytes(&self) -> u64 {
        let heap = if self.shares_heap() { 0 } else { self.heap.mapped_bytes() };
        self.control.mapped_bytes() + heap
    }
}
