//! Executes a program at one shape, round by round.
//!
//! A *round* is one execution of an `each`, over all groups of the frame that it stands in. The
//! walk itself depends on no rank; the transfers of a round are asked for, either all of them
//! ([`WalkRound::all`]), or those of one rank ([`WalkRound::of`]). The latter solves for the ranks that send
//! to it and does not visit the others, so that one rank's part of 131,072 costs what that rank does.
//!
//! * `walker`: the rounds of an instance, in order; `frame`: a program being executed, on groups of ranks.
//! * `view`: the places of a frame's buffers in those of the instance.
//! * `round`: the transfers of a round, of all ranks or of one; `transfer`: one of them, and its key.
//! * `bounds`, `motion`: what holds of a round, and its image under a shift, by its form alone.
//! * `projection`, `lengths`: what one rank does in all rounds, and how long its messages are.

mod bounds;
mod frame;
mod lengths;
mod motion;
mod projection;
mod round;
#[cfg(test)]
mod tests;
mod transfer;
mod view;
mod walker;

pub(crate) use lengths::SumLengths;
pub(crate) use projection::RankProjection;
pub use round::WalkRound;
pub use transfer::{ChunkTransfer, MAX_LANES, TransferKey};
pub(crate) use view::merge;
pub(crate) use walker::scratch;
pub use walker::{OnRound, walk};
