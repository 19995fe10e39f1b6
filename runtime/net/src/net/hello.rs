//! The messages that two ranks exchange before a connection is accepted.
//!
//! ```text
//!   connecting                               accepting
//!   Hello: version, job, communicator,
//!     ranks, lane, a nonce            --->
//!                                     <---   Reply: Challenge with a nonce     (with a secret only)
//!   proof over hello and Challenge    --->
//!                                     <---   Reply: Accepted, with its own proof, or Refused
//! ```
//!
//! Every message has a fixed length, so neither side reads a byte too far: data may follow at once.
//! On an encrypted connection ([`tls`](crate::tls)) all of it follows the handshake of TLS. One that is in the clear
//! because it does not leave the host says so in its hello, and both proofs cover the host too.
//!
//! A peer that is not asked for a proof must name the job, 128 random bits that ranks get from the
//! rendezvous store. The first ten bytes of a hello and the form of a reply are the same in all versions.

use roundelay_support::secret::{NONCE, PROOF};

/// Version of this exchange and of everything that follows on a connection.
const VERSION: u16 = 4;
const MAGIC: [u8; 8] = *b"rndelay\n";

/// Bytes of a hello.
pub(super) const HELLO: usize = 48 + NONCE;
/// Bytes of a reply.
pub(super) const REPLY: usize = 8 + PROOF;

/// The name of a connection of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectionName {
    /// The job.
    pub(super) job: u128,
    /// The communicator.
    pub(super) comm: u64,
    /// The rank that accepts.
    pub(super) to: u32,
    /// The rank that connects.
    pub(super) from: u32,
    /// A channel for data or [`CONTROL`], with a path ([`lane`]) and, of a connection that carries on
    /// what another one began, [`AGAIN`] and the path that it comes by ([`again`]).
    pub(super) lane: u32,
}

/// The lane of control links.
pub(super) const CONTROL: u32 = 1 << 16;
/// The lane of the shrink protocol ([`shrink`](super::shrink)).
pub(super) const SHRINK: u32 = CONTROL | 1 << 30;
/// The bit of a connection that carries on a stream.
const AGAIN: u32 = 1 << 31;

/// Returns the lane of a channel on a path.
pub(super) fn lane(channel: u16, path: u16) -> u32 {
    u32::from(channel) | u32::from(path) << 17
}

/// Returns the lane of a connection that carries on what this lane began, and comes by that path.
pub(super) fn again(lane: u32, path: usize) -> u32 {
    lane | AGAIN | (path as u32) << 24
}

impl ConnectionName {
    /// Returns true if it carries control messages, not data.
    pub(super) fn is_control(&self) -> bool {
        self.lane & CONTROL != 0
    }

    /// Returns true if it carries on a stream.
    pub(super) fn is_again(&self) -> bool {
        self.lane & AGAIN != 0
    }
}

/// The first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerHello {
    pub(super) name: ConnectionName,
    /// True if the connecting side has a secret and can prove it.
    pub(super) has_secret: bool,
    /// True if the proofs cover the host: the connection is in the clear because it does not leave it.
    pub(super) is_host_bound: bool,
    pub(super) nonce: [u8; NONCE],
}

/// The reason for which a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HelloRefusal {
    /// It does not speak this protocol. It gets no answer.
    Stranger,
    Version,
    Job,
    SecretWanted,
    SecretUnwanted,
    SecretWrong,
    /// The secret is wrong, or the peer is on another host though its address is one of this host.
    HostWrong,
    /// Its certificate is not one of the job, or one side has none.
    CertificateWrong,
    /// The communicator is closed.
    Ended,
    EncryptionWanted,
    EncryptionUnwanted,
}

impl HelloRefusal {
    /// Returns true if the peer did not prove that it knows the secret.
    pub(super) fn is_wrong_proof(self) -> bool {
        matches!(self, HelloRefusal::SecretWrong | HelloRefusal::HostWrong)
    }

    const ALL: [HelloRefusal; 11] = [
        HelloRefusal::Stranger,
        HelloRefusal::Version,
        HelloRefusal::Job,
        HelloRefusal::SecretWanted,
        HelloRefusal::SecretUnwanted,
        HelloRefusal::SecretWrong,
        HelloRefusal::Ended,
        HelloRefusal::EncryptionWanted,
        HelloRefusal::EncryptionUnwanted,
        HelloRefusal::HostWrong,
        HelloRefusal::CertificateWrong,
    ];

    /// Returns the reason and the remedy, in words that fit both sides.
    pub(super) fn text(self) -> &'static str {
        match self {
            HelloRefusal::Stranger => "it does not speak the protocol of ranks",
            HelloRefusal::Version => {
                "the ranks run different versions: install the same version on all hosts"
            }
            HelloRefusal::Job => {
                "it belongs to another job: give each job a rendezvous store of its own"
            }
            HelloRefusal::SecretWanted | HelloRefusal::SecretUnwanted => {
                "one side has a secret and the other has none: give all ranks the same secret"
            }
            HelloRefusal::SecretWrong => "the secrets differ: give all ranks the same secret",
            HelloRefusal::HostWrong => {
                "the secrets differ, or what connects from this host is a relay of another one: give all ranks the \
                 same secret, and the hint `encryption=required` where a tunnel is between"
            }
            HelloRefusal::CertificateWrong => {
                "its certificate is not accepted, or one side has none: see `tls_cert` there, and `tls_ca` and \
                 `tls_name` here"
            }
            HelloRefusal::Ended => "the communicator was closed there",
            HelloRefusal::EncryptionWanted | HelloRefusal::EncryptionUnwanted => {
                "one side encrypts and the other does not: give all ranks the same hint `encryption` and the same secret"
            }
        }
    }
}

/// An answer of the accepting side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HelloReply {
    Challenge([u8; NONCE]),
    /// The connection is accepted, with a proof where there is a secret, else zeros.
    Accepted([u8; PROOF]),
    Refused(HelloRefusal),
}

impl PeerHello {
    pub(super) fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        let ConnectionName { job, comm, to, from, lane } = self.name;
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = self.has_secret.into();
        bytes[11] = self.is_host_bound.into();
        bytes[12..28].copy_from_slice(&job.to_le_bytes());
        bytes[28..36].copy_from_slice(&comm.to_le_bytes());
        bytes[36..40].copy_from_slice(&to.to_le_bytes());
        bytes[40..44].copy_from_slice(&from.to_le_bytes());
        bytes[44..48].copy_from_slice(&lane.to_le_bytes());
        bytes[48..].copy_from_slice(&self.nonce);
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HELLO]) -> Result<PeerHello, HelloRefusal> {
        fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
            std::array::from_fn(|i| bytes[at + i])
        }
        if bytes[..8] != MAGIC {
            return Err(HelloRefusal::Stranger);
        }
        if u16::from_le_bytes(field(bytes, 8)) != VERSION {
            return Err(HelloRefusal::Version);
        }
        let name = ConnectionName {
            job: u128::from_le_bytes(field(bytes, 12)),
            comm: u64::from_le_bytes(field(bytes, 28)),
            to: u32::from_le_bytes(field(bytes, 36)),
            from: u32::from_le_bytes(field(bytes, 40)),
            lane: u32::from_le_bytes(field(bytes, 44)),
        };
        let (has_secret, is_host_bound) = (bytes[10] != 0, bytes[11] != 0);
        Ok(PeerHello { name, has_secret, is_host_bound, nonce: field(bytes, 48) })
    }

    /// Returns true if these bytes can still become a hello.
    pub(super) fn may_begin(bytes: &[u8]) -> bool {
        bytes.iter().zip(MAGIC).all(|(a, b)| *a == b)
    }
}

impl HelloReply {
    pub(super) fn encode(&self) -> [u8; REPLY] {
        let mut bytes = [0; REPLY];
        bytes[..4].copy_from_slice(&MAGIC[..4]);
        match self {
            HelloReply::Challenge(nonce) => {
                bytes[4] = 1;
                bytes[8..].copy_from_slice(nonce);
            }
            HelloReply::Accepted(proof) => {
                bytes[4] = 2;
                bytes[8..].copy_from_slice(proof);
            }
            HelloReply::Refused(why) => {
                bytes[4] = 3;
                bytes[5] = HelloRefusal::ALL.iter().position(|r| r == why).unwrap_or(0) as u8;
            }
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; REPLY]) -> Option<HelloReply> {
        let body = std::array::from_fn(|i| bytes[8 + i]);
        match bytes[4] {
            _ if bytes[..4] != MAGIC[..4] => None,
            1 => Some(HelloReply::Challenge(body)),
            2 => Some(HelloReply::Accepted(body)),
            3 => HelloRefusal::ALL.get(usize::from(bytes[5])).map(|why| HelloReply::Refused(*why)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_decoded_as_sent() {
        let name = ConnectionName {
            job: 1 << 100 | 5,
            comm: 1 << 50,
            to: 3,
            from: 131_071,
            lane: CONTROL,
        };
        let hello = PeerHello { name, has_secret: true, is_host_bound: true, nonce: [7; NONCE] };
        assert_eq!(PeerHello::decode(&hello.encode()), Ok(hello));
        for why in HelloRefusal::ALL {
            let reply = HelloReply::Refused(why);
            assert_eq!(HelloReply::decode(&reply.encode()), Some(reply));
        }
        for reply in [HelloReply::Challenge([3; NONCE]), HelloReply::Accepted([9; PROOF])] {
            assert_eq!(HelloReply::decode(&reply.encode()), Some(reply));
        }
    }

    #[test]
    fn strangers_and_other_versions_are_distinguished() {
        let name = ConnectionName { job: 1, comm: 2, to: 3, from: 4, lane: 5 };
        let mut bytes =
            PeerHello { name, has_secret: false, is_host_bound: false, nonce: [0; NONCE] }.encode();
        assert!(
            PeerHello::may_begin(&bytes)
                && PeerHello::may_begin(b"")
                && PeerHello::may_begin(b"rnd")
        );
        assert!(!PeerHello::may_begin(b"GET / HTTP/1.1"));
        bytes[8] += 1;
        assert_eq!(PeerHello::decode(&bytes), Err(HelloRefusal::Version));
        bytes[0] = 0;
        assert_eq!(PeerHello::decode(&bytes), Err(HelloRefusal::Stranger));
        assert_eq!(HelloReply::decode(&[0; REPLY]), None);
    }
}
