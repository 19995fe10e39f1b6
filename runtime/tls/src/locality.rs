//! Which connections stay within this host, and what proves it.
//!
//! The addresses of a connection decide: the system delivers nothing from outside under an address of its own. A
//! process of another user on each of two hosts could still join two such connections over a network. So the proofs of
//! a connection that stays in the clear for that reason cover [`host_binding`], which differs between hosts.

use std::net::SocketAddr;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

/// Returns true if a connection between these addresses does not leave this host.
pub(crate) fn is_within_host(local: SocketAddr, peer: SocketAddr) -> bool {
    let (local, peer) = (local.ip().to_canonical(), peer.ip().to_canonical());
    !host_binding().is_empty() && (peer.is_loopback() || local == peer)
}

/// Returns bytes that the processes of one start of one machine have who share its network, and no others; none where
/// the system does not say: then no connection counts as within the host.
pub fn host_binding() -> &'static [u8] {
    static BINDING: OnceLock<Option<[u8; 32]>> = OnceLock::new();
    let read = || {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
        let network = std::fs::read_link("/proc/self/ns/net").ok()?;
        let mut hash = Sha256::new();
        for part in [&b"roundelay host"[..], &boot, network.as_os_str().as_encoded_bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Some(hash.finalize().into())
    };
    BINDING.get_or_init(read).as_ref().map_or(&[], |bytes| &bytes[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_are_told_from_others() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let has_identity = !host_binding().is_empty();
        for (local, peer, is_within) in [
            ("127.0.0.1:1", "127.0.0.1:2", true),
            ("[::1]:1", "[::1]:2", true),
            ("10.0.0.1:1", "10.0.0.1:2", true),
            ("[::ffff:10.0.0.1]:1", "10.0.0.1:2", true),
            ("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.2]:2", true),
            ("10.0.0.1:1", "10.0.0.2:2", false),
            ("[fd00::1]:1", "[fd00::2]:2", false),
        ] {
            let found = super::is_within_host(at(local), at(peer));
            assert_eq!(found, is_within && has_identity, "{local} {peer}");
        }
    }
}
