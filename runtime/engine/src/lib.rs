//! What makes a call of a plan: which algorithm serves it, the plan as it is bound to a group, the executor, messages
//! between single ranks, and windows, all of host memory; and what engines of other memory build on.
//!
//! This package is a part of `roundelay`, which gives its users what they need of it; there is no promise of stability.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is for those who change it, who read it with private items"
)]

pub mod bind;
pub mod build;
pub mod choose;
pub mod custom;
mod engine;
pub mod executor;
pub mod hints;
pub mod messages;
pub mod trace;
pub mod window;

pub use engine::*;
