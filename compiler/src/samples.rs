//! Rank counts that stand for all where the caller names none.

use roundelay_dsl::diag::{Diagnostic, codes};

use crate::program::Program;
use crate::shape::Shape;

/// Returns small counts, even and odd, powers of two and others; for grids, small ones that are no squares
/// too.
pub fn usual_shapes(program: &Program) -> Vec<Shape> {
    let grid = |a: u32, b: u32| {
        let mut axes = vec![1; program.axes.names.len().saturating_sub(2)];
        axes.extend([a, b]);
        Shape { axes }
    };
    match program.axes.names.len() {
        0 | 1 => (2..=9).map(Shape::flat).collect(),
        _ => vec![grid(2, 2), grid(2, 3), grid(3, 2), grid(2, 4)],
    }
}

/// Returns true if a program was refused only because it is not meant for the shape.
pub fn not_meant_for(found: &[Diagnostic]) -> bool {
    found.iter().all(|d| d.code == codes::REQUIRES || d.code == codes::SHAPE)
}
