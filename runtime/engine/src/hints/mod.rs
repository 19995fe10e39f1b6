//! Hints: what users wish of collectives, as pairs of strings, checked at once.
//!
//! [`TABLE`] has one row a key: its values, its meaning, and how it is read. Parsing, error messages and
//! `docs/hints.md` come from it. An unknown key or value is an error that lists the near ones, never
//! ignored.
//!
//! Hints come from three levels: the call, the communicator, the environment (`ROUNDELAY_HINTS`).
//! [`Merged`] puts them together, key by key, the nearest level first, and remembers where each came from.

mod parse;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use roundelay_compiler::device::Protocol;

pub use parse::TABLE;
use roundelay_net::error::{Error, Source};
use roundelay_net::ports::PortRange;
use roundelay_net::transport::Transports;
use roundelay_net::variables;

/// The environment variable that holds hints for everything in a process: `key=value,key=value`.
pub use roundelay_net::bootstrap::HINTS as VARIABLE;

/// A row of [`TABLE`].
#[derive(Debug)]
pub struct Key {
    /// The key.
    pub name: &'static str,
    /// Its values, as people read them.
    pub values: &'static str,
    /// The meaning of the key.
    pub meaning: &'static str,
    /// A value that is accepted.
    pub example: &'static str,
    read: fn(&mut Hints, &str) -> Result<(), Unfit>,
}

/// The goal of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// Tiny messages: the least time for no bytes at all.
    Latency,
    /// Large messages: the least time for a byte.
    Bandwidth,
}

/// The type to which algorithms may round what they send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lossy {
    /// None: every message is exact.
    None,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE binary32, for calls of `f64`.
    F32,
}

impl Lossy {
    /// Returns the name by which it is written.
    pub fn name(self) -> &'static str {
        match self {
            Lossy::None => "none",
            Lossy::F16 => "f16",
            Lossy::Bf16 => "bf16",
            Lossy::F32 => "f32",
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

/// Hints of one level. A hint that was not given is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hints {
    /// Algorithms by collective; under the empty name, the one for all that have it.
    algorithm: BTreeMap<String, String>,
    objective: Option<Objective>,
    deterministic: Option<bool>,
    lossy: Option<Lossy>,
    transport: Option<Transports>,
    channels: Option<u32>,
    protocol: Option<Protocol>,
    max_sms: Option<u32>,
    slot_bytes: Option<u64>,
    timeout: Option<Duration>,
    on_failure: Option<OnFailure>,
    lazy: Option<bool>,
    doctor: Option<bool>,
    interface: Option<String>,
    ports: Option<PortRange>,
    topology: Option<String>,
    paths: Option<Vec<String>>,
    rdma_gid: Option<u32>,
    gpu_direct: Option<bool>,
}

/// A hint that is not understood, with the nearest known ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HintError {
    /// There is no such key.
    #[error("no hint is named `{key}`; {near}")]
    Key {
        /// The key.
        key: String,
        /// The nearest key, or all of them, in words.
        near: String,
    },
    /// A key is given twice.
    #[error("the hint `{0}` is given twice")]
    Twice(&'static str),
    /// The key does not have such a value.
    #[error("the hint `{key}={value}` is not understood: {why}; it takes {values}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The reason for which it is refused.
        why: String,
        /// The values that the key has, in words.
        values: &'static str,
    },
    /// A part of a text of hints is no pair.
    #[error("`{0}` is no hint: write key=value")]
    NoPair(String),
    /// The hints of the environment are wrong.
    #[error("{VARIABLE}: {0}")]
    Environment(#[source] Box<HintError>),
    /// The environment variable is not UTF-8.
    #[error("{VARIABLE} is not text")]
    NoText,
}

impl From<HintError> for Error {
    fn from(error: HintError) -> Self {
        Error::Settings { text: error.to_string(), source: Some(Source::new(error)) }
    }
}

/// The reason for which a key does not take a value.
struct Unfit(String);

impl From<&str> for Unfit {
    fn from(why: &str) -> Self {
        Unfit(why.into())
    }
}

impl From<String> for Unfit {
    fn from(why: String) -> Self {
        Unfit(why)
    }
}

impl Hints {
    /// Reads pairs, as frameworks pass them.
    ///
    /// # Errors
    ///
    /// [`HintError`] for an unknown key, a value that the key does not have, or a key given twice.
    ///
    /// ```
    /// let hints = roundelay_engine::hints::Hints::from_pairs([("algorithm", "ring"), ("timeout", "5s")])?;
    /// assert_eq!(hints.algorithm("all_reduce"), Some("ring"));
    /// let error = roundelay_engine::hints::Hints::from_pairs([("algoritm", "ring")]).unwrap_err();
    /// assert!(error.to_string().contains("did you mean `algorithm`?"));
    /// # Ok::<(), roundelay_engine::hints::HintError>(())
    /// ```
    pub fn from_pairs<K: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, HintError> {
        let mut hints = Hints::default();
        let mut seen: Vec<&str> = Vec::new();
        for (key, value) in pairs {
            let row = parse::find(key.as_ref().trim())?;
            if seen.contains(&row.name) {
                return Err(HintError::Twice(row.name));
            }
            seen.push(row.name);
            let value = value.as_ref().trim();
            (row.read)(&mut hints, value).map_err(|Unfit(why)| {
                let (key, value, values) = (row.name, value.into(), row.values);
                HintError::Value { key, value, why, values }
            })?;
        }
        Ok(hints)
    }

    /// Returns the hints of the environment; none where [`VARIABLE`] is not set.
    ///
    /// # Errors
    ///
    /// [`HintError`], naming the variable.
    pub fn from_env() -> Result<Self, HintError> {
        let Some(value) = variables::raw(VARIABLE) else { return Ok(Hints::default()) };
        let text = value.into_string().map_err(|_| HintError::NoText)?;
        text.parse().map_err(|e| HintError::Environment(Box::new(e)))
    }

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
    pub fn objective(&self) -> Option<Objective> {
        self.objective
    }

    /// Returns true if results must not depend on sizes, placement and algorithm.
    pub fn deterministic(&self) -> Option<bool> {
        self.deterministic
    }

    /// Returns the type to which messages may be rounded.
    pub fn lossy(&self) -> Option<Lossy> {
        self.lossy
    }

    /// Returns the transports that may be used.
    pub fn transport(&self) -> Option<Transports> {
        self.transport
    }

    /// Returns the number of parallel connections to each peer.
    pub fn channels(&self) -> Option<u32> {
        self.channels
    }

    /// Returns the protocol in which messages travel between GPUs.
    pub fn protocol(&self) -> Option<Protocol> {
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

    /// Returns the ports to listen at.
    pub fn ports(&self) -> Option<PortRange> {
        self.ports
    }

    /// Returns the topology file, as [`Fabric::load`](roundelay_net::fabric::Fabric::load) reads it.
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

impl std::str::FromStr for Hints {
    type Err = HintError;

    /// Parses `key=value,key=value`. A part without `=` belongs to the value before it, so lists need no
    /// quotes: `transport=shm,tcp,timeout=5s`.
    fn from_str(text: &str) -> Result<Self, HintError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match (part.split_once('='), pairs.last_mut()) {
                (Some((key, value)), _) => pairs.push((key.trim().into(), value.trim().into())),
                (None, Some((_, value))) => {
                    value.push(',');
                    value.push_str(part);
                }
                (None, None) => return Err(HintError::NoPair(part.into())),
            }
        }
        Hints::from_pairs(pairs)
    }
}

/// The source of a hint, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The call itself.
    Call,
    /// The communicator.
    Communicator,
    /// [`VARIABLE`].
    Environment,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Call => "hint on the call",
            Level::Communicator => "hint on the communicator",
            Level::Environment => "ROUNDELAY_HINTS",
        })
    }
}

/// The hints that hold for a call, each with the level that it came from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Merged {
    hints: Hints,
    sources: BTreeMap<&'static str, Level>,
    /// The levels of the algorithms, by collective.
    algorithms: BTreeMap<String, Level>,
}

impl Merged {
    /// Puts levels together; of two that speak of the same key the nearer one counts.
    pub fn new<'h>(levels: impl IntoIterator<Item = (Level, &'h Hints)>) -> Self {
        let mut levels: Vec<(Level, &Hints)> = levels.into_iter().collect();
        levels.sort_by_key(|(level, _)| *level);
        let mut merged = Merged::default();
        for (level, hints) in levels {
            merged.add(level, hints);
        }
        merged
    }

    fn add(&mut self, level: Level, from: &Hints) {
        let (hints, sources) = (&mut self.hints, &mut self.sources);
        macro_rules! take {
            ($($field:ident),*) => {$(
                if hints.$field.is_none() && from.$field.is_some() {
                    hints.$field = from.$field.clone();
                    sources.insert(stringify!($field), level);
                }
            )*};
        }
        take!(
            objective,
            deterministic,
            lossy,
            transport,
            channels,
            protocol,
            max_sms,
            slot_bytes,
            timeout,
            on_failure,
            lazy,
            doctor,
            interface,
            ports,
            topology,
            paths,
            rdma_gid,
            gpu_direct
        );
        // A name for all collectives at a nearer level goes before one for this collective farther off.
        let all = self.algorithms.contains_key("");
        for (collective, name) in &from.algorithm {
            let taken = self.algorithms.contains_key(collective)
                || all && roundelay_algorithms::find(collective, &hints.algorithm[""]).is_some();
            if !taken {
                hints.algorithm.insert(collective.clone(), name.clone());
                self.algorithms.insert(collective.clone(), level);
            }
        }
    }

    /// Returns the hints that hold.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }

    /// Returns the level that set a key other than `algorithm`.
    pub fn source(&self, key: &str) -> Option<Level> {
        self.sources.get(key).copied()
    }

    /// Returns the algorithm asked for, and the level that asks. A name for all collectives is none for those
    /// without such an algorithm, unless it stands on the call itself.
    pub fn algorithm(&self, collective: &str) -> Option<(&str, Level)> {
        let named = &self.hints.algorithm;
        if let (Some(name), Some(level)) = (named.get(collective), self.algorithms.get(collective))
        {
            return Some((name, *level));
        }
        let (name, level) = (named.get("")?, *self.algorithms.get("")?);
        let has = roundelay_algorithms::find(collective, name).is_some();
        (has || level == Level::Call).then_some((name.as_str(), level))
    }
}

#[cfg(test)]
mod tests;
