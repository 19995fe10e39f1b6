//! Findings as the protocol has them.

use gen_lsp_types::{
    CodeDescription, Diagnostic as ShownDiagnostic, DiagnosticRelatedInformation,
    DiagnosticSeverity as ShownSeverity, Location, Range, Uri,
};
use roundelay_compiler::Shape;
use roundelay_dsl::diag::{Diagnostic, DiagnosticSeverity};
use roundelay_dsl::span::{SourceMap, Span};

use crate::analysis::OWN;
use crate::position::{ColumnUnit, LineTable};
use crate::texts::uri_of;

/// The folder of the pages that explain codes.
const PAGES: &str = "https://github.com/roundelay/roundelay/blob/main/docs/errors";

/// Writes findings about one document.
pub(crate) struct FindingWriter<'d> {
    pub(crate) sources: &'d SourceMap,
    pub(crate) lines: &'d LineTable,
    pub(crate) uri: &'d Uri,
    pub(crate) unit: ColumnUnit,
}

impl FindingWriter<'_> {
    /// Returns a finding; one about another text is shown at the first line of this one.
    pub(crate) fn shown(&self, d: &Diagnostic, shape: Option<&Shape>) -> ShownDiagnostic {
        let own = d.labels.iter().position(|label| label.span.source == OWN);
        let range = own.map_or(Range::default(), |i| self.range(d.labels[i].span));
        let mut lines = vec![match shape {
            Some(shape) => format!("{} (on {shape} ranks)", d.message),
            None => d.message.clone(),
        }];
        if let Some(label) = own.map(|i| &d.labels[i]).filter(|label| !label.text.is_empty()) {
            lines.push(label.text.clone());
        }
        lines.extend(d.notes.iter().cloned());
        lines.extend(d.helps.iter().map(|help| format!("help: {help}")));
        let others = d.labels.iter().enumerate().filter(|&(i, _)| Some(i) != own);
        let related: Vec<DiagnosticRelatedInformation> = others
            .map(|(_, label)| DiagnosticRelatedInformation {
                location: self.location(label.span),
                message: if label.text.is_empty() { "here".into() } else { label.text.clone() },
            })
            .collect();
        ShownDiagnostic {
            range,
            severity: Some(match d.severity {
                DiagnosticSeverity::Error => ShownSeverity::Error,
                DiagnosticSeverity::Warning => ShownSeverity::Warning,
            }),
            code: Some(d.code.0.to_string().into()),
            code_description: Some(CodeDescription {
                href: Uri(format!("{PAGES}/{}.md", d.code.0)),
            }),
            source: Some("roundelay".into()),
            message: lines.join("\n").into(),
            related_information: (!related.is_empty()).then_some(related),
            ..ShownDiagnostic::default()
        }
    }

    fn range(&self, span: Span) -> Range {
        self.lines.range(span.start as usize..span.end as usize)
    }

    /// Returns a place of this text or another one.
    pub(crate) fn location(&self, span: Span) -> Location {
        if span.source == OWN {
            return Location { uri: self.uri.clone(), range: self.range(span) };
        }
        let source = self.sources.get(span.source);
        let lines = LineTable::new(source.text.clone(), self.unit);
        let range = lines.range(span.start as usize..span.end as usize);
        Location { uri: uri_of(&source.name), range }
    }
}
