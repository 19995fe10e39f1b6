//! Algorithms that a binary carries: what `#[algorithm]` and `algo_file!` make.

use std::fmt;
use std::sync::OnceLock;

use roundelay_dsl::diag::codes;

use roundelay_engine::custom::Algorithm;
use roundelay_support::error::Error;

/// An algorithm that can be given where one is run, installed or planned.
pub trait RunnableAlgorithm {
    /// Returns the algorithm.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if it cannot be made.
    fn algorithm(&self) -> Result<&Algorithm, Error>;
}

impl RunnableAlgorithm for Algorithm {
    fn algorithm(&self) -> Result<&Algorithm, Error> {
        Ok(self)
    }
}

/// An algorithm that was written as a Rust function, or embedded from a file, and proved by `cargo build`
/// at sample rank counts. It is resolved when it is first used, and proved for the ranks at hand when it
/// first runs, as every algorithm is.
#[derive(Clone, Copy)]
pub struct Prototype {
    name: &'static str,
    bytes: &'static [u8],
    once: &'static ResolvedOnce,
}

/// The algorithm, once it was resolved.
#[doc(hidden)]
pub struct ResolvedOnce(OnceLock<Result<Algorithm, Error>>);

impl ResolvedOnce {
    /// Makes an empty cell.
    #[allow(clippy::new_without_default, reason = "only macros make one")]
    pub const fn new() -> Self {
        ResolvedOnce(OnceLock::new())
    }
}

impl Prototype {
    /// Makes a prototype of the bytes that a macro wrote.
    #[doc(hidden)]
    pub const fn new(
        name: &'static str,
        bytes: &'static [u8],
        once: &'static ResolvedOnce,
    ) -> Self {
        Prototype { name, bytes, once }
    }

    /// Returns its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the algorithm, to give it a grid or a root: `ring.get()?.clone().rooted(2)`.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if the binary was built with another version of the macros.
    pub fn get(&self) -> Result<&'static Algorithm, Error> {
        let make = || match self.bytes {
            [] => Err(Error::Refused {
                code: codes::EMPTY,
                text: format!("{} was refused when it was compiled", self.name),
                source: None,
            }),
            bytes => Algorithm::embedded(self.name, bytes),
        };
        self.once.0.get_or_init(make).as_ref().map_err(Clone::clone)
    }
}

impl RunnableAlgorithm for Prototype {
    fn algorithm(&self) -> Result<&Algorithm, Error> {
        self.get()
    }
}

impl fmt::Debug for Prototype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Prototype").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_nobody_are_refused() {
        let code = |bytes: &'static [u8]| {
            static ONCES: [ResolvedOnce; 3] = [const { ResolvedOnce::new() }; 3];
            let once = &ONCES[bytes.len().min(2)];
            let prototype = Prototype::new("p", bytes, once);
            (prototype.get().expect_err("refused").code().0, prototype.name())
        };
        assert_eq!(code(&[]), ("RL0104", "p"));
        assert_eq!(code(&[1]), ("RL0701", "p"));
        assert_eq!(code(b"\x03old and more"), ("RL0701", "p"));
    }
}
