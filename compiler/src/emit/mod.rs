//! Step graphs in other forms, for people to look at and for other programs to read.
//!
//! An emitter is a pure function of its graph and its sources: it reads no clock and no environment,
//! and gives the same bytes wherever it runs. Whatever came from a user is escaped.

mod arrow;
pub mod cuda;
mod html;

pub use html::svg::svg;
pub use html::{html, html_of_refuted};
