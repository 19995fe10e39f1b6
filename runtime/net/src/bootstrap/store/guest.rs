//! A guest of a store or a reporter: a connection that is no rank of the job.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use super::client::{EntryFailure, StoreClient};
use super::job::GuestTrust;
use super::protocol::{StoreRequest, StoreVerdict};
use super::stream::StoreAddress;
use crate::tunables::GUEST_CULPRIT_TIMEOUT;
use roundelay_support::abort::AbortRecord;

/// A connection to a store or a reporter that was let in as a guest.
pub struct StoreGuest(StoreClient);

/// The reason for which a guest was refused or got no answer.
#[derive(Debug)]
pub enum GuestRefusal {
    /// Nothing listens there.
    NotListening,
    /// Nothing answers there.
    Silent(io::Error),
    /// A program answers that is no store of roundelay.
    Other(String),
    /// The store does not let it in, or does not answer: the reason.
    Refused(String),
}

impl StoreGuest {
    /// Enters by one try.
    pub fn enter(
        at: StoreAddress,
        job: &str,
        trust: GuestTrust<'_>,
        timeout: Duration,
    ) -> Result<StoreGuest, GuestRefusal> {
        let failed = |failed| match failed {
            EntryFailure::Never(why) => GuestRefusal::Refused(why),
            EntryFailure::Again(why, None) => GuestRefusal::Other(why),
            EntryFailure::Again(why, Some(error)) => match error.kind() {
                ErrorKind::ConnectionRefused => GuestRefusal::NotListening,
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    GuestRefusal::Other(why)
                }
                _ => GuestRefusal::Silent(error),
            },
        };
        StoreClient::visit(at, job, trust, timeout).map(StoreGuest).map_err(failed)
    }

    /// Returns a note, if it is there before the deadline.
    pub fn note(&mut self, key: &str, until: Instant) -> Result<Option<Vec<u8>>, GuestRefusal> {
        self.asked(StoreRequest::Get, &[key.as_bytes()], until)
    }

    /// Returns the text of the store about the missing ranks.
    pub fn who(&mut self) -> Result<Option<String>, GuestRefusal> {
        let words = self.asked(StoreRequest::Who, &[], Instant::now() + GUEST_CULPRIT_TIMEOUT)?;
        Ok(words.map(|words| String::from_utf8_lossy(&words).into_owned()))
    }

    /// Returns the report of a reporter, if it comes before the deadline.
    pub fn report(&mut self, until: Instant) -> Result<Option<Vec<u8>>, GuestRefusal> {
        self.asked(StoreRequest::Report, &[], until)
    }

    /// Returns the first failure of the job, if the store has reported one.
    pub fn failure(&self) -> Option<&AbortRecord> {
        self.0.failure()
    }

    fn asked(
        &mut self,
        op: StoreRequest,
        parts: &[&[u8]],
        until: Instant,
    ) -> Result<Option<Vec<u8>>, GuestRefusal> {
        match self.0.ask(op, parts, until) {
            Ok(Some((StoreVerdict::Ok, body))) => Ok(Some(body)),
            Ok(Some(_)) => Err(GuestRefusal::Refused("its answer is larger than a message".into())),
            Ok(None) => Ok(None),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(e) => Err(GuestRefusal::Other(e.to_string())),
        }
    }
}
