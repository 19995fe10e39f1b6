//! The process that an object belongs to. A child that was forked from it has a copy of the object, and is no rank.
//!
//! Whatever acts for a rank (a communicator, a window, a message, a link, pending work) keeps an [`OwnerProcess`] and
//! asks it before it touches shared memory, a socket, a lock or a thread: none of these is the child's. The check
//! stands in the few functions that every call goes through, below all languages and engines, and costs one load.
//!
//! The word that is loaded lies in a page that the kernel wipes in every child (`MADV_WIPEONFORK`), whichever way that
//! was made: `fork`, or `clone` without `CLONE_VM`. Where the kernel refuses that, a handler of `pthread_atfork` clears
//! the word, which a raw `clone` does not call. A process that finds its word cleared takes a new page when it makes an
//! object of its own, so that its own communicators work and those of its parent never do.
//!
//! The same handler gives up the child's copies of this process's sockets ([`sockets`]).

mod sockets;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::error::Error;

/// The bytes that are mapped for a word.
const MAPPED: usize = 4096;
/// The word of this process, or of the one that it was forked from: the number of the process, and 0 in its children.
static CURRENT: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// True once the handler of `fork` is registered. Children keep it.
static IS_HANDLED: AtomicBool = AtomicBool::new(false);

/// The process that made an object.
#[derive(Debug, Clone, Copy)]
pub struct OwnerProcess {
    word: &'static AtomicU32,
    pid: u32,
}

impl OwnerProcess {
    /// Returns the calling process.
    pub fn here() -> Self {
        loop {
            let current = CURRENT.load(Ordering::Acquire);
            // SAFETY: words are never freed.
            if let Some(word) = unsafe { current.as_ref() } {
                let pid = word.load(Ordering::Relaxed);
                if pid != 0 {
                    return OwnerProcess { word, pid };
                }
            }
            handle_forks();
            let made = std::ptr::from_ref(new_word()).cast_mut();
            // Another thread may be first; its word serves as well.
            let _ = CURRENT.compare_exchange(current, made, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Returns true in the process that made the object, and false in its children.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// Returns the address of a word that holds the number of the process, and 0 in its children.
    pub fn word(&self) -> *const u32 {
        self.word.as_ptr()
    }

    /// Fails in a child of the process that made the object, which `what` names.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    #[inline]
    pub fn check(&self, what: &'static str) -> Result<(), Error> {
        if self.is_here() { Ok(()) } else { Err(self.refusal(what)) }
    }

    /// Returns the error of a child that uses the object.
    #[cold]
    pub fn refusal(&self, what: &'static str) -> Error {
        Error::Forked { what, owner: self.pid, caller: std::process::id() }
    }
}

/// Makes the word of a process that has none yet.
fn new_word() -> &'static AtomicU32 {
    let word = wiped_word().unwrap_or_else(|| Box::leak(Box::new(AtomicU32::new(0))));
    word.store(std::process::id(), Ordering::Relaxed);
    word
}

/// Maps a page that is zero in every child; `None` where the system has no such pages.
fn wiped_word() -> Option<&'static AtomicU32> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let page =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), MAPPED, protection, flags) };
    let page = page.ok()?;
    // SAFETY: it is the page that was just mapped.
    if unsafe { rustix::mm::madvise(page, MAPPED, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: nothing refers to it.
        let _ = unsafe { rustix::mm::munmap(page, MAPPED) };
        return None;
    }
    // SAFETY: zeros are a number, the page is aligned, is accessed as this alone and stays mapped.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}

/// Has forked children give up their copies of a socket.
pub fn give_up_in_children(socket: impl AsFd) {
    handle_forks();
    sockets::remember(socket.as_fd());
}

/// Has [`after_fork`] called in children of this process.
fn handle_forks() {
    if !IS_HANDLED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler makes system calls and loads and stores, as a child of a process with threads may. If it
        // cannot be registered, there is no memory, and the wiped page serves alone.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
    }
}

/// Makes a child detect that it is none of the ranks of its parent.
unsafe extern "C" fn after_fork() {
    // SAFETY: words are never freed. All older ones were cleared in this process before it took this one.
    if let Some(word) = unsafe { CURRENT.load(Ordering::Relaxed).as_ref() } {
        word.store(0, Ordering::Relaxed);
    }
    sockets::give_up();
}

#[cfg(test)]
mod tests;
