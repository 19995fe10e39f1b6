//! Implements `roundelay route`: prints which link each pair of ranks uses, and why.

use roundelay::bootstrap::{Setup, membership};
use roundelay::{Communicator, Error, Hints, Transports};
use serde::Serialize;

use crate::args::{Route, TransportName};
use crate::report::{Failure, Outcome, Report, fault};

/// A way as programs read it.
#[derive(Serialize)]
struct Row<'a> {
    from: u32,
    to: u32,
    link: String,
    why: &'a str,
}

/// Runs the verb.
pub(crate) fn route(args: &Route, report: Report) -> Outcome {
    let failed = |e: Error| Failure::Run(fault(e.code(), e.to_string()));
    let member = membership().map_err(|e| Failure::Usage(e.to_string()))?;
    // Ranks of another launcher say each their own ways, local ones are all here.
    let comms = match member {
        Some(member) => {
            let setup = Setup::from_env().map_err(|e| Failure::Usage(e.to_string()))?;
            vec![Communicator::join(&member, &allowed(setup, args)).map_err(failed)?]
        }
        None => {
            let (ranks, hosts) = (u64::from(args.n), u64::from(args.hosts));
            let hints = Hints::from_env().map_err(|e| Failure::Usage(e.to_string()))?;
            let setup = |rank: u32| {
                let host = u64::from(rank) * hosts / ranks;
                allowed(Setup::new().hints(&hints), args).host_label(format!("host {host}"))
            };
            Communicator::local_over(args.n, setup).map_err(failed)?
        }
    };
    for comm in &comms {
        for way in comm.routes().iter().filter(|way| !way.transports.is_empty()) {
            let (from, to, link) = (comm.rank(), way.rank, way.transports.to_string());
            report.line(format!("rank {from} -> rank {to}: {link} ({})", way.why));
            report.result(&Row { from, to, link, why: &way.why });
        }
    }
    Ok(())
}

fn allowed(setup: Setup, args: &Route) -> Setup {
    match args.transport {
        None => setup,
        Some(TransportName::Shm) => setup.transports(Transports::SHM),
        Some(TransportName::Tcp) => setup.transports(Transports::TCP),
        Some(TransportName::Rdma) => setup.transports(Transports::RDMA),
        Some(_) => setup,
    }
}
