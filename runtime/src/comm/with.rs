//! A communicator under options of single calls.

use std::ops::{Deref, DerefMut};

use super::communicator::Communicator;
use super::settings::{CallOptions, CallSettings};

impl Communicator {
    /// Returns the communicator with other options, for as long as the guard lives:
    ///
    /// ```
    /// # use roundelay::{CallOptions, Communicator, RedOp};
    /// # let mut comm = Communicator::local(1)?.remove(0);
    /// let patient = CallOptions::new().timeout(std::time::Duration::from_secs(300));
    /// comm.with(patient).all_reduce(&mut [1.0f32], RedOp::Sum)?;
    /// # Ok::<(), roundelay::Error>(())
    /// ```
    ///
    /// Work that is started takes the options of its start along.
    pub fn with(&mut self, options: CallOptions) -> WithOptions<'_> {
        let with = options.over(&self.settings);
        let before = std::mem::replace(&mut self.settings, with);
        WithOptions { comm: self, before }
    }
}

/// A communicator with other options; it has its own again when this is dropped.
#[must_use = "the options hold for calls made through it"]
#[derive(Debug)]
pub struct WithOptions<'a> {
    comm: &'a mut Communicator,
    before: CallSettings,
}

impl Deref for WithOptions<'_> {
    type Target = Communicator;

    fn deref(&self) -> &Communicator {
        self.comm
    }
}

impl DerefMut for WithOptions<'_> {
    fn deref_mut(&mut self) -> &mut Communicator {
        self.comm
    }
}

impl Drop for WithOptions<'_> {
    fn drop(&mut self) {
        std::mem::swap(&mut self.comm.settings, &mut self.before);
    }
}
