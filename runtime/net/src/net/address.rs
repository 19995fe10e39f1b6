//! Finds the address at which a rank listens, and the ranks that live on one host.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::OnceLock;

use if_addrs::Interface;
use sha2::{Digest, Sha256};

use crate::paths::{PathMedium, PathOptions};
use roundelay_support::error::Error;
use roundelay_support::fabric::system;
use roundelay_support::secret::random;

/// An address that a peer listens at, and this rank's own on that path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DialTarget {
    /// This rank's own address, where that decides the path.
    pub(super) from: Option<IpAddr>,
    pub(super) to: SocketAddr,
    /// True if the peer is known to be on another host, whatever the addresses say.
    pub(super) is_far: bool,
}

/// Returns the text of an address in messages, with a space before it.
pub(super) fn at(address: Option<SocketAddr>) -> String {
    address.map(|a| format!(" at {a}")).unwrap_or_default()
}

/// Returns the addresses to listen at, with any free ports, by path; without paths there is one.
pub(super) fn all(options: &PathOptions, seen: IpAddr) -> Result<Vec<SocketAddr>, Error> {
    if options.paths.is_empty() {
        return Ok(vec![choose(options.interface.as_deref(), seen)?]);
    }
    let mut all: Vec<SocketAddr> = Vec::new();
    for (at, (path, medium)) in options.paths.iter().zip(&options.media).enumerate() {
        let PathMedium::Interface(name) = medium else {
            all.push(choose(options.interface.as_deref(), seen)?);
            continue;
        };
        let address = choose(Some(name), seen).map_err(|error| {
            let devices = match &system::rdma_names()[..] {
                [] => "none".to_owned(),
                names => names.join(", "),
            };
            Error::Start(format!(
                "path `{path}`: {error}; or an RDMA device, of which this host has {devices}"
            ))
        })?;
        let before = options.media.iter().zip(&all).take(at);
        let mut same = before.map(|(m, a)| m.device().is_none() && a.ip() == address.ip());
        if let Some(same) = same.position(|same| same) {
            return Err(Error::Start(format!(
                "the paths `{}` and `{path}` are one here, {}: name interfaces of their own",
                options.paths[same],
                address.ip()
            )));
        }
        all.push(address);
    }
    Ok(all)
}

/// Returns the address to listen at, with any free port: that of `interface` (the name of an interface, an
/// address, or a network such as `10.0.0.0/8`), else `seen`, the address that this rank has in the eyes of
/// the rendezvous store.
pub fn choose(interface: Option<&str>, seen: IpAddr) -> Result<SocketAddr, Error> {
    let Some(wanted) = interface else { return Ok(SocketAddr::new(seen.to_canonical(), 0)) };
    let all = if_addrs::get_if_addrs().map_err(|e| {
        let text = format!("the network interfaces of this host cannot be listed: {e}");
        Error::system(text, e, "")
    })?;
    pick(wanted, seen, &all).ok_or_else(|| {
        let mut known: Vec<String> =
            all.iter().map(|i| format!("{} ({})", i.name, i.ip())).collect();
        known.sort();
        Error::Start(format!(
            "no network interface of this host fits `{wanted}`; give a name, an address or a \
             network such as 10.0.0.0/8 of one of: {}",
            known.join(", ")
        ))
    })
}

/// Returns the speed of the interface with this address, in Mbit/s; 0 if it is not known.
pub(super) fn speed(ip: IpAddr) -> u32 {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let name = all.into_iter().find(|i| i.ip() == ip).map(|i| i.name);
    let text = name.and_then(|n| std::fs::read_to_string(format!("/sys/class/net/{n}/speed")).ok());
    // An unknown speed is -1, or cannot be read.
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn pick(wanted: &str, seen: IpAddr, all: &[Interface]) -> Option<SocketAddr> {
    let fits = |interface: &&Interface| match wanted.split_once('/') {
        Some((network, bits)) => is_within(interface.ip(), network, bits),
        None => match wanted.parse::<IpAddr>() {
            Ok(ip) => interface.ip() == ip.to_canonical(),
            Err(_) => interface.name == wanted,
        },
    };
    // Among several, prefers the family that the store is reached with, and no address that needs a scope.
    let rank = |interface: &&Interface| {
        (interface.is_link_local(), interface.ip().is_ipv4() != seen.is_ipv4())
    };
    let best = all.iter().filter(fits).min_by_key(rank)?;
    Some(match best.ip() {
        IpAddr::V6(ip) if best.is_link_local() => {
            SocketAddrV6::new(ip, 0, 0, best.index.unwrap_or(0)).into()
        }
        ip => SocketAddr::new(ip, 0),
    })
}

fn is_within(ip: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse(), bits.parse::<u32>()) else { return false };
    let equal = |a: u128, b: u128, width: u32| {
        bits <= width && (bits == 0 || (a ^ b) >> (width - bits) == 0)
    };
    match (ip, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => equal(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => equal(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

/// Returns a peer's address as this rank must name it: the scope of a link-local address is the number of the
/// interface on the host that uses it.
pub(super) fn reachable(peer: SocketAddr, own: SocketAddr) -> SocketAddr {
    match (peer, own) {
        (SocketAddr::V6(peer), SocketAddr::V6(own)) if peer.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*peer.ip(), peer.port(), 0, own.scope_id()).into()
        }
        _ => peer,
    }
}

/// Returns the identity of this host. Two ranks with the same identity run on one host and can share memory:
/// one start of one machine, one space of process numbers (memory is opened by the number of the process that
/// made it), and one network, so that hosts emulated by network namespaces count as several. `label` divides
/// ranks further.
pub(super) fn host(label: Option<&str>) -> Result<u128, Error> {
    let mut hash = here()?;
    hash.update(label.unwrap_or_default());
    let digest = hash.finalize();
    Ok(u128::from_le_bytes(std::array::from_fn(|at| digest[at])))
}

/// Returns a digest of this machine and of what separates processes there from each other. They stay: what was read is
/// kept.
fn here() -> Result<Sha256, Error> {
    static HERE: OnceLock<Sha256> = OnceLock::new();
    if let Some(hash) = HERE.get() {
        return Ok(hash.clone());
    }
    let (mut hash, mut known) = (Sha256::new(), true);
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
    let space = |name: &str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{name}"));
        link.map(|link| link.into_os_string().into_encoded_bytes())
    };
    for part in [boot, space("pid"), space("net")] {
        match part {
            Ok(part) => hash.update(part),
            // Without an identity, no process counts as of this host.
            Err(_) => {
                hash.update(random::<32>()?);
                known = false;
            }
        }
        hash.update([0]);
    }
    Ok(if known { HERE.get_or_init(|| hash).clone() } else { hash })
}

/// Returns the identity of this host as text, whatever its label; empty if nothing is known of it.
pub fn host_name() -> String {
    host(None).map_or(String::new(), |host| format!("{:016x}", (host >> 64) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, ip: &str) -> Interface {
        let loopback = if_addrs::get_if_addrs().expect("interfaces").remove(0);
        let addr = match ip.parse().expect("an address") {
            IpAddr::V4(ip) => if_addrs::IfAddr::V4(if_addrs::Ifv4Addr {
                ip,
                netmask: [255, 255, 255, 0].into(),
                prefixlen: 24,
                broadcast: None,
            }),
            IpAddr::V6(ip) => if_addrs::IfAddr::V6(if_addrs::Ifv6Addr {
                ip,
                netmask: ip,
                prefixlen: 64,
                broadcast: None,
            }),
        };
        Interface { name: name.into(), addr, index: Some(7), ..loopback }
    }

    #[test]
    fn an_interface_is_found_by_name_address_or_network() {
        let all = [
            interface("lo", "127.0.0.1"),
            interface("ib0", "fe80::1"),
            interface("ib0", "fd00::1"),
            interface("ib0", "10.1.2.3"),
            interface("eth0", "192.168.7.9"),
            interface("eth1", "fe80::5"),
        ];
        let (four, six) = ("1.2.3.4".parse().expect("v4"), "::1".parse().expect("v6"));
        let cases = [
            ("ib0", four, "10.1.2.3:0"),
            ("ib0", six, "[fd00::1]:0"),
            ("eth0", six, "192.168.7.9:0"),
            ("10.0.0.0/8", four, "10.1.2.3:0"),
            ("192.168.6.0/23", four, "192.168.7.9:0"),
            ("0.0.0.0/0", four, "127.0.0.1:0"),
            ("fd00::/16", four, "[fd00::1]:0"),
            ("192.168.7.9", four, "192.168.7.9:0"),
            ("eth1", four, "[fe80::5%7]:0"),
        ];
        for (wanted, seen, found) in cases {
            let address = pick(wanted, seen, &all).map(|a| a.to_string());
            assert_eq!(address.as_deref(), Some(found), "{wanted}");
        }
        for wanted in ["eth9", "10.2.0.0/16", "10.0.0.0/33", "10.0.0.0/x", "::/200", "", "/"] {
            assert_eq!(pick(wanted, four, &all), None, "{wanted}");
        }
    }

    #[test]
    fn an_unknown_interface_is_an_error_that_lists_the_known() {
        let error =
            choose(Some("nowhere0"), "127.0.0.1".parse().expect("v4")).expect_err("unknown");
        let text = error.to_string();
        assert!(text.contains("`nowhere0`") && text.contains("127.0.0.1"), "{text}");
    }

    #[test]
    fn a_scope_is_a_matter_of_the_host() {
        let parse = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let own = parse("[fe80::1%3]:0");
        assert_eq!(reachable(parse("[fe80::2%9]:40"), own), parse("[fe80::2%3]:40"));
        assert_eq!(reachable(parse("[fd00::2]:40"), own), parse("[fd00::2]:40"));
        assert_eq!(reachable(parse("10.0.0.1:40"), own), parse("10.0.0.1:40"));
    }

    #[test]
    fn this_host_is_itself() {
        assert_eq!(host(None), host(None));
        assert_ne!(host(None), host(Some("another")));
    }
}
