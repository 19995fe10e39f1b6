//! The hints of one level, and the types of their values.

use std::collections::BTreeMap;
use std::time::Duration;

use roundelay_compiler::device::DeviceProtocol;
use roundelay_net::transport::TransportSet;
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::ports::PortRange;

/// The goal of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChoiceObjective {
    /// Tiny messages: the least time for no bytes at all.
    Latency,
    /// Large messages: the least time for a byte.
    Bandwidth,
}

/// The type to which algorithms may round what they send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossyType {
    /// None: every message is exact.
    None,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE binary32, for calls of `f64`.
    F32,
}

impl LossyType {
    /// Returns the name by which it is written.
    pub fn name(self) -> &'static str {
        match self {
            LossyType::None => "none",
            LossyType::F16 => "f16",
            LossyType::Bf16 => "bf16",
            LossyType::F32 => "f32",
        }
    }
}

/// The behaviour of the next call after one has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// It fails too.
    Error,
    /// It goes on with the ranks that are left.
    Shrink,
}

/// The treatment of calls on a suspended communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspendedCalls {
    /// They fail, and nothing changes.
    Refuse,
    /// The first one resumes the communicator.
    Resume,
}

/// Hints of one level. A hint that was not given is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hints {
    /// Algorithms by collective; under the empty name, the one for all that have it.
    pub(super) algorithm: BTreeMap<String, String>,
    pub(super) objective: Option<ChoiceObjective>,
    pub(super) deterministic: Option<bool>,
    pub(super) lossy: Option<LossyType>,
    pub(super) transport: Option<TransportSet>,
    pub(super) channels: Option<u32>,
    pub(super) protocol: Option<DeviceProtocol>,
    pub(super) max_sms: Option<u32>,
    pub(super) slot_bytes: Option<u64>,
    pub(super) timeout: Option<Duration>,
    pub(super) on_failure: Option<OnFailure>,
    pub(super) suspended: Option<SuspendedCalls>,
    pub(super) lazy: Option<bool>,
    pub(super) doctor: Option<bool>,
    pub(super) interface: Option<String>,
    pub(super) ports: Option<PortRange>,
    pub(super) encryption: Option<EncryptionMode>,
    pub(super) tls_cert: Option<String>,
    pub(super) tls_key: Option<String>,
    pub(super) tls_ca: Option<String>,
    pub(super) tls_name: Option<String>,
    pub(super) topology: Option<String>,
    pub(super) paths: Option<Vec<String>>,
    pub(super) rdma_gid: Option<u32>,
    pub(super) gpu_direct: Option<bool>,
}

impl Hints {
    /// Returns true if no hint is set.
    pub fn is_empty(&self) -> bool {
        *self == Hints::default()
    }

    /// Returns the algorithm asked for by name for a collective; one that was named for all collectives
    /// counts where the collective has it.
    pub fn algorithm(&self, collective: &str) -> Option<&str> {
        if let Some(name) = self.algorithm.get(collective) {
            return Some(name);
        }
        let name = self.algorithm.get("")?;
        roundelay_algorithms::find(collective, name).map(|e| e.name)
    }

    /// Returns the goal of the choice.
    pub fn objective(&self) -> Option<ChoiceObjective> {
        self.objective
    }

    /// Returns true if the bits of an element must depend on the contributions to it alone (`batch_invariant`).
    pub fn deterministic(&self) -> Option<bool> {
        self.deterministic
    }

    /// Returns the type to which messages may be rounded.
    pub fn lossy(&self) -> Option<LossyType> {
        self.lossy
    }

    /// Returns the transports that may be used.
    pub fn transport(&self) -> Option<TransportSet> {
        self.transport
    }

    /// Returns the number of parallel connections to each peer.
    pub fn channels(&self) -> Option<u32> {
        self.channels
    }

    /// Returns the protocol in which messages travel between GPUs.
    pub fn protocol(&self) -> Option<DeviceProtocol> {
        self.protocol
    }

    /// Returns the most multiprocessors of a GPU that a call occupies.
    pub fn max_sms(&self) -> Option<u32> {
        self.max_sms
    }

    /// Returns the capacity of a slot in bytes.
    pub fn slot_bytes(&self) -> Option<u64> {
        self.slot_bytes
    }

    /// Returns the longest time that a rank waits for another.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns what the next call does after one has failed.
    pub fn on_failure(&self) -> Option<OnFailure> {
        self.on_failure
    }

    /// Returns how calls on a suspended communicator are treated.
    pub fn suspended(&self) -> Option<SuspendedCalls> {
        self.suspended
    }

    /// Returns true if connections are made when they are first needed.
    pub fn lazy(&self) -> Option<bool> {
        self.lazy
    }

    /// Returns true if every rank reports to `roundelay doctor --store`.
    pub fn doctor(&self) -> Option<bool> {
        self.doctor
    }

    /// Returns the paths between hosts, in order.
    pub fn paths(&self) -> Option<&[String]> {
        self.paths.as_deref()
    }

    /// Returns the network interface to use.
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Returns whether connections are encrypted.
    pub fn encryption(&self) -> Option<EncryptionMode> {
        self.encryption
    }

    /// Returns the ports to listen at.
    pub fn ports(&self) -> Option<PortRange> {
        self.ports
    }

    /// Returns the files of this rank's certificate, of its key and of the authorities, and the name of certificates.
    pub fn certificate_files(&self) -> [Option<&str>; 4] {
        [&self.tls_cert, &self.tls_key, &self.tls_ca, &self.tls_name].map(Option::as_deref)
    }

    /// Returns the topology file, as [`Fabric::load`](roundelay_support::fabric::FabricTopology::load) reads it.
    pub fn topology(&self) -> Option<&str> {
        self.topology.as_deref()
    }

    /// Returns the entry of an RDMA device's table of addresses.
    pub fn rdma_gid(&self) -> Option<u32> {
        self.rdma_gid
    }

    /// Returns true if RDMA devices are to read and write memory of GPUs by themselves.
    pub fn gpu_direct(&self) -> Option<bool> {
        self.gpu_direct
    }
}
