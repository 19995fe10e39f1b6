//! The key of a call: what all ranks must have in common, and by which a bound call is found again.

use roundelay_compiler::device::{DeviceProtocol, abi};

use super::cut::{CallCut, CallSizes};
use super::program::{BUFFERS, LoweredProgram};
use super::unsupported_call::UnsupportedCall;
use crate::layout::ArenaLayout;
use crate::region::RegionSpot;
use roundelay_support::digest::mix;
use roundelay_support::dtype::{DType, RedOp};

/// The key that tells one bound call from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallKey {
    pub(super) count: u64,
    pub(super) hash: [u8; 16],
    pub(super) dtype: DType,
    pub(super) op: RedOp,
    pub(super) protocol: DeviceProtocol,
    pub(super) blocks: u32,
    /// The places of those of the user's buffers that peers address.
    pub(super) spots: [Option<RegionSpot>; 3],
}

impl CallKey {
    /// Returns one word for what all ranks must have in common.
    pub(super) fn digest(&self) -> u64 {
        let (low, high) = self.hash.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().fold(0u64, |w, &b| (w << 8) | u64::from(b));
        let fixed = [
            word(low),
            word(high),
            self.count,
            self.dtype as u64,
            self.op as u64,
            self.protocol as u64,
            self.blocks.into(),
        ];
        let spots = self.spots.iter().flat_map(|spot| match spot {
            None => [0, 0],
            Some(spot) => [1 + u64::from(spot.region), spot.offset],
        });
        fixed.into_iter().chain(spots).fold(3, mix)
    }

    /// Returns true if a buffer lies in that region.
    pub(super) fn uses(&self, region: u32) -> bool {
        self.spots.iter().flatten().any(|spot| spot.region == region)
    }
}

/// Returns the sizes of a call, and the bytes of its scratch buffers.
pub(super) fn cut_call(
    layout: &ArenaLayout,
    lowered: &LoweredProgram,
    key: &CallKey,
) -> Result<(CallCut, u64), UnsupportedCall> {
    let job = job(lowered, key);
    let (_, half) = layout.staging(key.protocol);
    Ok((job.cut(key.blocks, half)?, job.scratch(abi::ALIGN)?))
}

/// Returns the sizes by which a call is cut.
fn job<'a>(lowered: &'a LoweredProgram, key: &CallKey) -> CallSizes<'a> {
    CallSizes {
        header: &lowered.program.header,
        protocol: key.protocol,
        staging: lowered.program.staging,
        far: lowered.program.far,
        messages: lowered.messages,
        count: key.count,
        dtype: key.dtype,
    }
}

/// Returns the places of buffers in words, for an error.
pub(super) fn spelled(spots: &[Option<RegionSpot>; 3]) -> String {
    let named = BUFFERS.iter().zip(spots).filter_map(|(name, spot)| Some((name, (*spot)?)));
    let texts = named.map(|(name, spot)| {
        format!(", {name} at byte {} of shared memory {}", spot.offset, spot.region)
    });
    texts.collect()
}
