//! The note that a rank gives all others on its endpoint, and the agreement of all notes.

use std::net::IpAddr;

use roundelay_compiler::cost::PathCost;
use serde::{Deserialize, Serialize};

use super::kept::KeptMemory;
use super::terms::JobTerms;
use crate::net::{EndpointAddress, RankListener};
use crate::paths;
use crate::paths::PathOptions;
use crate::route::RoutePeer;
use crate::transport::{Transport, TransportSet};
use roundelay_support::error::Error;

/// The place at which a rank's process reports to `roundelay doctor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReporterAt {
    /// Its port.
    pub port: u16,
    /// The number that a guest must present there.
    pub key: u128,
}

/// Returns the places at which these ranks report, by rank.
pub fn reporters(endpoints: &[EndpointAddress]) -> Vec<Option<(IpAddr, ReporterAt)>> {
    let reporter = |endpoint: &EndpointAddress| {
        let note: RankNote = postcard::from_bytes(&endpoint.note).ok()?;
        Some((endpoint.addresses.first()?.ip(), note.reporter?))
    };
    endpoints.iter().map(reporter).collect()
}

/// The information that a rank gives all others about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankNote {
    terms: JobTerms,
    /// The transports that it has and may use.
    has: TransportSet,
    /// The paths to other hosts, in order, where there are several.
    paths: Vec<String>,
    /// True for each of the paths that is a device here.
    devices: Vec<bool>,
    /// The speed of each path according to the system, in Mbit/s; 0 if that is not known.
    speeds: Vec<u32>,
    /// The name of this host in topology files, and the digest of the file, if there is one.
    name: String,
    topology: Option<u64>,
    /// The place at which it reports, if it does.
    reporter: Option<ReporterAt>,
    /// The memory that it may keep; 0 for none.
    kept: u64,
}

impl RankNote {
    /// Makes the note of this rank, which may keep that memory.
    pub fn of(
        terms: JobTerms,
        listener: &RankListener,
        reporter: Option<ReporterAt>,
        kept: Option<&KeptMemory>,
    ) -> Self {
        // To open devices takes a moment: not if they are of no use.
        let usable = |of: &Transport| of.is_mapped() || of.probe().is_ok();
        let has = terms.transports.iter().filter(usable).collect();
        let paths = listener.options().paths.clone();
        let speeds = if paths.len() > 1 { listener.speeds() } else { Vec::new() };
        let name = paths::host_name(listener.options());
        let topology = listener.options().topology_file.as_ref().map(|file| file.digest);
        let devices = devices(listener.options());
        let kept = kept.map_or(0, KeptMemory::word);
        RankNote { terms, has, paths, devices, speeds, name, topology, reporter, kept }
    }
}

/// Returns true for each path that is a device.
fn devices(options: &PathOptions) -> Vec<bool> {
    options.media.iter().map(|medium| medium.device().is_some()).collect()
}

/// The notes of all ranks, as far as they concern one that makes a group with them.
pub(super) struct GroupNotes {
    pub(super) peers: Vec<RoutePeer>,
    /// The words of the memory that they may keep.
    pub(super) kept: Vec<u64>,
    /// The costs of the paths.
    pub(super) costs: Vec<PathCost>,
}

/// Reads the notes of all ranks; fails if the ranks were not given the same.
pub(super) fn read_notes(
    rank: u32,
    endpoints: &[EndpointAddress],
    terms: JobTerms,
    options: &PathOptions,
) -> Result<GroupNotes, Error> {
    let paths = &options.paths[..];
    let (mut names, mut kept) = (Vec::new(), Vec::new());
    let mut slowest = vec![u32::MAX; paths.len()];
    let peer = |(other, endpoint): (u32, &EndpointAddress)| {
        let note = postcard::from_bytes::<RankNote>(&endpoint.note).map_err(|e| {
            Error::Start(format!("rank {other} speaks another version of roundelay: {e}"))
        })?;
        if note.terms != terms {
            return Err(Error::Start(format!(
                "rank {rank} and rank {other} were given different hints: {}; give all ranks \
                 the same",
                terms.difference(&note.terms)
            )));
        }
        if note.paths != paths {
            let list = |paths: &[String]| match paths {
                [] => "none".into(),
                paths => paths.join(","),
            };
            return Err(Error::Start(format!(
                "rank {rank} and rank {other} were given different paths: {} here and {} there; give \
                 all ranks the same hint `paths`",
                list(paths),
                list(&note.paths)
            )));
        }
        let own = devices(options);
        if let Some(at) = (0..own.len()).find(|&at| note.devices.get(at) != Some(&own[at])) {
            let (device, interface) = if own[at] { (rank, other) } else { (other, rank) };
            return Err(Error::Start(format!(
                "path `{}` is an RDMA device of rank {device} and none of rank {interface}: a topology file says \
                 what a path is on each host (the hint `topology`)",
                paths[at]
            )));
        }
        if note.topology != options.topology_file.as_ref().map(|file| file.digest) {
            return Err(Error::Start(format!(
                "rank {rank} and rank {other} were given different topology files: give all ranks the \
                 same, under the hint `topology`"
            )));
        }
        names.push(note.name);
        kept.push(note.kept);
        slowest.iter_mut().zip(note.speeds).for_each(|(least, speed)| *least = speed.min(*least));
        Ok(RoutePeer { host: endpoint.host, has: note.has })
    };
    let peers = (0u32..).zip(endpoints).map(peer).collect::<Result<_, _>>()?;
    Ok(GroupNotes { peers, kept, costs: paths::costs(options, &names, &slowest)? })
}
