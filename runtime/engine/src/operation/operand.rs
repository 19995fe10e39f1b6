//! One side of a call.

use std::borrow::Cow;

use super::buffer::CallBuffer;

/// The memory of one side of a call.
#[derive(Debug)]
pub enum CallOperand<'a, A> {
    /// Nothing: the call is in place, or this side has no meaning on this rank.
    None,
    /// One buffer, of one block or of equal blocks one after the other.
    One(CallBuffer<A>),
    /// A buffer for each rank.
    List(Vec<CallBuffer<A>>),
    /// One buffer of blocks with these numbers of elements, one block a rank.
    Cut(CallBuffer<A>, Cow<'a, [usize]>),
}

impl<A> CallOperand<'_, A> {
    /// Returns an operand of the same form, with other buffers.
    pub fn map<B>(
        &self,
        mut other: impl FnMut(&CallBuffer<A>) -> CallBuffer<B>,
    ) -> CallOperand<'_, B> {
        match self {
            CallOperand::None => CallOperand::None,
            CallOperand::One(buffer) => CallOperand::One(other(buffer)),
            CallOperand::List(list) => CallOperand::List(list.iter().map(other).collect()),
            CallOperand::Cut(buffer, counts) => {
                CallOperand::Cut(other(buffer), Cow::Borrowed(counts))
            }
        }
    }

    /// Describes the form, for messages.
    pub fn form(&self) -> &'static str {
        match self {
            CallOperand::None => "nothing",
            CallOperand::One(_) => "one buffer",
            CallOperand::List(_) => "a list of buffers",
            CallOperand::Cut(..) => "one buffer of unequal blocks",
        }
    }

    /// Returns the buffers.
    #[inline]
    pub fn buffers(&self) -> &[CallBuffer<A>] {
        match self {
            CallOperand::None => &[],
            CallOperand::One(buffer) | CallOperand::Cut(buffer, _) => std::slice::from_ref(buffer),
            CallOperand::List(list) => list,
        }
    }

    /// Returns the buffers, to be written.
    #[inline]
    pub fn buffers_mut(&mut self) -> &mut [CallBuffer<A>] {
        match self {
            CallOperand::None => &mut [],
            CallOperand::One(buffer) | CallOperand::Cut(buffer, _) => std::slice::from_mut(buffer),
            CallOperand::List(list) => list,
        }
    }

    /// Returns the number of elements of the first buffer, 0 if there is none.
    #[inline]
    pub(super) fn elements(&self) -> usize {
        self.buffers().first().map_or(0, CallBuffer::elements)
    }
}

impl<'a> CallOperand<'_, &'a [u8]> {
    /// Returns the bytes of the one buffer, none if there is none.
    #[inline]
    pub fn only(&self) -> &'a [u8] {
        self.buffers().first().map_or(&[], CallBuffer::bytes)
    }
}

impl CallOperand<'_, &mut [u8]> {
    /// Returns the bytes of the one buffer, to be written.
    #[inline]
    pub fn only_mut(&mut self) -> &mut [u8] {
        self.buffers_mut().first_mut().map_or(&mut [], CallBuffer::bytes_mut)
    }
}
