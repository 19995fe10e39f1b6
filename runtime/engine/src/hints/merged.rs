//! Hints of several levels, merged key by key.

use std::collections::BTreeMap;
use std::fmt;

use super::values::Hints;

/// The source of a hint, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HintLevel {
    /// The call itself.
    Call,
    /// The communicator.
    Communicator,
    /// [`VARIABLE`](super::VARIABLE).
    Environment,
}

impl fmt::Display for HintLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HintLevel::Call => "hint on the call",
            HintLevel::Communicator => "hint on the communicator",
            HintLevel::Environment => "ROUNDELAY_HINTS",
        })
    }
}

/// The hints that hold for a call, each with the level that it came from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MergedHints {
    hints: Hints,
    sources: BTreeMap<&'static str, HintLevel>,
    /// The levels of the algorithms, by collective.
    algorithms: BTreeMap<String, HintLevel>,
}

impl MergedHints {
    /// Puts levels together; of two that speak of the same key the nearer one counts.
    pub fn new<'h>(levels: impl IntoIterator<Item = (HintLevel, &'h Hints)>) -> Self {
        let mut levels: Vec<(HintLevel, &Hints)> = levels.into_iter().collect();
        levels.sort_by_key(|(level, _)| *level);
        let mut merged = MergedHints::default();
        for (level, hints) in levels {
            merged.add(level, hints);
        }
        merged
    }

    fn add(&mut self, level: HintLevel, from: &Hints) {
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
            suspended,
            lazy,
            doctor,
            interface,
            ports,
            encryption,
            tls_cert,
            tls_key,
            tls_ca,
            tls_name,
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
    pub fn source(&self, key: &str) -> Option<HintLevel> {
        self.sources.get(key).copied()
    }

    /// Returns the algorithm asked for, and its level. A name for all collectives is none for those
    /// without such an algorithm, unless it stands on the call itself.
    pub fn algorithm(&self, collective: &str) -> Option<(&str, HintLevel)> {
        let named = &self.hints.algorithm;
        if let (Some(name), Some(level)) = (named.get(collective), self.algorithms.get(collective))
        {
            return Some((name, *level));
        }
        let (name, level) = (named.get("")?, *self.algorithms.get("")?);
        let has = roundelay_algorithms::find(collective, name).is_some();
        (has || level == HintLevel::Call).then_some((name.as_str(), level))
    }
}
