//! What a call will take: the model by which algorithms are compared before anything was measured.
//!
//! The model is LogGP's, per link class. A round whose messages somebody waits for costs the *latency* of
//! its link; further messages of a rank the *message* overhead each. Between hosts bytes cost the link's
//! bandwidth, in both directions at once, and ranks of one host share its uplink. Inside a host the
//! processors move them: what is copied costs sender and receiver, what stays where it lies the receiver
//! alone; and ranks that outnumber the cores share them (`load`).
//!
//! An instance is walked once and becomes a [`Profile`]: rounds, each with what its ranks do, those that do
//! the same once (`survey`). Rounds of a lane follow each other, lanes run side by side in part. A call in
//! several passes takes the first pass, and for each further one the longest time that a rank is bound to
//! a pass. Evaluating a profile at a size is a walk over its rounds, without allocation.
//!
//! Only sums, products, quotients and maxima of IEEE doubles are used, in an order that depends on
//! the instance alone: every rank comes to the same bits.

mod load;
mod profile;
mod survey;
#[cfg(test)]
mod tests;
mod topology;

pub use profile::Profile;
pub use topology::{Link, Rates, Topology};
