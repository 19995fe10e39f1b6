//! The sockets of this process, of which a forked child must keep no copy.
//!
//! The system ends a connection once no process holds its socket. A child that was forked from a rank and outlives
//! it would keep all of its connections open, and no peer on another host could see that the rank is gone. So the
//! handler of `fork` puts an unconnected socket in the place of each copy: the numbers stay taken, so that a later
//! close of one hits nothing else, and nothing is sent.
//!
//! The table has the inode of each socket by the number of its descriptor. Entries are not removed: a number
//! whose inode is another one belongs to something else by now, and is left alone.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::fs::FileType;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Descriptors in a part of the table, and its parts. Those of higher numbers are not known.
const PART: usize = 1024;
const PARTS: usize = 1024;

type SocketTablePart = [AtomicU64; PART];

static TABLE: [AtomicPtr<SocketTablePart>; PARTS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; PARTS];

/// Enters a socket in the table.
pub(super) fn remember(socket: BorrowedFd<'_>) {
    let number = socket.as_raw_fd().unsigned_abs() as usize;
    let (Some(part), Some(inode)) = (TABLE.get(number / PART), inode(socket)) else { return };
    let mut known = part.load(Ordering::Acquire);
    if known.is_null() {
        let made = Box::into_raw(Box::new([const { AtomicU64::new(0) }; PART]));
        match part.compare_exchange(known, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => known = made,
            Err(first) => {
                // SAFETY: it is the box of above, which nothing else has seen.
                drop(unsafe { Box::from_raw(made) });
                known = first;
            }
        }
    }
    // SAFETY: it is not null, and parts are never freed.
    let known = unsafe { &*known };
    known[number % PART].store(inode, Ordering::Relaxed);
}

/// Gives up the copies of all sockets that the parent of this process has. Allocates nothing and takes no lock.
pub(super) fn give_up() {
    let mut placeholder = None;
    for (at, part) in TABLE.iter().enumerate() {
        // SAFETY: parts are never freed.
        let Some(part) = (unsafe { part.load(Ordering::Relaxed).as_ref() }) else { continue };
        for (within, entry) in part.iter().enumerate() {
            let known = entry.load(Ordering::Relaxed);
            if known == 0 {
                continue;
            }
            entry.store(0, Ordering::Relaxed);
            let number = (at * PART + within) as i32;
            // SAFETY: a number that is not open is an error; nothing is done with one that is another's.
            let copy = unsafe { BorrowedFd::borrow_raw(number) };
            if inode(copy) == Some(known) {
                replace(number, &mut placeholder);
            }
        }
    }
}

/// Puts an unconnected socket in the place of a descriptor.
fn replace(number: i32, placeholder: &mut Option<OwnedFd>) {
    if placeholder.is_none() {
        let flags = SocketFlags::CLOEXEC;
        *placeholder =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok();
    }
    // SAFETY: the descriptor is this process's copy of a socket that its parent made. No thread of this process
    // uses it, and objects that refer to it refuse to.
    let mut copy = unsafe { OwnedFd::from_raw_fd(number) };
    let flags = rustix::io::DupFlags::CLOEXEC;
    let replaced = placeholder.as_ref().map(|new| rustix::io::dup3(new, &mut copy, flags));
    match replaced {
        // The number stays taken.
        Some(Ok(())) => std::mem::forget(copy),
        // There is no descriptor left for a placeholder.
        _ => drop(copy),
    }
}

/// Returns the number that the system has for a socket, and for nothing else that is open.
fn inode(fd: BorrowedFd<'_>) -> Option<u64> {
    let stat = rustix::fs::fstat(fd).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::Socket).then_some(stat.st_ino)
}
