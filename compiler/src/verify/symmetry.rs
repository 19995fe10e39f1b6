//! by symmetry
use std::sync::Arc;
use roundelay_dsl::{diag::Diagnostics, span::SourceMap};
use crate::instance::Instance;
use super::Facts;
/// stub
pub fn prove(_: &Arc<Instance>, _: &SourceMap) -> Result<Option<(Facts, &'static str)>, Diagnostics> { Ok(None) }
