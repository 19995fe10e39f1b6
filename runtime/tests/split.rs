//! Tests parts of a communicator: who is in them, that they work, that nothing is left of them.

use std::time::Duration;

use crate::support::{layout, threads};
use roundelay::transport::TransportSet;
use roundelay::{Communicator, Error, RedOp};
use roundelay_dsl::diag::codes;
use roundelay_tests::runs_alone;

/// Returns the sum of one number of each rank, through the library.
fn sum(comm: &mut Communicator, x: u64) -> u64 {
    let mut buffer = [x, 0, 1];
    comm.all_reduce(&mut buffer, RedOp::Sum).expect("a sum");
    assert_eq!(buffer[2], u64::from(comm.size()));
    buffer[0]
}

#[test]
fn parts_may_be_contiguous_strided_and_in_any_order() {
    threads(layout(6, 4096), |comm, rank| {
        for list in [vec![0, 1, 2], vec![1, 3, 5], vec![5, 0], vec![4], vec![3, 2, 1, 0, 5, 4]] {
            let list: &[u32] = if list.contains(&(rank as u32)) { &list } else { &[] };
            let part = comm.split(list).expect("a part");
            assert_eq!(part.is_some(), !list.is_empty());
            let Some(mut part) = part else { continue };
            assert_eq!(list[part.rank() as usize], rank as u32);
            assert_eq!(part.size() as usize, list.len());
            let wanted: u64 = list.iter().map(|&r| 10 + u64::from(r)).sum();
            assert_eq!(sum(&mut part, 10 + rank as u64), wanted);
        }
        assert_eq!(sum(comm, 1), 6, "the whole goes on");
    });
}

#[test]
fn one_call_makes_several_parts_and_parts_have_parts() {
    threads(layout(6, 4096), |comm, rank| {
        let (row, column) = (rank / 3, rank % 3);
        let ranks: Vec<u32> = (0..3).map(|c| (3 * row + c) as u32).collect();
        let mut across = comm.split(&ranks).expect("a part").expect("in it");
        assert_eq!(sum(&mut across, rank as u64), (9 * row + 3) as u64);
        let pair: &[u32] = if column == 1 { &[] } else { &[2, 0] };
        let deeper = across.split(pair).expect("a part of a part");
        if let Some(mut pair) = deeper {
            assert_eq!(pair.rank(), if column == 2 { 0 } else { 1 });
            let alone = pair.rank();
            let mut one = pair.split(&[alone]).expect("third level").expect("in it");
            assert_eq!(sum(&mut one, 5), 5);
            assert_eq!(sum(&mut pair, rank as u64), (6 * row + 2) as u64);
        }
        // Calls on the parts and on the whole mix.
        assert_eq!(sum(comm, 1) + sum(&mut across, 1), 9);
    });
}

#[test]
fn buffers_serve_the_whole_and_its_parts() {
    threads(layout(4, 64 << 10), |comm, rank| {
        let mut buffer = comm.alloc::<f32>(1 << 20).expect("room");
        let half = (rank / 2 * 2) as u32;
        let mut part = comm.split(&[half + 1, half]).expect("a part").expect("in it");
        for comm in [&mut part, comm] {
            buffer.fill(1.0);
            comm.all_reduce(&mut buffer, RedOp::Sum).expect("a sum");
            assert!(buffer.iter().all(|&x| x == comm.size() as f32));
        }
        let mut output = part.alloc::<f32>(1 << 21).expect("room");
        part.all_gather(&mut output, &buffer).expect("a gather");
        assert!(output.iter().all(|&x| x == 4.0));
    });
}

#[test]
fn a_wrong_list_on_one_rank_is_an_error_on_all() {
    let wrong: [(&[u32], &str); 4] = [
        (&[0, 1, 1], "twice"),
        (&[1, 3], "no rank 3"),
        (&[0, 2], "not among them"),
        (&[1, 0], "another list"),
    ];
    for (list, words) in wrong {
        let errors = threads(layout(3, 4096), |comm, rank| {
            let list = if rank == 1 { list } else { &[0, 1, 2] };
            let error = comm.split(list).expect_err("wrong");
            assert_eq!(sum(comm, 2), 6, "the whole goes on after: {error}");
            error
        });
        assert!(errors.iter().all(|e| matches!(e, Error::Usage(_))), "{errors:?}");
        let texts: Vec<String> = errors.iter().map(Error::to_string).collect();
        assert!(texts.iter().any(|t| t.contains(words)), "{words}: {texts:?}");
        assert!(texts.iter().all(|t| t.contains("rank 1") || t.contains("rank 0")), "{texts:?}");
    }
}

/// A rank whose part has failed does something else than the others, who wait for it: not that is the error.
#[test]
fn what_ended_a_part_is_told_and_not_what_its_ranks_do_next() {
    let errors = threads(layout(3, 4096), |comm, rank| {
        let parts: [&[u32]; 3] = [&[0], &[1, 2], &[1, 2]];
        let mut part = comm.split(parts[rank]).expect("a part").expect("in it");
        match rank {
            0 => comm.all_reduce(&mut [1u64; 3], RedOp::Sum).expect_err("a part fails"),
            1 => {
                part.set_timeout(Duration::from_millis(100));
                part.barrier().expect_err("rank 2 does not come");
                comm.barrier().expect_err("a part has failed")
            }
            _ => comm.all_reduce(&mut [1u64; 3], RedOp::Sum).expect_err("a part fails"),
        }
    });
    for error in &errors {
        assert!(
            error.to_string().contains("waited 100ms for rank 1 to make the same call"),
            "{errors:#?}"
        );
    }
}

/// A part may fail while ranks of another one are still in the split: for some of them it succeeds, and what
/// they wait for ends at once.
#[test]
fn a_split_that_ends_for_some_ranks_ends_their_part() {
    for _ in 0..50 {
        threads(layout(4, 4096), |comm, rank| {
            comm.set_timeout(Duration::from_secs(10));
            let mut part = match comm.split(&[[0, 2], [1, 3]][rank % 2]) {
                Ok(part) => part.expect("in it"),
                Err(error) => return assert_eq!(error.code(), codes::PLAN_MISMATCH, "{error}"),
            };
            let ended = part.all_reduce(&mut vec![1u32; usize::from(rank != 2)], RedOp::Sum);
            let is_mismatch = ended.is_err_and(|error| {
                assert_eq!(error.code(), codes::PLAN_MISMATCH, "rank {rank}: {error}");
                true
            });
            assert!(is_mismatch || rank % 2 == 1, "rank {rank}");
        });
    }
}

#[test]
fn every_way_has_a_link_and_a_reason() {
    threads(layout(3, 4096), |comm, rank| {
        let part = comm.split(&[2, 1, 0]).expect("a part").expect("in it");
        for (comm, own) in [(&*comm, rank), (&part, 2 - rank)] {
            for (r, route) in comm.routes().iter().enumerate() {
                assert_eq!(route.rank as usize, r);
                let links = if r == own { TransportSet::NONE } else { TransportSet::SHM };
                assert_eq!(route.transports, links, "{route:?}");
                assert!(r == own || route.why == "same machine", "{route:?}");
            }
        }
    });
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

fn mapped() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("proc");
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

/// Alone in its process, so that descriptors and memory can be counted: a test binary runs its tests
/// side by side.
#[test]
fn a_hundred_live_at_once_and_a_thousand_leave_nothing() {
    if !runs_alone(module_path!(), "a_hundred_live_at_once_and_a_thousand_leave_nothing") {
        return;
    }
    threads(layout(3, 4096), |comm, rank| {
        // The first part makes what is made once and kept: plans, scratch.
        let mut first = comm.split(&[0, 1, 2]).expect("a part").expect("in it");
        sum(&mut first, 1);
        drop(first);
        comm.barrier().expect("a barrier");
        let before = (descriptors(), mapped());
        comm.barrier().expect("a barrier");
        let mut live: Vec<Communicator> =
            (0..100).map(|_| comm.split(&[0, 1, 2]).expect("a part").expect("in it")).collect();
        for (i, part) in live.iter_mut().enumerate() {
            assert_eq!(sum(part, i as u64), 3 * i as u64);
        }
        drop(live);
        for i in 0..1000 {
            let mut part = comm.split(&[2, 0, 1]).expect("a part").expect("in it");
            if i % 100 == rank {
                assert_eq!(part.size(), 3);
            }
            part.barrier().expect("a barrier");
        }
        comm.barrier().expect("a barrier");
        let after = (descriptors(), mapped());
        comm.barrier().expect("a barrier");
        // Each rank may see the folders that the two others look into.
        assert!(after.0 <= before.0 + 2, "descriptors {} then {}", before.0, after.0);
        // In pages; one segment that stayed mapped would be gigabytes.
        assert!(after.1 <= before.1 + (1 << 14), "pages {} then {}", before.1, after.1);
    });
}
