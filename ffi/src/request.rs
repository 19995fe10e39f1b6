//! What other languages ask of a communicator, at once or in the background: calls as data.

use roundelay::message::ReceiveSource;
use roundelay::operation::{CallMessage, CallOperand, InputBuffer, Operation, OutputBuffer};
use roundelay::{Algorithm, Communicator, DType, Error, Reduction};

use crate::buffer::ElementBuffer;

/// A call on memory that its maker vouches for until the call has ended.
#[derive(Debug)]
pub enum CallRequest {
    /// A collective.
    Collective(Operation<'static>),
    /// Messages between single ranks, at once.
    Messages(Vec<CallMessage<'static>>),
    /// An algorithm that the caller brings, in place without an input.
    Algorithm {
        /// The algorithm.
        algorithm: Algorithm,
        /// The memory that is written, or read and written in place.
        output: CallOperand<'static, &'static mut [u8]>,
        /// The memory that is read.
        input: CallOperand<'static, &'static [u8]>,
        /// The reduction, of no meaning where nothing is reduced.
        reduction: Reduction,
    },
}

impl CallRequest {
    /// Performs the call on this thread.
    ///
    /// # Errors
    ///
    /// The errors of the call.
    pub fn perform(self, comm: &mut Communicator) -> Result<(), Error> {
        match self {
            CallRequest::Collective(mut operation) => comm.perform(&mut operation),
            CallRequest::Messages(mut messages) => comm.exchange("batch", &mut messages).map(drop),
            CallRequest::Algorithm { algorithm, output, input, reduction } => {
                let done = match (output, input) {
                    (CallOperand::One(mut data), CallOperand::None) => {
                        comm.execute(&algorithm, &mut data, reduction)
                    }
                    (CallOperand::One(mut output), CallOperand::One(input)) => {
                        comm.execute_into(&algorithm, &mut output, &input, reduction)
                    }
                    // What has no meaning on this rank is empty.
                    (CallOperand::None, CallOperand::One(input)) => {
                        let mut output = OutputBuffer::empty(input.dtype(), input.memory());
                        comm.execute_into(&algorithm, &mut output, &input, reduction)
                    }
                    (CallOperand::None, CallOperand::None) => {
                        let memory = roundelay::operation::MemoryKind::Host;
                        let mut output = OutputBuffer::empty(DType::U8, memory);
                        let input = InputBuffer::empty(DType::U8, memory);
                        comm.execute_into(&algorithm, &mut output, &input, reduction)
                    }
                    (output, input) => Err(Error::Usage(format!(
                        "an algorithm has no form with {} as output and {} as input",
                        output.form(),
                        input.form()
                    ))),
                };
                done.map(drop)
            }
        }
    }
}

/// A message with a tag.
#[derive(Debug, Clone, Copy)]
pub struct TaggedMessage {
    /// The memory that is sent, or received into.
    pub buffer: ElementBuffer,
    /// The rank at the other end; one that sends names it.
    pub peer: ReceiveSource,
    /// The tag, which both ends name.
    pub tag: u64,
    /// True if it is sent.
    pub is_send: bool,
}

impl TaggedMessage {
    pub(crate) fn receiver(&self) -> Result<u32, Error> {
        match self.peer {
            ReceiveSource::Rank(rank) => Ok(rank),
            ReceiveSource::Any => {
                Err(Error::Usage("a message is sent to one rank: name it".into()))
            }
        }
    }
}
