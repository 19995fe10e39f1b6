//! An all_to_all whose counts lie on the device. [`roundelay_emit::cuda::counted`] has how it is run.

use std::sync::Arc;

use roundelay_compiler::device::abi;
use roundelay_compiler::plan::MessageDirection;
use roundelay_emit::cuda::batch::{blocks, lanes};
use roundelay_emit::cuda::counted::{CountedParams, CountedVector, PARAMS, PEERS, RING, counted};

use super::batch::{RankLayout, end_words};
use super::buffer::DevicePtr;
use super::calls::UnsupportedCall;
use super::control::{agree, same};
use super::device::RankDevice;
use super::params::words;
use super::rank::GpuRank;
use crate::backend::{CudaStream, LoadedKernel, RelaxedCapture};
use roundelay_engine::EngineCore;
use roundelay_engine::bind::BatchTransfer;
use roundelay_support::digest::mix;
use roundelay_support::dtype::DType;
use roundelay_support::error::Error;

/// The layout of the blocks of a vector in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockLayout {
    /// Each follows the one before.
    Packed,
    /// Each begins that many rows after the one before.
    Padded(usize),
}

/// The sizes of an all_to_all whose counts lie on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedShape {
    /// Elements of a row; the same on all ranks.
    pub row: usize,
    /// Most rows of a block; the same on all ranks.
    pub most: usize,
    /// The layout of blocks in the input.
    pub input: BlockLayout,
    /// The layout of blocks in the output.
    pub output: BlockLayout,
}

/// Such a call.
#[derive(Debug, Clone, Copy)]
pub struct CountedCall {
    /// The type of elements.
    pub dtype: DType,
    /// The shape of input, output and counts.
    pub shape: CountedShape,
    /// Address and elements of the input.
    pub input: (DevicePtr, usize),
    /// Address and elements of the output.
    pub output: (DevicePtr, usize),
    /// Addresses of the counts for each rank, and how many.
    pub sends: (DevicePtr, usize),
    /// Addresses of the counts from each rank, and how many.
    pub receives: (DevicePtr, usize),
}

const NAME: &str = "all_to_all_counted";

impl CountedCall {
    /// Returns the parameters between the fixed ones and the peers, as far as the call has them.
    fn checked(&self, ranks: u32) -> Result<CountedParams, Error> {
        let usage = |what: String| Error::Usage(format!("{NAME}: {what}"));
        let CountedShape { row, most, input, output } = self.shape;
        if row == 0 || most >= 1 << 32 {
            return Err(usage(format!("rows of {row} elements, at most {most} of them: none")));
        }
        for (name, (at, len)) in [("for", self.sends), ("from", self.receives)] {
            if len != ranks as usize || at.is_null() {
                return Err(usage(format!("{len} counts {name} {ranks} ranks")));
            }
        }
        let vector = |name: &str, (at, len): (DevicePtr, usize), blocks: BlockLayout| {
            let (rows, stride) = match blocks {
                BlockLayout::Packed => (len / row, 0),
                BlockLayout::Padded(stride) => (len / row, stride),
            };
            if len > 0 && at.is_null() {
                return Err(usage(format!("the {name} is null")));
            }
            if stride == 0 && blocks != BlockLayout::Packed {
                return Err(usage(format!("blocks of the {name} are padded to no rows")));
            }
            let whole = stride.checked_mul(ranks as usize);
            match whole.is_some_and(|whole| whole <= rows) {
                true => Ok(CountedVector { at: at.0, rows: rows as u64, stride: stride as u64 }),
                false => Err(usage(format!(
                    "the {name} has {rows} rows of {row} elements, and {ranks} blocks padded to {stride}"
                ))),
            }
        };
        let bytes = (row as u64).checked_mul(self.dtype.size() as u64).filter(|b| *b < 1 << 31);
        let bytes = bytes.ok_or_else(|| usage(format!("rows of {row} elements are too long")))?;
        let message =
            BatchTransfer { peer: 0, dir: MessageDirection::Send, dtype: self.dtype, bytes };
        Ok(CountedParams {
            input: vector("input", self.input, input)?,
            output: vector("output", self.output, output)?,
            sends: self.sends.0.0,
            receives: self.receives.0.0,
            row: bytes,
            most: most as u64,
            ranks: ranks.into(),
            tag: 1 << 63 | u64::from(message.tag()),
            ..CountedParams::default()
        })
    }
}

/// The sizes on which all ranks have agreed: the type, the elements of a row, the most rows.
type CountedKey = (DType, usize, usize);

/// The calls whose counts lie on the device: their kernel, and the sizes that all ranks have agreed on.
#[derive(Debug, Default)]
pub(super) struct CountedTable {
    kernel: Option<Arc<LoadedKernel>>,
    agreed: Vec<CountedKey>,
}

impl CountedTable {
    /// Puts an all_to_all whose counts lie on the device into a stream. The first one of its kind is agreed on by all
    /// ranks.
    pub(super) fn exchange(
        &mut self,
        rank: &mut GpuRank,
        core: &mut EngineCore,
        call: &CountedCall,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        core.usable()?;
        rank.on_one_host(NAME)?;
        rank.listen(core)?;
        let fixed = call.checked(rank.device.ranks);
        let key = (call.dtype, call.shape.row, call.shape.most);
        let fixed = match self.agreed.contains(&key) {
            true => fixed?,
            false => self.agree(rank, core, key, fixed)?,
        };
        let Some(kernel) = &self.kernel else { return Ok(()) };
        let timeout = u64::try_from(core.timeout().as_nanos()).unwrap_or(u64::MAX);
        let params = counted_params(rank, fixed, timeout);
        let grid = (counted_blocks(&rank.device), abi::THREADS);
        // SAFETY: the words are those of the kernel's parameter. The arena and the mailbox live as long as `rank`; the
        // caller's memory is good by the promise with which its addresses were made, as far as was checked here and by
        // the kernel.
        rank.put(core, stream, || unsafe { kernel.launch(stream, grid, &params) })
    }

    /// Agrees with all ranks on the sizes of a call, and loads the kernel.
    fn agree(
        &mut self,
        rank: &mut GpuRank,
        core: &mut EngineCore,
        key: CountedKey,
        fixed: Result<CountedParams, Error>,
    ) -> Result<CountedParams, Error> {
        // A stream that is being captured would not let this thread load code.
        let _aside = RelaxedCapture::begin().map_err(|fault| rank.device.fault(&fault))?;
        let fixed = agree(core, fixed)?;
        let ends = 2 * (rank.device.ranks as usize - 1);
        let supported = match (ends <= 2 * PEERS, counted_blocks(&rank.device) > 0) {
            (true, true) => Ok(()),
            (false, _) => Err(UnsupportedCall::Ends(ends)),
            // This rank's own block is beside them.
            (_, false) => Err(UnsupportedCall::Blocks {
                ends,
                blocks: 2 * rank.device.ranks - 1,
                sms: rank.device.sms,
            }),
        };
        supported.map_err(|why| Error::Unsupported(format!("{NAME}: {why}")))?;
        let (dtype, row, most) = key;
        let digest = mix(mix(mix(5, dtype as u64), row as u64), most as u64);
        if let Some(peer) = same(core, digest)? {
            let detail = format!(
                "rank {} runs {NAME} of at most {most} rows of {row} x {dtype} a block",
                rank.device.rank
            );
            let error = Error::PlanMismatch { rank: rank.device.rank, peer, detail };
            return Err(core.fail(error));
        }
        let kernel = agree(core, self.kernel(&mut rank.device))?;
        self.kernel.get_or_insert(kernel);
        self.agreed.push(key);
        Ok(fixed)
    }

    fn kernel(&self, device: &mut RankDevice) -> Result<Arc<LoadedKernel>, Error> {
        match &self.kernel {
            Some(kernel) => Ok(kernel.clone()),
            None => device.load(&counted(device.ranks), NAME),
        }
    }

    /// Leaves the kernel loaded until the process ends.
    pub(super) fn abandon(&self) {
        self.kernel.iter().cloned().for_each(std::mem::forget);
    }
}

/// Returns the blocks of a call: those of each direction of each peer, and of this rank's own block.
fn counted_blocks(device: &RankDevice) -> u32 {
    let ends = 2 * device.ranks - 1;
    ends * blocks(ends, lanes(device.ranks), device.sms)
}

/// Returns the words of the kernel's parameter.
fn counted_params(rank: &GpuRank, fixed: CountedParams, timeout: u64) -> Vec<u64> {
    let (device, memory) = (&rank.device, &rank.memory);
    let (abort, report) = device.mailbox.addresses();
    let own = memory.arena.base(device.rank);
    let state = own + memory.layout.states;
    let all = abi::KernelParams { state, abort, report, timeout, ..abi::KernelParams::default() };
    let CountedParams { input, output, sends, receives, row, most, ranks, tag, .. } = fixed;
    let (turns, reported) = (own + memory.layout.turns(), own + memory.layout.reported());
    let mut params = words(&all).to_vec();
    // An address a rank of four kinds, which this kernel has no use for.
    params.extend([0; 4]);
    for CountedVector { at, rows, stride } in [input, output] {
        params.extend([at, rows, stride]);
    }
    params.extend([sends, receives, turns, reported, row, most, device.rank.into(), ranks, tag]);
    let ring = 8 * RING * u64::from(device.rank);
    let words_of = |peer: u32| memory.arena.base(peer) + memory.layout.reported() + ring;
    params.extend((0..=PEERS as u32).map(|p| if p < device.ranks { words_of(p) } else { 0 }));
    let place = RankLayout { rank: device.rank, layout: &memory.layout };
    for peer in (0..device.ranks).filter(|&peer| peer != device.rank) {
        for dir in [MessageDirection::Send, MessageDirection::Recv] {
            let theirs = memory.arena.base(peer);
            params.extend(end_words(&place.end((peer, dir), own, theirs)));
        }
    }
    params.resize(PARAMS / 8, 0);
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::END;
    use crate::params::WORDS;

    fn call(input: BlockLayout, output: BlockLayout) -> CountedCall {
        let at = DevicePtr(4096);
        CountedCall {
            dtype: DType::Bf16,
            shape: CountedShape { row: 8, most: 100, input, output },
            input: (at, 8 * 60 + 7),
            output: (at, 8 * 40),
            sends: (at, 4),
            receives: (at, 4),
        }
    }

    #[test]
    fn what_cannot_hold_the_blocks_is_refused() {
        let well = call(BlockLayout::Packed, BlockLayout::Padded(10)).checked(4).expect("room");
        assert_eq!((well.input.rows, well.input.stride), (60, 0));
        assert_eq!((well.output.rows, well.output.stride, well.row), (40, 10, 16));
        let said =
            |call: CountedCall, ranks| call.checked(ranks).expect_err("it is refused").to_string();
        let tight = said(call(BlockLayout::Packed, BlockLayout::Padded(11)), 4);
        assert!(tight.contains("the output has 40 rows of 8 elements, and 4 blocks padded to 11"));
        assert!(
            said(call(BlockLayout::Packed, BlockLayout::Packed), 3)
                .contains("4 counts for 3 ranks")
        );
        assert!(
            said(call(BlockLayout::Padded(0), BlockLayout::Packed), 4)
                .contains("padded to no rows")
        );
        let huge = call(BlockLayout::Padded(usize::MAX / 2), BlockLayout::Packed);
        assert!(said(huge, 4).contains("the input has 60 rows"));
        let null = CountedCall {
            input: (DevicePtr::NULL, 8),
            ..call(BlockLayout::Packed, BlockLayout::Packed)
        };
        assert!(said(null, 4).contains("the input is null"));
        let shape = CountedShape { row: 0, ..null.shape };
        assert!(said(CountedCall { shape, ..null }, 4).contains("rows of 0 elements"));
    }

    #[test]
    fn the_parameters_have_the_kernels_length() {
        let before = WORDS + 4 + size_of::<CountedParams>() / 8 + PEERS + 1;
        assert_eq!(PARAMS / 8, before + END * 2 * PEERS);
    }
}
