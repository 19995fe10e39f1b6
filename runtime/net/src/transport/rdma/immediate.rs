//! The words of immediate values: what the write of one end means at the other.

/// The content of an immediate value: a kind in three bits, a number in 29.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImmediateWord {
    /// The piece of this number came with it, into its slot.
    Piece(u32),
    /// The piece of this number came with it, where this end wanted it.
    Placed(u32),
    /// The piece of this number came with it, and is a note for the stream.
    Note(u32),
    /// The number of pieces that were read.
    Read(u32),
    /// The queues of this mask have ended on the other side: nothing comes through them any more.
    Ended(u32),
}

const BITS: u32 = 29;
/// The mask of numbers in immediate values.
const MASK: u32 = (1 << BITS) - 1;
/// The most queues: a mask of them is a number.
pub(super) const RAILS: usize = BITS as usize;

impl ImmediateWord {
    pub(super) fn encode(self) -> u32 {
        let (kind, number) = match self {
            ImmediateWord::Piece(number) => (0, number),
            ImmediateWord::Read(number) => (1, number),
            ImmediateWord::Ended(rails) => (2, rails),
            ImmediateWord::Placed(number) => (3, number),
            ImmediateWord::Note(number) => (4, number),
        };
        kind << BITS | number & MASK
    }

    pub(super) fn decode(word: u32) -> Option<ImmediateWord> {
        let number = word & MASK;
        match word >> BITS {
            0 => Some(ImmediateWord::Piece(number)),
            1 => Some(ImmediateWord::Read(number)),
            2 => Some(ImmediateWord::Ended(number)),
            3 => Some(ImmediateWord::Placed(number)),
            4 => Some(ImmediateWord::Note(number)),
            _ => None,
        }
    }
}

/// Returns the distance by which a number is ahead of a count, modulo the range of a word.
pub(super) fn ahead(number: u32, count: u64) -> u64 {
    u64::from(number.wrapping_sub(count as u32) & MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_as_they_went_in() {
        for number in [0, 1, 63, MASK - 1, MASK] {
            for kind in [
                ImmediateWord::Piece,
                ImmediateWord::Placed,
                ImmediateWord::Note,
                ImmediateWord::Read,
                ImmediateWord::Ended,
            ] {
                assert_eq!(ImmediateWord::decode(kind(number).encode()), Some(kind(number)));
            }
        }
        assert_eq!(ImmediateWord::decode(u32::MAX), None);
        assert_eq!(ahead(2, u64::from(MASK)), 3);
    }
}
