//! Memory that devices read and peers write.

use std::io;
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::check::check_pointer;
use super::device::VerbsDevice;
use crate::transport::access::AccessRights;
use crate::transport::shm::ShmSegment;

/// Memory that is registered with a device.
pub(crate) struct MemoryRegistration {
    handle: *mut ffi::ibv_mr,
    _device: Arc<VerbsDevice>,
}

// SAFETY: a registration is a handle of the library, which allows its use from any thread.
unsafe impl Send for MemoryRegistration {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegistration {}

impl Drop for MemoryRegistration {
    fn drop(&mut self) {
        // SAFETY: made by the library, freed once, before its device.
        unsafe { ffi::ibv_dereg_mr(self.handle) };
    }
}

/// The access of a peer that only writes.
const WRITES: AccessRights = AccessRights { read: false, write: true };

/// Returns the flags of the library for what a peer may do. Devices of this process read all memory, and write what
/// peers may write.
fn flags(may: AccessRights) -> i32 {
    use ffi::ibv_access_flags as Flags;
    let read = if may.read { Flags::IBV_ACCESS_REMOTE_READ.0 } else { 0 };
    let write = match may.write {
        true => Flags::IBV_ACCESS_LOCAL_WRITE.0 | Flags::IBV_ACCESS_REMOTE_WRITE.0,
        false => 0,
    };
    (read | write) as i32
}

impl MemoryRegistration {
    /// Registers memory of this process.
    ///
    /// # Safety
    ///
    /// It stays mapped until the registration is dropped, and a caller that gives a peer its key accepts
    /// every access of that peer that `may` permits.
    pub(crate) unsafe fn new(
        device: &Arc<VerbsDevice>,
        start: *mut u8,
        len: usize,
        may: AccessRights,
    ) -> io::Result<MemoryRegistration> {
        // SAFETY: a domain that lives; the rest is promised by the caller.
        let made = unsafe { ffi::ibv_reg_mr(device.domain, start.cast(), len, flags(may)) };
        Ok(MemoryRegistration { handle: check_pointer(made)?, _device: device.clone() })
    }

    /// Registers memory of another device, a GPU, of which a file descriptor was exported; work has its first byte at
    /// the address `start`. The descriptor may be closed afterwards, and the memory lives as long as this.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` or `EPROTONOSUPPORT` where the device or the kernel cannot do that, `EBADF` if the descriptor
    /// is none.
    pub(crate) fn dmabuf(
        device: &Arc<VerbsDevice>,
        fd: RawFd,
        (start, len): (u64, usize),
        may: AccessRights,
    ) -> io::Result<MemoryRegistration> {
        // SAFETY: a domain that lives. Of the descriptor the kernel finds out whether it is one, and of what
        // size; it keeps the memory for as long as the registration lives.
        let made = unsafe { ffi::ibv_reg_dmabuf_mr(device.domain, 0, len, start, fd, flags(may)) };
        Ok(MemoryRegistration { handle: check_pointer(made)?, _device: device.clone() })
    }

    /// Returns true if memory of a GPU can be registered with a device, as a file descriptor.
    pub(crate) fn takes_dmabuf(device: &Arc<VerbsDevice>) -> bool {
        // There is no such descriptor: a device that could register it refuses the descriptor alone.
        let tried = MemoryRegistration::dmabuf(device, -1, (0, 4096), WRITES);
        tried.is_err_and(|error| error.raw_os_error() == Some(libc::EBADF))
    }

    /// Returns its keys: for work of this process, for a peer.
    pub(crate) fn keys(&self) -> (u32, u32) {
        // SAFETY: a registration that lives.
        let mr = unsafe { &*self.handle };
        (mr.lkey, mr.rkey)
    }

    /// Returns bytes of it for its device; the caller makes sure that they lie inside.
    pub(crate) fn span(&self, start: *const u8, len: u32) -> MemorySpan<'_> {
        MemorySpan { start, len, key: self.keys().0, memory: PhantomData }
    }
}

/// A part of registered memory, for the device that the key is of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemorySpan<'a> {
    pub(super) start: *const u8,
    pub(super) len: u32,
    pub(super) key: u32,
    memory: PhantomData<&'a [u8]>,
}

/// Memory of a stream's own, zeroed, registered with each of some devices.
pub(crate) struct OwnedRegion {
    bytes: Box<[u64]>,
    registrations: Vec<MemoryRegistration>,
}

impl OwnedRegion {
    pub(crate) fn new(len: usize, devices: &[Arc<VerbsDevice>]) -> io::Result<OwnedRegion> {
        let mut bytes = vec![0u64; len.div_ceil(8)].into_boxed_slice();
        let (start, len) = (bytes.as_mut_ptr().cast(), bytes.len() * 8);
        // A peer reads it to make sure that what it wrote before is in memory.
        let may = AccessRights { read: true, write: true };
        // SAFETY: memory that the region owns; it is freed after its registrations. Nothing is there but
        // what goes to the peer, and what it writes.
        let register = |device| unsafe { MemoryRegistration::new(device, start, len, may) };
        // Fields are dropped in their order: see `Drop`.
        let registrations = devices.iter().map(register).collect::<io::Result<_>>()?;
        Ok(OwnedRegion { bytes, registrations })
    }

    /// Returns the address of its first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.bytes.as_ptr().cast_mut().cast()
    }

    /// Returns a part of it, for a device.
    pub(crate) fn span(&self, offset: usize, len: u32, device: usize) -> MemorySpan<'_> {
        assert!(offset + len as usize <= self.bytes.len() * 8, "a place of the stream's own");
        let (key, _) = self.registrations[device].keys();
        MemorySpan { start: self.start().wrapping_add(offset), len, key, memory: PhantomData }
    }

    /// Returns the bytes that the system counts for it: each device keeps it in place for itself.
    pub(crate) fn pinned(&self) -> u64 {
        (self.bytes.len() * 8 * self.registrations.len()) as u64
    }

    /// Copies into it.
    pub(crate) fn put(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= self.bytes.len() * 8, "a place of the stream's own");
        // SAFETY: inside the region; the stream, which one thread uses at a time, writes only slots that
        // no device reads.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.start().add(offset), from.len()) };
    }

    /// Copies out of it.
    pub(crate) fn get(&self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= self.bytes.len() * 8, "a place of the stream's own");
        // SAFETY: inside the region; the stream reads only slots that no device writes any more.
        unsafe { ptr::copy_nonoverlapping(self.start().add(offset), to.as_mut_ptr(), to.len()) };
    }

    /// Returns the key with which a peer writes it.
    pub(crate) fn peer_key(&self, device: usize) -> u32 {
        self.registrations[device].keys().1
    }
}

impl Drop for OwnedRegion {
    fn drop(&mut self) {
        // Before the memory.
        self.registrations.clear();
    }
}

/// A part of a segment, registered with each of some devices. It keeps the segment mapped.
pub(crate) struct ArenaBlock {
    _segment: Arc<ShmSegment>,
    offset: u64,
    /// The address of the byte at that offset.
    start: *mut u8,
    len: usize,
    registrations: Vec<MemoryRegistration>,
}

// SAFETY: the address is one of the segment, which is held; what lies there is written by devices and by the owner of
// the memory, as their protocol has it.
unsafe impl Send for ArenaBlock {}
// SAFETY: as above.
unsafe impl Sync for ArenaBlock {}

impl ArenaBlock {
    /// Registers `len` bytes of a segment, which are mapped at an address.
    pub(crate) fn new(
        segment: &Arc<ShmSegment>,
        (offset, start): (u64, *mut u8),
        len: usize,
        devices: &[Arc<VerbsDevice>],
    ) -> io::Result<ArenaBlock> {
        // SAFETY: inside a view of the segment, whose mapping is as long as the segment lives, and that the block
        // keeps. Its key goes to a peer only together with a target in the block.
        let register = |device| unsafe { MemoryRegistration::new(device, start, len, WRITES) };
        let registrations = devices.iter().map(register).collect::<io::Result<_>>()?;
        Ok(ArenaBlock { _segment: segment.clone(), offset, start, len, registrations })
    }

    /// Returns its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the end of it, as an offset in the segment.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    /// Returns the key with which a peer writes it.
    pub(crate) fn peer_key(&self, device: usize) -> u32 {
        self.registrations[device].keys().1
    }

    fn at(&self, offset: u64) -> *mut u8 {
        self.start.wrapping_add(offset.wrapping_sub(self.offset) as usize)
    }

    /// Returns the address of the byte at an offset in the segment.
    pub(crate) fn address(&self, offset: u64) -> u64 {
        self.at(offset).addr() as u64
    }

    /// Sees to it that what a peer wrote at an offset in the segment is here: as a rule it was written here.
    pub(crate) fn bring(&self, offset: u64, to: &mut [u8]) {
        let inside = offset >= self.offset && offset + to.len() as u64 <= self.end();
        assert!(inside, "a part of the block");
        let from = self.at(offset);
        if from.cast_const() != to.as_ptr() {
            // SAFETY: inside the segment, and no device writes there: the peer has said that it has written.
            unsafe { ptr::copy(from, to.as_mut_ptr(), to.len()) };
        }
    }

    /// Returns the bytes at an offset in the segment, for a device.
    pub(crate) fn span(&self, offset: u64, len: u32, device: usize) -> MemorySpan<'_> {
        let inside = offset >= self.offset && offset + u64::from(len) <= self.end();
        assert!(inside, "a part of the block");
        let (key, _) = self.registrations[device].keys();
        MemorySpan { start: self.at(offset), len, key, memory: PhantomData }
    }
}

impl Drop for ArenaBlock {
    fn drop(&mut self) {
        // Before the segment.
        self.registrations.clear();
    }
}
