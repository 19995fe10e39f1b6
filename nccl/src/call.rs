//! Calls as data, and the operations that they are.

use std::ffi::c_int;

use roundelay::operation::{
    ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, CallBuffer, CallMessage, CallOperand, GATHER,
    MemoryKind, Operation, REDUCE, REDUCE_SCATTER, SCATTER,
};
use roundelay::{DType, RedOp, Reduction};
use roundelay_ffi::CallRequest;

use crate::failure::{CallFailure, Outcome};
use crate::operator::CallOperator;

/// The function that was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    AlltoAll,
    Gather,
    Scatter,
    Send,
    Recv,
}

impl CallKind {
    /// Returns true for messages between single ranks.
    pub(crate) fn is_message(self) -> bool {
        matches!(self, CallKind::Send | CallKind::Recv)
    }

    /// Returns true if the call has an operator.
    pub(crate) fn reduces(self) -> bool {
        matches!(self, CallKind::AllReduce | CallKind::Reduce | CallKind::ReduceScatter)
    }

    fn has_root(self) -> bool {
        matches!(
            self,
            CallKind::Reduce | CallKind::Broadcast | CallKind::Gather | CallKind::Scatter
        )
    }
}

/// A call of a function that moves data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NcclCall {
    pub(crate) kind: CallKind,
    /// The memory that is read; a receive has none.
    pub(crate) send: u64,
    /// The memory that is written; a send has none.
    pub(crate) recv: u64,
    /// The elements of a block.
    pub(crate) count: usize,
    pub(crate) dtype: DType,
    pub(crate) operator: CallOperator,
    /// The root, or the rank at the other end of a message; 0 without either.
    pub(crate) other: u32,
    pub(crate) stream: u64,
}

/// A rank, and the memory that its calls are on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallPlace {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) device: MemoryKind,
}

/// Returns the rank that an argument names.
pub(crate) fn rank(name: &str, value: c_int, ranks: u32) -> Outcome<u32> {
    u32::try_from(value).ok().filter(|&rank| rank < ranks).ok_or_else(|| {
        CallFailure::argument(format!(
            "{name} is {value}; the {ranks} ranks go from 0 to {}",
            ranks - 1
        ))
    })
}

impl NcclCall {
    /// Checks the arguments, as far as one rank can.
    pub(crate) fn check(&self, place: CallPlace) -> Outcome {
        let NcclCall { kind, count, .. } = *self;
        let ranks = place.ranks as usize;
        let is_root = !kind.has_root() || place.rank == self.other;
        let bytes = count.checked_mul(ranks).and_then(|all| all.checked_mul(self.dtype.size()));
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(CallFailure::argument(format!(
                "count is {count}, which exceeds the address space"
            )));
        }
        if count == 0 {
            return Ok(());
        }
        let reads = match kind {
            CallKind::Recv => false,
            CallKind::Scatter | CallKind::Broadcast => is_root,
            _ => true,
        };
        let writes = match kind {
            CallKind::Send => false,
            CallKind::Gather | CallKind::Reduce => is_root,
            _ => true,
        };
        match (reads && self.send == 0, writes && self.recv == 0) {
            (true, _) => return Err(CallFailure::argument("sendbuff is NULL")),
            (_, true) => return Err(CallFailure::argument("recvbuff is NULL")),
            _ => {}
        }
        Ok(())
    }

    /// Returns what is executed; a call without elements is compared with those of the other ranks. The factor of an
    /// operator may be waited for.
    pub(crate) fn request(&self, place: CallPlace) -> Outcome<CallRequest> {
        let NcclCall { kind, send, recv, count, other: root, .. } = *self;
        let all = count * place.ranks as usize;
        let is_root = place.rank == root;
        let written = |elements| self.operand(place, recv, elements);
        let read = |elements| self.operand(place, send, elements);
        let written_at_root =
            |elements| if is_root { written(elements) } else { Ok(CallOperand::None) };
        let read_at_root = |elements| if is_root { read(elements) } else { Ok(CallOperand::None) };
        let reduction = match kind.reduces() {
            true => self.operator.reduction(self.stream)?,
            false => Reduction::from(RedOp::Sum),
        };
        let (collective, output, input) = match kind {
            // Addresses of nothing have no meaning, and differ between ranks.
            CallKind::AllReduce if send == recv || count == 0 => {
                (&ALL_REDUCE, written(count)?, CallOperand::None)
            }
            CallKind::AllReduce => (&ALL_REDUCE, written(count)?, read(count)?),
            // Only the root's memory may change, so that it is never in place.
            CallKind::Reduce => (&REDUCE, written_at_root(count)?, read(count)?),
            // The others do not know whether the root is in place, so all execute one plan.
            CallKind::Broadcast => {
                let input = if is_root { read(count)? } else { read(0)? };
                (&BROADCAST, written(count)?, input)
            }
            CallKind::AllGather => (&ALL_GATHER, written(all)?, read(count)?),
            CallKind::ReduceScatter => (&REDUCE_SCATTER, written(count)?, read(all)?),
            CallKind::AlltoAll => (&ALL_TO_ALL, written(all)?, read(all)?),
            CallKind::Gather => (&GATHER, written_at_root(all)?, read(count)?),
            CallKind::Scatter => (&SCATTER, written(count)?, read_at_root(all)?),
            CallKind::Send | CallKind::Recv => {
                return Ok(CallRequest::Messages(vec![self.message(place)?]));
            }
        };
        Ok(CallRequest::Collective(Operation { collective, output, input, reduction, root }))
    }

    fn operand<A>(
        &self,
        place: CallPlace,
        address: u64,
        elements: usize,
    ) -> Outcome<CallOperand<'static, A>> {
        // SAFETY: callers of NCCL's functions promise that that many elements lie there until the stream has come past
        // the call, and that nothing else touches them meanwhile.
        Ok(CallOperand::One(unsafe {
            CallBuffer::new(address, elements, self.dtype, place.device)?
        }))
    }

    /// Returns elements at an address as bytes.
    fn bytes<A>(&self, place: CallPlace, address: u64) -> Outcome<CallBuffer<A>> {
        let bytes = self.count * self.dtype.size();
        // SAFETY: as above.
        Ok(unsafe { CallBuffer::new(address, bytes, DType::U8, place.device)? })
    }

    /// Returns a send or a receive as a message. Its elements are bytes: NCCL does not compare types either.
    pub(crate) fn message(&self, place: CallPlace) -> Outcome<CallMessage<'static>> {
        Ok(match self.kind == CallKind::Send {
            true => CallMessage::sent(self.bytes(place, self.send)?, self.other),
            false => CallMessage::received(self.bytes(place, self.recv)?, self.other),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay::operation::MessageEnd;

    const PLACE: CallPlace = CallPlace { rank: 1, ranks: 3, device: MemoryKind::Host };

    fn call(kind: CallKind, send: u64, recv: u64, other: u32) -> NcclCall {
        let (dtype, operator) = (DType::F32, CallOperator::NONE);
        NcclCall { kind, send, recv, count: 4, dtype, operator, other, stream: 0 }
    }

    fn elements<A>(operand: &CallOperand<'_, A>) -> String {
        match operand {
            CallOperand::None => "-".to_owned(),
            CallOperand::One(buffer) => buffer.elements().to_string(),
            _ => "?".to_owned(),
        }
    }

    fn form(call: &NcclCall) -> String {
        match call.request(PLACE).expect("a request") {
            CallRequest::Collective(Operation { collective, output, input, .. }) => {
                format!("{} {} {}", collective.name, elements(&output), elements(&input))
            }
            CallRequest::Messages(messages) => format!("{} messages", messages.len()),
            CallRequest::Algorithm { .. } => "?".to_owned(),
        }
    }

    #[test]
    fn calls_are_the_operations_that_they_name() {
        for (call, wanted) in [
            (call(CallKind::AllReduce, 16, 32, 0), "all_reduce 4 4"),
            (call(CallKind::AllReduce, 16, 16, 0), "all_reduce 4 -"),
            (call(CallKind::Reduce, 16, 16, 1), "reduce 4 4"),
            (call(CallKind::Reduce, 16, 16, 0), "reduce - 4"),
            (call(CallKind::Broadcast, 16, 32, 1), "broadcast 4 4"),
            (call(CallKind::Broadcast, 16, 16, 1), "broadcast 4 4"),
            (call(CallKind::Broadcast, 16, 32, 0), "broadcast 4 0"),
            (call(CallKind::AllGather, 16, 32, 0), "all_gather 12 4"),
            (call(CallKind::ReduceScatter, 16, 32, 0), "reduce_scatter 4 12"),
            (call(CallKind::AlltoAll, 16, 32, 0), "all_to_all 12 12"),
            (call(CallKind::Gather, 16, 32, 1), "gather 12 4"),
            (call(CallKind::Gather, 16, 32, 0), "gather - 4"),
            (call(CallKind::Scatter, 16, 32, 1), "scatter 4 12"),
            (call(CallKind::Scatter, 16, 32, 2), "scatter 4 -"),
            (call(CallKind::Send, 16, 0, 2), "1 messages"),
        ] {
            assert_eq!(call.check(PLACE), Ok(()), "{call:?}");
            assert_eq!(form(&call), wanted, "{call:?}");
            // It is executed without elements too: all ranks count it.
            let nothing = wanted.replace("12", "0").replace('4', "0");
            let is_in_place = call.kind == CallKind::AllReduce;
            let nothing = if is_in_place { "all_reduce 0 -".into() } else { nothing };
            assert_eq!(form(&NcclCall { count: 0, ..call }), nothing, "{call:?}");
        }
    }

    #[test]
    fn a_message_is_bytes() {
        let message = call(CallKind::Recv, 0, 16, 2).message(PLACE).expect("a message");
        let transfer = message.transfer();
        assert_eq!((transfer.bytes, transfer.peer, transfer.dtype), (16, 2, DType::U8));
        assert!(matches!(message.end, MessageEnd::Received(_)));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let too_long = NcclCall { count: usize::MAX / 8, ..call(CallKind::AllReduce, 16, 32, 0) };
        for wrong in [
            call(CallKind::AllReduce, 0, 16, 0),
            call(CallKind::AllReduce, 16, 0, 0),
            call(CallKind::Reduce, 16, 0, 1),
            call(CallKind::Broadcast, 0, 16, 1),
            call(CallKind::Recv, 16, 0, 0),
            call(CallKind::Send, 0, 16, 0),
            too_long,
        ] {
            assert!(wrong.check(PLACE).is_err(), "{wrong:?}");
        }
        // What has no meaning on this rank may be NULL, and so may what has no elements.
        for right in [
            call(CallKind::Reduce, 16, 0, 0),
            call(CallKind::Broadcast, 0, 16, 0),
            call(CallKind::Gather, 16, 0, 0),
            call(CallKind::Scatter, 0, 16, 0),
            NcclCall { count: 0, ..call(CallKind::AllReduce, 0, 0, 0) },
        ] {
            assert_eq!(right.check(PLACE), Ok(()), "{right:?}");
        }
        for value in [-1, 3, c_int::MAX] {
            assert!(rank("root", value, 3).is_err());
        }
        assert_eq!(rank("peer", 2, 3), Ok(2));
    }
}
