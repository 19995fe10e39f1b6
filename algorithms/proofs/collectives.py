"""What collectives begin with and ask for, as expressions of any place and any contribution."""

import re

from programs import Expression, Parser, Program, variables
from refutations import require
from states import View


def parse(text: str, letters: str = "qcje") -> Expression:
    """Reads an expression of a place and a contribution, not of the variables of transfers."""
    parser = Parser(text)
    found = parser.expression()
    require(not parser.peek(), f"words after an expression: {text}")
    for name in variables(found):
        is_outer = re.fullmatch(f"n|root|[{letters}]|[sk][0-9]+", name, re.ASCII) is not None
        require(is_outer, f"`{name}` is not known of a place")
    return found


FORGOTTEN: View = (parse("(0 == 1)"), parse("((j == q) && (e == c))"))


def specification(program: Program) -> tuple[View, View]:
    """Returns what the first buffer has before a program, and what its result must have."""
    kind, is_data = program.kind, program.is_data
    stored = "(0 == 0)"
    if kind in ("all_gather", "gather") and is_data:
        stored = "(c == q)"
    elif kind in ("broadcast", "scatter"):
        stored = "(q == root)"
    elif kind == "sendrecv":
        stored = "(q == 0)"
    # Of a buffer of one block, block r of the vector is chunk 0.
    own = "(c == q)" if is_data else "(0 == 0)"
    block = "(e == c)" if is_data else "(e == q)"
    gathered = f"((j == c) && {'(e == c)' if is_data else '(e == 0)'})"
    asked = {
        "all_reduce": ("(0 == 0)", "(e == c)"),
        "reduce": ("(q == root)", "(e == c)"),
        "reduce_scatter": (own, block),
        "broadcast": ("(0 == 0)", "((j == root) && (e == c))"),
        "scatter": (own, f"((j == root) && {block})"),
        "all_gather": ("(0 == 0)", gathered),
        "gather": ("(q == root)", gathered),
        "all_to_all": ("(0 == 0)", "((j == c) && (e == q))"),
        "sendrecv": ("(q == 1)", "((j == 0) && (e == c))"),
        "barrier": ("(0 == 0)", "(e == c)"),
        "scan": ("(0 == 0)", "((j <= q) && (e == c))"),
        "exscan": ("(0 < q)", "((j < q) && (e == c))"),
    }
    first, second = asked[kind]
    return (parse(stored), FORGOTTEN[1]), (parse(first), parse(second))
