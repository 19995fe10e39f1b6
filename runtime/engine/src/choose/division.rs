//! Describes how a call that is split by bandwidth is divided over the paths, and the reason.

use roundelay_compiler::cost::balance;
use roundelay_compiler::plan::PathShares;

use super::candidate::AlgorithmCandidate;
use super::request::ChoiceRequest;

/// The shares of a call, by the model of its paths.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CallDivision {
    /// The number of bytes from which on several paths are used; `None` if they never are.
    #[serde(rename = "threshold_bytes")]
    pub threshold: Option<u64>,
    /// Microseconds by the cost model if everything rode the best path.
    pub alone_us: f64,
    /// The paths, in the communicator's order.
    #[serde(rename = "paths")]
    pub parts: Vec<PathPart>,
}

/// A path and what it is given.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct PathPart {
    /// Its name.
    pub path: String,
    /// Its share, from 0 to 1.
    pub share: f64,
    /// Latency of a message, in microseconds.
    pub latency_us: f64,
    /// Bandwidth, in GB/s.
    pub gbs: f64,
    /// Time that its part takes without content, in microseconds.
    pub us: f64,
    /// Time that each MiB of the vector takes that it is given, in microseconds.
    pub us_per_mib: f64,
}

impl CallDivision {
    pub(super) fn of(chosen: &AlgorithmCandidate, request: &ChoiceRequest<'_>) -> Option<Self> {
        let profile = &chosen.fit.as_ref().ok()?.profile;
        let (shares, flows) = (profile.shares(request.bytes)?, profile.flows());
        let paths = request.topology.paths.iter().zip(shares.list()).zip(&flows);
        let parts = paths.map(|((path, &share), flow)| PathPart {
            path: path.name.clone(),
            share: f64::from(share) / 65536.0,
            latency_us: path.link.latency_us,
            gbs: path.link.gbs,
            us: flow.us,
            us_per_mib: flow.us_per_byte * f64::from(1 << 20),
        });
        let alone = |path| {
            let shares = PathShares::single(path, shares.parts());
            profile.time_with_us(request.bytes, request.slots(), &shares)
        };
        Some(CallDivision {
            parts: parts.collect(),
            threshold: balance::threshold(&flows),
            alone_us: (0..shares.parts()).map(alone).fold(f64::INFINITY, f64::min),
        })
    }
}
