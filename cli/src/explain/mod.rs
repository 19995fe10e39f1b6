//! Implements `roundelay explain`: prints the page of an error code, or the choice of an algorithm (`choice`).

mod choice;

use roundelay_dsl::diag::{codes, similar};
use serde::Serialize;

use crate::args::ExplainArgs;
use crate::report::{VerbError, VerbReport, VerbResult, print};

include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// A code as programs read it.
#[derive(Serialize)]
struct CodeRow<'a> {
    code: &'a str,
    title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<&'a str>,
}

/// Runs the verb.
pub(crate) fn explain(args: &ExplainArgs, report: VerbReport) -> VerbResult {
    let Some(wanted) = &args.what else {
        for (code, title) in codes::ALL {
            report.line(format!("{code}  {title}"));
            report.result(&CodeRow { code: code.0, title, page: None });
        }
        return Ok(());
    };
    if wanted == "hints" {
        return hints(report);
    }
    if !wanted.to_ascii_uppercase().starts_with("RL") {
        return choice::explain(args, wanted, report);
    }
    let Some((code, title)) = codes::find(wanted) else {
        return Err(VerbError::Usage(unknown(wanted)));
    };
    let page = PAGES.iter().find(|(c, _)| *c == code.0).map(|(_, page)| *page);
    if report.json {
        report.result(&CodeRow { code: code.0, title, page });
    } else {
        print(page.unwrap_or(title));
    }
    Ok(())
}

/// Prints all hints, from the table that they are read by.
fn hints(report: VerbReport) -> VerbResult {
    for row in roundelay::hints::TABLE {
        report.line(format!("{}={}", row.name, row.example));
        report.line(format!("    takes {}. {}\n", row.values, row.meaning));
        report.result(&serde_json::json!({
            "hint": row.name, "values": row.values, "meaning": row.meaning, "example": row.example,
        }));
    }
    Ok(())
}

fn unknown(wanted: &str) -> String {
    let wanted = wanted.to_ascii_uppercase();
    let all = codes::ALL.iter().map(|(c, _)| c.0);
    let family: Vec<&str> = match wanted.get(..4) {
        Some(family) => all.clone().filter(|c| c.starts_with(family)).collect(),
        None => Vec::new(),
    };
    let near = match (family.is_empty(), similar(&wanted, all)) {
        (false, _) => format!("near it are {}", family.join(", ")),
        (true, Some(code)) => format!("did you mean {code}?"),
        (true, None) => "`roundelay explain` lists all".into(),
    };
    format!("no error has the code `{wanted}`; {near}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page() {
        for (code, _) in codes::ALL {
            assert!(PAGES.iter().any(|(c, _)| *c == code.0), "{code} has no page");
        }
    }
}
