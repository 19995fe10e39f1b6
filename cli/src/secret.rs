//! `roundelay secret`: a random secret for a job.

use serde::Serialize;

use crate::report::{VerbReport, VerbResult};

/// The bytes of a secret, before they are written in hexadecimal.
const SECRET_BYTES: usize = 32;

/// The result of the verb.
#[derive(Debug, Serialize)]
struct SecretReport {
    secret: String,
}

/// Runs the verb.
pub(crate) fn secret(report: VerbReport) -> VerbResult {
    let bytes: [u8; SECRET_BYTES] = roundelay::internal::random_bytes()?;
    let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    report.line(&secret);
    report.result(&SecretReport { secret });
    Ok(())
}
