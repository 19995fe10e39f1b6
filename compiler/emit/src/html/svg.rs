//! The drawing alone, as an SVG file for documents: on light ground, without source and script.

use std::collections::BTreeMap;
use std::fmt::Write;

use roundelay_dsl::span::SourceMap;

use super::{ARROWS, HtmlPage, chunk_count, lay_out, palette};
use roundelay_compiler::graph::StepGraph;

/// Width left of the rounds, for the names of ranks.
const LEFT: f64 = 64.0;
/// Height above the ranks, for the legend and the numbers of rounds.
const TOP: f64 = 56.0;
/// Least width, for the legend.
const LEAST: f64 = 420.0;
/// Most chunks in the legend.
const LEGEND: u32 = 8;

/// The style of each class of the drawing. Programs that draw SVG know neither variables nor `light-dark`.
const STYLE: &str = "\
svg { color: #59616d; font: 12px ui-monospace, \"DejaVu Sans Mono\", Menlo, Consolas, monospace; }
text { fill: #1b1f24; }
.faint { fill: #59616d; }
.ground { fill: #ffffff; }
.band { fill: #f6f7f9; }
.group { fill: #e9edf3; opacity: .6; }
.row { stroke: #d5d9e0; }
#dots { stroke: #59616d; stroke-width: 5; stroke-linecap: round; }
.h { display: none; }
.s { fill: none; stroke: currentColor; stroke-width: 2.2; }
.p { fill: currentColor; stroke: currentColor; stroke-width: 1.2; stroke-linejoin: round; }
.reduce .s { stroke-dasharray: 6 3.5; }
.reduce .p { fill: #ffffff; stroke-width: 1.8; }
.c { fill: currentColor; }
";

/// Draws a graph as one SVG file, as the page of [`html`](super::html()) does, without what the page has beside it.
///
/// More than 20,000 steps are not drawn: the file says how many it has.
/// `sources` must be the texts that the graph was made from.
pub fn svg(graph: &StepGraph, sources: &SourceMap) -> String {
    let (shown, layout) = lay_out(graph, ARROWS);
    let chunks = chunk_count(graph);
    let mut page = HtmlPage { graph, sources, chunks, lines: BTreeMap::new(), out: String::new() };
    let (width, height) = ((LEFT + layout.width()).max(LEAST), TOP + layout.height());
    put!(
        page,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">"
    );
    put!(page, "<title>{} on {} ranks</title>", page.name(), graph.instance.shape);
    put!(page, "<style>\n{}", STYLE.trim_end());
    for (level, (light, _)) in palette(page.levels()).iter().enumerate() {
        put!(page, ".k{level} {{ color: {light}; }}");
    }
    put!(page, "</style>\n<rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>");
    page.key();
    if shown.len() < graph.graph.node_count() {
        let all = graph.graph.node_count();
        put!(page, "<text x=\"440\" y=\"20\">the first {} of {all} steps</text>", shown.len());
    }
    put!(page, "<text class=\"faint\" x=\"8\" y=\"46\">round</text>");
    for (round, (x, w)) in layout.columns.iter().enumerate() {
        let middle = LEFT + x + w / 2.0;
        put!(
            page,
            "<text class=\"faint\" x=\"{middle}\" y=\"46\" text-anchor=\"middle\">{round}</text>"
        );
    }
    for rank in 0..graph.instance.ranks() {
        put!(page, "<text x=\"8\" y=\"{}\">r{rank}</text>", TOP + layout.y(rank) + 4.0);
    }
    put!(page, "<g transform=\"translate({LEFT} {TOP})\">");
    page.steps(&shown, &layout);
    put!(page, "</g>\n</svg>");
    page.out
}

impl HtmlPage<'_> {
    /// Draws what lines and colours stand for.
    fn key(&mut self) {
        for (x, op) in [(8, "copy"), (100, "reduce")] {
            let text = x + 46;
            put!(
                self,
                "<g class=\"{op}\"><path class=\"s\" d=\"M{x} 16h30\"/>\
                 <path class=\"p\" d=\"M{} 16l-9 -4.4v8.8z\"/></g>\
                 <text class=\"faint\" x=\"{text}\" y=\"20\">{op}</text>",
                x + 39
            );
        }
        put!(self, "<text class=\"faint\" x=\"208\" y=\"20\">chunk</text>");
        for chunk in 0..self.chunks.min(LEGEND) {
            let (x, level) = (254 + 20 * chunk, self.level(chunk));
            put!(
                self,
                "<text class=\"c k{level}\" x=\"{x}\" y=\"20\" font-weight=\"bold\">{chunk}</text>"
            );
        }
    }
}
