//! Tests that do not take a whole program; kernels of the algorithm library are in `tests/tests/kernels.rs`.

use super::share::{TaskOwner, warps};
use super::{Element, Operator, aligned};

#[test]
fn chunks_are_aligned_or_not() {
    assert!(aligned(4, 64, Element::F32));
    assert!(!aligned(4, 60, Element::F32), "chunks of 15 elements");
    assert!(!aligned(4, 66, Element::F32), "chunks of unequal length");
    assert!(aligned(1, 8, Element::Bf16) && !aligned(1, 8, Element::I8));
    assert!(aligned(3, 6, Element::F64) && aligned(7, 0, Element::U8));
}

#[test]
fn types_have_operators() {
    assert!(Element::F32.has(Operator::Avg) && !Element::F32.has(Operator::Xor));
    assert!(Element::I8.has(Operator::PremulSum) && Element::I8.has(Operator::And));
    assert!(Element::Bool.has(Operator::Max) && !Element::Bool.has(Operator::Sum));
    for &element in Element::ALL {
        assert_eq!(Element::named(element.name()), Some(element));
    }
    assert_eq!(Operator::named("premul_sum"), Some(Operator::PremulSum));
    assert_eq!(Operator::named("plus"), None);
}

#[test]
fn own_memory_is_copied_beside_the_links() {
    let pair = [(TaskOwner::Peers, 2), (TaskOwner::Own, 2), (TaskOwner::Waits, 0)];
    assert_eq!((TaskOwner::Peers.warps(&pair), TaskOwner::Own.warps(&pair)), (0..8, 8..16));
    assert_eq!(TaskOwner::Waits.warps(&pair), 0..16);
    let many = [(TaskOwner::Own, 2), (TaskOwner::Peers, 200)];
    assert_eq!((TaskOwner::Peers.warps(&many), TaskOwner::Own.warps(&many)), (0..15, 15..16));
    assert_eq!(
        TaskOwner::Own.warps(&[(TaskOwner::Own, 9)]),
        0..16,
        "no other task is in the phase"
    );
    assert_eq!(TaskOwner::Peers.warps(&[(TaskOwner::Peers, 1), (TaskOwner::Own, 99)]), 0..1);
}

#[test]
fn warps_go_where_the_work_is() {
    assert_eq!(warps(&[1]).first(), Some(&(0..16)));
    assert_eq!(warps(&[3, 1]), [0..12, 12..16]);
    assert_eq!(warps(&[0, 7]), [0..1, 1..16], "a task that only waits has a warp too");
    let many = warps(&[1; 18]);
    assert_eq!((many[0].clone(), many[17].clone()), (0..1, 1..2), "more than warps take turns");
}
