//! The tunables of this package. `roundelay_support::tunables` has what they are, and their macro.

use roundelay_support::tunables;

tunables! {
    /// The bytes of a peer that are read before it has proved that it knows the secret on an encrypted connection: a
    /// handshake has a quarter of these.
    pub(crate) const TLS_HANDSHAKE_BYTES_MAX: usize = 4 << 10;
    /// The records that are read from a socket at one time: four of the longest.
    pub(crate) const TLS_READ_BYTES: usize = 64 << 10;
    /// The bytes that are encrypted before they are handed to the system: what does not fit waits encrypted.
    pub(crate) const TLS_WRITE_BYTES: usize = 64 << 10;
    /// The records that a side seals under one key of an encrypted connection: AES-GCM is sound for more than twice as many
    /// (RFC 8446, 5.5).
    pub(crate) const TLS_KEY_RECORDS: u64 = 8 << 20;
}
