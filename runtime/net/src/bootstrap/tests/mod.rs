//! Tests how environments are read, the right ones and the wrong ones. There is no srun here: what Slurm sets
//! is taken from its manual.

use std::os::unix::ffi::OsStringExt;

use super::env::detect;
use super::launch_variables::LaunchVariables;
use super::membership::{ByHand, JobMembership, LauncherKind, StoreAt};
use super::slurm::first_host;

const TORCHRUN: &str = "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=localhost \
    MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 \
    TORCHELASTIC_USE_AGENT_STORE=True TORCH_NCCL_ASYNC_ERROR_HANDLING=1";
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4 \
    PMIX_NAMESPACE=702611457 PMIX_RANK=2 PMIX_SERVER_TMPDIR=/tmp/ompi.vm.0/pid.17695";
const MPICH: &str = "PMI_RANK=0 PMI_SIZE=2 PMI_FD=6 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=0";
const SLURM: &str = "SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=1234 \
    SLURM_STEP_ID=0 SLURM_STEP_NODELIST=nid[001-002] SLURM_LAUNCH_NODE_IPADDR=10.0.0.1";
const PALS: &str = "PALS_RANKID=5 PALS_LOCAL_RANKID=5 PALS_APID=abc PMI_SIZE=8 PALS_LOCAL_SIZE=8";

fn variables(text: &str) -> LaunchVariables {
    // A later one replaces an earlier one.
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').expect("a pair"));
    LaunchVariables::new(pairs.map(|(name, value)| (name.into(), value.into())))
}

fn found(text: &str) -> JobMembership {
    detect(&variables(text), &ByHand::default()).expect("no error").expect("a membership")
}

fn nothing(text: &str) {
    assert_eq!(detect(&variables(text), &ByHand::default()), Ok(None), "{text}");
}

fn wrong(text: &str, wanted: &[&str]) {
    let error = detect(&variables(text), &ByHand::default()).expect_err(text).to_string();
    for word in wanted {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

fn at(host: &str, port: u16, job: &str) -> StoreAt {
    StoreAt::Address { host: host.into(), port, job: job.into() }
}

fn is(text: &str, rank: u32, size: u32, launcher: LauncherKind, store: StoreAt) {
    assert_eq!(found(text), JobMembership { rank, size, launcher, store }, "{text}");
}

#[test]
fn a_variable_that_cannot_be_read_is_not_taken_for_unset() {
    let torchrun: Vec<&str> = TORCHRUN.split_whitespace().collect();
    let launchers =
        [TORCHRUN, OPEN_MPI, MPICH, SLURM, PALS, "ROUNDELAY_STORE=a:1 RANK=0 WORLD_SIZE=2"];
    let read = |pairs: &[&str], name: &str| {
        let pairs = pairs.iter().map(|pair| pair.split_once('=').expect("a pair"));
        let value = |key, value: &str| match key == name {
            true => std::ffi::OsString::from_vec(vec![0xff, b'1']),
            false => value.into(),
        };
        let variables = LaunchVariables::new(pairs.map(|(key, v)| (key.into(), value(key, v))));
        detect(&variables, &ByHand::default())
    };
    // All that a launcher's description is made from, and none of what other programs set.
    let read_by_each = [
        "RANK",
        "OMPI_COMM_WORLD_RANK",
        "PMI_FD",
        "SLURM_STEP_ID",
        "PALS_RANKID",
        "ROUNDELAY_STORE",
    ];
    for (launcher, name) in launchers.into_iter().zip(read_by_each) {
        let pairs: Vec<&str> = launcher.split_whitespace().collect();
        let error = read(&pairs, name).expect_err(name).to_string();
        assert!(error.contains(name) && error.contains("not UTF-8"), "{error}");
    }
    let with = [&torchrun[..], &["LS_COLORS=1"]].concat();
    assert_eq!(read(&with, "LS_COLORS"), read(&torchrun, ""));
}

#[test]
fn nobody_started_this() {
    nothing("");
    nothing("HOME=/root PATH=/bin WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1");
    nothing("ROUNDELAY_RANK= RANK= PMI_RANK=");
    // Our own launcher's ranks, inside any other.
    nothing(&format!("ROUNDELAY_SHM_FD=5 ROUNDELAY_RANK=0 ROUNDELAY_SIZE=2 {OPEN_MPI}"));
    // The script of a batch job, a shell in an allocation: both have a rank.
    nothing("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=1 SLURM_NODELIST=a");
    nothing("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=1 SLURM_STEP_ID=4294967290");
    nothing("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=1 SLURM_STEP_ID=4294967291");
}

#[test]
fn by_hand_goes_before_all() {
    let hand = "ROUNDELAY_RANK=1 ROUNDELAY_SIZE=3 ROUNDELAY_STORE=node7:4000";
    let all = format!("{hand} {TORCHRUN} {OPEN_MPI} {MPICH} {SLURM} {PALS}");
    is(&all, 1, 3, LauncherKind::ByHand, at("node7", 4000, ""));
    let by_hand = ByHand { rank: Some(0), size: Some(2), store: Some("[::1]:5".into()) };
    let membership = detect(&variables(&all), &by_hand).expect("no error").expect("a membership");
    let store = at("::1", 5, "");
    assert_eq!(
        membership,
        JobMembership { rank: 0, size: 2, launcher: LauncherKind::ByHand, store }
    );
    // The store alone leaves the rest to the launcher, even if that knows no store.
    let thin = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 ROUNDELAY_STORE=node7:4000";
    is(thin, 2, 4, LauncherKind::OpenMpi, at("node7", 4000, ""));
    // Even inside a rank of our own launcher, a command line means what it says.
    let inner = variables("ROUNDELAY_SHM_FD=5 ROUNDELAY_RANK=0 ROUNDELAY_SIZE=2");
    let membership = detect(&inner, &by_hand).expect("no error").expect("a membership");
    assert_eq!((membership.rank, membership.size), (0, 2));
    is("ROUNDELAY_RANK=0 ROUNDELAY_SIZE=1", 0, 1, LauncherKind::ByHand, StoreAt::Alone);
}

#[test]
fn by_hand_can_be_wrong() {
    let rest = "ROUNDELAY_SIZE=2 ROUNDELAY_STORE=a:1";
    wrong(&format!("ROUNDELAY_RANK=x {rest}"), &["ROUNDELAY_RANK=x", "not a number"]);
    wrong(&format!("ROUNDELAY_RANK=-1 {rest}"), &["ROUNDELAY_RANK=-1"]);
    wrong(&format!("ROUNDELAY_RANK=4294967296 {rest}"), &["ROUNDELAY_RANK=4294967296"]);
    wrong(&format!("ROUNDELAY_RANK=2 {rest}"), &["ROUNDELAY_RANK=2", "ROUNDELAY_SIZE=2"]);
    wrong(rest, &["ROUNDELAY_SIZE=2", "ROUNDELAY_RANK"]);
    wrong("ROUNDELAY_RANK=0 ROUNDELAY_STORE=a:1", &["ROUNDELAY_RANK=0", "ROUNDELAY_SIZE"]);
    wrong("ROUNDELAY_RANK=0 ROUNDELAY_SIZE=0 ROUNDELAY_STORE=a:1", &["ROUNDELAY_SIZE=0"]);
    wrong("ROUNDELAY_STORE=a:1", &["ROUNDELAY_RANK"]);
    wrong("ROUNDELAY_RANK=0 ROUNDELAY_SIZE=2", &["ROUNDELAY_STORE=host:port"]);
    for store in ["a", "a:", ":1", "a:0", "a:65536", "a:x", "::1", "::1:5", "[]:5", "a:1:2"] {
        let text = format!("ROUNDELAY_RANK=0 ROUNDELAY_SIZE=2 ROUNDELAY_STORE={store}");
        wrong(&text, &[&format!("ROUNDELAY_STORE={store}"), "host:port"]);
    }
}

#[test]
fn torchrun_goes_before_what_started_it() {
    let prefix = "roundelay/none/0".to_owned();
    let store = StoreAt::Torch { host: "localhost".into(), port: 29500, prefix };
    is(TORCHRUN, 1, 4, LauncherKind::Torchrun, store.clone());
    let nested = format!("{TORCHRUN} {OPEN_MPI} {MPICH} {SLURM}");
    is(&nested, 1, 4, LauncherKind::Torchrun, store);
    // A second try has notes of its own.
    let again = format!("{TORCHRUN} TORCHELASTIC_RESTART_COUNT=1");
    assert!(matches!(found(&again).store, StoreAt::Torch { prefix, .. } if prefix.ends_with("/1")));
    let own = format!("{TORCHRUN} TORCHELASTIC_USE_AGENT_STORE=False");
    is(&own, 1, 4, LauncherKind::Torchrun, at("localhost", 29500, "roundelay/none/0"));
}

#[test]
fn an_old_torchrun_has_a_store_that_is_left_alone() {
    let old = TORCHRUN.replace("TORCH_NCCL_ASYNC", "NCCL_ASYNC");
    let job = "roundelay/none/0/29500".to_owned();
    is(&old, 1, 4, LauncherKind::Torchrun, StoreAt::Local { job });
    let wanted = ["before 2.2", "ROUNDELAY_STORE", "--rdzv_backend=c10d"];
    wrong(&format!("{old} LOCAL_WORLD_SIZE=2"), &wanted);
    let own = format!("{old} LOCAL_WORLD_SIZE=2 TORCHELASTIC_USE_AGENT_STORE=False");
    is(&own, 1, 4, LauncherKind::Torchrun, at("localhost", 29500, "roundelay/none/0"));
}

#[test]
fn torchrun_can_be_wrong() {
    wrong(&TORCHRUN.replace("RANK=1 W", "RANK=x W"), &["RANK=x"]);
    wrong(&TORCHRUN.replace("WORLD_SIZE=4 LOCAL_RANK", "LOCAL_RANK"), &["RANK=1", "WORLD_SIZE"]);
    wrong(&TORCHRUN.replace("MASTER_PORT=29500", ""), &["MASTER_ADDR=localhost", "MASTER_PORT"]);
    wrong(&TORCHRUN.replace("29500", "0"), &["MASTER_PORT=0"]);
    wrong(&TORCHRUN.replace("29500", "http"), &["MASTER_PORT=http"]);
    wrong("TORCHELASTIC_RUN_ID=none", &["TORCHELASTIC_RUN_ID=none", "RANK"]);
}

#[test]
fn rank_and_world_size_must_agree_with_the_launcher() {
    let plain = "RANK=2 WORLD_SIZE=4 MASTER_ADDR=node1 MASTER_PORT=29500";
    is(plain, 2, 4, LauncherKind::RankVariables, at("node1", 29500, ""));
    is(&format!("{plain} {OPEN_MPI}"), 2, 4, LauncherKind::RankVariables, at("node1", 29500, ""));
    assert_eq!(found(&format!("RANK=2 WORLD_SIZE=4 {OPEN_MPI}")).launcher, LauncherKind::OpenMpi);
    let wanted = ["RANK=2", "PMI_RANK=0", "PMI_SIZE=2", "ROUNDELAY_RANK"];
    wrong(&format!("{plain} {MPICH}"), &wanted);
    wrong(&format!("RANK=0 WORLD_SIZE=1 {SLURM}"), &["RANK=0", "SLURM_PROCID=3"]);
    wrong("RANK=x", &["RANK=x"]);
    wrong("RANK=0", &["RANK=0", "WORLD_SIZE"]);
    wrong("RANK=0 WORLD_SIZE=2", &["MASTER_ADDR", "ROUNDELAY_STORE"]);
    is("RANK=0 WORLD_SIZE=1", 0, 1, LauncherKind::RankVariables, StoreAt::Alone);
}

#[test]
fn torchcomms_is_meant_for_collectives() {
    let text = format!("TORCHCOMM_RANK=3 TORCHCOMM_SIZE=5 {TORCHRUN} {OPEN_MPI}");
    is(&text, 3, 5, LauncherKind::TorchComms, at("localhost", 29500, ""));
    wrong("TORCHCOMM_RANK=3 TORCHCOMM_SIZE=5", &["MASTER_ADDR"]);
    wrong("TORCHCOMM_RANK=3", &["TORCHCOMM_RANK=3", "TORCHCOMM_SIZE"]);
}

#[test]
fn open_mpi_meets_on_its_host() {
    let job = "open mpi/702611457//tmp/ompi.vm.0/pid.17695".to_owned();
    is(OPEN_MPI, 2, 4, LauncherKind::OpenMpi, StoreAt::Local { job });
    // Its daemons may have been started by another.
    let nested = format!("{OPEN_MPI} {MPICH} {SLURM}");
    assert_eq!(found(&nested).launcher, LauncherKind::OpenMpi);
    let far = format!("{OPEN_MPI} OMPI_COMM_WORLD_LOCAL_SIZE=2");
    wrong(&far, &["several hosts", "ROUNDELAY_STORE=host:port", "mpirun -x"]);
    let master = format!("{far} MASTER_ADDR=node1 MASTER_PORT=7000");
    is(&master, 2, 4, LauncherKind::OpenMpi, at("node1", 7000, ""));
    wrong("OMPI_COMM_WORLD_RANK=0", &["OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE"]);
}

#[test]
fn mpich_passes_on_a_note() {
    is(MPICH, 0, 2, LauncherKind::Pmi, StoreAt::Pmi { fd: 6, one_host: true });
    let far = format!("{MPICH} MPI_LOCALNRANKS=1 {SLURM}");
    is(&far, 0, 2, LauncherKind::Pmi, StoreAt::Pmi { fd: 6, one_host: false });
    // srun --mpi=pmi2 does not say how many there are on a host.
    let srun = format!("PMI_RANK=3 PMI_SIZE=4 PMI_FD=6 {SLURM}");
    is(&srun, 3, 4, LauncherKind::Pmi, StoreAt::Pmi { fd: 6, one_host: false });
    let near = format!("{srun} SLURM_STEP_NODELIST=nid001");
    is(&near, 3, 4, LauncherKind::Pmi, StoreAt::Pmi { fd: 6, one_host: true });
    wrong(&format!("{MPICH} PMI_FD=x"), &["PMI_FD=x"]);
    wrong(&format!("{MPICH} PMI_FD=1"), &["PMI_FD=1"]);
    wrong(&format!("{MPICH} PMI_RANK=2"), &["PMI_RANK=2", "PMI_SIZE=2"]);
}

#[test]
fn a_rank_of_nobody_known_is_not_a_job_of_its_own() {
    wrong("PMI_ID=0 PMI_PORT=node1:4000", &["PMI_ID=0", "PMI_FD", "ROUNDELAY_STORE"]);
    wrong("PMI_RANK=1 PMI_SIZE=2", &["PMI_RANK=1", "PMI_FD"]);
    wrong("PMIX_RANK=1 PMIX_NAMESPACE=a", &["PMIX_RANK=1"]);
}

#[test]
fn slurm_counts_the_step() {
    let port = 61_000 + (1234 * 31) % 4535;
    is(SLURM, 3, 4, LauncherKind::Slurm, at("nid001", port, "slurm/1234.0"));
    let near = format!("{SLURM} SLURM_STEP_NODELIST=nid001");
    is(&near, 3, 4, LauncherKind::Slurm, StoreAt::Local { job: "slurm/1234.0".into() });
    let whole = SLURM.replace("SLURM_STEP_NUM_TASKS=4", "");
    assert_eq!(found(&whole).size, 8);
    wrong(&SLURM.replace("SLURM_STEP_ID=0", "SLURM_STEP_ID=x"), &["SLURM_STEP_ID=x"]);
    wrong(&SLURM.replace("JOB_ID=1234", "JOB_ID=x"), &["SLURM_JOB_ID=x"]);
    wrong(&SLURM.replace("nid[001-002]", "nid[,"), &["nid[,", "ROUNDELAY_STORE"]);
    wrong(&SLURM.replace("SLURM_PROCID=3", "SLURM_PROCID=9"), &["SLURM_PROCID=9"]);
    for (list, host) in [
        ("a", Some("a")),
        ("a,b", Some("a")),
        ("a[01-03,7]", Some("a01")),
        ("a[7,01-03]-ib,b", Some("a7-ib")),
        ("r[1-2]n[08-09],x", Some("r1n08")),
        ("", None),
        (",a", None),
        ("a[", None),
        ("a[]", None),
        ("a]", None),
        ("a[x-y]", None),
    ] {
        assert_eq!(first_host(list).as_deref(), host, "{list}");
    }
}

#[test]
fn pals_says_little() {
    is(PALS, 5, 8, LauncherKind::Pals, StoreAt::Local { job: "pals/abc".into() });
    wrong(&format!("{PALS} PALS_LOCAL_SIZE=4"), &["PALS", "ROUNDELAY_STORE"]);
    let size = format!("{PALS} PALS_SIZE=16");
    wrong(&size, &["several hosts", "ROUNDELAY_STORE"]);
    wrong("PALS_RANKID=5", &["PALS_RANKID=5", "PALS_SIZE"]);
    // PMI is used where PALS speaks it.
    let pmi = format!("{PALS} PMI_RANK=5 PMI_FD=7");
    assert_eq!(found(&pmi).launcher, LauncherKind::Pmi);
}
