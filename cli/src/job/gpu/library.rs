//! Runs NCCL as a library of a rank: in the same process, on the same stream.
//!
//! It joins anew for every collective, as a program of its own tests would. NCCL 2.28.3 must: a broadcast in
//! windows that were used for sends and receives before ends with an illegal access, or never, in a program
//! of NCCL alone, too (docs/results/2026-11-23-h200x2).

use roundelay::{Communicator, Error};
use roundelay_compiler::program::CollectiveKind;

use super::super::buffers::GUARD;
use super::buffers::AreaAddresses;
use super::time_limit::TimeLimit;
use crate::peer::InsideLibrary;
use crate::peer::nccl::{NcclError, NcclRank, OpenedNccl, SymmetricWindows};
use crate::tunables::GPU_SETUP_TIMEOUT;

/// The libraries inside a rank.
pub(super) struct InsideLibraries<'a> {
    opened: Result<&'a OpenedNccl, NcclError>,
    which: &'a [InsideLibrary],
    /// Bytes of windows, and the memory of calls that have none.
    rooms: [usize; 2],
    ours: AreaAddresses,
    /// The collective that they have joined for.
    kind: Option<CollectiveKind>,
    joined: Result<NcclRank<'a>, NcclError>,
    libraries: Vec<LibraryRank>,
}

/// One that has joined.
struct LibraryRank {
    windows: Option<SymmetricWindows>,
    /// The reason why it has none, or what it refused.
    fault: Option<NcclError>,
}

impl<'a> InsideLibraries<'a> {
    pub(super) fn new(
        opened: &'a Result<OpenedNccl, NcclError>,
        which: &'a [InsideLibrary],
        rooms: [usize; 2],
        ours: AreaAddresses,
    ) -> Self {
        let opened = opened.as_ref().map_err(NcclError::clone);
        let joined = Err(NcclError::NotJoined);
        InsideLibraries { opened, which, rooms, ours, kind: None, joined, libraries: Vec::new() }
    }

    /// Joins for a collective, together with all ranks.
    pub(super) fn join(
        &mut self,
        kind: &CollectiveKind,
        host: &mut Communicator,
    ) -> Result<(), Error> {
        if self.kind.as_ref() == Some(kind) {
            return Ok(());
        }
        let _limit = TimeLimit::new(GPU_SETUP_TIMEOUT, host.rank(), "NCCL");
        self.leave();
        self.kind = Some(kind.clone());
        self.joined = match &self.opened {
            Ok(opened) => opened.join(host)?,
            Err(why) => Err(why.clone()),
        };
        let Ok(joined) = &self.joined else { return Ok(()) };
        for which in self.which {
            let made = match which {
                InsideLibrary::Nccl => Ok(None),
                InsideLibrary::NcclSym => joined.windows(host, &self.rooms)?.map(Some),
            };
            self.libraries.push(match made {
                Ok(windows) => LibraryRank { windows, fault: None },
                Err(why) => LibraryRank { windows: None, fault: Some(why) },
            });
        }
        Ok(())
    }

    /// Returns what a library calls, and the memory of its calls, or the reason why it does not call.
    pub(super) fn at(&self, who: usize) -> Result<(&NcclRank<'a>, AreaAddresses), NcclError> {
        let joined = self.joined.as_ref().map_err(NcclError::clone)?;
        let library = self.libraries.get(who).ok_or(NcclError::NotJoined)?;
        match (&library.fault, &library.windows) {
            (Some(why), _) => Err(why.clone()),
            (None, None) => Ok((joined, self.ours)),
            (None, Some(windows)) => {
                Ok((joined, AreaAddresses { begin: windows.at(0), data: windows.at(GUARD) }))
            }
        }
    }

    /// Notes that a library is not asked any more for this collective.
    pub(super) fn refused(&mut self, who: usize, why: NcclError) {
        if let Some(library) = self.libraries.get_mut(who) {
            library.fault = Some(why);
        }
    }

    /// Gives memory back and leaves, together with all ranks.
    pub(super) fn leave(&mut self) {
        let libraries = std::mem::take(&mut self.libraries);
        let left = std::mem::replace(&mut self.joined, Err(NcclError::Left));
        if let Ok(joined) = left {
            for windows in libraries.into_iter().filter_map(|library| library.windows) {
                let _ = joined.close(windows);
            }
            let _ = joined.leave();
        }
    }
}
