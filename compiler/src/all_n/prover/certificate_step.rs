//! The lines of the proof in a certificate.

use crate::all_n::RefutationTree;
use crate::program::{ProgramBuffer, SlotExpr};

use super::asked::KnownPlaces;

/// A line of the proof in a certificate.
#[derive(Debug, Clone)]
pub(super) enum CertificateStep {
    /// The invariant of a buffer at the head of the loop that is next.
    Invariant(ProgramBuffer, KnownPlaces),
    /// The variables of the transfer that is next, as expressions of the place that it writes, or of a contribution.
    Witness(Vec<SlotExpr>, bool),
    /// A fact by which an obligation becomes simpler, where it is proved.
    Fact(Option<RefutationTree>),
    /// The obligation with this index.
    Obligation(usize),
}
