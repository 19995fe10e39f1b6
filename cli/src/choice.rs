//! Chooses an algorithm where only a collective was named, as the runtime does.

use std::sync::LazyLock;

use roundelay::Hints;
use roundelay::choose::{AlgorithmChoice, ChoiceRequest, ChoiceResolver};
use roundelay::choose::{NVLINK, like_this_host};
use roundelay::fabric::{NetworkPath, RDMA};
use roundelay::launch::{EncryptionMode, secret};
use roundelay::transport::{Transport, TransportSet};
use roundelay_compiler::Shape;
use roundelay_compiler::cost::Topology;
use roundelay_dsl::diag::codes;

use crate::args::{DeviceKind, ExplainArgs, JobArgs};
use crate::hints;
use crate::load::{placement, rooted};
use crate::member;
use crate::report::{VerbError, VerbResult, fault, refused, usage};

/// Hints of the command line that choose among algorithms, where one is named: another one is refused, and of
/// what decides nothing there the words are returned.
pub(crate) fn idle(
    job_args: &JobArgs,
    collective: &str,
    name: &str,
) -> Result<Option<String>, VerbError> {
    let call = hints::given(&hints::texts(job_args))?;
    if let Some(other) = call.algorithm(collective).filter(|other| *other != name) {
        return Err(VerbError::Usage(format!(
            "the hint algorithm={other} and the name {collective}.{name} contradict each other: give \
             `{collective}` for the hint to choose, or `{collective}.{other}`, or leave the hint out"
        )));
    }
    let given = [
        ("objective", call.objective().is_some()),
        ("deterministic", call.deterministic() == Some(true)),
    ];
    let keys: Vec<&str> =
        given.into_iter().filter_map(|(key, given)| given.then_some(key)).collect();
    Ok((!keys.is_empty()).then(|| {
        let keys = keys.join(" and ");
        format!("note: {keys} choose among algorithms; {collective}.{name} is named, and run")
    }))
}

/// Returns the resolver of this machine and user, which chooses algorithms.
pub(crate) fn resolver() -> Result<ChoiceResolver, VerbError> {
    ChoiceResolver::from_env().map_err(usage)
}

/// Returns a choice as the runtime makes it for a call with these hints.
pub(crate) fn choose(
    resolver: &mut ChoiceResolver,
    request: &ChoiceRequest<'_>,
    texts: &[String],
) -> Result<AlgorithmChoice, VerbError> {
    let call = hints::given(texts)?;
    resolver.choose(request, &call, &Hints::default()).map_err(|e| match e.code() {
        codes::UNSUPPORTED | codes::USAGE => usage(e),
        code => refused(fault(code, e.to_string())),
    })
}

/// Fails unless the root is a rank, where the collective has one.
fn root_fits(collective: &str, root: u32, ranks: u64) -> VerbResult {
    if !rooted(collective) || u64::from(root) < ranks {
        return Ok(());
    }
    let text = format!("{collective} on {ranks} ranks has no rank {root} for its root");
    Err(refused(fault(codes::ROOT, text).help("--root RANK is less than the number of ranks")))
}

/// Returns a shape of several axes as a grid, for algorithms that want one.
fn grid(shape: &Shape) -> Option<&Shape> {
    (shape.axes.len() > 1).then_some(shape)
}

/// Ranks, where none were asked for.
pub(crate) fn usual(collective: &str) -> Shape {
    Shape::flat(if collective == "sendrecv" { 2 } else { 4 })
}

/// Returns the encryption of the connections of a job with these hints, and with the secret of the environment if it
/// has one.
pub(crate) fn encryption(hints: &Hints) -> Result<EncryptionMode, VerbError> {
    let mode = hints.encryption().unwrap_or_default();
    if mode == EncryptionMode::Auto && hints.certificate_files().iter().any(Option::is_some) {
        return Ok(EncryptionMode::Required);
    }
    Ok(mode.with_secret(secret().map_err(usage)?.is_some()))
}

/// Returns the links that carry calls between ranks of a number of hosts like this one, under these hints.
fn carried(hosts: u32, hints: &Hints) -> Result<TransportSet, VerbError> {
    let paths = hints::paths(hints)?;
    let of = |path: &NetworkPath| match path.transport.as_str() {
        RDMA => Transport::Rdma,
        _ => Transport::Tcp,
    };
    let over = (paths.len() > 1).then(|| paths.iter().map(of).collect());
    let mut allowed = hints.transport().unwrap_or_default();
    if encryption(hints)?.covers(hosts <= 1) {
        // Devices do not encrypt.
        allowed = allowed.iter().filter(|transport| *transport != Transport::Rdma).collect();
    }
    let here = allowed.posted().iter().filter(|transport| transport.probe().is_ok()).collect();
    Ok(allowed.carried(hosts <= 1, here, over))
}

/// Returns the name of a set of transports in results.
fn name(of: TransportSet) -> &'static str {
    static NAMES: LazyLock<Vec<(TransportSet, String)>> = LazyLock::new(|| {
        let sets = Transport::ALL.iter().fold(vec![TransportSet::NONE], |sets, &next| {
            sets.iter().flat_map(|set| [*set, set.with(next)]).collect()
        });
        sets.into_iter().map(|set| (set, set.to_string())).collect()
    });
    NAMES.iter().find(|(set, _)| *set == of).map_or("none", |(_, name)| name)
}

/// The ranks of a call and how they are reached, as the resolver is asked with.
struct CallTopology {
    topology: Topology,
    transport: &'static str,
}

impl CallTopology {
    /// Returns the ranks of hosts like this one, over which they are spread evenly.
    fn like_here(
        ranks: u32,
        hosts: u32,
        device: DeviceKind,
        texts: &[String],
    ) -> Result<Self, VerbError> {
        let uneven = || {
            let text = format!("{ranks} ranks cannot be spread evenly over {hosts} hosts");
            VerbError::Usage(text)
        };
        let hints = hints::merged(texts)?;
        let transport = match device {
            DeviceKind::Host => name(carried(hosts, &hints)?),
            DeviceKind::Cuda => NVLINK,
        };
        let topology = like_this_host(ranks, hosts).ok_or_else(uneven)?;
        Ok(CallTopology { topology: topology.over(hints::costs(&hints)?), transport })
    }

    /// Returns the ranks of a job.
    fn of(job_args: &JobArgs, ranks: u32) -> Result<Self, VerbError> {
        let (device, texts) = (job_args.on.device, hints::texts(job_args));
        let Some((topology, transport)) = member::topology(job_args)? else {
            return CallTopology::like_here(ranks, job_args.hosts, device, &texts);
        };
        let transport = if job_args.on.gpus() { NVLINK } else { name(transport) };
        let topology = topology.over(hints::costs(&hints::merged(&texts)?)?);
        Ok(CallTopology { topology, transport })
    }
}

/// Returns the transport of the data of a job of `ranks` ranks, by its name in results.
pub(crate) fn transport_of(job_args: &JobArgs, ranks: u64) -> Result<&'static str, VerbError> {
    let (all, hosts, alone) = match member::topology(job_args)? {
        Some((topology, all)) => (all, topology.hosts(), topology.ranks() <= topology.hosts()),
        None => {
            let hints = hints::merged(&hints::texts(job_args))?;
            (carried(job_args.hosts, &hints)?, job_args.hosts, ranks <= job_args.hosts.into())
        }
    };
    if job_args.on.gpus() {
        return Ok(match name(all.posted()) {
            _ if hosts <= 1 => NVLINK,
            between if alone => between,
            "tcp" => "nvlink+tcp",
            "rdma" => "nvlink+rdma",
            _ => "nvlink+tcp+rdma",
        });
    }
    // Where each is alone on its host, no ranks share memory.
    let posted = all.posted();
    Ok(name(if alone && !posted.is_empty() { posted } else { all }))
}

/// Returns the choice for a collective of a job on this machine.
pub(crate) fn of_call(
    collective: &str,
    root: u32,
    shape: Option<&Shape>,
    bytes: u64,
    job_args: &JobArgs,
) -> Result<AlgorithmChoice, VerbError> {
    let shape = shape.cloned().unwrap_or_else(|| usual(collective));
    root_fits(collective, root, shape.ranks())?;
    let world = CallTopology::of(job_args, shape.ranks() as u32)?;
    let request = ChoiceRequest {
        collective,
        topology: &world.topology,
        grid: grid(&shape),
        root,
        bytes,
        dtype: job_args.dtype,
        op: job_args.op,
        placement: placement(collective, job_args.in_place, job_args.out_of_place),
        is_cut: false,
        slot_bytes: job_args.slot_bytes,
        transport: world.transport,
    };
    choose(&mut resolver()?, &request, &hints::texts(job_args))
}

/// Calls `show` with the choice that `explain` asks for, the request, and whether connections that carry it are
/// encrypted.
pub(crate) fn of_explain(
    args: &ExplainArgs,
    collective: &str,
    shape: &Shape,
    bytes: u64,
    show: impl FnOnce(&ChoiceRequest<'_>, &AlgorithmChoice, bool),
) -> VerbResult {
    root_fits(collective, args.root, shape.ranks())?;
    let ranks = shape.ranks() as u32;
    let world = CallTopology::like_here(ranks, args.hosts, args.device, &args.hints)?;
    let request = ChoiceRequest {
        collective,
        topology: &world.topology,
        grid: grid(shape),
        root: args.root,
        bytes,
        dtype: args.dtype,
        op: args.op,
        placement: placement(collective, args.in_place, args.out_of_place),
        is_cut: false,
        slot_bytes: None,
        transport: world.transport,
    };
    let hints = hints::merged(&args.hints)?;
    let is_carried = carried(args.hosts, &hints)?.contains(Transport::Tcp);
    let is_encrypted = is_carried && encryption(&hints)?.covers(args.hosts <= 1);
    show(&request, &choose(&mut resolver()?, &request, &args.hints)?, is_encrypted);
    Ok(())
}
