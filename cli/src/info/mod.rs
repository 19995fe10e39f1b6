//! Implements `roundelay info`: prints the version, this machine, its GPUs, what communicators take from it,
//! the algorithm library, or the tunables.

mod gpus;
mod probe;
mod topology;
mod tunable_table;

use roundelay::hints::EXPERIMENTAL;
use roundelay::launch::EncryptionMode;
use roundelay::transport::Transport;
use roundelay::{DType, Hints, RedOp};
use roundelay_algorithms::CATALOGUE;
use serde::Serialize;

use crate::args;
use crate::badge::{BADGE_RANGE, BadgeRange};
use crate::choice;
use crate::report::{VerbReport, VerbResult};
use crate::values::size_text;
use crate::version;
use gpus::GpuInventory;
use probe::{JoinScale, ResourceProbe};
pub(crate) use topology::host;

/// The versions, resources, devices and algorithms that are available, as programs read them.
#[derive(Serialize)]
struct InfoRow {
    version: &'static str,
    /// The commit of the source, if the build was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    /// The features of the build.
    features: String,
    target: String,
    plan_format: u32,
    /// The range of a proof for every rank count.
    badge_ranks: BadgeRange,
    cores: usize,
    memory_bytes: u64,
    shared_memory: bool,
    /// The reason why there is no shared memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_memory_fault: Option<String>,
    rdma: RdmaDevices,
    /// The encryption of connections, by the hint of the environment.
    encryption: String,
    /// The connections that are encrypted, by that and the secret of the environment.
    encrypted: &'static str,
    /// True if the build accepts hints for what no hardware has run.
    experimental: bool,
    gpus: GpuInventory,
    communicators: Vec<ResourceProbe>,
    /// Joining a very large job, modelled.
    scale: JoinScale,
    dtypes: Vec<&'static str>,
    ops: Vec<&'static str>,
    algorithms: Vec<AlgorithmRow>,
    /// The algorithms that are built into the program, from Rust functions.
    own: Vec<String>,
}

/// Devices for RDMA, or why there are none.
#[derive(Serialize)]
struct RdmaDevices {
    devices: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

impl RdmaDevices {
    fn here() -> Self {
        match Transport::Rdma.probe() {
            Ok(devices) => RdmaDevices { devices, fault: None },
            Err(why) => RdmaDevices { devices: Vec::new(), fault: Some(why.to_string()) },
        }
    }

    fn lines(&self) -> Vec<String> {
        match &self.fault {
            Some(why) => vec![format!("RDMA           not available: {why}")],
            None => self.devices.iter().map(|device| format!("RDMA           {device}")).collect(),
        }
    }
}

/// An algorithm of the library.
#[derive(Serialize)]
struct AlgorithmRow {
    collective: &'static str,
    algorithm: &'static str,
    about: String,
}

/// Runs the verb.
pub(crate) fn info(args: &args::InfoArgs, report: VerbReport) -> VerbResult {
    if args.topology {
        return topology::topology(report);
    }
    if args.tunables {
        return tunable_table::tunables(report);
    }
    let info = gather();
    report.result(&info);
    let shared = match &info.shared_memory_fault {
        None => "available".to_owned(),
        Some(why) => format!("not available: {why}"),
    };
    report.line(format!("roundelay {}, plan format {}", info.version, info.plan_format));
    if let Some(commit) = info.commit {
        report.line(format!("commit         {commit}"));
    }
    report.line(format!("features       {}", info.features));
    report.line(format!("target         {}", info.target));
    report.line(format!("proofs         of all n: {}", info.badge_ranks));
    report.line(format!("cores          {}", info.cores));
    report.line(format!("memory         {}", size_text(info.memory_bytes >> 20 << 20)));
    report.line(format!("shared memory  {shared}"));
    info.rdma.lines().into_iter().for_each(|line| report.line(line));
    let by = "the hint `encryption`, and the secret";
    report.line(format!("encryption     {}: {} encrypted ({by})", info.encryption, info.encrypted));
    let experimental = match info.experimental {
        true => "available",
        false => "not available: this build is without the feature `experimental`",
    };
    report.line(format!("experimental   {experimental}"));
    report.line(format!("element types  {}", info.dtypes.join(" ")));
    report.line(format!("operators      {}", info.ops.join(" ")));
    report.line("\nGPUs:");
    info.gpus.lines().iter().for_each(|line| report.line(format!("  {line}")));
    report.line("\nWhat a rank of a communicator takes:");
    info.communicators.iter().for_each(|probe| report.line(format!("  {probe}")));
    report.line("\nJoining, modelled:");
    report.line(format!("  {}", info.scale));
    if !info.own.is_empty() {
        report.line("\nOf this program:");
        info.own.iter().for_each(|name| report.line(format!("  {name}")));
    }
    report.line("\nThe algorithm library:");
    for e in &info.algorithms {
        report.line(format!("  {:34} {}", format!("{}.{}", e.collective, e.algorithm), e.about));
    }
    Ok(())
}

fn gather() -> InfoRow {
    let memory = rustix::system::sysinfo();
    let fault = Transport::Shm.probe().err().map(|why| why.to_string());
    let entry = |e: &roundelay_algorithms::CatalogueEntry| AlgorithmRow {
        collective: e.collective,
        algorithm: e.name,
        about: about(e.text),
    };
    InfoRow {
        version: env!("CARGO_PKG_VERSION"),
        commit: version::COMMIT,
        features: version::features(),
        target: version::target(),
        plan_format: roundelay_compiler::plan::VERSION,
        badge_ranks: BADGE_RANGE,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: (memory.totalram as u64).saturating_mul(memory.mem_unit.into()),
        shared_memory: fault.is_none(),
        shared_memory_fault: fault,
        rdma: RdmaDevices::here(),
        encrypted: match Hints::from_env().ok().and_then(|hints| choice::encryption(&hints).ok()) {
            Some(EncryptionMode::Required) => "all connections",
            Some(EncryptionMode::Auto) => "connections between hosts",
            _ => "no connection",
        },
        encryption: Hints::from_env()
            .ok()
            .and_then(|hints| hints.encryption())
            .unwrap_or_default()
            .to_string(),
        experimental: EXPERIMENTAL,
        gpus: GpuInventory::here(),
        communicators: probe::probes(),
        scale: JoinScale::modelled(),
        dtypes: DType::ALL.iter().map(|d| d.name()).collect(),
        ops: RedOp::ALL.iter().map(|o| o.name()).collect(),
        algorithms: CATALOGUE.iter().map(entry).collect(),
        own: crate::own::all().iter().map(ToString::to_string).collect(),
    }
}

/// Returns the first sentence of a file's description.
fn about(text: &str) -> String {
    let lines = text.lines().map_while(|l| l.strip_prefix("//!")).map(str::trim);
    let words: Vec<&str> = lines.take_while(|l| !l.is_empty()).collect();
    let all = words.join(" ");
    match all.find(". ") {
        Some(end) => all[..=end].into(),
        None => all,
    }
}
