//! Predicts the time of a call: the model by which algorithms are compared before anything was measured.
//!
//! The model is LogGP's, per link class. A message costs the *latency* of its link; further messages of
//! a rank in the same round cost the *message* overhead each; bytes cost the link's bandwidth, in both
//! directions at once; sums cost the rank's reduce bandwidth on top. Ranks of one host share its uplink,
//! and, where they outnumber its cores, the cores.
//!
//! An instance is walked once and becomes a [`CostProfile`]: rounds, each the maximum of a few lines
//! `us + slope * bytes`. Rounds of a lane follow each other, lanes run side by side and share ports.
//! A call in several passes takes the first pass, and for each further one the longest time that a
//! rank is bound to a pass. Evaluating a profile at a size is a walk over its rounds, without
//! allocation.
//!
//! In reading order:
//!
//! * `topology`: hosts, links and their rates.
//! * `profile`: rounds as lines over the size, and their evaluation.
//! * `survey`: walks an instance, and fills a profile; `fresh` tracks what arrived since the last wait.
//! * `loads`, `balance`: the loads of the parts of a split by bandwidth, and the shares that even them out.
//! * `profiler`: makes the profile of an instance and of each of its parts.
//!
//! Only sums, products, quotients and maxima of IEEE doubles are used, in an order that depends on
//! the instance alone: every rank comes to the same bits.

pub mod balance;
mod fresh;
mod loads;
mod profile;
mod profiler;
mod survey;
#[cfg(test)]
mod tests;
mod topology;

pub(crate) use loads::split;
pub use profile::CostProfile;
pub use topology::{LinkCost, LinkRates, PathCost, Topology};
