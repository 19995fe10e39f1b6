//! Holds the buffers of calls on a GPU, between guard bytes, and what the host makes of them.
//!
//! Two areas, as large as the largest call of a job needs, serve all its calls: for input (or data in place)
//! and output. Libraries inside the ranks that bring memory of their own have two of theirs.

use roundelay::cuda::{CudaBuffer, DevicePtr};
use roundelay::plan::CallArgs;
use roundelay::{Communicator, Error};

use super::super::buffers::{CallMemory, GUARD, GUARD_BYTE, POISON, is_intact};

/// Returns the bytes of an area for a number of bytes of data.
pub(crate) fn room(len: usize) -> usize {
    len.saturating_add(2 * GUARD).next_multiple_of(GUARD)
}

/// The addresses at which the areas, and the data in them, begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AreaAddresses {
    pub(crate) begin: [DevicePtr; 2],
    pub(crate) data: [DevicePtr; 2],
}

impl AreaAddresses {
    /// Returns the areas that begin at a byte of two buffers.
    pub(crate) fn of(buffers: &[CudaBuffer<u8>; 2], at: usize) -> Result<Self, Error> {
        let [first, second] = buffers;
        Ok(AreaAddresses {
            begin: [first.at(at)?, second.at(at)?],
            data: [first.at(at + GUARD)?, second.at(at + GUARD)?],
        })
    }
}

/// The memory of a call: two areas, and the bytes of data in each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallAreas {
    /// True if only the first area is used.
    pub(crate) in_place: bool,
    /// The addresses.
    pub(crate) areas: AreaAddresses,
    /// Bytes of data in each: data and nothing, or input and output.
    pub(crate) lens: [usize; 2],
}

impl CallAreas {
    /// Returns the index of the area that holds the result.
    fn result(&self) -> usize {
        usize::from(!self.in_place)
    }

    /// Returns the buffers as arguments of a call of ours.
    pub(crate) fn buffers(&self) -> CallArgs<DevicePtr, DevicePtr> {
        match self.in_place {
            true => CallArgs::InPlace { data: self.areas.data[0] },
            false => CallArgs::OutOfPlace { input: self.areas.data[0], output: self.areas.data[1] },
        }
    }

    /// Addresses of what is read and of what is written.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        (self.areas.data[0].address(), self.areas.data[self.result()].address())
    }

    fn used(&self) -> std::ops::RangeInclusive<usize> {
        0..=self.result()
    }

    /// Writes guards around the data, and poison in it.
    fn poison(&self, gpu: &mut Communicator) -> Result<(), Error> {
        for area in self.used() {
            gpu.fill(self.areas.begin[area], GUARD_BYTE, room(self.lens[area]))?;
            gpu.fill(self.areas.data[area], POISON, self.lens[area])?;
        }
        Ok(())
    }

    /// Writes poison where the result will be, out of place.
    pub(crate) fn spoil(&self, gpu: &mut Communicator) -> Result<(), Error> {
        gpu.fill(self.areas.data[1], POISON, self.lens[1])
    }

    /// Zeros in the data.
    pub(crate) fn clear(&self, gpu: &mut Communicator) -> Result<(), Error> {
        self.used().try_for_each(|area| gpu.fill(self.areas.data[area], 0, self.lens[area]))
    }

    /// Reads the result; returns true if the guards around it are as they were.
    pub(crate) fn read(&self, gpu: &mut Communicator, into: &mut HostCopy) -> Result<bool, Error> {
        self.read_area(gpu, self.result(), into)
    }

    fn read_area(
        &self,
        gpu: &mut Communicator,
        area: usize,
        into: &mut HostCopy,
    ) -> Result<bool, Error> {
        into.bytes.resize(room(self.lens[area]), 0);
        into.len = self.lens[area];
        into.at = (self.areas.data[area].address() - self.areas.begin[area].address()) as usize;
        gpu.read(self.areas.begin[area], &mut into.bytes)?;
        Ok(is_intact(&into.bytes, into.at, into.len))
    }
}

/// A copy of an area.
#[derive(Debug, Default)]
pub(crate) struct HostCopy {
    bytes: Vec<u8>,
    /// The offset of the data, in bytes.
    at: usize,
    len: usize,
}

impl HostCopy {
    /// Returns the data without the guards.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.at..self.at + self.len]
    }

    /// Makes it that many bytes of poison, without guards.
    fn poison(&mut self, len: usize) {
        self.bytes.clear();
        self.bytes.resize(len, POISON);
        (self.at, self.len) = (0, len);
    }
}

/// The memory of a call on a rank, and what the host has copied of it.
pub(crate) struct GpuMemory<'a> {
    pub(crate) gpu: &'a mut Communicator,
    pub(crate) view: CallAreas,
    pub(crate) input: &'a mut HostCopy,
    pub(crate) output: &'a mut HostCopy,
}

impl CallMemory for GpuMemory<'_> {
    fn comm(&mut self) -> &mut Communicator {
        self.gpu
    }

    fn prepare(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        self.input.poison(self.view.lens[0]);
        fill(&mut self.input.bytes);
        self.view.poison(self.gpu)?;
        self.gpu.write(self.view.areas.data[0], &self.input.bytes)
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.view.clear(self.gpu)
    }

    fn fetch(&mut self) -> Result<bool, Error> {
        let intact = self.view.read(self.gpu, self.output)?;
        Ok(intact && (self.view.in_place || self.view.read_area(self.gpu, 0, self.input)?))
    }

    fn result(&self) -> &[u8] {
        self.output.data()
    }

    fn input(&self) -> &[u8] {
        if self.view.in_place { &[] } else { self.input.data() }
    }
}
