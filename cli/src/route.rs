//! Implements `roundelay route`: prints which link each pair of ranks uses, and why.

use std::borrow::Cow;

use roundelay::Communicator;
use roundelay::choose::NVLINK;
use roundelay::launch::{EncryptionMode, JobSetup, membership};
use roundelay::transport::TransportSet;
use serde::Serialize;

use crate::args::{DeviceKind, RouteArgs, TransportName};
use crate::report::{VerbReport, VerbResult, usage};

/// A route as programs read it.
#[derive(Serialize)]
struct RouteRow<'a> {
    from: u32,
    to: u32,
    link: String,
    /// The encryption of the link: `required` or `off`.
    encryption: String,
    why: Cow<'a, str>,
}

/// Runs the verb.
pub(crate) fn route(args: &RouteArgs, report: VerbReport) -> VerbResult {
    // Ranks of another launcher say each their own routes, local ones are all here.
    let mut comms = match membership().map_err(usage)? {
        Some(member) => {
            let setup = JobSetup::from_env().map_err(usage)?;
            vec![Communicator::join(&member, &allowed(setup, args))?]
        }
        None => {
            let (ranks, hosts) = (u64::from(args.n), u64::from(args.hosts));
            let given = allowed(JobSetup::from_env().map_err(usage)?, args);
            let setup = |rank: u32| {
                let host = u64::from(rank) * hosts / ranks;
                given.clone().host_label(format!("host {host}"))
            };
            Communicator::local_over(args.n, setup)?
        }
    };
    for comm in &mut comms {
        let (topology, _) = comm.topology()?;
        for route in comm.routes().iter().filter(|route| !route.transports.is_empty()) {
            let (from, to) = (comm.rank(), route.rank);
            let near = topology.host(from) == topology.host(to);
            let link = match (args.device, near) {
                (DeviceKind::Cuda, true) => NVLINK.to_owned(),
                _ => route.transports.to_string(),
            };
            let why = match (args.device, near) {
                (DeviceKind::Host, _) => Cow::from(&*route.why),
                (DeviceKind::Cuda, true) => {
                    "same host: kernels load and store in each other's memory".into()
                }
                (DeviceKind::Cuda, false) => {
                    format!("{}: threads carry what kernels send", route.why).into()
                }
            };
            let (encryption, encrypted) = match route.is_encrypted {
                true => (EncryptionMode::Required, ", encrypted"),
                false => (EncryptionMode::Off, ""),
            };
            let encryption = encryption.to_string();
            report.line(format!("rank {from} -> rank {to}: {link}{encrypted} ({why})"));
            report.result(&RouteRow { from, to, link, encryption, why });
        }
    }
    Ok(())
}

fn allowed(setup: JobSetup, args: &RouteArgs) -> JobSetup {
    match args.transport {
        None => setup,
        Some(TransportName::Shm) => setup.transports(TransportSet::SHM),
        Some(TransportName::Tcp) => setup.transports(TransportSet::TCP),
        Some(TransportName::Rdma) => setup.transports(TransportSet::RDMA),
    }
}
