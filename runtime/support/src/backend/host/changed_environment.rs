//! Floating-point environments other than the default one, for tests.

use super::register::{self, RegisterWord};

/// Flush-to-zero, operands too, then each other rounding.
#[cfg(target_arch = "x86_64")]
pub(super) const CHANGES: [RegisterWord; 6] = [0x8040, 0x8000, 0x0040, 0x2000, 0x4000, 0x6000];
#[cfg(target_arch = "aarch64")]
pub(super) const CHANGES: [RegisterWord; 4] = [1 << 24, 1 << 22, 2 << 22, 3 << 22];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) const CHANGES: [RegisterWord; 0] = [];

/// A changed environment of this thread; the default one returns on drop.
pub(super) struct ChangedEnvironment(RegisterWord);

impl ChangedEnvironment {
    pub(super) fn enter(bits: RegisterWord) -> Self {
        let own = register::read();
        // SAFETY: `bits` are among those of results.
        unsafe { register::write(own & !register::RESULTS | bits & register::RESULTS) };
        ChangedEnvironment(own)
    }

    /// Returns the bits that are set now.
    pub(super) fn bits() -> RegisterWord {
        register::read() & register::RESULTS
    }
}

impl Drop for ChangedEnvironment {
    fn drop(&mut self) {
        // SAFETY: it was read there.
        unsafe { register::write(self.0) };
    }
}
