//! Tests calls that cannot succeed: wrong arguments, ranks that disagree, memory that is not there.

use std::time::Duration;

use crate::support::{data, header, layout, one_shot, ring, threads};
use roundelay::plan::{CallArgs, CallStats, PlanCall};
use roundelay::transport::SegmentLayout;
use roundelay::{Communicator, DType, Error, RedOp};
use roundelay_compiler::chunks::ChunkSet;
use roundelay_compiler::plan::{OperationInput, Plan, PlanHeader, PlanRegion, UnprovedPlan};
use roundelay_dsl::diag::codes;

type OneCall = dyn Fn(&mut Communicator, &Plan) -> Result<CallStats, Error> + Sync;
type Damage = dyn Fn(&mut UnprovedPlan);

fn rings(n: u32) -> Vec<Plan> {
    ring(&header("all_reduce", "ring", n, n))
}

#[test]
fn ranks_with_different_plans_are_told() {
    let (a, b) = (rings(2), one_shot(&header("all_reduce", "one_shot", 2, 1), false));
    let errors = threads(layout(2, 1024), |comm, rank| {
        comm.set_timeout(Duration::from_secs(20));
        let plan = if rank == 0 { &a[0] } else { &b[1] };
        comm.run_in_place(plan, RedOp::Sum, &mut [1.0f32; 100]).expect_err("another plan")
    });
    for error in errors {
        assert_eq!(error.code(), codes::PLAN_MISMATCH, "{error}");
        let text = error.to_string();
        assert!(text.contains("rank 0") && text.contains("rank 1"), "{text}");
    }
}

/// Both plans were agreed on before: nothing but the messages themselves can tell.
#[test]
fn ranks_that_call_known_plans_in_another_order_are_told() {
    let plans = [rings(2), one_shot(&header("all_reduce", "one_shot", 2, 1), false)];
    for count in [3, 1000] {
        let errors = threads(layout(2, 1024), |comm, rank| {
            comm.set_timeout(Duration::from_secs(20));
            let mut vector = vec![1.0f32; count];
            for plan in &plans {
                comm.run_in_place(&plan[rank], RedOp::Sum, &mut vector).expect("a run");
            }
            comm.run_in_place(&plans[rank][rank], RedOp::Sum, &mut vector).expect_err("mixed up")
        });
        for error in errors {
            assert_eq!(error.code(), codes::PLAN_MISMATCH, "{error}");
        }
    }
}

#[test]
fn ranks_with_different_counts_operators_or_types_are_told() {
    let plans = rings(3);
    let odd: [&OneCall; 4] = [
        &|comm, plan| comm.run_in_place(plan, RedOp::Sum, &mut [1.0f32; 11]),
        &|comm, plan| comm.run_in_place(plan, RedOp::Max, &mut [1.0f32; 10]),
        &|comm, plan| comm.run_in_place(plan, RedOp::Sum, &mut [1i32; 10]),
        &|comm, _| comm.barrier().map(|()| CallStats::default()),
    ];
    for call in odd {
        let errors = threads(layout(3, 1024), |comm, rank| {
            comm.set_timeout(Duration::from_secs(20));
            match rank {
                1 => call(comm, &plans[1]).expect_err("alone"),
                _ => comm
                    .run_in_place(&plans[rank], RedOp::Sum, &mut [1.0f32; 10])
                    .expect_err("one differs"),
            }
        });
        for error in errors {
            assert_eq!(error.code(), codes::PLAN_MISMATCH, "{error}");
        }
    }
}

#[test]
fn a_rank_that_never_comes_is_named_with_the_place() {
    let plans = rings(2);
    let errors = threads(layout(2, 1024), |comm, rank| {
        comm.run_in_place(&plans[rank], RedOp::Sum, &mut [1.0f32; 10]).expect("a run");
        if rank == 1 {
            // Here, but in no call that the other makes, until that has given up.
            while comm.barrier().is_ok() {}
            return None;
        }
        comm.run_in_place(&plans[rank], RedOp::Sum, &mut [1.0f32; 10]).err()
    });
    let error = errors[0].as_ref().expect("an error");
    assert_eq!(error.code(), codes::PLAN_MISMATCH, "{error}");
}

#[test]
fn a_slow_rank_is_waited_for_until_the_deadline() {
    let plans = rings(2);
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let errors = threads(layout(2, 1024), |comm, rank| {
        comm.run_in_place(&plans[rank], RedOp::Sum, &mut [1.0f32; 10]).expect("a run");
        comm.set_timeout(Duration::from_millis(100));
        if rank == 1 {
            wait.lock().expect("a lock").recv().expect("rank 0 is done");
            let later = comm.run_in_place(&plans[rank], RedOp::Sum, &mut [1.0f32; 10]);
            return (later.expect_err("aborted"), comm.barrier().expect_err("unusable"));
        }
        let error = comm.run_in_place(&plans[rank], RedOp::Sum, &mut [1.0f32; 10]);
        done.send(()).expect("rank 1 waits");
        (error.expect_err("late"), comm.barrier().expect_err("unusable"))
    });
    let text = errors[0].0.to_string();
    assert_eq!(errors[0].0.code(), codes::TIMEOUT, "{text}");
    assert!(
        text.starts_with(
            "rank 0, all_reduce.ring, step 1 (hand.algo:2:5: `statement 2`): \
             waited 100ms for a message from rank 1; rank 1 (process "
        ),
        "{text}"
    );
    assert!(
        text.ends_with("has not made call 2; if it is only slow, allow more time (`--timeout`)")
    );
    // The late rank may still find the messages of rank 0, but then waits for the rest.
    let later = errors[1].0.to_string();
    assert_eq!(errors[1].0.code(), codes::TIMEOUT, "{later}");
    assert!(later.starts_with("rank 1 stopped because rank 0 failed: rank 0, all_reduce.ring"));
    assert!(errors[0].1.to_string().contains("start the job again"));
}

#[test]
fn a_rank_that_left_is_missed_at_once() {
    let plans = rings(3);
    let errors = threads(layout(3, 1024), |comm, rank| match rank {
        2 => None,
        _ => comm.run_in_place(&plans[rank], RedOp::Sum, &mut [1u8; 10]).err(),
    });
    for error in errors[..2].iter().map(|e| e.as_ref().expect("an error")) {
        assert_eq!(error.code(), codes::LOST_RANK, "{error}");
        assert!(error.to_string().starts_with("rank 2 is gone: it left the job"), "{error}");
    }
}

#[test]
fn wrong_arguments_are_refused_and_do_no_harm() {
    let plans = rings(2);
    threads(layout(2, 1024), |comm, rank| {
        let plan = &plans[rank];
        let mut short = [0u8; 12];
        let args = CallArgs::InPlace { data: &mut short[..] };
        let (dtype, op) = (DType::F32, RedOp::Sum);
        let call = PlanCall { count: 4, dtype, op, factor: 1.0, args };
        let error = comm.run(plan, call).expect_err("too short").to_string();
        assert_eq!(error, "the data has 12 bytes, and all_reduce.ring of 4 x f32 needs 16");
        let error = comm.run_in_place(plan, RedOp::And, &mut [1.0f32]).expect_err("no such");
        assert_eq!(error.code(), codes::UNSUPPORTED, "{error}");
        let error = comm.run_out_of_place(plan, RedOp::Sum, 1, &[1.0f32], &mut [1.0f32]);
        assert_eq!(error.expect_err("in place").to_string(), "the plan is in place");
        let error = comm.run_in_place(&plans[1 - rank], RedOp::Sum, &mut [1.0f32]);
        assert!(error.expect_err("not mine").to_string().contains("this is rank"));
        comm.barrier().expect("still usable");
        comm.run_in_place(plan, RedOp::Sum, &mut [1.0f32; 8]).expect("still usable");
    });
}

/// Plans that would touch memory they should not are never made.
#[test]
fn damaged_plans_are_refused() {
    let good = ring(&header("all_reduce", "ring", 2, 2));
    let breaks: [(&str, &Damage); 8] = [
        ("chunk", &|p| {
            let region = data(ChunkSet { start: 5, block: 1, stride: 1, total: 1, modulus: 9 });
            p.part.lanes[0].ops[0].inputs = vec![OperationInput::Local(region)];
        }),
        ("modulus", &|p| {
            let region = data(ChunkSet { start: 0, block: 0, stride: 0, total: 1, modulus: 0 });
            p.part.lanes[0].ops[0].inputs = vec![OperationInput::Local(region)];
        }),
        ("fewer", &|p| {
            p.part.lanes[0].ops[0].inputs =
                vec![OperationInput::Local(PlanRegion { pieces: vec![] })];
        }),
        ("connection", &|p| p.part.lanes[0].ops[0].outs[0].conn = 7),
        ("peer", &|p| p.part.conns[0].peer = 2),
        ("messages", &|p| p.part.conns[0].messages = 9),
        ("input", &|p| p.part.lanes[0].ops[0].inputs.clear()),
        ("chunks", &|p| p.header.chunks = 0),
    ];
    for (what, damage) in breaks {
        for plan in &good {
            let mut plan = plan.clone().into_unproved();
            damage(&mut plan);
            plan.check().expect_err(what);
        }
    }
    for plan in &good {
        let header = PlanHeader { slots: 99, ..plan.header.clone() };
        let plan = UnprovedPlan { header, ..plan.clone().into_unproved() };
        let error = plan.check().expect_err("slots").to_string();
        assert!(error.contains("slots are out of range"), "{error}");
    }
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    // More than any arena, then more than any machine.
    let small = SegmentLayout { arena_bytes: 1 << 20, ..SegmentLayout::new(1) };
    let huge = SegmentLayout { arena_bytes: 1 << 45, ..SegmentLayout::new(1) };
    for (layout, len) in [(small, 2 << 20), (huge, 1usize << 44)] {
        threads(layout, |comm, _| {
            let error = comm.alloc::<u8>(len).expect_err("too much");
            assert_eq!(error.code(), codes::MEMORY, "{error}");
            comm.alloc::<u8>(1 << 20).expect("there is room for less");
        });
    }
}

/// Memory is mapped as it is used: neither many communicators nor a machine with much memory take addresses.
#[test]
fn large_arenas_of_many_communicators_fit_the_address_space() {
    let layout = SegmentLayout { arena_bytes: 4 << 40, ..SegmentLayout::new(2) };
    let jobs: Vec<_> =
        (0..64).map(|_| roundelay::internal::local_with(layout).expect("a job")).collect();
    for ranks in jobs {
        std::thread::scope(|scope| {
            for mut comm in ranks {
                scope.spawn(move || {
                    let mut vector = comm.alloc::<f32>(100_000).expect("a buffer");
                    vector.fill(1.0);
                    comm.all_reduce(&mut vector, RedOp::Sum).expect("a call");
                    assert!(vector.iter().all(|&x| x == 2.0));
                });
            }
        });
    }
}

/// Scratch comes from the arena: when it has no room, all ranks hear of it.
#[test]
fn a_rank_short_of_scratch_stops_the_others() {
    let plans = one_shot(&header("all_reduce", "one_shot", 2, 1), true);
    let layout = SegmentLayout { arena_bytes: 1 << 20, ..SegmentLayout::new(2) };
    let errors = threads(layout, |comm, rank| {
        let full = (rank == 1).then(|| comm.alloc::<u8>(1 << 20).expect("room"));
        let error = comm.run_in_place(&plans[rank], RedOp::Sum, &mut [1.0f32; 1000]);
        drop(full);
        error.expect_err("no scratch")
    });
    for error in errors {
        assert_eq!(error.code(), codes::MEMORY, "{error}");
    }
}

#[test]
fn slots_too_small_for_one_element_a_chunk_are_refused() {
    let plans = one_shot(&header("all_reduce", "one_shot", 2, 100), false);
    threads(layout(2, 64), |comm, rank| {
        let error = comm.run_in_place(&plans[rank], RedOp::Sum, &mut [1.0f32; 1000]);
        let error = error.expect_err("too small");
        assert_eq!(error.code(), codes::MEMORY, "{error}");
        assert!(error.to_string().contains("--slot-bytes"), "{error}");
    });
}
