//! Declares the options that every job has, and those of `run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use roundelay::{DType, RedOp};
use roundelay_compiler::device;
use serde::{Deserialize, Serialize};

use super::chaos::FaultRates;
use super::target::TargetArgs;
use crate::values::{ByteSizes, RankCounts, bytes, duration};

/// The options that every job has.
#[derive(Debug, Clone, Args)]
pub(crate) struct JobArgs {
    /// Ranks, as processes of this machine: 8, 2x4, 2,4,8 or 2..8 [default: 4, or what is allowed; grids: 2x2]
    #[arg(short, value_name = "RANKS")]
    pub(crate) n: Option<RankCounts>,
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
    /// The longest time that a rank waits for another: 5s, 500ms, 2m
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
    /// Capacity of a slot: the largest message that is copied at once [default: 256K, 1M where ranks share no memory]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) slot_bytes: Option<u64>,
    /// The transport of the data; --hint transport=… in short [default: shared memory where it can be]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<TransportName>,
    /// Number of machines over which the ranks shall believe to be spread: shared memory inside, TCP between
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) hosts: u32,
    /// This process is that rank of a job whose ranks are started one by one
    #[arg(long, requires_all = ["size", "store"])]
    pub(crate) rank: Option<u32>,
    /// The number of its ranks
    #[arg(long, requires = "rank")]
    pub(crate) size: Option<u32>,
    /// The address at which rank 0 serves the store where the ranks meet; all ranks are given this one
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) store: Option<String>,
    /// A hint, for where a collective is given and not an algorithm; repeatable (docs/hints.md)
    #[arg(long = "hint", value_name = "KEY=VALUE")]
    pub(crate) hints: Vec<String>,
    /// Part of the results that is compared with the reference
    #[arg(long, value_enum, default_value = "full")]
    pub(crate) verify: VerifyScope,
    /// Trace a few calls of each size, and write a file for Perfetto (ui.perfetto.dev)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// If the run fails, write what each rank remembers to a file (JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) flight: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) on: DeviceArgs,
}

impl JobArgs {
    /// Returns the options with which points of a tuned table are measured: sums of f32.
    pub(crate) fn tuning() -> Self {
        JobArgs {
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
            verify: VerifyScope::Full,
            trace: None,
            flight: None,
            on: DeviceArgs::default(),
        }
    }

    /// Returns the options with which points of a tuned table are measured on GPUs.
    pub(crate) fn on_gpus(in_place: bool) -> Self {
        let on = DeviceArgs { device: DeviceKind::Cuda, ..DeviceArgs::default() };
        JobArgs {
            in_place,
            out_of_place: !in_place,
            on,
            timeout: Duration::from_secs(20),
            ..Self::tuning()
        }
    }
}

/// The device that holds the buffers, and how GPUs run calls.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DeviceArgs {
    /// The memory that holds the buffers; `cuda` takes a GPU for each rank
    #[arg(long, value_enum, default_value_t = DeviceKind::Host)]
    pub(crate) device: DeviceKind,
    /// The protocol of messages between GPUs: packet, staged, put, get, engine, multicast; --hint protocol=… in short
    /// [default: chosen]
    #[arg(long, alias = "way", value_name = "PROTOCOL")]
    pub(crate) protocol: Option<device::DeviceProtocol>,
    /// Blocks of a kernel [default: chosen]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    pub(crate) blocks: Option<u32>,
    /// Number of calls captured in a CUDA graph, which is replayed [default: each call is launched]
    #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) graph: Option<u32>,
}

impl DeviceArgs {
    /// Returns true if buffers lie on GPUs.
    pub(crate) fn gpus(&self) -> bool {
        self.device == DeviceKind::Cuda
    }
}

/// The memory that holds the buffers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceKind {
    /// The memory of the host
    #[default]
    Host,
    /// NVIDIA GPUs
    Cuda,
}

/// The part of a result that is compared with the reference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VerifyScope {
    /// Every element
    #[default]
    Full,
    /// Blocks that the seed draws, and the first and last of each chunk
    Sample,
    /// Nothing
    Off,
}

/// `roundelay run`
#[derive(Debug, Args)]
#[command(after_help = "\
A size is the larger of one rank's input and output, rounded down to whole elements (and blocks).
The time is the slowest rank's, the median over batches; algbw is size/time, busbw as in nccl-tests.
On GPUs it is the time between events on the stream (nccl-tests' own default is the ranks' mean).
Calls before and after those that are timed are checked: all outputs against a reference in higher precision,
inputs and guard bytes for being untouched, and the ranks' results for being bitwise equal where that was
proved; each rank compares its share with the reference then. --verify sample compares blocks only.

Examples:
  roundelay run my.algo -n 4
  roundelay run all_reduce.ring -n 4 --bytes 1K..64M --dtype bf16
  roundelay run broadcast.k_nomial -p k=4 -n 8
  roundelay run all_reduce.two_level -n 2x4 --op max
  roundelay run all_gather -n 3 --bytes 0,1,1M --seed 7 --json
  roundelay run all_reduce -n 4 --hint deterministic=true
  roundelay run all_reduce -n 4 --hint algorithm=ring --hint timeout=5s
  roundelay run all_reduce.ring -n 4 --bytes 1M --trace ring.json
  roundelay run all_reduce.ring -n 4 --bytes 4G --verify sample
  roundelay run all_reduce.ring -n 4 --transport tcp
  roundelay run all_reduce.ring -n 4 --hosts 2
  roundelay run all_reduce.ring -n 4 --device cuda --protocol put --blocks 32
  roundelay run all_reduce -n 4 --chaos kill=0.2/s,stop=0.1/s --for 30s --timeout 5s --bytes 4,64K
  mpirun -n 4 roundelay run all_reduce    also mpiexec, srun, torchrun --no-python (docs/running.md)
  roundelay run all_reduce --rank 0 --size 2 --store 127.0.0.1:29500     and with --rank 1")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) job_args: JobArgs,
    /// Sizes: 4K, 1,4K,1M or 8..128M (doubling)
    #[arg(long, value_name = "SIZES", default_value = "1K,64K,1M,16M")]
    pub(crate) bytes: ByteSizes,
    /// Factor between the sizes of a range
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) factor: u64,
    /// Run all_reduce again and again under faults, at these rates a second:
    /// kill=0.1/s,stop=0.05/s,slow=0.1/s,late=0.1/s, cut=0.1/s. The ranks that are left go on, and others take the
    /// places of those that were lost (docs/elastic.md)
    #[arg(long, value_name = "FAULTS")]
    pub(crate) chaos: Option<FaultRates>,
    /// The time for which to do so
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = duration, requires = "chaos")]
    pub(crate) time: Duration,
}

/// The transport of the data of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportName {
    /// Shared memory
    Shm,
    /// TCP
    Tcp,
    /// InfiniBand or RoCE
    Rdma,
}

impl TransportName {
    /// Returns its name in hints and results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TransportName::Shm => "shm",
            TransportName::Tcp => "tcp",
            TransportName::Rdma => "rdma",
        }
    }
}
