//! Errors of hints.

use roundelay_net::bootstrap::HINTS as VARIABLE;
use roundelay_support::error::{Error, ErrorSource};

/// A hint that is not understood, with the nearest known ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HintError {
    /// There is no such key.
    #[error("no hint is named `{key}`; {near}")]
    Key {
        /// The key.
        key: String,
        /// The nearest key, or all of them, in words.
        near: String,
    },
    /// A key is given twice.
    #[error("the hint `{0}` is given twice")]
    Twice(&'static str),
    /// The key does not have such a value.
    #[error("the hint `{key}={value}` is not understood: {why}; it takes {values}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The reason for which it is refused.
        why: String,
        /// The values that the key has, in words.
        values: &'static str,
    },
    /// No hardware has run what the value asks for, and the build is without the feature `experimental`.
    #[error(
        "the hint `{key}={value}` needs the cargo feature `experimental`, which this build does not have: no hardware \
         has run what it asks for; leave it out, or build with `--features experimental` (docs/hints.md)"
    )]
    Experimental {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
    },
    /// A part of a text of hints is no pair.
    #[error("`{0}` is no hint: write key=value")]
    NoPair(String),
    /// The hints of the environment are wrong.
    #[error("{VARIABLE}: {0}")]
    Environment(#[source] Box<HintError>),
    /// The environment variable is not UTF-8.
    #[error("{VARIABLE} is not text")]
    NoText,
}

impl From<HintError> for Error {
    fn from(error: HintError) -> Self {
        Error::Settings { text: error.to_string(), source: Some(ErrorSource::new(error)) }
    }
}

/// The reason for which a key does not take a value.
pub(super) struct ValueError(pub(super) String);

impl From<&str> for ValueError {
    fn from(why: &str) -> Self {
        ValueError(why.into())
    }
}

impl From<String> for ValueError {
    fn from(why: String) -> Self {
        ValueError(why)
    }
}
