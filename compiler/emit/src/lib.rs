//! Emitters of the compiler: step graphs as drawings and pages, and device programs as CUDA source.
//!
//! An emitter is a pure function of its graph and its sources: it reads no clock and no environment,
//! and gives the same bytes wherever it runs. Whatever came from a user is escaped.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod arrow;
pub mod cuda;
mod html;

pub use html::svg::svg;
pub use html::{html, html_of_refuted};
