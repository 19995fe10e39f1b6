//! The rights that peers have to a window, and the facts that are known of one.

use std::fmt;
use std::ops::BitOr;

/// The rights that peers have to the memory of a window. Signals need no right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WindowRights(u64);

impl WindowRights {
    /// Nothing.
    pub const NONE: WindowRights = WindowRights(0);
    /// `get`, and loads where memory is mapped.
    pub const READ: WindowRights = WindowRights(1);
    /// `put`, and stores where memory is mapped.
    pub const WRITE: WindowRights = WindowRights(2);
    /// `accumulate`, `fetch_add`, `compare_swap`.
    pub const ATOMICS: WindowRights = WindowRights(4);
    /// Everything.
    pub const ALL: WindowRights = WindowRights(7);

    const NAMES: [(WindowRights, &str); 3] = [
        (WindowRights::READ, "read"),
        (WindowRights::WRITE, "write"),
        (WindowRights::ATOMICS, "atomics"),
    ];

    /// Returns the rights as bits.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns the rights of those bits.
    pub fn of_bits(bits: u64) -> Self {
        WindowRights(bits & WindowRights::ALL.0)
    }

    /// Returns true if these are among them.
    pub fn contains(self, others: WindowRights) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns these without others.
    pub fn without(self, others: WindowRights) -> WindowRights {
        WindowRights(self.0 & !others.0)
    }
}

impl BitOr for WindowRights {
    type Output = WindowRights;

    fn bitor(self, others: WindowRights) -> WindowRights {
        WindowRights(self.0 | others.0)
    }
}

impl fmt::Display for WindowRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = WindowRights::NAMES.iter().filter(|(right, _)| self.contains(*right));
        let names: Vec<&str> = names.map(|(_, name)| *name).collect();
        match names.is_empty() {
            true => f.pad("none"),
            false => f.pad(&names.join(" + ")),
        }
    }
}

/// The way by which a peer's part of a window is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WindowAccess {
    /// Its memory is mapped here: an operation loads and stores in it, and the peer takes no part. A window of MPI
    /// or of torchcomms calls this unified.
    Mapped,
    /// It is reached through the connection for messages: a thread of the peer's process does the operations there,
    /// whatever its program does; but puts and gets are those of devices, where devices join the two ranks.
    Served,
}

/// The facts that are known here of a peer's part of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartAttributes {
    /// The way by which it is reached.
    pub access: WindowAccess,
    /// The number of its elements.
    pub len: usize,
    /// The rights to it now; of a part that is [served](WindowAccess::Served) the last that are known.
    pub rights: WindowRights,
    /// The number of puts and gets of this rank there that devices have done, without the peer's process: of a get of
    /// more than 4 MiB each 4 MiB count.
    pub by_device: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_sets() {
        let some = WindowRights::READ | WindowRights::ATOMICS;
        assert!(some.contains(WindowRights::READ) && !some.contains(WindowRights::ALL));
        assert_eq!(WindowRights::ALL.without(some), WindowRights::WRITE);
        assert_eq!(WindowRights::of_bits(u64::MAX), WindowRights::ALL);
        let texts =
            [WindowRights::NONE, WindowRights::WRITE, some].map(|rights| rights.to_string());
        assert_eq!(texts, ["none", "write", "read + atomics"]);
    }
}
