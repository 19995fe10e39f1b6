//! Declares the verbs that look at algorithms, choices and protocols, and run nothing.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use roundelay::{DType, RedOp};
use roundelay_compiler::device;

use super::job::{DeviceKind, TransportName};
use super::target::TargetArgs;
use crate::values::{ByteSizes, RankCounts, bytes, duration};

/// `roundelay check`
#[derive(Debug, Args)]
#[command(after_help = "\
The time is that of the cost model: one axis of ranks on one host with a core for each, of several
axes the last one inside hosts, and a 10 Gbit/s network between them. `gap` is what the busiest
rank sends, relative to the lower bound. Rounds are the longest chain of messages. Their bound is that of ranks which
send and receive as many messages at once as this algorithm's (`ports`; one, if none are said):
ceil(log n / log (ports + 1)).

Examples:
  roundelay check my.algo                 n from 2 to 9
  roundelay check all_reduce.ring -n 2..64
  roundelay check all_reduce.two_level -n 2x4,16x8
  roundelay check broadcast.k_nomial -p k=2,4,8
  roundelay check my.algo --watch         again whenever the text is saved
  roundelay check my.algo --all-n         every n at once
  roundelay check my.algo --certificate my.cert
  roundelay check all_reduce              all of the algorithm library's
  roundelay check rank0.plan              a plan written by `show --stage plan -o`")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Rank counts: 8, 2x4, 2,4,8 or 2..64 [default: 2..9; grids: 2x2,2x3,3x2,2x4]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<RankCounts>,
    /// Size of the vector for which time and bytes are given
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = bytes)]
    pub(crate) bytes: u64,
    /// Prove it for every rank count at once, up to 2^24, with -n at those too; if that fails, say why
    #[arg(long)]
    pub(crate) all_n: bool,
    /// Write the proof for every rank count to a file, which algorithms/proofs/check.py checks; implies --all-n
    #[arg(long, value_name = "FILE")]
    pub(crate) certificate: Option<PathBuf>,
    /// Check again whenever the file, or one that it imports, is written
    #[arg(long)]
    pub(crate) watch: bool,
}

/// `roundelay route`
#[derive(Debug, Args)]
#[command(after_help = "\
Under another launcher every rank says its own routes.

Examples:
  roundelay route -n 4 --hosts 2
  roundelay route -n 4 --hosts 2 --device cuda
  mpirun -n 2 roundelay route")]
pub(crate) struct RouteArgs {
    /// Ranks
    #[arg(short, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) n: u32,
    /// The memory of the calls: the host's, or that of GPUs, of which none is needed here
    #[arg(long, value_enum, default_value_t = DeviceKind::Host)]
    pub(crate) device: DeviceKind,
    /// Links that may be used [default: shared memory where it can be, TCP elsewhere]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<TransportName>,
    /// Number of machines over which the ranks shall believe to be spread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) hosts: u32,
}

/// `roundelay show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roundelay show my.algo --stage ast
  roundelay show all_reduce.ring --stage graph -n 4
  roundelay show all_reduce.ring --stage plan -n 131072 --rank 7
  roundelay show all_reduce.ring --stage plan -n 4 --rank 0 -o rank0.plan
  roundelay show all_reduce.ring --stage device --protocol put -n 4 --rank 0")]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The stage to show
    #[arg(long, default_value = "plan")]
    pub(crate) stage: CompilerStage,
    /// Ranks: 8 or 2x4 [default: 4, or what is allowed; grids: 2x2]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<RankCounts>,
    /// Make this rank's plan only, without unrolling the others
    #[arg(long)]
    pub(crate) rank: Option<u32>,
    #[command(flatten)]
    pub(crate) call: CallArgs,
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

/// The call that a plan, and a program of a device, is made for.
#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// Calls in place (the default of all_reduce and broadcast)
    #[arg(long, conflicts_with = "out_of_place")]
    pub(crate) in_place: bool,
    /// Calls out of place (the default of the others)
    #[arg(long)]
    pub(crate) out_of_place: bool,
    /// The protocol of messages on the device: packet, staged, put, get, multicast; in `show` also engine
    #[arg(long, alias = "way", value_name = "PROTOCOL", default_value = "packet")]
    pub(crate) protocol: device::DeviceProtocol,
    /// Element type of a kernel
    #[arg(long, default_value_t = DType::F32)]
    pub(crate) dtype: DType,
    /// Operator of a kernel
    #[arg(long, default_value_t = RedOp::Sum)]
    pub(crate) op: RedOp,
    /// A kernel for memory, or counts, that are not aligned to 16 bytes
    #[arg(long)]
    pub(crate) unaligned: bool,
}

/// Stages of the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompilerStage {
    /// The syntax tree
    Ast,
    /// The resolved program, for any rank count
    Program,
    /// The step graph
    Graph,
    /// The plans
    Plan,
    /// The program of each block of a device
    Device,
    /// The kernels of devices
    Cuda,
}

/// `roundelay draw`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  roundelay draw all_reduce.ring -n 8 -o ring.html")]
pub(crate) struct DrawArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Ranks: 8 or 2x4 [default: 4, or what is allowed; grids: 2x2]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<RankCounts>,
    /// The page, or, by a name in .svg, the picture alone [default: COLLECTIVE.NAME.html]
    #[arg(short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `roundelay atlas`
#[derive(Debug, Args)]
#[command(after_help = "\
The pages need no server and nothing beside each other. Rounds and bytes as formulas are found from the proofs at up to
64 ranks, and fit all of them. Times are those of the cost model; --rows adds what was measured.

Examples:
  roundelay atlas -o atlas                       the algorithm library
  roundelay atlas -o atlas all_reduce my.algo
  roundelay bench all_reduce.ring -n 2 --json > rows.jsonl
  roundelay atlas -o atlas all_reduce --rows rows.jsonl")]
pub(crate) struct AtlasArgs {
    /// Algorithms, collectives or files [default: the algorithm library]
    #[arg(value_name = "FILE|NAME")]
    pub(crate) names: Vec<String>,
    /// The folder of the pages, which is made if it is missing
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Rows of `bench --json`, which the pages of their algorithms show
    #[arg(long, value_name = "FILE")]
    pub(crate) rows: Vec<PathBuf>,
}

/// `roundelay emit`
#[derive(Debug, Args)]
#[command(after_help = "\
The header has a function that runs the schedule inside a kernel of yours, launched cooperatively. The handle with
which kernels call it is made by the ranks of a communicator that have agreed on it: docs/functions.md.

Examples:
  roundelay emit --cuda-device all_reduce.two_shot -n 4 -o all_reduce.cuh
  roundelay emit --cuda-device my.algo -n 2 --protocol put --dtype bf16 --name mine -o mine.cuh")]
pub(crate) struct EmitArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// A header with a `__device__` function for CUDA kernels
    #[arg(long, required = true)]
    pub(crate) cuda_device: bool,
    /// Ranks: 8 or 2x4 [default: 4, or what is allowed; grids: 2x2]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<RankCounts>,
    /// The function of this rank only [default: those of all, of which the handle chooses one]
    #[arg(long)]
    pub(crate) rank: Option<u32>,
    /// The namespace of the header [default: COLLECTIVE_ALGORITHM]
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) call: CallArgs,
    /// The file to write [default: standard output]
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
pub(crate) struct FmtArgs {
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
pub(crate) struct ExplainArgs {
    /// A code such as RL0501, a collective such as all_reduce, or `hints`
    #[arg(value_name = "CODE|COLLECTIVE|hints")]
    pub(crate) what: Option<String>,
    /// Ranks: 8 or 2x4 [default: 4]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<RankCounts>,
    /// Hosts that the ranks are spread over evenly
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) hosts: u32,
    /// Sizes: 4K, 1,4K,1M or 8..128M (doubling)
    #[arg(long, value_name = "SIZES", default_value = "1M")]
    pub(crate) bytes: ByteSizes,
    /// Element type: f16 bf16 f32 f64 i8 u8 i32 u32 i64 u64 bool
    #[arg(long, default_value_t = DType::F32)]
    pub(crate) dtype: DType,
    /// Operator: sum prod min max avg premul_sum and or xor
    #[arg(long, default_value_t = RedOp::Sum)]
    pub(crate) op: RedOp,
    /// The root of a rooted collective
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub(crate) root: u32,
    /// Explain a call in place (the default of all_reduce and broadcast)
    #[arg(long, conflicts_with = "out_of_place")]
    pub(crate) in_place: bool,
    /// Explain a call out of place (the default of the others)
    #[arg(long)]
    pub(crate) out_of_place: bool,
    /// The memory that holds the buffers
    #[arg(long, value_enum, default_value_t = DeviceKind::Host)]
    pub(crate) device: DeviceKind,
    /// A hint on the call; repeatable
    #[arg(long = "hint", value_name = "KEY=VALUE")]
    pub(crate) hints: Vec<String>,
}

/// `roundelay doctor`
#[derive(Debug, Args)]
#[command(after_help = "\
A file is what `run --flight FILE` has left, or the JSON of one rank's flight recorder (`comm.flight()` in Rust
and in Python). The more ranks answer, the surer the cause; of the others it says what those that answer
have seen. Give the recorders of all communicators of a job, and it finds those that wait for each other.

With --store it asks the ranks of a running job, wherever they are, that were given the hint `doctor=true`. The
secret of the job is read from ROUNDELAY_SECRET, or the file that ROUNDELAY_SECRET_FILE names.

Examples:
  roundelay doctor flight.json
  roundelay doctor flight-0.json flight-1.json flight-2.json --json
  roundelay doctor --pid 4711
  roundelay doctor --store 10.0.0.1:29500 --timeout 2s")]
pub(crate) struct DoctorArgs {
    /// Flight recorders of the ranks of one or several communicators
    #[arg(value_name = "FILE", required_unless_present_any = ["pid", "store"])]
    pub(crate) files: Vec<PathBuf>,
    /// Look at the ranks of this host that share a communicator with a process, whatever they do
    #[arg(long, value_name = "PID", conflicts_with = "files")]
    pub(crate) pid: Vec<i32>,
    /// Ask the ranks of a running job that met at this store, or that of torch.distributed
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["files", "pid"])]
    pub(crate) store: Option<String>,
    /// The name of the job, where its ranks have one that is not in the store
    #[arg(long, value_name = "NAME", requires = "store", default_value = "")]
    pub(crate) job: String,
    /// The longest time to wait for a rank's answer
    #[arg(long, value_name = "TIME", requires = "store", default_value = "5s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// `roundelay info`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roundelay info --json
  roundelay info --topology > topology.toml
  roundelay info --tunables")]
pub(crate) struct InfoArgs {
    /// Print a topology file of what this machine has: interfaces, RDMA devices, GPUs
    #[arg(long)]
    pub(crate) topology: bool,
    /// Print the durations, limits and thresholds of the program, with their defaults and meanings (docs/tunables.md)
    #[arg(long, conflicts_with = "topology")]
    pub(crate) tunables: bool,
}
