//! The floating-point environment of the calling thread while kernels compute.
//!
//! A program may have switched subnormal numbers off on a thread (flush-to-zero, as `-ffast-math` links it in and
//! `torch.set_flush_denormal` sets it), or have chosen another rounding. Ranks must come to the same bits all the
//! same, so kernels compute in the default environment: [`is_changed`] costs a store of the control register and a
//! test, and only a thread that it finds changed pays for a [`DefaultEnvironment`].

#[cfg(target_arch = "x86_64")]
mod register {
    use std::arch::asm;
    use std::mem::MaybeUninit;

    /// The width of the control register (MXCSR).
    pub(crate) type Word = u32;

    /// Subnormal results flushed to zero (bit 15), rounding (14, 13), subnormal operands taken as zero (6).
    pub(super) const RESULTS: Word = 0x8000 | 0x6000 | 0x0040;

    #[inline(always)]
    pub(super) fn read() -> Word {
        let mut word = MaybeUninit::uninit();
        // SAFETY: writes four bytes at the address of `word`, all that it has. SSE is part of x86-64.
        unsafe {
            asm!("stmxcsr [{}]", in(reg) word.as_mut_ptr(), options(nostack, preserves_flags));
            word.assume_init()
        }
    }

    /// # Safety
    /// `word` was read there, or differs from that in [`RESULTS`] only.
    pub(super) unsafe fn write(word: Word) {
        // SAFETY: reads four bytes at the address of `word`, in which no reserved bit is set.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags));
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod register {
    use std::arch::asm;

    /// The width of the control register (FPCR).
    pub(crate) type Word = u64;

    /// Default NaN (bit 25), flush-to-zero (24, 19 of 16 bits, 0 of inputs), rounding (23, 22), alternate handling (1).
    pub(super) const RESULTS: Word = 0x02 << 24 | 0x01 << 24 | 0x03 << 22 | 0x01 << 19 | 0x03;

    #[inline(always)]
    pub(super) fn read() -> Word {
        let word: Word;
        // SAFETY: only reads a register that every program may read.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nostack, preserves_flags)) };
        word
    }

    /// # Safety
    /// `word` was read there, or differs from that in [`RESULTS`] only.
    pub(super) unsafe fn write(word: Word) {
        // SAFETY: writes a register that every program may write, with no reserved bit set.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nostack, preserves_flags)) };
    }
}

/// Processors whose control register is not known here: the environment is taken for the default one.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    pub(crate) type Word = u32;

    pub(super) const RESULTS: Word = 0;

    #[inline(always)]
    pub(super) fn read() -> Word {
        0
    }

    /// # Safety
    /// None is needed.
    pub(super) unsafe fn write(_: Word) {}
}

/// Returns true if arithmetic of this thread gives other results than that of other threads.
#[inline(always)]
pub(crate) fn is_changed() -> bool {
    register::read() & register::RESULTS != 0
}

/// The default floating-point environment of a thread; the thread's own one is restored on drop.
#[must_use = "the thread's own environment is restored at once"]
pub struct DefaultEnvironment {
    own: register::Word,
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

/// Changes of the environment, for tests.
#[cfg(test)]
pub(crate) mod changes {
    use super::register;
    pub(crate) use super::register::Word;

    /// Flush-to-zero, operands too, then each other rounding.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const ALL: [Word; 6] = [0x8040, 0x8000, 0x0040, 0x2000, 0x4000, 0x6000];
    #[cfg(target_arch = "aarch64")]
    pub(crate) const ALL: [Word; 4] = [1 << 24, 1 << 22, 2 << 22, 3 << 22];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(crate) const ALL: [Word; 0] = [];

    /// A changed environment of this thread; the default one returns on drop.
    pub(crate) struct Changed(Word);

    impl Changed {
        pub(crate) fn enter(bits: Word) -> Self {
            let own = register::read();
            // SAFETY: `bits` are among those of results.
            unsafe { register::write(own & !register::RESULTS | bits & register::RESULTS) };
            Changed(own)
        }

        /// Returns the bits that are set now.
        pub(crate) fn bits() -> Word {
            register::read() & register::RESULTS
        }
    }

    impl Drop for Changed {
        fn drop(&mut self) {
            // SAFETY: it was read there.
            unsafe { register::write(self.0) };
        }
    }
}
