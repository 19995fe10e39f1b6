//! The place of a process in a job: its rank, the launcher that started it, and the store of the job.

/// The membership of this process in a job that another launcher started, as the environment describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobMembership {
    /// This process's rank.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// The launcher that started the ranks.
    pub launcher: LauncherKind,
    /// The store at which they find each other.
    pub store: StoreAt,
}

/// The launcher that started the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LauncherKind {
    /// By hand: `--rank`, `--size`, `--store`, or the variables of these names.
    ByHand,
    /// A launcher for torchcomms: `TORCHCOMM_RANK`, `TORCHCOMM_SIZE`.
    TorchComms,
    /// torchrun.
    Torchrun,
    /// A script that sets `RANK` and `WORLD_SIZE` as torchrun does.
    RankVariables,
    /// Open MPI's mpirun.
    OpenMpi,
    /// A process manager that speaks PMI: MPICH's and Intel's mpiexec, `srun --mpi=pmi2`.
    Pmi,
    /// Slurm's srun.
    Slurm,
    /// HPE's PALS.
    Pals,
}

impl LauncherKind {
    /// Returns its name, as in messages.
    pub fn name(self) -> &'static str {
        match self {
            LauncherKind::ByHand => "by hand",
            LauncherKind::TorchComms => "torchcomms",
            LauncherKind::Torchrun => "torchrun",
            LauncherKind::RankVariables => "RANK and WORLD_SIZE",
            LauncherKind::OpenMpi => "Open MPI",
            LauncherKind::Pmi => "PMI",
            LauncherKind::Slurm => "Slurm",
            LauncherKind::Pals => "PALS",
        }
    }
}

/// The store at which the ranks of a job meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAt {
    /// The job has one rank, which needs no store.
    Alone,
    /// Rank 0 serves it at this address; `job` keeps apart jobs that use one address by accident.
    Address {
        /// Name or address of the host of rank 0.
        host: String,
        /// The port there.
        port: u16,
        /// A text that all ranks of the job share, and no other job. May be empty.
        job: String,
    },
    /// All ranks are on this host: rank 0 serves it there, under a name made of that of the job.
    Local {
        /// A text that all ranks of the job share, and no other job.
        job: String,
    },
    /// Rank 0 serves it at a port of its own choice, which it makes known through the process
    /// manager.
    Pmi {
        /// The file descriptor that leads to the process manager.
        fd: i32,
        /// True if all ranks are on this host.
        one_host: bool,
    },
    /// It is torchrun's own, a `TCPStore` that its agent serves.
    Torch {
        /// Name or address of the agent's host.
        host: String,
        /// The port there.
        port: u16,
        /// The prefix of the keys of this job.
        prefix: String,
    },
}

/// The values of the command line, which go before everything in the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ByHand {
    /// `--rank`.
    pub rank: Option<u32>,
    /// `--size`.
    pub size: Option<u32>,
    /// `--store`: `host:port`, where rank 0 serves the store.
    pub store: Option<String>,
}
