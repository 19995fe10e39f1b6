"""The least value that an expression of an algorithm can have, where that is evident.

In a slice of Python a negative end counts from the end; regions of algorithms count from their start. So an end that
may be negative is not taken over as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

__all__ = ["least_value"]

# Functions whose values are never negative, where they have one.
_COUNTS = frozenset("abs bit_reverse ceil_log ceil_log2 gcd log log2 lowbit popcount trailing_zeros".split())


def least_value(node: ast.expr, known: Mapping[str, int | None]) -> int | None:
    """Return a number that the value of an expression is never below, or None. ``known`` has those of names."""

    def of(operand: ast.expr) -> int | None:
        return least_value(operand, known)

    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return known.get(name)
        case ast.Attribute(attr="size"):
            return 1
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
            return -number
        case ast.BinOp(left=left, op=ast.Sub(), right=ast.BinOp(left=whole, op=ast.Mod())) if (
            ast.dump(left) == ast.dump(whole) and (of(left) or 0) >= 0 and of(left) is not None
        ):
            return 0
        case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=int() as number)):
            least = of(left)
            return None if least is None else least - number
        case ast.BinOp(left=left, op=operator, right=right):
            return _of_operator(operator, of(left), of(right))
        case ast.IfExp(body=body, orelse=other):
            sides = of(body), of(other)
            return None if None in sides else min(s for s in sides if s is not None)
        case ast.Call(func=ast.Name(id="max"), args=arguments):
            return max((least for a in arguments if (least := of(a)) is not None), default=None)
        case ast.Call(func=ast.Name(id="min"), args=[_, *_] as arguments):
            found = [of(a) for a in arguments]
            return None if None in found else min(least for least in found if least is not None)
        case ast.Call(func=ast.Name(id=name)) if name in _COUNTS:
            return 0
        case ast.Call(func=ast.Name(id="ceil_div"), args=[left, right]):
            return _of_operator(ast.FloorDiv(), of(left), of(right))
    return None


def _of_operator(operator: ast.operator, left: int | None, right: int | None) -> int | None:
    """Return the least value of an operator whose sides have these."""
    match operator:
        case ast.Mod():
            # It has the sign of the right side, which is not 0.
            return 0 if right is not None and right >= 0 else None
        case _ if left is None or right is None or left < 0 or right < 0:
            both = left is not None and right is not None and isinstance(operator, ast.Add)
            return left + right if both and left is not None and right is not None else None
        case ast.Add():
            return left + right
        case ast.Mult():
            return left * right
        case ast.LShift():
            return left << min(right, 62)
        case ast.Pow():
            return min(1, left)
        case ast.FloorDiv() | ast.RShift() | ast.BitAnd() | ast.BitOr() | ast.BitXor():
            return 0
    return None
