//! Answers the messages of a connection at a store: its handshake, then its requests.

use std::time::Instant;

use rustix::event::epoll;

use super::protocol::{
    CHALLENGE, DamagedFrame, FRAME_HEAD, GUEST, HELLO, MAX_FRAME, ROSTER, StoreFrame, StoreHello,
    StoreRequest, StoreVerdict, failure, failure_body, frame, key, key_and_value, push_frame,
};
use super::session::{BrokenSession, SessionStage};
use super::state::{RankState, StoreState};
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::secret::{JobSecret, PROOF, ProofSide, accepts, proof};
use roundelay_tls::{SecureError, host_binding};

impl StoreState {
    /// Reads from and writes to a connection as long as that gets on.
    pub(super) fn serve(&mut self, token: u64) -> Result<(), BrokenSession> {
        loop {
            let Some(session) = self.sessions.get_mut(&token) else { return Ok(()) };
            if matches!(session.stage, SessionStage::Securing) && !session.last {
                let secret = JobSecret::from(self.job.secret.clone());
                let certificates = self.job.certificates.as_ref();
                match session.secure(&secret, self.job.encryption, certificates) {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(error) => return self.count_insecure(token, &error),
                }
                continue;
            }
            let open = if session.output.is_empty() { session.receive()? } else { true };
            self.answer(token)?;
            if !open {
                return Err(BrokenSession);
            }
            // What was decrypted and had no room is not shown by the descriptor.
            let more = self.sessions.get(&token).filter(|session| session.output.is_empty());
            if !more.is_some_and(|session| !session.is_full() && session.stream.has_input()) {
                return Ok(());
            }
        }
    }

    /// Counts a wrong proof on a connection that was to be encrypted, and ends it.
    fn count_insecure(&mut self, token: u64, error: &SecureError) -> Result<(), BrokenSession> {
        if matches!(error, SecureError::Unproved)
            && let Some(from) = self.sessions.get(&token).and_then(|session| session.from)
        {
            self.guesses.count(from, Instant::now(), self.job.limits().port);
        }
        Err(BrokenSession)
    }

    /// Takes what has come in full, as long as the answers find their way out.
    fn answer(&mut self, token: u64) -> Result<(), BrokenSession> {
        loop {
            let Some(session) = self.sessions.get_mut(&token) else { return Ok(()) };
            let flushed = session.flush()?;
            let flags = if flushed { epoll::EventFlags::IN } else { epoll::EventFlags::OUT };
            epoll::modify(&self.poll, &session.stream, epoll::EventData::new_u64(token), flags)
                .map_err(|_| BrokenSession)?;
            if flushed && session.last {
                return Err(BrokenSession);
            }
            if !flushed || !self.step(token)? {
                return Ok(());
            }
        }
    }

    /// Takes one message. `false` if none is complete.
    fn step(&mut self, token: u64) -> Result<bool, BrokenSession> {
        let Some(session) = self.sessions.get_mut(&token) else { return Ok(false) };
        match session.stage {
            SessionStage::Securing => Ok(false),
            SessionStage::Hello => session.challenge(),
            SessionStage::Proof { hello, challenge } => {
                let Some(proof) = session.take::<PROOF>() else { return Ok(false) };
                self.admit(token, &hello, &challenge, &proof).map(|()| true)
            }
            SessionStage::Rank(rank) => {
                let is_full = session.is_full();
                let input = std::mem::take(&mut session.input);
                let (taken, result) = match frame(&input[session.taken..]) {
                    // A guest's has no room.
                    Ok(None) if is_full => (0, Err(BrokenSession)),
                    Err(DamagedFrame) => (0, Err(BrokenSession)),
                    Ok(None) => (0, Ok(false)),
                    Ok(Some(StoreFrame { head, number, body, whole })) => {
                        let op = StoreRequest::from_byte(head).ok_or(BrokenSession)?;
                        (whole, self.request(token, rank, op, number, body).map(|()| true))
                    }
                };
                if let Some(session) = self.sessions.get_mut(&token) {
                    session.input = input;
                    session.taken += taken;
                }
                result
            }
        }
    }

    /// Lets a client in that answered the challenge, or refuses it.
    fn admit(
        &mut self,
        token: u64,
        hello: &[u8; HELLO],
        challenge: &[u8; CHALLENGE],
        theirs: &[u8],
    ) -> Result<(), BrokenSession> {
        let StoreHello { rank, size, job, is_host_bound, .. } =
            StoreHello::read(hello).ok_or(BrokenSession)?;
        let session = self.sessions.get(&token).ok_or(BrokenSession)?;
        // A client in the clear has said why, and that must be this side's reason.
        let is_bound_here =
            self.job.encryption == EncryptionMode::Auto && !session.stream.is_encrypted();
        let binding = if is_host_bound { host_binding() } else { &[] };
        let transcript: [&[u8]; 3] = [hello, challenge, binding];
        let verdict = if !accepts(&self.job.secret, theirs, ProofSide::Connecting, &transcript) {
            StoreVerdict::Secret
        } else if is_host_bound != is_bound_here {
            StoreVerdict::Mode
        } else if job != self.job.digest {
            StoreVerdict::Job
        } else if rank == GUEST {
            StoreVerdict::Ok
        } else if size != self.job.size || rank >= size {
            StoreVerdict::Size
        } else if !matches!(self.ranks.get(&rank), None | Some(RankState::Gone)) {
            StoreVerdict::Taken
        } else {
            StoreVerdict::Ok
        };
        if verdict == StoreVerdict::Secret
            && let Some(from) = self.sessions.get(&token).and_then(|session| session.from)
        {
            self.guesses.count(from, Instant::now(), self.job.limits().port);
        }
        let own = match verdict {
            // Nothing that could be tried out against the secret.
            StoreVerdict::Secret => [0; PROOF],
            _ => proof(&self.job.secret, ProofSide::Accepting, &transcript),
        };
        let session = self.sessions.get_mut(&token).ok_or(BrokenSession)?;
        session.output.push(verdict as u8);
        session.output.extend_from_slice(&self.job.size.to_le_bytes());
        session.output.extend_from_slice(&own);
        if verdict == StoreVerdict::Ok {
            session.stage = SessionStage::Rank(rank);
            // A guest stays a stranger: without a secret anyone can be one.
            if rank != GUEST {
                self.strangers.remove(&token);
                self.set_rank(rank, RankState::Here(token));
                self.note_host(token);
            }
            if let Some(failure) = &self.failure {
                let body = failure_body(failure);
                self.push_reply(token, StoreVerdict::Failed, 0, &body);
            }
        } else {
            session.last = true;
        }
        Ok(())
    }

    fn request(
        &mut self,
        token: u64,
        rank: u32,
        op: StoreRequest,
        number: u32,
        body: &[u8],
    ) -> Result<(), BrokenSession> {
        // A guest only reads: it leaves no note, counts as no rank, and ends nothing.
        // Of the notes it may read the one that is meant for guests: others let their reader connect to ranks.
        let is_for_guests = match op {
            StoreRequest::Get => body == ROSTER.as_bytes(),
            StoreRequest::Who | StoreRequest::Here | StoreRequest::Report => true,
            StoreRequest::Set | StoreRequest::Finish | StoreRequest::Fail => false,
        };
        if rank == GUEST && !is_for_guests {
            return Err(BrokenSession);
        }
        match op {
            StoreRequest::Set => {
                let (key, value) = key_and_value(body).ok_or(BrokenSession)?;
                self.sessions.get_mut(&token).ok_or(BrokenSession)?.spoke = true;
                let verdict = self.set(key, value);
                self.push_reply(token, verdict, number, b"");
            }
            StoreRequest::Get => {
                let key = key(body).ok_or(BrokenSession)?;
                if let Some(value) = self.values.get(&key) {
                    let session = self.sessions.get_mut(&token).ok_or(BrokenSession)?;
                    push_frame(&mut session.output, StoreVerdict::Ok as u8, number, &[value]);
                } else {
                    self.wait(token, number, key)?;
                }
            }
            StoreRequest::Finish => {
                let session = self.sessions.get_mut(&token).ok_or(BrokenSession)?;
                (session.finish, session.spoke) = (Some(number), true);
                self.set_rank(rank, RankState::Done(token));
                if self.all_done() {
                    self.end_wait();
                }
            }
            StoreRequest::Fail => {
                self.fail(failure(body).filter(|f| f.rank < self.job.size).ok_or(BrokenSession)?);
                let first = self.failure.as_ref().map(failure_body).unwrap_or_default();
                self.push_reply(token, StoreVerdict::Ok, number, &first);
            }
            StoreRequest::Who => self.inquire(token, rank, number),
            StoreRequest::Report => {
                let report = self.job.report.filter(|_| rank == GUEST).ok_or(BrokenSession)?();
                // To make it takes time, of which a guest has one report's.
                self.sessions.get_mut(&token).ok_or(BrokenSession)?.last = true;
                match report.len() <= MAX_FRAME - FRAME_HEAD {
                    true => self.push_reply(token, StoreVerdict::Ok, number, &report),
                    false => self.push_reply(token, StoreVerdict::Full, number, b""),
                }
            }
            StoreRequest::Here => {
                if let Some(inquiry) = &mut self.inquiry {
                    inquiry.silent.remove(&rank);
                }
            }
        }
        Ok(())
    }
}
