//! The lowest package of the runtime, which connects to nothing and which all others use: errors, element types and their kernels,
//! waits, processes, settings. `roundelay-net` is built on it.
//!
//! A part of `roundelay`, which re-exports what its users need. There is no promise of stability.
//!
//! | to read | for |
//! |---|---|
//! | [`error`], [`error_kind`] | the one error type of the runtime, with stable codes |
//! | [`dtype`], [`backend`] | element types, operators, and the kernels that fold them on processors |
//! | [`abort`], [`interrupt`], [`waiting`], [`contention`] | what all waits share: the abort word, Ctrl-C, a core that other programs use |
//! | [`process`], [`fork`], [`threads`] | processes by number and start, children that are no ranks, names and bounds of threads |
//! | [`secret`], [`encryption`], [`ports`], [`fabric`], [`variables`] | settings: secrets, encryption, ranges of ports, topology files, the environment |
//! | [`tunables`](mod@tunables) | the table of tunables, and the macro that declares them in each package |
//!
//! Convention: a wait has a deadline and polls the abort word.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is for those who change it, who read it with private items"
)]

pub mod abort;
pub mod backend;
pub mod contention;
pub mod digest;
pub mod dtype;
pub mod encryption;
pub mod error;
pub mod error_kind;
pub mod fabric;
pub mod fork;
pub mod interrupt;
pub mod ports;
pub mod process;
pub mod secret;
pub mod threads;
pub mod tunables;
pub mod variables;
pub mod waiting;
