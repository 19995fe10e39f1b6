//! Hints: the wishes of users for collectives, as pairs of strings, checked at once.
//!
//! [`TABLE`] has one row a key: its values, its meaning, and its parser. Parsing, error messages and
//! `docs/hints.md` come from it. An unknown key or value is an error that lists the near ones, never
//! ignored.
//!
//! Hints come from three levels: the call, the communicator, the environment (`ROUNDELAY_HINTS`).
//! [`MergedHints`] merges them key by key, the nearest level first, and records the level of each.
//!
//! | file | holds |
//! |---|---|
//! | `values.rs` | the hints of one level, and the types of their values |
//! | `error.rs` | the errors of hints |
//! | `experimental.rs` | values that only builds with the feature `experimental` accept |
//! | `table.rs` | the table of keys, and the parsers of their values |
//! | `pairs.rs` | hints from pairs, texts and the environment |
//! | `merged.rs` | the levels, merged |

mod error;
mod experimental;
mod merged;
mod pairs;
mod table;
mod values;

pub use error::HintError;
pub use experimental::{EXPERIMENTAL, check_protocol};
pub use merged::{HintLevel, MergedHints};
pub use table::{HintKey, TABLE};
pub use values::{ChoiceObjective, Hints, LossyType, OnFailure, SuspendedCalls};

/// The environment variable that holds hints for everything in a process: `key=value,key=value`.
pub use roundelay_net::bootstrap::HINTS as VARIABLE;

#[cfg(test)]
mod tests;
