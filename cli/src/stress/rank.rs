//! Plays one rank of a part.

use std::time::{Duration, Instant};

use roundelay::cuda::CudaOptions;
use roundelay::{Communicator, Error};

use super::report::{Lost, RankReport, say};
use super::{Said, StressOrder, first, library, loss, series};
use crate::args::StressPart;
use crate::job::gpu::player::Player;
use crate::job::gpu::time_limit::TimeLimit;
use crate::report::{FAILED, Failure, Outcome};

/// Does what the order asks of this process.
pub(crate) fn rank(order: &str) -> Outcome {
    let order: StressOrder =
        serde_json::from_str(order).map_err(|e| Failure::Usage(format!("not an order: {e}")))?;
    let began = Instant::now();
    match part(&order) {
        Ok(said) => {
            say(&RankReport::End(said));
            Ok(())
        }
        Err(error) => {
            say(&RankReport::Lost(Lost::of(&error, began)));
            Err(Failure::Said(FAILED))
        }
    }
}

fn part(order: &StressOrder) -> Result<Said, Error> {
    let mut comm = Communicator::from_env()?;
    let all = Duration::from_secs_f64(order.seconds * 2.0 + 120.0);
    let _limit = TimeLimit::new(all, comm.rank(), "a part of the stress");
    if order.part == StressPart::First {
        return first::first(order, &mut comm);
    }
    let mut gpu = comm.cuda(CudaOptions::default())?;
    let mut player = Player::new(&mut gpu)?;
    match order.part {
        StressPart::Library => library::library(order, &mut player),
        StressPart::Types => library::types(order, &mut player),
        StressPart::Random => series::random(order, &mut player),
        StressPart::Graph => series::graph(order, &mut player),
        StressPart::Bits => library::bits(order, &mut player),
        StressPart::Killed | StressPart::Absent if order.afterwards => {
            library::few(order, &mut player)
        }
        StressPart::Killed => loss::killed(order, &mut player),
        StressPart::Absent => loss::absent(order, &mut player),
        StressPart::First => Ok(Said::default()),
    }
}
