//! Chooses an algorithm where only a collective was named: for `run` and `bench`; and explains the choice.

use std::path::Path;

use roundelay::choose::{Division, NVLINK, Why};
use roundelay::fabric::{Fabric, NetworkPath, RDMA};
use roundelay::hints::{Level, Merged};
use roundelay::internal::system;
use roundelay::{Choice, Hints, Machine, Request, Resolver};
use roundelay_compiler::cost::{Link, PathCost, Rates, Topology};
use roundelay_compiler::{Placement, Shape};
use roundelay_dsl::diag::codes;
use serde::Serialize;

use crate::args::{Device, Explain, Play};
use crate::check::time_text;
use crate::job::joined;
use crate::job::table::rooted;
use crate::report::{Failure, Outcome, Report, fault, refused};
use crate::values::size_text;

/// Returns the hints of the command line.
fn hints(texts: &[String]) -> Result<Hints, Failure> {
    texts.join(",").parse().map_err(|e: roundelay::HintError| Failure::Usage(e.to_string()))
}

/// Hints of the command line that choose among algorithms, where one is named: another one is refused, and of
/// what decides nothing there the words are returned.
pub(crate) fn idle(play: &Play, collective: &str, name: &str) -> Result<Option<String>, Failure> {
    let call = hints(&texts(play))?;
    if let Some(other) = call.algorithm(collective).filter(|other| *other != name) {
        return Err(Failure::Usage(format!(
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
        format!("note: {keys} choose among algorithms; {collective}.{name} is named, and played")
    }))
}

/// Returns the hints of the command line as text, those that have an option of their own among them.
pub(crate) fn texts(play: &Play) -> Vec<String> {
    let transport = play.transport.map(|way| format!("transport={}", way.name()));
    play.hints.iter().cloned().chain(transport).collect()
}

/// Returns the hints of the command line and of the environment.
pub(crate) fn merged(play: &Play) -> Result<Merged, Failure> {
    let (call, environment) = (hints(&texts(play))?, Hints::from_env());
    let environment = environment.map_err(|e| Failure::Usage(e.to_string()))?;
    Ok(Merged::new([(Level::Call, &call), (Level::Environment, &environment)]))
}

/// Returns the resolver of this machine and user, which chooses algorithms.
pub(crate) fn resolver() -> Result<Resolver, Failure> {
    Resolver::from_env().map_err(|e| Failure::Usage(e.to_string()))
}

/// Returns a choice as the runtime makes it for a call with these hints.
pub(crate) fn choose(
    resolver: &mut Resolver,
    request: &Request<'_>,
    texts: &[String],
) -> Result<Choice, Failure> {
    let call = hints(texts)?;
    resolver.choose(request, &call, &Hints::default()).map_err(|e| match e.code() {
        codes::UNSUPPORTED | codes::USAGE => Failure::Usage(e.to_string()),
        code => refused(fault(code, e.to_string())),
    })
}

/// Fails unless the root is a rank, where the collective has one.
fn root_fits(collective: &str, root: u32, ranks: u64) -> Outcome {
    if !rooted(collective) || u64::from(root) < ranks {
        return Ok(());
    }
    let text = format!("{collective} on {ranks} ranks has no rank {root} for its root");
    Err(refused(fault(codes::ROOT, text).help("--root RANK is less than the number of ranks")))
}

/// Returns true if calls of a collective are in place unless an option says otherwise.
pub(crate) fn in_place(collective: &str) -> bool {
    matches!(collective, "all_reduce" | "broadcast" | "barrier")
}

fn placement(collective: &str, inside: bool, outside: bool) -> Placement {
    match inside || (in_place(collective) && !outside) {
        true => Placement::InPlace,
        false => Placement::OutOfPlace,
    }
}

/// Returns a shape of several axes as a grid, for algorithms that want one.
fn grid(shape: &Shape) -> Option<&Shape> {
    (shape.axes.len() > 1).then_some(shape)
}

/// Ranks, where none were asked for.
pub(crate) fn usual(collective: &str) -> Shape {
    Shape::flat(if collective == "sendrecv" { 2 } else { 4 })
}

/// Returns the topology of `ranks` spread evenly over `hosts` hosts like this one. Fails if they cannot be.
fn hosts(ranks: u32, hosts: u32) -> Result<Topology, Failure> {
    if !ranks.is_multiple_of(hosts) {
        let text = format!("{ranks} ranks cannot be spread evenly over {hosts} hosts");
        return Err(Failure::Usage(text));
    }
    let rates = Rates { cores: Machine::here().cores, ..Rates::default() };
    Ok(Topology::even(hosts, ranks / hosts).with(rates))
}

/// Returns the paths between hosts that hints name, with what the topology file says of them.
pub(crate) fn paths(hints: &Hints) -> Result<Vec<PathCost>, Failure> {
    if let Some(file) = hints.topology() {
        let costs = load(file)?.costs(hints.paths(), &[]);
        return costs.map_err(|e| Failure::Usage(e.to_string()));
    }
    let unknown = |way: NetworkPath| {
        let link = if way.transport == RDMA { Link::DEVICE } else { Link::NETWORK };
        PathCost { name: way.name, link }
    };
    Ok(all_ways(hints)?.into_iter().map(unknown).collect())
}

/// Returns the paths between hosts that hints name, and what they are.
pub(crate) fn all_ways(hints: &Hints) -> Result<Vec<NetworkPath>, Failure> {
    match (hints.paths(), hints.topology()) {
        (Some(names), _) => named_paths(hints, names),
        (None, Some(file)) => Ok(load(file)?.paths),
        (None, None) => Ok(Vec::new()),
    }
}

/// Returns the paths of these names: as the topology file says, or else as they are called on this machine.
pub(crate) fn named_paths(hints: &Hints, names: &[String]) -> Result<Vec<NetworkPath>, Failure> {
    let paths = match hints.topology() {
        Some(file) => load(file)?.named_paths(names),
        None => system::named_paths(names),
    };
    paths.map_err(|e| Failure::Usage(e.to_string()))
}

fn load(file: &str) -> Result<Fabric, Failure> {
    Fabric::load(Path::new(file)).map_err(|e| refused(fault(e.code(), e.to_string())))
}

/// Returns the topology over the paths that hints name.
fn over(topology: Topology, texts: &[String]) -> Result<Topology, Failure> {
    let (call, environment) = (hints(texts)?, Hints::from_env());
    let environment = environment.map_err(|e| Failure::Usage(e.to_string()))?;
    let merged = Merged::new([(Level::Call, &call), (Level::Environment, &environment)]);
    Ok(topology.over(paths(merged.hints())?))
}

/// Returns the transport of calls over so many hosts, by its name in the tuned table.
fn carried(hosts: u32) -> &'static str {
    if hosts > 1 { "shm+tcp" } else { "shm" }
}

/// Returns the choice for a collective of a job on this machine.
pub(crate) fn of_play(
    collective: &str,
    root: u32,
    shape: Option<&Shape>,
    bytes: u64,
    play: &Play,
) -> Result<Choice, Failure> {
    let shape = shape.cloned().unwrap_or_else(|| usual(collective));
    root_fits(collective, root, shape.ranks())?;
    let (topology, transport) = match joined::topology(play)? {
        Some((topology, _)) if play.on.gpus() => (topology, NVLINK.to_owned()),
        None if play.on.gpus() => (hosts(shape.ranks() as u32, 1)?, NVLINK.to_owned()),
        Some((topology, transports)) => (topology, transports.to_string()),
        None => (hosts(shape.ranks() as u32, play.hosts)?, carried(play.hosts).to_owned()),
    };
    let topology = over(topology, &texts(play))?;
    let request = Request {
        collective,
        topology: &topology,
        grid: grid(&shape),
        root,
        bytes,
        dtype: play.dtype,
        op: play.op,
        placement: placement(collective, play.in_place, play.out_of_place),
        slot_bytes: play.slot_bytes,
        transport: &transport,
    };
    choose(&mut resolver()?, &request, &texts(play))
}

/// A choice as programs read it.
#[derive(Serialize)]
struct Explained<'a> {
    collective: &'a str,
    ranks: u32,
    hosts: u32,
    bytes: u64,
    dtype: &'static str,
    op: &'static str,
    algorithm: &'static str,
    shape: String,
    source: String,
    predicted_us: f64,
    measured_us: Option<f64>,
    /// The way and the number of blocks with which GPUs play it, as measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    how: Option<String>,
    /// The division of the vector over the paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    division: Option<Divided>,
    lost: Vec<Loser>,
    remarks: &'a [String],
}

/// A division over paths as programs read it.
#[derive(Serialize)]
struct Divided {
    threshold_bytes: Option<u64>,
    alone_us: f64,
    paths: Vec<DividedPath>,
}

#[derive(Serialize)]
struct DividedPath {
    path: String,
    share: f64,
    latency_us: f64,
    gbs: f64,
    us: f64,
    us_per_mib: f64,
}

impl Divided {
    fn of(division: &Division) -> Self {
        let path = |p: &roundelay::choose::Part| DividedPath {
            path: p.path.clone(),
            share: p.share,
            latency_us: p.latency_us,
            gbs: p.gbs,
            us: p.us,
            us_per_mib: p.us_per_mib,
        };
        Divided {
            threshold_bytes: division.threshold,
            alone_us: division.alone_us,
            paths: division.parts.iter().map(path).collect(),
        }
    }
}

/// Shares, what they follow from, and from which size on there are several.
fn divided(division: &Division, report: Report) {
    report.line(format!(
        "  {:20}  {:>7}  {:>9}  {:>10}  its part takes",
        "path", "share", "latency", "bandwidth"
    ));
    for p in &division.parts {
        let (latency, bandwidth) = (time_text(p.latency_us), format!("{:.3} GB/s", p.gbs));
        let (us, mib) = (time_text(p.us), time_text(p.us_per_mib));
        let share = format!("{:.1} %", p.share * 100.0);
        report.line(format!(
            "  {:20}  {share:>7}  {latency:>9}  {bandwidth:>10}  {us} and {mib} a MiB",
            p.path
        ));
    }
    let alone = time_text(division.alone_us);
    report.line(match division.threshold {
        Some(bytes) => format!(
            "  several paths from {} on; this call on the best path alone: {alone}",
            size_text(bytes)
        ),
        None => format!("  no size for which several paths pay; on the best path alone: {alone}"),
    });
}

/// A candidate that lost.
#[derive(Serialize)]
struct Loser {
    algorithm: &'static str,
    predicted_us: Option<f64>,
    measured_us: Option<f64>,
    /// The code of a precondition that is violated.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    why: String,
}

/// Runs `roundelay explain COLLECTIVE`.
pub(crate) fn explain(args: &Explain, collective: &str, report: Report) -> Outcome {
    let shapes = match &args.n {
        Some(ranks) => ranks.shapes.clone(),
        None => vec![usual(collective)],
    };
    let mut first = true;
    for shape in &shapes {
        for bytes in args.bytes.list(2) {
            if !std::mem::take(&mut first) {
                report.line("");
            }
            one(args, collective, shape, bytes, report)?;
        }
    }
    Ok(())
}

fn one(args: &Explain, collective: &str, shape: &Shape, bytes: u64, report: Report) -> Outcome {
    let ranks = shape.ranks() as u32;
    root_fits(collective, args.root, shape.ranks())?;
    let topology = over(hosts(ranks, args.hosts)?, &args.hints)?;
    let request = Request {
        collective,
        topology: &topology,
        grid: grid(shape),
        root: args.root,
        bytes,
        dtype: args.dtype,
        op: args.op,
        placement: placement(collective, args.in_place, args.out_of_place),
        slot_bytes: None,
        transport: match args.device {
            Device::Host => carried(args.hosts),
            Device::Cuda => NVLINK,
        },
    };
    let choice = choose(&mut resolver()?, &request, &args.hints)?;
    say(&request, &choice, report);
    Ok(())
}

fn say(request: &Request<'_>, choice: &Choice, report: Report) {
    let loser = |lost: &roundelay::choose::Lost| Loser {
        algorithm: lost.name,
        predicted_us: lost.predicted_us,
        measured_us: lost.measured_us,
        code: match lost.why {
            Why::Refused(code, _) => Some(code.0),
            _ => None,
        },
        why: lost.why.to_string(),
    };
    let (ranks, hosts) = (request.topology.ranks(), request.topology.hosts());
    let lost: Vec<Loser> = choice.lost.iter().map(loser).collect();
    let over = if hosts > 1 { format!(" over {hosts} hosts") } else { String::new() };
    let (collective, size) = (request.collective, size_text(request.bytes));
    report.line(format!(
        "{collective} of {size} on {ranks} ranks{over}: {}{} ({})",
        choice.entry.name,
        choice.how.map_or(String::new(), |how| format!(" {how}")),
        choice.source
    ));
    let time = |us: Option<f64>| us.map_or("-".to_string(), time_text);
    let row = |name: &str, predicted: Option<f64>, measured: Option<f64>, why: &str| {
        let (predicted, measured) = (time(predicted), time(measured));
        report.line(format!("  {name:20}  {predicted:>9}  {measured:>9}  {why}"));
    };
    report.line(format!(
        "  {:20}  {:>9}  {:>9}  {}",
        "algorithm", "predicted", "measured", "why not"
    ));
    row(choice.entry.name, Some(choice.predicted_us), choice.measured_us, "chosen");
    for l in &lost {
        row(l.algorithm, l.predicted_us, l.measured_us, &l.why);
    }
    if let Some(division) = &choice.division {
        divided(division, report);
    }
    for remark in &choice.remarks {
        report.line(format!("note: {remark}"));
    }
    report.result(&Explained {
        collective,
        ranks,
        hosts,
        bytes: request.bytes,
        dtype: request.dtype.name(),
        op: request.op.name(),
        algorithm: choice.entry.name,
        shape: choice.shape.to_string(),
        source: choice.source.to_string(),
        predicted_us: choice.predicted_us,
        measured_us: choice.measured_us,
        how: choice.how.map(|how| how.to_string()),
        division: choice.division.as_ref().map(Divided::of),
        lost,
        remarks: &choice.remarks,
    });
}
