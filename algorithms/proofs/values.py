"""Values of expressions where all variables have one."""

from typing import Any, Mapping

from programs import Expression
from refutations import Refused, require

# Absolute values are below this, so that they fit the 64 bits of a run.
MOST = 1 << 62

OPERATIONS: dict[str, Any] = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y,
    "/": lambda x, y: x // y, "%": lambda x, y: x % y, "<<": lambda x, y: x << y,
    ">>": lambda x, y: x >> y, "^": lambda x, y: x ^ y, "&": lambda x, y: x & y,
    "|": lambda x, y: x | y, "<": lambda x, y: x < y, "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y, ">=": lambda x, y: x >= y, "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y, "neg": lambda x: -x, "!": lambda x: not x,
}
FUNCTIONS: dict[str, Any] = {
    "min": lambda *x: min(x), "max": lambda *x: max(x), "abs": abs,
    "even": lambda x: x % 2 == 0, "odd": lambda x: x % 2 == 1,
    "ceil_div": lambda x, y: -(-x // y), "log2": lambda x: x.bit_length() - 1,
    "ceil_log2": lambda x: (x - 1).bit_length(), "pow": lambda x, y: x**y,
    "lowbit": lambda x: x & -x,
    "log": lambda b, x: max(k for k in range(64) if b**k <= x),
    "ceil_log": lambda b, x: min(k for k in range(64) if b**k >= x),
    "pow2": lambda x: x > 0 and x & (x - 1) == 0,
}
# The operands for which operations and functions have a value, where not for all.
DOMAINS: dict[str, Any] = {
    "/": lambda x, y: y >= 1, "%": lambda x, y: y >= 1, "ceil_div": lambda x, y: y >= 1,
    "<<": lambda x, y: 0 <= y < 63, ">>": lambda x, y: 0 <= y < 63,
    "pow": lambda x, y: 0 <= y < 63, "log2": lambda x: x >= 1, "ceil_log2": lambda x: x >= 1,
    "log": lambda b, x: b >= 2 and x >= 1, "ceil_log": lambda b, x: b >= 2 and x >= 1,
}


def evaluate(e: Expression, env: Mapping[str, int]) -> Any:
    """Returns the value of an expression."""
    op, *args = e
    if op == "int":
        return args[0]
    if op == "var":
        require(args[0] in env, f"`{args[0]}` has no value here")
        return env[args[0]]
    if op == "if":
        return evaluate(args[1] if evaluate(args[0], env) else args[2], env)
    if op in ("&&", "||"):
        first = bool(evaluate(args[0], env))
        return first if first == (op == "||") else bool(evaluate(args[1], env))
    name = args.pop(0) if op == "call" else op
    known = FUNCTIONS if op == "call" else OPERATIONS
    require(name in known, f"no function: {name}")
    values = [evaluate(a, env) for a in args]
    try:
        require(name not in DOMAINS or DOMAINS[name](*values), f"`{name}` of these numbers")
        value = known[name](*values)
    except TypeError as why:
        raise Refused(f"`{name}` of that number of arguments") from why
    require(abs(value) < MOST, "a number exceeds 62 bits")
    return value
