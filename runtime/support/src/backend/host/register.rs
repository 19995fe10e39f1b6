//! The control register of floating-point arithmetic, as each architecture has it.

#[cfg(target_arch = "x86_64")]
mod target {
    use std::arch::asm;
    use std::mem::MaybeUninit;

    /// The width of the control register (MXCSR).
    pub(crate) type RegisterWord = u32;

    /// Subnormal results flushed to zero (bit 15), rounding (14, 13), subnormal operands taken as zero (6).
    pub(crate) const RESULTS: RegisterWord = 0x8000 | 0x6000 | 0x0040;

    #[inline(always)]
    pub(crate) fn read() -> RegisterWord {
        let mut word = MaybeUninit::uninit();
        // SAFETY: writes four bytes at the address of `word`, all that it has. SSE is part of x86-64.
        unsafe {
            asm!("stmxcsr [{}]", in(reg) word.as_mut_ptr(), options(nostack, preserves_flags));
            word.assume_init()
        }
    }

    /// # Safety
    /// `word` was read there, or differs from that in [`RESULTS`] only.
    pub(crate) unsafe fn write(word: RegisterWord) {
        // SAFETY: reads four bytes at the address of `word`, in which no reserved bit is set.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags));
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod target {
    use std::arch::asm;

    /// The width of the control register (FPCR).
    pub(crate) type RegisterWord = u64;

    /// Default NaN (bit 25), flush-to-zero (24, 19 of 16 bits, 0 of inputs), rounding (23, 22), alternate handling (1).
    pub(crate) const RESULTS: RegisterWord =
        0x02 << 24 | 0x01 << 24 | 0x03 << 22 | 0x01 << 19 | 0x03;

    #[inline(always)]
    pub(crate) fn read() -> RegisterWord {
        let word: RegisterWord;
        // SAFETY: only reads a register that every program may read.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nostack, preserves_flags)) };
        word
    }

    /// # Safety
    /// `word` was read there, or differs from that in [`RESULTS`] only.
    pub(crate) unsafe fn write(word: RegisterWord) {
        // SAFETY: writes a register that every program may write, with no reserved bit set.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nostack, preserves_flags)) };
    }
}

/// Processors whose control register is not known here: the environment is taken for the default one.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod target {
    pub(crate) type RegisterWord = u32;

    pub(crate) const RESULTS: RegisterWord = 0;

    #[inline(always)]
    pub(crate) fn read() -> RegisterWord {
        0
    }

    /// # Safety
    /// None is needed.
    pub(crate) unsafe fn write(_: RegisterWord) {}
}

pub(super) use target::{RESULTS, RegisterWord, read, write};
