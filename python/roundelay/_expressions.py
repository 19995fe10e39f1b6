"""Expressions, ranks and regions of Python functions as texts in the language of algorithms."""

from __future__ import annotations

import ast
import builtins
import re
from typing import Any

from roundelay import lang
from roundelay._bindings import BUILTINS, FUNCTIONS
from roundelay._chains import chain_of
from roundelay._least import least_value
from roundelay._source import FunctionSource

__all__ = ["ExpressionTranslator"]

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
_STEPS = {"by": "by", "take": "take"}


class ExpressionTranslator:
    """Translates what has a value, with the names that are known where it stands."""

    def __init__(self, source: FunctionSource) -> None:
        self.source = source
        self.refuse = source.refuse
        self.outside = source.outside
        # Names that the function binds, with the least value that each can have: those of the blocks around.
        self.bound: dict[str, int | None] = {}
        self.axes: list[str] = []
        self.buffers: set[str] = set()
        self.helpers: set[str] = set()

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
                return ("true" if truth else "false"), whole
            case ast.Constant(value=int() as number):
                return str(number), whole
            case ast.Name(id=name):
                return self.variable(node, name), whole
            case ast.Attribute(value=ast.Name(id=axis), attr="size"):
                if axis not in self.axes or axis not in self.bound:
                    self.refuse(node, f"`{axis}` is no axis", f"the axes are {', '.join(self.axes)}")
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
                return f"{self.function(node, name)}({', '.join(self.expression(a) for a in arguments)})", whole
        self.refuse(
            node,
            "this expression has no counterpart in algorithms",
            "there are whole numbers, + - * // % ** << >> & | ^, comparisons, and, or, not, … if … else …, and functions",
        )

    def variable(self, node: ast.AST, name: str) -> str:
        # Names that Python knows from outside are numbers, if they are not words of the language.
        if name in self.bound or name not in {*self.outside, *_WORDS}:
            return name
        if name in _WORDS:
            return self.word(node, name)
        value = self.outside[name]
        if isinstance(value, int) and not isinstance(value, bool):
            return str(int(value)) if value >= 0 else f"(-{-int(value)})"
        self.refuse(node, f"`{name}` is a {type(value).__name__}", "names from outside of an algorithm are whole numbers")

    def function(self, node: ast.AST, name: str) -> str:
        if name in self.helpers:
            return name
        if name in FUNCTIONS or name in BUILTINS:
            return self.word(node, name)
        if name in self.outside:
            self.refuse(
                node,
                f"`{name}` is a {type(self.outside[name]).__name__} of your program, which an algorithm cannot call",
                f"define def {name}(…): return … at the start of the algorithm",
            )
        return name

    def least(self, node: ast.expr) -> int | None:
        """Return the least value that an expression can have, where that is evident."""
        known: dict[str, int | None] = {}
        for name in (part.id for part in ast.walk(node) if isinstance(part, ast.Name)):
            value = self.outside.get(name)
            known[name] = int(value) if isinstance(value, int) else None
        return least_value(node, {**known, "root": 0, **self.bound, **dict.fromkeys(self.helpers)})

    # Names and chains ---------------------------------------------------------------------------

    def name(self, node: ast.expr) -> str:
        """Return what a text, or a name that stands for one, says."""
        text: object = None
        match node:
            case ast.Constant(value=text):
                pass
            case ast.Name(id=word) if word not in self.bound:
                text = self.outside.get(word, word)
                if not isinstance(text, str):
                    self.refuse(
                        node,
                        f"`{word}` is a {type(text).__name__} here, not the name of an algorithm of the library",
                        'write the name as text: "reduce_scatter.ring"',
                    )
            case ast.Attribute(value=ast.Name(id=word), attr=part) if word not in {*self.bound, *self.outside}:
                text = f"{word}.{part}"
        if isinstance(text, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?", text):
            return text
        self.refuse(node, "this is no name", 'write "reduce_scatter.ring"')

    def word(self, node: ast.AST, name: str) -> str:
        """Return a word of algorithms. Refuses it where it is something else in Python."""
        meant = getattr(builtins if name in BUILTINS or name == "range" else lang, name, None)
        found = self.outside.get(name, meant)
        if found is not meant:
            self.refuse(
                node,
                f"`{name}` is a {type(found).__name__} of your program here, not the word of algorithms",
                f"give it another name there, or import `{name}` from roundelay.lang after it",
            )
        return name

    def places(self, node: ast.AST, rest: list[Any], known: dict[str, str]) -> list[str]:
        """Return the parts of a chain in the order of the language: in Python it has no meaning."""
        found: dict[str, str] = {}
        for word, arguments in rest:
            if word in found:
                self.refuse(node, f".{word}(…) stands twice", "leave one of them out")
            match word, arguments:
                case ("on" | "into"), [region] if word in known:
                    found[word] = f"{known[word]} {self.region(region)}"
                case "wire", [what] if "wire" in known:
                    found[word] = f"{known['wire']} {self.name(what)}"
                case _, [value] if word in known:
                    found[word] = f"{known[word]} {self.expression(value, 1)}"
                case _:
                    words = ", ".join(f".{word}(…)" for word in known)
                    self.refuse(node, "this call has a part that is not known here", f"there are {words}")
        return [found[word] for word in known if word in found]

    # Ranks and regions --------------------------------------------------------------------------

    def range(self, node: ast.expr) -> str:
        self.word(node, "range")
        match node:
            case ast.Call(func=ast.Name(id="range"), args=[end], keywords=[]):
                return f"0..{self.expression(end, 1)}"
            case ast.Call(func=ast.Name(id="range"), args=[start, end], keywords=[]):
                return f"{self.expression(start, 1)}..{self.expression(end, 1)}"
        self.refuse(node, "a range has a start and an end", "write range(n) or range(a, b), and if inside")

    def rank(self, node: ast.expr) -> str:
        match node:
            case ast.Tuple(elts=coordinates):
                return self.coordinates(coordinates)
            case ast.Call(func=ast.Name(id="at"), args=coordinates, keywords=[]):
                self.word(node, "at")
                return self.coordinates(coordinates)
        return self.expression(node)

    def coordinates(self, coordinates: list[ast.expr]) -> str:
        return f"({', '.join(self.expression(c) for c in coordinates)})"

    def region(self, node: ast.expr) -> str:
        match node:
            case ast.Name(id=name):
                return self.buffer(node, name)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Slice() as s):
                return f"{self.buffer(node, name)}[{self.slice(node, name, s)}]"
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Call() as call):
                match chain_of(call):
                    case ast.Name(id="cyclic" | "span" as word), [("", [start, length]), *steps]:
                        self.word(node, word)
                        dots = " ..+ " if word == "cyclic" else ".."
                        more = "".join(f" {part}" for part in self.places(node, steps, _STEPS))
                        ends = f"{self.expression(start, 1)}{dots}{self.expression(length, 1)}"
                        return f"{self.buffer(node, name)}[{ends}{more}]"
                return f"{self.buffer(node, name)}[{self.expression(call)}]"
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                least = self.least(index)
                if least is not None and least < 0 and isinstance(index, (ast.UnaryOp, ast.Constant)):
                    why = "chunks count from the start: none is negative"
                    self.refuse(index, why, f"write {name}[n - 1] for the last")
                return f"{self.buffer(node, name)}[{self.expression(index)}]"
        self.refuse(node, "this is no region", "write data, data[i], data[a:b] or data[cyclic(a, m)]")

    def slice(self, node: ast.expr, name: str, s: ast.Slice) -> str:
        """Return the chunks of a slice. One whose end is negative, which would count from the end, has none."""
        span = f"{name}[span(a, b)]"
        if s.upper is None:
            self.refuse(node, "this region has no end", f"write {name}[a:b]")
        for side in (s.lower, s.upper):
            if isinstance(side, (ast.UnaryOp, ast.Constant)) and (self.least(side) or 0) < 0:
                why = "chunks count from the start: none is negative"
                self.refuse(side, why, f"write {name}[0:n - 1] for all but the last")
        step = ""
        if s.step is not None:
            if (self.least(s.step) or -1) < 0 and self.least(s.step) != 0:
                self.refuse(
                    s.step, "a step may be negative here, for which regions have no counterpart", f"write {span}.by(step)"
                )
            step = f" by {self.expression(s.step, 1)}"
        start = "0" if s.lower is None else self.expression(s.lower, 1)
        end = self.expression(s.upper, 1)
        if (least := self.least(s.upper)) is None or least < 0:
            # A negative end is a chunk that does not exist, which the compiler reports, and not an empty region.
            start = f"if {end} < 0 {{ {end} }} else {{ {start} }}"
            end = f"if {end} < 0 {{ {end} + 1 }} else {{ {end} }}"
        return f"{start}..{end}{step}"

    def buffer(self, node: ast.AST, name: str) -> str:
        if name in self.buffers:
            return name
        if name in self.bound:
            self.refuse(node, f"`{name}` is a number, not a buffer", f"write data, or {name} = scratch(n) for a buffer")
        return self.word(node, name) if name in ("data", "input", "output") else name
