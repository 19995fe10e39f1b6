//! Holds the buffers of a call, between guard bytes that no call may touch.

use std::ops::Range;

use roundelay::plan::CallArgs;
use roundelay::{Buffer, Communicator, Error};

/// Bytes before and after; a page, so that data is aligned as it would be without.
pub(crate) const GUARD: usize = 4096;
pub(super) const GUARD_BYTE: u8 = 0xc3;
/// The byte that fills outputs before a call: NaN in every float type, no `bool`.
pub(super) const POISON: u8 = 0xff;

/// The memory of a call, wherever it lies: one buffer in place, else input and output.
pub(crate) trait CallMemory {
    /// Returns the communicator of the rank.
    fn comm(&mut self) -> &mut Communicator;

    /// Returns the rank, and the number of ranks.
    fn rank(&mut self) -> (u32, u32) {
        (self.comm().rank(), self.comm().size())
    }

    /// Writes poison everywhere, and then the contributions to the input.
    fn prepare(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<(), Error>;

    /// Writes zeros.
    fn clear(&mut self) -> Result<(), Error>;

    /// Makes what a call left accessible to the host: true if no guard byte has changed.
    fn fetch(&mut self) -> Result<bool, Error>;

    /// Returns the bytes that hold the result, as fetched.
    fn result(&self) -> &[u8];

    /// Returns the bytes that a call must not change, as prepared or fetched; none in place.
    fn input(&self) -> &[u8];
}

/// Returns true if no guard byte has changed around data.
pub(super) fn is_intact(all: &[u8], at: usize, len: usize) -> bool {
    let guards = all[..at].iter().chain(&all[at + len..]);
    guards.fold(0, |differ, byte| differ | (byte ^ GUARD_BYTE)) == 0
}

/// An allocation of one kind or the other.
enum BufferAllocation {
    /// Other ranks can read it.
    Shared(Buffer<u8>),
    /// They cannot.
    Private(Vec<u8>),
}

/// Bytes with guards around them.
struct GuardedBytes {
    memory: BufferAllocation,
    at: usize,
    len: usize,
}

impl GuardedBytes {
    fn new(comm: &Communicator, private: bool, len: usize) -> Result<Self, Error> {
        if !private {
            let memory = BufferAllocation::Shared(comm.alloc::<u8>(len + 2 * GUARD)?);
            return Ok(GuardedBytes { memory, at: GUARD, len }.guarded());
        }
        let memory = vec![0; len + 3 * GUARD];
        let at = GUARD + memory[GUARD..].as_ptr().align_offset(GUARD).min(GUARD);
        Ok(GuardedBytes { memory: BufferAllocation::Private(memory), at, len }.guarded())
    }

    fn all(&self) -> &[u8] {
        match &self.memory {
            BufferAllocation::Shared(buffer) => buffer,
            BufferAllocation::Private(buffer) => buffer,
        }
    }

    fn all_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            BufferAllocation::Shared(buffer) => buffer,
            BufferAllocation::Private(buffer) => buffer,
        }
    }

    fn guarded(mut self) -> Self {
        let (from, to) = (self.at, self.at + self.len);
        let all = self.all_mut();
        all[..from].fill(GUARD_BYTE);
        all[to..].fill(GUARD_BYTE);
        self
    }

    fn get(&self) -> &[u8] {
        &self.all()[self.at..self.at + self.len]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        let (from, to) = (self.at, self.at + self.len);
        &mut self.all_mut()[from..to]
    }

    fn is_intact(&self) -> bool {
        is_intact(self.all(), self.at, self.len)
    }
}

/// The buffers of a call in the memory of the host.
pub(super) struct HostBuffers {
    /// The input, or the data.
    input: GuardedBytes,
    /// The output, out of place.
    output: Option<GuardedBytes>,
}

impl HostBuffers {
    /// Buffers of the given sizes: the data, or input and output.
    pub(super) fn new(
        comm: &Communicator,
        private: bool,
        in_place: bool,
        [input, output]: [usize; 2],
    ) -> Result<Self, Error> {
        let guarded = |len| GuardedBytes::new(comm, private, len);
        let input = guarded(input)?;
        let output = if in_place { None } else { Some(guarded(output)?) };
        Ok(HostBuffers { input, output })
    }

    /// Sets every byte of every buffer.
    fn set(&mut self, byte: u8) {
        self.input.get_mut().fill(byte);
        self.output.iter_mut().for_each(|output| output.get_mut().fill(byte));
    }

    /// Returns the buffers as arguments of a call.
    pub(super) fn args(&mut self) -> CallArgs<&[u8], &mut [u8]> {
        match &mut self.output {
            None => CallArgs::InPlace { data: self.input.get_mut() },
            Some(output) => {
                CallArgs::OutOfPlace { input: self.input.get(), output: output.get_mut() }
            }
        }
    }
}

/// The buffers of a call on a rank.
pub(super) struct HostMemory<'a> {
    pub(super) comm: &'a mut Communicator,
    pub(super) buffers: &'a mut HostBuffers,
}

impl CallMemory for HostMemory<'_> {
    fn comm(&mut self) -> &mut Communicator {
        self.comm
    }

    fn prepare(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        self.buffers.set(POISON);
        fill(self.buffers.input.get_mut());
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.buffers.set(0);
        Ok(())
    }

    fn fetch(&mut self) -> Result<bool, Error> {
        let HostBuffers { input, output } = &*self.buffers;
        Ok(input.is_intact() && output.as_ref().is_none_or(GuardedBytes::is_intact))
    }

    fn result(&self) -> &[u8] {
        self.buffers.output.as_ref().unwrap_or(&self.buffers.input).get()
    }

    fn input(&self) -> &[u8] {
        match self.buffers.output {
            None => &[],
            Some(_) => self.buffers.input.get(),
        }
    }
}

/// Returns a digest of bytes, for comparing them with others.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    // Four at once: each has to wait for the one before.
    let mut lanes = [bytes.len() as u64, 1, 2, 3];
    let mut groups = bytes.chunks_exact(32);
    for group in &mut groups {
        for (lane, chunk) in lanes.iter_mut().zip(group.chunks_exact(8)) {
            *lane = mix(*lane, word(chunk));
        }
    }
    let [first, others @ ..] = lanes;
    groups.remainder().chunks(8).map(word).chain(others).fold(first, mix)
}

fn mix(h: u64, word: u64) -> u64 {
    (h ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29)
}

/// Returns a digest of some elements of a buffer.
pub(crate) fn digest_of(bytes: &[u8], ranges: &[Range<usize>], size: usize) -> u64 {
    let some = ranges.iter().map(|r| digest(&bytes[r.start * size..r.end * size]));
    some.fold(ranges.len() as u64, mix)
}
