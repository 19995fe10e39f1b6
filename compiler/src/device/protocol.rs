//! The protocols of device programs, with their names and what each of them asks for.

use serde::Serialize;

/// The protocol by which the messages of a program travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum DeviceProtocol {
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

impl DeviceProtocol {
    /// All of them.
    pub const ALL: [DeviceProtocol; 6] = {
        let [packet, staged, put, get, engine] = DeviceProtocol::TRIED;
        [packet, staged, put, get, engine, DeviceProtocol::Multicast]
    };

    /// Those that were tested on hardware.
    pub const TRIED: [DeviceProtocol; 5] = [
        DeviceProtocol::Packet,
        DeviceProtocol::Staged,
        DeviceProtocol::Put,
        DeviceProtocol::Get,
        DeviceProtocol::Engine,
    ];

    /// Returns its name in hints and programs.
    pub fn name(self) -> &'static str {
        match self {
            DeviceProtocol::Packet => "packet",
            DeviceProtocol::Staged => "staged",
            DeviceProtocol::Put => "put",
            DeviceProtocol::Get => "get",
            DeviceProtocol::Engine => "engine",
            DeviceProtocol::Multicast => "multicast",
        }
    }

    /// Returns true if a call is run in one pass, whatever its size.
    pub const fn is_one_pass(self) -> bool {
        matches!(self, DeviceProtocol::Packet | DeviceProtocol::Engine)
    }

    /// Returns true if it reaches as far as one host.
    pub const fn is_of_one_host(self) -> bool {
        matches!(self, DeviceProtocol::Packet | DeviceProtocol::Engine | DeviceProtocol::Multicast)
    }

    /// Returns true if what is folded is read in the peers' buffers.
    pub(crate) const fn pulls(self) -> bool {
        matches!(self, DeviceProtocol::Get | DeviceProtocol::Engine | DeviceProtocol::Multicast)
    }

    /// Returns true if what is copied is written into the peers' buffers.
    pub(crate) const fn lands(self) -> bool {
        matches!(self, DeviceProtocol::Put | DeviceProtocol::Get | DeviceProtocol::Multicast)
    }
}

impl std::str::FromStr for DeviceProtocol {
    type Err = UnknownProtocol;

    fn from_str(text: &str) -> Result<Self, UnknownProtocol> {
        let found = DeviceProtocol::ALL.into_iter().find(|protocol| protocol.name() == text);
        found.ok_or_else(|| UnknownProtocol(text.into()))
    }
}

/// A text that names no protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of {all}", all = DeviceProtocol::ALL.map(DeviceProtocol::name).join(", "))]
pub struct UnknownProtocol(pub String);

impl std::fmt::Display for DeviceProtocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
