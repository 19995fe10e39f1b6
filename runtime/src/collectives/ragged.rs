//! Collectives whose blocks have lengths of their own.
//!
//! On a host, `all_gather_v` and `reduce_scatter_v` execute the same proved algorithms as their namesakes
//! (`bind/shape.rs` says why they may); on GPUs blocks are made equal on the way (`cuda/packed.rs`).
//! `all_to_all_v` is a batch of messages: no rank knows the lengths of the others' blocks, so there is
//! nothing to plan.

use crate::comm::{Communicator, ElementMemory, MemoryMut};
use roundelay_engine::{ALL_GATHER, ALL_TO_ALL, CallOperand, Operation, REDUCE_SCATTER, Reduction};
use roundelay_support::error::Error;

impl Communicator {
    /// Gathers the inputs of all ranks on every rank, one after the other; rank r's has `counts[r]` elements.
    /// All ranks give the same counts, some of which may be 0.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let input = [&[1, 2, 3][..], &[4]][comm.rank() as usize];
    /// let mut output = [0; 4];
    /// comm.all_gather_v(&mut output, input, &[3, 1])?;
    /// assert_eq!(output, [1, 2, 3, 4]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::run`], for this and the other collectives; [`Error::Usage`] too if the
    /// buffers do not have the lengths that the counts ask for.
    pub fn all_gather_v<O, I>(
        &mut self,
        output: &mut O,
        input: &I,
        counts: &[usize],
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let output = CallOperand::Cut(output.operand_mut(), counts.into());
        let (input, reduction) = (CallOperand::One(input.operand()), Reduction::NONE);
        let collective = &ALL_GATHER;
        self.perform(&mut Operation { collective, output, input, reduction, root: 0 })
    }

    /// Reduces the inputs and leaves block r of the result, which has `counts[r]` elements, on rank r. All
    /// ranks give the same counts, some of which may be 0.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let counts = [3, 1];
    /// let mut output = vec![0; counts[comm.rank() as usize]];
    /// comm.reduce_scatter_v(&mut output, &[1, 2, 3, 4], &counts, RedOp::Sum)?;
    /// assert_eq!(output, [&[2, 4, 6][..], &[8]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn reduce_scatter_v<O, I>(
        &mut self,
        output: &mut O,
        input: &I,
        counts: &[usize],
        op: impl Into<Reduction>,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let output = CallOperand::One(output.operand_mut());
        let input = CallOperand::Cut(input.operand(), counts.into());
        let (collective, reduction) = (&REDUCE_SCATTER, op.into());
        self.perform(&mut Operation { collective, output, input, reduction, root: 0 })
    }

    /// Sends block b of rank a's input to block a of rank b's output. The blocks of this rank's input have
    /// `send_counts` elements, those of its output `recv_counts`: `send_counts[b]` of rank a is
    /// `recv_counts[a]` of rank b, else the call ends with [`Error::MessageMismatch`].
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// // Rank 0 sends one element to itself and two to rank 1; rank 1 sends one to each.
    /// let (input, sent) = [(&[1, 2, 3][..], [1, 2]), (&[4, 5], [1, 1])][comm.rank() as usize];
    /// let received = [[1, 1], [2, 1]][comm.rank() as usize];
    /// let mut output = vec![0; received.iter().sum()];
    /// comm.all_to_all_v(&mut output, &received, input, &sent)?;
    /// assert_eq!(output, [&[1, 4][..], &[2, 3, 5]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn all_to_all_v<O, I>(
        &mut self,
        output: &mut O,
        recv_counts: &[usize],
        input: &I,
        send_counts: &[usize],
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let output = CallOperand::Cut(output.operand_mut(), recv_counts.into());
        let input = CallOperand::Cut(input.operand(), send_counts.into());
        let (collective, reduction) = (&ALL_TO_ALL, Reduction::NONE);
        self.perform(&mut Operation { collective, output, input, reduction, root: 0 })
    }
}
