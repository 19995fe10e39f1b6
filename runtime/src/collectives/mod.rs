//! The collectives by name, as a framework calls them, on memory of any kind. Each method makes an
//! [`Operation`], which [`Communicator::perform`] checks before anything moves, and gives to the engine of the memory.
//!
//! Outputs stand before inputs, as in torchcomms. Collectives whose vector has a block a rank exist
//! twice: with one buffer for all blocks, one after the other (`all_gather`), which copies nothing, and
//! with a buffer a rank (`all_gather_list`, in `lists`). Every rank gives blocks of the same
//! length. Any length is possible, zero too.
//!
//! The examples are the code of one rank, and are run by two.

mod lists;
mod nonblocking;
mod ragged;
mod run_algorithm;
mod scans;
mod tolerant;

use crate::comm::{Communicator, ElementMemory, MemoryMut};
use roundelay_engine::{
    ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BARRIER, BROADCAST, CallOperand, Collective, GATHER,
    Operation, REDUCE, REDUCE_SCATTER, Reduction, SCATTER,
};
use roundelay_support::error::Error;

impl Communicator {
    /// Sums (or otherwise reduces) the buffers of all ranks; everyone ends with the result.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut data = [comm.rank() as f32 + 1.0; 4];
    /// comm.all_reduce(&mut data, RedOp::Sum)?;
    /// assert_eq!(data, [3.0; 4]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// For this and the other collectives: [`Error::Usage`] if an argument is wrong; nothing has
    /// moved then, and the communicator stays usable. [`Error::Refused`] if an installed algorithm
    /// does not allow the call. Otherwise the errors of [`Communicator::run`].
    #[inline]
    pub fn all_reduce<M: MemoryMut + ?Sized>(
        &mut self,
        data: &mut M,
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        self.in_place(&ALL_REDUCE, 0, op.into(), data)
    }

    /// Performs [`Communicator::all_reduce`] out of place: both buffers have the same length.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let (input, mut output) = ([comm.rank() + 1; 4], [0; 4]);
    /// comm.all_reduce_into(&mut output, &input, RedOp::Max)?;
    /// assert_eq!((input, output), ([comm.rank() + 1; 4], [2; 4]));
    /// # Ok(())
    /// # });
    /// ```
    pub fn all_reduce_into<O, I>(
        &mut self,
        output: &mut O,
        input: &I,
        op: impl Into<Reduction>,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.out_of_place(&ALL_REDUCE, 0, op.into(), output, input)
    }

    /// Reduces the buffers of all ranks and leaves the result on the root; the buffers of the others end with
    /// unspecified contents.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut data = [comm.rank() + 1; 4];
    /// comm.reduce(&mut data, 0, RedOp::Sum)?;
    /// if comm.rank() == 0 {
    ///     assert_eq!(data, [3; 4]);
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn reduce<M: MemoryMut + ?Sized>(
        &mut self,
        data: &mut M,
        root: u32,
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        self.in_place(&REDUCE, root, op.into(), data)
    }

    /// Performs [`Communicator::reduce`] out of place: the root's output has the length of the input; that of
    /// the others may be empty, or ends with unspecified contents.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let (input, mut output) = ([comm.rank() + 1; 4], Vec::new());
    /// if comm.rank() == 0 {
    ///     output.resize(4, 0);
    /// }
    /// comm.reduce_into(&mut output, &input, 0, RedOp::Prod)?;
    /// if comm.rank() == 0 {
    ///     assert_eq!(output, [2; 4]);
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn reduce_into<O, I>(
        &mut self,
        output: &mut O,
        input: &I,
        root: u32,
        op: impl Into<Reduction>,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.out_of_place(&REDUCE, root, op.into(), output, input)
    }

    /// Copies the root's buffer to all ranks.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut data = if comm.rank() == 1 { [7; 4] } else { [0; 4] };
    /// comm.broadcast(&mut data, 1)?;
    /// assert_eq!(data, [7; 4]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn broadcast<M: MemoryMut + ?Sized>(
        &mut self,
        data: &mut M,
        root: u32,
    ) -> Result<(), Error> {
        self.in_place(&BROADCAST, root, Reduction::NONE, data)
    }

    /// Performs [`Communicator::broadcast`] out of place: the root's input is copied to the outputs of all ranks, its
    /// own too; the input of the others is not read and may be empty.
    ///
    /// On GPUs the root may give its output as input too, whatever the others give.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let input = if comm.rank() == 1 { vec![7; 4] } else { Vec::new() };
    /// let mut output = [0; 4];
    /// comm.broadcast_into(&mut output, &input, 1)?;
    /// assert_eq!(output, [7; 4]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn broadcast_into<O, I>(
        &mut self,
        output: &mut O,
        input: &I,
        root: u32,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.out_of_place(&BROADCAST, root, Reduction::NONE, output, input)
    }

    /// Gathers the inputs of all ranks on every rank, by rank: `output` is `size()` times as long as `input`.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut output = [0; 4];
    /// comm.all_gather(&mut output, &[comm.rank(); 2])?;
    /// assert_eq!(output, [0, 0, 1, 1]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn all_gather<O, I>(&mut self, output: &mut O, input: &I) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.out_of_place(&ALL_GATHER, 0, Reduction::NONE, output, input)
    }

    /// Reduces the inputs and leaves block r of the result on rank r: `input` is `size()` times as long as
    /// `output`.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut output = [0; 2];
    /// comm.reduce_scatter(&mut output, &[1, 2, 3, 4], RedOp::Sum)?;
    /// assert_eq!(output, [[2, 4], [6, 8]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn reduce_scatter<O, I>(
        &mut self,
        output: &mut O,
        input: &I,
        op: impl Into<Reduction>,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.out_of_place(&REDUCE_SCATTER, 0, op.into(), output, input)
    }

    /// Sends block b of rank a's input to block a of rank b's output; both have `size()` equal blocks.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut output = [0; 2];
    /// comm.all_to_all(&mut output, &[[1, 2], [3, 4]][comm.rank() as usize])?;
    /// assert_eq!(output, [[1, 3], [2, 4]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn all_to_all<O, I>(&mut self, output: &mut O, input: &I) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.out_of_place(&ALL_TO_ALL, 0, Reduction::NONE, output, input)
    }

    /// Performs [`Communicator::all_to_all`] in place: block b of rank a and block a of rank b change places.
    /// All ranks make this call.
    ///
    /// On GPUs [`Communicator::all_to_all`] does it as well, on ranks that give it the output as input.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut data = [[1, 2], [3, 4]][comm.rank() as usize];
    /// comm.all_to_all_in_place(&mut data)?;
    /// assert_eq!(data, [[1, 3], [2, 4]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn all_to_all_in_place<M: MemoryMut + ?Sized>(
        &mut self,
        data: &mut M,
    ) -> Result<(), Error> {
        self.in_place(&ALL_TO_ALL, 0, Reduction::NONE, data)
    }

    /// Gathers the inputs of all ranks on the root, by rank: there, `output` is `size()` times as long as
    /// `input`; elsewhere it may be empty, or ends with unspecified contents.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut output = vec![0; if comm.rank() == 0 { 4 } else { 0 }];
    /// comm.gather(&mut output, &[comm.rank(); 2], 0)?;
    /// if comm.rank() == 0 {
    ///     assert_eq!(output, [0, 0, 1, 1]);
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn gather<O, I>(&mut self, output: &mut O, input: &I, root: u32) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.out_of_place(&GATHER, root, Reduction::NONE, output, input)
    }

    /// Sends block r of the root's input to rank r: there, `input` is `size()` times as long as `output`;
    /// elsewhere it is not read and may be empty.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let input = if comm.rank() == 0 { vec![1, 2, 3, 4] } else { Vec::new() };
    /// let mut output = [0; 2];
    /// comm.scatter(&mut output, &input, 0)?;
    /// assert_eq!(output, [[1, 2], [3, 4]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn scatter<O, I>(&mut self, output: &mut O, input: &I, root: u32) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.out_of_place(&SCATTER, root, Reduction::NONE, output, input)
    }

    /// Waits until all ranks have come here.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// comm.barrier()?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::run`].
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.perform(&mut Operation::in_place(&BARRIER, CallOperand::None, Reduction::NONE, 0))
    }

    #[inline]
    fn in_place<M: MemoryMut + ?Sized>(
        &mut self,
        collective: &'static Collective,
        root: u32,
        reduction: Reduction,
        data: &mut M,
    ) -> Result<(), Error> {
        let data = CallOperand::One(data.operand_mut());
        self.perform(&mut Operation::in_place(collective, data, reduction, root))
    }

    #[inline]
    fn out_of_place<O, I>(
        &mut self,
        collective: &'static Collective,
        root: u32,
        reduction: Reduction,
        output: &mut O,
        input: &I,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let (output, input) =
            (CallOperand::One(output.operand_mut()), CallOperand::One(input.operand()));
        self.perform(&mut Operation { collective, output, input, reduction, root })
    }
}
