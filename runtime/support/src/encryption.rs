//! The encryption of the connections of a job, as a setting.

use std::fmt;
use std::str::FromStr;

/// The encryption of the connections of a job. Memory that ranks of one host share is inside that host, and never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EncryptionMode {
    /// They are not: a network that others can read needs a tunnel.
    Off,
    /// Those between hosts are, in a job that has a secret; none is without.
    #[default]
    Auto,
    /// All are, and none is made with a process that does not encrypt.
    Required,
}

impl EncryptionMode {
    /// The modes, by name.
    pub const ALL: [(&'static str, EncryptionMode); 3] = [
        ("off", EncryptionMode::Off),
        ("auto", EncryptionMode::Auto),
        ("required", EncryptionMode::Required),
    ];

    /// Returns true if every connection is encrypted.
    pub fn is_required(self) -> bool {
        self == EncryptionMode::Required
    }

    /// Returns the mode of a job that has a secret or has none: without one, [`EncryptionMode::Auto`] encrypts nothing.
    #[must_use]
    pub fn with_secret(self, has_secret: bool) -> EncryptionMode {
        match self {
            EncryptionMode::Auto if !has_secret => EncryptionMode::Off,
            mode => mode,
        }
    }

    /// Returns true if a connection within a host, or between hosts, is encrypted, in a job that has a secret.
    pub fn covers(self, is_within_host: bool) -> bool {
        match self {
            EncryptionMode::Off => false,
            EncryptionMode::Auto => !is_within_host,
            EncryptionMode::Required => true,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_covers_what_it_says() {
        for (mode, has_secret, within, between) in [
            (EncryptionMode::Off, true, false, false),
            (EncryptionMode::Auto, true, false, true),
            (EncryptionMode::Auto, false, false, false),
            (EncryptionMode::Required, true, true, true),
            (EncryptionMode::Required, false, true, true),
        ] {
            let settled = mode.with_secret(has_secret);
            assert_eq!((settled.covers(true), settled.covers(false)), (within, between), "{mode}");
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!("tls".parse::<EncryptionMode>(), Err(()));
        assert_eq!(EncryptionMode::default(), EncryptionMode::Auto);
    }
}
