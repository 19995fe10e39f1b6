//! The page that leads to those of the algorithms: a table and curves for each collective.

use std::fmt::Write;

use super::page::{FOOT, curves, escaped, file_name, head, link, percent};
use super::study::AlgorithmStudy;

/// Returns the page.
pub(super) fn index(studies: &[AlgorithmStudy]) -> String {
    let mut out = head("The algorithms of roundelay");
    out.push_str("<h1>The algorithms of roundelay</h1>\n");
    let _ = writeln!(
        out,
        "<p>{} algorithms, each written in roundelay's language and proved at the rank counts that its page names. \
         Everything here is made from the algorithms' files by <code>roundelay atlas</code>.</p>",
        studies.len()
    );
    let mut collectives: Vec<&str> = studies.iter().map(|s| s.collective.as_str()).collect();
    collectives.dedup();
    out.push_str("<nav>");
    for name in &collectives {
        let name = escaped(name);
        let _ = write!(out, "<a href=\"#{name}\">{name}</a> ");
    }
    out.push_str("</nav>\n");
    for name in collectives {
        let own: Vec<&AlgorithmStudy> = studies.iter().filter(|s| s.collective == name).collect();
        section(&mut out, name, &own);
    }
    out + FOOT
}

fn section(out: &mut String, collective: &str, own: &[&AlgorithmStudy]) {
    let name = escaped(collective);
    let _ = writeln!(out, "<h2 id=\"{name}\">{name}</h2>\n<table>");
    out.push_str(
        "<tr><th>algorithm<th>rounds<th>vectors that the busiest rank sends<th>at<th>longest chain (bound)\
         <th>beyond the fewest bytes<th>order of additions</tr>\n",
    );
    for study in own {
        let formula = |f: &Option<super::formula::FittedFormula>| {
            f.as_ref().map_or("–".into(), |f| escaped(&f.to_string()))
        };
        let _ = write!(
            out,
            "<tr><td>{}<td>{}<td>{}",
            link(&file_name(&study.title), &study.title),
            formula(&study.rounds),
            formula(&study.sent)
        );
        if let Some((shape, proof)) = study.usual() {
            let bound = proof.rounds_bound().map_or("–".into(), |(rounds, _)| rounds.to_string());
            let _ = write!(
                out,
                "<td class=\"n\">{shape}<td class=\"n\">{} ({bound})<td class=\"n\">{}<td>{}",
                proof.checked.facts.depth,
                proof.gap().map_or("–".into(), percent),
                proof.order()
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
    out.push_str(&curves(own, None));
}
