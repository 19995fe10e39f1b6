//! Diagnostics of plans, at the statements that their operations come from.

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::{SourceMap, Span};

use crate::instance::ProgramInstance;
use crate::num::index;
use crate::plan::{PlanOperation, RankPlan};

/// Returns the diagnostic of a plan that the compiler has made wrong.
pub(super) fn fault(instance: &ProgramInstance, message: String) -> Diagnostic {
    Diagnostic::error(codes::PLAN_DAMAGED, message)
        .label(instance.program.header, format!("lowered for {} ranks", instance.shape))
        .help("this is a fault of the compiler: please report it with the file")
}

/// Returns the span of the statement that an operation comes from.
pub(super) fn span(sources: &SourceMap, part: &RankPlan, op: &PlanOperation) -> Option<Span> {
    let site = &part.sites[index(op.site)];
    sources.rest_of_line(&site.file, site.line, site.column)
}
