//! Tests calls without elements: on all ranks they move nothing and are counted; on one rank alone they are another
//! call than the others make, and no rank goes on.

use std::sync::Barrier;
use std::time::Duration;

use crate::support::{everywhere, header, layout, ring, threads};
use roundelay::plan::CallStats;
use roundelay::{Algorithm, CallOptions, Communicator, Error, Hints, RedOp, Reduction};
use roundelay_dsl::diag::codes;

const SLOT: u64 = 4096;
/// Far beyond what finding a difference takes.
const PATIENCE: Duration = Duration::from_secs(60);

type OneCall = fn(&mut Communicator, usize) -> Result<(), Error>;

fn all_reduce(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let (mut data, sum) = (vec![1u32; count], comm.size());
    comm.all_reduce(&mut data, RedOp::Sum).map(|()| assert_eq!(data, vec![sum; count]))
}

fn all_reduce_into(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let (mut data, sum) = (vec![0u32; count], comm.size());
    let input = vec![1; count];
    comm.all_reduce_into(&mut data, &input, RedOp::Sum).map(|()| assert_eq!(data, vec![sum; count]))
}

fn all_gather(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let mut output = vec![0; count * comm.size() as usize];
    let rank = comm.rank();
    comm.all_gather(&mut output, &vec![rank; count])?;
    output.chunks_exact(count.max(1)).zip(0..).for_each(|(b, r)| assert_eq!(b, vec![r; count]));
    Ok(())
}

fn all_gather_list(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let mut outputs = vec![vec![0; count]; comm.size() as usize];
    let mut lent: Vec<&mut [u32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    comm.all_gather_list(&mut lent, &vec![comm.rank(); count][..])?;
    outputs.iter().zip(0..).for_each(|(block, r)| assert_eq!(*block, vec![r; count]));
    Ok(())
}

fn reduce_scatter(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let (n, mut output) = (comm.size(), vec![0; count]);
    comm.reduce_scatter(&mut output, &vec![1; count * n as usize], RedOp::Sum)?;
    assert_eq!(output, vec![n; count]);
    Ok(())
}

fn reduce_scatter_list(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let (n, mut output, input) = (comm.size(), vec![0; count], vec![1u32; count]);
    comm.reduce_scatter_list(&mut output[..], &vec![&input[..]; n as usize], RedOp::Sum)?;
    assert_eq!(output, vec![n; count]);
    Ok(())
}

fn all_to_all(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let (rank, n) = (comm.rank(), comm.size() as usize);
    let mut output = vec![0; count * n];
    comm.all_to_all(&mut output, &vec![rank; count * n])?;
    output.chunks_exact(count.max(1)).zip(0..).for_each(|(b, r)| assert_eq!(b, vec![r; count]));
    Ok(())
}

fn all_to_all_in_place(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let mut data = vec![comm.rank(); count * comm.size() as usize];
    comm.all_to_all_in_place(&mut data)
}

fn all_to_all_list(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let (rank, n) = (comm.rank(), comm.size() as usize);
    let (input, mut outputs) = (vec![rank; count], vec![vec![0; count]; n]);
    let mut lent: Vec<&mut [u32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    comm.all_to_all_list(&mut lent, &vec![&input[..]; n])
}

/// The root of calls that have one: not the rank whose call differs.
const ROOT: u32 = 1;

fn broadcast(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let mut data = vec![comm.rank(); count];
    comm.broadcast(&mut data, ROOT).map(|()| assert_eq!(data, vec![ROOT; count]))
}

fn broadcast_into(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let (mut output, input) = (vec![9; count], vec![5; count]);
    let input = if comm.rank() == ROOT { &input[..] } else { &[] };
    comm.broadcast_into(&mut output[..], input, ROOT)
}

fn reduce(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    comm.reduce(&mut vec![1u32; count], ROOT, RedOp::Sum)
}

fn reduce_into(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let mut output = vec![0; if comm.rank() == ROOT { count } else { 0 }];
    comm.reduce_into(&mut output, &vec![1u32; count], ROOT, RedOp::Sum)
}

fn gather(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let n = comm.size() as usize;
    let mut outputs = vec![vec![0; count]; if comm.rank() == ROOT { n } else { 0 }];
    let mut lent: Vec<&mut [u32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    comm.gather_list(&mut lent, &vec![1; count][..], ROOT)
}

fn scatter(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let (n, input, mut output) = (comm.size() as usize, vec![7u32; count], vec![0; count]);
    let inputs = vec![&input[..]; if comm.rank() == ROOT { n } else { 0 }];
    comm.scatter_list(&mut output[..], &inputs, ROOT)
}

fn all_gather_v(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let (rank, n) = (comm.rank(), comm.size() as usize);
    let mut output = vec![0; count * n];
    comm.all_gather_v(&mut output, &vec![rank; count], &vec![count; n])
}

fn reduce_scatter_v(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let (n, mut output) = (comm.size() as usize, vec![0; count]);
    comm.reduce_scatter_v(&mut output, &vec![1u32; count * n], &vec![count; n], RedOp::Sum)
}

fn tolerant(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    comm.tolerant_all_reduce(&mut vec![1u32; count], RedOp::Sum).map(drop)
}

fn in_background(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    comm.all_reduce_async(vec![1u32; count], RedOp::Sum).wait().map(drop)
}

/// Names an algorithm, so that all counts have the same one.
fn hinted(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let hints: Hints = "algorithm=ring".parse().expect("hints");
    all_reduce(&mut comm.with(CallOptions::new().hints(hints)), count)
}

fn own_algorithm(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let text = "algorithm naive implements all_reduce on n ranks {
        each r { for p in 0..n where p != r { r -> p : reduce data } }
    }";
    let naive = Algorithm::parse("naive.algo", text)?;
    comm.run_algorithm(&naive, &mut vec![1u32; count], RedOp::Sum).map(drop)
}

/// Calls that no rank leaves before all have come.
const ALL_MEET: [(&str, OneCall); 14] = [
    ("all_reduce", all_reduce),
    ("all_reduce_into", all_reduce_into),
    ("all_gather", all_gather),
    ("all_gather_list", all_gather_list),
    ("reduce_scatter", reduce_scatter),
    ("reduce_scatter_list", reduce_scatter_list),
    ("all_to_all", all_to_all),
    ("all_to_all_in_place", all_to_all_in_place),
    ("all_to_all_list", all_to_all_list),
    ("all_gather_v", all_gather_v),
    ("reduce_scatter_v", reduce_scatter_v),
    ("in_background", in_background),
    ("hinted", hinted),
    ("own_algorithm", own_algorithm),
];

fn scan(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let (mut data, sum) = (vec![1u32; count], comm.rank() + 1);
    comm.scan(&mut data, RedOp::Sum).map(|()| assert_eq!(data, vec![sum; count]))
}

fn exscan_into(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    // Rank 0 keeps the zeros.
    let (mut data, sum) = (vec![0u32; count], comm.rank());
    let input = vec![1; count];
    comm.exscan_into(&mut data, &input, RedOp::Sum).map(|()| assert_eq!(data, vec![sum; count]))
}

/// Calls that a rank may leave before others have come.
const SOME_MEET: [(&str, OneCall); 8] = [
    ("scan", scan),
    ("exscan_into", exscan_into),
    ("broadcast", broadcast),
    ("broadcast_into", broadcast_into),
    ("reduce", reduce),
    ("reduce_into", reduce_into),
    ("gather", gather),
    ("scatter", scatter),
];

/// Makes a call with elements `before` times, then one without any on the odd rank alone; returns its result, and that
/// of a barrier behind it, by the way in which ranks are joined and by rank.
fn alone(call: OneCall, before: usize, odd: usize) -> Vec<Vec<[Result<(), Error>; 2]>> {
    let ready = Barrier::new(3);
    everywhere(3, SLOT, |comm, rank| {
        comm.set_timeout(PATIENCE);
        for _ in 0..before {
            call(comm, 4).expect("a call that all ranks make");
        }
        // A rank that is still in the call before would end with the job.
        ready.wait();
        [call(comm, if rank == odd { 0 } else { 4 }), comm.barrier()]
    })
}

fn is_mismatch(result: &Result<(), Error>) -> bool {
    result.as_ref().is_err_and(|error| error.code() == codes::PLAN_MISMATCH)
}

#[test]
fn a_rank_without_elements_makes_another_call() {
    for (name, call) in ALL_MEET {
        for (before, odd) in [(0, 0), (1, 0), (1, 2)] {
            for (way, ranks) in alone(call, before, odd).iter().enumerate() {
                for [own, _] in ranks {
                    assert!(is_mismatch(own), "{name}, {way}, after {before}: {ranks:?}");
                }
            }
        }
    }
}

#[test]
fn a_rank_that_only_sends_learns_of_it_behind_the_call() {
    for (name, call) in SOME_MEET {
        for (before, odd) in [(0, 0), (1, 0), (1, 1), (1, 2)] {
            for (way, ranks) in alone(call, before, odd).iter().enumerate() {
                let text = format!("{name}, {way}, {odd} after {before}: {ranks:?}");
                assert!(is_mismatch(&ranks[odd][0]), "the rank itself: {text}");
                for [own, behind] in ranks {
                    assert!(own.is_ok() || is_mismatch(own), "{text}");
                    assert!(behind.is_err() && (own.is_err() || is_mismatch(behind)), "{text}");
                }
            }
        }
    }
}

/// A tolerant call may end with a result for one rank, whose communicator has failed then.
#[test]
fn no_rank_goes_on_behind_a_tolerant_call_without_elements() {
    for ranks in alone(tolerant, 1, 1).iter().chain(&alone(tolerant, 0, 2)) {
        assert!(ranks.iter().all(|[_, behind]| behind.is_err()), "{ranks:?}");
        assert!(ranks.iter().flatten().any(is_mismatch), "{ranks:?}");
    }
}

#[test]
fn calls_without_elements_succeed_and_keep_their_place() {
    for ranks in [1, 2, 3] {
        everywhere(ranks, SLOT, |comm, _| {
            comm.set_timeout(PATIENCE);
            for (name, call) in
                ALL_MEET.into_iter().chain(SOME_MEET).chain([("tolerant", tolerant as OneCall)])
            {
                if ranks == 1
                    && ["broadcast", "reduce", "gather", "scatter"]
                        .iter()
                        .any(|rooted| name.starts_with(rooted))
                {
                    continue;
                }
                for count in [0, 4, 0, 0, 1, 4] {
                    call(comm, count).unwrap_or_else(|error| panic!("{name}, {count}: {error}"));
                }
            }
        });
    }
}

#[test]
fn parts_count_calls_without_elements() {
    let ready = Barrier::new(4);
    let ended = threads(layout(4, SLOT), |comm, rank| {
        comm.set_timeout(PATIENCE);
        let mut part = comm.split(&[[0, 2], [1, 3]][rank % 2]).expect("a part").expect("in it");
        part.set_timeout(PATIENCE);
        // A rank that is still in the split would end with the part that fails.
        ready.wait();
        let odd = all_reduce(&mut part, if rank == 2 { 0 } else { 4 });
        (odd, part.size())
    });
    for (rank, (odd, _)) in ended.iter().enumerate() {
        assert_eq!(is_mismatch(odd), rank % 2 == 0, "rank {rank}: {ended:?}");
    }
}

#[test]
fn types_operators_roots_and_names_are_compared_without_elements() {
    let odd: [OneCall; 5] = [
        |comm, _| comm.all_reduce(&mut [0i64; 0], RedOp::Sum),
        |comm, _| comm.all_reduce(&mut [0u32; 0], RedOp::Max),
        |comm, _| comm.broadcast(&mut [0u32; 0], 0),
        |comm, _| comm.barrier(),
        |comm, _| hinted(comm, 0),
    ];
    for call in odd {
        for ranks in everywhere(3, SLOT, |comm, rank| {
            comm.set_timeout(PATIENCE);
            let hints: Hints = "algorithm=one_shot".parse().expect("hints");
            match rank {
                1 => call(comm, 0),
                _ => all_reduce(&mut comm.with(CallOptions::new().hints(hints)), 0),
            }
        }) {
            assert!(ranks.iter().all(is_mismatch), "{ranks:?}");
        }
    }
}

#[test]
fn plans_of_the_caller_are_compared_without_elements() {
    let (plans, ready) = (ring(&header("all_reduce", "ring", 3, 3)), Barrier::new(3));
    for ranks in everywhere(3, SLOT, |comm, rank| {
        comm.set_timeout(PATIENCE);
        let plan = &plans[rank];
        let run = |comm: &mut Communicator, count| {
            comm.run_in_place(plan, RedOp::Sum, &mut vec![1.0f32; count])
        };
        assert_eq!(run(comm, 0), Ok(CallStats::default()));
        run(comm, 10).expect("a run");
        ready.wait();
        run(comm, if rank == 1 { 0 } else { 10 }).map(drop)
    }) {
        assert!(ranks.iter().all(is_mismatch), "{ranks:?}");
    }
}

#[test]
fn an_operator_that_the_type_lacks_is_refused_without_elements_too() {
    for count in [0, 1] {
        threads(layout(2, SLOT), |comm, _| {
            let refused = comm.all_reduce(&mut vec![1.0f32; count], RedOp::And);
            assert!(matches!(refused, Err(Error::Unsupported(_))), "{count}: {refused:?}");
            all_reduce(comm, 1).expect("it stays usable");
        });
    }
}

/// Calls whose counts may differ take 0 from some ranks.
#[test]
fn blocks_without_elements_are_counted_and_send_nothing() {
    everywhere(3, SLOT, |comm, rank| {
        comm.set_timeout(PATIENCE);
        for _ in 0..3 {
            let (counts, r) = ([0, 2, 1], rank as u32);
            let mut output = [0; 3];
            comm.all_gather_v(&mut output, &vec![r; counts[rank]], &counts).expect("all_gather_v");
            assert_eq!(output, [1, 1, 2]);
            let mut output = vec![0; counts[rank]];
            let sum = Reduction::from(RedOp::Sum);
            comm.reduce_scatter_v(&mut output, &[1u32; 3], &counts, sum).expect("reduce_scatter_v");
            assert_eq!(output, vec![3; counts[rank]]);
            // Rank 0 has nothing for any rank, and rank 2 takes nothing from any.
            let sent = [[0, 0, 0], [1, 2, 0], [3, 1, 0]];
            let received: Vec<usize> = sent.iter().map(|row| row[rank]).collect();
            let input = vec![r; sent[rank].iter().sum()];
            let mut output = vec![9; received.iter().sum()];
            comm.all_to_all_v(&mut output, &received, &input, &sent[rank]).expect("all_to_all_v");
            let wanted: Vec<u32> =
                (0..3).flat_map(|from| vec![from; received[from as usize]]).collect();
            assert_eq!(output, wanted);
            comm.all_to_all_v(&mut [0u8; 0], &[0; 3], &[0u8; 0], &[0; 3]).expect("nothing at all");
        }
        all_reduce(comm, 4).expect("the calls behind are those of all ranks");
    });
}

#[test]
fn messages_without_elements_match_each_other() {
    for (count, is_fit) in [(0, true), (1, false)] {
        for ranks in everywhere(2, SLOT, |comm, rank| {
            comm.set_timeout(PATIENCE);
            match rank {
                0 => comm.send(&[0u32; 0], 1).and_then(|()| comm.send(&[5u32], 1)),
                _ => {
                    let mut next = [0u32];
                    comm.recv(&mut vec![0u32; count], 0)?;
                    comm.recv(&mut next, 0).map(|()| assert_eq!(next, [5]))
                }
            }
        }) {
            assert_eq!(ranks[1].is_ok(), is_fit, "{ranks:?}");
            assert!(is_fit || is_mismatch(&ranks[1]), "{ranks:?}");
        }
    }
}

/// A call without elements has its turn with an installed algorithm, and in the record.
#[test]
fn installed_algorithms_and_records_know_calls_without_elements() {
    threads(layout(2, SLOT), |comm, _| {
        let text = "algorithm naive implements all_reduce on n ranks {
            each r { for p in 0..n where p != r { r -> p : reduce data } }
        }";
        let naive = comm.load_text("naive.algo", text).expect("an algorithm");
        comm.install(&naive).expect("installed");
        let before = comm.flight().expect("a record").calls;
        all_reduce(comm, 0).expect("a call");
        let after = comm.flight().expect("a record");
        assert_eq!(after.calls, before + 1, "it is counted");
        all_reduce(comm, 3).expect("a call");
    });
}
