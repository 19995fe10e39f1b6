//! Ports for stores of jobs, which a rank opens that is started later, and where processes listen.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a port that was free a moment ago, and that the system assigns to no socket by itself: it takes those from
/// 32768 on.
pub fn port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut ports = std::iter::from_fn(|| {
        let next =
            std::process::id().wrapping_mul(31).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        Some(20_000 + (next % 12_000) as u16)
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.by_ref().take(12_000).find(is_free).expect("a port")
}

/// Returns the addresses at which a process listens for connections, in no order.
///
/// # Panics
///
/// If there is no such process of this user.
pub fn listeners(pid: u32) -> Vec<SocketAddr> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process").flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let own: BTreeSet<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    let mut listeners = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            // The state `0A` is that of a socket that listens.
            if words[3] == "0A" && own.contains(&format!("socket:[{}]", words[9])) {
                listeners.push(address(words[1]).expect("an address and a port"));
            }
        }
    }
    listeners
}

/// Reads an address as the system writes it: words of 32 bits of its own byte order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for at in (0..ip.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    let ip = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(four) => IpAddr::from(four),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(&bytes[..]).ok()?),
    };
    Some(SocketAddr::new(ip, port))
}

/// The first port of ranges: [`port`] gives lesser ones, and the system those from 32768 on.
const RANGES: u16 = 32_000;
/// Number of ports in a range.
const RANGE: u16 = 48;

/// Returns ranges of ports, another one each time, of which at most a few are taken.
fn ranges() -> impl Iterator<Item = RangeInclusive<u16>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    std::iter::from_fn(|| {
        let next = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let first = RANGES + (next % 16) as u16 * RANGE;
        Some(first..=first + RANGE - 1)
    })
}

/// Returns ports for a job that keeps to a range: [`port`] gives none of them to others.
pub fn port_range() -> RangeInclusive<u16> {
    ranges().next().unwrap_or(RANGES..=RANGES)
}

/// Holds two ports that follow each other, of every address, so that no other process has a port of this range.
///
/// # Panics
///
/// If no two are free.
pub fn held_ports() -> (u16, [TcpListener; 2]) {
    let hold = |port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok();
    let pair = |first| Some((first, [hold(first)?, hold(first + 1)?]));
    ranges().take(16).flat_map(|range| range.step_by(2)).find_map(pair).expect("two free ports")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_listens_is_found_where_it_listens() {
        for at in ["127.0.0.1:0", "127.0.0.2:0", "0.0.0.0:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let own = listener.local_addr().expect("an address");
            assert!(listeners(std::process::id()).contains(&own), "{own}");
            drop(listener);
            assert!(!listeners(std::process::id()).contains(&own), "{own}");
        }
    }
}
