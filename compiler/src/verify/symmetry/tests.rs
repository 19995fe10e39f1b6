//! Programs that were once proved by symmetry, and are wrong.

use std::sync::Arc;

use roundelay_dsl::span::SourceMap;

use super::SymmetryAttempt;
use crate::compile::by_symmetry;
use crate::{BufferPlacement, CompileOptions, NoLibrary, ProgramInstance, Shape, compile, resolve};

/// Returns the group by which a text is proved by symmetry on n ranks, if it is, and true if the text is
/// right.
fn verdicts(text: &str, n: u32) -> (Option<&'static str>, bool) {
    let mut sources = SourceMap::new();
    let id = sources.add("here.algo", text);
    let programs = resolve(&mut sources, id, &NoLibrary).expect("the text resolves");
    let (shape, options) = (Shape::flat(n), CompileOptions::default());
    let right = compile(&programs[0], &sources, &shape, &options, BufferPlacement::InPlace).is_ok();
    let instance = ProgramInstance::new(&programs[0], &shape, &options).expect("the shape fits");
    match by_symmetry(&Arc::new(instance), &sources) {
        Ok(SymmetryAttempt::Proved { group, .. }) => (Some(group), right),
        _ => (None, right),
    }
}

/// After the root's rounds one rank holds a sum of which a contribution counts twice. It is of the same
/// contributions as what the others hold, and must not pass for it.
#[test]
fn a_sum_that_counts_twice_is_held_by_no_rank_alike() {
    let program = |rounds: &str| {
        format!(
            "algorithm main implements broadcast on n ranks {{ chunks n
            each r where r == root {{ for p in 0..n where p != r {{ r -> p : copy data[p] }} }}
            {rounds}
            for s in 0..n-1 {{ each r {{ r -> (r + 1) % n : copy data[(r - s) % n] }} }} }}"
        )
    };
    let twice = "each r where r == root { let p = (root + 3) % n  r -> p : reduce data[p] }";
    let own = "each r where r == root { r -> r : reduce data[r] }";
    for n in [4, 7, 16] {
        assert_eq!(verdicts(&program(""), n), (Some("shift after the root's rounds"), true));
        assert_eq!(verdicts(&program(twice), n), (None, false), "{n}: another rank's");
        assert_eq!(verdicts(&program(own), n), (None, false), "{n}: the root's");
    }
}

/// Scratch has three chunks a rank. To xor a chunk by three times an element is no action: by 3 xor by 6 is by
/// 5, and not by 9. Every rank's transfers are an image of rank 0's even so, and that one reads what rank 1
/// wrote; rank 2 reads what rank 3 never did.
#[test]
fn blocks_of_three_chunks_are_not_xored() {
    let program = |scratch: u32, kept: &str, read: &str| {
        format!(
            "algorithm main implements all_reduce on n ranks {{ chunks n scratch t[n * {scratch}]
            each r {{ for p in 0..n where p != r {{ r -> p : reduce data[p] }} }}
            each r {{ for p in 0..n where p != r {{ r -> p : copy data[r] }} }}
            each r {{ r -> r : copy data[r] -> t[{kept}] }}
            each r {{ let p = r ^ 1  p -> r : copy t[{read}] -> data[p] }} }}"
        )
    };
    let blocks = program(4, "4 * r", "4 * p");
    assert_eq!(verdicts(&blocks, 8), (Some("xor"), true));
    for n in [4, 8, 32] {
        assert_eq!(verdicts(&program(3, "3 * r", "3 ^ (3 * r)"), n), (None, false), "{n}");
    }
}
