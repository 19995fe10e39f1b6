//! The protocols of device programs, with their names and what each of them asks for.

use serde::Serialize;

/// The protocol by which the messages of a program travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Protocol {
    /// All as packets: for latency.
    Packet,
    /// All through slots: needs nothing of the callers' buffers.
    Staged,
    /// Copies land in the peers' buffers, what is folded is staged.
    Put,
    /// Copies land in the peers' buffers, what is folded is read in the peers' buffers.
    Get,
    /// Copies are made by the GPUs' copy engines, which read in the peers' buffers; nothing is folded.
    Engine,
    /// As `get`, by the switch: it reads what is folded in the buffers of all ranks at once, and writes what is
    /// copied into those of all.
    Multicast,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 6] = {
        let [packet, staged, put, get, engine] = Protocol::TRIED;
        [packet, staged, put, get, engine, Protocol::Multicast]
    };

    /// Those that were played on hardware.
    pub const TRIED: [Protocol; 5] =
        [Protocol::Packet, Protocol::Staged, Protocol::Put, Protocol::Get, Protocol::Engine];

    /// Returns its name in hints and programs.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Packet => "packet",
            Protocol::Staged => "staged",
            Protocol::Put => "put",
            Protocol::Get => "get",
            Protocol::Engine => "engine",
            Protocol::Multicast => "multicast",
        }
    }

    /// Returns true if a call is played in one pass, whatever its size.
    pub const fn is_one_pass(self) -> bool {
        matches!(self, Protocol::Packet | Protocol::Engine)
    }

    /// Returns true if it reaches as far as one host.
    pub const fn is_of_one_host(self) -> bool {
        matches!(self, Protocol::Packet | Protocol::Engine | Protocol::Multicast)
    }

    /// Returns true if what is folded is read in the peers' buffers.
    pub(crate) const fn pulls(self) -> bool {
        matches!(self, Protocol::Get | Protocol::Engine | Protocol::Multicast)
    }

    /// Returns true if what is copied is written into the peers' buffers.
    pub(crate) const fn lands(self) -> bool {
        matches!(self, Protocol::Put | Protocol::Get | Protocol::Multicast)
    }
}

impl std::str::FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(text: &str) -> Result<Self, UnknownProtocol> {
        let found = Protocol::ALL.into_iter().find(|protocol| protocol.name() == text);
        found.ok_or_else(|| UnknownProtocol(text.into()))
    }
}

/// A text that names no protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of {all}", all = Protocol::ALL.map(Protocol::name).join(", "))]
pub struct UnknownProtocol(pub String);

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
