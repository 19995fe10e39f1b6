"""Python functions as texts in the language of algorithms.

The function is read, never run, so the number of ranks stays symbolic. The text has each statement at the line where
Python has it, and as far as possible at its column, and bears the name of the Python file: what the compiler says of
it, it says of the function.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from roundelay._bindings import check_bindings
from roundelay._chains import call_of, chain_of, part_of, stands_first
from roundelay._expressions import ExpressionTranslator
from roundelay._phrases import near
from roundelay._source import FunctionSource

__all__ = ["translate"]

_CALLS = ("to", "copy", "reduce", "run", "chunks", "requires", "schedule", "tolerates")


def translate(function: Callable[..., None], collective: str) -> tuple[str, str]:
    """Return the text of an algorithm that a function is, and the name of its file.

    Raises ``RefusedError`` at the line that has no counterpart in the language, or would have another meaning there.
    """
    source = FunctionSource(function)
    check_bindings(source)
    text = _Text(source)
    text.algorithm(source.tree, collective)
    return text.whole(), source.file


class _Text(ExpressionTranslator):
    """A text that grows, line by line."""

    def __init__(self, source: FunctionSource) -> None:
        super().__init__(source)
        self.lines: dict[int, str] = {}
        self.last = 1

    def whole(self) -> str:
        return "\n".join(self.lines.get(line, "") for line in range(1, self.last + 1)) + "\n"

    def put(self, node: ast.AST, text: str) -> None:
        """Add words at the place of a node."""
        line = max(getattr(node, "lineno", self.last), self.last)
        before = self.lines.get(line, "")
        column = self.source.column(node)
        self.lines[line] = f"{before} {text}" if before else " " * column + text
        self.last = line

    def close(self, node: ast.AST) -> None:
        """End a block where its last statement ends."""
        self.last = max(self.last, getattr(node, "end_lineno", self.last) or self.last)
        self.lines[self.last] = self.lines.get(self.last, "") + " }"

    # Declarations -------------------------------------------------------------------------------

    def algorithm(self, tree: ast.FunctionDef, collective: str) -> None:
        axes, parameters = self.signature(tree)
        body = list(tree.body)
        if body and _is_text(body[0]):
            body.pop(0)
        self.helpers = {helper.name for helper in body if isinstance(helper, ast.FunctionDef)}
        while body and isinstance(body[0], ast.FunctionDef):
            self.helper(body[0])
            body.pop(0)
        self.bound = {**dict.fromkeys(axes, 1 if len(axes) == 1 else 0), **parameters}
        self.axes = axes
        head = axes[0] if len(axes) == 1 else f"({', '.join(axes)})"
        start: ast.AST = body[0] if body else tree
        given = self.defaults(tree)
        self.put(start, f"algorithm {tree.name}{given} implements {collective} on {head} ranks {{")
        self.block(body)
        self.close(tree)

    def signature(self, tree: ast.FunctionDef) -> tuple[list[str], dict[str, int | None]]:
        """Return the names of the axes, and those of the parameters with the least value that each can have."""
        a = tree.args
        names = [p.arg for p in (*a.posonlyargs, *a.args)]
        axes = names[: len(names) - len(a.defaults)]
        if a.vararg or a.kwarg or not axes:
            self.refuse(tree, "the number of ranks has no name", "write def name(n), or def name(node, gpu) for a grid")
        parameters = self.keywords(tree)
        return axes, {p.arg: self.least(bounds[0]) if bounds else None for p, _, bounds in parameters}

    def keywords(self, tree: ast.FunctionDef) -> list[tuple[ast.arg, ast.expr, tuple[ast.expr, ast.expr] | None]]:
        """Return what has a default, with it and with the start and the end that an annotation gives."""
        a = tree.args
        names = [*a.posonlyargs, *a.args]
        pairs: list[tuple[ast.arg, ast.expr | None]] = [
            *zip(names[len(names) - len(a.defaults) :], a.defaults, strict=True),
            *zip(a.kwonlyargs, a.kw_defaults, strict=True),
        ]
        found: list[tuple[ast.arg, ast.expr, tuple[ast.expr, ast.expr] | None]] = []
        for name, default in pairs:
            if default is None:
                self.refuse(name, f"the parameter `{name.arg}` has no default", f"write {name.arg}=2")
            bounds = None
            match name.annotation:
                case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[_, range_])):
                    match range_:
                        case ast.Call(func=ast.Name(id="range"), args=[start, end], keywords=[]):
                            self.word(range_, "range")
                            bounds = start, end
                        case _:
                            help_ = f"write {name.arg}: Annotated[int, range(2, 9)] = 2 for 2 to 8"
                            self.refuse(name, "these are no bounds of a parameter", help_)
            found.append((name, default, bounds))
        return found

    def defaults(self, tree: ast.FunctionDef) -> str:
        """Return the parameters as the language has them, in parentheses."""
        outer, self.bound = self.bound, {}
        given: list[str] = []
        for name, default, bounds in self.keywords(tree):
            text = f"{name.arg} = {self.expression(default)}"
            match bounds:
                case start, ast.Constant(value=int() as end):
                    text += f" in {self.expression(start, 1)}..={end - 1}"
                case start, end:
                    text += f" in {self.expression(start, 1)}..={self.expression(end, 1)} - 1"
            given.append(text)
        self.bound = outer
        return f"({', '.join(given)})" if given else ""

    def helper(self, tree: ast.FunctionDef) -> None:
        a = tree.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.defaults:
            self.refuse(tree, "parameters of a helper are names only", f"write def {tree.name}(a, b)")
        names = [p.arg for p in (*a.posonlyargs, *a.args)]
        self.bound = dict.fromkeys(names)
        *lets, result = tree.body[1:] if _is_text(tree.body[0]) and len(tree.body) > 1 else tree.body
        if not isinstance(result, ast.Return) or result.value is None:
            self.refuse(tree, f"the helper `{tree.name}` does not end with a value", "let it end with return …")
        self.put(tree, f"fn {tree.name}({', '.join(names)}) {{")
        for let in lets:
            if not isinstance(let, (ast.Assign, ast.AnnAssign)) or _is_scratch(let.value):
                self.refuse(let, "a helper names values and returns one", "write name = …, then return …")
            self.statement(let)
        self.put(result, self.expression(result.value))
        self.close(tree)

    # Statements ---------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Pass():
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(
                target=ast.Name(id=name), value=ast.expr() as value
            ):
                self.let(node, name, value)
            case ast.For(orelse=[]):
                self.loop(node)
            case ast.If():
                self.put(node, f"if {self.expression(node.test)} {{")
                self.body(node, node.body)
                while node.orelse:
                    match node.orelse:
                        case [ast.If() as other]:
                            self.lines[self.last] += f" else if {self.expression(other.test)} {{"
                            self.body(other, other.body)
                            node = other
                        case rest:
                            self.lines[self.last] += " else {"
                            self.body(node, rest)
                            break
            case ast.Expr(value=ast.Call() as call):
                self.call(node, call)
            case _:
                self.source.refuse_statement(node)

    def body(self, node: ast.AST, body: list[ast.stmt]) -> None:
        outer = dict(self.bound)
        self.block(body)
        self.close(body[-1])
        self.bound = outer

    def let(self, node: ast.stmt, name: str, value: ast.expr) -> None:
        match value:
            case ast.Call(func=ast.Name(id="scratch"), args=[count], keywords=[]):
                self.word(value, "scratch")
                self.put(node, f"scratch {name}[{self.expression(count)}]")
                self.buffers.add(name)
                self.bound[name] = None
            case _:
                least = self.least(value)
                self.put(node, f"let {name} = {self.expression(value)}")
                self.bound[name] = least

    def loop(self, node: ast.For) -> None:
        match node.target:
            case ast.Name(id=name):
                names = [name]
            case ast.Tuple(elts=[_, _, *_] as elements) if all(isinstance(e, ast.Name) for e in elements):
                names = [e.id for e in elements if isinstance(e, ast.Name)]
            case _:
                self.refuse(node.target, "a loop binds names", "write for r in each, or for node, gpu in each")
        least: int | None = 0
        match node.iter:
            case ast.Name(id="each"):
                self.word(node.iter, "each")
                head = f"each {names[0]}" if len(names) == 1 else f"each ({', '.join(names)})"
            case ast.Call(func=ast.Name(id="range"), args=arguments) if len(names) == 1:
                head = f"for {names[0]} in {self.range(node.iter)}"
                least = self.least(arguments[0]) if len(arguments) > 1 else 0
            case ast.Call(func=ast.Name(id="split"), args=[ast.Name(id=buffer), parts], keywords=[]) if len(names) == 1:
                self.word(node.iter, "split")
                head = f"split {self.buffer(node.iter, buffer)} over {names[0]} in {self.parts(parts, names[0])}"
                least = self.least(parts.args[0]) if isinstance(parts, ast.Call) and len(parts.args) > 1 else 0
            case ast.Call(func=ast.Name(id="range" | "split")):
                self.refuse(node.target, "this loop binds one name", "write for s in range(…)")
            case _:
                over = node.iter.func if isinstance(node.iter, ast.Call) else node.iter
                guess = near(over.id, ("each", "range", "split")) if isinstance(over, ast.Name) else ""
                self.refuse(
                    node.iter,
                    f"a loop goes over ranks, numbers or parts{guess}",
                    "write each, range(…) or split(data, …)",
                )
        self.put(node, f"{head} {{")
        outer = dict(self.bound)
        self.bound.update(dict.fromkeys(names, least))
        self.block(node.body)
        self.close(node.body[-1])
        self.bound = outer

    def parts(self, node: ast.expr, target: str) -> str:
        match node:
            case ast.Name(id="paths"):
                self.word(node, "paths")
                return "paths"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="paths"), attr="by"), args=[ast.Name(id=weight)]):
                self.word(node, "paths")
                return f"paths by {self.function(node, weight)}({target})"
            case ast.Call(func=ast.Name(id="range")):
                return self.range(node)
        self.refuse(node, "these are no parts", "write split(data, range(2)) or split(data, paths)")

    def call(self, node: ast.stmt, call: ast.Call) -> None:
        part = part_of(call)
        keywords, part.keywords = part.keywords, []
        first, chain = chain_of(call)
        given = ", ".join(f"{k.arg} = {self.expression(k.value)}" for k in keywords)
        given = f"({given})" if given else ""
        if keywords and not (isinstance(first, ast.Name) and first.id in ("run", "play")):
            self.refuse(node, "only run(…) takes arguments by name", 'write run("broadcast.k_nomial", k=4)')
        match first, chain:
            case ast.Name(id="chunks" | "requires" | "tolerates" as word), [("", [value])]:
                self.word(node, word)
                self.put(node, f"{word} {self.expression(value)}")
            case ast.Name(id="run" | "play" as word), [("", [what]), *rest]:
                self.word(node, word)
                self.put(node, " ".join([f"use {self.name(what)}{given}", *self.places(node, rest, _PARTS)]))
            case ast.Name(id="schedule"), [("", []), *rest]:
                self.word(node, "schedule")
                entries = [f"{word} {self.entry(node, arguments)}" for word, arguments in rest]
                self.put(node, f"schedule {{ {' '.join(entries)} }}")
            case _, (
                [("to", target), ("copy" | "reduce" as word, [region]), *rest]
                | [("", _), ("to", target), ("copy" | "reduce" as word, [region]), *rest]
            ):
                source = call_of(call, len(rest) + 2)
                where = self.rank(target[0]) if len(target) == 1 else self.coordinates(target)
                # What stands first must not go on with what the statement before it ends with.
                head = self.rank(source) if stands_first(source) else f"({self.expression(source)})"
                head = f"{head} -> {where} : {word} {self.region(region)}"
                self.put(node, " ".join([head, *self.places(node, rest, _TRANSFERS)]))
            case _:
                said = [word for word, _ in chain if word] or [first.id if isinstance(first, ast.Name) else ""]
                guess = next(filter(None, (near(word, _CALLS) for word in said if word not in _CALLS)), "")
                self.refuse(
                    node,
                    f"this call is no statement of algorithms{guess}",
                    "write r.to(p).copy(data[i]) or .reduce(…), run(…), chunks(…), requires(…) or schedule()…",
                )

    def entry(self, node: ast.AST, arguments: list[ast.expr]) -> str:
        match arguments:
            case [ast.Constant(value=str())] | [ast.Name(id="auto" | "direct" | "staged")]:
                return self.name(arguments[0])
            case [ast.Name(id=word)] if word not in self.bound and isinstance(self.outside.get(word), str):
                return self.name(arguments[0])
            case [value]:
                return self.expression(value, 1)
        self.refuse(node, "an entry of a schedule has one value", "write schedule().pipeline(4)")


_PARTS = {"over": "over", "on": "on", "into": "->", "root": "root", "via": "via"}
_TRANSFERS = {"into": "->", "wire": "as"}


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_scratch(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "scratch"
