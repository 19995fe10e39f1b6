//! Twins with parameters: of the algorithm library, and of the texts in `parameters/`.

use roundelay::{Prototype, algorithm};

/// A twin, with the arguments that it is compared with.
pub(crate) struct ParameterTwin {
    pub(crate) twin: &'static Prototype,
    /// The text; `None` if it is one of the library.
    pub(crate) text: Option<&'static str>,
    /// The values of the parameters, as they stand behind the name; the defaults first.
    pub(crate) arguments: &'static [&'static str],
}

macro_rules! twin {
    ($twin:path, $arguments:expr) => {
        ParameterTwin { twin: &$twin, text: None, arguments: $arguments }
    };
    ($twin:path, $file:literal, $arguments:expr) => {
        ParameterTwin {
            twin: &$twin,
            text: Some(include_str!(concat!("../../parameters/", $file))),
            arguments: $arguments,
        }
    };
}

/// Values of a `k` that goes from 2 to 8, and of one that goes to 4.
const RADIX: &[&str] = &["", "(k = 3)", "(k = 4)", "(k = 8)"];
const SMALL_RADIX: &[&str] = &["", "(k = 3)", "(k = 4)"];

/// All of them.
pub(crate) static TWINS: &[ParameterTwin] = &[
    twin!(aggregated_pat, &["", "(a = 0)", "(a = 2)", "(a = 4)"]),
    twin!(k_bruck, RADIX),
    twin!(recursive_multiplying, RADIX),
    twin!(exchange::k_bruck, RADIX),
    twin!(k_dissemination, RADIX),
    twin!(k_ary, RADIX),
    twin!(k_nomial, RADIX),
    twin!(reduction::k_ary, RADIX),
    twin!(strided_ring, "strided_ring.algo", &["", "(step = 3)", "(step = 4)", "(step = 7)"]),
    twin!(
        segmented_ring,
        "segmented_ring.algo",
        &["", "(parts = 1)", "(coarse = false)", "(parts = 3, coarse = false)"]
    ),
    twin!(radix_doubling, "radix_doubling.algo", SMALL_RADIX),
    twin!(radix_halving, "radix_halving.algo", SMALL_RADIX),
    twin!(collection::k_nomial, "k_nomial.algo", RADIX),
    twin!(
        mirrored_chain,
        "mirrored_chain.algo",
        &["", "(down = true)", "(pieces = 1)", "(down = true, pieces = 16)"]
    ),
    twin!(batched_pairwise, "batched_pairwise.algo", &["", "(b = 1)", "(b = 3)", "(b = 4)"]),
    twin!(leaders, "leaders.algo", &["", "(m = 3)", "(rounds = false)", "(m = 5, rounds = false)"]),
    twin!(crossing, "crossing.algo", &["", "(rows = false)", "(w = 1)", "(rows = false, w = 3)"]),
    twin!(composed, "composed.algo", &["", "(k = 7)", "(wide = false)", "(k = 2, wide = false)"]),
    twin!(windowed, "windowed.algo", &["", "(w = 1)", "(w = 3)", "(w = 4)"]),
    twin!(radix_scan, "radix_scan.algo", SMALL_RADIX),
];

#[algorithm(all_gather, parameters(a = 1 in 0..=4))]
fn aggregated_pat(n: Ranks, a: i64) {
    let size = 1 << ceil_log2(n);
    let tree = max(size >> a, 1);

    for k in 1..=log2(size / tree) {
        let d = size >> k;
        each(|r| r.to((r - d) % n).copy(data[cyclic(r, ceil_div(n - d, 2 * d)).by(2 * d)]));
    }
    for x in 1..min(tree, n) {
        let d = lowbit(x);
        each(|r| {
            r.to((r - d) % n).copy(data[cyclic((r + x - d) % n, ceil_div(n - x, tree)).by(tree)]);
        });
    }
}

#[algorithm(all_gather, parameters(k = 2 in 2..=8))]
fn k_bruck(n: Ranks, k: i64) {
    for s in 0..ceil_log(k, n) {
        let d = pow(k, s);
        each(|r| {
            for j in 1..k {
                if j * d < n {
                    r.to((r - j * d) % n).copy(data[cyclic(r, min(d, n - j * d))]);
                }
            }
        });
    }
}

#[algorithm(all_reduce, parameters(k = 2 in 2..=8))]
fn recursive_multiplying(n: Ranks, k: i64) {
    let p = pow(k, log(k, n));

    each(|r| {
        if r >= p {
            r.to(r % p).reduce(data);
        }
    });
    for s in 0..log(k, n) {
        let d = pow(k, s);
        each(|r| {
            if r < p {
                let digit = r / d % k;
                for j in 0..k {
                    if j != digit {
                        r.to(r + (j - digit) * d).reduce(data);
                    }
                }
            }
        });
    }
    each(|r| {
        if r >= p {
            (r % p).to(r).copy(data);
        }
    });
}

pub(crate) mod exchange {
    use roundelay::algorithm;

    #[algorithm(all_to_all, parameters(k = 2 in 2..=8))]
    pub(crate) fn k_bruck(n: Ranks, k: i64) {
        let t = scratch(n);

        each(|r| r.to(r).copy(input[cyclic(r, n)]).into(t));
        for s in 0..ceil_log(k, n) {
            let d = pow(k, s);
            each(|r| {
                for q in 1..k {
                    if q * d < n {
                        r.to((r + q * d) % n).copy(t[(q * d..n).by(k * d).take(d)]);
                    }
                }
            });
        }
        each(|r| {
            for j in 0..n {
                r.to(r).copy(t[j]).into(output[(r - j) % n]);
            }
        });
    }
}

#[algorithm(barrier, parameters(k = 2 in 2..=8))]
fn k_dissemination(n: Ranks, k: i64) {
    for s in 0..ceil_log(k, n) {
        let d = pow(k, s);
        each(|r| {
            for j in 1..k {
                if j * d < n {
                    r.to((r + j * d) % n).reduce(data);
                }
            }
        });
    }
}

#[algorithm(broadcast, parameters(k = 2 in 2..=8))]
fn k_ary(n: Ranks, k: i64) {
    for s in 0..ceil_log(k, (k - 1) * n + 1) - 1 {
        let first = (pow(k, s) - 1) / (k - 1);
        each(|r| {
            let v = (r - root) % n;
            if v >= first && v < first + pow(k, s) {
                for j in 1..=k {
                    if k * v + j < n {
                        r.to((root + k * v + j) % n).copy(data);
                    }
                }
            }
        });
    }
    schedule().pipeline(8);
}

#[algorithm(broadcast, parameters(k = 2 in 2..=8))]
fn k_nomial(n: Ranks, k: i64) {
    for s in 0..ceil_log(k, n) {
        let d = pow(k, s);
        each(|r| {
            let v = (r - root) % n;
            for j in 1..k {
                if v < d && v + j * d < n {
                    r.to((r + j * d) % n).copy(data);
                }
            }
        });
    }
}

pub(crate) mod reduction {
    use roundelay::algorithm;

    #[algorithm(reduce, parameters(k = 2 in 2..=8))]
    pub(crate) fn k_ary(n: Ranks, k: i64) {
        let levels = ceil_log(k, (k - 1) * n + 1) - 1;
        for s in 1..=levels {
            let first = (pow(k, levels - s) - 1) / (k - 1);
            each(|r| {
                let v = (r - root) % n;
                if v >= first && v < first + pow(k, levels - s) {
                    for j in 1..=k {
                        if k * v + j < n {
                            ((root + k * v + j) % n).to(r).reduce(data);
                        }
                    }
                }
            });
        }
        schedule().pipeline(8);
    }
}

#[algorithm(all_reduce, parameters(step = 1 in 1..=7))]
fn strided_ring(n: Ranks, step: i64) {
    requires(gcd(step, n) == 1);
    chunks(n);

    for s in 0..n - 1 {
        each(|r| r.to((r + step) % n).reduce(data[(r - s * step) % n]));
    }
    for s in 0..n - 1 {
        each(|r| r.to((r + step) % n).copy(data[(r + step - s * step) % n]));
    }
}

#[algorithm(all_reduce, parameters(parts = 2 in 1..=4, coarse = true))]
fn segmented_ring(n: Ranks, parts: i64, coarse: bool) {
    chunks(parts * n);

    for s in 0..n - 1 {
        each(|r| {
            for p in 0..parts {
                let chunk = (r - s) % n * parts + p;
                if coarse {
                    r.to((r + 1) % n).reduce(data[chunk]).wire::<bf16>();
                } else {
                    r.to((r + 1) % n).reduce(data[chunk]).wire::<f16>();
                }
            }
        });
    }
    for s in 0..n - 1 {
        for p in 0..parts {
            each(|r| {
                let chunk = (r + 1 - s) % n * parts + p;
                if coarse {
                    r.to((r + 1) % n).copy(data[chunk]).wire::<bf16>();
                } else {
                    r.to((r + 1) % n).copy(data[chunk]).wire::<f16>();
                }
            });
        }
    }
}

#[algorithm(all_gather, parameters(k = 2 in 2..=4))]
fn radix_doubling(n: Ranks, k: i64) {
    requires(is_power(k, n));

    for s in 0..log(k, n) {
        let d = pow(k, s);
        each(|r| {
            let digit = r / d % k;
            for j in 0..k {
                if j != digit {
                    r.to(r + (j - digit) * d).copy(data[r - r % d..r - r % d + d]);
                }
            }
        });
    }
}

#[algorithm(reduce_scatter, parameters(k = 2 in 2..=4))]
fn radix_halving(n: Ranks, k: i64) {
    fn first(p: i64, d: i64) -> i64 {
        p - p % d
    }
    requires(is_power(k, n));
    let rounds = log(k, n);
    chunks(n);

    for s in 1..=rounds {
        let d = pow(k, rounds - s);
        each(|r| {
            for j in 0..k {
                if j != r / d % k {
                    let p = r + (j - r / d % k) * d;
                    r.to(p).reduce(data[cyclic(first(p, d), d)]);
                }
            }
        });
    }
}

pub(crate) mod collection {
    use roundelay::algorithm;

    #[algorithm(gather, parameters(k = 2 in 2..=8))]
    pub(crate) fn k_nomial(n: Ranks, k: i64) {
        for s in 0..ceil_log(k, n) {
            let d = pow(k, s);
            each(|r| {
                let v = (r - root) % n;
                if v % (k * d) >= d && v % d == 0 {
                    r.to((r - v % (k * d)) % n).copy(data[cyclic(r, min(d, n - v))]);
                }
            });
        }
    }
}

#[algorithm(reduce, parameters(down = false, pieces = 4 in 1..=16))]
fn mirrored_chain(n: Ranks, down: bool, pieces: i64) {
    let step = if down { -1 } else { 1 };
    for s in 1..n {
        ((root + s * step) % n).to((root + (s + 1) * step) % n).reduce(data);
    }
    schedule().pipeline(pieces);
}

#[algorithm(all_to_all, parameters(b = 2 in 1..=4))]
fn batched_pairwise(n: Ranks, b: i64) {
    for g in 0..ceil_div(n, b) {
        each(|r| {
            for s in g * b..min(n, g * b + b) {
                r.to((r + s) % n).copy(input[(r + s) % n]).into(output[r]);
            }
        });
    }
}

#[algorithm(all_reduce, parameters(m = 2 in 1..=5, rounds = true))]
fn leaders(n: Ranks, m: i64, rounds: bool) {
    fn leader(r: i64, m: i64) -> i64 {
        r - r % m
    }
    requires(n % m != 1 || m == 1 || rounds);

    each(|r| {
        if leader(r, m) != r {
            r.to(leader(r, m)).reduce(data);
        }
    });
    if rounds {
        for p in 1..ceil_div(n, m) {
            (p * m).to(0).reduce(data);
        }
        for p in 1..ceil_div(n, m) {
            0.to(p * m).copy(data);
        }
    } else {
        each(|r| {
            if leader(r, m) == r {
                for p in 0..ceil_div(n, m) {
                    if p * m != r {
                        r.to(p * m).reduce(data);
                    }
                }
            }
        });
    }
    each(|r| {
        if leader(r, m) != r {
            leader(r, m).to(r).copy(data);
        }
    });
}

#[algorithm(all_reduce, parameters(rows = true, w = 2 in 1..=4))]
fn crossing(row: Axis, column: Axis, rows: bool, w: i64) {
    let n = row.size * column.size;

    if rows {
        each(|r| {
            if column > 0 {
                r.to((row, 0)).reduce(data);
            }
        });
        each(|r| {
            if row > 0 && column == 0 {
                r.to((0, column)).reduce(data);
            }
        });
    } else {
        each(|r| {
            if row > 0 {
                r.to((0, column)).reduce(data);
            }
        });
        each(|(i, j)| {
            if i == 0 && j > 0 {
                (i, j).to((i, 0)).reduce(data);
            }
        });
    }
    for g in 0..ceil_div(n - 1, w) {
        each(|r| {
            if row + column == 0 {
                for p in g * w + 1..min(n, g * w + w + 1) {
                    r.to(p).copy(data);
                }
            }
        });
    }
}

#[algorithm(all_reduce, parameters(k = 3 in 2..=MOST, wide = true))]
fn composed(n: Ranks, k: i64, wide: bool) {
    /// The most ranks that a rank of the tree sends to at once.
    const MOST: i64 = 7;

    run(reduce::k_ary).with("k", k).root(n - 1);
    run(broadcast::k_nomial).with("k", if wide { min(k + 1, MOST) } else { 2 }).root(n - 1);
}

#[algorithm(reduce, parameters(w = 2 in 1..=4))]
fn windowed(n: Ranks, w: i64) {
    let t = scratch(w);

    for g in 0..ceil_div(n - 1, w) {
        let first = g * w + 1;
        each(|r| {
            let v = (r - root) % n;
            if v >= first && v < first + w {
                r.to(root).copy(data).into(t[v - first]);
            }
        });
        for i in 0..min(w, n - first) {
            root.to(root).reduce(t[i]).into(data);
        }
    }
}

#[algorithm(scan, parameters(k = 2 in 2..=4))]
fn radix_scan(n: Ranks, k: i64) {
    for s in 0..ceil_log(k, n) {
        let d = pow(k, s);
        each(|r| {
            for j in 1..k {
                if r + j * d < n {
                    r.to(r + j * d).reduce(data);
                }
            }
        });
    }
}

/// A part with arguments, truth values, and a `let` that clauses use.
pub(crate) const BOTH: &str = "
    algorithm both(m = 3, up = true) implements broadcast on n ranks {
        let half = m * n
        chunks 2 * half
        use broadcast.k_nomial(k = m) on data[0..half]
        if up { use broadcast.k_nomial(k = 2 + 1) on data[half..2 * half] } else {
            use broadcast.chain on data[half..2 * half]
        }
    }";

#[algorithm(broadcast, parameters(m = 3, up = true))]
pub(crate) fn both(n: Ranks, m: i64, up: bool) {
    let half = m * n;
    chunks(2 * half);
    run(broadcast::k_nomial).with("k", m).on(data[0..half]);
    if up {
        run(broadcast::k_nomial).with("k", 2 + 1).on(data[half..2 * half]);
    } else {
        run(broadcast::chain).on(data[half..2 * half]);
    }
}
