//! Cuts a call: which elements a block runs in which pass, and what a slot holds. The cut is a function of
//! what all ranks have in common, so that all cut alike.

use roundelay_compiler::device::DeviceProtocol;
use roundelay_compiler::plan::PlanHeader;

use super::unsupported_call::UnsupportedCall;
use crate::tunables::{
    FAR_PASS_CHUNK_BYTES_MAX, HOP_BYTES, PASS_CHUNK_BYTES_MAX, PASS_CHUNK_BYTES_MIN,
    PROXY_BLOCKS_MAX, PROXY_SLOTS_BYTES,
};
use roundelay_support::dtype::DType;

/// The alignment of kernels' addresses, in bytes.
const GROUP: u64 = 16;

/// Sizes of a call; see `roundelay_compiler::device::abi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallCut {
    /// B.
    pub(crate) blocks: u32,
    /// Elements of a chunk that a block runs in a pass.
    pub(crate) pass: u64,
    /// Passes.
    pub(crate) passes: u64,
    /// Bytes of a chunk in a slot.
    pub(crate) unit: u64,
}

/// The sizes of a call and of its program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallSizes<'a> {
    pub(crate) header: &'a PlanHeader,
    pub(crate) protocol: DeviceProtocol,
    /// Chunks of staging memory that a block needs.
    pub(crate) staging: u32,
    /// Chunks of far memory that a block needs.
    pub(crate) far: u32,
    /// Most messages a pass of a connection.
    pub(crate) messages: u32,
    pub(crate) count: u64,
    pub(crate) dtype: DType,
}

impl CallSizes<'_> {
    /// Cuts it for `blocks`, with `half` bytes in each half of the staging memory.
    ///
    /// # Errors
    ///
    /// The reason for which it cannot be run so: the same on all ranks.
    pub(crate) fn cut(&self, blocks: u32, half: u64) -> Result<CallCut, UnsupportedCall> {
        let (header, size) = (self.header, self.dtype.size() as u64);
        let ceil = self.ceil()?;
        let (b, group) = (u64::from(blocks.max(1)), GROUP / size);
        let whole = ceil.div_ceil(b).next_multiple_of(group).max(group);
        // A message may be wider than the element: f32 on the wire of f16. Packets carry a number beside their data.
        let wide = if header.lossy { size.max(4) } else { size };
        let on_the_wire = if self.protocol == DeviceProtocol::Packet { 2 * wide } else { wide };
        let staging = u64::from(self.staging);
        let fits = |chunks: u64, bytes: u64| match chunks.checked_mul(b) {
            Some(0) => whole,
            Some(units) => bytes / units / GROUP * GROUP / on_the_wire / group * group,
            None => 0,
        };
        let far = fits(self.far.into(), PROXY_SLOTS_BYTES);
        if far == 0 || self.far > 0 && blocks > PROXY_BLOCKS_MAX {
            return Err(UnsupportedCall::Far { blocks, most: PROXY_BLOCKS_MAX, chunks: self.far });
        }
        let fits = fits(staging, half).min(far);
        if fits == 0 || self.protocol.is_one_pass() && fits < whole {
            return Err(UnsupportedCall::Staging {
                name: format!("{}.{}", header.collective, header.algorithm),
                protocol: self.protocol,
                wanted: units(staging, b, whole * on_the_wire),
                elements: ceil,
                dtype: self.dtype,
                has: half,
            });
        }
        let worthwhile =
            (u64::from(header.message.max(1)) * whole * wide / PASS_CHUNK_BYTES_MIN).max(1);
        let wanted = match header.pipeline {
            0 | 1 => 1,
            _ => self.pieces(ceil * u64::from(header.message.max(1)) * wide).min(worthwhile),
        };
        let pipelined = match self.protocol.is_one_pass() {
            true => whole,
            false => ceil.div_ceil(b * wanted).next_multiple_of(group).max(group),
        };
        let bounded = match self.protocol.is_one_pass() {
            true => whole,
            false => {
                let most =
                    if self.far == 0 { PASS_CHUNK_BYTES_MAX } else { FAR_PASS_CHUNK_BYTES_MAX };
                whole.div_ceil((whole * size).div_ceil(most)).next_multiple_of(group)
            }
        };
        let pass = whole.min(fits).min(pipelined).min(bounded);
        let passes = ceil.div_ceil(b * pass).max(1);
        if passes.checked_mul(u64::from(self.messages) + 1).is_none_or(|m| m >> 32 != 0) {
            return Err(UnsupportedCall::Passes { passes, messages: self.messages });
        }
        let unit = (pass * on_the_wire).next_multiple_of(GROUP);
        Ok(CallCut { blocks: b as u32, pass, passes, unit })
    }

    /// Returns the number of passes of a plan that is pipelined: T of them take `(T + h) (l + m / T)`, with h
    /// hops more than one, l for a hop's waits and barriers, and m for the bytes; the least is at `sqrt(h m /
    /// l)`.
    fn pieces(&self, bytes: u64) -> u64 {
        let hops = u64::from(self.header.ranks.saturating_sub(2));
        (hops * bytes / HOP_BYTES).isqrt().max(1)
    }

    /// Returns `ceil(N/C)`, if the vector fits an address space.
    fn ceil(&self) -> Result<u64, UnsupportedCall> {
        let (header, size) = (self.header, self.dtype.size() as u64);
        let elements = u64::from(header.blocks).checked_mul(self.count);
        elements
            .filter(|n| n.checked_mul(size.max(4)).is_some_and(|bytes| bytes < 1 << 46))
            .map(|n| n.div_ceil(u64::from(header.chunks.max(1))))
            .ok_or(UnsupportedCall::TooLong)
    }

    /// Returns the bytes of the scratch buffers.
    pub(crate) fn scratch(&self, align: u64) -> Result<u64, UnsupportedCall> {
        let chunk = self.ceil()? * self.dtype.size() as u64;
        let buffers = self.header.scratch.iter();
        Ok(buffers.map(|&chunks| (u64::from(chunks) * chunk).next_multiple_of(align)).sum())
    }
}

fn units(staging: u64, blocks: u64, bytes: u64) -> u64 {
    staging.saturating_mul(blocks).saturating_mul(bytes.next_multiple_of(GROUP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use roundelay_compiler::plan::{BufferPlacement, CopyPolicy};

    fn header(chunks: u32, blocks: u32, pipeline: u32, lossy: bool) -> PlanHeader {
        PlanHeader {
            hash: [0; 16],
            algorithm: "a".into(),
            collective: "all_reduce".into(),
            ranks: 4,
            root: 0,
            placement: BufferPlacement::InPlace,
            chunks,
            blocks,
            input_chunks: 0,
            output_chunks: 0,
            scratch: vec![2, 3],
            slots: 2,
            pipeline,
            message: 2,
            reduces: true,
            lossy,
            protocol: CopyPolicy::Auto,
            split: None,
        }
    }

    const TYPES: [DType; 4] = [DType::U8, DType::F16, DType::F32, DType::F64];

    proptest! {
        /// Every element of every chunk is in exactly one block and pass, and what is staged fits.
        #[test]
        fn every_element_is_processed_once_and_fits(
            (chunks, blocks, pipeline, lossy) in (1u32..40, 1u32..9, 1u32..9, any::<bool>()),
            (count, grid, staging) in (0u64..3000, 1u32..130, 0u32..50),
            (half, protocol, dtype) in (1u64 << 10..1 << 18, 0..DeviceProtocol::ALL.len(), 0usize..4),
        ) {
            let header = header(chunks, blocks, pipeline, lossy);
            let (protocol, dtype) = (DeviceProtocol::ALL[protocol], TYPES[dtype]);
            let job = CallSizes { header: &header, protocol, staging, far: 0, messages: 7, count, dtype };
            let Ok(cut) = job.cut(grid, half) else {
                prop_assert!(staging > 0, "only staging memory can be short");
                return Ok(());
            };
            let size = dtype.size() as u64;
            prop_assert_eq!(cut.pass * size % 16, 0);
            prop_assert!(!protocol.is_one_pass() || cut.passes == 1);
            let wire = if lossy { size.max(4) } else { size };
            let bytes = cut.pass * wire * if protocol == DeviceProtocol::Packet { 2 } else { 1 };
            prop_assert!(bytes <= cut.unit && cut.unit % 16 == 0);
            prop_assert!(u64::from(staging) * u64::from(cut.blocks) * cut.unit <= half || staging == 0);
            let all = count * u64::from(blocks);
            for chunk in [0, chunks - 1] {
                let at = |c: u32| all * u64::from(c) / u64::from(chunks);
                let len = at(chunk + 1) - at(chunk);
                let mut processed = vec![0u8; len as usize];
                for pass in 0..cut.passes {
                    for block in 0..u64::from(cut.blocks) {
                        let from = (pass * u64::from(cut.blocks) + block) * cut.pass;
                        for e in from..(from + cut.pass).min(len) {
                            processed[e as usize] += 1;
                        }
                    }
                }
                prop_assert!(processed.iter().all(|&times| times == 1), "{cut:?}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_says_what_it_needs() {
        let header = header(4, 1, 1, false);
        let job = CallSizes {
            header: &header,
            protocol: DeviceProtocol::Packet,
            staging: 6,
            far: 0,
            messages: 3,
            count: 1 << 20,
            dtype: DType::F32,
        };
        let error = job.cut(8, 1 << 20).expect_err("12 MiB in 1 MiB").to_string();
        assert!(error.contains("all_reduce.a as `packet` needs 12 MiB"), "{error}");
        let staged = CallSizes { protocol: DeviceProtocol::Staged, ..job };
        assert!(staged.cut(8, 1 << 20).is_ok_and(|cut| cut.passes > 1));
        assert!(staged.cut(128, 1 << 10).is_err());
        assert!(CallSizes { count: 1 << 60, ..job }.cut(1, 1 << 20).is_err());
        assert_eq!(job.scratch(256), Ok((2 + 3) << 20));
    }

    #[test]
    fn a_pass_is_not_too_long() {
        let header = header(1, 1, 1, false);
        let job = |count, protocol| CallSizes {
            header: &header,
            protocol,
            staging: 0,
            far: 0,
            messages: 1,
            count,
            dtype: DType::F32,
        };
        let cut = |count, protocol| job(count, protocol).cut(128, 1 << 26).expect("room");
        let passes = |count, protocol| cut(count, protocol).passes;
        assert_eq!(
            (passes(1 << 26, DeviceProtocol::Put), passes((1 << 26) + 1, DeviceProtocol::Put)),
            (1, 2)
        );
        assert_eq!(
            (passes(1 << 28, DeviceProtocol::Get), cut(1 << 28, DeviceProtocol::Get).pass * 4),
            (4, 2 << 20)
        );
        assert_eq!(passes(1 << 28, DeviceProtocol::Packet), 1, "packets are run in one");
        assert_eq!(passes(1 << 28, DeviceProtocol::Engine), 1, "engines know no passes");
    }

    #[test]
    fn pipelining_does_not_make_tiny_pieces() {
        let header = header(1, 1, 8, false);
        let job = |count| CallSizes {
            header: &header,
            protocol: DeviceProtocol::Staged,
            staging: 2,
            far: 0,
            messages: 1,
            count,
            dtype: DType::F32,
        };
        let passes = |count| job(count).cut(1, 1 << 26).expect("room").passes;
        assert_eq!((passes(1000), passes(1 << 18)), (1, 1), "less than a hop costs");
        let four = |count| job(count).cut(64, 1 << 26).expect("room").passes;
        assert_eq!((four(1 << 22), four(1 << 23), four(1 << 25)), (4, 5, 11), "sqrt(2 m)");
    }
}
