//! The addresses of this host by which ranks on other hosts reach it.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::stream::StoreAddress;

/// Returns the address of this host for others: the one that it reaches the store from. If that is a loopback
/// address although the store's is not (a host that calls its own name so), it is the one that it would reach
/// the rest of the world from.
pub(crate) fn reachable(own: IpAddr, at: &StoreAddress) -> IpAddr {
    if own.is_loopback() && !at.is_loopback() { outward().unwrap_or(own) } else { own }
}

/// Returns the address that this host would reach the rest of the world from, or else one of its interfaces, if it has
/// any that others may know.
pub fn outward() -> Option<IpAddr> {
    host_addresses().first().copied()
}

/// Returns the addresses of this host that others may know, the likeliest first: the one that it would reach the rest
/// of the world from, and those of its interfaces.
pub fn host_addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let far = |i: &if_addrs::Interface| !i.is_loopback() && !i.is_link_local();
    let mut others: Vec<IpAddr> = interfaces.iter().filter(|i| far(i)).map(|i| i.ip()).collect();
    others.sort_by_key(|ip| !ip.is_ipv4());
    let mut all: Vec<IpAddr> = Vec::new();
    for ip in route_outward().into_iter().chain(others) {
        if !all.contains(&ip) {
            all.push(ip);
        }
    }
    all
}

/// Returns the address that this host would reach the rest of the world from, if there is a way.
fn route_outward() -> Option<IpAddr> {
    // Connecting such a socket sends nothing; it only looks the way up. The addresses are those
    // that are reserved for documentation.
    let ways: [(&str, &str); 2] = [("0.0.0.0:0", "198.51.100.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    ways.into_iter().find_map(|(from, to)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to.parse::<SocketAddr>().ok()?).ok()?;
        let own = socket.local_addr().ok()?.ip();
        (!own.is_loopback() && !own.is_unspecified()).then_some(own)
    })
}
