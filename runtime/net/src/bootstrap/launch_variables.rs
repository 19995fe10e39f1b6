//! The variables that a launcher sets for a process, and what one launcher reports through them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use super::membership::{LauncherKind, StoreAt};
use roundelay_support::error::Error;
use roundelay_support::variables;

/// The variables of a process; an empty one counts as not set, and one that cannot be read is an error.
pub(super) struct LaunchVariables {
    texts: BTreeMap<String, String>,
    /// The names of those whose values are not UTF-8.
    unreadable: BTreeSet<String>,
}

/// The membership that one launcher describes. Its store matters only if the user names no other.
pub(super) struct LaunchReport {
    pub(super) rank: RankNumber,
    pub(super) size: RankNumber,
    pub(super) launcher: LauncherKind,
    pub(super) store: Result<StoreAt, Error>,
}

/// A number and the variable that it came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct RankNumber {
    pub(super) name: &'static str,
    pub(super) value: u32,
}

impl LaunchVariables {
    pub(super) fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let (mut texts, mut unreadable) = (BTreeMap::new(), BTreeSet::new());
        for (name, value) in variables {
            // No launcher sets a variable whose name is not text.
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(text) => drop(texts.insert(name, text)),
                Err(_) => drop(unreadable.insert(name)),
            }
        }
        LaunchVariables { texts, unreadable }
    }

    /// Returns the text of a variable, if it is set.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Error> {
        if self.unreadable.contains(name) {
            return Err(variables::unreadable(name));
        }
        Ok(self.texts.get(name).map(|text| text.trim()).filter(|text| !text.is_empty()))
    }

    /// Returns the text of the first of several variables that is set.
    pub(super) fn first(&self, names: &[&str]) -> Result<Option<&str>, Error> {
        let text = |name: &&str| self.text(name).transpose();
        names.iter().find_map(text).transpose()
    }

    pub(super) fn number(&self, name: &'static str) -> Result<Option<RankNumber>, Error> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.parse() {
            Ok(value) => Ok(Some(RankNumber { name, value })),
            Err(_) => Err(wrong(format!(
                "{name}={text} is not a number from 0 to {}: unset it, or set it to one",
                u32::MAX
            ))),
        }
    }

    /// Returns a pair of variables that only make sense together; the first decides.
    pub(super) fn pair(
        &self,
        rank: &'static str,
        size: &'static str,
    ) -> Result<Option<(RankNumber, RankNumber)>, Error> {
        let Some(rank) = self.number(rank)? else { return Ok(None) };
        let Some(size) = self.number(size)? else {
            return Err(wrong(format!(
                "{}={} is set, but {size} is not: set both, or neither",
                rank.name, rank.value
            )));
        };
        Ok(Some((rank, size)))
    }

    /// Returns the values of `MASTER_ADDR` and `MASTER_PORT`.
    pub(super) fn master(&self) -> Result<Option<(String, u16)>, Error> {
        match (self.text("MASTER_ADDR")?, self.text("MASTER_PORT")?) {
            (Some(host), Some(port)) => match port.parse() {
                Ok(port) if port != 0 => Ok(Some((host.to_owned(), port))),
                _ => Err(wrong(format!(
                    "MASTER_PORT={port} is not a port: set it to a number from 1 to 65535"
                ))),
            },
            (None, None) => Ok(None),
            (Some(host), None) => Err(wrong(format!(
                "MASTER_ADDR={host} is set, but MASTER_PORT is not: set both, or neither"
            ))),
            (None, Some(port)) => Err(wrong(format!(
                "MASTER_PORT={port} is set, but MASTER_ADDR is not: set both, or neither"
            ))),
        }
    }
}

/// Returns the error of an environment that describes no job, or two.
pub(super) fn wrong(text: String) -> Error {
    Error::Start(text)
}
