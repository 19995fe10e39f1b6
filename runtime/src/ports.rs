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

/// Binds a socket to a port that the system chooses, or to a free one of a range. Ranks that share a range begin at
/// places of their own.
///
/// # Errors
///
/// Those of `bind`; of a range [`io::ErrorKind::AddrInUse`] if all of its ports are taken.
pub fn bind_within<T>(
    ports: Option<PortRange>,
    mut bind: impl FnMut(u16) -> io::Result<T>,
) -> io::Result<T> {
    let Some(range) = ports else { return bind(0) };
    let count = u32::from(range.last - range.first) + 1;
    let begin = random().map_or(0, u32::from_le_bytes) % count;
    for at in 0..count {
        let port = range.first + ((begin + at) % count) as u16;
        match bind(port) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    let text = format!("all ports of the range {range} are taken (hint `ports`)");
    Err(io::Error::new(io::ErrorKind::AddrInUse, text))
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
        let denied = bind_within::<()>(range, |_| Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(denied.map_err(|e| e.kind()), Err(io::ErrorKind::PermissionDenied));
    }
}
