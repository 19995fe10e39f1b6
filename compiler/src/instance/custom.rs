//! Declared collectives at one rank count: their postconditions as a table.

use roundelay_dsl::diag::{Diagnostic, codes};

use super::{Fail, MAX_CHUNKS, index_set, value};
use crate::collective::CustomSpec;
use crate::program::{Binder, Custom, Expr};

/// Chunks of input and output of a declared collective.
pub(super) fn custom_sizes(custom: &Custom, env: &[i64]) -> Result<(u32, u32), Fail> {
    let mut own = vec![0i64; custom.slots.len()];
    own[0] = env[0];
    for (i, &slot) in custom.axes.sizes.iter().enumerate() {
        own[slot as usize] = if custom.axes.grid { env[1 + i] } else { env[0] };
    }
    let mut size = |e: &Expr| {
        let v = value(e, &mut own)?;
        if (0..=MAX_CHUNKS).contains(&v) {
            Ok(v as u32)
        } else {
            Err(Box::new(
                Diagnostic::error(codes::CHUNKS, format!("{v} chunks are out of range"))
                    .label(e.span, "here"),
            ))
        }
    };
    Ok((size(&custom.input)?, size(&custom.output)?))
}

/// Evaluates the postconditions of a declared collective.
pub(super) fn custom_spec(custom: &Custom, n: u32, env: &[i64]) -> Result<CustomSpec, Fail> {
    let (input, output) = custom_sizes(custom, env)?;
    let mut own = vec![0i64; custom.slots.len()];
    own[0] = env[0];
    for (i, &slot) in custom.axes.sizes.iter().enumerate() {
        own[slot as usize] = if custom.axes.grid { env[1 + i] } else { env[0] };
    }
    let cells = n as u64 * output as u64;
    if cells > 1 << 26 {
        return Err(Box::new(
            Diagnostic::error(
                codes::TOO_BIG,
                "a declared collective is tabulated, and this one is too large",
            )
            .label(custom.span, "here"),
        ));
    }
    let mut expected = vec![None; cells as usize];
    for ensure in &custom.ensures {
        for rank in 0..n {
            if let Some(var) = ensure.var {
                own[var as usize] = rank as i64;
            }
            let mut found: Vec<(Vec<u32>, Vec<u32>, Vec<u32>)> = Vec::new();
            bind(&ensure.binders, &mut own, &mut |own| {
                let target = index_set(&ensure.target, own, output, ensure.span)?;
                let (mut ranks, mut source) = (Vec::new(), None);
                let mut one = |own: &mut [i64]| {
                    let at = value(&ensure.at.linear, own)?;
                    if !(0..n as i64).contains(&at) {
                        return Err(Box::new(
                            Diagnostic::error(codes::RANK, format!("rank {at} is not one of {n}"))
                                .label(ensure.at.span, "here"),
                        ));
                    }
                    ranks.push(at as u32);
                    source = Some(index_set(&ensure.source, own, input, ensure.span)?);
                    Ok(())
                };
                match &ensure.reduce {
                    None => one(own)?,
                    Some((slot, from, to, filter)) => {
                        for v in value(from, own)?..value(to, own)? {
                            own[*slot as usize] = v;
                            if filter.as_ref().map_or(Ok(1), |f| value(f, own))? != 0 {
                                one(own)?;
                            }
                        }
                    }
                }
                ranks.sort_unstable();
                let source = source.map_or(Vec::new(), |s| s.iter().collect());
                found.push((target.iter().collect(), source, ranks));
                Ok(())
            })?;
            for (target, source, ranks) in found {
                if ranks.is_empty() {
                    continue;
                }
                if target.len() != source.len() {
                    return Err(Box::new(
                        Diagnostic::error(
                            codes::LENGTHS,
                            format!(
                                "{} output chunks, but {} input chunks",
                                target.len(),
                                source.len()
                            ),
                        )
                        .label(ensure.span, "here"),
                    ));
                }
                for (t, s) in target.into_iter().zip(source) {
                    expected[(rank * output + t) as usize] = Some((s, ranks.clone()));
                }
            }
        }
    }
    Ok(CustomSpec { input, output, expected })
}

/// Runs the binders of a rule; calls `leaf` for every combination that passes.
fn bind(
    binders: &[Binder],
    env: &mut Vec<i64>,
    leaf: &mut dyn FnMut(&mut Vec<i64>) -> Result<(), Fail>,
) -> Result<(), Fail> {
    let Some((first, rest)) = binders.split_first() else { return leaf(env) };
    match first {
        Binder::Let(slot, e) => {
            env[*slot as usize] = value(e, env)?;
            bind(rest, env, leaf)
        }
        Binder::Where(e) => {
            if value(e, env)? != 0 {
                bind(rest, env, leaf)?;
            }
            Ok(())
        }
        Binder::For(slot, from, to) => {
            for v in value(from, env)?..value(to, env)? {
                env[*slot as usize] = v;
                bind(rest, env, leaf)?;
            }
            Ok(())
        }
    }
}
