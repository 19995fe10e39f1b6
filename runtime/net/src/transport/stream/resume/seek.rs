//! The search for another connection after a loss, and the return to the home path.

use std::time::{Duration, Instant};

use super::path_connection::{ConnectionStage, PathConnection, ResumeMessage};
use super::reach::DialResult;
use super::{ConnectionLoss, ResumableStream};
use crate::transport::fault::ConnectionFault;
use crate::tunables::{
    HOME_SETTLED_TIME, HOMING_INTERVAL, HOMING_INTERVAL_MAX, OTHER_PATHS_TIMEOUT,
    RESUME_OFFERS_MAX, RESUME_REPLY_TIMEOUT,
};

impl ResumableStream {
    pub(super) fn lose(&mut self, why: ConnectionFault, silent: Option<usize>, now: Instant) {
        if self.lost.is_some() {
            return;
        }
        let (_, pause, stayed) = self.homing;
        let pause = if now - stayed > HOME_SETTLED_TIME {
            HOMING_INTERVAL
        } else {
            (pause * 2).min(HOMING_INTERVAL_MAX)
        };
        self.homing = (now + pause, pause, stayed);
        self.lost = Some(ConnectionLoss { since: now, why, silent });
    }

    /// Dials, or offers to resume on a connection that the peer made.
    pub(super) fn seek_connection(&mut self, now: Instant) {
        let waits = |c: &PathConnection| {
            c.stage == ConnectionStage::Offered && now - c.since < RESUME_REPLY_TIMEOUT
        };
        if self.conns.last().is_some_and(waits) {
            return;
        }
        if self.chooses
            && let Some(at) =
                self.hopes.iter().position(|hope| hope.stage == ConnectionStage::Hoping)
        {
            let hope = self.hopes.swap_remove(at);
            return self.offer(hope, now);
        }
        let Some(lost) = &self.lost else { return };
        let (since, silent) = (lost.since, lost.silent);
        let (mut refused, mut is_there) = (0, false);
        for path in 0..self.troubles.len() {
            let knocked = |hope: &PathConnection| {
                hope.own && hope.path == path && now - hope.since < RESUME_REPLY_TIMEOUT
            };
            if self.hopes.iter().any(knocked) {
                is_there = true;
                continue;
            }
            // A path that was silent may only have been slow: the others have a head start.
            if silent == Some(path) && self.troubles.len() > 1 && now - since < OTHER_PATHS_TIMEOUT
            {
                continue;
            }
            match self.reach.dial(path) {
                DialResult::Waiting { answers, trouble } => {
                    is_there |= answers;
                    if trouble.is_some() {
                        self.troubles[path] = trouble;
                    }
                }
                DialResult::Refused(why) => {
                    refused += 1;
                    self.troubles[path] = Some(why);
                }
                DialResult::Made(carrier) => {
                    let mut conn = PathConnection::new(carrier, path, ConnectionStage::Hoping);
                    conn.own = true;
                    if self.chooses {
                        self.reach.rest();
                        return self.offer(conn, now);
                    }
                    conn.send_message(&ResumeMessage::Knock { number: self.offers });
                    self.hopes.push(conn);
                    is_there = true;
                }
            }
        }
        self.give_up_if_due(now - since, refused, is_there);
    }

    /// Records a fault if the peer refuses, or no path was found in time.
    fn give_up_if_due(&mut self, since: Duration, refused: usize, is_there: bool) {
        let Some(lost) = &self.lost else { return };
        if refused == self.troubles.len() || refused > 0 && !is_there && since > OTHER_PATHS_TIMEOUT
        {
            self.fault = Some(lost.why.clone());
        } else if !is_there && since > self.timeout {
            let named = self.reach.paths().iter().cloned().zip(self.troubles.iter().cloned());
            self.fault = Some(ConnectionFault::NoPath(named.collect()));
        }
    }

    /// Returns to the path that it is at home on, if that works again.
    pub(super) fn go_home(&mut self, now: Instant) {
        let (next, pause, stayed) = self.homing;
        let is_away = self.path().is_some_and(|path| path != self.home);
        if !is_away || now < next || self.conns.len() > RESUME_OFFERS_MAX {
            return;
        }
        match self.reach.dial(self.home) {
            DialResult::Waiting { .. } => {}
            DialResult::Refused(_) => self.homing.0 = now + HOMING_INTERVAL_MAX,
            DialResult::Made(carrier) => {
                self.reach.rest();
                self.homing = (
                    now + pause.max(RESUME_REPLY_TIMEOUT),
                    (pause * 2).min(HOMING_INTERVAL_MAX),
                    stayed,
                );
                self.offer(PathConnection::new(carrier, self.home, ConnectionStage::Hoping), now);
            }
        }
    }
}
