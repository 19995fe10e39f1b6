//! Collectives whose blocks have lengths of their own.
//!
//! On a host, `all_gather_v` and `reduce_scatter_v` play the same proved algorithms as their namesakes
//! (`bind/shape.rs` says why they may); on GPUs blocks are made equal on the way (`cuda/packed.rs`).
//! `all_to_all_v` is a batch of messages: no rank knows the lengths of the others' blocks, so there is
//! nothing to plan.

use crate::comm::{Communicator, Engine, Memory, MemoryMut};
use roundelay_engine::{
    ALL_GATHER, Args, Call, Collective, Message, REDUCE_SCATTER, Reduction, alike, fits, total,
};
use roundelay_net::digest::mix;
use roundelay_net::error::Error;

/// The number that tells this collective from others where calls are compared.
const ALL_TO_ALL_V: u64 = 2;

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
        I: Memory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let total = total(self.size(), counts)?;
        fits("input", input.elements(), counts[self.rank() as usize])?;
        fits("output", output.elements(), total)?;
        self.cut(&ALL_GATHER, total, Reduction::NONE, counts, (output, input))
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
        I: Memory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let total = total(self.size(), counts)?;
        fits("input", input.elements(), total)?;
        fits("output", output.elements(), counts[self.rank() as usize])?;
        self.cut(&REDUCE_SCATTER, total, op.into(), counts, (output, input))
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
        I: Memory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        fits("input", input.elements(), total(self.size(), send_counts)?)?;
        fits("output", output.elements(), total(self.size(), recv_counts)?)?;
        let dtype = output.dtype();
        alike("all_to_all_v", dtype, [input.dtype()])?;
        let (mut input, mut output, size) = (input.lend(), output.lend_mut(), dtype.size());
        let mut messages = Vec::with_capacity(2 * send_counts.len());
        for (peer, count) in (0..).zip(send_counts) {
            let [block, rest] = O::Engine::cut_input(input, count * size);
            messages.push(Message::sent(block, (dtype, count * size), peer));
            input = rest;
        }
        for (peer, count) in (0..).zip(recv_counts) {
            let [block, rest] = O::Engine::cut_output(output, count * size);
            messages.push(Message::received(block, (dtype, count * size), peer));
            output = rest;
        }
        let word = mix(ALL_TO_ALL_V, dtype as u64);
        O::Engine::exchange(self, "all_to_all_v", &mut messages, Some(word)).map(drop)
    }

    fn cut<O, I>(
        &mut self,
        collective: &'static Collective,
        total: usize,
        Reduction { op, factor }: Reduction,
        counts: &[usize],
        (output, input): (&mut O, &I),
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: Memory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let (count, dtype) = (total as u64, output.dtype());
        alike(collective.name, dtype, [input.dtype()])?;
        let args = Args::OutOfPlace { input: input.lend(), output: output.lend_mut() };
        O::Engine::perform_cut(self, collective, Call { count, dtype, op, factor, args }, counts)
    }
}
