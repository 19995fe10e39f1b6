//! An all_to_all whose counts lie on the device. [`roundelay_compiler::emit::cuda::counted`] has how it is played.

use std::sync::Arc;

use roundelay_compiler::device::abi;
use roundelay_compiler::emit::cuda::KERNEL;
use roundelay_compiler::emit::cuda::batch::{blocks, lanes};
use roundelay_compiler::emit::cuda::counted::{Fixed, PARAMS, PEERS, RING, Vector, counted};
use roundelay_compiler::plan::Dir;

use super::batch::{Place, end_words};
use super::control::{agree, same};
use super::gpu::Gpu;
use super::program::words;
use super::unplayable::Unplayable;
use super::{CudaStream, DevicePtr};
use crate::backend::{Aside, Kernel, Options};
use roundelay_engine::Core;
use roundelay_engine::bind::Transfer;
use roundelay_net::digest::mix;
use roundelay_net::dtype::DType;
use roundelay_net::error::{Error, Source};

/// The layout of the blocks of a vector in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// Each follows the one before.
    Packed,
    /// Each begins so many rows after the one before.
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
    pub input: Blocks,
    /// The layout of blocks in the output.
    pub output: Blocks,
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
    fn checked(&self, ranks: u32) -> Result<Fixed, Error> {
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
        let vector = |name: &str, (at, len): (DevicePtr, usize), blocks: Blocks| {
            let (rows, stride) = match blocks {
                Blocks::Packed => (len / row, 0),
                Blocks::Padded(stride) => (len / row, stride),
            };
            if len > 0 && at.is_null() {
                return Err(usage(format!("the {name} is null")));
            }
            if stride == 0 && blocks != Blocks::Packed {
                return Err(usage(format!("blocks of the {name} are padded to no rows")));
            }
            let whole = stride.checked_mul(ranks as usize);
            match whole.is_some_and(|whole| whole <= rows) {
                true => Ok(Vector { at: at.0, rows: rows as u64, stride: stride as u64 }),
                false => Err(usage(format!(
                    "the {name} has {rows} rows of {row} elements, and {ranks} blocks padded to {stride}"
                ))),
            }
        };
        let bytes = (row as u64).checked_mul(self.dtype.size() as u64).filter(|b| *b < 1 << 31);
        let bytes = bytes.ok_or_else(|| usage(format!("rows of {row} elements are too long")))?;
        let message = Transfer { peer: 0, dir: Dir::Send, dtype: self.dtype, bytes };
        Ok(Fixed {
            input: vector("input", self.input, input)?,
            output: vector("output", self.output, output)?,
            sends: self.sends.0.0,
            receives: self.receives.0.0,
            row: bytes,
            most: most as u64,
            ranks: ranks.into(),
            tag: 1 << 63 | u64::from(message.tag()),
            ..Fixed::default()
        })
    }
}

impl Gpu {
    /// Puts an all_to_all whose counts lie on the device into a stream. The first one of its kind is agreed on by all
    /// ranks.
    pub fn exchange_counted(
        &mut self,
        core: &mut Core,
        call: &CountedCall,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        core.usable()?;
        self.on_one_host(NAME)?;
        self.listen(core)?;
        let fixed = call.checked(self.ranks);
        let key = (call.dtype, call.shape.row, call.shape.most);
        let fixed =
            match (self.counted.as_ref().is_some_and(|(_, known)| known.contains(&key)), fixed) {
                (true, fixed) => fixed?,
                (false, fixed) => self.counted_bound(core, key, fixed)?,
            };
        let Some((kernel, _)) = &self.counted else { return Ok(()) };
        let timeout = u64::try_from(core.timeout().as_nanos()).unwrap_or(u64::MAX);
        let params = self.counted_params(fixed, timeout);
        let grid = (self.counted_blocks(), abi::THREADS);
        // SAFETY: the words are those of the kernel's parameter. The arena and the mailbox live as long as `self`; the
        // caller's memory is good as whoever made its addresses promised, as far as was checked here and by the kernel.
        let launched = self.journal.put(stream, || unsafe { kernel.launch(stream, grid, &params) });
        launched.map_err(|fault| {
            let error = self.fault(&fault);
            self.end(core, error)
        })
    }

    /// Agrees with all ranks on the sizes of a call, and loads the kernel.
    fn counted_bound(
        &mut self,
        core: &mut Core,
        key: (DType, usize, usize),
        fixed: Result<Fixed, Error>,
    ) -> Result<Fixed, Error> {
        // A stream that is being captured would not let this thread load code.
        let _aside = Aside::step().map_err(|fault| self.fault(&fault))?;
        let fixed = agree(core, fixed)?;
        let ends = 2 * (self.ranks as usize - 1);
        let playable = match (ends <= 2 * PEERS, self.counted_blocks() > 0) {
            (true, true) => Ok(()),
            (false, _) => Err(Unplayable::Ends(ends)),
            // This rank's own block is beside them.
            (_, false) => {
                Err(Unplayable::Blocks { ends, blocks: 2 * self.ranks - 1, sms: self.sms })
            }
        };
        playable.map_err(|why| Error::Unsupported(format!("{NAME}: {why}")))?;
        let (dtype, row, most) = key;
        let digest = mix(mix(mix(5, dtype as u64), row as u64), most as u64);
        if let Some(peer) = same(core, digest)? {
            let detail = format!(
                "rank {} plays {NAME} of at most {most} rows of {row} x {dtype} a block",
                self.rank
            );
            let error = Error::PlanMismatch { rank: self.rank, peer, detail };
            return Err(core.fail(error));
        }
        let kernel = self.counted_kernel();
        let kernel = agree(core, kernel)?;
        let known = self.counted.get_or_insert_with(|| (kernel, Vec::new()));
        known.1.push(key);
        Ok(fixed)
    }

    /// Returns the blocks of a call: those of each direction of each peer, and of this rank's own block.
    fn counted_blocks(&self) -> u32 {
        let ends = 2 * self.ranks - 1;
        ends * blocks(ends, lanes(self.ranks), self.sms)
    }

    fn counted_kernel(&mut self) -> Result<Arc<Kernel>, Error> {
        if let Some((kernel, _)) = &self.counted {
            return Ok(kernel.clone());
        }
        let kernel = self.kernels.get(&counted(self.ranks), KERNEL, abi::THREADS, Options::Exact);
        kernel.map_err(|error| {
            self.failed(format!("the kernel of {NAME}: {error}"), Some(Source::new(error)))
        })
    }

    /// Returns the words of the kernel's parameter.
    fn counted_params(&self, fixed: Fixed, timeout: u64) -> Vec<u64> {
        let (abort, report) = self.mailbox.addresses();
        let own = self.arena.base(self.rank);
        let state = own + self.layout.states;
        let all = abi::Params { state, abort, report, timeout, ..abi::Params::default() };
        let Fixed { input, output, sends, receives, row, most, ranks, tag, .. } = fixed;
        let (turns, told) = (own + self.layout.turns(), own + self.layout.told());
        let mut params = words(&all).to_vec();
        // An address a rank of four kinds, which this kernel has no use for.
        params.extend([0; 4]);
        for Vector { at, rows, stride } in [input, output] {
            params.extend([at, rows, stride]);
        }
        params.extend([sends, receives, turns, told, row, most, self.rank.into(), ranks, tag]);
        let ring = 8 * RING * u64::from(self.rank);
        let told = |peer: u32| self.arena.base(peer) + self.layout.told() + ring;
        params.extend((0..=PEERS as u32).map(|p| if p < self.ranks { told(p) } else { 0 }));
        let place = Place { rank: self.rank, layout: &self.layout };
        for peer in (0..self.ranks).filter(|&peer| peer != self.rank) {
            for dir in [Dir::Send, Dir::Recv] {
                let theirs = self.arena.base(peer);
                params.extend(end_words(&place.end((peer, dir), own, theirs)));
            }
        }
        params.resize(PARAMS / 8, 0);
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::END;
    use crate::program::WORDS;

    fn call(input: Blocks, output: Blocks) -> CountedCall {
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
        let well = call(Blocks::Packed, Blocks::Padded(10)).checked(4).expect("room");
        assert_eq!((well.input.rows, well.input.stride), (60, 0));
        assert_eq!((well.output.rows, well.output.stride, well.row), (40, 10, 16));
        let said =
            |call: CountedCall, ranks| call.checked(ranks).expect_err("it is refused").to_string();
        let tight = said(call(Blocks::Packed, Blocks::Padded(11)), 4);
        assert!(tight.contains("the output has 40 rows of 8 elements, and 4 blocks padded to 11"));
        assert!(said(call(Blocks::Packed, Blocks::Packed), 3).contains("4 counts for 3 ranks"));
        assert!(said(call(Blocks::Padded(0), Blocks::Packed), 4).contains("padded to no rows"));
        let huge = call(Blocks::Padded(usize::MAX / 2), Blocks::Packed);
        assert!(said(huge, 4).contains("the input has 60 rows"));
        let null =
            CountedCall { input: (DevicePtr::NULL, 8), ..call(Blocks::Packed, Blocks::Packed) };
        assert!(said(null, 4).contains("the input is null"));
        let shape = CountedShape { row: 0, ..null.shape };
        assert!(said(CountedCall { shape, ..null }, 4).contains("rows of 0 elements"));
    }

    #[test]
    fn the_parameters_have_the_kernels_length() {
        let before = WORDS + 4 + size_of::<Fixed>() / 8 + PEERS + 1;
        assert_eq!(PARAMS / 8, before + END * 2 * PEERS);
    }
}
