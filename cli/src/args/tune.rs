//! Declares the options of `tune`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{DeviceKind, TransportName};
use crate::values::{ByteSizes, RankCounts, duration};

/// Sizes of `roundelay tune`, where none are named.
pub(crate) const TUNE_SIZES: &str = "8,1K,16K,64K,256K,1M,4M,16M";

/// `roundelay tune`
#[derive(Debug, Args)]
#[command(after_help = "\
Every algorithm that can run is measured at every size, unless the cost model and the sizes
before say that it is hopeless. Results are appended to a file beside the table as they come, and
are not measured again: a run that was stopped goes on where it was. The table lies in
roundelay/tuned.toml in the folder for configuration, or where ROUNDELAY_TUNED says. A row holds for one
transport: what was measured over shared memory says nothing of TCP.

With --check nothing is written: every algorithm that can run is measured, and what would be
chosen is compared with the best.

With --links every path between every two hosts is measured, and a topology file is written.

Examples:
  roundelay tune --dry-run                what would be measured, and how long it would take
  roundelay tune                          a few minutes
  roundelay tune --transport shm,tcp      rows for both
  roundelay tune --device cuda -n 4       algorithm, protocol and blocks on GPUs
  roundelay tune all_reduce -n 2,4 --bytes 8..16M --factor 4 -o tuned.toml
  roundelay tune --check -n 2,4           how good choices are
  mpirun --host a,b roundelay tune --links --paths eth0,eth1 -o topology.toml
  ROUNDELAY_TUNED= roundelay tune --check how good the cost model is without a table")]
pub(crate) struct TuneArgs {
    /// Collectives [default: all that have several algorithms]
    #[arg(value_name = "COLLECTIVE")]
    pub(crate) collectives: Vec<String>,
    /// Rank counts [default: 2, as many as cores, and twice that, up to 16]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<RankCounts>,
    /// The transports to measure: shm, tcp or both
    #[arg(long, value_enum, value_delimiter = ',', default_value = "shm")]
    pub(crate) transport: Vec<TransportName>,
    /// Sizes [on GPUs: 1K to 256M by fours]
    #[arg(long, value_name = "SIZES", default_value = TUNE_SIZES)]
    pub(crate) bytes: ByteSizes,
    /// Factor between the sizes of a range
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) factor: u64,
    /// Calls in place only [default: what is usual for the collective; both for all_reduce]
    #[arg(long, conflicts_with = "out_of_place")]
    pub(crate) in_place: bool,
    /// Calls out of place only
    #[arg(long)]
    pub(crate) out_of_place: bool,
    /// Time for the timed calls of a point, over all rounds
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = duration)]
    pub(crate) budget: Duration,
    /// Rounds through all points, so that what disturbs the machine for a while meets few of them twice; medians
    /// count
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,
    /// Compare what would be chosen with the best, and write nothing
    #[arg(long, conflicts_with_all = ["fresh", "dry_run", "output"])]
    pub(crate) check: bool,
    /// Measure the paths between hosts, and write a topology file
    #[arg(long, conflicts_with_all = ["check", "fresh", "collectives"])]
    pub(crate) links: bool,
    /// The paths, by interface [default: those of the hint `paths`]
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "links")]
    pub(crate) paths: Vec<String>,
    /// Measure again what was measured before
    #[arg(long)]
    pub(crate) fresh: bool,
    /// The memory that holds the buffers; `cuda` takes a GPU for each rank
    #[arg(long, value_enum, default_value_t = DeviceKind::Host)]
    pub(crate) device: DeviceKind,
    /// Time for all points on GPUs; what is left then is not measured
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub(crate) total: Duration,
    /// Print the plan and the estimated time, and measure nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The table
    #[arg(short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
