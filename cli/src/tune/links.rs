//! Implements `roundelay tune --links`: measures what every path does between every two hosts, as a topology file.
//!
//! The lowest ranks of two hosts make a communicator of their own, and run `all_reduce.multipath` with all
//! shares on one path: as two messages one after the other, of next to nothing and of a few megabytes. The
//! other ranks wait.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use roundelay::fabric::{FabricHost, FabricTopology, HostPair, LinkClass, NetworkPath};
use roundelay::internal::run_together;
use roundelay::launch::{JobSetup, membership};
use roundelay::plan::{CallArgs, PlanCall, plan_of};
use roundelay::{Communicator, DType, Error, Hints, RedOp, internal};
use roundelay_algorithms::find;
use roundelay_compiler::plan::{PathShares, Plan};
use roundelay_compiler::{BufferPlacement, CompileOptions, Shape};
use roundelay_dsl::diag::codes;
use serde::Serialize;

use crate::args::TuneArgs;
use crate::hints::named_paths;
use crate::info::host;
use crate::progress::WorkProgress;
use crate::report::{VerbError, VerbReport, VerbResult, fault, unwritten, usage};
use crate::tunables::LINK_CALL_TIME;
use crate::values::{median, time_text};

/// Calls of next to nothing whose median counts.
const SHORT: usize = 101;
/// Calls of much whose least counts.
const LONG: usize = 3;
const FIRST: usize = 1 << 20;
const MOST: usize = 64 << 20;
/// Bytes of a host's name.
const NAME: usize = 64;
/// A link that differs from its path's usual class by more than this factor has a class of its own.
const ALIKE: f64 = 1.2;

/// A link as programs read it.
#[derive(Serialize)]
struct LinkRow<'a> {
    path: &'a str,
    between: [&'a str; 2],
    latency_us: Option<f64>,
    gbs: Option<f64>,
    /// `measured` or `planned`.
    state: &'static str,
}

/// The class that was found of a path between two hosts, counted from 0.
#[derive(Debug, Clone, Copy)]
struct FoundLink {
    path: usize,
    hosts: [usize; 2],
    class: LinkClass,
}

/// Runs the verb.
pub(super) fn links(args: &TuneArgs, report: VerbReport) -> VerbResult {
    let environment = Hints::from_env()?;
    let names: Vec<String> = match args.paths.is_empty() {
        true => environment.paths().unwrap_or_default().to_vec(),
        false => args.paths.clone(),
    };
    if names.is_empty() {
        let text = "name the paths to be measured, as in `--paths eth0,eth1`; `roundelay info --topology` \
                    says what a host has";
        return Err(VerbError::Usage(text.into()));
    }
    let member = membership().map_err(usage)?;
    let Some(member) = member else {
        return local(args, &environment, &names, report);
    };
    let paths = named_paths(&environment, &names)?;
    let setup = JobSetup::from_env().map_err(usage)?.hints(&environment).paths(names.clone());
    let mut comm = Communicator::join(&member, &setup)?;
    one(args, &paths, &mut comm, &host(), report)
}

/// Measures with ranks as threads of this process, each of which believes to be a host: to try it out.
fn local(args: &TuneArgs, hints: &Hints, names: &[String], report: VerbReport) -> VerbResult {
    let Some(ranks) = args.n.as_ref().and_then(|n| n.shapes.first()).map(Shape::ranks) else {
        return Err(VerbError::Usage(
            "links are between hosts: start it on each of them with torchrun, mpirun or srun, as in \
             `mpirun --host a,b roundelay tune --links --paths eth0,eth1`; -n 2 tries it out with two \
             ranks of this machine"
                .into(),
        ));
    };
    let paths = &named_paths(hints, names)?;
    let setup = |rank: u32| {
        let setup = JobSetup::new().hints(hints).host_label(format!("host{rank}"));
        setup.paths(names.to_vec())
    };
    let comms = Communicator::local_over(ranks as u32, setup)?;
    let ended = run_together(comms, |mut comm: Communicator| {
        let name = format!("host{}", comm.rank());
        one(args, paths, &mut comm, &name, report)
    });
    let few = |e| VerbError::Run(fault(codes::START, format!("cannot start a thread a rank: {e}")));
    let lost = |_| Err(VerbError::Run(fault(codes::LOST_RANK, "a rank panicked".to_string())));
    ended.map_err(few)?.into_iter().try_for_each(|ended| ended.unwrap_or_else(lost))
}

/// Runs one rank's part; rank 0 speaks and writes.
fn one(
    args: &TuneArgs,
    paths: &[NetworkPath],
    comm: &mut Communicator,
    name: &str,
    report: VerbReport,
) -> VerbResult {
    let (topology, _) = comm.topology()?;
    let hosts = topology.hosts() as usize;
    if hosts < 2 {
        let text = "links are between hosts, and all ranks are on one";
        return Err(VerbError::Usage(text.into()));
    }
    let leaders: Vec<u32> = (0..hosts as u32)
        .filter_map(|h| (0..comm.size()).find(|&rank| topology.host(rank) == h))
        .collect();
    let titles = titles(comm, name, &leaders)?;
    let pairs: Vec<[usize; 2]> = (0..hosts).flat_map(|b| (0..b).map(move |a| [a, b])).collect();
    let speaks = comm.rank() == 0;
    if args.dry_run {
        if speaks {
            planned(paths, &titles, &pairs, report);
        }
        return Ok(());
    }
    let mut progress = speaks.then(|| WorkProgress::new("links", pairs.len() * paths.len()));
    let mut all = Vec::new();
    for hosts in pairs {
        let found = pair(comm, hosts.map(|h| leaders[h]), paths.len())?;
        for (path, class) in found.into_iter().enumerate() {
            let found = FoundLink { path, hosts, class };
            if let Some(progress) = &mut progress {
                progress.aside(|| print(paths, &titles, found, report));
                progress.step();
            }
            all.push(found);
        }
    }
    drop(progress);
    if !speaks {
        return Ok(());
    }
    let fabric = fabric(paths, &titles, &all);
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from("topology.toml"));
    let file = path.display().to_string();
    let text = format!(
        "# Measured by `roundelay tune --links`. Use it with the hint topology={file}.\n{}",
        fabric.text()
    );
    std::fs::write(&path, text).map_err(|e| unwritten("topology", &path, &e))?;
    let paths = if paths.len() == 1 { "path" } else { "paths" };
    report.line(format!("{} {paths} between {} hosts: {file}", paths.len(), titles.len()));
    Ok(())
}

/// Returns the names of the hosts, as their lowest ranks say them; numbered where two have one name.
fn titles(comm: &mut Communicator, name: &str, leaders: &[u32]) -> Result<Vec<String>, Error> {
    let mut own = name.as_bytes().to_vec();
    own.resize(NAME, 0);
    let mut all = vec![0u8; NAME * comm.size() as usize];
    comm.all_gather(&mut all, &own)?;
    let title = |&rank: &u32| {
        let bytes = &all[rank as usize * NAME..][..NAME];
        String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string()
    };
    let mut titles: Vec<String> = leaders.iter().map(title).collect();
    for at in 1..titles.len() {
        if titles[..at].contains(&titles[at]) {
            titles[at] = format!("{}-{at}", titles[at]);
        }
    }
    Ok(titles)
}

/// Measures each path between two ranks; all ranks return the classes.
fn pair(comm: &mut Communicator, ranks: [u32; 2], paths: usize) -> Result<Vec<LinkClass>, Error> {
    let mine = ranks.contains(&comm.rank());
    let part = comm.split(if mine { &ranks } else { &[] })?;
    let found = match part {
        Some(mut part) => Some(measured(&mut part, paths as u32)?),
        None => None,
    };
    let mut classes = Vec::new();
    for path in 0..paths {
        let own = found.as_ref().and_then(|found| found.get(path)).copied();
        let mut shared = |of: fn(LinkClass) -> f64| -> Result<f64, Error> {
            let words = comm.all_gather_u64(own.map_or(0, |class| of(class).to_bits()))?;
            Ok(f64::from_bits(words[ranks[0] as usize]))
        };
        classes.push(LinkClass { latency_us: shared(|c| c.latency_us)?, gbs: shared(|c| c.gbs)? });
    }
    Ok(classes)
}

/// Measures latency and bandwidth of each path of a communicator of two.
fn measured(comm: &mut Communicator, paths: u32) -> Result<Vec<LinkClass>, Error> {
    let entry = find("all_reduce", "multipath");
    let entry = entry
        .ok_or_else(|| Error::Usage("the algorithm library lacks all_reduce.multipath".into()))?;
    let options = CompileOptions { paths, ..CompileOptions::default() };
    let (shape, rank) = (Shape::flat(2), comm.rank());
    let plan = plan_of(entry.path, entry.text, &shape, &options, BufferPlacement::InPlace, rank)?;
    let plan = Arc::new(plan);
    let mut classes = Vec::new();
    for path in 0..paths {
        internal::set_shares(comm, Some(PathShares::single(path, paths)))?;
        let mut small = vec![0u8; 8];
        let mut times = Vec::new();
        for _ in 0..SHORT + 10 {
            times.push(call(comm, &plan, &mut small)?);
        }
        times.drain(..10);
        times.sort_by(f64::total_cmp);
        // Two messages, one after the other.
        let latency = worst(comm, times[SHORT / 2] / 2.0)?;
        let mut data = vec![0u8; FIRST];
        let mut time = both(comm, &plan, &mut data)?;
        while time < LINK_CALL_TIME.as_secs_f64() && data.len() < MOST {
            data.resize(data.len() * 2, 0);
            time = both(comm, &plan, &mut data)?;
        }
        let mut least = f64::INFINITY;
        for _ in 0..LONG {
            least = both(comm, &plan, &mut data)?.min(least);
        }
        // Each rank sends all of it, and receives as much meanwhile.
        let moving = (least - 2.0 * latency).max(least * 0.1);
        let gbs = data.len() as f64 / moving * 1e-9;
        classes.push(LinkClass { latency_us: latency * 1e6, gbs });
    }
    internal::set_shares(comm, None)?;
    Ok(classes)
}

/// Returns the seconds of one call.
fn call(comm: &mut Communicator, plan: &Plan, data: &mut [u8]) -> Result<f64, Error> {
    let (count, dtype, op) = (data.len() as u64, DType::U8, RedOp::Max);
    let args = CallArgs::InPlace { data };
    let began = Instant::now();
    comm.run(plan, PlanCall { count, dtype, op, factor: 1.0, args })?;
    Ok(began.elapsed().as_secs_f64())
}

/// Returns the seconds of one call, the longer of both ranks.
fn both(comm: &mut Communicator, plan: &Plan, data: &mut [u8]) -> Result<f64, Error> {
    let seconds = call(comm, plan, data)?;
    worst(comm, seconds)
}

/// Returns the longest time of both ranks, so that both go on alike.
fn worst(comm: &mut Communicator, seconds: f64) -> Result<f64, Error> {
    let words = comm.all_gather_u64(seconds.to_bits())?;
    Ok(words.into_iter().map(f64::from_bits).fold(0.0, f64::max))
}

/// Returns the file: the usual class of each path, and links that are not of it. The best path comes first.
fn fabric(paths: &[NetworkPath], titles: &[String], all: &[FoundLink]) -> FabricTopology {
    let host = |name: &String| FabricHost { name: name.clone(), devices: Vec::new() };
    let hosts = titles.iter().map(host).collect();
    let mut fabric = FabricTopology { hosts, ..FabricTopology::default() };
    let mut ranked: Vec<(f64, NetworkPath)> = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let name = &path.name;
        let of_path: Vec<&FoundLink> = all.iter().filter(|f| f.path == index).collect();
        let class = LinkClass {
            latency_us: median(of_path.iter().map(|f| f.class.latency_us)).unwrap_or_default(),
            gbs: median(of_path.iter().map(|f| f.class.gbs)).unwrap_or_default(),
        };
        fabric.classes.insert(name.clone(), rounded(class));
        for found in of_path.iter().filter(|f| !alike(f.class, class)) {
            let between = found.hosts.map(|h| titles[h].clone());
            let own = format!("{name} {} {}", between[0], between[1]);
            fabric.classes.insert(own.clone(), rounded(found.class));
            fabric.links.push(HostPair { path: name.clone(), between, class: own });
        }
        let classed = NetworkPath { class: name.clone(), ..path.clone() };
        ranked.push((class.latency_us + 65.536 / class.gbs, classed));
    }
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    fabric.paths = ranked.into_iter().map(|(_, path)| path).collect();
    fabric
}

fn alike(a: LinkClass, b: LinkClass) -> bool {
    let near = |a: f64, b: f64| a.max(b) <= a.min(b).max(1e-9) * ALIKE;
    near(a.latency_us, b.latency_us) && near(a.gbs, b.gbs)
}

/// Rounds to three digits or so: more would not be repeated.
fn rounded(class: LinkClass) -> LinkClass {
    let round = |x: f64, to: f64| (x * to).round() / to;
    let gbs = round(class.gbs, 1e4).max(1e-4);
    LinkClass { latency_us: round(class.latency_us, 10.0), gbs }
}

fn planned(paths: &[NetworkPath], titles: &[String], pairs: &[[usize; 2]], report: VerbReport) {
    for hosts in pairs {
        for path in paths.iter().map(|path| path.name.as_str()) {
            let between = hosts.map(|h| titles[h].as_str());
            report.line(format!("{path} between {} and {}", between[0], between[1]));
            let (latency_us, gbs, state) = (None, None, "planned");
            report.result(&LinkRow { path, between, latency_us, gbs, state });
        }
    }
    let links = pairs.len() * paths.len();
    report.line(format!("{links} links, about {:.0} s", links as f64 * 0.4));
}

fn print(paths: &[NetworkPath], titles: &[String], found: FoundLink, report: VerbReport) {
    let between = found.hosts.map(|h| titles[h].as_str());
    let (path, LinkClass { latency_us, gbs }) = (paths[found.path].name.as_str(), found.class);
    report.line(format!(
        "{path} between {} and {}: {}, {gbs:.3} GB/s",
        between[0],
        between[1],
        time_text(latency_us)
    ));
    let (latency_us, gbs) = (Some(latency_us), Some(gbs));
    report.result(&LinkRow { path, between, latency_us, gbs, state: "measured" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_differ_have_a_class_of_their_own_and_the_best_path_is_first() {
        let path = |name: &str, transport: &str| {
            let (name, transport, class) = (name.into(), transport.into(), String::new());
            NetworkPath { name, transport, class, devices: Default::default() }
        };
        let paths = [path("slow", "tcp"), path("fast", "rdma")];
        let titles = ["a".to_string(), "b".to_string(), "c".to_string()];
        let found = |path, hosts, latency_us, gbs| FoundLink {
            path,
            hosts,
            class: LinkClass { latency_us, gbs },
        };
        let all = [
            found(0, [0, 1], 30.0, 0.125),
            found(0, [0, 2], 31.0, 0.0125),
            found(0, [1, 2], 30.0, 0.124),
            found(1, [0, 1], 30.0, 0.5),
            found(1, [0, 2], 29.0, 0.5),
            found(1, [1, 2], 30.0, 0.51),
        ];
        let fabric = fabric(&paths, &titles, &all);
        let order: Vec<&str> = fabric.paths.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(order, ["fast", "slow"]);
        assert_eq!(
            (fabric.paths[0].transport.as_str(), fabric.paths[0].class.as_str()),
            ("rdma", "fast")
        );
        assert_eq!(fabric.links.len(), 1);
        let between = |a, b| fabric.between("slow", a, b).expect("a class").gbs;
        assert_eq!((between("a", "b"), between("c", "a")), (0.124, 0.0125));
        assert_eq!(FabricTopology::parse(&fabric.text()), Ok(fabric));
    }
}
