//! Tests the whole library, by every kind of link: the same bits as in shared memory. That those are right is
//! for `tests/tests/executed` to say, which compares them with a reference.

use roundelay::transport::Transport;
use roundelay::{Algorithm, Communicator, Error, RedOp};
use roundelay_algorithms::{CATALOGUE, CatalogueEntry};
use roundelay_compiler::{BufferPlacement, CompileOptions, Plan, Shape, compile};

use crate::conformance::{Over, threads};
use crate::support::contribution;

/// Numbers of elements, from one to more than a message holds here.
const COUNTS: [usize; 3] = [1, 61, 5003];
const SLOT_BYTES: u64 = 4 << 10;

/// An algorithm on some ranks.
struct Piece {
    name: String,
    /// The plans, by rank.
    plans: Vec<Plan>,
}

/// Returns all that the library has for these ranks.
fn pieces(algorithms: &[Algorithm], shape: &Shape) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for algorithm in algorithms {
        for placement in [BufferPlacement::InPlace, BufferPlacement::OutOfPlace] {
            let options =
                CompileOptions { root: shape.ranks() as u32 - 1, ..CompileOptions::default() };
            let (program, sources) = (algorithm.program(), algorithm.sources());
            // Some are for some rank counts only, or for grids.
            let Ok(proved) = compile(program, sources, shape, &options, placement) else {
                continue;
            };
            let plans = proved.plans().to_vec();
            if plans.iter().all(|plan| plan.header.placement == placement) {
                pieces.push(Piece { name: format!("{algorithm} {placement:?}"), plans });
            }
        }
    }
    pieces
}

/// Runs a rank's part of all, one after the other; gives what they leave.
fn run(comm: &mut Communicator, rank: usize, pieces: &[Piece]) -> Vec<Vec<f32>> {
    let mut left = Vec::new();
    for (round, piece) in pieces.iter().enumerate() {
        let plan = &piece.plans[rank];
        let header = &plan.header;
        let blocks = |chunks: u32| (chunks * header.blocks / header.chunks.max(1)) as usize;
        for count in COUNTS {
            let fill = |blocks: usize| -> Vec<f32> {
                (0..blocks * count).map(|i| contribution(rank, i, round)).collect()
            };
            let result = match header.placement {
                BufferPlacement::InPlace => {
                    let mut data = fill(header.blocks as usize);
                    comm.run_in_place(plan, RedOp::Sum, &mut data).map(|_| data)
                }
                BufferPlacement::OutOfPlace => {
                    let input = fill(blocks(header.input_chunks));
                    let mut output = vec![0.5; blocks(header.output_chunks) * count];
                    let count = count as u64;
                    comm.run_out_of_place(plan, RedOp::Sum, count, &input, &mut output)
                        .map(|_| output)
                }
            };
            left.push(result.unwrap_or_else(|e| panic!("{}, {count}: {e}", piece.name)));
        }
    }
    left
}

pub(crate) fn library(over: Over) {
    let alone = Communicator::local(1).expect("a rank").remove(0);
    let load = |e: &CatalogueEntry| alone.load_text(e.path, e.text)?.named(e.name);
    let algorithms: Result<Vec<Algorithm>, Error> = CATALOGUE.iter().map(load).collect();
    let algorithms = algorithms.expect("the library");
    let mut runs = 0;
    for shape in ["2", "3", "4", "2x2"] {
        let shape: Shape = shape.parse().expect("a shape");
        let pieces = pieces(&algorithms, &shape);
        let ranks = shape.ranks() as u32;
        let all = |over| threads(over, ranks, SLOT_BYTES, |comm, rank| run(comm, rank, &pieces));
        let (here, there) = (all(Over::One(Transport::Shm)), all(over));
        for (rank, (here, there)) in here.iter().zip(&there).enumerate() {
            for (at, (here, there)) in here.iter().zip(there).enumerate() {
                let (piece, count) = (&pieces[at / COUNTS.len()], COUNTS[at % COUNTS.len()]);
                let name = &piece.name;
                assert!(here == there, "{name} on {shape}, {count} elements: rank {rank} differs");
            }
        }
        runs += pieces.len();
    }
    assert!(runs > 3 * CATALOGUE.len(), "{runs} only");
}
