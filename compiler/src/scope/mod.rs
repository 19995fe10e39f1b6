//! Programs at given sizes: what their variables hold, how finely their own clauses cut the vector, and how one
//! program enters another.

mod index;
mod value;

use roundelay_dsl::diag::{Diagnostic, DiagnosticLabel, codes};

use crate::bounds::SlotBounds;
use crate::budget::BoxedDiagnostic;
use crate::num::{count, index};
use crate::program::{
    AlgorithmUse, ArgumentValue, BufferStyle, ChunkIndex, CollectiveKind, CustomCollective,
    PartSplit, Program, ProgramBuffer, ProgramStmt, RegionExpr, SlotExpr,
};
pub(crate) use index::index_set;
pub(crate) use value::value;

/// More chunks than this in one buffer are refused.
pub(crate) const MAX_CHUNKS: i64 = 1 << 22;

/// Returns the environment of a program: its sizes, its root and its parameters are set.
pub(crate) fn environment(program: &Program, axes: &[u32], root: u32) -> Vec<i64> {
    let mut env = vec![0i64; program.slots.len()];
    env[0] = axes.iter().map(|&a| i64::from(a)).product();
    for (&slot, &size) in program.axes.sizes.iter().zip(axes) {
        env[index(slot)] = i64::from(size);
    }
    env[index(program.root)] = i64::from(root);
    for parameter in &program.parameters {
        env[index(parameter.slot)] = parameter.value.number();
    }
    env
}

/// Returns the environment of a collective: its sizes are set.
pub(crate) fn custom_environment(custom: &CustomCollective, env: &[i64]) -> Vec<i64> {
    let mut own = vec![0i64; custom.slots.len()];
    own[0] = env[0];
    for (i, &slot) in custom.axes.sizes.iter().enumerate() {
        own[usize::from(slot)] = if custom.axes.grid { env[1 + i] } else { env[0] };
    }
    own
}

/// Returns the sizes as `n = 3`, or `node.size = 2, gpu.size = 4`.
fn shape_note(program: &Program, env: &[i64]) -> String {
    let parts: Vec<String> = program
        .axes
        .sizes
        .iter()
        .map(|&s| format!("{} = {}", program.slots[index(s)], env[index(s)]))
        .collect();
    format!("with {}", parts.join(", "))
}

/// Checks the conditions on the shape.
pub(crate) fn requires(program: &Program, env: &mut [i64]) -> Result<(), BoxedDiagnostic> {
    for e in &program.requires {
        if value(e, env)? == 0 {
            return Err(Box::new(
                Diagnostic::error(
                    codes::REQUIRES,
                    format!(
                        "`{}.{}` does not allow this rank count",
                        program.kind.name(),
                        program.name
                    ),
                )
                .label(e.span, "this does not hold")
                .note(shape_note(program, env))
                .help("choose a rank count for which it holds, or another algorithm"),
            ));
        }
    }
    Ok(())
}

/// Returns the `chunks` clause, or its default.
pub(crate) fn units(program: &Program, env: &mut [i64], n: u32) -> Result<u32, BoxedDiagnostic> {
    if let CollectiveKind::Custom(custom) = &program.kind {
        let spec = custom_sizes(custom, env)?;
        return Ok(spec.0.max(spec.1).max(1));
    }
    let blocked = program.kind.blocked();
    let Some(e) = &program.chunks else { return Ok(if blocked { n } else { 1 }) };
    let v = value(e, env)?;
    let range = format!("a vector has from 1 to {MAX_CHUNKS} chunks");
    let fault = if !(1..=MAX_CHUNKS).contains(&v) {
        Some((format!("{v} chunks are out of range"), range))
    } else if blocked && v % i64::from(n) != 0 {
        Some((
            format!("{v} chunks are not a multiple of {n} ranks"),
            "the vector of this collective has one block a rank: write `chunks n` or `chunks n * k`"
                .to_string(),
        ))
    } else {
        None
    };
    match fault {
        None => Ok(count(v)),
        Some((message, help)) => Err(Box::new(
            Diagnostic::error(codes::CHUNKS, message)
                .beyond_limit(v > MAX_CHUNKS)
                .label(e.span, "here")
                .note(shape_note(program, env))
                .help(help),
        )),
    }
}

/// Returns the chunks of input and output of a declared collective.
pub(crate) fn custom_sizes(
    custom: &CustomCollective,
    env: &[i64],
) -> Result<(u32, u32), BoxedDiagnostic> {
    let mut own = custom_environment(custom, env);
    let mut size = |e: &SlotExpr| {
        let v = value(e, &mut own)?;
        match u32::try_from(v) {
            Ok(size) if v <= MAX_CHUNKS => Ok(size),
            _ => Err(Box::new(
                Diagnostic::error(codes::CHUNKS, format!("{v} chunks are out of range"))
                    .beyond_limit(v > MAX_CHUNKS)
                    .label(e.span, "here"),
            )),
        }
    };
    Ok((size(&custom.input)?, size(&custom.output)?))
}

/// Returns true if a `use` or a `split` occurs in the statements.
pub(crate) fn composed(stmts: &[ProgramStmt]) -> bool {
    stmts.iter().any(|s| match s {
        ProgramStmt::Use(_) | ProgramStmt::Split(_) => true,
        ProgramStmt::For { body, .. } => composed(body),
        ProgramStmt::If { then, otherwise, .. } => composed(then) || composed(otherwise),
        ProgramStmt::Let(..) | ProgramStmt::Each(_) => false,
    })
}

/// Returns the bounds of a split.
pub(crate) fn split_range(
    s: &PartSplit,
    env: &mut [i64],
    paths: u32,
) -> Result<(i64, i64), BoxedDiagnostic> {
    let (from, to) = match &s.range {
        Some((a, b)) => (value(a, env)?, value(b, env)?),
        None => (0, i64::from(paths)),
    };
    let parts = to.saturating_sub(from);
    if !(1..=4096).contains(&parts) {
        return Err(Box::new(
            Diagnostic::error(codes::CHUNKS, format!("a split into {parts} parts"))
                .beyond_limit(parts > 4096)
                .label(s.span, "here")
                .help("between 1 and 4096 parts are possible"),
        ));
    }
    Ok((from, to))
}

/// Returns axes, environment and chunks of a used program.
pub(crate) fn enter(
    p: &Program,
    axes: &[u32],
    env: &mut [i64],
    u: &AlgorithmUse,
) -> Result<(Vec<u32>, Vec<i64>, u32), BoxedDiagnostic> {
    let total: u32 = axes.iter().product();
    let m = u.over.map_or(total, |axis| axes[axis]);
    let sub = &u.program;
    let sub_axes = match (sub.axes.names.len(), u.over) {
        (1, _) => vec![m],
        (k, None) if k == axes.len() => axes.to_vec(),
        (k, _) => {
            return Err(Box::new(
                Diagnostic::error(
                    codes::SHAPE,
                    format!("`{}` runs on a grid of {k} axes", sub.name),
                )
                .label(u.span, "used here")
                .help("use it on all ranks of a grid with as many axes"),
            ));
        }
    };
    let root = match &u.root {
        Some(e) => value(e, env)?,
        None if u.over.is_none() && sub.kind.rooted() && p.kind.rooted() => env[index(p.root)],
        None => 0,
    };
    if !(0..i64::from(m)).contains(&root) {
        return Err(Box::new(
            Diagnostic::error(codes::ROOT, format!("root {root} is not one of {m} ranks"))
                .label(u.span, "used here"),
        ));
    }
    let mut sub_env = environment(sub, &sub_axes, count(root));
    for (i, e) in &u.arguments {
        let (parameter, v) = (&sub.parameters[*i], value(e, env)?);
        let given = ArgumentValue::of(v, matches!(parameter.default, ArgumentValue::Truth(_)));
        if let Some(d) = parameter.refusal(given) {
            let declared = d.labels.clone();
            let mut d = Diagnostic { labels: Vec::new(), ..d }.label(e.span, "out of bounds");
            d.labels.extend(declared);
            return Err(Box::new(d));
        }
        sub_env[index(parameter.slot)] = v;
    }
    let located = |d: BoxedDiagnostic| Box::new(used(u, *d));
    requires(sub, &mut sub_env).map_err(located)?;
    let units = self::units(sub, &mut sub_env, m).map_err(located)?;
    Ok((sub_axes, sub_env, units))
}

/// Returns the regions that a `use` hands down, with the buffer that each becomes.
pub(crate) fn sub_regions(u: &AlgorithmUse) -> Vec<(Option<&RegionExpr>, ProgramBuffer)> {
    match u.program.style {
        BufferStyle::Data => vec![(u.on.as_ref(), ProgramBuffer::Data)],
        BufferStyle::InputOutput => {
            vec![
                (u.on.as_ref(), ProgramBuffer::Input),
                (u.to.as_ref().or(u.on.as_ref()), ProgramBuffer::Output),
            ]
        }
    }
}

/// Returns the buffer of the using program that stands for a buffer of the used one by default.
pub(crate) fn parent_buffer(p: &Program, buffer: ProgramBuffer) -> ProgramBuffer {
    match (p.style, buffer) {
        (BufferStyle::Data, _) => ProgramBuffer::Data,
        (BufferStyle::InputOutput, ProgramBuffer::Data) => ProgramBuffer::Output,
        (BufferStyle::InputOutput, b) => b,
    }
}

/// Adds to a finding in a used program the line that uses it: the user's own line comes first.
pub(crate) fn used(u: &AlgorithmUse, mut d: Diagnostic) -> Diagnostic {
    let own = |l: &DiagnosticLabel| {
        let (line, place) = (u.span, l.span);
        line.source == place.source && line.start <= place.start && place.end <= line.end
    };
    if let Some(at) = d.labels.iter().position(own) {
        // The place is in the line itself; what stands before it are lines of what is used.
        d.labels.drain(..at);
        return d;
    }
    let name = format!("in `{}.{}`, used here", u.program.kind.name(), u.program.name);
    d.labels.insert(0, DiagnosticLabel { span: u.span, text: name });
    d
}

/// Returns true if regions of a `use` may differ in length from group to group, by their form.
pub(crate) fn length_varies(p: &Program, axes: &[u32], env: &[i64], u: &AlgorithmUse) -> bool {
    if u.over.is_none() {
        return false;
    }
    let coordinates = p.coordinates.iter().zip(axes);
    let vary: Vec<_> = coordinates.map(|(&slot, &size)| (slot, (0, i64::from(size) - 1))).collect();
    let bounds = SlotBounds { env, vary: &vary, defs: &[] };
    let any = |e: &Option<SlotExpr>| e.as_ref().is_some_and(|e| bounds.varies(e));
    sub_regions(u).into_iter().any(|(region, _)| match region.map(|r| &r.index) {
        None | Some(ChunkIndex::All | ChunkIndex::At(_)) => false,
        Some(ChunkIndex::Cyclic { count, .. }) => bounds.varies(count),
        Some(ChunkIndex::Range { from, to, by, take }) => {
            let moves = bounds.varies(from) || bounds.varies(to);
            any(by) || any(take) || moves && bounds.slope(to, from).is_none()
        }
    })
}
