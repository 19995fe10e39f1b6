//! Messages of other processes as tests and fuzzers see them: samples, and the function that decodes them.

/// A kind of message.
pub struct WireMessage {
    /// The protocol, and the message in it.
    pub name: &'static str,
    /// Messages as they are sent.
    pub samples: Vec<Vec<u8>>,
    /// Reads bytes as such a message, and returns that as it is sent; `None` if they are none.
    pub read: fn(&[u8]) -> Option<Vec<u8>>,
}

/// Returns the bytes as an array of `N`, if there are `N`.
pub fn sized<const N: usize>(bytes: &[u8]) -> Option<&[u8; N]> {
    bytes.try_into().ok()
}

/// Decodes bytes by serde, and encodes the result.
pub(crate) fn again<T: serde::Serialize + serde::de::DeserializeOwned>(
    bytes: &[u8],
) -> Option<Vec<u8>> {
    postcard::to_stdvec(&postcard::from_bytes::<T>(bytes).ok()?).ok()
}
