//! Implements `roundelay route`: prints which link each pair of ranks uses, and why.

use roundelay::bootstrap::{Setup, membership};
use roundelay::{Communicator, Hints, Transports};
use serde::Serialize;

use crate::args::{Route, TransportName};
use crate::report::{Outcome, Report, usage};

/// A route as programs read it.
#[derive(Serialize)]
struct RouteRow<'a> {
    from: u32,
    to: u32,
    link: String,
    why: &'a str,
}

/// Runs the verb.
pub(crate) fn route(args: &Route, report: Report) -> Outcome {
    // Ranks of another launcher say each their own routes, local ones are all here.
    let comms = match membership().map_err(usage)? {
        Some(member) => {
            let setup = Setup::from_env().map_err(usage)?;
            vec![Communicator::join(&member, &allowed(setup, args))?]
        }
        None => {
            let (ranks, hosts) = (u64::from(args.n), u64::from(args.hosts));
            let hints = Hints::from_env()?;
            let setup = |rank: u32| {
                let host = u64::from(rank) * hosts / ranks;
                allowed(Setup::new().hints(&hints), args).host_label(format!("host {host}"))
            };
            Communicator::local_over(args.n, setup)?
        }
    };
    for comm in &comms {
        for route in comm.routes().iter().filter(|route| !route.transports.is_empty()) {
            let (from, to, link) = (comm.rank(), route.rank, route.transports.to_string());
            report.line(format!("rank {from} -> rank {to}: {link} ({})", route.why));
            report.result(&RouteRow { from, to, link, why: &route.why });
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
    }
}
