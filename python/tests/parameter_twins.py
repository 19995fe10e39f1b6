"""Algorithms with parameters as Python functions: those of the library, and the texts of ``tests/parameters``."""

from typing import Annotated

import roundelay
from roundelay.lang import *  # noqa: F403
from roundelay.lang import (
    Axis,
    Ranks,
    at,
    ceil_div,
    ceil_log,
    ceil_log2,
    chunks,
    cyclic,
    data,
    each,
    gcd,
    input,  # noqa: A004
    is_power,
    log,
    log2,
    lowbit,
    output,
    requires,
    root,
    run,
    schedule,
    scratch,
    span,
)


@roundelay.algorithm("all_gather")
def aggregated_pat(n: Ranks, a: Annotated[int, range(0, 5)] = 1) -> None:
    size = 1 << ceil_log2(n)
    tree = max(size >> a, 1)

    for k in range(1, log2(size // tree) + 1):
        d = size >> k
        for r in each:
            r.to((r - d) % n).copy(data[cyclic(r, ceil_div(n - d, 2 * d)).by(2 * d)])
    for x in range(1, min(tree, n)):
        d = lowbit(x)
        for r in each:
            r.to((r - d) % n).copy(data[cyclic((r + x - d) % n, ceil_div(n - x, tree)).by(tree)])


@roundelay.algorithm("all_gather")
def k_bruck(n: Ranks, k: Annotated[int, range(2, 9)] = 2) -> None:
    for s in range(ceil_log(k, n)):
        d = k**s
        for r in each:
            for j in range(1, k):
                if j * d < n:
                    r.to((r - j * d) % n).copy(data[cyclic(r, min(d, n - j * d))])


@roundelay.algorithm("all_reduce")
def recursive_multiplying(n: Ranks, k: Annotated[int, range(2, 9)] = 2) -> None:
    p = k ** log(k, n)

    for r in each:
        if r >= p:
            r.to(r % p).reduce(data)
    for s in range(log(k, n)):
        d = k**s
        for r in each:
            if r < p:
                digit = r // d % k
                for j in range(k):
                    if j != digit:
                        r.to(r + (j - digit) * d).reduce(data)
    for r in each:
        if r >= p:
            (r % p).to(r).copy(data)


def exchange() -> roundelay.Algorithm:
    @roundelay.algorithm("all_to_all")
    def k_bruck(n: Ranks, k: Annotated[int, range(2, 9)] = 2) -> None:
        t = scratch(n)

        for r in each:
            r.to(r).copy(input[cyclic(r, n)]).into(t)
        for s in range(ceil_log(k, n)):
            d = k**s
            for r in each:
                for q in range(1, k):
                    if q * d < n:
                        r.to((r + q * d) % n).copy(t[span(q * d, n).by(k * d).take(d)])
        for r in each:
            for j in range(n):
                r.to(r).copy(t[j]).into(output[(r - j) % n])

    return k_bruck


@roundelay.algorithm("barrier")
def k_dissemination(n: Ranks, k: Annotated[int, range(2, 9)] = 2) -> None:
    for s in range(ceil_log(k, n)):
        d = k**s
        for r in each:
            for j in range(1, k):
                if j * d < n:
                    r.to((r + j * d) % n).reduce(data)


@roundelay.algorithm("broadcast")
def k_ary(n: Ranks, k: Annotated[int, range(2, 9)] = 2) -> None:
    for s in range(ceil_log(k, (k - 1) * n + 1) - 1):
        first = (k**s - 1) // (k - 1)
        for r in each:
            v = (r - root) % n
            if v >= first and v < first + k**s:
                for j in range(1, k + 1):
                    if k * v + j < n:
                        r.to((root + k * v + j) % n).copy(data)
    schedule().pipeline(8)


@roundelay.algorithm("broadcast")
def k_nomial(n: Ranks, k: Annotated[int, range(2, 9)] = 2) -> None:
    for s in range(ceil_log(k, n)):
        d = k**s
        for r in each:
            v = (r - root) % n
            for j in range(1, k):
                if v < d and v + j * d < n:
                    r.to((r + j * d) % n).copy(data)


def reduction() -> roundelay.Algorithm:
    @roundelay.algorithm("reduce")
    def k_ary(n: Ranks, k: Annotated[int, range(2, 9)] = 2) -> None:
        levels = ceil_log(k, (k - 1) * n + 1) - 1
        for s in range(1, levels + 1):
            first = (k ** (levels - s) - 1) // (k - 1)
            for r in each:
                v = (r - root) % n
                if v >= first and v < first + k ** (levels - s):
                    for j in range(1, k + 1):
                        if k * v + j < n:
                            ((root + k * v + j) % n).to(r).reduce(data)
        schedule().pipeline(8)

    return k_ary


@roundelay.algorithm("all_reduce")
def strided_ring(n: Ranks, step: Annotated[int, range(1, 8)] = 1) -> None:
    requires(gcd(step, n) == 1)
    chunks(n)

    for s in range(n - 1):
        for r in each:
            r.to((r + step) % n).reduce(data[(r - s * step) % n])
    for s in range(n - 1):
        for r in each:
            r.to((r + step) % n).copy(data[(r + step - s * step) % n])


@roundelay.algorithm("all_reduce")
def segmented_ring(n: Ranks, parts: Annotated[int, range(1, 5)] = 2, coarse: bool = True) -> None:
    chunks(parts * n)

    for s in range(n - 1):
        for r in each:
            for p in range(parts):
                chunk = (r - s) % n * parts + p
                if coarse:
                    r.to((r + 1) % n).reduce(data[chunk]).wire("bf16")
                else:
                    r.to((r + 1) % n).reduce(data[chunk]).wire("f16")
    for s in range(n - 1):
        for p in range(parts):
            for r in each:
                chunk = (r + 1 - s) % n * parts + p
                if coarse:
                    r.to((r + 1) % n).copy(data[chunk]).wire("bf16")
                else:
                    r.to((r + 1) % n).copy(data[chunk]).wire("f16")


@roundelay.algorithm("all_gather")
def radix_doubling(n: Ranks, k: Annotated[int, range(2, 5)] = 2) -> None:
    requires(is_power(k, n))

    for s in range(log(k, n)):
        d = k**s
        for r in each:
            digit = r // d % k
            for j in range(k):
                if j != digit:
                    r.to(r + (j - digit) * d).copy(data[r - r % d : r - r % d + d])


@roundelay.algorithm("reduce_scatter")
def radix_halving(n: Ranks, k: Annotated[int, range(2, 5)] = 2) -> None:
    def first(p: int, d: int) -> int:
        return p - p % d

    requires(is_power(k, n))
    rounds = log(k, n)
    chunks(n)

    for s in range(1, rounds + 1):
        d = k ** (rounds - s)
        for r in each:
            for j in range(k):
                if j != r // d % k:
                    p = r + (j - r // d % k) * d
                    r.to(p).reduce(data[cyclic(first(p, d), d)])


def collection() -> roundelay.Algorithm:
    @roundelay.algorithm("gather")
    def k_nomial(n: Ranks, k: Annotated[int, range(2, 9)] = 2) -> None:
        for s in range(ceil_log(k, n)):
            d = k**s
            for r in each:
                v = (r - root) % n
                if v % (k * d) >= d and v % d == 0:
                    r.to((r - v % (k * d)) % n).copy(data[cyclic(r, min(d, n - v))])

    return k_nomial


@roundelay.algorithm("reduce")
def mirrored_chain(n: Ranks, down: bool = False, pieces: Annotated[int, range(1, 17)] = 4) -> None:
    step = -1 if down else 1
    for s in range(1, n):
        ((root + s * step) % n).to((root + (s + 1) * step) % n).reduce(data)  # type: ignore[attr-defined]
    schedule().pipeline(pieces)


@roundelay.algorithm("all_to_all")
def batched_pairwise(n: Ranks, b: Annotated[int, range(1, 5)] = 2) -> None:
    for g in range(ceil_div(n, b)):
        for r in each:
            for s in range(g * b, min(n, g * b + b)):
                r.to((r + s) % n).copy(input[(r + s) % n]).into(output[r])


@roundelay.algorithm("all_reduce")
def leaders(n: Ranks, m: Annotated[int, range(1, 6)] = 2, rounds: bool = True) -> None:
    def leader(r: int, m: int) -> int:
        return r - r % m

    requires(n % m != 1 or m == 1 or rounds)

    for r in each:
        if leader(r, m) != r:
            r.to(leader(r, m)).reduce(data)
    if rounds:
        for p in range(1, ceil_div(n, m)):
            (p * m).to(0).reduce(data)  # type: ignore[attr-defined]
        for p in range(1, ceil_div(n, m)):
            (0).to(p * m).copy(data)  # type: ignore[attr-defined]
    else:
        for r in each:
            if leader(r, m) == r:
                for p in range(ceil_div(n, m)):
                    if p * m != r:
                        r.to(p * m).reduce(data)
    for r in each:
        if leader(r, m) != r:
            leader(r, m).to(r).copy(data)  # type: ignore[attr-defined]


@roundelay.algorithm("all_reduce")
def crossing(row: Axis, column: Axis, rows: bool = True, w: Annotated[int, range(1, 5)] = 2) -> None:
    n = row.size * column.size

    if rows:
        for r in each:
            if column > 0:
                r.to(row, 0).reduce(data)
        for r in each:
            if row > 0 and column == 0:
                r.to(0, column).reduce(data)
    else:
        for r in each:
            if row > 0:
                r.to((0, column)).reduce(data)
        for i, j in each:
            if i == 0 and j > 0:
                at(i, j).to(i, 0).reduce(data)
    for g in range(ceil_div(n - 1, w)):
        for r in each:
            if row + column == 0:
                for p in range(g * w + 1, min(n, g * w + w + 1)):
                    r.to(p).copy(data)


MOST = 7
"""The most ranks that a rank of the tree sends to at once."""


@roundelay.algorithm("all_reduce")
def composed(n: Ranks, k: Annotated[int, range(2, MOST + 1)] = 3, wide: bool = True) -> None:
    run("reduce.k_ary", k=k).root(n - 1)
    run("broadcast.k_nomial", k=min(k + 1, MOST) if wide else 2).root(n - 1)


@roundelay.algorithm("reduce")
def windowed(n: Ranks, w: Annotated[int, range(1, 5)] = 2) -> None:
    t = scratch(w)

    for g in range(ceil_div(n - 1, w)):
        first = g * w + 1
        for r in each:
            v = (r - root) % n
            if v >= first and v < first + w:
                r.to(root).copy(data).into(t[v - first])
        for i in range(min(w, n - first)):
            root.to(root).reduce(t[i]).into(data)  # type: ignore[attr-defined]


@roundelay.algorithm("scan")
def radix_scan(n: Ranks, k: Annotated[int, range(2, 5)] = 2) -> None:
    for s in range(ceil_log(k, n)):
        d = k**s
        for r in each:
            for j in range(1, k):
                if r + j * d < n:
                    r.to(r + j * d).reduce(data)


RADIX = ("", "(k = 3)", "(k = 4)", "(k = 8)")
SMALL_RADIX = ("", "(k = 3)", "(k = 4)")

TWINS: list[tuple[roundelay.Algorithm, str, tuple[str, ...]]] = [
    (aggregated_pat, "algorithms/all_gather", ("", "(a = 0)", "(a = 2)", "(a = 4)")),
    (k_bruck, "algorithms/all_gather", RADIX),
    (recursive_multiplying, "algorithms/all_reduce", RADIX),
    (exchange(), "algorithms/all_to_all", RADIX),
    (k_dissemination, "algorithms/barrier", RADIX),
    (k_ary, "algorithms/broadcast", RADIX),
    (k_nomial, "algorithms/broadcast", RADIX),
    (reduction(), "algorithms/reduce", RADIX),
    (strided_ring, "tests/parameters", ("", "(step = 3)", "(step = 4)")),
    (segmented_ring, "tests/parameters", ("", "(parts = 1)", "(coarse = false)", "(parts = 3, coarse = false)")),
    (radix_doubling, "tests/parameters", SMALL_RADIX),
    (radix_halving, "tests/parameters", SMALL_RADIX),
    (collection(), "tests/parameters", RADIX),
    (mirrored_chain, "tests/parameters", ("", "(down = true)", "(pieces = 1)", "(down = true, pieces = 16)")),
    (batched_pairwise, "tests/parameters", ("", "(b = 1)", "(b = 3)")),
    (leaders, "tests/parameters", ("", "(m = 3)", "(rounds = false)", "(m = 5, rounds = false)")),
    (crossing, "tests/parameters", ("", "(rows = false)", "(w = 1)", "(rows = false, w = 3)")),
    (composed, "tests/parameters", ("", "(k = 7)", "(wide = false)", "(k = 2, wide = false)")),
    (windowed, "tests/parameters", ("", "(w = 1)", "(w = 3)")),
    (radix_scan, "tests/parameters", SMALL_RADIX),
]
"""Each with the folder of its text, and the values of parameters that both are compared with, the defaults first."""
