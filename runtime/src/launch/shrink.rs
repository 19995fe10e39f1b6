//! Goes on with the ranks that are left after one was lost.

use std::time::{Duration, Instant};

use crate::comm::Communicator;
use crate::launch::RankHandles;
use roundelay_engine::progress::peer_failure;
use roundelay_support::error::Error;

impl Communicator {
    /// Goes on with the ranks that are left: after a call has failed, all that still run call this together, without
    /// knowing who they are. They find each other at the listeners that they have, agree on who is there, and make a
    /// new generation in the order that they had, as [`reconfigure`](Communicator::reconfigure) does; `rank` and
    /// `size` are new ones then. With the hint `on_failure=shrink` the next call after a failure does this by itself.
    ///
    /// A rank that is not known to be gone is waited for, `timeout` at most. Ranks go on only if no others can: more
    /// than half of those that are not known to have ended, or half with the lowest of these. A rank is known to have
    /// ended if it shares memory with this one; of two ranks on two hosts the one that is left cannot go on, since it
    /// cannot know whether it is. It returns after four times `timeout` at the latest.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use roundelay::{Communicator, Error, RedOp};
    /// # fn main() -> Result<(), Error> {
    /// // Three ranks, of which the last ends.
    /// let mut ranks = Communicator::local(3)?;
    /// ranks.truncate(2);
    /// std::thread::scope(|scope| {
    ///     for mut comm in ranks {
    ///         scope.spawn(move || {
    ///             let mut sum = [1u32];
    ///             if comm.all_reduce(&mut sum, RedOp::Sum).is_err() {
    ///                 comm.shrink(Duration::from_secs(30))?;
    ///                 sum = [1];
    ///                 comm.all_reduce(&mut sum, RedOp::Sum)?;
    ///             }
    ///             assert_eq!((comm.size(), sum), (2, [2]));
    ///             Ok::<(), Error>(())
    ///         });
    ///     }
    /// });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if too few ranks come, or others went on without this one; the errors of
    /// [`reconfigure`](Communicator::reconfigure). This communicator is then what it was before.
    pub fn shrink(&mut self, timeout: Duration) -> Result<(), Error> {
        if timeout.is_zero() {
            let text = "a timeout of zero leaves no time to come together: set a longer one";
            return Err(Error::Usage(text.into()));
        }
        let until = Instant::now() + 4 * timeout;
        loop {
            let own = self.handle()?;
            let Some(listener) = self.identity().as_mut().map(|i| i.listener()) else {
                return Ok(());
            };
            let group = &self.core()?.group;
            let list = group.rally(&listener?, &own, &peer_failure::has_ended, timeout, until)?;
            let left = until.saturating_duration_since(Instant::now());
            match self.reconfigure("shrink", RankHandles::List(&list), timeout.min(left)) {
                Err(error) if !matches!(error, Error::Usage(_)) && Instant::now() < until => {}
                made => return made,
            }
        }
    }
}
