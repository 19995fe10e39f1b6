"""Python functions as texts in the language of algorithms.

The function is read, never run, so the number of ranks stays symbolic. The text has each statement at the line where
Python has it, and as far as possible at its column, and bears the name of the Python file: what the compiler says of
it, it says of the function.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

from roundelay import lang
from roundelay.errors import RefusedError

__all__ = ["translate"]

# Operators with how tightly they bind; those of one number group to the left.
_BINARY: dict[type[ast.operator], tuple[str, int]] = {
    ast.BitOr: ("|", 4),
    ast.BitXor: ("^", 5),
    ast.BitAnd: ("&", 6),
    ast.LShift: ("<<", 7),
    ast.RShift: (">>", 7),
    ast.Add: ("+", 8),
    ast.Sub: ("-", 8),
    ast.Mult: ("*", 9),
    ast.FloorDiv: ("/", 9),
    ast.Mod: ("%", 9),
}
_OR, _AND, _COMPARISON, _PREFIX = 1, 2, 3, 10
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_WORDS = frozenset(lang.__all__)


def translate(function: Callable[..., None], collective: str) -> tuple[str, str]:
    """Return the text of an algorithm that a function is, and the name of its file.

    Raises ``RefusedError`` at the line that has no counterpart in the language.
    """
    if not isinstance(function, FunctionType):
        raise RefusedError(f"@roundelay.algorithm stands over a function, not over a {type(function).__name__}")
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise RefusedError(
            f"the source of `{function.__name__}` cannot be read ({error}): define it in a file or in a notebook"
        ) from error
    file = function.__code__.co_filename
    source = textwrap.dedent("".join(lines))
    indent = len(lines[0]) - len(lines[0].lstrip())
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.FunctionDef)
    ast.increment_lineno(tree, first - 1)
    text = _Text(function, file, indent)
    text.algorithm(tree, collective)
    return text.whole(), file


class _Text:
    """A text that grows, line by line."""

    def __init__(self, function: FunctionType, file: str, indent: int) -> None:
        self.file = file
        self.indent = indent
        self.lines: dict[int, str] = {}
        self.last = 1
        self.bound: set[str] = set()
        self.outside = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}

    def whole(self) -> str:
        return "\n".join(self.lines.get(line, "") for line in range(1, self.last + 1)) + "\n"

    def put(self, node: ast.AST, text: str) -> None:
        """Add words at the place of a node."""
        line = max(getattr(node, "lineno", self.last), self.last)
        before = self.lines.get(line, "")
        column = self.indent + getattr(node, "col_offset", 0)
        self.lines[line] = f"{before} {text}" if before else " " * column + text
        self.last = line

    def close(self, node: ast.AST) -> None:
        """End a block where its last statement ends."""
        self.last = max(self.last, getattr(node, "end_lineno", self.last) or self.last)
        self.lines[self.last] = self.lines.get(self.last, "") + " }"

    def refuse(self, node: ast.AST, why: str, remedy: str) -> NoReturn:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + self.indent
        width = max(1, getattr(node, "end_col_offset", column + 1) - getattr(node, "col_offset", 0))
        code = linecache.getline(self.file, line).rstrip()
        margin = " " * len(str(line))
        raise RefusedError(
            f"error[RL0101]: {why}\n{margin}--> {self.file}:{line}:{column + 1}\n{margin} |\n{line} | {code}\n"
            f"{margin} | {' ' * column}{'^' * width}\n{margin} |\n{margin} = help: {remedy}",
            code="RL0101",
            source=f"{self.file}:{line}:{column + 1}",
        )

    # Declarations -------------------------------------------------------------------------------

    def algorithm(self, tree: ast.FunctionDef, collective: str) -> None:
        axes = self.parameters(tree)
        body = list(tree.body)
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            if isinstance(body[0].value.value, str):
                body.pop(0)
        while body and isinstance(body[0], ast.FunctionDef):
            self.helper(body[0])
            body.pop(0)
        self.bound = set(axes)
        head = axes[0] if len(axes) == 1 else f"({', '.join(axes)})"
        start: ast.AST = body[0] if body else tree
        self.put(start, f"algorithm {tree.name} implements {collective} on {head} ranks {{")
        self.block(body)
        self.close(tree)

    def parameters(self, tree: ast.FunctionDef) -> list[str]:
        a = tree.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.defaults:
            self.refuse(tree, "parameters are names only", "write def name(n), or def name(node, gpu) for a grid")
        names = [p.arg for p in (*a.posonlyargs, *a.args)]
        if not names:
            self.refuse(tree, "the number of ranks has no name", "write def name(n), or def name(node, gpu) for a grid")
        return names

    def helper(self, tree: ast.FunctionDef) -> None:
        names = self.parameters(tree)
        self.bound = set(names)
        *lets, result = tree.body
        if not isinstance(result, ast.Return) or result.value is None:
            self.refuse(tree, f"the helper `{tree.name}` does not end with a value", "let it end with return …")
        self.put(tree, f"fn {tree.name}({', '.join(names)}) {{")
        for let in lets:
            if not isinstance(let, (ast.Assign, ast.AnnAssign)):
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
                words = type(node).__name__.lower()
                self.refuse(
                    node,
                    f"there is no such statement in algorithms ({words})",
                    "there are name = …, for, if, and calls such as r.to(p).copy(data[i]), play(…), chunks(…)",
                )

    def body(self, node: ast.AST, body: list[ast.stmt]) -> None:
        outer = set(self.bound)
        self.block(body)
        self.close(body[-1])
        self.bound = outer

    def let(self, node: ast.stmt, name: str, value: ast.expr) -> None:
        match value:
            case ast.Call(func=ast.Name(id="scratch"), args=[count], keywords=[]):
                self.put(node, f"scratch {name}[{self.expression(count)}]")
            case _:
                self.put(node, f"let {name} = {self.expression(value)}")
        self.bound.add(name)

    def loop(self, node: ast.For) -> None:
        match node.target:
            case ast.Name(id=name):
                names = [name]
            case ast.Tuple(elts=elements) if all(isinstance(e, ast.Name) for e in elements):
                names = [e.id for e in elements if isinstance(e, ast.Name)]
            case _:
                self.refuse(node.target, "a loop binds names", "write for r in each, or for node, gpu in each")
        target = names[0] if len(names) == 1 else f"({', '.join(names)})"
        match node.iter:
            case ast.Name(id="each"):
                head = f"each {target}"
            case ast.Call(func=ast.Name(id="range")):
                head = f"for {target} in {self.range(node.iter)}"
            case ast.Call(func=ast.Name(id="split"), args=[ast.Name(id=buffer), parts], keywords=[]):
                head = f"split {buffer} over {target} in {self.parts(parts, target)}"
            case _:
                self.refuse(
                    node.iter, "a loop goes over ranks, numbers or parts", "write each, range(…) or split(data, …)"
                )
        self.put(node, f"{head} {{")
        outer = set(self.bound)
        self.bound.update(names)
        self.block(node.body)
        self.close(node.body[-1])
        self.bound = outer

    def range(self, node: ast.expr) -> str:
        match node:
            case ast.Call(func=ast.Name(id="range"), args=[end], keywords=[]):
                return f"0..{self.expression(end)}"
            case ast.Call(func=ast.Name(id="range"), args=[start, end], keywords=[]):
                return f"{self.expression(start)}..{self.expression(end)}"
        self.refuse(node, "a range has a start and an end", "write range(n) or range(a, b), and if inside")

    def parts(self, node: ast.expr, target: str) -> str:
        match node:
            case ast.Name(id="paths"):
                return "paths"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="paths"), attr="by"), args=[ast.Name(id=weight)]):
                return f"paths by {weight}({target})"
        return self.range(node)

    def call(self, node: ast.stmt, call: ast.Call) -> None:
        chain = _chain(call)
        match chain:
            case [("chunks" | "requires" | "tolerates" as word, [value])]:
                self.put(node, f"{word} {self.expression(value)}")
            case [("play", [what]), *rest]:
                self.put(node, " ".join([f"use {self.name(what)}", *self.places(node, rest, _PARTS)]))
            case [("schedule", []), *rest]:
                entries = [f"{word} {self.entry(node, arguments)}" for word, arguments in rest]
                self.put(node, f"schedule {{ {' '.join(entries)} }}")
            case [ast.expr() as source, ("to", target), ("copy" | "reduce" as word, [region]), *rest]:
                where = self.rank(target[0]) if len(target) == 1 else self.coordinates(target)
                head = f"{self.rank(source)} -> {where} : {word} {self.region(region)}"
                self.put(node, " ".join([head, *self.places(node, rest, _TRANSFERS)]))
            case [("at", source), ("to", target), ("copy" | "reduce" as word, [region]), *rest]:
                where = self.rank(target[0]) if len(target) == 1 else self.coordinates(target)
                head = f"{self.coordinates(source)} -> {where} : {word} {self.region(region)}"
                self.put(node, " ".join([head, *self.places(node, rest, _TRANSFERS)]))
            case _:
                self.refuse(
                    node,
                    "this call is no statement of algorithms",
                    "write r.to(p).copy(data[i]) or .reduce(…), play(…), chunks(…), requires(…) or schedule()…",
                )

    def places(self, node: ast.AST, rest: list[Any], known: dict[str, str]) -> list[str]:
        found = []
        for link in rest:
            match link:
                case (("on" | "into") as word, [region]) if word in known:
                    found.append(f"{known[word]} {self.region(region)}")
                case ("wire", [what]) if "wire" in known:
                    found.append(f"{known['wire']} {self.name(what)}")
                case (str() as word, [value]) if word in known:
                    found.append(f"{known[word]} {self.expression(value)}")
                case _:
                    words = ", ".join(f".{word}(…)" for word in known)
                    self.refuse(node, "this call has a part that is not known here", f"there are {words}")
        return found

    def entry(self, node: ast.AST, arguments: list[ast.expr]) -> str:
        match arguments:
            case [ast.Constant(value=str() as word)]:
                return word
            case [ast.Name(id=word)] if word in ("auto", "direct", "staged"):
                return word
            case [value]:
                return self.expression(value)
        self.refuse(node, "an entry of a schedule has one value", "write schedule().pipeline(4)")

    def name(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=str() as text):
                return text
            case ast.Name(id=text):
                return text
            case ast.Attribute(value=ast.Name(id=collective), attr=text):
                return f"{collective}.{text}"
        self.refuse(node, "this is no name", 'write "reduce_scatter.ring"')

    # Ranks and regions --------------------------------------------------------------------------

    def rank(self, node: ast.expr) -> str:
        match node:
            case ast.Tuple(elts=coordinates) | ast.Call(func=ast.Name(id="at"), args=coordinates):
                return self.coordinates(coordinates)
        return self.expression(node)

    def coordinates(self, coordinates: list[ast.expr]) -> str:
        return f"({', '.join(self.expression(c) for c in coordinates)})"

    def region(self, node: ast.expr) -> str:
        match node:
            case ast.Name(id=buffer):
                return buffer
            case ast.Subscript(value=ast.Name(id=buffer), slice=ast.Slice() as s):
                if s.upper is None:
                    self.refuse(node, "this region has no end", f"write {buffer}[a:b]")
                start = "0" if s.lower is None else self.expression(s.lower)
                step = "" if s.step is None else f" by {self.expression(s.step)}"
                return f"{buffer}[{start}..{self.expression(s.upper)}{step}]"
            case ast.Subscript(value=ast.Name(id=buffer), slice=ast.Call() as call):
                match _chain(call):
                    case [("cyclic" | "span" as word, [start_, length]), *steps]:
                        dots = " ..+ " if word == "cyclic" else ".."
                        more = "".join(f" {part}" for part in self.places(node, steps, _STEPS))
                        return f"{buffer}[{self.expression(start_)}{dots}{self.expression(length)}{more}]"
                return f"{buffer}[{self.expression(call)}]"
            case ast.Subscript(value=ast.Name(id=buffer), slice=index):
                return f"{buffer}[{self.expression(index)}]"
        self.refuse(node, "this is no region", "write data, data[i], data[a:b] or data[cyclic(a, m)]")

    # Expressions --------------------------------------------------------------------------------

    def expression(self, node: ast.expr, least: int = 0) -> str:
        """Return an expression, in parentheses if it binds less tightly than ``least``."""
        text, binds = self.bound_text(node)
        return f"({text})" if binds < least else text

    def bound_text(self, node: ast.expr) -> tuple[str, int]:
        """Return an expression, and how tightly its outermost operator binds."""
        whole = _PREFIX + 1
        match node:
            case ast.Constant(value=bool() as truth):
                return ("0 == 0" if truth else "0 != 0"), _COMPARISON
            case ast.Constant(value=int() as number):
                return str(number), whole
            case ast.Name(id=name):
                return self.variable(node, name), whole
            case ast.Attribute(value=ast.Name(id=axis), attr="size"):
                return f"{axis}.size", whole
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return f"pow({self.expression(left)}, {self.expression(right)})", whole
            case ast.BinOp(op=ast.Div()):
                self.refuse(node, "numbers are whole: `/` has no counterpart", "write //, which rounds down")
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
                sign, binds = _BINARY[type(operator)]
                return f"{self.expression(left, binds)} {sign} {self.expression(right, binds + 1)}", binds
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"-{self.expression(operand, _PREFIX)}", _PREFIX
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"!{self.expression(operand, _PREFIX)}", _PREFIX
            case ast.BoolOp(op=operator_, values=values):
                word, binds = (" && ", _AND) if isinstance(operator_, ast.And) else (" || ", _OR)
                return word.join(self.expression(v, binds + 1) for v in values), binds
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(o) in _COMPARISONS for o in ops):
                sides = [self.expression(side, _COMPARISON + 1) for side in (left, *rights)]
                pairs = [f"{a} {_COMPARISONS[type(o)]} {b}" for a, o, b in zip(sides, ops, sides[1:], strict=False)]
                return " && ".join(pairs), _COMPARISON if len(pairs) == 1 else _AND
            case ast.IfExp(test=test, body=body, orelse=other):
                parts = [self.expression(e) for e in (test, body, other)]
                return "if {} {{ {} }} else {{ {} }}".format(*parts), 0
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return f"{name}({', '.join(self.expression(a) for a in arguments)})", whole
        self.refuse(
            node,
            "this expression has no counterpart in algorithms",
            "there are whole numbers, + - * // % ** << >> & | ^, comparisons, and, or, not, … if … else …, and functions",
        )

    def variable(self, node: ast.AST, name: str) -> str:
        # Names that Python knows from outside are numbers, if they are not words of the language.
        if name in self.bound or name in _WORDS or name not in self.outside:
            return name
        value = self.outside[name]
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value) if value >= 0 else f"(-{-value})"
        if hasattr(builtins, name):
            return name
        self.refuse(node, f"`{name}` is a {type(value).__name__}", "names from outside of an algorithm are whole numbers")


_PARTS = {"over": "over", "on": "on", "into": "->", "root": "root", "via": "via"}
_TRANSFERS = {"into": "->", "wire": "as"}
_STEPS = {"by": "by", "take": "take"}


def _chain(call: ast.expr) -> list[Any]:
    """Return ``a(x).b(y)`` as ``[("a", [x]), ("b", [y])]``; what is no call stands first as it is."""
    links: list[Any] = []
    node: ast.expr = call
    while isinstance(node, ast.Call) and not node.keywords:
        match node.func:
            case ast.Attribute(value=before, attr=word):
                links.insert(0, (word, node.args))
                node = before
            case ast.Name(id=word):
                return [(word, node.args), *links]
            case _:
                break
    return [node, *links]
