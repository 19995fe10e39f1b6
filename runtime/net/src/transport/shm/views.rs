//! Mapped parts of a segment's file: the address space has room for what is used, not for all that might be.
//!
//! A file has arenas as large as the machine's memory for each rank, and connections for every pair of ranks on every
//! channel. A process maps what it touches: a view at a time, of a grain at least, and of a share of what was mapped of
//! that region before, so that there are few. Views may overlap, and stay until the segment goes: no address that was
//! given out ever ends before it. Those of connections alone go together before that, once no connection is open.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::layout::PAGE;
use crate::tunables::{VIEW_BYTES_MIN, VIEW_GROWTH_DIVISOR};

/// A mapped part of a file.
pub(crate) struct FileView {
    base: *mut u8,
    /// The offset in the file of its first byte.
    offset: u64,
    len: u64,
}

// SAFETY: the mapping belongs to the view; what is shared inside is atomics, and bytes that the protocols of `control`
// and `slots` hand from one owner to the next.
unsafe impl Send for FileView {}
// SAFETY: as above.
unsafe impl Sync for FileView {}

impl FileView {
    /// Maps `len` bytes of a file at an offset, both multiples of a page.
    pub(super) fn new(fd: &OwnedFd, offset: u64, len: u64) -> rustix::io::Result<Self> {
        let size = usize::try_from(len).map_err(|_| rustix::io::Errno::NOMEM)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, protection, flags, fd, offset) }?;
        Ok(FileView { base: base.cast(), offset, len })
    }

    /// Returns the offset in the file of its first byte.
    pub(crate) fn start(&self) -> u64 {
        self.offset
    }

    /// Returns the offset in the file of its end.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Returns the address of a byte of the file, which lies in the view.
    pub(crate) fn at(&self, offset: u64) -> *mut u8 {
        debug_assert!((self.offset..self.end()).contains(&offset));
        self.base.wrapping_add((offset - self.offset) as usize)
    }

    fn contains(&self, offset: u64, len: u64) -> bool {
        offset >= self.start() && offset.saturating_add(len) <= self.end()
    }

    /// Returns the offset in the file of `len` bytes at an address, if they lie in the view.
    #[inline]
    pub(crate) fn offset_of(&self, address: *const u8, len: usize) -> Option<u64> {
        let from = (address as usize).wrapping_sub(self.base as usize) as u64;
        let lies = from < self.len && len as u64 <= self.len - from;
        lies.then(|| self.offset + from)
    }
}

impl Drop for FileView {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`; every handle into it holds the segment that holds the view.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len as usize) };
    }
}

/// The views of one region of a file: a list that only grows, so that looking one up takes no lock.
#[derive(Default)]
pub(super) struct RegionViews {
    first: OnceLock<Box<ListedView>>,
    growing: Mutex<()>,
}

struct ListedView {
    view: FileView,
    next: OnceLock<Box<ListedView>>,
}

impl RegionViews {
    /// Returns the views, in the order in which they were made.
    pub(super) fn iter(&self) -> impl Iterator<Item = &FileView> {
        let listed = std::iter::successors(self.first.get(), |listed| listed.next.get());
        listed.map(|listed| &listed.view)
    }

    /// Returns the bytes of all views.
    pub(super) fn bytes(&self) -> u64 {
        self.iter().map(|view| view.len).sum()
    }

    fn find(&self, offset: u64, len: u64) -> Option<&FileView> {
        self.iter().find(|view| view.contains(offset, len))
    }

    /// Returns the address of `len` bytes at an offset of the file, in the region from `start` to `end`: a new view is
    /// made if they lie in none. Fails where the system refuses that.
    pub(super) fn address(
        &self,
        fd: &OwnedFd,
        (start, end): (u64, u64),
        (offset, len): (u64, u64),
    ) -> rustix::io::Result<*mut u8> {
        if let Some(view) = self.find(offset, len) {
            return Ok(view.at(offset));
        }
        let _growing = self.growing.lock();
        if let Some(view) = self.find(offset, len) {
            return Ok(view.at(offset));
        }
        let mapped = self.bytes();
        let from = start + (offset - start) / VIEW_BYTES_MIN * VIEW_BYTES_MIN;
        let least = from + (mapped / VIEW_GROWTH_DIVISOR).next_multiple_of(VIEW_BYTES_MIN);
        let to = start + (offset + len - start).next_multiple_of(VIEW_BYTES_MIN);
        let to = to.max(least).min(end);
        let view = FileView::new(fd, from, to - from).or_else(|_| {
            // Addresses may be few: then no more than is asked for.
            let from = offset / PAGE * PAGE;
            FileView::new(fd, from, (offset + len).next_multiple_of(PAGE) - from)
        })?;
        let address = view.at(offset);
        let mut last = &self.first;
        while let Some(listed) = last.get() {
            last = &listed.next;
        }
        // The caller that adds holds the lock.
        let _ = last.set(Box::new(ListedView { view, next: OnceLock::new() }));
        Ok(address)
    }
}

/// Brings reserved pages at a mapped address into this process's page table, as well as that can be done.
pub(crate) fn populate(address: *mut u8, len: u64) {
    let skipped = (address as u64).next_multiple_of(PAGE) - address as u64;
    let len = len.saturating_sub(skipped) / PAGE * PAGE;
    if len == 0 {
        return;
    }
    let from = address.wrapping_add(skipped as usize).cast();
    // SAFETY: the range lies in a mapping of the caller's, and neither advice changes its content.
    unsafe {
        let _ = rustix::mm::madvise(from, len as usize, Advice::LinuxHugepage);
        let _ = rustix::mm::madvise(from, len as usize, Advice::LinuxPopulateWrite);
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use rustix::fs::MemfdFlags;

    use super::*;

    const REGION: Range<u64> = 1 << 20..1 << 44;

    fn file() -> OwnedFd {
        let fd = rustix::fs::memfd_create("views", MemfdFlags::CLOEXEC).expect("a file");
        rustix::fs::ftruncate(&fd, REGION.end).expect("a sparse file");
        fd
    }

    #[test]
    fn a_terabyte_is_mapped_in_few_views_and_every_place_has_one_address() {
        let (fd, views) = (file(), RegionViews::default());
        let region = (REGION.start, REGION.end);
        let at = |offset, len| views.address(&fd, region, (offset, len)).expect("addresses");
        for offset in (REGION.start..1 << 40).step_by(3 << 26) {
            let address = at(offset, 8 << 20);
            assert_eq!(at(offset + PAGE, PAGE), address.wrapping_add(PAGE as usize));
        }
        let count = views.iter().count();
        assert!(count < 150, "{count} views");
        let mapped: u64 = views.iter().map(|view| view.len).sum();
        assert!(mapped < 3 << 40, "{mapped} bytes");
    }

    #[test]
    fn bytes_of_two_views_are_mapped_once_more_in_one() {
        let (fd, views) = (file(), RegionViews::default());
        let region = (REGION.start, REGION.end);
        let at = |offset, len| views.address(&fd, region, (offset, len)).expect("addresses");
        let border = REGION.start + VIEW_BYTES_MIN;
        let (low, high) = (at(border - PAGE, PAGE), at(border, PAGE));
        let both = at(border - PAGE, 2 * PAGE);
        rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), border - PAGE, 2 * PAGE)
            .expect("two pages");
        // SAFETY: mapped above, and owned here alone.
        unsafe {
            low.write(1);
            high.write(2);
            assert_eq!((both.read(), both.add(PAGE as usize).read()), (1, 2));
        }
        let view = views.iter().find_map(|view| view.offset_of(both, 2 * PAGE as usize));
        assert_eq!(view, Some(border - PAGE));
        assert!(views.iter().all(|view| view.offset_of(std::ptr::null(), 1).is_none()));
    }

    #[test]
    fn a_view_ends_with_its_region() {
        let (fd, views) = (file(), RegionViews::default());
        let region = (REGION.start, REGION.start + 3 * PAGE);
        let address = views.address(&fd, region, (REGION.start + PAGE, PAGE)).expect("addresses");
        let view = views.iter().next().expect("a view");
        assert_eq!((view.start(), view.end()), region);
        assert_eq!(view.at(REGION.start + PAGE), address);
    }
}
