//! Ranks as processes: the program starts itself again, once a rank.
//!
//! `cargo run -p roundelay-examples --example 05_processes`

use roundelay::launch::RankLauncher;
use roundelay::{Communicator, Error, RedOp};

fn main() -> Result<(), Error> {
    if Communicator::is_launched()? {
        let mut comm = Communicator::from_env()?;
        let input = vec![comm.rank(); 3];
        let mut output = vec![0; 3 * comm.size() as usize];
        comm.all_gather(&mut output, &input)?;
        let mut most = [comm.rank()];
        comm.all_reduce(&mut most, RedOp::Max)?;
        assert_eq!(output, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
        assert_eq!(most, [2]);
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|e| Error::Start(e.to_string()))?;
    let outcome = RankLauncher::new(3).program(program).run(|_rank, _line| {})?;
    assert!(outcome.cause.is_none(), "{:?}", outcome.cause);
    Ok(())
}
