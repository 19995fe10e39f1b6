//! Sets of transports.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::list::{Transport, transports};
use super::shm::SegmentLayout;

/// A set of transports. Printed, it is their names with a `+` between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransportSet(u8);

macro_rules! define_constants {
    ($($(#[$doc:meta])* $name:ident $constant:ident $module:ident $(carries $carrier:ident)?;)+) => {
        impl TransportSet {
            $($(#[$doc])* pub const $constant: TransportSet = TransportSet::of(Transport::$name);)+
            /// All of them.
            pub const ALL: TransportSet = TransportSet::NONE$(.with(Transport::$name))+;
        }
    };
}

transports!(define_constants);

impl TransportSet {
    /// None of them: a rank needs none to reach itself.
    pub const NONE: TransportSet = TransportSet(0);

    /// Returns the set of this one alone.
    pub const fn of(transport: Transport) -> TransportSet {
        TransportSet(1 << transport as u8)
    }

    /// Returns the set with this one too.
    #[must_use]
    pub const fn with(self, transport: Transport) -> TransportSet {
        self.or(TransportSet::of(transport))
    }

    /// Returns the transports of either set.
    #[must_use]
    pub const fn or(self, other: TransportSet) -> TransportSet {
        TransportSet(self.0 | other.0)
    }

    /// Returns the transports of both sets.
    #[must_use]
    pub const fn and(self, other: TransportSet) -> TransportSet {
        TransportSet(self.0 & other.0)
    }

    /// Returns true if this one is in the set.
    pub const fn contains(self, transport: Transport) -> bool {
        self.0 & TransportSet::of(transport).0 != 0
    }

    /// Returns true if none is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns those in the set, in the order of [`Transport::ALL`].
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Transport> {
        Transport::ALL.iter().copied().filter(move |&transport| self.contains(transport))
    }

    /// Returns those whose links are memory that both ends map.
    #[must_use]
    pub fn mapped(self) -> TransportSet {
        self.iter().filter(|transport| transport.is_mapped()).collect()
    }

    /// Returns those whose links carry messages that are handed over.
    #[must_use]
    pub fn posted(self) -> TransportSet {
        self.iter().filter(|transport| !transport.is_mapped()).collect()
    }

    /// Returns the default capacity of a slot, in bytes.
    pub fn slot_bytes(self) -> u64 {
        match self.mapped().is_empty() {
            false => SegmentLayout::SLOT_BYTES,
            true => SegmentLayout::UNSHARED_SLOT_BYTES,
        }
    }
}

impl Default for TransportSet {
    fn default() -> Self {
        TransportSet::ALL
    }
}

impl From<Transport> for TransportSet {
    fn from(transport: Transport) -> Self {
        TransportSet::of(transport)
    }
}

impl FromIterator<Transport> for TransportSet {
    fn from_iter<I: IntoIterator<Item = Transport>>(all: I) -> Self {
        all.into_iter().fold(TransportSet::NONE, TransportSet::with)
    }
}

impl fmt::Display for TransportSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.pad("none");
        }
        let names: Vec<&str> = self.iter().map(Transport::name).collect();
        f.pad(&names.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_print_themselves_in_the_order_of_the_list() {
        for (set, text) in [
            (TransportSet::NONE, "none"),
            (TransportSet::TCP, "tcp"),
            (TransportSet::RDMA.or(TransportSet::SHM), "shm+rdma"),
            (TransportSet::ALL, "shm+tcp+rdma"),
        ] {
            assert_eq!(set.to_string(), text);
            assert_eq!(set.iter().collect::<TransportSet>(), set);
        }
        assert_eq!(TransportSet::ALL.mapped(), TransportSet::SHM);
        assert_eq!(TransportSet::ALL.posted().iter().next_back(), Some(Transport::Rdma));
    }
}
