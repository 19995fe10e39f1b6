//! The floating-point environment of the calling thread while kernels compute.
//!
//! A program may have switched subnormal numbers off on a thread (flush-to-zero, as `-ffast-math` links it in and
//! `torch.set_flush_denormal` sets it), or have chosen another rounding. Ranks must come to the same bits all the
//! same, so kernels compute in the default environment: [`is_changed`] costs a store of the control register and a
//! test, and only a thread that it finds changed pays for a [`DefaultEnvironment`].

use super::register;

/// Returns true if arithmetic of this thread gives other results than that of other threads.
#[inline(always)]
pub(crate) fn is_changed() -> bool {
    register::read() & register::RESULTS != 0
}

/// The default floating-point environment of a thread; the thread's own one is restored on drop.
#[must_use = "the thread's own environment is restored at once"]
pub struct DefaultEnvironment {
    own: register::RegisterWord,
}

impl DefaultEnvironment {
    /// Sets it on a thread that has another one.
    #[inline(always)]
    pub fn ensure() -> Option<Self> {
        is_changed().then(Self::enter)
    }

    /// Sets it. To be called, and dropped, outside of the function that computes, which must not be inlined.
    pub(crate) fn enter() -> Self {
        let own = register::read();
        // SAFETY: differs from what was read in those bits only.
        unsafe { register::write(own & !register::RESULTS) };
        DefaultEnvironment { own }
    }
}

impl Drop for DefaultEnvironment {
    fn drop(&mut self) {
        // SAFETY: it was read there.
        unsafe { register::write(self.own) };
    }
}
