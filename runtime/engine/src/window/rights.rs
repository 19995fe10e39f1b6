//! The rights that peers have to a window, and the facts that are known of one.

use std::fmt;
use std::ops::BitOr;

/// The rights that peers have to the memory of a window. Signals need no right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights(u64);

impl Rights {
    /// Nothing.
    pub const NONE: Rights = Rights(0);
    /// `get`, and loads where memory is mapped.
    pub const READ: Rights = Rights(1);
    /// `put`, and stores where memory is mapped.
    pub const WRITE: Rights = Rights(2);
    /// `accumulate`, `fetch_add`, `compare_swap`.
    pub const ATOMICS: Rights = Rights(4);
    /// Everything.
    pub const ALL: Rights = Rights(7);

    const NAMES: [(Rights, &str); 3] =
        [(Rights::READ, "read"), (Rights::WRITE, "write"), (Rights::ATOMICS, "atomics")];

    /// Returns the rights as bits.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns the rights of those bits.
    pub fn of_bits(bits: u64) -> Self {
        Rights(bits & Rights::ALL.0)
    }

    /// Returns true if these are among them.
    pub fn contains(self, others: Rights) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns these without others.
    pub fn without(self, others: Rights) -> Rights {
        Rights(self.0 & !others.0)
    }
}

impl BitOr for Rights {
    type Output = Rights;

    fn bitor(self, others: Rights) -> Rights {
        Rights(self.0 | others.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Rights::NAMES.iter().filter(|(right, _)| self.contains(*right));
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
pub enum Access {
    /// Its memory is mapped here: an operation loads and stores in it, and the peer takes no part. A window of MPI
    /// or of torchcomms calls this unified.
    Mapped,
    /// It is reached through the connection for messages: a thread of the peer's process does the operations there,
    /// whatever its program does; but puts and gets are those of devices, where devices join the two ranks.
    Served,
}

/// The facts that are known here of a peer's part of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// The way by which it is reached.
    pub access: Access,
    /// The number of its elements.
    pub len: usize,
    /// The rights to it now; of a part that is [served](Access::Served) the last that are known.
    pub rights: Rights,
    /// The number of puts and gets of this rank there that devices have done, without the peer's process: of a get of
    /// more than 4 MiB each 4 MiB count.
    pub by_device: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_sets() {
        let some = Rights::READ | Rights::ATOMICS;
        assert!(some.contains(Rights::READ) && !some.contains(Rights::ALL));
        assert_eq!(Rights::ALL.without(some), Rights::WRITE);
        assert_eq!(Rights::of_bits(u64::MAX), Rights::ALL);
        let texts = [Rights::NONE, Rights::WRITE, some].map(|rights| rights.to_string());
        assert_eq!(texts, ["none", "write", "read + atomics"]);
    }
}
