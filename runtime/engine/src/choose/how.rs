//! The setting with which GPUs run an algorithm, as tables of measurements name it: `one_shot packet 8`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use roundelay_compiler::device::DeviceProtocol;

/// Measured times in microseconds, by algorithm, or by algorithm and [`ProtocolChoice`].
pub type Times = BTreeMap<String, f64>;

/// A protocol for messages, and the blocks of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolChoice {
    /// The protocol in which messages travel.
    pub protocol: DeviceProtocol,
    /// Blocks of the kernel.
    pub blocks: u32,
}

impl fmt::Display for ProtocolChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.protocol, self.blocks)
    }
}

/// A text that is no [`ProtocolChoice`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a protocol and a number of blocks, such as `packet 8`")]
pub struct HowError(String);

impl FromStr for ProtocolChoice {
    type Err = HowError;

    fn from_str(text: &str) -> Result<Self, HowError> {
        let wrong = || HowError(text.into());
        let (protocol, blocks) = text.split_once(' ').ok_or_else(wrong)?;
        let protocol = protocol.parse().map_err(|_| wrong())?;
        let blocks = blocks.parse().ok().filter(|&b| b > 0).ok_or_else(wrong)?;
        Ok(ProtocolChoice { protocol, blocks })
    }
}

/// Returns algorithm and protocol of a name in a table.
pub(super) fn parts(name: &str) -> Result<(&str, Option<ProtocolChoice>), HowError> {
    // Arguments have blanks among them: `k_nomial(k = 4) packet 8`.
    let arguments = name.rfind(')').map_or(0, |at| at + 1);
    match name[arguments..].split_once(' ') {
        None => Ok((name, None)),
        Some((rest, how)) => Ok((&name[..arguments + rest.len()], Some(how.parse()?))),
    }
}

/// Returns the least time of an algorithm in a row, and the setting of that time.
pub(super) fn fastest(times: &Times, algorithm: &str) -> Option<(f64, Option<ProtocolChoice>)> {
    let of = times.iter().filter_map(|(name, us)| {
        let (which, how) = parts(name).ok()?;
        (which == algorithm).then_some((*us, how))
    });
    of.min_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_way_of_an_algorithm_counts() {
        let times: Times = [("ring put 32", 9.0), ("ring packet 4", 7.0), ("ring_x", 1.0)]
            .map(|(name, us)| (name.to_string(), us))
            .into();
        let how = ProtocolChoice { protocol: DeviceProtocol::Packet, blocks: 4 };
        assert_eq!(fastest(&times, "ring"), Some((7.0, Some(how))));
        assert_eq!(fastest(&times, "ring_x"), Some((1.0, None)));
        assert_eq!(fastest(&times, "one_shot"), None);
        assert_eq!(how.to_string().parse(), Ok(how));
        assert_eq!(parts("tree(k = 4) packet 4"), Ok(("tree(k = 4)", Some(how))));
        assert_eq!(parts("tree(k = 4)"), Ok(("tree(k = 4)", None)));
        for wrong in ["packet", "packet 0", "pocket 8", "packet eight"] {
            assert!(wrong.parse::<ProtocolChoice>().is_err(), "{wrong}");
        }
    }
}
