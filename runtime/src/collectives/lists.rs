//! Collectives with a buffer for each rank. The blocks go through one buffer that is kept between
//! calls, so a list costs one copy of the data here.

use crate::comm::{Communicator, ElementMemory, MemoryMut};
use roundelay_engine::{
    ALL_GATHER, ALL_TO_ALL, CallOperand, Collective, GATHER, Operation, REDUCE_SCATTER, Reduction,
    SCATTER,
};
use roundelay_support::error::Error;

impl Communicator {
    /// Gathers the inputs of all ranks on every rank: that of rank r in `outputs[r]`. All have the length of
    /// `input`.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let (mut first, mut second) = ([0; 2], [0; 2]);
    /// comm.all_gather_list(&mut [&mut first, &mut second], &[comm.rank(); 2])?;
    /// assert_eq!((first, second), ([0, 0], [1, 1]));
    /// # Ok(())
    /// # });
    /// ```
    pub fn all_gather_list<O, I>(&mut self, outputs: &mut [&mut O], input: &I) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.perform_to_list(&ALL_GATHER, outputs, input, 0)
    }

    /// Reduces the `inputs[r]` of all ranks and leaves the result on rank r. All have the length of `output`.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut output = [0; 2];
    /// comm.reduce_scatter_list(&mut output, &[&[1, 2], &[3, 4]], RedOp::Sum)?;
    /// assert_eq!(output, [[2, 4], [6, 8]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn reduce_scatter_list<O, I>(
        &mut self,
        output: &mut O,
        inputs: &[&I],
        op: impl Into<Reduction>,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.perform_from_list(&REDUCE_SCATTER, output, inputs, 0, op.into())
    }

    /// Sends `inputs[b]` of rank a to `outputs[a]` of rank b. All have one length.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let (r, mut first, mut second) = (comm.rank(), [0; 1], [0; 1]);
    /// comm.all_to_all_list(&mut [&mut first, &mut second], &[&[10 * r], &[10 * r + 1]])?;
    /// assert_eq!((first, second), ([r], [10 + r]));
    /// # Ok(())
    /// # });
    /// ```
    pub fn all_to_all_list<O, I>(
        &mut self,
        outputs: &mut [&mut O],
        inputs: &[&I],
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let output = CallOperand::List(outputs.iter_mut().map(|o| o.operand_mut()).collect());
        let input = CallOperand::List(inputs.iter().map(|i| i.operand()).collect());
        let (collective, reduction) = (&ALL_TO_ALL, Reduction::NONE);
        self.perform(&mut Operation { collective, output, input, reduction, root: 0 })
    }

    /// Gathers the inputs of all ranks on the root: that of rank r in `outputs[r]`. All have the length of
    /// `input`. Elsewhere `outputs` has no meaning and may be empty.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let (mut first, mut second) = ([0; 2], [0; 2]);
    /// comm.gather_list(&mut [&mut first, &mut second], &[comm.rank(); 2], 0)?;
    /// if comm.rank() == 0 {
    ///     assert_eq!((first, second), ([0, 0], [1, 1]));
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn gather_list<O, I>(
        &mut self,
        outputs: &mut [&mut O],
        input: &I,
        root: u32,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.perform_to_list(&GATHER, outputs, input, root)
    }

    /// Sends `inputs[r]` of the root to rank r. All have the length of `output`. Elsewhere `inputs` has no
    /// meaning and may be empty.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut output = [0; 2];
    /// comm.scatter_list(&mut output, &[&[1, 2], &[3, 4]], 0)?;
    /// assert_eq!(output, [[1, 2], [3, 4]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn scatter_list<O, I>(
        &mut self,
        output: &mut O,
        inputs: &[&I],
        root: u32,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.perform_from_list(&SCATTER, output, inputs, root, Reduction::NONE)
    }

    fn perform_to_list<O, I>(
        &mut self,
        collective: &'static Collective,
        outputs: &mut [&mut O],
        input: &I,
        root: u32,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let output = CallOperand::List(outputs.iter_mut().map(|o| o.operand_mut()).collect());
        let (input, reduction) = (CallOperand::One(input.operand()), Reduction::NONE);
        self.perform(&mut Operation { collective, output, input, reduction, root })
    }

    fn perform_from_list<O, I>(
        &mut self,
        collective: &'static Collective,
        output: &mut O,
        inputs: &[&I],
        root: u32,
        reduction: Reduction,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let output = CallOperand::One(output.operand_mut());
        let input = CallOperand::List(inputs.iter().map(|i| i.operand()).collect());
        self.perform(&mut Operation { collective, output, input, reduction, root })
    }
}
