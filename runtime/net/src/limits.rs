//! Bounds what strangers cost at each listening port of a process. The servers read this table, SECURITY.md shows it,
//! and tests reach each bound.
//!
//! A stranger is a connection that has not proved yet that it belongs to the job; a guest of a store (`roundelay
//! doctor`) is counted as one although it has, since without a secret anyone can be a guest.

use std::fmt::Write;
use std::time::Duration;

use crate::tunables::{DESCRIPTORS_PER_STRANGER, STRANGER_TIMEOUT, STRANGERS_MAX};

/// The bounds of a listening port, whatever the program of the process does meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortLimits {
    /// The port, in words.
    pub port: &'static str,
    /// Strangers at one time, see [`PortLimits::places`]. One more turns the oldest away, and a rank that is
    /// turned away so comes again.
    pub strangers: usize,
    /// True if there may be as many strangers as ranks, where these are more: all ranks come at once.
    pub or_ranks: bool,
    /// The time after which a stranger is turned away, whatever it has sent.
    pub patience: Duration,
    /// Bytes of a stranger's that are kept.
    pub bytes: usize,
}

impl PortLimits {
    /// Returns the number of strangers that this process has places for: of few descriptors a part, so that others are
    /// left for the ranks.
    pub fn places(&self) -> usize {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let part = descriptors.map_or(usize::MAX, |most| most as usize / DESCRIPTORS_PER_STRANGER);
        self.strangers.min(part).max(1)
    }
}

/// The bounds of the store, which rank 0 serves while ranks join, and with the hint `doctor` as long as it lives.
pub const STORE: PortLimits = PortLimits {
    port: "the store of rank 0",
    strangers: STRANGERS_MAX,
    or_ranks: true,
    patience: STRANGER_TIMEOUT,
    bytes: 1040,
};
/// The bounds of the reporter of a rank with the hint `doctor`.
pub(crate) const REPORTER: PortLimits =
    PortLimits { port: "the reporter of a rank", or_ranks: false, ..STORE };
/// The bounds of the listener of a rank, at which peers and endpoints connect.
pub(crate) const LISTENER: PortLimits =
    PortLimits { port: "the listener of a rank, or of an endpoint", bytes: 80, ..REPORTER };
/// The bounds of the board of a process that has made a unique id of NCCL's interface.
pub const BOARD: PortLimits =
    PortLimits { port: "the board of a unique id (NCCL's interface)", bytes: 29, ..REPORTER };

/// All ports at which a process may listen.
pub const ALL: [PortLimits; 4] = [STORE, LISTENER, REPORTER, BOARD];

/// Returns the table as SECURITY.md shows it.
pub fn table() -> String {
    let mut text = String::from(
        "| port | strangers at a time | turned away after | bytes kept of each |\n|---|---|---|---|\n",
    );
    for PortLimits { port, strangers, or_ranks, patience, bytes } in ALL {
        let or_ranks = if or_ranks { ", or one for each rank if these are more" } else { "" };
        let _ = writeln!(text, "| {port} | {strangers}{or_ranks} | {patience:?} | {bytes} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunables::{DELAYED_CONNECTIONS_MAX, WRONG_PROOF_DELAY, WRONG_PROOFS_MAX};

    #[test]
    fn the_page_shows_the_table() {
        let page = include_str!("../../../SECURITY.md");
        assert!(page.contains(&table()), "SECURITY.md needs this table:\n{}", table());
        for text in [
            format!("answered {WRONG_PROOF_DELAY:?} later after {WRONG_PROOFS_MAX} wrong proofs"),
            format!("at a store {DELAYED_CONNECTIONS_MAX} at a time"),
            format!("fewer than {} descriptors", STRANGERS_MAX * DESCRIPTORS_PER_STRANGER),
        ] {
            assert!(page.contains(&text), "SECURITY.md does not say: {text}");
        }
    }
}
