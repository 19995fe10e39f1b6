//! The state of suspension of a rank: calls are made, refused, or resume it.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::messages::suspended_error;
use roundelay_support::error::Error;

/// Calls are made.
pub(super) const ACTIVE: u8 = 0;
/// Calls are refused.
pub(super) const REFUSING: u8 = 1;
/// The first call resumes the rank.
pub(super) const RESUMING: u8 = 2;

/// The state of suspension of a rank. The thread that makes calls alone changes it.
#[derive(Debug, Default)]
pub(super) struct SuspensionState(AtomicU8);

impl SuspensionState {
    /// Fails if calls are refused. A call that is not refused resumes the rank.
    #[inline]
    pub(super) fn admit_call(&self) -> Result<(), Error> {
        match self.0.load(Ordering::Relaxed) {
            ACTIVE => Ok(()),
            RESUMING => {
                self.0.store(ACTIVE, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(suspended_error()),
        }
    }

    /// Changes the state; returns the one before.
    pub(super) fn replace(&self, state: u8) -> u8 {
        self.0.swap(state, Ordering::Relaxed)
    }

    /// Returns true if calls are refused.
    pub(super) fn refuses(&self) -> bool {
        self.0.load(Ordering::Relaxed) == REFUSING
    }

    /// Returns true unless it is suspended.
    pub(super) fn is_active(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ACTIVE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_refused_or_resumes() {
        let state = SuspensionState::default();
        assert_eq!(state.admit_call(), Ok(()));
        state.replace(REFUSING);
        assert!(
            matches!(state.admit_call(), Err(Error::Usage(text)) if text.contains("suspended=resume"))
        );
        assert!(!state.is_active());
        state.replace(RESUMING);
        assert_eq!((state.admit_call(), state.is_active()), (Ok(()), true));
    }
}
