//! An all-reduce that goes on when a rank fails.

use crate::comm::{Communicator, Host, MemoryMut};
use crate::prototype::RunnableAlgorithm;
use roundelay_support::dtype::RedOp;
use roundelay_support::error::Error;

impl Communicator {
    /// Reduces the buffers of all ranks, and goes on if one of them ends meanwhile: all others then end with the same
    /// result, to the bit, and return the same ranks, ascending, whose contributions are in it. They are all that are
    /// left, and the one that has ended or not; `avg` divides by their number. That this is so is proved for each
    /// single failure at any point; of several ranks that end in one call nothing is said.
    ///
    /// A rank counts as ended if its process is gone, or if it has dropped its communicator, as some rank of its
    /// machine sees. One that is silent, or cannot be reached, makes the call fail as any other does: it may go on, and
    /// must not be left out.
    ///
    /// After a rank was lost the result holds, and the communicator is as after a failed call: those that are left
    /// [shrink](Communicator::shrink) it. It is for few ranks, at most 8, and short vectors: every rank sends about 2n
    /// times the data, and each call takes memory for n of them.
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
    ///             let mut sum = [comm.rank() + 1];
    ///             let counted = comm.tolerant_all_reduce(&mut sum, RedOp::Sum)?;
    ///             assert_eq!((counted, sum), (vec![0, 1], [3]));
    ///             comm.shrink(Duration::from_secs(30))?;
    ///             comm.all_reduce(&mut sum, RedOp::Sum)?;
    ///             assert_eq!((comm.size(), sum), (2, [6]));
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
    /// [`Error::Refused`] on more ranks than it was proved for, [`Error::Unsupported`] for an operator that the type
    /// does not have, and `premul_sum`: nothing has moved then, and the communicator stays usable. Otherwise the errors
    /// of [`Communicator::run`].
    pub fn tolerant_all_reduce<M>(&mut self, data: &mut M, op: RedOp) -> Result<Vec<u32>, Error>
    where
        M: MemoryMut<Engine = Host> + ?Sized,
    {
        let algorithm = self.algorithm("all_reduce", "tolerant")?;
        self.run_tolerant(&algorithm, data, op)
    }

    /// Runs an algorithm of the caller's own that says `tolerates 1`, as [`Communicator::tolerant_all_reduce`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::tolerant_all_reduce`]; [`Error::Refused`] with rendered diagnostics too if the
    /// survivors of some failure would not agree (RL0507), or that cannot be proved (RL0607).
    pub fn run_tolerant<M>(
        &mut self,
        algorithm: &impl RunnableAlgorithm,
        data: &mut M,
        op: RedOp,
    ) -> Result<Vec<u32>, Error>
    where
        M: MemoryMut<Engine = Host> + ?Sized,
    {
        // Those that are left, if a rank was lost before and the hints say so.
        self.callable()?;
        let tolerant = algorithm.algorithm()?.tolerant(self.size())?;
        let (of, lent) = ((data.dtype(), op), data.lend_mut());
        let counted = self.core()?.lend(|core| core.execute_tolerant(&tolerant, of, lent))?;
        Ok((0..self.size()).filter(|rank| counted >> rank & 1 == 1).collect())
    }
}
