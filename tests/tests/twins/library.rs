//! Twins.

use roundelay::Prototype;

/// All of them.
pub(crate) static TWINS: &[Prototype] = &[
    all_reduce::ring,
    all_reduce::halving_doubling,
    all_reduce::two_level,
    all_reduce::circulant,
    all_reduce::bidirectional_ring,
    all_reduce::compressed,
    all_reduce::double_binary_tree,
    all_reduce::one_shot,
    all_reduce::recursive_doubling,
    all_reduce::swing,
    all_reduce::tolerant,
    all_gather::neighbor_exchange,
    all_gather::pat,
    all_to_all::bruck,
    all_to_all::pairwise,
    all_to_all::two_level,
    rooted::binomial,
    rooted::chain,
    rooted::multipath,
    rooted::scatter_all_gather,
    rooted::linear,
    others::dissemination,
    others::direct,
];

/// Helpers of several.
pub(crate) mod helpers {
    use roundelay::algorithm_fn;

    /// The parent of place v > 0 in the in-order binary tree over places 0..n, whose root is 0.
    #[algorithm_fn]
    pub(crate) fn parent(v: i64, n: i64) -> i64 {
        let bit = lowbit(v);
        let up = (v - bit) | (2 * bit);
        if up < n { up } else { v - bit }
    }

    /// How far round k swings an even rank: 1, -1, 3, -5, 11, ...
    #[algorithm_fn]
    pub(crate) fn reach(k: i64) -> i64 {
        (1 - pow(-2, k + 1)) / 3
    }

    /// The partner of rank r in round k.
    #[algorithm_fn(with(reach))]
    pub(crate) fn partner(r: i64, k: i64, n: i64) -> i64 {
        if even(r) { (r + reach(k)) % n } else { (r - reach(k)) % n }
    }
}

pub(crate) mod all_reduce {
    use super::helpers::{parent, partner, reach};
    use roundelay::algorithm;

    /// Each chunk goes round once to be summed and once to be shared.
    #[algorithm(all_reduce)]
    pub(crate) fn ring(n: Ranks) {
        chunks(n);

        for s in 0..n - 1 {
            each(|r| r.to((r + 1) % n).reduce(data[(r - s) % n]));
        }
        for s in 0..n - 1 {
            each(|r| r.to((r + 1) % n).copy(data[(r + 1 - s) % n]));
        }
    }

    #[algorithm(all_reduce)]
    pub(crate) fn halving_doubling(n: Ranks) {
        requires(pow2(n));
        chunks(n);

        // Halve: give away the half with the partner's chunk.
        for k in 0..log2(n) {
            let d = n >> (k + 1);
            each(|r| {
                let p = r ^ d;
                r.to(p).reduce(data[cyclic(p - p % d, d)]);
            });
        }
        for k in 0..log2(n) {
            let d = 1 << k;
            each(|r| r.to(r ^ d).copy(data[cyclic(r - r % d, d)]));
        }
    }

    #[algorithm(all_reduce)]
    pub(crate) fn two_level(node: Axis, gpu: Axis) {
        chunks(gpu.size);

        run(reduce_scatter::ring).over(gpu);
        run(all_reduce::circulant).over(node).on(data[gpu]);
        run(all_gather::ring).over(gpu);
    }

    #[algorithm(all_reduce)]
    pub(crate) fn circulant(n: Ranks) {
        chunks(n);

        run(reduce_scatter::circulant);
        run(all_gather::circulant);
    }

    #[algorithm(all_reduce)]
    pub(crate) fn bidirectional_ring(n: Ranks) {
        chunks(n);

        let up = n / 2;
        let down = (n - 1) / 2;
        for s in 0..up {
            each(|r| {
                r.to((r + 1) % n).reduce(data[(r + up - s) % n]);
                if s < down {
                    r.to((r - 1) % n).reduce(data[(r - down + s) % n]);
                }
            });
        }
        for s in 0..up {
            each(|r| {
                r.to((r + 1) % n).copy(data[(r - s) % n]);
                if s < down {
                    r.to((r - 1) % n).copy(data[(r + s) % n]);
                }
            });
        }
    }

    #[algorithm(all_reduce)]
    pub(crate) fn compressed(n: Ranks) {
        chunks(n);

        for s in 0..n - 1 {
            each(|r| r.to((r + 1) % n).reduce(data[(r - s) % n]).wire::<bf16>());
        }
        for s in 0..n - 1 {
            each(|r| r.to((r + 1) % n).copy(data[(r + 1 - s) % n]).wire::<bf16>());
        }
    }

    #[algorithm(all_reduce, with(parent))]
    pub(crate) fn double_binary_tree(n: Ranks) {
        let q = ceil_log2(n);

        split(data, 0..2, |tree| {
            for k in 0..q {
                each(|v| {
                    if lowbit(v) == 1 << k {
                        ((v + tree) % n).to((parent(v, n) + tree) % n).reduce(data);
                    }
                });
            }
            for k in 1..=q {
                each(|v| {
                    if lowbit(v) == 1 << (q - k) {
                        ((parent(v, n) + tree) % n).to((v + tree) % n).copy(data);
                    }
                });
            }
        });
        schedule().pipeline(8);
    }

    #[algorithm(all_reduce)]
    pub(crate) fn one_shot(n: Ranks) {
        each(|r| {
            for p in 0..n {
                if p != r {
                    r.to(p).reduce(data);
                }
            }
        });
    }

    #[algorithm(all_reduce)]
    pub(crate) fn recursive_doubling(n: Ranks) {
        let p = 1 << log2(n);

        each(|r| {
            if r >= p {
                r.to(r - p).reduce(data);
            }
        });
        for k in 0..log2(p) {
            each(|r| {
                if r < p {
                    r.to(r ^ (1 << k)).reduce(data);
                }
            });
        }
        each(|r| {
            if r + p < n {
                r.to(r + p).copy(data);
            }
        });
    }

    #[algorithm(all_reduce, with(partner, reach))]
    pub(crate) fn swing(n: Ranks) {
        /// The chunk that rank r ends up summing: ranks that meet late own chunks that lie close.
        fn chunk(r: i64, n: i64) -> i64 {
            let pair = (if even(r) { r } else { r - reach(log2(n)) }) % n / 2;
            2 * bit_reverse(pair, log2(n) - 1) + r % 2
        }
        requires(pow2(n));
        chunks(n);

        for k in 0..log2(n) {
            let d = n >> (k + 1);
            each(|r| {
                let p = partner(r, k, n);
                r.to(p).reduce(data[cyclic(chunk(p, n) - chunk(p, n) % d, d)]);
            });
        }
        for k in 0..log2(n) {
            let d = 1 << k;
            each(|r| {
                let p = partner(r, log2(n) - 1 - k, n);
                r.to(p).copy(data[cyclic(chunk(r, n) - chunk(r, n) % d, d)]);
            });
        }
    }

    #[algorithm(all_reduce)]
    pub(crate) fn tolerant(n: Ranks) {
        requires(n <= 8);
        tolerates(1);
        let t = scratch(n);

        each(|r| r.to(r).copy(data).into(t[r]));
        each(|r| {
            if n > 1 {
                r.to((r + 1) % n).copy(t[r]);
            }
        });
        each(|r| {
            for p in 0..n {
                if p != r {
                    r.to(p).copy(t[(r - 1) % n]);
                }
            }
        });
        each(|r| {
            for p in 0..n {
                if p != r && p != (r + 1) % n {
                    r.to(p).copy(t[r]);
                }
            }
        });
        each(|r| {
            for p in 1..n {
                r.to(r).reduce(t[p]).into(t[0]);
            }
        });
        each(|r| r.to(r).copy(t[0]).into(data));
    }
}

pub(crate) mod all_gather {
    use roundelay::algorithm;

    #[algorithm(all_gather)]
    pub(crate) fn neighbor_exchange(n: Ranks) {
        requires(n % 2 == 0);

        each(|r| r.to(r ^ 1).copy(data[r]));
        for s in 1..n / 2 {
            each(|r| {
                let side = if even(r + s) { 1 } else { -1 };
                let pair = r / 2 - side * (s / 2);
                r.to((r + side) % n).copy(data[cyclic(2 * pair % n, 2)]);
            });
        }
    }

    #[algorithm(all_gather)]
    pub(crate) fn pat(n: Ranks) {
        let q = ceil_log2(n);
        for k in 1..q + 1 {
            let d = 1 << (q - k);
            each(|r| r.to((r - d) % n).copy(data[cyclic(r, ceil_div(n - d, 2 * d)).by(2 * d)]));
        }
    }
}

pub(crate) mod all_to_all {
    use roundelay::algorithm;

    #[algorithm(all_to_all)]
    pub(crate) fn bruck(n: Ranks) {
        let t = scratch(n);

        each(|r| r.to(r).copy(input[cyclic(r, n)]).into(t));
        for k in 0..ceil_log2(n) {
            let d = 1 << k;
            each(|r| r.to((r + d) % n).copy(t[(d..n).by(2 * d).take(d)]));
        }
        each(|r| {
            for j in 0..n {
                r.to(r).copy(t[j]).into(output[(r - j) % n]);
            }
        });
    }

    #[algorithm(all_to_all)]
    pub(crate) fn pairwise(n: Ranks) {
        for s in 0..n {
            each(|r| r.to((r + s) % n).copy(input[(r + s) % n]).into(output[r]));
        }
    }

    #[algorithm(all_to_all)]
    pub(crate) fn two_level(node: Axis, gpu: Axis) {
        let t = scratch(node.size * gpu.size);

        let m = node.size;
        let g = gpu.size;
        let n = m * g;
        each(|(i, j)| {
            for k in 0..g {
                (i, j).to((i, k)).copy(input[(k..n).by(g)]).into(t[(j..n).by(g)]);
            }
        });
        each(|(i, j)| {
            for k in 0..m {
                (i, j).to((k, j)).copy(t[cyclic(k * g, g)]).into(output[cyclic(i * g, g)]);
            }
        });
    }
}

pub(crate) mod rooted {
    use roundelay::algorithm;

    #[algorithm(broadcast)]
    pub(crate) fn binomial(n: Ranks) {
        for k in 0..ceil_log2(n) {
            let d = 1 << k;
            each(|r| {
                let v = (r - root) % n;
                if v < d && v + d < n {
                    r.to((r + d) % n).copy(data);
                }
            });
        }
    }

    #[algorithm(broadcast)]
    pub(crate) fn chain(n: Ranks) {
        for s in 0..n - 1 {
            ((root + s) % n).to((root + s + 1) % n).copy(data);
        }
        schedule().pipeline(16);
    }

    #[algorithm(broadcast)]
    pub(crate) fn multipath(n: Ranks) {
        split(data, paths.by(bandwidth), |p| run(broadcast::chain).via(p));
        schedule().pipeline(8);
    }

    #[algorithm(broadcast)]
    pub(crate) fn scatter_all_gather(n: Ranks) {
        chunks(n);

        run(scatter::binomial).root(root);
        run(all_gather::ring);
    }

    #[algorithm(gather)]
    pub(crate) fn linear(n: Ranks) {
        each(|r| {
            if r != root {
                r.to(root).copy(data[r]);
            }
        });
    }
}

pub(crate) mod others {
    use roundelay::algorithm;

    #[algorithm(barrier)]
    pub(crate) fn dissemination(n: Ranks) {
        for k in 0..ceil_log2(n) {
            each(|r| r.to((r + (1 << k)) % n).copy(data));
        }
    }

    #[algorithm(sendrecv)]
    pub(crate) fn direct(n: Ranks) {
        requires(n == 2);

        0.to(1).copy(data);
    }
}
