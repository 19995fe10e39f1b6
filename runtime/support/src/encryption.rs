//! The encryption of the connections of a job, as a setting.

use std::fmt;
use std::str::FromStr;

/// The encryption of the connections of a job. Memory that ranks of one host share is inside that host, and never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EncryptionMode {
    /// They are not: a network that others can read needs a tunnel.
    #[default]
    Off,
    /// All are, and none is made with a process that does not encrypt.
    Required,
}

impl EncryptionMode {
    /// The modes, by name.
    pub const ALL: [(&'static str, EncryptionMode); 2] =
        [("off", EncryptionMode::Off), ("required", EncryptionMode::Required)];

    /// Returns true if connections are encrypted.
    pub fn is_required(self) -> bool {
        self == EncryptionMode::Required
    }
}

impl fmt::Display for EncryptionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = EncryptionMode::ALL.iter().find(|(_, mode)| mode == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl FromStr for EncryptionMode {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        EncryptionMode::ALL.iter().find(|(own, _)| *own == name).map(|(_, mode)| *mode).ok_or(())
    }
}
