//! Collective algorithms as Rust functions, proved while they are compiled.
//!
//! Use these macros through the crate `roundelay` with its feature `macros`; `docs/rust.md` is the guide.
//! `parse` and `generate` mirror each other: the one makes a `Prototype` of Rust's tokens, the
//! other makes Rust's tokens of one. Between them `prove` resolves the syntax tree and runs the verifier
//! at sample rank counts. What is emitted carries the tree as bytes; the runtime resolves it again and
//! proves it for the ranks at hand.
#![forbid(unsafe_code)]

mod generate;
mod parse;
mod pieces;
mod prototype;
mod prove;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Makes an algorithm of a function in the language's Rust clothes, and proves it.
///
/// ```ignore
/// use roundelay::algorithm;
///
/// /// Each chunk goes round once to be summed and once to be shared.
/// #[algorithm(all_reduce)]
/// fn ring(n: Ranks) {
///     chunks(n);
///     for s in 0..n - 1 {
///         each(|r| r.to((r + 1) % n).reduce(data[(r - s) % n]));
///     }
///     for s in 0..n - 1 {
///         each(|r| r.to((r + 1) % n).copy(data[(r + 1 - s) % n]));
///     }
/// }
/// ```
///
/// `ring` is then a `roundelay::Prototype`, for `Communicator::run_algorithm`, `Communicator::install` and
/// `roundelay_cli::main`. The verifier runs at n = 2 to 9, or those of them that `requires` allows; a
/// refuted algorithm is an error at the guilty expression.
///
/// After the collective may stand
///
/// * `with(parent, other)`: functions marked [`macro@algorithm_fn`] and other algorithms that this one uses,
/// * `check(4, 8..=16)`, or `check((2, 4), (3, 2))` on a grid: the rank counts at which it is proved,
/// * `parameters(k = 2 in 2..=8, mirrored = false)`: the defaults and bounds of parameters, which the function takes as
///   `k: i64` or `mirrored: bool` beside its ranks,
/// * `import("tools.algo")`: files whose functions, collectives and algorithms it uses, relative to this one.
#[proc_macro_attribute]
pub fn algorithm(attribute: TokenStream, item: TokenStream) -> TokenStream {
    generate::attribute(prototype::MacroRole::Algorithm, attribute.into(), item.into()).into()
}

/// Makes a helper function of algorithms: whole numbers in, a number or a truth value out.
///
/// It has the language's meaning, also when Rust code calls it: `/` rounds down and `%` is never negative
/// for a positive right side. Algorithms name it in `with(…)`; it names those it calls itself likewise.
#[proc_macro_attribute]
pub fn algorithm_fn(attribute: TokenStream, item: TokenStream) -> TokenStream {
    generate::attribute(prototype::MacroRole::Function, attribute.into(), item.into()).into()
}

/// Embeds the first algorithm of an `.algo` file, and proves all of them, at the usual rank counts.
///
/// ```ignore
/// static RING: roundelay::Prototype = roundelay::algo_file!("ring.algo");
/// ```
///
/// The path is relative to the file in which this stands. Rank counts may follow, as in [`macro@algorithm`]:
/// `algo_file!("grid.algo", check((2, 4)))`.
#[proc_macro]
pub fn algo_file(input: TokenStream) -> TokenStream {
    generate::algo_file(input.into()).into()
}

/// Goes on with an algorithm when a name of its `with(…)` has given what it stands for.
#[doc(hidden)]
#[proc_macro]
pub fn with(input: TokenStream) -> TokenStream {
    generate::with(input.into()).into()
}
