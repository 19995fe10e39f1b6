//! A join deadline that stands in for a store when ranks rendezvous without one.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use super::Store;
use roundelay_support::error::Error;

/// The deadline of ranks that rendezvous by their handles. As a store it holds no notes.
#[derive(Clone)]
pub struct JoinDeadline<'a> {
    until: Instant,
    timeout: Duration,
    /// The remedy where they do not come.
    remedy: &'static str,
    /// A check for another reason to give up.
    ends: Option<&'a dyn Fn() -> Option<Error>>,
}

impl<'a> JoinDeadline<'a> {
    /// Returns a deadline `timeout` from now, with the remedy for ranks that miss it.
    pub fn new(timeout: Duration, remedy: &'static str) -> Self {
        let now = Instant::now();
        let until = now.checked_add(timeout).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
        JoinDeadline { until, timeout, remedy, ends: None }
    }

    /// Adds another reason to give up: the first error that `ends` returns.
    pub fn or(self, ends: &'a dyn Fn() -> Option<Error>) -> Self {
        JoinDeadline { ends: Some(ends), ..self }
    }

    /// Returns the time that is left.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn over(&self) -> Error {
        let JoinDeadline { timeout, remedy, .. } = self;
        Error::Start(format!(
            "the others did not come within {timeout:?}: {remedy}; if one is only slow, allow more time"
        ))
    }
}

impl Store for JoinDeadline<'_> {
    fn set(&mut self, _: &str, _: &[u8]) -> Result<(), Error> {
        Err(self.over())
    }

    fn get(&mut self, _: &str, _: Instant) -> Result<Vec<u8>, Error> {
        Err(self.over())
    }

    fn address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    }

    fn look(&mut self) -> Option<Error> {
        let ended = self.ends.and_then(|ends| ends());
        ended.or_else(|| self.left().is_zero().then(|| self.over()))
    }

    fn fail(&mut self, error: Error) -> Error {
        error
    }

    fn finish(&mut self, _: Instant) -> Result<(), Error> {
        Ok(())
    }
}
