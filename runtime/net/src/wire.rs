//! Messages that come from other processes, as tests and fuzzers see them: bytes, and what reads them.

/// A kind of message.
pub struct Wire {
    /// The protocol, and the message in it.
    pub name: &'static str,
    /// Messages as they are sent.
    pub samples: Vec<Vec<u8>>,
    /// Reads bytes as such a message, and returns that as it is sent; `None` if they are none.
    pub read: fn(&[u8]) -> Option<Vec<u8>>,
}

/// Returns the bytes as so many, if they are.
pub fn sized<const N: usize>(bytes: &[u8]) -> Option<&[u8; N]> {
    bytes.try_into().ok()
}

/// Reads bytes by serde, and writes them again.
pub fn again<T: serde::Serialize + serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<Vec<u8>> {
    postcard::to_stdvec(&postcard::from_bytes::<T>(bytes).ok()?).ok()
}
