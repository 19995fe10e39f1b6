//! Plays one rank of a part.

use std::time::{Duration, Instant};

use roundelay::cuda::CudaOptions;
use roundelay::{Communicator, Error};
use serde::{Deserialize, Serialize};

use super::{Order, Said, book, first, loss, series};
use crate::args::Part;
use crate::job::gpu::player::Player;
use crate::job::gpu::time_limit::TimeLimit;
use crate::report::{FAILED, Failure, Outcome, print};

/// The report of a rank, a line of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum RankReport {
    /// It is done.
    End(Said),
    /// It gives up.
    Lost(Lost),
}

/// An error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Lost {
    /// Stable code.
    pub(super) code: String,
    /// The error.
    pub(super) message: String,
    /// True if it only follows another rank.
    pub(super) aborted: bool,
    /// Seconds that the call took that failed.
    pub(super) seconds: f64,
    /// True if calls behind it were played.
    pub(super) played_on: bool,
}

impl Lost {
    pub(super) fn of(error: &Error, began: Instant) -> Self {
        Lost {
            code: error.code().to_string(),
            message: error.to_string(),
            aborted: matches!(error, Error::Aborted { .. }),
            seconds: began.elapsed().as_secs_f64(),
            played_on: false,
        }
    }
}

pub(super) fn say(line: &RankReport) {
    if let Ok(text) = serde_json::to_string(line) {
        print(&text);
    }
}

/// Does what the order asks of this process.
pub(crate) fn rank(order: &str) -> Outcome {
    let order: Order =
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

fn part(order: &Order) -> Result<Said, Error> {
    let mut comm = Communicator::from_env()?;
    let all = Duration::from_secs_f64(order.seconds * 2.0 + 120.0);
    let _limit = TimeLimit::new(all, comm.rank(), "a part of the stress");
    if order.part == Part::First {
        return first::first(order, &mut comm);
    }
    let mut gpu = comm.cuda(CudaOptions::default())?;
    let mut player = Player::new(&mut gpu)?;
    match order.part {
        Part::Book => book::book(order, &mut player),
        Part::Types => book::types(order, &mut player),
        Part::Random => series::random(order, &mut player),
        Part::Graph => series::graph(order, &mut player),
        Part::Bits => book::bits(order, &mut player),
        Part::Killed | Part::Absent if order.afterwards => book::few(order, &mut player),
        Part::Killed => loss::killed(order, &mut player),
        Part::Absent => loss::absent(order, &mut player),
        Part::First => Ok(Said::default()),
    }
}
