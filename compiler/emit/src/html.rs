//! An algorithm as a drawing: one HTML file that needs nothing else.
//!
//! Ranks are rows and rounds are columns; beside them stands the source. The drawing and the listing
//! are plain markup; the script only adds highlighting, isolation, keys and zoom. What it needs to
//! know of an arrow are attributes: `id` is the step (`s12`), `data-r` the round, `data-s` the source
//! rank, `data-c` the runs of chunks written (`0-2 5`), `data-l` the source text and line (`0:12`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::{Diagnostic, DiagnosticSeverity};
use roundelay_dsl::span::{SourceId, SourceMap, Span};

use super::arrow::{DrawingLayout, DrawnTransfer, lay_out};
use roundelay_compiler::graph::{ChunkTransfer, StepGraph, region_text};
use roundelay_compiler::num::{count, index, signed};
use roundelay_compiler::plan::PlanRegion;

/// Most arrows in one drawing.
const ARROWS: usize = 20_000;
/// Most chunks in the legend.
const LEGEND: u32 = 512;
/// Most colours.
const LEVELS: u32 = 64;

/// Up to eight chunks have the colours of Okabe and Ito, on light and on dark ground.
const FEW: [(&str, &str); 8] = [
    ("#0072b2", "#4aa8e8"),
    ("#d55e00", "#f0772a"),
    ("#009e73", "#1fc795"),
    ("#c25d96", "#e08fbd"),
    ("#e69f00", "#e69f00"),
    ("#40a4dd", "#8fd3ff"),
    ("#a39a00", "#f0e442"),
    ("#3c4350", "#d3d8e0"),
];
/// More have those of viridis, whose order can be seen without seeing hues.
const MANY: [[i64; 3]; 10] = [
    [68, 1, 84],
    [72, 40, 120],
    [62, 73, 137],
    [49, 104, 142],
    [38, 130, 142],
    [31, 158, 137],
    [53, 183, 121],
    [110, 206, 88],
    [181, 222, 43],
    [253, 231, 37],
];

/// Draws a graph as one HTML file.
///
/// The file refers to nothing outside itself and works offline, with keyboard or pointer, in light
/// and dark mode. More than 20,000 steps are not drawn: the file says which rounds it leaves out.
/// `sources` must be the texts that the graph was made from.
pub fn html(graph: &StepGraph, sources: &SourceMap) -> String {
    draw(graph, sources, &[], ARROWS)
}

/// Draws a graph that was refuted, as [`html`], under the words of its faults.
pub fn html_of_refuted(graph: &StepGraph, sources: &SourceMap, faults: &[Diagnostic]) -> String {
    draw(graph, sources, faults, ARROWS)
}

/// Returns the file, with at most `cap` arrows.
fn draw(graph: &StepGraph, sources: &SourceMap, faults: &[Diagnostic], cap: usize) -> String {
    let (shown, layout) = lay_out(graph, cap);
    let chunks = chunk_count(graph);
    let mut page = HtmlPage { graph, sources, chunks, lines: BTreeMap::new(), out: String::new() };
    page.head();
    page.header();
    page.faults(faults);
    page.left_out(&shown);
    page.legend();
    page.out.push_str("<main>\n");
    page.drawing(&shown, &layout);
    page.listing(&shown);
    page.out.push_str("</main>\n<div id=\"tip\" hidden></div>\n<script>\n");
    page.out.push_str(include_str!("html.js"));
    page.out.push_str("</script>\n</body>\n</html>\n");
    page.out
}

/// Returns the largest number of chunks of a buffer that is written.
fn chunk_count(graph: &StepGraph) -> u32 {
    let pieces = graph.graph.node_weights().flat_map(|t| &t.to.pieces);
    pieces.map(|p| p.set.modulus).max().unwrap_or(1).max(1)
}

/// Returns text as HTML shows it, in elements and in attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Returns a count with its noun: `1 round`, `2 rounds`.
fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns the chunks of a region as runs, ascending: `0-2 5`.
fn runs(region: &PlanRegion) -> String {
    let mut runs: Vec<(u32, u32)> = region.pieces.iter().flat_map(|p| p.set.runs()).collect();
    runs.sort_unstable();
    runs.dedup();
    let parts: Vec<String> = runs
        .iter()
        .map(|&(a, len)| if len == 1 { a.to_string() } else { format!("{a}-{}", a + len - 1) })
        .collect();
    parts.join(" ")
}

/// Returns the colours of `levels` chunks or groups of chunks, on light and on dark ground.
fn palette(levels: u32) -> Vec<(String, String)> {
    if index(levels) <= FEW.len() {
        let few = FEW.iter().take(index(levels));
        return few.map(|&(light, dark)| (light.into(), dark.into())).collect();
    }
    // In thousandths of the scale; the ends that the ground would swallow are left out.
    let colour = |from: i64, to: i64, level: u32| {
        let at = from + (to - from) * i64::from(level) / (i64::from(levels) - 1);
        let scaled = at * (signed(MANY.len()) - 1);
        let (i, part) = (index(scaled / 1000), scaled % 1000);
        let next = MANY[(i + 1).min(MANY.len() - 1)];
        let mix = |k: usize| MANY[i][k] + (next[k] - MANY[i][k]) * part / 1000;
        format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
    };
    (0..levels).map(|level| (colour(0, 820, level), colour(280, 1000, level))).collect()
}

/// The file being written.
struct HtmlPage<'a> {
    graph: &'a StepGraph,
    sources: &'a SourceMap,
    /// Chunks that have a colour.
    chunks: u32,
    /// The lines of spans that were asked for.
    lines: BTreeMap<Span, u32>,
    out: String,
}

/// Appends a formatted line to a page.
macro_rules! put {
    ($page:expr, $($arg:tt)*) => {{ let _ = writeln!($page.out, $($arg)*); }};
}

impl HtmlPage<'_> {
    fn levels(&self) -> u32 {
        self.chunks.min(LEVELS)
    }

    /// Returns the colour of a chunk.
    fn level(&self, chunk: u32) -> u32 {
        count(u64::from(chunk) * u64::from(self.levels()) / u64::from(self.chunks))
    }

    fn line(&mut self, span: Span) -> u32 {
        let sources = self.sources;
        *self.lines.entry(span).or_insert_with(|| sources.line_column(span).0)
    }

    fn name(&self) -> String {
        let program = &self.graph.instance.program;
        escape(&format!("{}.{}", program.kind.name(), program.name))
    }

    fn head(&mut self) {
        put!(self, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">");
        put!(self, "<meta name=\"viewport\" content=\"width=device-width\">");
        put!(
            self,
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
        );
        put!(self, "<title>{} on {} ranks</title>", self.name(), self.graph.instance.shape);
        put!(self, "<style>\n{}", include_str!("html.css").trim_end());
        for (level, (light, dark)) in palette(self.levels()).iter().enumerate() {
            put!(self, ".k{level} {{ --c: light-dark({light}, {dark}); }}");
        }
        put!(self, "</style>");
        put!(self, "</head>\n<body>");
    }

    fn header(&mut self) {
        let instance = &self.graph.instance;
        let steps = self.graph.graph.node_count();
        let messages = self.graph.graph.node_weights().filter(|t| t.src != t.dst).count();
        let shape = match instance.shape.axes.len() {
            1 => instance.shape.to_string(),
            _ => format!("{} = {}", instance.shape, instance.ranks()),
        };
        put!(self, "<header>\n<h1>{}</h1>\n<dl>", self.name());
        let facts = [
            ("ranks", shape),
            ("chunks", instance.spec.chunks.to_string()),
            ("rounds", self.graph.rounds.to_string()),
            ("messages", messages.to_string()),
            ("local steps", (steps - messages).to_string()),
        ];
        for (what, value) in facts {
            put!(self, "<div><dt>{what}</dt><dd>{value}</dd></div>");
        }
        put!(self, "</dl>\n<div id=\"zoom\" role=\"group\" aria-label=\"zoom\">");
        put!(self, "<button data-z=\"0.8\" aria-label=\"smaller\">−</button>");
        put!(self, "<button data-z=\"0\">100%</button>");
        put!(self, "<button data-z=\"1.25\" aria-label=\"larger\">+</button>\n</div>\n</header>");
    }

    /// Says why the graph was refused.
    fn faults(&mut self, faults: &[Diagnostic]) {
        for fault in faults.iter().filter(|fault| fault.severity == DiagnosticSeverity::Error) {
            let notes: String =
                fault.notes.iter().map(|note| format!("<br>{}", escape(note))).collect();
            put!(
                self,
                "<p class=\"note\" role=\"alert\"><strong>{}: {}</strong>{notes}</p>",
                fault.code.0,
                escape(&fault.message)
            );
        }
    }

    /// Says what is not drawn.
    fn left_out(&mut self, shown: &[DrawnTransfer<'_>]) {
        let all = self.graph.graph.node_count();
        let Some(last) = shown.last().map(|s| s.transfer.round) else {
            let why = if all == 0 { "Nothing moves." } else { "Nothing is drawn." };
            return put!(self, "<p class=\"note\">{why}</p>");
        };
        if shown.len() == all {
            return;
        }
        let rest = self.graph.graph.node_weights().filter(|t| t.round == last).count()
            - shown.iter().filter(|s| s.transfer.round == last).count();
        let part = match rest {
            0 => String::new(),
            rest => format!(", {rest} of them in round {last}"),
        };
        put!(
            self,
            "<p class=\"note\">Only the first {} are drawn, rounds 0 to {last} of {}: \
             {} more are left out{part}.</p>",
            plural(shown.len(), "step"),
            self.graph.rounds,
            all - shown.len()
        );
    }

    fn legend(&mut self) {
        put!(self, "<nav id=\"legend\" aria-label=\"legend\">");
        for (op, dash, fill) in
            [("copy", "", "currentColor"), ("reduce", " stroke-dasharray=\"6 3.5\"", "none")]
        {
            put!(
                self,
                "<span class=\"key\"><svg width=\"40\" height=\"12\" aria-hidden=\"true\">\
                 <path d=\"M0 6H30\" stroke=\"currentColor\" stroke-width=\"2.2\"{dash}/>\
                 <path d=\"M39 6L30 1.6L30 10.4z\" stroke=\"currentColor\" fill=\"{fill}\"/></svg>{op}</span>"
            );
        }
        put!(self, "<span class=\"key\">chunk written:</span>");
        put!(self, "<button aria-pressed=\"false\">all</button>");
        for chunk in 0..self.chunks.min(LEGEND) {
            let level = self.level(chunk);
            put!(
                self,
                "<button class=\"k{level}\" data-c=\"{chunk}\" aria-pressed=\"false\" \
                 aria-label=\"chunk {chunk} alone\">{chunk}</button>"
            );
        }
        if self.chunks > LEGEND {
            put!(self, "<span>and {} more</span>", self.chunks - LEGEND);
        }
        put!(self, "</nav>");
    }

    fn drawing(&mut self, shown: &[DrawnTransfer<'_>], layout: &DrawingLayout) {
        let (width, height) = (layout.width(), layout.height());
        put!(
            self,
            "<section id=\"pane\" tabindex=\"0\" aria-label=\"drawing\">\n<div id=\"grid\">"
        );
        put!(
            self,
            "<div id=\"corner\"><span class=\"r\">round</span><span class=\"k\">rank</span></div>"
        );
        put!(self, "<div id=\"rounds\" style=\"width:{width}px\">");
        for (round, (x, w)) in layout.columns.iter().enumerate() {
            put!(self, "<span style=\"left:{x}px;width:{w}px\">{round}</span>");
        }
        put!(self, "</div>\n<div id=\"ranks\" style=\"height:{height}px\">");
        let axes = &self.graph.instance.shape.axes;
        for rank in 0..self.graph.instance.ranks() {
            let place = if axes.len() > 1 {
                format!("<small>{}</small>", place(axes, rank))
            } else {
                String::new()
            };
            put!(self, "<span style=\"top:{}px\">r{rank}{place}</span>", layout.y(rank));
        }
        put!(self, "</div>");
        put!(
            self,
            "<svg id=\"steps\" width=\"{width}\" height=\"{height}\" role=\"group\" \
             aria-label=\"steps; the arrow keys go from one to the next\">"
        );
        self.steps(shown, layout);
        put!(self, "</svg>\n</div>\n</section>");
    }

    /// Draws what both the page and the picture alone have.
    fn steps(&mut self, shown: &[DrawnTransfer<'_>], layout: &DrawingLayout) {
        self.ground(layout);
        for s in shown {
            self.arrow(s, layout);
        }
    }

    /// Draws columns, groups of ranks, the line of each rank, and the dots where arrows start and end.
    fn ground(&mut self, layout: &DrawingLayout) {
        let (width, height) = (layout.width(), layout.height());
        let ranks = self.graph.instance.ranks();
        let axes = &self.graph.instance.shape.axes;
        for (x, w) in layout.columns.iter().skip(1).step_by(2) {
            put!(self, "<rect class=\"band\" x=\"{x}\" width=\"{w}\" height=\"{height}\"/>");
        }
        if let [_, .., group] = axes[..] {
            for first in (group..ranks).step_by(2 * index(group)) {
                let (y, h) = layout.rows(first, group);
                put!(self, "<rect class=\"group\" y=\"{y}\" width=\"{width}\" height=\"{h}\"/>");
            }
        }
        let mut dots = String::new();
        for rank in 0..ranks {
            let y = layout.y(rank);
            put!(self, "<path class=\"row\" d=\"M0 {y}H{width}\"/>");
            let _ = write!(dots, "M0 {y}h0");
        }
        put!(self, "<defs><path id=\"dots\" d=\"{dots}\"/></defs>");
        for &column in &layout.columns {
            let (left, right) = DrawingLayout::ends(column);
            if right > left + 40.0 {
                put!(self, "<use href=\"#dots\" x=\"{left}\"/><use href=\"#dots\" x=\"{right}\"/>");
            }
        }
    }

    fn arrow(&mut self, shown: &DrawnTransfer<'_>, layout: &DrawingLayout) {
        let t = shown.transfer;
        let lines = layout.arrow(shown);
        let line = self.line(t.span);
        let label = escape(&self.label(shown.id, t));
        put!(
            self,
            "<g id=\"s{}\" class=\"t {}\" tabindex=\"-1\" role=\"img\" aria-label=\"{label}\" \
             data-r=\"{}\" data-s=\"{}\" data-c=\"{}\" data-l=\"{}:{line}\">",
            shown.id,
            op(t.op),
            t.round,
            t.src,
            runs(&t.to),
            t.span.source.0
        );
        let _ = write!(self.out, "<path class=\"h\" d=\"{}\"/>", lines.hit);
        for (path, chunk) in &lines.strands {
            let _ = write!(self.out, "<path class=\"s k{}\" d=\"{path}\"/>", self.level(*chunk));
        }
        // The head of several strands has none of their colours.
        let colour = match lines.strands[..] {
            [(_, chunk)] => format!(" k{}", self.level(chunk)),
            _ => String::new(),
        };
        put!(self, "<path class=\"p{colour}\" d=\"{}\"/></g>", lines.head);
    }

    /// Returns a step in words.
    fn label(&self, id: usize, t: &ChunkTransfer) -> String {
        let i = &self.graph.instance;
        let (from, to) = (region_text(i, &t.from), region_text(i, &t.to));
        let to = if from == to { String::new() } else { format!(" → {to}") };
        let wire = t.wire.map_or(String::new(), |w| format!(" as {}", w.name()));
        let lane = if t.lane == 0 { String::new() } else { format!(", lane {}", t.lane) };
        format!(
            "round {}: r{} → r{}, {} {from}{to}{wire} (s{id}{lane})",
            t.round,
            t.src,
            t.dst,
            op(t.op)
        )
    }

    /// Writes the texts, their lines with arrows marked.
    fn listing(&mut self, shown: &[DrawnTransfer<'_>]) {
        let program = self.graph.instance.program.clone();
        let mut arrows: BTreeMap<(SourceId, u32), usize> = BTreeMap::new();
        for s in shown {
            let line = self.line(s.transfer.span);
            *arrows.entry((s.transfer.span.source, line)).or_default() += 1;
        }
        let own = program.header.source;
        let others: BTreeSet<SourceId> = program
            .sources
            .iter()
            .copied()
            .chain(arrows.keys().map(|k| k.0))
            .filter(|&s| s != own)
            .collect();
        put!(self, "<aside id=\"source\" aria-label=\"source\">\n<div>");
        let sources = self.sources;
        for id in std::iter::once(own).chain(others) {
            let source = sources.get(id);
            put!(self, "<h2>{}</h2>", escape(&source.name));
            for (number, text) in (source.line..).zip(source.text.lines()) {
                let count = arrows.get(&(id, number)).copied().unwrap_or(0);
                let code = code(text);
                if count == 0 {
                    put!(
                        self,
                        "<div class=\"line\"><span class=\"no\">{number}</span><code>{code}</code></div>"
                    );
                    continue;
                }
                put!(
                    self,
                    "<div class=\"line has\" role=\"button\" tabindex=\"0\" data-l=\"{}:{number}\" \
                     data-at=\"{}:{number}\"><span class=\"no\">{number}</span><code>{code}</code>\
                     <span class=\"n\">{}</span></div>",
                    id.0,
                    escape(&source.name),
                    plural(count, "step")
                );
            }
        }
        put!(self, "</div>\n</aside>");
    }
}

fn op(op: TransferOp) -> &'static str {
    match op {
        TransferOp::Copy => "copy",
        TransferOp::Reduce => "reduce",
    }
}

/// Returns the coordinates of a rank on a grid, slowest first.
fn place(axes: &[u32], rank: u32) -> String {
    let mut rest = rank;
    let mut parts: Vec<String> = Vec::new();
    for &axis in axes.iter().rev() {
        parts.push((rest % axis).to_string());
        rest /= axis;
    }
    parts.reverse();
    parts.join(",")
}

/// Returns a line of source in HTML, its comment marked.
fn code(text: &str) -> String {
    let (code, comment) = text.split_at(text.find("//").unwrap_or(text.len()));
    match comment {
        "" => escape(code),
        comment => format!("{}<i>{}</i>", escape(code), escape(comment)),
    }
}

pub(super) mod svg;
#[cfg(test)]
mod tests;
