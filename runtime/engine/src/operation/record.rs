//! The record of a collective call, and the check of its arguments.

use std::fmt::{self, Display};

use super::buffer::{CallBuffer, InputBuffer, MemoryKind, OutputBuffer};
use super::collective::{CallerRank, Collective};
use super::message::CallMessage;
use super::operand::CallOperand;
use super::reduction::Reduction;
use roundelay_support::dtype::DType;
use roundelay_support::error::Error;

/// A collective call: what is called, on which memory.
///
/// The outputs are this record's alone until the call has ended: [`CallOperand`]s borrow them, or the maker of the
/// [`CallBuffer`]s promised it.
#[derive(Debug)]
pub struct Operation<'a> {
    /// The collective.
    pub collective: &'static Collective,
    /// The memory that is written, or read and written in place.
    pub output: CallOperand<'a, &'a mut [u8]>,
    /// The memory that is read.
    pub input: CallOperand<'a, &'a [u8]>,
    /// The reduction, of no meaning where nothing is reduced.
    pub reduction: Reduction,
    /// The root, of no meaning where there is none.
    pub root: u32,
}

/// The form of a call: how an engine takes its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallForm {
    /// One buffer, read and written.
    InPlace,
    /// A buffer that is read and one that is written; one of no meaning on this rank may have no elements.
    OutOfPlace,
    /// As [`CallForm::OutOfPlace`], where the input is a list of one buffer a rank, or the output, or both.
    Listed,
    /// As [`CallForm::OutOfPlace`], where the blocks of one operand have unequal lengths, the same on all ranks.
    Cut,
    /// Blocks of unequal lengths in both operands, of which each rank knows its own: messages from rank to rank.
    Exchange,
}

/// The facts of a call whose arguments are right.
#[derive(Debug, Clone, Copy)]
pub struct OperationShape {
    /// The form.
    pub form: CallForm,
    /// The elements of a block; of [`CallForm::Cut`] and [`CallForm::Exchange`] those of all blocks together.
    pub count: u64,
    /// The type of the elements.
    pub dtype: DType,
    /// Where the buffers lie.
    pub memory: MemoryKind,
}

/// Shows the name of the method that makes such a call, as messages have it: `all_gather_list`.
impl Display for Operation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Collective { name, .. } = self.collective;
        let blocks = self.collective.gathers() || self.collective.scatters();
        let suffix = match (&self.output, &self.input) {
            (CallOperand::Cut(..), _) | (_, CallOperand::Cut(..)) => "_v",
            (CallOperand::List(_), _) | (_, CallOperand::List(_)) => "_list",
            (_, CallOperand::None) if blocks && self.is_in_place() => "_in_place",
            (_, CallOperand::None) if self.is_in_place() => "",
            (CallOperand::None, CallOperand::None) => "",
            _ if blocks => "",
            _ => "_into",
        };
        write!(f, "{name}{suffix}")
    }
}

impl<'a> Operation<'a> {
    /// Describes a call in place, or of no operands.
    #[inline]
    pub fn in_place(
        collective: &'static Collective,
        output: CallOperand<'a, &'a mut [u8]>,
        reduction: Reduction,
        root: u32,
    ) -> Self {
        Operation { collective, output, input: CallOperand::None, reduction, root }
    }

    /// Returns the messages that an exchange of blocks consists of, this rank's to itself among them.
    pub fn messages(&mut self) -> Vec<CallMessage<'_>> {
        let mut all = Vec::new();
        if let CallOperand::Cut(input, counts) = &self.input {
            let blocks = (0..).zip(input.blocks(counts));
            all.extend(blocks.map(|(peer, block)| CallMessage::sent(block, peer)));
        }
        if let CallOperand::Cut(output, counts) = &mut self.output {
            let blocks = (0..).zip(output.blocks(counts));
            all.extend(blocks.map(|(peer, block)| CallMessage::received(block, peer)));
        }
        all
    }

    #[inline]
    fn is_in_place(&self) -> bool {
        matches!((&self.output, &self.input), (CallOperand::One(_), CallOperand::None))
            && self.collective.has_form_in_place()
    }

    /// Checks the arguments, as one of that many ranks. All ranks that give the same forms find the same errors.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the collective has no such form, buffers do not fit each other or the ranks, or lie in
    /// different kinds of memory.
    #[inline]
    pub fn check(&self, rank: u32, ranks: u32) -> Result<OperationShape, Error> {
        let caller = CallerRank { rank, ranks, root: self.root };
        match (&self.output, &self.input) {
            (CallOperand::One(data), CallOperand::None) if self.collective.has_form_in_place() => {
                let elements = data.elements();
                let count = self.collective.count(self, caller, elements, elements)? as u64;
                let (dtype, memory) = (data.dtype(), data.memory());
                Ok(OperationShape { form: CallForm::InPlace, count, dtype, memory })
            }
            (CallOperand::One(output), CallOperand::One(input))
                if self.collective.has_operands() =>
            {
                self.out_of_place(caller, output, input)
            }
            _ => self.check_rare(caller),
        }
    }

    /// Checks the forms that are not as common.
    fn check_rare(&self, caller: CallerRank) -> Result<OperationShape, Error> {
        let collective = self.collective;
        let form = match (&self.output, &self.input) {
            (CallOperand::None, CallOperand::None) if !collective.has_operands() => {
                let (dtype, memory) = (DType::U8, MemoryKind::Host);
                return Ok(OperationShape { form: CallForm::InPlace, count: 0, dtype, memory });
            }
            _ if !collective.has_operands() => None,
            (CallOperand::One(output), CallOperand::None) if collective.is_input_optional() => {
                let input = InputBuffer::empty(output.dtype(), output.memory());
                return self.out_of_place(caller, output, &input);
            }
            (CallOperand::None, CallOperand::One(input)) if collective.is_output_optional() => {
                let output = OutputBuffer::empty(input.dtype(), input.memory());
                return self.out_of_place(caller, &output, input);
            }
            (CallOperand::List(_), CallOperand::One(_))
                if collective.gathers() && !collective.scatters() =>
            {
                Some(CallForm::Listed)
            }
            (CallOperand::One(_), CallOperand::List(_))
                if collective.scatters() && !collective.gathers() =>
            {
                Some(CallForm::Listed)
            }
            (CallOperand::List(_), CallOperand::List(_))
                if collective.gathers() && collective.scatters() =>
            {
                Some(CallForm::Listed)
            }
            _ if !collective.is_everywhere() => None,
            (CallOperand::Cut(..), CallOperand::One(_)) if !collective.scatters() => {
                Some(CallForm::Cut)
            }
            (CallOperand::One(_), CallOperand::Cut(..)) if !collective.gathers() => {
                Some(CallForm::Cut)
            }
            (CallOperand::Cut(..), CallOperand::Cut(..))
                if collective.gathers() && collective.scatters() =>
            {
                Some(CallForm::Exchange)
            }
            _ => None,
        };
        match form {
            Some(CallForm::Listed) => self.listed(caller),
            Some(form) => self.cut(caller, form),
            None => Err(Error::Usage(format!(
                "{} has no form with {} as output and {} as input",
                collective.name,
                self.output.form(),
                self.input.form()
            ))),
        }
    }

    #[inline]
    fn out_of_place<O, I>(
        &self,
        caller: CallerRank,
        output: &CallBuffer<O>,
        input: &CallBuffer<I>,
    ) -> Result<OperationShape, Error> {
        let (form, dtype) = (CallForm::OutOfPlace, output.dtype());
        let count =
            self.collective.count(self, caller, output.elements(), input.elements())? as u64;
        alike(self, dtype, [input.dtype()])?;
        let memory = output.memory();
        match input.memory() == memory {
            true => Ok(OperationShape { form, count, dtype, memory }),
            false => Err(mixed_memory()),
        }
    }

    /// Checks a call with a list of one buffer a rank; one that has no meaning on this rank is not looked at.
    fn listed(&self, caller: CallerRank) -> Result<OperationShape, Error> {
        caller.check(self)?;
        let count = match (&self.output, &self.input) {
            (CallOperand::One(output), _) => output.elements(),
            (_, input) => input.elements(),
        };
        if let (CallOperand::List(inputs), true) = (&self.input, self.collective.has_input(caller))
        {
            each(self, "inputs", caller.ranks, inputs.iter().map(CallBuffer::elements), count)?;
        }
        if let (CallOperand::List(outputs), true) =
            (&self.output, self.collective.has_output(caller))
        {
            each(self, "outputs", caller.ranks, outputs.iter().map(CallBuffer::elements), count)?;
        }
        let has = (self.collective.has_output(caller), self.collective.has_input(caller));
        self.shape(CallForm::Listed, count, has)
    }

    /// Checks a call whose blocks have lengths of their own.
    fn cut(&self, caller: CallerRank, form: CallForm) -> Result<OperationShape, Error> {
        let mut count = 0;
        for (what, elements, counts) in [
            ("input", self.input.elements(), counts_of(&self.input)),
            ("output", self.output.elements(), counts_of(&self.output)),
        ] {
            if let Some(counts) = counts {
                count = total(caller.ranks, counts)?;
                fits(what, elements, count)?;
            }
        }
        // The other operand has this rank's block.
        match (counts_of(&self.output), counts_of(&self.input)) {
            (Some(counts), None) => {
                fits("input", self.input.elements(), counts[caller.rank as usize])?;
            }
            (None, Some(counts)) => {
                fits("output", self.output.elements(), counts[caller.rank as usize])?;
            }
            _ => {}
        }
        self.shape(form, count, (true, true))
    }

    /// Returns the shape of a call whose lengths are right. An operand that has no meaning on this rank is not looked
    /// at.
    fn shape(
        &self,
        form: CallForm,
        count: usize,
        (has_output, has_input): (bool, bool),
    ) -> Result<OperationShape, Error> {
        let outputs = if has_output { self.output.buffers() } else { &[] };
        let inputs = if has_input { self.input.buffers() } else { &[] };
        let (of_output, of_input) = (outputs.first(), inputs.first());
        let dtypes = (of_output.map(CallBuffer::dtype), of_input.map(CallBuffer::dtype));
        let dtype = match &self.output {
            CallOperand::List(_) => dtypes.1.or(dtypes.0),
            _ => dtypes.0.or(dtypes.1),
        };
        let dtype = dtype.unwrap_or(DType::U8);
        let all = outputs.iter().map(CallBuffer::dtype);
        alike(self, dtype, all.chain(inputs.iter().map(CallBuffer::dtype)))?;
        let all = outputs.iter().map(CallBuffer::memory);
        let memory = common_memory(all.chain(inputs.iter().map(CallBuffer::memory)))?;
        Ok(OperationShape { form, count: count as u64, dtype, memory })
    }
}

fn counts_of<'c, A>(operand: &'c CallOperand<'_, A>) -> Option<&'c [usize]> {
    match operand {
        CallOperand::Cut(_, counts) => Some(counts),
        _ => None,
    }
}

/// Returns where all buffers of a call lie; that of no buffer is this host.
///
/// # Errors
///
/// [`Error::Usage`] if they lie in different kinds of memory.
pub fn common_memory(all: impl IntoIterator<Item = MemoryKind>) -> Result<MemoryKind, Error> {
    let mut all = all.into_iter();
    let first = all.next().unwrap_or(MemoryKind::Host);
    match all.all(|memory| memory == first) {
        true => Ok(first),
        false => Err(mixed_memory()),
    }
}

#[cold]
fn mixed_memory() -> Error {
    Error::Usage(
        "some buffers of the call are on a GPU and some are not: give all of them in one kind of memory".into(),
    )
}

/// Fails unless a list has a buffer of the wanted length for every rank.
fn each(
    call: &dyn Display,
    what: &str,
    ranks: u32,
    mut lens: impl ExactSizeIterator<Item = usize>,
    wanted: usize,
) -> Result<(), Error> {
    let buffers = lens.len();
    if buffers != ranks as usize {
        return Err(Error::Usage(format!(
            "{call}: there are {buffers} {what}, and {ranks} ranks: one is needed for each"
        )));
    }
    match lens.by_ref().enumerate().find(|&(_, len)| len != wanted) {
        None => Ok(()),
        Some((r, len)) => Err(Error::Usage(format!(
            "{call}: {what}[{r}] has {len} elements, and needs {wanted}: all buffers of the \
             call have one length"
        ))),
    }
}

/// Fails unless all buffers of a call have one type; that of most is known to the compiler.
#[inline]
fn alike(
    call: &dyn Display,
    dtype: DType,
    others: impl IntoIterator<Item = DType>,
) -> Result<(), Error> {
    match others.into_iter().find(|&other| other != dtype) {
        None => Ok(()),
        Some(other) => Err(Error::Usage(format!(
            "{call}: buffers of {dtype} and of {other} were given; all buffers of a call have one type"
        ))),
    }
}

/// Returns the sum of one count a rank.
fn total(ranks: u32, counts: &[usize]) -> Result<usize, Error> {
    if counts.len() != ranks as usize {
        return Err(Error::Usage(format!(
            "{} counts were given to {ranks} ranks: one for each is needed",
            counts.len()
        )));
    }
    let total = counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count));
    total.ok_or_else(|| Error::Usage("the sum of the counts exceeds the address space".into()))
}

/// Fails unless a buffer has the elements that counts ask for.
fn fits(what: &str, has: usize, wanted: usize) -> Result<(), Error> {
    match has == wanted {
        true => Ok(()),
        false => Err(Error::Usage(format!(
            "the {what} has {has} elements, and the counts ask for {wanted}"
        ))),
    }
}
