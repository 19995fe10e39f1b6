//! Communicators of a part of the ranks, and messages between single ranks.
//!
//! `cargo run -p roundelay-examples --example 07_split_and_batch`

use roundelay::{Communicator, Error, RedOp};

fn main() -> Result<(), Error> {
    let ranks = Communicator::local(4)?;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(|| rank(comm))).collect();
        ranks.into_iter().try_for_each(|r| r.join().expect("a rank panicked"))
    })
}

fn rank(mut comm: Communicator) -> Result<(), Error> {
    let (rank, size) = (comm.rank(), comm.size());

    // Two parts by one call: each rank names the ranks of its own part, in their order there.
    let mine: Vec<u32> = (0..size).filter(|r| r % 2 == rank % 2).collect();
    let mut part = comm.split(&mine)?.expect("this rank is in its part");
    assert_eq!((part.rank(), part.size()), (rank / 2, 2));
    let mut sum = [rank];
    part.all_reduce(&mut sum, RedOp::Sum)?;
    assert_eq!(sum, [if rank % 2 == 0 { 2 } else { 4 }]);

    // A rank that is in no part calls too, with an empty list.
    let firsts: &[u32] = if rank < 2 { &[0, 1] } else { &[] };
    assert_eq!(comm.split(firsts)?.is_some(), rank < 2);

    // A batch sends and receives side by side, so that a ring of messages cannot deadlock.
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let (one, three) = ([rank], [rank; 3]);
    let (mut from_left, mut from_right) = ([0], [0; 3]);
    let mut batch = comm.batch();
    batch.send(&one, right).send(&three, left);
    batch.recv(&mut from_left, left).recv(&mut from_right, right);
    batch.run(&mut comm)?;
    assert_eq!((from_left, from_right), ([left], [right; 3]));

    // One message concerns two ranks; the others go on.
    match rank {
        0 => comm.send(&[0.5f64; 1000], 3)?,
        3 => {
            let mut data = vec![0.0f64; 1000];
            comm.recv(&mut data, 0)?;
            assert!(data.iter().all(|&x| x == 0.5));
        }
        _ => {}
    }

    // Blocks of unequal length: rank r has r elements.
    let counts: Vec<usize> = (0..size as usize).collect();
    let (input, mut output) = (vec![rank; rank as usize], vec![9; 6]);
    comm.all_gather_v(&mut output, &input, &counts)?;
    assert_eq!(output, [1, 2, 2, 3, 3, 3]);
    Ok(())
}
