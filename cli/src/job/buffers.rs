//! Holds the buffers of a call, between guard bytes that nobody may touch.

use std::ops::Range;

use roundelay::{Args, Buffer, Communicator, Error};

/// Bytes before and after; a page, so that data is aligned as it would be without.
const GUARD: usize = 4096;
const GUARD_BYTE: u8 = 0xc3;
/// The byte that fills outputs before a call: NaN in every float type, no `bool`.
const POISON: u8 = 0xff;

/// Memory of one kind or the other.
enum Memory {
    /// Other ranks can read it.
    Shared(Buffer<u8>),
    /// They cannot.
    Private(Vec<u8>),
}

/// Bytes with guards around them.
pub(crate) struct Guarded {
    memory: Memory,
    at: usize,
    len: usize,
}

impl Guarded {
    fn new(comm: &Communicator, private: bool, len: usize) -> Result<Self, Error> {
        if !private {
            let memory = Memory::Shared(comm.alloc::<u8>(len + 2 * GUARD)?);
            return Ok(Guarded { memory, at: GUARD, len }.guarded());
        }
        let memory = vec![0; len + 3 * GUARD];
        let at = GUARD + memory[GUARD..].as_ptr().align_offset(GUARD).min(GUARD);
        Ok(Guarded { memory: Memory::Private(memory), at, len }.guarded())
    }

    fn all(&self) -> &[u8] {
        match &self.memory {
            Memory::Shared(buffer) => buffer,
            Memory::Private(buffer) => buffer,
        }
    }

    fn all_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Shared(buffer) => buffer,
            Memory::Private(buffer) => buffer,
        }
    }

    fn guarded(mut self) -> Self {
        let (from, to) = (self.at, self.at + self.len);
        let all = self.all_mut();
        all[..from].fill(GUARD_BYTE);
        all[to..].fill(GUARD_BYTE);
        self
    }

    /// Returns the bytes.
    pub(crate) fn get(&self) -> &[u8] {
        &self.all()[self.at..self.at + self.len]
    }

    /// Returns the bytes.
    pub(crate) fn get_mut(&mut self) -> &mut [u8] {
        let (from, to) = (self.at, self.at + self.len);
        &mut self.all_mut()[from..to]
    }

    fn intact(&self) -> bool {
        let all = self.all();
        let guards = all[..self.at].iter().chain(&all[self.at + self.len..]);
        guards.fold(0, |differ, byte| differ | (byte ^ GUARD_BYTE)) == 0
    }
}

/// The buffers of a call.
pub(crate) enum Buffers {
    /// One.
    InPlace(Guarded),
    /// Input and output.
    OutOfPlace(Guarded, Guarded),
}

impl Buffers {
    /// Buffers of so many bytes: the data, or input and output.
    pub(crate) fn new(
        comm: &Communicator,
        private: bool,
        in_place: bool,
        [data, input, output]: [usize; 3],
    ) -> Result<Self, Error> {
        let guarded = |len| Guarded::new(comm, private, len);
        Ok(match in_place {
            true => Buffers::InPlace(guarded(data)?),
            false => Buffers::OutOfPlace(guarded(input)?, guarded(output)?),
        })
    }

    /// Fills every buffer with poison.
    pub(crate) fn poison(&mut self) {
        self.set(POISON);
    }

    /// Sets every byte of every buffer.
    pub(crate) fn set(&mut self, byte: u8) {
        match self {
            Buffers::InPlace(data) => data.get_mut().fill(byte),
            Buffers::OutOfPlace(input, output) => {
                input.get_mut().fill(byte);
                output.get_mut().fill(byte);
            }
        }
    }

    /// Returns the buffer that a call reads.
    pub(crate) fn source(&mut self) -> &mut Guarded {
        match self {
            Buffers::InPlace(data) => data,
            Buffers::OutOfPlace(input, _) => input,
        }
    }

    /// Returns the bytes that hold the result.
    pub(crate) fn result(&self) -> &[u8] {
        match self {
            Buffers::InPlace(data) => data.get(),
            Buffers::OutOfPlace(_, output) => output.get(),
        }
    }

    /// Returns the buffers as arguments of a call.
    pub(crate) fn args(&mut self) -> Args<&[u8], &mut [u8]> {
        match self {
            Buffers::InPlace(data) => Args::InPlace { data: data.get_mut() },
            Buffers::OutOfPlace(input, output) => {
                Args::OutOfPlace { input: input.get(), output: output.get_mut() }
            }
        }
    }

    /// Returns the bytes that a call must not change; none in place.
    pub(crate) fn input(&self) -> &[u8] {
        match self {
            Buffers::InPlace(_) => &[],
            Buffers::OutOfPlace(input, _) => input.get(),
        }
    }

    /// Returns true if no guard byte has changed.
    pub(crate) fn intact(&self) -> bool {
        match self {
            Buffers::InPlace(data) => data.intact(),
            Buffers::OutOfPlace(input, output) => input.intact() && output.intact(),
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
