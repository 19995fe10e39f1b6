//! Executes plans by threads, and compares the results with a sum computed plainly.

use crate::support::{
    Part, barrier, chunk, contribution, data, header, layout, local, one_shot, ring, send_recv,
    threads, total, two_shot,
};
use roundelay::memory::MemoryBool;
use roundelay::plan::{CallArgs, PlanCall};
use roundelay::{DType, RedOp, internal};
use roundelay_compiler::chunks::ChunkSet;
use roundelay_compiler::plan::{
    BufferPlacement, ChunkSizes, CopyPolicy, OperationOutput, OperationStore, Plan, PlanBuffer,
    PlanHeader, PlanRegion, WireType,
};

/// Counts around the sizes at which messages change their way: header, slot, pull, several passes.
const COUNTS: [usize; 9] = [1, 2, 7, 12, 13, 100, 1023, 4096, 40_001];

/// Runs an all_reduce at all counts, on memory of the arena and not, and checks every element.
fn check_all_reduce(plans: &[Plan], slot_bytes: u64) {
    let ranks = plans.len();
    threads(layout(ranks as u32, slot_bytes), |comm, rank| {
        for (salt, &count) in COUNTS.iter().enumerate() {
            // One more element on each side shows what writes beyond the vector.
            let mut own = vec![f32::NAN; count + 2];
            let mut shared = comm.alloc::<f32>(count + 2).expect("memory");
            for memory in [&mut own[..], &mut shared[..]] {
                memory.fill(-0.5);
                for again in 0..3 {
                    let vector = &mut memory[1..=count];
                    for (i, x) in vector.iter_mut().enumerate() {
                        *x = contribution(rank, i, salt + again);
                    }
                    let stats = comm.run_in_place(&plans[rank], RedOp::Sum, vector).expect("a run");
                    for (i, x) in vector.iter().enumerate() {
                        let wanted = total(ranks, i, salt + again);
                        assert_eq!(*x, wanted, "{count} elements, element {i}, {stats:?}");
                    }
                }
                assert_eq!((memory[0], memory[count + 1]), (-0.5, -0.5), "beyond the vector");
            }
        }
    });
}

fn with_protocols(header: &PlanHeader, make: impl Fn(&PlanHeader) -> Vec<Plan>) {
    for protocol in [CopyPolicy::Auto, CopyPolicy::Staged, CopyPolicy::Direct] {
        for slot_bytes in [256, 64 << 10] {
            check_all_reduce(&make(&PlanHeader { protocol, ..header.clone() }), slot_bytes);
        }
    }
}

#[test]
fn ring_sums() {
    for n in 2..=4 {
        with_protocols(&header("all_reduce", "ring", n, n), ring);
    }
}

#[test]
fn one_shot_sums() {
    for n in 1..=5 {
        with_protocols(&header("all_reduce", "one_shot", n, 1), |h| one_shot(h, false));
        with_protocols(&header("all_reduce", "one_shot", n, 1), |h| one_shot(h, true));
    }
}

/// Calls whose content travels in headers, 48 bytes at the most, are run another way if they are
/// not traced.
#[test]
fn short_calls_move_the_same_traced_or_not() {
    let plans = one_shot(&header("all_reduce", "one_shot", 3, 1), true);
    threads(layout(3, 256), |comm, rank| {
        for count in [1, 2, 12, 13] {
            let mut seen = Vec::new();
            for traced in [false, true, false] {
                if traced {
                    comm.start_trace(100).expect("memory");
                }
                let mut vector: Vec<f32> = (0..count).map(|i| contribution(rank, i, 0)).collect();
                let stats = comm.run_in_place(&plans[rank], RedOp::Sum, &mut vector);
                let spans = comm.take_trace().map_or(0, |trace| trace.spans.len());
                assert_eq!(spans > 0, traced);
                seen.push((stats.expect("a run"), vector));
            }
            let wanted: Vec<f32> = (0..count).map(|i| total(3, i, 0)).collect();
            assert!(seen.iter().all(|one| *one == (seen[0].0, wanted.clone())), "{seen:?}");
            assert_eq!((seen[0].0.messages, seen[0].0.bytes), (2, 8 * count as u64));
        }
    });
}

#[test]
fn one_shot_of_many_chunks_sums() {
    let header = PlanHeader { slots: 3, ..header("all_reduce", "one_shot", 2, 6) };
    with_protocols(&header, |h| one_shot(h, true));
}

#[test]
fn two_shot_sums_in_lanes() {
    for n in 2..=4 {
        with_protocols(&header("all_reduce", "two_shot", n, n), two_shot);
    }
}

#[test]
fn pipelining_changes_nothing() {
    let header = PlanHeader { pipeline: 7, ..header("all_reduce", "ring", 3, 3) };
    check_all_reduce(&ring(&header), 1 << 20);
}

#[test]
fn different_plans_share_connections() {
    let a = ring(&PlanHeader { slots: 3, ..header("all_reduce", "ring", 3, 3) });
    let b = one_shot(&PlanHeader { slots: 5, ..header("all_reduce", "one_shot", 3, 1) }, true);
    let c = two_shot(&PlanHeader { slots: 2, ..header("all_reduce", "two_shot", 3, 3) });
    threads(layout(3, 1024), |comm, rank| {
        let mut vector = comm.alloc::<f32>(5000).expect("memory");
        for round in 0..60 {
            let plan = &[&a, &b, &c][(round / 2) % 3][rank];
            let count = [5000, 600, 3][round % 3];
            for (i, x) in vector.iter_mut().enumerate() {
                *x = contribution(rank, i, round);
            }
            comm.run_in_place(plan, RedOp::Sum, &mut vector[..count]).expect("a run");
            let right = vector[..count].iter().enumerate().all(|(i, &x)| x == total(3, i, round));
            assert!(right, "round {round}");
        }
    });
}

#[test]
fn send_recv_moves_and_a_fast_sender_runs_ahead() {
    let plans = send_recv(&header("send_recv", "plain", 2, 3));
    threads(layout(2, 4096), |comm, rank| {
        for round in 0..200 {
            let mut vector = [0u64; 5];
            if rank == 0 {
                vector = [round; 5];
            }
            comm.run_in_place(&plans[rank], RedOp::Sum, &mut vector).expect("a run");
            assert_eq!(vector, [round; 5]);
        }
    });
}

#[test]
fn messages_are_rounded_to_the_wire_type() {
    let make = |header: &PlanHeader| -> Vec<Plan> {
        let wired = |plan: Plan| {
            let mut part = Part::new(&plan.header, plan.part.rank);
            let all = ChunkSet::all(1);
            let peer = 1 - plan.part.rank;
            let out = part.send(peer, 0, None);
            part.op(vec![local(data(all))], None, vec![out], all);
            let message = part.recv(peer, 0, None);
            part.op(vec![local(data(all)), message], Some(data(all)), vec![], all);
            part.wire(WireType::Bf16).plan()
        };
        one_shot(header, false).into_iter().map(wired).collect()
    };
    let plans = make(&header("all_reduce", "compressed", 2, 1));
    threads(layout(2, 256), |comm, rank| {
        let mut vector = vec![1.0 + f32::EPSILON * (rank + 1) as f32; 1000];
        let stats = comm.run_in_place(&plans[rank], RedOp::Sum, &mut vector).expect("a run");
        assert_eq!(stats.bytes, 2000);
        assert_eq!(vector, vec![2.0 + 2.0 * f32::EPSILON * (rank as f32); 1000]);
    });
}

/// Makes plans that send everybody's block to everybody, out of place; a short input is offered for pulling.
fn all_gather(n: u32, per_rank: u32, protocol: CopyPolicy) -> Vec<Plan> {
    let chunks = n * per_rank;
    let header = PlanHeader {
        placement: BufferPlacement::OutOfPlace,
        blocks: n,
        input_chunks: per_rank,
        output_chunks: chunks,
        message: per_rank,
        protocol,
        ..header("all_gather", "direct", n, chunks)
    };
    let part = |r: u32| {
        let mut part = Part::new(&header, r);
        let block = |p: u32| ChunkSet::interval(p * per_rank, per_rank, chunks);
        let input = || PlanRegion::of(PlanBuffer::Input, ChunkSet::all(per_rank));
        let origin = r * per_rank;
        let send = |d| OperationOutput { origin, ..part.send((r + d) % n, 0, Some(input())) };
        let outs = (1..n).map(send).collect();
        let store = PlanRegion::of(PlanBuffer::Output, block(r));
        part.op(vec![local(input())], Some(store), outs, block(r));
        for p in (1..n).map(|d| (r + n - d) % n) {
            let message = part.recv(p, 0, Some(data(block(p))));
            let store = PlanRegion::of(PlanBuffer::Output, block(p));
            part.op(vec![message], Some(store), vec![], block(p));
        }
        part.plan()
    };
    (0..n).map(part).collect()
}

#[test]
fn a_short_input_is_read_where_it_lies() {
    for (protocol, pulled) in [(CopyPolicy::Direct, true), (CopyPolicy::Staged, false)] {
        let plans = all_gather(3, 2, protocol);
        threads(layout(3, 512), |comm, rank| {
            for count in [1usize, 5, 1001] {
                let mut input = comm.alloc::<u32>(count).expect("memory");
                for (i, x) in input.iter_mut().enumerate() {
                    *x = (rank * 10_000 + i) as u32;
                }
                let mut output = vec![u32::MAX; 3 * count];
                let plan = &plans[rank];
                let stats = comm
                    .run_out_of_place(plan, RedOp::Sum, count as u64, &input, &mut output)
                    .expect("a run");
                assert_eq!(stats.pulled > 0, pulled, "{stats:?}");
                for (i, &x) in output.iter().enumerate() {
                    assert_eq!(x as usize, i / count * 10_000 + i % count);
                }
            }
        });
    }
}

#[test]
fn a_rank_may_send_to_itself_through_scratch() {
    let header = PlanHeader { scratch: vec![1], ..header("custom", "mirror", 1, 2) };
    let mut part = Part::new(&header, 0);
    let scratch = || PlanRegion::of(PlanBuffer::Scratch(0), chunk(0, 1));
    let out = part.send(0, 0, Some(data(chunk(0, 2))));
    part.op(vec![local(data(chunk(0, 2)))], None, vec![out], chunk(0, 2));
    let message = part.recv(0, 0, Some(data(chunk(0, 2))));
    part.op(vec![message], Some(scratch()), vec![], chunk(0, 2));
    part.op(vec![local(scratch())], Some(data(chunk(1, 2))), vec![], chunk(0, 2));
    part.last().sizes = ChunkSizes::Of(vec![chunk(0, 2)]);
    let plan = part.plan();
    threads(layout(1, 64), |comm, _| {
        for count in [2usize, 64, 5000] {
            let mut vector: Vec<i64> = (0..count as i64).collect();
            comm.run_in_place(&plan, RedOp::Sum, &mut vector).expect("a run");
            let half = count as i64 / 2;
            assert_eq!(vector, (0..half).chain(0..half).collect::<Vec<i64>>());
        }
    });
}

#[test]
fn dead_stores_are_left_out_unless_offered() {
    let n = 3;
    for (protocol, left_out) in [(CopyPolicy::Staged, true), (CopyPolicy::Direct, false)] {
        let plans = ring(&PlanHeader { protocol, ..header("all_reduce", "ring", n, n) });
        threads(layout(n, 4096), |comm, rank| {
            // Without the last part of the ring: what is dead shows.
            let mut plan = plans[rank].clone().into_unproved();
            plan.header.hash[0] ^= 1;
            plan.part.lanes[0].ops.truncate(2);
            for conn in &mut plan.part.conns {
                conn.messages = if conn.dir == roundelay_compiler::plan::MessageDirection::Send {
                    2
                } else {
                    1
                };
            }
            if !left_out {
                comm.set_timeout(std::time::Duration::from_millis(100));
            }
            let plan = plan.check().expect("a consistent plan");
            let mut vector = comm.alloc::<i32>(3).expect("memory");
            vector.fill(1);
            let result = comm.run_in_place(&plan, RedOp::Sum, &mut vector);
            // The second message is never taken: with slots that does not matter to its sender.
            match left_out {
                true => {
                    result.expect("a run");
                    assert_eq!(vector[(rank + 2) % 3], 1);
                }
                false => assert!(result.is_err()),
            }
        });
    }
}

#[test]
fn averages_and_factors() {
    let plans = two_shot(&header("all_reduce", "two_shot", 3, 3));
    threads(layout(3, 4096), |comm, rank| {
        let mut floats = vec![rank as f64 + 1.0; 100];
        comm.run_in_place(&plans[rank], RedOp::Avg, &mut floats).expect("a run");
        assert_eq!(floats, vec![2.0; 100]);
        let mut whole = vec![-(rank as i32) - 1; 10];
        whole[0] = 3;
        comm.run_in_place(&plans[rank], RedOp::Avg, &mut whole).expect("a run");
        assert_eq!(whole[..2], [3, -2]);
        let mut bytes: Vec<u8> = [1.0f32; 50].iter().flat_map(|x| x.to_ne_bytes()).collect();
        let args = CallArgs::InPlace { data: &mut bytes[..] };
        let (dtype, op) = (DType::F32, RedOp::PremulSum);
        let call = PlanCall { count: 50, dtype, op, factor: rank as f64, args };
        comm.run(&plans[rank], call).expect("a run");
        assert_eq!(bytes[196..], 3.0f32.to_ne_bytes());
    });
}

#[test]
fn a_factor_leaves_the_input_alone() {
    let all = ChunkSet::all(1);
    let header = PlanHeader {
        placement: BufferPlacement::OutOfPlace,
        input_chunks: 1,
        output_chunks: 1,
        ..header("all_reduce", "one_shot", 2, 1)
    };
    let part = |rank: u32| {
        let mut part = Part::new(&header, rank);
        let input = || PlanRegion::of(PlanBuffer::Input, all);
        let out = part.send(1 - rank, 0, Some(input()));
        part.op(vec![local(input())], None, vec![out], all);
        let message = part.recv(1 - rank, 0, Some(data(all)));
        let store = Some(PlanRegion::of(PlanBuffer::Output, all));
        part.op(vec![local(input()), message], store, vec![], all);
        part.plan()
    };
    let plans = [part(0), part(1)];
    threads(layout(2, 1024), |comm, rank| {
        let input: Vec<u8> = [3i32; 5000].iter().flat_map(|x| x.to_ne_bytes()).collect();
        let mut output = vec![0xaa; 20_000];
        let args = CallArgs::OutOfPlace { input: &input[..], output: &mut output[..] };
        let (dtype, op) = (DType::I32, RedOp::PremulSum);
        let call = PlanCall { count: 5000, dtype, op, factor: 1.0 + rank as f64, args };
        comm.run(&plans[rank], call).expect("a run");
        assert_eq!(output[19_996..], 9i32.to_ne_bytes());
        assert_eq!(input[..4], 3i32.to_ne_bytes());
    });
}

#[test]
fn a_barrier_holds_everybody() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let arrived = AtomicUsize::new(0);
    let plans = barrier(4);
    threads(layout(4, 64), |comm, rank| {
        for round in 1..50 {
            arrived.fetch_add(1, Ordering::SeqCst);
            let none: &mut [u8] = &mut [];
            comm.run_in_place(&plans[rank], RedOp::Sum, none).expect("a run");
            assert!(arrived.load(Ordering::SeqCst) >= 4 * round);
            comm.barrier().expect("a barrier");
            assert_eq!(internal::max_f64(comm, rank as f64).expect("a word"), 3.0);
            assert_eq!(comm.all_gather_u64(rank as u64).expect("words"), [0, 1, 2, 3]);
        }
    });
}

#[test]
fn no_elements_no_messages() {
    let plans = ring(&header("all_reduce", "ring", 2, 2));
    threads(layout(2, 64), |comm, rank| {
        let none: &mut [f32] = &mut [];
        let stats = comm.run_in_place(&plans[rank], RedOp::Sum, none).expect("a run");
        assert_eq!(stats.messages, 0);
    });
}

#[test]
fn a_store_may_be_dead_and_unused() {
    let header = PlanHeader { reduces: false, ..header("custom", "nothing", 1, 1) };
    let mut part = Part::new(&header, 0);
    let all = ChunkSet::all(1);
    part.op(vec![local(data(all))], None, vec![], all);
    part.last().store = Some(OperationStore { region: data(all), dead: true });
    let plan = part.plan();
    threads(layout(1, 64), |comm, _| {
        let mut vector = [MemoryBool::TRUE, MemoryBool::FALSE];
        comm.run_in_place(&plan, RedOp::Sum, &mut vector).expect("a run");
        assert_eq!(vector, [MemoryBool::TRUE, MemoryBool::FALSE]);
    });
}
