//! Ranks, regions and indices.

use roundelay_dsl::ast;
use roundelay_dsl::diag::{Diagnostic, codes, similar};
use roundelay_dsl::span::SourceId;

use super::body::AlgorithmBody;
use super::names::VariableNames;
use super::resolver::ProgramResolver;
use crate::num::short;
use crate::program::{
    ChunkIndex, ExprNode, ProgramBuffer, RankAxes, RankExpr, RegionExpr, SlotExpr,
};

impl AlgorithmBody {
    pub(super) fn rank(
        &mut self,
        r: &mut ProgramResolver<'_>,
        rank: &ast::RankRef,
    ) -> Option<RankExpr> {
        rank_expr(r, self.id, &mut self.names, &self.axes, rank)
    }

    pub(super) fn region(
        &mut self,
        r: &mut ProgramResolver<'_>,
        region: &ast::RegionRef,
    ) -> Option<RegionExpr> {
        let name = region.buffer.text.as_str();
        let buf = match name {
            "data" => {
                self.data.get_or_insert(region.buffer.span);
                ProgramBuffer::Data
            }
            "input" | "output" => {
                self.split_buffers.get_or_insert(region.buffer.span);
                if name == "input" { ProgramBuffer::Input } else { ProgramBuffer::Output }
            }
            _ => match self.scratch.iter().position(|s| s == name) {
                Some(i) => ProgramBuffer::Scratch(short(i)),
                None => {
                    let known = ["data", "input", "output"];
                    let all = known.iter().copied().chain(self.scratch.iter().map(String::as_str));
                    let mut d = Diagnostic::error(
                        codes::UNKNOWN_NAME,
                        format!("no buffer is named `{name}`"),
                    )
                    .label(region.buffer.span, "not known");
                    d = match similar(name, all) {
                        Some(near) => d.help(format!("did you mean `{near}`?")),
                        None => d.help(format!(
                            "buffers are data, input, output; declare others: `scratch {name}[…]`"
                        )),
                    };
                    r.report(d);
                    return None;
                }
            },
        };
        let index = index(r, self.id, &mut self.names, region.index.as_ref())?;
        Some(RegionExpr { buf, index, span: region.span })
    }
}

/// Resolves a rank expression; a tuple becomes its linear number.
pub(super) fn rank_expr(
    r: &mut ProgramResolver<'_>,
    id: SourceId,
    names: &mut VariableNames,
    axes: &RankAxes,
    rank: &ast::RankRef,
) -> Option<RankExpr> {
    match rank {
        ast::RankRef::One(e) => Some(RankExpr {
            linear: r.number(id, names, e)?,
            coordinates: Vec::new(),
            span: e.span,
        }),
        ast::RankRef::Tuple(list, span) => {
            if list.len() != axes.names.len() {
                r.report(
                    Diagnostic::error(
                        codes::SHAPE,
                        format!("{} coordinates, but {} axes", list.len(), axes.names.len()),
                    )
                    .label(*span, "one coordinate an axis, or one linear rank"),
                );
                return None;
            }
            let mut coordinates = Vec::new();
            let mut linear: Option<SlotExpr> = None;
            for (e, &size) in list.iter().zip(&axes.sizes) {
                let e = r.number(id, names, e)?;
                let op = |op, a, b| SlotExpr {
                    node: ExprNode::Binary(op, Box::new(a), Box::new(b)),
                    span: *span,
                };
                linear = Some(match linear {
                    None => e.clone(),
                    Some(l) => op(
                        ast::BinOp::Add,
                        op(ast::BinOp::Mul, l, SlotExpr { node: ExprNode::Var(size), span: *span }),
                        e.clone(),
                    ),
                });
                coordinates.push((e, size));
            }
            Some(RankExpr { linear: linear?, coordinates, span: *span })
        }
    }
}

/// Resolves an index.
pub(super) fn index(
    r: &mut ProgramResolver<'_>,
    id: SourceId,
    names: &mut VariableNames,
    index: Option<&ast::RegionIndex>,
) -> Option<ChunkIndex> {
    let optional =
        |r: &mut ProgramResolver<'_>, names: &mut VariableNames, e: &Option<ast::Expr>| match e {
            Some(e) => r.number(id, names, e).map(Some),
            None => Some(None),
        };
    Some(match index {
        None => ChunkIndex::All,
        Some(ast::RegionIndex::At(e)) => ChunkIndex::At(r.number(id, names, e)?),
        Some(ast::RegionIndex::Range { from, to, by, take }) => {
            let (from, to) = (r.number(id, names, from), r.number(id, names, to));
            let (by, take) = (optional(r, names, by)?, optional(r, names, take)?);
            ChunkIndex::Range { from: from?, to: to?, by, take }
        }
        Some(ast::RegionIndex::Cyclic { from, count, by, take }) => {
            let (from, count) = (r.number(id, names, from), r.number(id, names, count));
            let (by, take) = (optional(r, names, by)?, optional(r, names, take)?);
            ChunkIndex::Cyclic { from: from?, count: count?, by, take }
        }
    })
}
