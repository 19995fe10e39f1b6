//! Declares the options of `stress`, and its parts.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::values::duration;

/// `roundelay stress`
#[derive(Debug, Args)]
#[command(after_help = "\
Every part runs in fresh processes, one a GPU, and is ended when its time is over.

Examples:
  roundelay stress -n 4
  roundelay stress -n 4 library random --budget 60s --seed 7 --json")]
pub(crate) struct StressArgs {
    /// Parts [default: all]
    #[arg(value_enum)]
    pub(crate) parts: Vec<StressPart>,
    /// Ranks [default: as many as GPUs]
    #[arg(short, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) n: Option<u32>,
    /// Time for each part
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub(crate) budget: Duration,
    /// Calls of the part `random`
    #[arg(long, default_value_t = 10_000)]
    pub(crate) calls: u64,
    /// The longest time that a rank waits for another
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Seed of data and draws [default: from the clock; printed]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

/// Parts of `roundelay stress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum StressPart {
    /// The whole algorithm library by every protocol, exact, and with the host's bits
    #[value(alias = "book")]
    Library,
    /// Every type with every operator
    Types,
    /// Random calls of random sizes back to back
    Random,
    /// A graph replayed a thousand times, with the same bits
    Graph,
    /// Equal bits in two runs
    Bits,
    /// A rank is killed: the others get an error, and a new job runs
    Killed,
    /// A rank stays away: the others get an error that names it
    Absent,
    /// The time that the host takes for first calls, of kernels that are compiled and of those on disk
    First,
}

impl StressPart {
    /// All of them, in the order in which they are run.
    pub(crate) const ALL: &[StressPart] = &[
        StressPart::Library,
        StressPart::Types,
        StressPart::Random,
        StressPart::Graph,
        StressPart::Bits,
        StressPart::Killed,
        StressPart::Absent,
        StressPart::First,
    ];
}
