//! Unique ids: where the ranks of a communicator meet, and the secret by which they know each other.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use sha2::{Digest, Sha256};

use crate::failure::{CallFailure, Outcome};

/// The version of NCCL whose interface this is: 2.28.9.
pub(crate) const VERSION: i32 = 22809;
/// Bytes of a unique id.
pub(crate) const BYTES: usize = 128;
/// The beginning of every unique id of ours.
const MAGIC: [u8; 8] = *b"rlnccl\x00\x01";
/// The most addresses that an id has room for.
pub(crate) const MOST: usize = 3;
/// Bytes of an address: IPv6, or IPv4 as a part of it, and the port.
const ADDRESS: usize = 18;
/// The offset of the number of addresses; they follow it.
const COUNT: usize = 56;

/// Whatever names one note among those of a board.
pub(crate) type Token = [u8; 16];

/// A unique id, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ParsedId {
    /// The name of the note that rank 0 leaves.
    pub(crate) token: Token,
    /// The secret that ranks prove to know.
    pub(crate) secret: [u8; 32],
    /// The places of the board, the best first.
    pub(crate) places: Vec<SocketAddr>,
}

impl std::fmt::Debug for ParsedId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Id").field("places", &self.places).finish_non_exhaustive()
    }
}

impl ParsedId {
    /// Makes an id for a board at these places.
    pub(crate) fn new(places: Vec<SocketAddr>) -> Outcome<Self> {
        let mut bytes = [0; 48];
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        if got != Ok(bytes.len()) {
            return Err(CallFailure::system("the system gave no random bytes"));
        }
        let (token, secret) = bytes.split_at(16);
        let mut id = ParsedId { token: [0; 16], secret: [0; 32], places };
        id.token.copy_from_slice(token);
        id.secret.copy_from_slice(secret);
        Ok(id)
    }

    /// Returns the id of a communicator that is made of another one, whose ranks all know `secret` and say `what`; its
    /// ranks meet at these places.
    pub(crate) fn derived(secret: &[u8; 32], what: &[u8], places: Vec<SocketAddr>) -> Self {
        let digest = |label: &[u8]| -> [u8; 32] {
            let mut hash = Sha256::new();
            [label, secret, what].into_iter().for_each(|part| hash.update(part));
            hash.finalize().into()
        };
        let mut token = [0; 16];
        token.copy_from_slice(&digest(b"roundelay token ")[..16]);
        ParsedId { token, secret: digest(b"roundelay secret"), places }
    }

    /// Returns the id whose secret takes a given one too.
    pub(crate) fn with_secret(&self, given: &[u8]) -> Self {
        let given = Sha256::digest(given);
        ParsedId {
            secret: ParsedId::derived(&self.secret, &given, Vec::new()).secret,
            ..self.clone()
        }
    }

    /// Returns the secret as text.
    pub(crate) fn spelled(&self) -> String {
        self.secret.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the bytes by which callers pass it on.
    pub(crate) fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.token);
        bytes[24..COUNT].copy_from_slice(&self.secret);
        let places = encode(&self.places);
        bytes[COUNT..COUNT + places.len()].copy_from_slice(&places);
        bytes
    }

    /// Decodes what [`ParsedId::bytes`] made.
    pub(crate) fn decode(bytes: &[u8; BYTES]) -> Outcome<Self> {
        if bytes[..8] != MAGIC {
            return Err(CallFailure::argument(
                "this is no unique id of this library: pass on all 128 bytes that ncclGetUniqueId of \
                 libroundelay_nccl.so gave; all ranks must use that library",
            ));
        }
        let mut id = ParsedId { token: [0; 16], secret: [0; 32], places: Vec::new() };
        id.token.copy_from_slice(&bytes[8..24]);
        id.secret.copy_from_slice(&bytes[24..COUNT]);
        id.places = decode(&bytes[COUNT..]).ok_or_else(|| {
            CallFailure::argument("this unique id is damaged: it names no address")
        })?;
        Ok(id)
    }
}

/// Bytes of the places of a board.
pub(crate) const PLACES: usize = 1 + MOST * ADDRESS;

/// Encodes the places of a board.
pub(crate) fn encode(places: &[SocketAddr]) -> [u8; PLACES] {
    let mut bytes = [0; PLACES];
    let places = &places[..places.len().min(MOST)];
    bytes[0] = places.len() as u8;
    for (at, place) in bytes[1..].chunks_exact_mut(ADDRESS).zip(places) {
        let ip = match place.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        at[..16].copy_from_slice(&ip.octets());
        at[16..].copy_from_slice(&place.port().to_be_bytes());
    }
    bytes
}

/// Decodes the places of a board; there is one at least.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<SocketAddr>> {
    let (count, rest) = bytes.split_first()?;
    let count = usize::from(*count);
    if !(1..=MOST).contains(&count) || rest.len() < count * ADDRESS {
        return None;
    }
    let places = rest.chunks_exact(ADDRESS).take(count).map(|at| {
        let (ip, port) = at.split_at(16);
        let ip = Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?).to_canonical();
        let port = u16::from_be_bytes(port.try_into().ok()?);
        (port != 0).then_some(SocketAddr::new(ip, port))
    });
    places.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn an_id_says_where_and_proves_who() {
        for texts in
            [&["10.1.2.3:4000"][..], &["[2001:db8::7]:1", "192.0.2.1:2", "127.0.0.1:65535"]]
        {
            let id = ParsedId::new(places(texts)).expect("random bytes");
            assert_eq!(ParsedId::decode(&id.bytes()), Ok(id.clone()));
            assert_ne!(ParsedId::new(places(texts)), Ok(id));
        }
    }

    #[test]
    fn a_damaged_id_is_refused() {
        let good = ParsedId::new(places(&["10.1.2.3:4000"])).expect("random bytes").bytes();
        for (at, to) in [(0, 0), (7, 2), (COUNT, 0), (COUNT, 4)] {
            let mut bytes = good;
            bytes[at] = to;
            assert!(ParsedId::decode(&bytes).is_err(), "byte {at} is {to}");
        }
        let mut bytes = good;
        bytes[COUNT + 17..COUNT + 19].copy_from_slice(&[0, 0]);
        assert!(ParsedId::decode(&bytes).is_err(), "port 0");
        assert!(ParsedId::decode(&[0; BYTES]).is_err());
    }

    #[test]
    fn derived_ids_depend_on_all_that_is_said() {
        let at = places(&["10.1.2.3:4000"]);
        let id = |secret: u8, what: &[u8]| ParsedId::derived(&[secret; 32], what, at.clone());
        assert_eq!(id(1, b"a"), id(1, b"a"));
        assert_ne!(id(1, b"a"), id(2, b"a"));
        assert_ne!(id(1, b"a"), id(1, b"b"));
        assert_ne!(id(1, b"a").token, id(1, b"a").secret[..16]);
    }

    #[test]
    fn a_secret_is_not_printed() {
        let id = ParsedId::derived(&[0xab; 32], b"", places(&["10.1.2.3:4000"]));
        assert!(
            !format!("{id:?}").contains(&id.spelled()) && !format!("{id:?}").contains("secret:")
        );
    }
}
