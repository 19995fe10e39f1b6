//! The amount of data that a call moved.

/// The amount of data that a call moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallStats {
    /// The number of times that the plan was executed, each time on a part of every chunk.
    pub passes: u32,
    /// Messages sent.
    pub messages: u64,
    /// The messages, of these, whose content was not copied on its way out.
    pub pulled: u64,
    /// Bytes of content sent.
    pub bytes: u64,
}
