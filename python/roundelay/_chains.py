"""Chains of calls: ``r.to(p).copy(data)``."""

from __future__ import annotations

import ast

__all__ = ["call_of", "chain_of", "part_of", "stands_first"]


def chain_of(call: ast.expr) -> tuple[ast.expr, list[tuple[str, list[ast.expr]]]]:
    """Return ``f(x).b(y)`` as ``f`` and ``[("", [x]), ("b", [y])]``, and ``r.b(y)`` as ``r`` and ``[("b", [y])]``."""
    links: list[tuple[str, list[ast.expr]]] = []
    node: ast.expr = call
    while isinstance(node, ast.Call) and not node.keywords:
        match node.func:
            case ast.Attribute(value=before, attr=word):
                links.insert(0, (word, node.args))
                node = before
            case ast.Name():
                return node.func, [("", node.args), *links]
            case _:
                break
    return node, links


def call_of(call: ast.expr, links: int) -> ast.expr:
    """Return what a chain begins with, before the last links, of which the number is given."""
    for _ in range(links):
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        call = call.func.value
    return call


def part_of(call: ast.Call) -> ast.Call:
    """Return the call that a chain begins with: ``run("ring", k=4)`` of ``run("ring", k=4).over(gpu)``."""
    while isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        call = call.func.value
    return call


def stands_first(node: ast.expr) -> bool:
    """Return true if a rank may begin a statement as it is, whatever stands before it."""
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return named or isinstance(node, (ast.Name, ast.Tuple)) or isinstance(node, ast.Constant)
