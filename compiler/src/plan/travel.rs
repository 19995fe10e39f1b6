//! Decides how messages travel: the size from which on one is read in place, and the least length of the
//! pieces of a pipeline. The runtime follows it.

use super::contract::CopyPolicy;

/// Memory that the call also writes is read in place from this size on: below, copying into a slot costs
/// less than having the sender wait until the peer has read.
pub const KEPT_BYTES: u64 = 8 << 10;
/// The input, which no rank overwrites during the call, is read in place from this size on: the first for a
/// rank that only sends, the second for one that also receives, which could go on without that wait (2 ranks,
/// what a header carries up to 1,008 bytes against a look at the input: broadcast of 256 B 0.50 and 0.52 us,
/// of 512 B 0.65 and 0.52; all_gather of messages of 256 B 0.50 and 0.75, of 512 B 0.60 and 0.75).
pub const INPUT_BYTES: u64 = 512;
const EXCHANGED_INPUT_BYTES: u64 = 1 << 10;
/// The input is read in place from this size on where ranks share cores: who waits until its input has been
/// read gives its core away (4 ranks on 2 cores, all_to_all of 1 KiB 7.5 against 6.1 us, all_reduce of 1 KiB
/// 8.4 against 6.3, of 4 KiB 9.1 against 7.1; messages of 4 KiB are alike).
const CROWDED_INPUT_BYTES: u64 = 4 << 10;
/// Memory that the call also writes is read in place only where the vector exceeds the caches: lines that
/// both sides read and write change owners more often than those of a slot (measured at 2 ranks:
/// 64 KiB 17 against 10 us, 1 MiB 146 against 126 us, 2 MiB 253 against 294 us). Ranks that share
/// cores share caches, and every copy is a core's time: they always read in place (4 ranks on 2 cores,
/// all_reduce.two_shot: 256 KiB 43 against 75 us, 1 MiB 131 against 230 us).
pub const KEPT_VECTOR: u64 = 3 << 19;

/// Vectors from this size on do not stay in the caches.
pub const CACHED_VECTOR: u64 = 8 << 20;

/// The least bytes of a message in a pass that is made for pipelining alone: smaller ones cost more in
/// exchanges of flags (about 0.3 us) than they gain in overlap.
pub const LEAST_PIECE: u64 = 16 << 10;

impl CopyPolicy {
    /// Returns the least bytes of a message that is read in place where both ranks map one memory: one of the
    /// input, or of other memory of a call with `vector` bytes in all, whose ranks share cores or not, sent by
    /// a rank that also receives or does not.
    pub fn direct_from(self, input: bool, vector: u64, crowded: bool, receives: bool) -> u64 {
        match (self, input) {
            (CopyPolicy::Staged, _) => u64::MAX,
            (CopyPolicy::Direct, _) => 1,
            (CopyPolicy::Auto, true) if crowded => CROWDED_INPUT_BYTES,
            (CopyPolicy::Auto, true) if receives => EXCHANGED_INPUT_BYTES,
            (CopyPolicy::Auto, true) => INPUT_BYTES,
            (CopyPolicy::Auto, false) if crowded || vector >= KEPT_VECTOR => KEPT_BYTES,
            (CopyPolicy::Auto, false) => u64::MAX,
        }
    }
}
