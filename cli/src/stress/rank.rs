//! Runs one rank of a part.

use std::time::{Duration, Instant};

use roundelay::cuda::CudaOptions;
use roundelay::{Communicator, Error};

use super::report::{RankFailure, RankReport, write};
use super::{CheckReport, StressOrder, first, library, loss, series};
use crate::args::StressPart;
use crate::job::gpu::executor::GpuExecutor;
use crate::job::gpu::time_limit::TimeLimit;
use crate::report::{FAILED, VerbError, VerbResult};

/// Does what the order asks of this process.
pub(crate) fn rank(order: &str) -> VerbResult {
    let order: StressOrder =
        serde_json::from_str(order).map_err(|e| VerbError::Usage(format!("not an order: {e}")))?;
    let began = Instant::now();
    match part(&order) {
        Ok(said) => {
            write(&RankReport::End(said));
            Ok(())
        }
        Err(error) => {
            write(&RankReport::Lost(RankFailure::of(&error, began)));
            Err(VerbError::Said(FAILED))
        }
    }
}

fn part(order: &StressOrder) -> Result<CheckReport, Error> {
    let mut comm = Communicator::from_env()?;
    let all = Duration::from_secs_f64(order.seconds * 2.0 + 120.0);
    let _limit = TimeLimit::new(all, comm.rank(), "a part of the stress");
    if order.part == StressPart::First {
        return first::first(order, &mut comm);
    }
    let mut gpu = comm.cuda(CudaOptions::default())?;
    let mut executor = GpuExecutor::new(&mut gpu)?;
    match order.part {
        StressPart::Library => library::library(order, &mut executor),
        StressPart::Types => library::types(order, &mut executor),
        StressPart::Random => series::random(order, &mut executor),
        StressPart::Graph => series::graph(order, &mut executor),
        StressPart::Bits => library::bits(order, &mut executor),
        StressPart::Killed | StressPart::Absent if order.afterwards => {
            library::few(order, &mut executor)
        }
        StressPart::Killed => loss::killed(order, &mut executor),
        StressPart::Absent => loss::absent(order, &mut executor),
        StressPart::First => Ok(CheckReport::default()),
    }
}
