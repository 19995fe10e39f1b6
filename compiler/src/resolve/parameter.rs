//! Parameters of algorithms, and the arguments of a `use`.

use roundelay_dsl::ast;
use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::SourceId;

use super::body::AlgorithmBody;
use super::names::VariableNames;
use super::resolver::ProgramResolver;
use crate::program::{ArgumentValue, Program, ProgramParameter, Slot, SlotExpr};

impl ProgramResolver<'_> {
    /// Resolves the parameters of an algorithm, and makes them visible.
    pub(super) fn parameters(
        &mut self,
        id: SourceId,
        names: &mut VariableNames,
        a: &ast::AlgorithmDecl,
    ) -> Vec<ProgramParameter> {
        let mut parameters: Vec<ProgramParameter> = Vec::new();
        for p in &a.parameters {
            self.check_shadow(id, names, a, p);
            let default = self.literal(id, &p.default);
            let bounds = match (&p.bounds, default) {
                (Some((least, _)), Some(ArgumentValue::Truth(_))) => {
                    let message = format!("`{}` is a truth value and has no bounds", p.name.text);
                    self.report(
                        Diagnostic::error(codes::TYPE, message)
                            .label(least.span, "bounds are of numbers")
                            .help("leave the bounds out, or give a number as the default"),
                    );
                    None
                }
                (Some((least, most)), _) => {
                    let bound = |this: &mut Self, e| match this.literal(id, e)? {
                        ArgumentValue::Number(v) => Some(v),
                        ArgumentValue::Truth(_) => {
                            let d = Diagnostic::error(codes::TYPE, "a bound is a number");
                            this.report(d.label(e.span, "this is a truth value"));
                            None
                        }
                    };
                    let (least, most) = (bound(self, least), bound(self, most));
                    least.zip(most)
                }
                (None, _) => None,
            };
            // Declared even if its default is at fault, so that its uses are not reported too.
            let value = default.unwrap_or(ArgumentValue::Number(0));
            let slot = names.bind(&p.name.text, matches!(value, ArgumentValue::Truth(_)));
            let parameter = ProgramParameter {
                name: p.name.text.clone(),
                slot,
                value,
                default: value,
                bounds,
                span: p.span,
            };
            if default.is_some()
                && let Some(d) = parameter.refusal(value)
            {
                let help = "choose a default within the bounds, the least bound first";
                let d = Diagnostic { labels: Vec::new(), helps: Vec::new(), ..d };
                self.report(d.label(p.default.span, "the default").help(help));
            }
            parameters.push(parameter);
        }
        parameters
    }

    /// Reports a parameter whose name means something else already.
    fn check_shadow(
        &mut self,
        id: SourceId,
        names: &VariableNames,
        a: &ast::AlgorithmDecl,
        p: &ast::ParameterDecl,
    ) {
        let name = &p.name.text;
        let axes = match &a.axes {
            ast::AxesClause::Flat(axis) => std::slice::from_ref(axis),
            ast::AxesClause::Grid(axes, _) => axes,
        };
        let before = a.parameters.iter().map(|p| &p.name).find(|n| n.text == *name);
        let constant = self.scope(id).constants.get(name).map(|c| c.name.span);
        let (what, first) = match before.filter(|n| n.span != p.name.span) {
            Some(before) => ("a parameter", Some(before.span)),
            None => match (axes.iter().find(|axis| axis.text == *name), constant) {
                (Some(axis), _) => ("the ranks", Some(axis.span)),
                (None, Some(constant)) => ("a constant", Some(constant)),
                (None, None) if names.find(name).is_some() => ("the root", None),
                (None, None) => return,
            },
        };
        let message = format!("parameter `{name}` has the name of {what}");
        let mut d =
            Diagnostic::error(codes::DUPLICATE_NAME, message).label(p.name.span, "again here");
        if let Some(first) = first {
            d = d.label(first, "first declared here");
        }
        self.report(d.help("choose another name"));
    }

    /// Returns the value of an expression of constants.
    fn literal(&mut self, id: SourceId, e: &ast::Expr) -> Option<ArgumentValue> {
        let mut names = VariableNames::new();
        let (e, truth) = self.any(id, &mut names, e)?;
        self.constant_value(&names, &e).map(|value| ArgumentValue::of(value, truth))
    }
}

impl AlgorithmBody {
    /// Resolves the arguments of a `use`.
    pub(super) fn arguments(
        &mut self,
        r: &mut ProgramResolver<'_>,
        u: &ast::UseStmt,
        program: &Program,
    ) -> Option<Vec<(usize, SlotExpr)>> {
        let mut arguments: Vec<(usize, SlotExpr)> = Vec::new();
        let fixed = self.fixed;
        let moving: Vec<Slot> =
            self.names.visible.iter().map(|v| v.1).filter(|slot| *slot >= fixed).collect();
        for (name, e) in &u.arguments {
            let Some(i) = program.parameters.iter().position(|p| p.name == name.text) else {
                let d = program.unknown_parameter(&name.text);
                let declared = d.labels.clone();
                let mut d = Diagnostic { labels: Vec::new(), ..d }.label(name.span, "not known");
                d.labels.extend(declared);
                r.report(d);
                return None;
            };
            if arguments.iter().any(|(before, _)| *before == i) {
                let message = format!("argument `{}` is given twice", name.text);
                r.report(
                    Diagnostic::error(codes::DUPLICATE_NAME, message)
                        .label(name.span, "again here")
                        .help("give each parameter one value"),
                );
                return None;
            }
            let value = match program.parameters[i].default {
                ArgumentValue::Number(_) => r.number(self.id, &mut self.names, e)?,
                ArgumentValue::Truth(_) => r.truth(self.id, &mut self.names, e)?,
            };
            if value.depends_on(&moving) {
                let message = "an argument is the same wherever the algorithm is used";
                r.report(
                    Diagnostic::error(codes::MISPLACED, message)
                        .label(e.span, "depends on a variable")
                        .help("it may depend on the ranks, on parameters and on constants"),
                );
                return None;
            }
            arguments.push((i, value));
        }
        Some(arguments)
    }
}
