//! Collectives whose blocks have lengths of their own.
//!
//! `all_gather_v` and `reduce_scatter_v` play the same proved algorithms as their namesakes
//! (`bind/shape.rs` says why they may). `all_to_all_v` is a batch of messages: no rank knows the
//! lengths of the others' blocks, so there is nothing to plan.

use roundelay_compiler::plan::Placement;

use super::Reduction;
use crate::comm::Communicator;
use crate::digest::mix;
use crate::dtype::{Element, RedOp};
use crate::engine::{Args, Call, Message, Named};
use crate::error::Error;
use crate::memory::{bytes, bytes_mut};

/// The number that tells this collective from others where calls are compared.
const ALL_TO_ALL_V: u64 = 2;

impl Communicator {
    /// Gathers the inputs of all ranks on every rank, one after the other; rank r's has `counts[r]` elements.
    /// All ranks give the same counts, some of which may be 0.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::run`], for this and the other collectives; [`Error::Usage`] too if the
    /// buffers do not have the lengths that the counts ask for.
    pub fn all_gather_v<T: Element>(
        &mut self,
        output: &mut [T],
        input: &[T],
        counts: &[usize],
    ) -> Result<(), Error> {
        let total = self.total(counts)?;
        fits("input", input.len(), counts[self.rank() as usize])?;
        fits("output", output.len(), total)?;
        self.cut("all_gather", total, RedOp::Sum.into(), counts, (input, output))
    }

    /// Reduces the inputs and leaves block r of the result, which has `counts[r]` elements, on rank r. All
    /// ranks give the same counts, some of which may be 0.
    pub fn reduce_scatter_v<T: Element>(
        &mut self,
        output: &mut [T],
        input: &[T],
        counts: &[usize],
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        let Reduction { op, factor } = op.into();
        let total = self.total(counts)?;
        fits("input", input.len(), total)?;
        fits("output", output.len(), counts[self.rank() as usize])?;
        self.cut("reduce_scatter", total, Reduction { op, factor }, counts, (input, output))
    }

    /// Sends block b of rank a's input to block a of rank b's output. The blocks of this rank's input have
    /// `send_counts` elements, those of its output `recv_counts`: `send_counts[b]` of rank a is
    /// `recv_counts[a]` of rank b, else the call ends with [`Error::MessageMismatch`].
    pub fn all_to_all_v<T: Element>(
        &mut self,
        output: &mut [T],
        recv_counts: &[usize],
        input: &[T],
        send_counts: &[usize],
    ) -> Result<(), Error> {
        fits("input", input.len(), self.total(send_counts)?)?;
        fits("output", output.len(), self.total(recv_counts)?)?;
        let (mut input, mut output) = (input, output);
        let mut messages = Vec::with_capacity(2 * send_counts.len());
        for (peer, &count) in (0..).zip(send_counts) {
            let (block, rest) = input.split_at(count);
            messages.push(Message::sent(block, peer));
            input = rest;
        }
        for (peer, &count) in (0..).zip(recv_counts) {
            let (block, rest) = output.split_at_mut(count);
            messages.push(Message::received(block, peer));
            output = rest;
        }
        self.exchange_all::<T>(&mut messages)
    }

    fn cut<T: Element>(
        &mut self,
        collective: &'static str,
        total: usize,
        Reduction { op, factor }: Reduction,
        counts: &[usize],
        (input, output): (&[T], &mut [T]),
    ) -> Result<(), Error> {
        let core = self.core()?;
        let bytes_of = total.saturating_mul(size_of::<T>()) as u64;
        let placement = Placement::OutOfPlace;
        let (dtype, root) = (T::DTYPE, 0);
        let named = Named { collective, bytes: bytes_of, dtype, op, root, placement };
        core.with_plan(named, |core, plan| {
            let args = Args::OutOfPlace { input: bytes(input), output: bytes_mut(output) };
            core.call_cut(plan, Call { count: 0, dtype, op, factor, args }, counts).map(drop)
        })
    }

    fn exchange_all<T: Element>(&mut self, messages: &mut [Message<'_>]) -> Result<(), Error> {
        let word = mix(ALL_TO_ALL_V, T::DTYPE as u64);
        self.core()?.exchange("all_to_all_v", messages, Some(word)).map(drop)
    }

    /// Returns the sum of one count a rank.
    fn total(&self, counts: &[usize]) -> Result<usize, Error> {
        self.one_each("counts", counts.len())?;
        let total = counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count));
        total.ok_or_else(|| Error::Usage("the sum of the counts exceeds the address space".into()))
    }

    fn one_each(&self, what: &str, given: usize) -> Result<(), Error> {
        match given == self.size() as usize {
            true => Ok(()),
            false => Err(Error::Usage(format!(
                "{given} {what} were given to {} ranks: one for each is needed",
                self.size()
            ))),
        }
    }
}

fn fits(what: &str, has: usize, wanted: usize) -> Result<(), Error> {
    match has == wanted {
        true => Ok(()),
        false => Err(Error::Usage(format!(
            "the {what} has {has} elements, and the counts ask for {wanted}"
        ))),
    }
}
