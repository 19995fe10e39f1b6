//! Holds the buffers of calls on a GPU, between guard bytes, and what the host makes of them.
//!
//! Two areas, as large as the largest call of a job needs, serve all its calls: for input (or data in place)
//! and output. Libraries inside the ranks that bring memory of their own have two of theirs.

use roundelay::cuda::DevicePtr;
use roundelay::{Args, Communicator, Error};

/// Bytes before and after; data is aligned as it would be without.
pub(crate) const GUARD: usize = 4096;
const GUARD_BYTE: u8 = 0xc3;
/// The byte that fills outputs before a call: NaN in every float type, no `bool`.
const POISON: u8 = 0xff;

/// Returns the bytes of an area for so many bytes of data.
pub(crate) fn room(len: usize) -> usize {
    len.saturating_add(2 * GUARD).next_multiple_of(GUARD)
}

/// The memory of a call: two areas, and the bytes of data in each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// True if only the first area is used.
    pub(crate) in_place: bool,
    /// The addresses at which the areas begin.
    pub(crate) areas: [DevicePtr; 2],
    /// The address of the data in each area, by buffer.
    pub(crate) data: [DevicePtr; 2],
    /// Bytes of data in each: data and nothing, or input and output.
    pub(crate) lens: [usize; 2],
}

impl View {
    /// Returns the index of the area that holds the result.
    fn result(&self) -> usize {
        usize::from(!self.in_place)
    }

    /// Returns the buffers as arguments of a call of ours.
    pub(crate) fn buffers(&self) -> Args<DevicePtr, DevicePtr> {
        match self.in_place {
            true => Args::InPlace { data: self.data[0] },
            false => Args::OutOfPlace { input: self.data[0], output: self.data[1] },
        }
    }

    /// Addresses of what is read and of what is written.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        (self.data[0].address(), self.data[self.result()].address())
    }

    fn used(&self) -> std::ops::RangeInclusive<usize> {
        0..=self.result()
    }

    /// Guards around the data, and poison in it.
    pub(crate) fn poison(&self, gpu: &mut Communicator) -> Result<(), Error> {
        for area in self.used() {
            gpu.fill(self.areas[area], GUARD_BYTE, room(self.lens[area]))?;
            gpu.fill(self.data[area], POISON, self.lens[area])?;
        }
        Ok(())
    }

    /// Writes poison where the result will be, out of place.
    pub(crate) fn spoil(&self, gpu: &mut Communicator) -> Result<(), Error> {
        gpu.fill(self.data[1], POISON, self.lens[1])
    }

    /// Zeros in the data.
    pub(crate) fn clear(&self, gpu: &mut Communicator) -> Result<(), Error> {
        self.used().try_for_each(|area| gpu.fill(self.data[area], 0, self.lens[area]))
    }

    /// Writes what is to be read.
    pub(crate) fn write(&self, gpu: &mut Communicator, input: &[u8]) -> Result<(), Error> {
        gpu.write(self.data[0], input)
    }

    /// Reads the result. Whether the guards around it are as they were.
    pub(crate) fn read(&self, gpu: &mut Communicator, into: &mut Host) -> Result<bool, Error> {
        self.read_area(gpu, self.result(), into)
    }

    /// Returns true if the input and the guards around it are unchanged; always true in place.
    pub(crate) fn kept(
        &self,
        gpu: &mut Communicator,
        input: &[u8],
        scratch: &mut Host,
    ) -> Result<bool, Error> {
        if self.in_place {
            return Ok(true);
        }
        let intact = self.read_area(gpu, 0, scratch)?;
        Ok(intact && scratch.data() == input)
    }

    fn read_area(
        &self,
        gpu: &mut Communicator,
        area: usize,
        into: &mut Host,
    ) -> Result<bool, Error> {
        into.bytes.resize(room(self.lens[area]), 0);
        into.len = self.lens[area];
        into.at = (self.data[area].address() - self.areas[area].address()) as usize;
        gpu.read(self.areas[area], &mut into.bytes)?;
        let (before, rest) = into.bytes.split_at(into.at);
        let after = &rest[into.len..];
        Ok(before.iter().chain(after).all(|&byte| byte == GUARD_BYTE))
    }
}

/// A copy of an area.
#[derive(Debug, Default)]
pub(crate) struct Host {
    bytes: Vec<u8>,
    /// The offset of the data, in bytes.
    at: usize,
    len: usize,
}

impl Host {
    /// Returns the data without the guards.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.at..self.at + self.len]
    }
}

/// Fills a buffer of an input with the byte that it holds before its contributions are written.
pub(crate) fn poisoned(buffer: &mut Vec<u8>, len: usize) {
    buffer.clear();
    buffer.resize(len, POISON);
}
