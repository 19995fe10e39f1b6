//! The most common calls, started in the background. Buffers are owned ([`Buffer`](crate::Buffer),
//! `Vec`, boxed slices) and come back with the result; everything else is
//! [`Communicator::start`] with a closure.

use std::ops::{Deref, DerefMut};

use crate::comm::{Communicator, Work};
use roundelay_engine::Reduction;
use roundelay_support::dtype::Element;

impl Communicator {
    /// Starts [`Communicator::all_reduce`].
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let work = comm.all_reduce_async(vec![comm.rank() as f32; 4], RedOp::Avg);
    /// // ... compute something else ...
    /// assert_eq!(work.wait()?, [0.5; 4]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn all_reduce_async<T, B>(&mut self, mut data: B, op: impl Into<Reduction>) -> Work<B>
    where
        T: Element,
        B: DerefMut<Target = [T]> + Send + 'static,
    {
        let op = op.into();
        self.start(move |comm| comm.all_reduce(&mut *data, op).map(|()| data))
    }

    /// Starts [`Communicator::broadcast`].
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let work = comm.broadcast_async(vec![comm.rank(); 4], 1);
    /// assert_eq!(work.wait()?, [1; 4]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn broadcast_async<T, B>(&mut self, mut data: B, root: u32) -> Work<B>
    where
        T: Element,
        B: DerefMut<Target = [T]> + Send + 'static,
    {
        self.start(move |comm| comm.broadcast(&mut *data, root).map(|()| data))
    }

    /// Starts [`Communicator::all_gather`]; gives output and input back.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let work = comm.all_gather_async(vec![0; 4], vec![comm.rank(); 2]);
    /// let (output, _) = work.wait()?;
    /// assert_eq!(output, [0, 0, 1, 1]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn all_gather_async<T, O, I>(&mut self, mut output: O, input: I) -> Work<(O, I)>
    where
        T: Element,
        O: DerefMut<Target = [T]> + Send + 'static,
        I: Deref<Target = [T]> + Send + 'static,
    {
        self.start(move |comm| comm.all_gather(&mut *output, &*input).map(|()| (output, input)))
    }

    /// Starts [`Communicator::reduce_scatter`]; gives output and input back.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let work = comm.reduce_scatter_async(vec![0; 2], vec![1, 2, 3, 4], RedOp::Sum);
    /// let (output, _) = work.wait()?;
    /// assert_eq!(output, [[2, 4], [6, 8]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn reduce_scatter_async<T, O, I>(
        &mut self,
        mut output: O,
        input: I,
        op: impl Into<Reduction>,
    ) -> Work<(O, I)>
    where
        T: Element,
        O: DerefMut<Target = [T]> + Send + 'static,
        I: Deref<Target = [T]> + Send + 'static,
    {
        let op = op.into();
        self.start(move |comm| {
            comm.reduce_scatter(&mut *output, &*input, op).map(|()| (output, input))
        })
    }

    /// Starts [`Communicator::barrier`].
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let here = comm.barrier_async();
    /// // ... what need not wait for the others ...
    /// here.wait()?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn barrier_async(&mut self) -> Work<()> {
        self.start(Communicator::barrier)
    }
}
