//! Prefix sums: rank r ends with the reduction of the buffers of the ranks up to r, or of those before it.
//!
//! Both are proved to add the ranks in ascending order, grouped as the algorithm groups them: `hints`'
//! `deterministic` asks for one sum after the other. Results are of different numbers of ranks, so the operators
//! `avg` and `premul_sum`, which change the elements of all ranks alike, are refused.

use crate::comm::{Communicator, ElementMemory, MemoryMut};
use roundelay_engine::{EXSCAN, Reduction, SCAN};
use roundelay_support::error::Error;

impl Communicator {
    /// Reduces the buffers of the ranks up to this one, its own included: an inclusive scan.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut data = [comm.rank() as f32 + 1.0; 4];
    /// comm.scan(&mut data, RedOp::Sum)?;
    /// assert_eq!(data, [[1.0; 4], [3.0; 4]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// For this and the other scans: those of [`Communicator::all_reduce`]; [`Error::Unsupported`] for the operators
    /// [`Avg`](crate::RedOp::Avg) and [`PremulSum`](crate::RedOp::PremulSum).
    pub fn scan<M: MemoryMut + ?Sized>(
        &mut self,
        data: &mut M,
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        self.in_place(&SCAN, 0, op.into(), data)
    }

    /// Performs [`Communicator::scan`] out of place: both buffers have the same length.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let (input, mut output) = ([comm.rank() + 2; 4], [0; 4]);
    /// comm.scan_into(&mut output, &input, RedOp::Prod)?;
    /// assert_eq!(output, [[2; 4], [6; 4]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn scan_into<O, I>(
        &mut self,
        output: &mut O,
        input: &I,
        op: impl Into<Reduction>,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.out_of_place(&SCAN, 0, op.into(), output, input)
    }

    /// Reduces the buffers of the ranks before this one: an exclusive scan. The buffer of rank 0, before which there
    /// is none, is left as it is.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(3, |comm| {
    /// let mut data = [comm.rank() + 5; 4];
    /// comm.exscan(&mut data, RedOp::Sum)?;
    /// assert_eq!(data, [[5; 4], [5; 4], [11; 4]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn exscan<M: MemoryMut + ?Sized>(
        &mut self,
        data: &mut M,
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        self.in_place(&EXSCAN, 0, op.into(), data)
    }

    /// Performs [`Communicator::exscan`] out of place: both buffers have the same length on all ranks, and the
    /// output of rank 0 is left as it is.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(3, |comm| {
    /// let (input, mut output) = ([comm.rank() + 5; 4], [0; 4]);
    /// comm.exscan_into(&mut output, &input, RedOp::Sum)?;
    /// assert_eq!(output, [[0; 4], [5; 4], [11; 4]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn exscan_into<O, I>(
        &mut self,
        output: &mut O,
        input: &I,
        op: impl Into<Reduction>,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.out_of_place(&EXSCAN, 0, op.into(), output, input)
    }
}
