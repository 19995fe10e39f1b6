//! Tests messages that stay where they are until the peer has read them, among others that are copied.

use std::time::Duration;

use crate::support::{layout, threads};
use roundelay::RedOp;

/// Rank 0 sends chunk 1 and then chunk 0, and both are overwritten by what rank 2 sends.
const OVERWRITTEN: &str = "algorithm overwritten implements all_reduce on n ranks {
    chunks 2
    0 -> 1 : reduce data[1]
    0 -> 1 : reduce data[0]
    2 -> 0 : copy data
    0 -> 1 : reduce data
    1 -> 0 : copy data
    1 -> 2 : copy data
    schedule { protocol direct }
}";

/// Of one element chunk 0 has none: the last message before the store is empty and copied, and the one before it is
/// still to be read where it lies. Rank 1 comes late, when the others have gone as far as they can.
#[test]
fn a_store_waits_for_reads_of_messages_before_an_empty_one() {
    for count in [1, 2, 3] {
        threads(layout(3, 1024), |comm, rank| {
            let algorithm = comm.load_text("overwritten.algo", OVERWRITTEN).expect("an algorithm");
            comm.install(&algorithm).expect("agreement");
            let mut data = comm.alloc::<u32>(count).expect("memory");
            data.fill(10u32.pow(rank as u32));
            if rank == 1 {
                std::thread::sleep(Duration::from_millis(50));
            }
            comm.all_reduce(&mut data, RedOp::Sum).expect("a sum");
            assert_eq!(data[..], vec![111; count], "rank {rank}");
        });
    }
}
