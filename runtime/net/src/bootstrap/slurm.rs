//! Reads the variables of Slurm: the step, its hosts, and the port that follows from them.

use super::launch_variables::{LaunchReport, LaunchVariables, wrong};
use super::membership::{LauncherKind, StoreAt};
use roundelay_support::error::Error;

/// The first of the step numbers that are Slurm's own: the batch script, an interactive shell.
const NO_STEP: u64 = 0xffff_fff0;
/// The ports to choose from: above those that systems give away by themselves.
const PORTS: std::ops::Range<u64> = 61_000..65_535;

/// Describes this process as a task of a step, if srun started it.
pub(super) fn detect(vars: &LaunchVariables) -> Result<Option<LaunchReport>, Error> {
    let Some(step) = vars.text("SLURM_STEP_ID")? else { return Ok(None) };
    let Ok(number) = step.parse::<u64>() else {
        return Err(wrong(format!(
            "SLURM_STEP_ID={step} is not a number: start the ranks with srun, or unset it"
        )));
    };
    if number >= NO_STEP {
        return Ok(None);
    }
    let Some(rank) = vars.number("SLURM_PROCID")? else { return Ok(None) };
    // SLURM_NTASKS may be that of the whole job.
    let size = match vars.number("SLURM_STEP_NUM_TASKS")? {
        Some(size) => size,
        None => vars.number("SLURM_NTASKS")?.ok_or_else(|| {
            wrong(format!(
                "SLURM_PROCID={} is set, but neither SLURM_STEP_NUM_TASKS nor SLURM_NTASKS is: \
                 start the ranks with srun -n",
                rank.value
            ))
        })?,
    };
    let store = store(vars, number);
    Ok(Some(LaunchReport { rank, size, launcher: LauncherKind::Slurm, store }))
}

fn store(vars: &LaunchVariables, step: u64) -> Result<StoreAt, Error> {
    let Some(id) = vars.first(&["SLURM_JOB_ID", "SLURM_JOBID"])? else {
        return Err(wrong("SLURM_JOB_ID is not set: start the ranks with srun".into()));
    };
    let number: u64 = id.parse().map_err(|_| {
        wrong(format!("SLURM_JOB_ID={id} is not a number: start the ranks with srun"))
    })?;
    let job = format!("slurm/{number}.{step}");
    let Some(list) = hosts(vars)? else {
        return Err(wrong(
            "SLURM_STEP_NODELIST is not set: start the ranks with srun, or set \
             ROUNDELAY_STORE=host:port for all of them"
                .into(),
        ));
    };
    if one_host(vars)? {
        return Ok(StoreAt::Local { job });
    }
    let host = first_host(list).ok_or_else(|| {
        wrong(format!(
            "SLURM_STEP_NODELIST={list} cannot be read: set ROUNDELAY_STORE=host:port for all \
             ranks, where host is that of rank 0"
        ))
    })?;
    // Another job that hits the same port on the same host is distinguished by its name.
    let port =
        PORTS.start + (number.wrapping_mul(31).wrapping_add(step)) % (PORTS.end - PORTS.start);
    Ok(StoreAt::Address { host, port: port as u16, job })
}

fn hosts(vars: &LaunchVariables) -> Result<Option<&str>, Error> {
    vars.first(&["SLURM_STEP_NODELIST", "SLURM_NODELIST"])
}

/// Returns true if all tasks are on this host.
pub(super) fn one_host(vars: &LaunchVariables) -> Result<bool, Error> {
    Ok(hosts(vars)?.is_some_and(|list| !list.contains([',', '['])))
}

/// Returns the first host of a list like `a[01-03,7]-ib,b`: `a01-ib`. By default rank 0 is there.
pub(crate) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    loop {
        let Some(at) = rest.find(['[', ']', ',']) else {
            host.push_str(rest);
            break;
        };
        let (name, tail) = rest.split_at(at);
        host.push_str(name);
        match tail.as_bytes()[0] {
            b',' => break,
            b'[' => {
                let (inner, after) = tail[1..].split_once(']')?;
                let first = inner.split([',', '-']).next()?;
                if first.is_empty() || !first.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                host.push_str(first);
                rest = after;
            }
            _ => return None,
        }
    }
    (!host.is_empty()).then_some(host)
}
