//! Collectives with a buffer for each rank. The blocks go through one buffer that is kept between
//! calls, so a list costs one copy of the data here.

use std::iter::Empty;

use crate::comm::{Communicator, Engine, Memory, MemoryMut};
use roundelay_engine::{
    ALL_GATHER, ALL_TO_ALL, Args, Blocks, Call, Collective, GATHER, REDUCE_SCATTER, Reduction,
    SCATTER, alike, each,
};
use roundelay_net::error::Error;

/// A buffer, and no list.
type One<B> = Blocks<B, Empty<B>>;

impl Communicator {
    /// Gathers the inputs of all ranks on every rank: that of rank r in `outputs[r]`. All have the length of
    /// `input`.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let (mut first, mut second) = ([0; 2], [0; 2]);
    /// comm.all_gather(&mut [&mut first, &mut second], &[comm.rank(); 2])?;
    /// assert_eq!((first, second), ([0, 0], [1, 1]));
    /// # Ok(())
    /// # });
    /// ```
    pub fn all_gather<O, I>(&mut self, outputs: &mut [&mut O], input: &I) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: Memory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.gather_list("all_gather", &ALL_GATHER, outputs, input, 0)
    }

    /// Reduces the `inputs[r]` of all ranks and leaves the result on rank r. All have the length of `output`.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut output = [0; 2];
    /// comm.reduce_scatter(&mut output, &[&[1, 2], &[3, 4]], RedOp::Sum)?;
    /// assert_eq!(output, [[2, 4], [6, 8]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn reduce_scatter<O, I>(
        &mut self,
        output: &mut O,
        inputs: &[&I],
        op: impl Into<Reduction>,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: Memory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let collective = &REDUCE_SCATTER;
        self.scatter_list("reduce_scatter", collective, output, inputs, 0, op.into())
    }

    /// Sends `inputs[b]` of rank a to `outputs[a]` of rank b. All have one length.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let (r, mut first, mut second) = (comm.rank(), [0; 1], [0; 1]);
    /// comm.all_to_all(&mut [&mut first, &mut second], &[&[10 * r], &[10 * r + 1]])?;
    /// assert_eq!((first, second), ([r], [10 + r]));
    /// # Ok(())
    /// # });
    /// ```
    pub fn all_to_all<O, I>(&mut self, outputs: &mut [&mut O], inputs: &[&I]) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: Memory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let (ranks, count) = (self.size(), inputs.first().map_or(0, |input| input.elements()));
        let lens = inputs.iter().map(|i| i.elements());
        each("all_to_all", "inputs", ranks, lens, count)?;
        let lens = outputs.iter().map(|o| o.elements());
        each("all_to_all", "outputs", ranks, lens, count)?;
        let dtype = inputs[0].dtype();
        let all = inputs.iter().map(|i| i.dtype()).chain(outputs.iter().map(|o| o.dtype()));
        alike("all_to_all", dtype, all)?;
        let args = Args::OutOfPlace {
            input: Blocks::Each(inputs.iter().map(|i| i.lend())),
            output: Blocks::Each(outputs.iter_mut().map(|o| o.lend_mut())),
        };
        let (count, dtype, Reduction { op, factor }) = (count as u64, dtype, Reduction::NONE);
        let call = Call { count, dtype, op, factor, args };
        O::Engine::perform_listed(self, &ALL_TO_ALL, 0, call)
    }

    /// Gathers the inputs of all ranks on the root: that of rank r in `outputs[r]`. All have the length of
    /// `input`. Elsewhere `outputs` has no meaning and may be empty.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let (mut first, mut second) = ([0; 2], [0; 2]);
    /// comm.gather(&mut [&mut first, &mut second], &[comm.rank(); 2], 0)?;
    /// if comm.rank() == 0 {
    ///     assert_eq!((first, second), ([0, 0], [1, 1]));
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn gather<O, I>(
        &mut self,
        outputs: &mut [&mut O],
        input: &I,
        root: u32,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: Memory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.gather_list("gather", &GATHER, outputs, input, root)
    }

    /// Sends `inputs[r]` of the root to rank r. All have the length of `output`. Elsewhere `inputs` has no
    /// meaning and may be empty.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut output = [0; 2];
    /// comm.scatter(&mut output, &[&[1, 2], &[3, 4]], 0)?;
    /// assert_eq!(output, [[1, 2], [3, 4]][comm.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn scatter<O, I>(&mut self, output: &mut O, inputs: &[&I], root: u32) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: Memory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        self.scatter_list("scatter", &SCATTER, output, inputs, root, Reduction::NONE)
    }

    fn gather_list<O, I>(
        &mut self,
        name: &str,
        collective: &'static Collective,
        outputs: &mut [&mut O],
        input: &I,
        root: u32,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: Memory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let seat = self.seat(root);
        seat.check(name)?;
        let (outputs, count) = match collective.has_output(seat) {
            true => (outputs, input.elements()),
            false => (&mut [][..], input.elements()),
        };
        if collective.has_output(seat) {
            each(name, "outputs", self.size(), outputs.iter().map(|o| o.elements()), count)?;
        }
        let dtype = input.dtype();
        alike(name, dtype, outputs.iter().map(|o| o.dtype()))?;
        let input: One<_> = Blocks::One(input.lend());
        let output = Blocks::Each(outputs.iter_mut().map(|o| o.lend_mut()));
        let (count, dtype, Reduction { op, factor }) = (count as u64, dtype, Reduction::NONE);
        let call = Call { count, dtype, op, factor, args: Args::OutOfPlace { input, output } };
        O::Engine::perform_listed(self, collective, root, call)
    }

    fn scatter_list<O, I>(
        &mut self,
        name: &str,
        collective: &'static Collective,
        output: &mut O,
        inputs: &[&I],
        root: u32,
        Reduction { op, factor }: Reduction,
    ) -> Result<(), Error>
    where
        O: MemoryMut + ?Sized,
        I: Memory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let seat = self.seat(root);
        seat.check(name)?;
        let count = output.elements();
        let inputs = if collective.has_input(seat) { inputs } else { &[] };
        if collective.has_input(seat) {
            each(name, "inputs", self.size(), inputs.iter().map(|i| i.elements()), count)?;
        }
        let dtype = output.dtype();
        alike(name, dtype, inputs.iter().map(|i| i.dtype()))?;
        let input = Blocks::Each(inputs.iter().map(|i| i.lend()));
        let output: One<_> = Blocks::One(output.lend_mut());
        let count = count as u64;
        let call = Call { count, dtype, op, factor, args: Args::OutOfPlace { input, output } };
        O::Engine::perform_listed(self, collective, root, call)
    }
}
