//! The command line as clap reads it, with an example or two in the help of every verb.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use roundelay::{DType, RedOp};

use crate::values::{Ranks, Sizes, bytes, duration};

/// Collective algorithms, written once, proved, and played.
#[derive(Debug, Parser)]
#[command(
    name = "roundelay",
    version,
    disable_help_subcommand = true,
    after_help = "\
Exit codes: 0 done, 1 the input is wrong, 2 usage, 3 a run failed.

Examples:
  roundelay check my.algo -n 2..64        prove it for each rank count
  roundelay run my.algo -n 4              play it on real data, compare with a reference
  roundelay bench all_reduce.ring -n 2    measure it
  roundelay info                          the book of algorithms, and this machine"
)]
pub(crate) struct Cli {
    /// Print one JSON object a result on standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Prove algorithms, and say how far they are from the lower bounds
    Check(Check),
    /// Play an algorithm on local processes, and compare the result with a reference
    Run(Run),
    /// Measure algorithms, beside other libraries if asked to
    Bench(Bench),
    /// Print a stage of the compiler
    Show(Show),
    /// Draw an algorithm as one HTML page
    Draw(Draw),
    /// Format files in place
    Fmt(Fmt),
    /// Explain an error code
    Explain(Explain),
    /// Show the version, this machine and the book of algorithms
    Info,
    /// One rank of a job (started by `run` and `bench`)
    #[command(hide = true)]
    Rank {
        /// The job
        job: String,
    },
}

/// Which algorithm is meant.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// A file, `collective.name` of the book, or a collective
    #[arg(value_name = "FILE|NAME")]
    pub(crate) target: String,
    /// Which algorithm of a file that declares several
    #[arg(long, value_name = "NAME")]
    pub(crate) algorithm: Option<String>,
    /// The root of a rooted collective
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub(crate) root: u32,
}

/// `roundelay check`
#[derive(Debug, Args)]
#[command(after_help = "\
The time is that of a simple model: 2 us for each round, and 10 GB/s for what a rank sends.
`gap` is what the busiest rank sends, relative to the lower bound.

Examples:
  roundelay check my.algo                 n from 2 to 9
  roundelay check all_reduce.ring -n 2..64
  roundelay check all_reduce.two_level -n 2x4,16x8
  roundelay check all_reduce              all of the book's
  roundelay check rank0.plan              a plan written by `show --stage plan -o`")]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Rank counts: 8, 2x4, 2,4,8 or 2..64 [default: 2..9; grids: 2x2,2x3,3x2,2x4]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<Ranks>,
    /// Size of the vector for which time and bytes are given
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = bytes)]
    pub(crate) bytes: u64,
}

/// What every job has.
#[derive(Debug, Args)]
pub(crate) struct Play {
    /// Ranks, as processes of this machine: 8, 2x4, 2,4,8 or 2..8 [default: 4; grids: 2x2]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<Ranks>,
    /// Element type: f16 bf16 f32 f64 i8 u8 i32 u32 i64 u64 bool
    #[arg(long, default_value_t = DType::F32)]
    pub(crate) dtype: DType,
    /// Operator: sum prod min max avg premul_sum and or xor
    #[arg(long, default_value_t = RedOp::Sum)]
    pub(crate) op: RedOp,
    /// Timed calls of each size [default: as many as fill a fraction of a second]
    #[arg(long)]
    pub(crate) iters: Option<u32>,
    /// Calls before timing
    #[arg(long, default_value_t = 5)]
    pub(crate) warmup: u32,
    /// How long a rank waits for another: 5s, 500ms, 2m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Seed of the data [default: from the clock; printed]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Call in place (the default of all_reduce and broadcast)
    #[arg(long, conflicts_with = "out_of_place")]
    pub(crate) in_place: bool,
    /// Call out of place (the default of the others)
    #[arg(long)]
    pub(crate) out_of_place: bool,
    /// Keep the buffers in ordinary memory, which other ranks cannot read in place
    #[arg(long)]
    pub(crate) private: bool,
    /// Capacity of a slot: the largest message that is copied at once
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) slot_bytes: Option<u64>,
}

/// `roundelay run`
#[derive(Debug, Args)]
#[command(after_help = "\
A size is the larger of one rank's input and output, rounded down to whole elements (and blocks).
The time is the slowest rank's, the median over batches; algbw is size/time, busbw as in nccl-tests.
Every call is checked: all outputs against a reference in higher precision, inputs and guard bytes
for being untouched, and the ranks' results for being bitwise equal where that was proved.

Examples:
  roundelay run my.algo -n 4
  roundelay run all_reduce.ring -n 4 --bytes 1K..64M --dtype bf16
  roundelay run all_reduce.two_level -n 2x4 --op max
  roundelay run all_gather -n 3 --bytes 0,1,1M --seed 7 --json")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) play: Play,
    /// Sizes: 4K, 1,4K,1M or 8..128M (doubling)
    #[arg(long, value_name = "SIZES", default_value = "1K,64K,1M,16M")]
    pub(crate) bytes: Sizes,
    /// Factor between the sizes of a range
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) factor: u64,
}

/// `roundelay bench`
#[derive(Debug, Args)]
#[command(after_help = "\
Columns and definitions are those of nccl-tests. Ranks are bound to cores where there are enough.
Other libraries are run in turn with ours, size by size, on the same cores; `ratio` is their median
time over ours. `--vs mpi` is whatever MPI is installed; `ompi` wants mpicc.openmpi, `mpich`
mpicc.mpich (Debian: libopenmpi-dev, libmpich-dev).

Examples:
  roundelay bench all_reduce.ring all_reduce.two_shot -n 4 -b 8 -e 64M -f 4
  roundelay bench all_reduce -n 2 -b 8 -e 128M -f 8 --vs mpi --json")]
pub(crate) struct Bench {
    /// Files, `collective.name` of the book, or collectives
    #[arg(value_name = "FILE|NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// The root of a rooted collective
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub(crate) root: u32,
    #[command(flatten)]
    pub(crate) play: Play,
    /// Smallest size
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "8", value_parser = bytes)]
    pub(crate) min: u64,
    /// Largest size
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "16M", value_parser = bytes)]
    pub(crate) max: u64,
    /// Factor between sizes
    #[arg(short = 'f', long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) factor: u64,
    /// Sizes, in place of -b, -e and -f
    #[arg(long, value_name = "SIZES")]
    pub(crate) bytes: Option<Sizes>,
    /// Other libraries to measure beside ours
    #[arg(long, value_delimiter = ',')]
    pub(crate) vs: Vec<Peer>,
    /// How often each size is measured in turn with the peers; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) turns: u32,
}

/// Other libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// Open MPI and MPICH, whichever is installed
    Mpi,
    /// Open MPI
    Ompi,
    /// MPICH
    Mpich,
}

/// `roundelay show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roundelay show my.algo --stage ast
  roundelay show all_reduce.ring --stage graph -n 4
  roundelay show all_reduce.ring --stage plan -n 131072 --rank 7
  roundelay show all_reduce.ring --stage plan -n 4 --rank 0 -o rank0.plan")]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Which stage
    #[arg(long, default_value = "plan")]
    pub(crate) stage: Stage,
    /// Ranks: 8 or 2x4 [default: 4; grids: 2x2]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<Ranks>,
    /// Make this rank's plan only, without unrolling the others
    #[arg(long)]
    pub(crate) rank: Option<u32>,
    /// Plan for calls in place (the default of all_reduce and broadcast)
    #[arg(long, conflicts_with = "out_of_place")]
    pub(crate) in_place: bool,
    /// Plan for calls out of place (the default of the others)
    #[arg(long)]
    pub(crate) out_of_place: bool,
    /// The graph in the language of Graphviz
    #[arg(long)]
    pub(crate) dot: bool,
    /// Write the plan of --rank to a file, as `check` reads it
    #[arg(short, value_name = "FILE", requires = "rank")]
    pub(crate) output: Option<PathBuf>,
}

/// Stages of the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// The syntax tree
    Ast,
    /// The resolved program, for any rank count
    Program,
    /// The step graph
    Graph,
    /// The plans
    Plan,
}

/// `roundelay draw`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  roundelay draw all_reduce.ring -n 8 -o ring.html")]
pub(crate) struct Draw {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Ranks: 8 or 2x4 [default: 4; grids: 2x2]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<Ranks>,
    /// The page [default: COLLECTIVE.NAME.html]
    #[arg(short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `roundelay fmt`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roundelay fmt *.algo
  roundelay fmt --check my.algo           end with 1 and name the file if it is not formatted
  roundelay fmt - < my.algo               from standard input to standard output")]
pub(crate) struct Fmt {
    /// Change nothing; end with 1 if something is not formatted
    #[arg(long)]
    pub(crate) check: bool,
    /// Files, or `-`
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
}

/// `roundelay explain`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roundelay explain RL0501
  roundelay explain                       all codes")]
pub(crate) struct Explain {
    /// A code such as RL0501
    #[arg(value_name = "CODE")]
    pub(crate) code: Option<String>,
}
