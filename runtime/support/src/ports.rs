//! Chooses the port of a socket that listens: any free one, or one of a range that a firewall lets through.

use std::fmt;
use std::io;
use std::str::FromStr;

use crate::secret::random;

/// A range of ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Makes a range; `None` if it has no port, or the port 0.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (0 < first && first <= last).then_some(PortRange { first, last })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for PortRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| ());
        PortRange::new(port(first)?, port(last)?).ok_or(())
    }
}

/// The setting of the system that has the range of ports from which it chooses.
const SYSTEM_RANGE: &str = "net.ipv4.ip_local_port_range";

/// Binds a socket to a port that the system chooses, or to a free one of a range. Ranks that share a range begin at
/// places of their own.
///
/// The system passes over the ports of connections that have ended within the last minute, and gives up where
/// there is no other. A socket that allows it (`SO_REUSEADDR`) can be bound to one by its number, so that is
/// tried then.
///
/// # Errors
///
/// Those of `bind`; of a range [`io::ErrorKind::AddrInUse`] if all of its ports are taken.
pub fn bind_within<T>(
    ports: Option<PortRange>,
    mut bind: impl FnMut(u16) -> io::Result<T>,
) -> io::Result<T> {
    let (range, setting) = match ports {
        Some(range) => (range, "hint `ports`"),
        None => match bind(0) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => match system_range() {
                Some(range) => (range, SYSTEM_RANGE),
                None => return Err(e),
            },
            bound => return bound,
        },
    };
    let count = u32::from(range.last - range.first) + 1;
    let begin = random().map_or(0, u32::from_le_bytes) % count;
    for at in 0..count {
        let port = range.first + ((begin + at) % count) as u16;
        match bind(port) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    let text = format!("all ports of the range {range} are taken ({setting})");
    Err(io::Error::new(io::ErrorKind::AddrInUse, text))
}

/// Returns the range from which the system chooses ports.
fn system_range() -> Option<PortRange> {
    let path = format!("/proc/sys/{}", SYSTEM_RANGE.replace('.', "/"));
    let text = std::fs::read_to_string(path).ok()?;
    let (first, last) = text.trim().split_once(char::is_whitespace)?;
    PortRange::new(first.trim().parse().ok()?, last.trim().parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_are_read_back() {
        assert_eq!("5000-5003".parse::<PortRange>().map(|r| r.to_string()), Ok("5000-5003".into()));
        assert_eq!("5000".parse(), Ok(PortRange { first: 5000, last: 5000 }));
        for bad in ["", "0-5", "6-5", "1-65536", "a-b", "1-2-3", "-"] {
            assert_eq!(bad.parse::<PortRange>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn every_port_of_a_range_is_used_and_no_other() {
        let range = PortRange::new(65533, 65535);
        let mut taken = BTreeSet::new();
        for _ in 0..3 {
            let port = bind_within(range, |port| match taken.contains(&port) {
                true => Err(io::ErrorKind::AddrInUse.into()),
                false => Ok(port),
            });
            taken.insert(port.expect("a free port"));
        }
        assert_eq!(taken, BTreeSet::from([65533, 65534, 65535]));
        let full = bind_within::<()>(range, |_| Err(io::ErrorKind::AddrInUse.into()));
        assert!(full.expect_err("none is free").to_string().contains("65533-65535"));
        // Where the system has none to choose, each of its range is tried by its number.
        let system = system_range().expect("the system has a range");
        let last = bind_within(None, |port| match port == system.last {
            true => Ok(port),
            false => Err(io::ErrorKind::AddrInUse.into()),
        });
        assert_eq!(last.ok(), Some(system.last));
        let denied = bind_within::<()>(range, |_| Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(denied.map_err(|e| e.kind()), Err(io::ErrorKind::PermissionDenied));
    }
}
