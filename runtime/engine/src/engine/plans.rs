//! The plans of calls by name, and the settings that choose them: hints, installed algorithms, the library.

use std::sync::Arc;

use roundelay_algorithms::CatalogueEntry;
use roundelay_compiler::Plan;

use super::recent::RecentList;
use crate::choose::ChoiceResolver;
use crate::custom::Algorithm;
use crate::hints::Hints;
use crate::operation::NamedCall;
use roundelay_support::error::Error;

/// The plans of a communicator, and the settings that choose them.
#[derive(Debug, Default)]
pub struct PlanTable {
    /// Plans by call.
    pub(super) calls: RecentList<(NamedCall, Arc<Plan>), 256>,
    /// A number that grows when what decides the plans of calls changes.
    pub(super) version: u64,
    /// Algorithms of the library that were chosen before, by path.
    library: Vec<((&'static str, &'static str), Algorithm)>,
    /// The hints of the communicator, and those of the call in progress.
    pub(super) hints: Hints,
    pub(super) call: Option<Arc<Hints>>,
    pub(super) resolver: Option<ChoiceResolver>,
    /// The installed algorithms, by collective.
    pub(super) installed: Vec<(String, Algorithm)>,
    /// Those that that many ranks cannot run, and the reasons.
    pub(super) resting: Vec<(String, Algorithm, String)>,
    /// Remarks on algorithms that were installed, for explanations of a choice.
    pub(super) dropped: Option<String>,
}

impl PlanTable {
    /// Returns true if the calls made now bring hints of their own.
    #[inline]
    pub fn is_hinted(&self) -> bool {
        self.call.is_some()
    }

    /// Sets the hints of the calls that follow, until others are given.
    pub fn hint_calls(&mut self, hints: Option<Arc<Hints>>) {
        self.call = hints;
    }

    /// Returns an algorithm of the library, read once.
    pub fn of_library(&mut self, entry: &CatalogueEntry) -> Result<Algorithm, Error> {
        if let Some((_, known)) =
            self.library.iter().find(|(key, _)| *key == (entry.path, entry.name))
        {
            return Ok(known.clone());
        }
        let algorithm = Algorithm::of_library(entry)?;
        self.library.push(((entry.path, entry.name), algorithm.clone()));
        Ok(algorithm)
    }

    /// Returns the hints that hold for calls made now.
    pub fn merged_hints(&mut self) -> Result<Hints, Error> {
        let call = self.call.as_deref().cloned().unwrap_or_default();
        let own = self.hints.clone();
        let resolver = match &mut self.resolver {
            Some(resolver) => resolver,
            none => none.insert(ChoiceResolver::from_env()?),
        };
        Ok(resolver.merged(&call, &own).hints().clone())
    }

    /// Returns true if the hint `deterministic` holds for calls made now.
    pub(super) fn is_deterministic(&mut self) -> Result<bool, Error> {
        let call = self.call.as_deref().and_then(Hints::deterministic);
        match call.or(self.hints.deterministic()) {
            Some(given) => Ok(given),
            None => Ok(self.merged_hints()?.deterministic() == Some(true)),
        }
    }

    /// Sets the hints of the communicator.
    pub fn set_hints(&mut self, hints: Hints) {
        self.hints = hints;
        self.forget();
    }

    /// Forgets the plans of calls: what decides them has changed.
    pub(super) fn forget(&mut self) {
        self.calls.clear();
        self.version += 1;
    }

    /// Returns a number that grows when what decides the plans of calls changes, but for hints of single calls.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the hints of the communicator.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }

    /// Says what became of what was installed for a collective when the ranks changed.
    pub(super) fn remarks<'a>(&'a self, collective: &'a str) -> impl Iterator<Item = String> + 'a {
        let resting = self.resting.iter().filter(move |(c, ..)| c == collective);
        let resting = resting.map(|(_, algorithm, why)| {
            format!("{algorithm}, which was installed, rests: these ranks cannot run it: {why}")
        });
        resting.chain(self.dropped.clone())
    }

    pub(super) fn installed(&self, collective: &str) -> Option<&Algorithm> {
        self.installed.iter().find(|(c, _)| c == collective).map(|(_, algorithm)| algorithm)
    }
}
