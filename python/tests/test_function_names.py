"""Names and statements of Python that the language of algorithms would read differently: refused at their lines."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import gcd
from typing import Any

import pytest
from test_function import line_of

import roundelay
import roundelay.lang
from roundelay import RefusedError
from roundelay._function import translate
from roundelay.lang import at, ceil_div, chunks, data, each, even, log2, root, run, schedule, scratch, span, split

q = 7
WIRE = "bf16"
ring = 3
text = roundelay.algorithm("algorithm mine implements all_reduce on n ranks { use ring }")


def refused(function: Any, at: str, *expected: str) -> str:
    """Check that a function is refused at a line, with these words."""
    with pytest.raises(RefusedError) as error:
        translate(function, "all_reduce")
    words = str(error.value)
    assert all(part in words for part in expected), words
    assert (error.value.source or "").startswith(f"{__file__}:{line_of(function, at)}:"), words
    assert error.value.code == "RL0101" and "= help: " in words
    return words


# Names that are bound again from themselves -----------------------------------------------------------------------


def doubled(n):
    d = 1
    for s in range(n - 1):
        for r in each:
            r.to((r + d) % n).copy(data)
        d = d * 2


def augmented(n):
    d = n
    for k in range(2, n):
        for r in each:
            r.to((r + d) % n).copy(data)
        d //= 3


def added(n):
    d = 0
    for s in range(n - 1):
        d += 2


def shifted(n):
    for r in each:
        d = 4
        for s in range(n):
            d <<= 1


def inside(n):
    d = 1
    for s in range(n):
        if s > 2:
            d = 2 * d


def straight(n):
    d = 1
    d = d + n
    chunks(d)


def by_way_of(n):
    d = 1
    for s in range(n):
        for r in each:
            r.to((r + d) % n).copy(data)
        e = 2 * d
        d = e


def carried(n):
    d = 1
    for s in range(n):
        for r in each:
            r.to((r + d) % n).copy(data)
        d = s + 2


def pair(n):
    a, b = 0, 1
    for s in range(n):
        a, b = b, a + b


def chained(n):
    a = b = 1


def walrus(n):
    d = 1
    for s in range(n):
        if (d := d * 2) < n:
            pass


def with_as(n):
    with open("x") as d:
        chunks(d)


def loop_variable(n):
    s = 5
    for s in range(3):
        pass
    for r in each:
        r.to(s).copy(data)


def next_turn(n):
    s = 0
    for k in range(n):
        for r in each:
            r.to(s).copy(data)
        for s in range(2):
            pass


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [
        (doubled, "d = d * 2", "write d = 1 << s at the beginning of the loop"),
        (augmented, "d //= 3", "write d = n // 3 ** (k - 2) at the beginning of the loop"),
        (added, "d += 2", "write d = 2 * s at the beginning of the loop"),
        (shifted, "d <<= 1", "write d = 4 << s at the beginning of the loop"),
        (inside, "d = 2 * d", "compute `d` from the loop's variable"),
        (straight, "d = d + n", "a name of its own: next_d = d + n"),
        (by_way_of, "d = e", "`d` is bound again here, and line"),
        (carried, "d = s + 2", "would see that in the next turn of the loop"),
        (pair, "a, b = 0, 1", "an assignment binds one name"),
        (chained, "a = b = 1", "an assignment binds one name"),
        (walrus, "(d := d * 2)", "`:=` has no counterpart"),
        (with_as, "with open", "no such statement in algorithms (with)"),
        (loop_variable, "r.to(s)", "`s` may be that of line"),
        (next_turn, "for s in range(2)", "in the next turn of the loop"),
    ],
)
def test_names_bound_again(function: Callable[..., None], at: str, expected: str) -> None:
    refused(function, at, expected)


def test_what_is_proposed_is_what_python_computes() -> None:
    """The closed forms, turn by turn."""
    for begin in (0, 1, 5, 12):
        for step in (1, 2, 3):
            d = [begin] * 4
            for s in range(6):
                assert d == [begin * step**s, begin // step**s, begin + step * s, begin << step * s]
                d = [d[0] * step, d[1] // step, d[2] + step, d[3] << step]


# Names that are bound in a block only -----------------------------------------------------------------------------


def in_branch(n):
    if n > 2:
        q = 3
    for r in each:
        r.to(q).copy(data)


def in_both(n):
    if n > 2:
        q = 3
    else:
        q = 4
    for r in each:
        r.to(q).copy(data)


def in_loop(n):
    for r in each:
        q = r
    for r in each:
        r.to(q).copy(data)


def of_loop(n):
    for q in range(n):
        pass
    for r in each:
        r.to(q).copy(data)


def too_early(n):
    for r in each:
        r.to(q).copy(data)
    q = 3


def in_region(n):
    if n > 2:
        q = 3
    for r in each:
        r.to(r).copy(data[q])


def in_range(n):
    if n > 2:
        q = 3
    for s in range(q):
        pass


def again_in_branch(n):
    d = 1
    if n > 3:
        d = 2
    for r in each:
        r.to(d).copy(data)


def builtin_name(n):
    if n > 2:
        len = 3
    chunks(len)


def of_helper(n):
    def half(a):
        return a // q

    q = 2
    chunks(half(n))


def of_rank_count(n):
    def share(a):
        return a // n

    chunks(share(4))


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [
        (in_branch, "r.to(q)", "`q` is bound inside the `if` at line"),
        (in_branch, "r.to(q)", "write q = a if condition else b"),
        (in_both, "r.to(q)", "inside the `else` of the `if` at line"),
        (in_loop, "r.to(q)", "`q` is bound inside the loop at line"),
        (of_loop, "r.to(q)", "`q` is bound inside the loop at line"),
        (too_early, "r.to(q)", "`q` has no value here: it is bound at line"),
        (in_region, "data[q]", "`q` is bound inside the `if`"),
        (in_range, "range(q)", "`q` is bound inside the `if`"),
        (again_in_branch, "r.to(d)", "or that of line"),
        (builtin_name, "chunks(len)", "`len` is bound inside the `if`"),
        (of_helper, "a // q", "a helper does not see `q`"),
        (of_rank_count, "a // n", "hand `n` over as a parameter"),
    ],
)
def test_names_of_blocks_do_not_come_from_elsewhere(function: Callable[..., None], at: str, expected: str) -> None:
    refused(function, at, expected)


# Words that are something else ------------------------------------------------------------------------------------


def own_root(n):
    root = 3
    for r in each:
        r.to(root).copy(data)


def own_keyword(n):
    take = 3
    chunks(take)


def own_letters(n):
    größe = 3
    chunks(größe)


def mathematical(n):
    chunks(gcd(n, 4))


def of_module(n):
    chunks(helper(n))


def helper(a: int) -> int:
    return a + 1


def of_attribute(n):
    chunks(math.gcd(n, 4))


def helper_as_number(n):
    def ring(a):
        return a

    chunks(ring)


def decorated_helper(n):
    @staticmethod
    def half(a):
        return a // 2

    chunks(half(n))


def run_number(n):
    run(ring)


def run_algorithm(n):
    run(text)


def injected(n):
    run("ring over gpu")


def injected_entry(n):
    run("all_reduce.ring")
    schedule().protocol("direct channels 4")


def number_as_buffer(n):
    t = n
    for r in each:
        r.to(r).copy(t[0])


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [
        (own_root, "root = 3", "`root` is a word of algorithms"),
        (own_keyword, "take = 3", "`take` is a keyword"),
        (own_letters, "größe = 3", "has other letters than a to z"),
        (mathematical, "gcd(n, 4)", "`gcd` is a builtin_function_or_method of your program"),
        (of_module, "helper(n)", "define def helper(…): return … at the start of the algorithm"),
        (of_attribute, "math.gcd", "this expression has no counterpart"),
        (helper_as_number, "chunks(ring)", "`ring` is a function"),
        (decorated_helper, "@staticmethod", "a helper has no decorator"),
        (run_number, "run(ring)", "`ring` is a int here, not the name of an algorithm"),
        (run_algorithm, "run(text)", "`text` is a Algorithm here"),
        (injected, "ring over gpu", "this is no name"),
        (injected_entry, "direct channels 4", "this is no name"),
        (number_as_buffer, "copy(t[0])", "`t` is a number, not a buffer"),
    ],
)
def test_words_mean_what_they_mean_in_python(function: Callable[..., None], at: str, expected: str) -> None:
    refused(function, at, expected)


def test_words_of_the_module_are_not_those_of_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, function in [
        ("data", [1, 2], doubled_right),
        ("each", [0, 1], doubled_right),
        ("root", 0, rooted),
        ("log2", math.log2, doubled_right),
        ("range", list, doubled_right),
        ("max", sum, rooted),
    ]:
        with monkeypatch.context() as changed:
            changed.setitem(globals(), name, value)
            with pytest.raises(RefusedError, match=f"`{name}` is a .* of your program here"):
                translate(function, "broadcast")
        translate(function, "broadcast")


# Statements and expressions ---------------------------------------------------------------------------------------


def loop_else(n):
    for s in range(n):
        pass
    else:
        chunks(n)


def breaking(n):
    for s in range(n):
        break


def deleting(n):
    d = 1
    del d


def globally(n):
    global q
    q = 2


def returning(n):
    if n == 1:
        return
    run("all_reduce.ring")


def asserting(n):
    assert n > 1


def late_helper(n):
    chunks(n)

    def half(a):
        return a // 2


def identity(n):
    chunks(n if n is None else 1)


def inverted(n):
    chunks(~n)


def listed(n):
    chunks(max([n, 2]))


def from_end(n):
    for r in each:
        r.to(r).copy(data[-1])


def but_last(n):
    for r in each:
        r.to(r).copy(data[:-1])


def backwards(n):
    for r in each:
        r.to(r).copy(data[3:0:-1])


def unknown_step(n):
    for r in each:
        r.to(r).copy(data[0 : n : r - 1])


def two_of_range(n):
    for s, t in range(n):
        pass


def twice(n):
    for i, i in each:
        pass


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [
        (loop_else, "        chunks(n)", "a loop has no `else`"),
        (breaking, "        break", "choose turns with `if` inside the loop"),
        (deleting, "    del d", "a name ends with its block"),
        (globally, "global q", "as they are when the function is decorated"),
        (returning, "        return", "an algorithm has no value"),
        (asserting, "assert n", "write requires(condition)"),
        (late_helper, "def half", "helpers stand at the start"),
        (identity, "n is None", "this expression has no counterpart"),
        (inverted, "~n", "this expression has no counterpart"),
        (listed, "[n, 2]", "this expression has no counterpart"),
        (from_end, "data[-1]", "none is negative"),
        (but_last, "data[:-1]", "for all but the last"),
        (backwards, "3:0:-1", "a step may be negative"),
        (unknown_step, "r - 1]", "write data[span(a, b)].by(step)"),
        (two_of_range, "for s, t", "this loop binds one name"),
        (twice, "for i, i", "the loop binds `i` twice"),
    ],
)
def test_python_without_a_counterpart(function: Callable[..., None], at: str, expected: str) -> None:
    refused(function, at, expected)


def test_functions_that_are_not_what_they_look_like() -> None:
    import functools

    @functools.wraps(doubled)
    def wrapper(n):
        doubled(n)

    async def later(n):
        chunks(n)

    with pytest.raises(RefusedError, match="wrapped by another decorator"):
        translate(wrapper, "all_reduce")
    with pytest.raises(RefusedError, match="no plain function"):
        translate(later, "all_reduce")
    with pytest.raises(RefusedError, match="no plain function|cannot be read"):
        translate(lambda n: chunks(n), "all_reduce")


# What is right ----------------------------------------------------------------------------------------------------


def doubled_right(n):
    chunks(log2(n) + 1)
    for s in range(n - 1):
        d = 1 << s
        for r in each:
            r.to((r + d) % n).copy(data)


def rooted(n):
    for r in each:
        max(root, r).to(min(r, root)).copy(data)


def sources(n):
    chunks(n)
    k = n
    for r in each:
        (r if even(r) else (r + 1) % n).to((r + 1) % n).copy(data[r])
        (-r % n).to(r).copy(data[k - 1 - r])
        ceil_div(r, 2).to(r).copy(data[0])


def parts(n):
    t = scratch(n)
    for r in each:
        r.to(r).copy(data[r]).wire(WIRE).into(t[r])
        at(r).to(r).copy(t[span(0, n).take(1).by(2)])


def slices(n):
    chunks(n)
    for side in split(data, range(2)):
        for r in each:
            p = r ^ 1
            r.to(p).copy(data[r - r % 2 : n : side + 1])
            r.to(p).copy(data[0 : n - 2])


def test_sources_of_any_form() -> None:
    algorithm, _ = translate(sources, "all_reduce")
    assert "(if even(r) { r } else { (r + 1) % n }) -> (r + 1) % n : copy data[r]" in algorithm
    assert "(-r % n) -> r : copy data[k - 1 - r]" in algorithm
    assert "ceil_div(r, 2) -> r : copy data[0]" in algorithm
    assert roundelay.algorithm(algorithm, name="sources").name == "sources"
    algorithm, _ = translate(rooted, "broadcast")
    assert "max(root, r) -> min(r, root) : copy data" in algorithm


def test_parts_have_no_order_in_python() -> None:
    algorithm, _ = translate(parts, "all_reduce")
    assert "r -> r : copy data[r] -> t[r] as bf16" in algorithm
    assert "(r) -> r : copy t[0..n by 2 take 1]" in algorithm


def test_a_negative_end_is_an_error(command: str) -> None:
    algorithm, _ = translate(slices, "all_reduce")
    assert "data[r - r % 2..n by side + 1]" in algorithm
    guarded = "data[if n - 2 < 0 { n - 2 } else { 0 }..if n - 2 < 0 { n - 2 + 1 } else { n - 2 }]"
    assert guarded in algorithm

    def short(n):
        k = n - 4
        for r in each:
            r.to(r).copy(data[0:k])

    mine = roundelay.algorithm("all_reduce")(short)
    with pytest.raises(RefusedError, match="chunks -1..0 of 1") as error:
        mine.check(3)
    assert error.value.code == "RL0401"
    assert f"{__file__}:{line_of(short, 'data[0:k]')}:" in str(error.value)


def test_the_vocabulary_has_every_function_that_is_known_here() -> None:
    from roundelay._bindings import FUNCTIONS

    assert set(roundelay.lang.__all__) >= FUNCTIONS
