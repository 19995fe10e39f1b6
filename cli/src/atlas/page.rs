//! The page of an algorithm.

use std::fmt::Write;

use super::study::{AlgorithmStudy, CostCurve};
use crate::job::table::{ResultRow, bus_factor};
use crate::plot::BenchPlot;
pub(super) use crate::plot::escaped;
use crate::values::size_text;

/// The file of the page that leads to the others.
pub(super) const INDEX: &str = "index.html";
/// The end of every page.
pub(super) const FOOT: &str = "</main>\n</body>\n</html>\n";

/// Returns the beginning of a page.
pub(super) fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n",
        escaped(title),
        include_str!("atlas.css")
    )
}

/// Returns the name of the file of an algorithm's page.
pub(super) fn file_name(title: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || matches!(c, '.' | '_') { c } else { '-' };
    title.chars().map(plain).collect::<String>() + ".html"
}

/// Returns the name of the file of its picture. It stands apart, as its style would go beyond it.
pub(super) fn picture_name(title: &str) -> String {
    file_name(title).replace(".html", ".svg")
}

/// Returns a link to a page.
pub(super) fn link(to: &str, text: &str) -> String {
    format!("<a href=\"{}\">{}</a>", escaped(to), escaped(text))
}

/// Returns a part of one as people read it.
pub(super) fn percent(part: f64) -> String {
    format!("{:+.0} %", part * 100.0)
}

/// Returns the page of an algorithm; `all` are those that it is compared with.
pub(super) fn page(study: &AlgorithmStudy, all: &[AlgorithmStudy], rows: &[ResultRow]) -> String {
    let mut out = head(&study.title);
    let _ = writeln!(out, "<nav>{}</nav>", link(INDEX, "all algorithms"));
    let _ = writeln!(out, "<h1>{}</h1>", escaped(&study.title));
    badge(&mut out, study);
    for paragraph in &study.about {
        let _ = writeln!(out, "<p>{}</p>", escaped(paragraph));
    }
    formulas(&mut out, study);
    proofs(&mut out, study);
    if let Some((shape, _)) = &study.drawing {
        let _ = writeln!(
            out,
            "<h2>On {shape} ranks</h2>\n<div class=\"wide\"><img src=\"{}\" alt=\"its messages, round by round\"></div>",
            escaped(&picture_name(&study.title))
        );
    }
    let same: Vec<&AlgorithmStudy> =
        all.iter().filter(|s| s.collective == study.collective).collect();
    let curves = curves(&same, Some(study));
    if !curves.is_empty() {
        out.push_str("<h2>Time by the cost model</h2>\n");
        out.push_str(&best(study, &same));
        out.push_str(&curves);
    }
    measured(&mut out, study, rows);
    kernels(&mut out, study);
    let _ = writeln!(
        out,
        "<h2>The text</h2>\n<p><code>{}</code></p>\n<pre>{}</pre>",
        escaped(&study.file),
        pre(&study.text)
    );
    out + FOOT
}

/// Escapes a text of several lines.
fn pre(text: &str) -> String {
    text.lines().map(|line| escaped(&line.replace('\t', "    ")) + "\n").collect()
}

/// Says where it is proved.
fn badge(out: &mut String, study: &AlgorithmStudy) {
    let shapes: Vec<String> = study.proofs.iter().map(|(shape, _)| shape.to_string()).collect();
    let _ = write!(out, "<p class=\"badge\">proved at {}", shapes.join(", "));
    if !study.not_allowed.is_empty() {
        let shapes: Vec<String> = study.not_allowed.iter().map(ToString::to_string).collect();
        let _ = write!(out, "; not meant for {}", shapes.join(", "));
    }
    out.push_str("</p>\n");
}

fn formulas(out: &mut String, study: &AlgorithmStudy) {
    let axes = match &study.axes[..] {
        [one] => format!("{one} ranks"),
        several => format!("{} ranks", several.join(" × ")),
    };
    let _ = write!(out, "<table>\n<tr><th>ranks<td>{}</tr>\n", escaped(&axes));
    for parameter in &study.parameters {
        let _ = writeln!(out, "<tr><th>parameter<td>{}</tr>", escaped(parameter));
    }
    let rows = [("rounds", &study.rounds), ("vectors that the busiest rank sends", &study.sent)];
    for (what, found) in rows {
        let text = found.as_ref().map_or_else(
            || "no short formula fits: see the table".into(),
            |formula| escaped(&formula.to_string()),
        );
        let _ = writeln!(out, "<tr><th>{what}<td>{text}</tr>");
    }
    out.push_str("</table>\n<p class=\"note\">Formulas fit what was proved below exactly; they are not derived. \
         Copies within a rank take a round of their own.</p>\n");
}

fn proofs(out: &mut String, study: &AlgorithmStudy) {
    out.push_str(
        "<h2>Distance from the bounds</h2>\n<details><summary>at each number of ranks</summary>\n<table>\n\
         <tr><th>ranks<th>rounds<th>longest chain<th>bound<th>sent<th>bound<th>beyond<th>slots<th>order of additions</tr>\n",
    );
    for (shape, proof) in &study.proofs {
        let number = |x: Option<f64>| x.map_or("–".into(), |x| format!("{x:.3}"));
        let bound = proof.rounds_bound().map_or("–".into(), |(rounds, ports)| match ports {
            1 => rounds.to_string(),
            _ => format!("{rounds}, {ports} ports"),
        });
        let _ = writeln!(
            out,
            "<tr><td>{shape}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{bound}<td class=\"n\">{}<td class=\"n\">{}\
             <td class=\"n\">{}<td class=\"n\">{}<td>{}</tr>",
            proof.rounds.map_or("–".into(), |rounds| rounds.to_string()),
            proof.checked.facts.depth,
            number(proof.sent()),
            number(proof.sent_bound()),
            proof.gap().map_or("–".into(), percent),
            proof.checked.least_slots.map_or("–".into(), |slots| slots.to_string()),
            proof.order()
        );
    }
    out.push_str("</table>\n</details>\n");
}

/// Draws the predicted times of several algorithms; one of them may stand out.
pub(super) fn curves(all: &[&AlgorithmStudy], own: Option<&AlgorithmStudy>) -> String {
    let mut plot = BenchPlot::default();
    let is_own = |study: &AlgorithmStudy| own.is_some_and(|own| own.title == study.title);
    let mut ordered = all.to_vec();
    ordered.sort_by_key(|study| !is_own(study));
    for study in ordered {
        // A page of one algorithm shows the places that it allows.
        let shown =
            |c: &&CostCurve| own.is_none_or(|own| own.curves.iter().any(|o| o.place == c.place));
        for curve in study.curves.iter().filter(shown) {
            let name = study.title.split_once('.').map_or("", |(_, name)| name);
            let factor = bus_factor(&study.collective, curve.ranks);
            for &(bytes, time_us) in &curve.points {
                plot.add_point(curve.place, name, is_own(study), bytes, time_us, factor);
            }
        }
    }
    plot.draw().map_or(String::new(), |svg| format!("<div class=\"wide\">{svg}</div>\n"))
}

/// Says where the model has none that is faster.
fn best(study: &AlgorithmStudy, same: &[&AlgorithmStudy]) -> String {
    let mut places = Vec::new();
    for curve in &study.curves {
        let others = || {
            // What rounds is another result.
            let other =
                same.iter().filter(|s| s.title != study.title && s.is_lossy() <= study.is_lossy());
            other.flat_map(|s| &s.curves).filter(|c| c.place == curve.place)
        };
        let wins: Vec<u64> = curve
            .points
            .iter()
            .enumerate()
            .filter(|(i, (_, time))| others().all(|o| o.points[*i].1 >= *time))
            .map(|(_, &(bytes, _))| bytes)
            .collect();
        // Runs of sizes, each twice the one before.
        let runs = wins.chunk_by(|a, b| a * 2 == *b).map(|run| match run {
            [one] => size_text(*one),
            [first, .., last] => format!("{} to {}", size_text(*first), size_text(*last)),
            [] => String::new(),
        });
        let runs: Vec<String> = runs.collect();
        if !runs.is_empty() {
            places.push(format!("on {} from {}", curve.place, runs.join(", ")));
        }
    }
    match &places[..] {
        [] => "<p>On these topologies another algorithm is faster at every size.</p>\n".into(),
        places => format!("<p>The fastest {}.</p>\n", escaped(&places.join("; "))),
    }
}

/// Shows the rows that were measured.
fn measured(out: &mut String, study: &AlgorithmStudy, rows: &[ResultRow]) {
    let name = study.title.split_once('.').map_or("", |(_, name)| name);
    let own = rows.iter().filter(|r| r.collective == study.collective && r.algorithm == name);
    let mut plot = BenchPlot::default();
    for row in own {
        let title = format!("{} ranks, {}", row.ranks, row.transport);
        let factor = bus_factor(&row.collective, row.ranks);
        plot.add_point(&title, name, true, row.bytes, row.time_us, factor);
    }
    if let Some(svg) = plot.draw() {
        let _ = writeln!(out, "<h2>Measured</h2>\n<div class=\"wide\">{svg}</div>");
    }
}

fn kernels(out: &mut String, study: &AlgorithmStudy) {
    if study.kernels.is_empty() {
        return;
    }
    out.push_str(
        "<h2>On GPUs</h2>\n<p class=\"note\">The program of the busiest rank, for f32 and sums, at the ranks of the \
         drawing.</p>\n<table>\n<tr><th>protocol<th>phases<th>tasks<th>connections<th>lines of CUDA</tr>\n",
    );
    for kernel in &study.kernels {
        let _ = write!(out, "<tr><td>{}", kernel.protocol);
        match &kernel.found {
            Ok(facts) => facts.iter().for_each(|fact| {
                let _ = write!(out, "<td class=\"n\">{fact}");
            }),
            Err(why) => {
                let _ = write!(out, "<td colspan=\"4\">{}", escaped(why));
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}
