//! Finds rank, size and store among the variables that launchers set.
//!
//! Launchers run inside each other: torchrun under srun, mpirun in a Slurm allocation, everything
//! in a container that was born with variables of its own. The order is therefore from what is
//! meant for this very process to what may be left over from something around it:
//!
//! 1. *By hand* (`--rank --size --store`, `ROUNDELAY_RANK`, …): addressed to this program alone.
//!    `ROUNDELAY_STORE` alone keeps the launcher's rank and size.
//! 2. *torchcomms* (`TORCHCOMM_RANK`, `TORCHCOMM_SIZE`): likewise meant for collectives.
//! 3. *torchrun* (`TORCHELASTIC_RUN_ID`): starts workers itself and is often started by one of
//!    those below, once a host, so that their variables number agents, not workers.
//! 4. *`RANK` and `WORLD_SIZE`* without torchrun: a convention of scripts (`export
//!    RANK=$SLURM_PROCID`), which operators of clusters set with other meanings too. So it must agree
//!    with the report of the launchers below, if there is one.
//! 5. *Open MPI*, whose mpirun may have used srun to start its daemons.
//! 6. *PMI* (`PMI_FD`): MPICH, and Slurm or PALS where they speak it. Likewise.
//! 7. *Slurm*, in a step that srun started. The script of a batch job has a rank and
//!    no step; it belongs to no job of ranks.
//! 8. *PALS* without PMI.
//!
//! The meeting point of the ranks: by hand and with `RANK`, rank 0 serves the store at the address that they
//! are given. torchrun's agent has a store, which is used. If the launcher reports that all ranks are on one
//! host, they meet under a name there and nothing listens on a network. PMI passes on one note,
//! the address of the store. Slurm gives the first host; job and step give the port. Everything else is
//! an error that asks for `ROUNDELAY_STORE`.

use super::launch_variables::{LaunchReport, LaunchVariables, RankNumber, wrong};
use super::membership::{ByHand, JobMembership, LauncherKind, StoreAt};
use super::names::{RANK, SHM_FD, SIZE, STORE};
use super::slurm;
use roundelay_support::error::Error;
use roundelay_support::variables;

/// Returns the membership that this process's environment describes, or `None` if no launcher started it. The
/// environment of the ranks of a [`RankLauncher`](super::launcher::RankLauncher) describes none either: they inherit
/// their job.
///
/// # Errors
///
/// [`Error::Start`] if the environment contradicts itself; the text names the variable, its value
/// and the remedy.
pub fn membership() -> Result<Option<JobMembership>, Error> {
    membership_with(&ByHand::default())
}

/// Returns the [`membership`] of this process, with the values of the command line.
///
/// # Errors
///
/// The errors of [`membership`].
pub fn membership_with(by_hand: &ByHand) -> Result<Option<JobMembership>, Error> {
    detect(&LaunchVariables::new(variables::all()), by_hand)
}

/// Returns the error of a job over several hosts whose launcher gives no address that all ranks share.
fn no_store(launcher: LauncherKind, why: &str) -> Error {
    wrong(format!(
        "the ranks that {} started cannot find each other: {why}; set {STORE}=host:port for all of \
         them, where host is that of rank 0 and the port is free there",
        launcher.name()
    ))
}

/// Finds the membership that the variables describe; `None` if they describe none.
pub(super) fn detect(
    vars: &LaunchVariables,
    by_hand: &ByHand,
) -> Result<Option<JobMembership>, Error> {
    let rank = by_hand.rank.map(|value| RankNumber { name: "--rank", value });
    let size = by_hand.size.map(|value| RankNumber { name: "--size", value });
    // Ranks of our own launcher have these variables too, and inherit everything else.
    let inherited = vars.text(SHM_FD)?.is_some();
    if inherited && rank.is_none() && size.is_none() && by_hand.store.is_none() {
        return Ok(None);
    }
    let rank =
        if inherited { rank } else { rank.map_or_else(|| vars.number(RANK), |r| Ok(Some(r)))? };
    let size =
        if inherited { size } else { size.map_or_else(|| vars.number(SIZE), |s| Ok(Some(s)))? };
    let store = match by_hand.store.as_deref() {
        Some(text) => Some(text),
        None => vars.text(STORE)?,
    };
    let store = store.map(address).transpose()?;
    let found = match (rank, size) {
        (Some(rank), Some(size)) => {
            let why = "--rank and --size, or their variables, come with a store";
            let none = Err(no_store(LauncherKind::ByHand, why));
            Some(LaunchReport { rank, size, launcher: LauncherKind::ByHand, store: none })
        }
        (Some(lone), None) | (None, Some(lone)) => {
            let other = if rank.is_some() { SIZE } else { RANK };
            return Err(wrong(format!(
                "{}={} is given, but {other} is not: give both, or neither",
                lone.name, lone.value
            )));
        }
        (None, None) => launched(vars)?,
    };
    match (found, store) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(wrong(format!(
            "{STORE} is given, but nothing says which rank this process is: give {RANK} and {SIZE} \
             too, or start the ranks with a launcher"
        ))),
        (Some(found), store) => found.membership(store).map(Some),
    }
}

impl LaunchReport {
    fn membership(self, store: Option<StoreAt>) -> Result<JobMembership, Error> {
        let (rank, size) = (self.rank.value, self.size.value);
        if rank >= size {
            return Err(wrong(format!(
                "{}={rank} and {}={size} do not go together: ranks are numbered from 0 to size - 1",
                self.rank.name, self.size.name
            )));
        }
        let store = match store {
            _ if size == 1 => StoreAt::Alone,
            Some(store) => store,
            None => self.store?,
        };
        Ok(JobMembership { rank, size, launcher: self.launcher, store })
    }

    fn agrees(&self, other: &LaunchReport) -> bool {
        (self.rank.value, self.size.value) == (other.rank.value, other.size.value)
    }
}

/// Parses `host:port`, with brackets around an IPv6 address.
pub fn address(text: &str) -> Result<StoreAt, Error> {
    // A name of our own launcher: nothing listens on a network.
    if let Some(job) = text.strip_prefix("local:").filter(|job| job.parse::<u16>().is_err()) {
        return Ok(StoreAt::Local { job: job.into() });
    }
    let parts = text.rsplit_once(':').and_then(|(host, port)| {
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let port = port.parse().ok().filter(|&port: &u16| port != 0)?;
        let host = inner.or_else(|| Some(host).filter(|h| !h.contains(':')))?;
        (!host.is_empty()).then(|| (host.to_owned(), port))
    });
    match parts {
        Some((host, port)) => Ok(StoreAt::Address { host, port, job: String::new() }),
        None => Err(wrong(format!(
            "{STORE}={text} is not an address: write host:port, or [address]:port for IPv6, with a \
             port from 1 to 65535"
        ))),
    }
}

/// Returns the description by the first launcher that gives one.
fn launched(vars: &LaunchVariables) -> Result<Option<LaunchReport>, Error> {
    if let Some(found) = torchcomms(vars)? {
        return Ok(Some(found));
    }
    if let Some(found) = torchrun(vars)? {
        return Ok(Some(found));
    }
    let around = match open_mpi(vars)? {
        Some(found) => Some(found),
        None => match pmi(vars)? {
            Some(found) => Some(found),
            None => match slurm::detect(vars)? {
                Some(found) => Some(found),
                None => pals(vars)?,
            },
        },
    };
    match (rank_variables(vars)?, around) {
        (Some(plain), Some(around)) if !plain.agrees(&around) => Err(wrong(format!(
            "RANK={} and WORLD_SIZE={} contradict {}={} and {}={} of {}: unset the ones that are \
             left over from something else, or say which with {RANK} and {SIZE}",
            plain.rank.value,
            plain.size.value,
            around.rank.name,
            around.rank.value,
            around.size.name,
            around.size.value,
            around.launcher.name(),
        ))),
        (Some(plain), Some(around)) => Ok(Some(if plain.store.is_ok() { plain } else { around })),
        (None, None) => unknown(vars),
        (plain, around) => Ok(plain.or(around)),
    }
}

fn torchcomms(vars: &LaunchVariables) -> Result<Option<LaunchReport>, Error> {
    let Some((rank, size)) = vars.pair("TORCHCOMM_RANK", "TORCHCOMM_SIZE")? else {
        return Ok(None);
    };
    let launcher = LauncherKind::TorchComms;
    Ok(Some(LaunchReport { rank, size, launcher, store: at_master(vars, launcher) }))
}

fn rank_variables(vars: &LaunchVariables) -> Result<Option<LaunchReport>, Error> {
    let Some((rank, size)) = vars.pair("RANK", "WORLD_SIZE")? else { return Ok(None) };
    let launcher = LauncherKind::RankVariables;
    Ok(Some(LaunchReport { rank, size, launcher, store: at_master(vars, launcher) }))
}

/// Returns the address at which rank 0 serves the store: where PyTorch would have its own.
fn at_master(vars: &LaunchVariables, launcher: LauncherKind) -> Result<StoreAt, Error> {
    match vars.master()? {
        Some((host, port)) => Ok(StoreAt::Address { host, port, job: String::new() }),
        None => Err(no_store(launcher, "MASTER_ADDR and MASTER_PORT are not set")),
    }
}

fn torchrun(vars: &LaunchVariables) -> Result<Option<LaunchReport>, Error> {
    let Some(run) = vars.text("TORCHELASTIC_RUN_ID")? else { return Ok(None) };
    let Some((rank, size)) = vars.pair("RANK", "WORLD_SIZE")? else {
        return Err(wrong(format!(
            "TORCHELASTIC_RUN_ID={run} is set, but RANK is not: start the ranks with torchrun, or \
             unset it"
        )));
    };
    let one_host = vars.number("LOCAL_WORLD_SIZE")?.is_some_and(|n| n.value == size.value);
    // A worker that torchrun starts again must not read the notes of the first try.
    let attempt = vars.text("TORCHELASTIC_RESTART_COUNT")?.unwrap_or("0");
    let job = format!("roundelay/{run}/{attempt}");
    let agent = vars.text("TORCHELASTIC_USE_AGENT_STORE")?.is_some_and(|t| t == "True");
    // The store of PyTorch before 2.2 has no validation, and a client that sends one blocks the
    // agent. PyTorch 2.2 renamed this variable too.
    let old = vars.text("TORCH_NCCL_ASYNC_ERROR_HANDLING")?.is_none()
        && vars.text("NCCL_ASYNC_ERROR_HANDLING")?.is_some();
    let launcher = LauncherKind::Torchrun;
    let store = vars.master().and_then(|master| match master {
        None => Err(no_store(launcher, "MASTER_ADDR and MASTER_PORT are not set")),
        Some((host, port)) if !agent => Ok(StoreAt::Address { host, port, job }),
        Some((host, port)) if !old => Ok(StoreAt::Torch { host, port, prefix: job }),
        Some((_, port)) if one_host => Ok(StoreAt::Local { job: format!("{job}/{port}") }),
        Some(_) => Err(no_store(
            launcher,
            "its store is that of a PyTorch before 2.2, which roundelay does not speak; \
             --rdzv_backend=c10d helps too",
        )),
    });
    Ok(Some(LaunchReport { rank, size, launcher, store }))
}

fn open_mpi(vars: &LaunchVariables) -> Result<Option<LaunchReport>, Error> {
    let Some((rank, size)) = vars.pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")? else {
        return Ok(None);
    };
    let launcher = LauncherKind::OpenMpi;
    let one_host =
        vars.number("OMPI_COMM_WORLD_LOCAL_SIZE")?.is_some_and(|n| n.value == size.value);
    // The name of the job, and the directory of the daemon, which holds its process number.
    let job = vars.first(&["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"])?;
    let daemon = vars.text("PMIX_SERVER_TMPDIR")?.unwrap_or_default();
    let store = match job {
        Some(job) if one_host => Ok(StoreAt::Local { job: format!("open mpi/{job}/{daemon}") }),
        _ => at_master(vars, launcher).map_err(|_| {
            let why = if one_host {
                "PMIX_NAMESPACE is not set"
            } else {
                "they are on several hosts, and mpirun tells them no address; \
                 mpirun -x passes a variable on"
            };
            no_store(launcher, why)
        }),
    };
    Ok(Some(LaunchReport { rank, size, launcher, store }))
}

fn pmi(vars: &LaunchVariables) -> Result<Option<LaunchReport>, Error> {
    let Some(fd) = vars.text("PMI_FD")? else { return Ok(None) };
    let Some((rank, size)) = vars.pair("PMI_RANK", "PMI_SIZE")? else { return Ok(None) };
    let store = match fd.parse() {
        Ok(fd) if fd > 2 => {
            let local = vars.number("MPI_LOCALNRANKS")?;
            let local = local.map_or_else(|| vars.number("PMI_LOCAL_SIZE"), |n| Ok(Some(n)))?;
            let one_host = match local {
                Some(local) => local.value == size.value,
                None => slurm::one_host(vars)?,
            };
            Ok(StoreAt::Pmi { fd, one_host })
        }
        _ => Err(wrong(format!(
            "PMI_FD={fd} is not a file descriptor: start the ranks with mpiexec, or unset it"
        ))),
    };
    Ok(Some(LaunchReport { rank, size, launcher: LauncherKind::Pmi, store }))
}

fn pals(vars: &LaunchVariables) -> Result<Option<LaunchReport>, Error> {
    let Some(rank) = vars.number("PALS_RANKID")? else { return Ok(None) };
    // Some versions do not set the size under their own name.
    let size =
        vars.number("PALS_SIZE")?.map_or_else(|| vars.number("PMI_SIZE"), |n| Ok(Some(n)))?;
    let Some(size) = size else {
        return Err(wrong(format!(
            "PALS_RANKID={} is set, but neither PALS_SIZE nor PMI_SIZE is: set {RANK}, {SIZE} and \
             {STORE} for all ranks",
            rank.value
        )));
    };
    let launcher = LauncherKind::Pals;
    let local = vars
        .number("PALS_LOCAL_SIZE")?
        .map_or_else(|| vars.number("PMI_LOCAL_SIZE"), |n| Ok(Some(n)));
    let one_host = local?.is_some_and(|n| n.value == size.value);
    let store = match vars.text("PALS_APID")? {
        Some(id) if one_host => Ok(StoreAt::Local { job: format!("pals/{id}") }),
        _ => at_master(vars, launcher).map_err(|_| {
            no_store(launcher, "they are on several hosts, and PALS tells no address")
        }),
    };
    Ok(Some(LaunchReport { rank, size, launcher, store }))
}

/// Refuses a rank that no known launcher started, rather than take it for a job of its own.
fn unknown(vars: &LaunchVariables) -> Result<Option<LaunchReport>, Error> {
    let names = ["PMI_RANK", "PMI_ID", "PMIX_RANK"];
    let text = |&name: &&'static str| Some(vars.text(name).transpose()?.map(|text| (name, text)));
    let Some((name, rank)) = names.iter().find_map(text).transpose()? else { return Ok(None) };
    Err(wrong(format!(
        "{name}={rank} is set, but not in a way that says how many ranks there are and how to reach \
         them (PMI_FD): set {RANK}, {SIZE} and {STORE} for all ranks, or unset it"
    )))
}
