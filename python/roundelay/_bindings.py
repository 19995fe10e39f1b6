"""Names of Python functions that are algorithms: each use must mean what Python means by it.

Python binds a name anew at every assignment, until the function ends; in the language of algorithms, ``let`` names a
value up to the end of its block. The two agree where the assignment that a use sees by its place is also the one that
was executed last. All other programs are refused, at the line of Python that the language would read differently.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from roundelay import lang
from roundelay._source import FunctionSource

__all__ = ["BUILTINS", "FUNCTIONS", "check_bindings"]

# Functions of numbers, which a helper may replace.
FUNCTIONS = frozenset(
    "bandwidth bit_reverse ceil_div ceil_log ceil_log2 commutative even gcd is_power log log2 lowbit odd popcount pow2 trailing_zeros".split()
)
# Functions of Python that the language has too.
BUILTINS = frozenset(("abs", "max", "min", "pow"))
_WORDS = frozenset(lang.__all__) | BUILTINS | {"range"}
# Keywords of the language of algorithms that Python does not have.
_KEYWORDS = frozenset(
    "algorithm at by chunks collective each fn implements let on over requires schedule scratch split take tolerates "
    "use via where".split()
)


@dataclass(frozen=True, eq=False)
class _Binding:
    name: str
    node: ast.AST
    loops: tuple[ast.For, ...]
    """The loops around it, its own among them."""
    place: str
    """The block around it, in words."""
    value: ast.expr | None = None

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 0)


@dataclass(frozen=True)
class _Use:
    node: ast.Name
    binding: _Binding
    loops: tuple[ast.For, ...]


def check_bindings(source: FunctionSource) -> None:
    """Check all names of an algorithm and of its helpers.

    Raises ``RefusedError`` at the first line that would not mean what Python means by it.
    """
    tree = source.tree
    _check_letters(source, tree, tree.name)
    helpers: set[str] = set()
    body = list(tree.body)
    own = {name: node for node in _bindings_of(tree.body) for name in _names_of(node)}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            own.pop(node.name, None)
    if body and _is_text(body[0]):
        body.pop(0)
    while body and isinstance(body[0], ast.FunctionDef):
        helper = body.pop(0)
        assert isinstance(helper, ast.FunctionDef)
        _check_helper(source, helper, helpers, {*own, *(p.arg for p in tree.args.args)})
        helpers.add(helper.name)
    scope = _Scope(source, tree, body, helpers, frozenset())
    scope.block(body)


def _check_helper(source: FunctionSource, tree: ast.FunctionDef, helpers: set[str], around: set[str]) -> None:
    if tree.decorator_list:
        source.refuse(tree.decorator_list[0], "a helper has no decorator", "leave the decorator out")
    if tree.name in helpers:
        source.refuse(tree, f"the helper `{tree.name}` is defined twice", "choose another name")
    if tree.name not in FUNCTIONS:
        _check_name(source, tree, tree.name)
    body = tree.body[1:] if _is_text(tree.body[0]) else tree.body
    scope = _Scope(source, tree, body, helpers | {tree.name}, frozenset(around))
    for statement in body:
        match statement:
            case ast.Return(value=ast.expr() as value):
                scope.read(value)
            case _:
                scope.statement(statement)


class _Scope:
    """The names of one function, statement by statement."""

    def __init__(
        self,
        source: FunctionSource,
        tree: ast.FunctionDef,
        body: list[ast.stmt],
        helpers: set[str],
        around: frozenset[str],
    ) -> None:
        self.source = source
        self.helpers = helpers
        # The names of the function around a helper, which a helper does not see.
        self.around = around
        self.blocks: list[dict[str, _Binding]] = [{}]
        # The binding of each name that was executed last, as far as the text shows.
        self.latest: dict[str, _Binding] = {}
        self.uses: list[_Use] = []
        self.loops: tuple[ast.For, ...] = ()
        self.places: list[str] = ["the function"]
        # Every name that Python takes for one of this function, with a place that binds it.
        self.own: dict[str, ast.AST] = {}
        for node in _bindings_of(body):
            for name in _names_of(node):
                self.own.setdefault(name, node)
        for parameter in (*tree.args.posonlyargs, *tree.args.args):
            self.own[parameter.arg] = parameter
            self.bind(parameter.arg, parameter, None)

    # Statements ---------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt], place: str | None = None) -> None:
        self.blocks.append({})
        self.places.append(place or self.places[-1])
        for statement in body:
            self.statement(statement)
        self.places.pop()
        self.blocks.pop()

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Pass():
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(
                target=ast.Name(id=name), value=ast.expr() as value
            ):
                if any(use.id == name for use in _loads(value)):
                    self.refuse_rebinding(node, name, value)
                self.read(value)
                self.bind(name, node, value)
            case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
                left = ast.copy_location(ast.Name(id=name, ctx=ast.Load()), node)
                self.refuse_rebinding(node, name, ast.copy_location(ast.BinOp(left, operator, value), node))
            case ast.Assign(targets=targets):
                names = sorted({name for target in targets for name in _names_of(target)})
                self.source.refuse(
                    node,
                    "an assignment binds one name",
                    "write " + ", then ".join(f"{name} = …" for name in names or ["name"]) + ", each by itself",
                )
            case ast.For():
                self.loop(node)
            case ast.If():
                self.read(node.test)
                before = dict(self.latest)
                self.block(node.body, f"the `if` at line {node.lineno}")
                after, self.latest = self.latest, dict(before)
                self.block(node.orelse, f"the `else` of the `if` at line {node.lineno}")
                for name, binding in after.items():
                    if self.latest.get(name) is before.get(name):
                        self.latest[name] = binding
            case ast.Expr(value=ast.Call() as call):
                self.read(call)
            case _:
                self.source.refuse_statement(node)

    def loop(self, node: ast.For) -> None:
        if node.orelse:
            self.source.refuse(
                node.orelse[0],
                "a loop has no `else` in algorithms",
                "write the statements behind the loop, without `else`",
            )
        self.read(node.iter)
        outer, self.loops = self.loops, (*self.loops, node)
        self.blocks.append({})
        names = list(_names_of(node.target))
        for i, name in enumerate(names):
            if name in names[:i]:
                why = f"the loop binds `{name}` twice"
                self.source.refuse(node.target, why, "give each coordinate a name of its own")
            self.places.append(f"the loop at line {node.lineno}")
            self.bind(name, node.target, None)
            self.places.pop()
        self.block(node.body, f"the loop at line {node.lineno}")
        self.blocks.pop()
        self.loops = outer

    # Names --------------------------------------------------------------------------------------

    def read(self, expression: ast.expr) -> None:
        for node in ast.walk(expression):
            if isinstance(node, ast.NamedExpr):
                self.source.refuse(
                    node,
                    "`:=` has no counterpart in algorithms",
                    "bind the name in a statement of its own, before this one",
                )
        called = {id(node.func) for node in ast.walk(expression) if isinstance(node, ast.Call)}
        for use in _loads(expression):
            if use.id not in self.helpers:
                self.use(use)
            elif id(use) not in called:
                self.source.refuse(use, f"`{use.id}` is a function", f"call it: {use.id}(…)")

    def use(self, node: ast.Name) -> None:
        name = node.id
        if name not in self.own:
            if name in self.around:
                self.source.refuse(
                    node,
                    f"a helper does not see `{name}` of the function around it",
                    f"hand `{name}` over as a parameter",
                )
            return
        binding = next((block[name] for block in reversed(self.blocks) if name in block), None)
        last = self.latest.get(name)
        if binding is None:
            self.refuse_unbound(node, last)
        if last is not None and last is not binding:
            self.source.refuse(
                node,
                f"`{name}` may be that of line {binding.line} here, or that of line {last.line} in {last.place}",
                f"a name keeps its value up to the end of its block: {_choice(name, last)}",
            )
        self.uses.append(_Use(node, binding, self.loops))

    def bind(self, name: str, node: ast.AST, value: ast.expr | None) -> None:
        _check_name(self.source, node, name)
        if name in self.helpers:
            self.source.refuse(node, f"`{name}` is a helper already", "choose another name")
        for use in self.uses:
            if use.node.id == name:
                self.check_turns(use, node)
        binding = _Binding(name, node, self.loops, self.places[-1], value)
        self.blocks[-1][name] = binding
        self.latest[name] = binding

    def check_turns(self, use: _Use, node: ast.AST) -> None:
        """Refuse a binding that a use before it would see in the next turn of a loop around both."""
        shared = [loop for loop in self.loops if loop in use.loops and loop not in use.binding.loops]
        if shared:
            name, line = use.node.id, getattr(use.node, "lineno", 0)
            self.source.refuse(
                node,
                f"`{name}` is bound again here, and line {line} would see that in the next turn of the loop at line "
                f"{shared[-1].lineno}",
                f"a name keeps its value up to the end of its block: compute `{name}` from the loop's variable, before "
                "it is used",
            )

    def refuse_unbound(self, node: ast.Name, last: _Binding | None) -> NoReturn:
        name = node.id
        if last is None:
            line = getattr(self.own[name], "lineno", 0)
            self.source.refuse(
                node,
                f"`{name}` has no value here: it is bound at line {line}",
                "bind it before it is used, in this block",
            )
        self.source.refuse(
            node,
            f"`{name}` is bound inside {last.place}, and has no value outside of it",
            f"bind it in this block, before it is used: {_choice(name, last)}",
        )

    def refuse_rebinding(self, node: ast.stmt, name: str, value: ast.expr) -> NoReturn:
        """Refuse an assignment to a name that is computed from the name itself."""
        if name in self.own and not any(name in block for block in self.blocks):
            first = next(use for use in _loads(value) if use.id == name)
            self.refuse_unbound(first, self.latest.get(name))
        way = self.closed_form(name, value)
        if way is None and self.loops:
            way = f"compute `{name}` from the loop's variable where it is used, as in d = 1 << s for d *= 2"
        self.source.refuse(
            node,
            f"`{name}` is bound again from itself: a name keeps its value up to the end of its block",
            way or f"give the new value a name of its own: next_{name} = {ast.unparse(value)}",
        )

    def closed_form(self, name: str, value: ast.expr) -> str | None:
        """Return how to write a value that every turn of the innermost loop changes in the same way."""
        first = next((block[name] for block in reversed(self.blocks) if name in block), None)
        if first is None or first.value is None or not self.places[-1].startswith("the loop"):
            return None
        loop = self.loops[-1]
        match loop.target, loop.iter:
            case ast.Name(id=turn), ast.Call(func=ast.Name(id="range"), args=[_]):
                pass
            case ast.Name(id=variable), ast.Call(func=ast.Name(id="range"), args=[start, _]):
                turn = f"({variable} - {_operand(start)})"
            case _:
                return None
        if self.loops[:-1] != first.loops or not isinstance(value, ast.BinOp):
            return None
        step, begin = value.right, _operand(first.value)
        match value.op, value.left:
            case (ast.Mult() | ast.Add() as operator), left if isinstance(step, ast.Name) and step.id == name:
                step = left
            case operator, ast.Name(id=left_name) if left_name == name:
                pass
            case _:
                return None
        if any(use.id in (name, *_names_of(loop.target)) for use in _loads(step)):
            return None
        match operator:
            case ast.Mult() if begin == "1" and _operand(step) == "2":
                form = f"1 << {turn}"
            case ast.Mult():
                power = f"{_operand(step)} ** {turn}"
                form = power if begin == "1" else f"{begin} * {power}"
            case ast.FloorDiv():
                form = f"{begin} // {_operand(step)} ** {turn}"
            case ast.Add() | ast.Sub():
                sign = "+" if isinstance(operator, ast.Add) else "-"
                times = turn if _operand(step) == "1" else f"{_operand(step)} * {turn}"
                form = times if begin == "0" and sign == "+" else f"{begin} {sign} {times}"
            case ast.LShift() | ast.RShift():
                sign = "<<" if isinstance(operator, ast.LShift) else ">>"
                times = turn if _operand(step) == "1" else f"({_operand(step)} * {turn})"
                form = f"{begin} {sign} {times}"
            case _:
                return None
        return f"write {name} = {form} at the beginning of the loop at line {loop.lineno}, and leave this line out"


def _choice(name: str, binding: _Binding) -> str:
    if "`if`" in binding.place:
        return f"write {name} = a if condition else b"
    return f"give what is meant here a name of its own, in place of `{name}`"


def _operand(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if isinstance(node, (ast.Name, ast.Constant, ast.Call, ast.Attribute)) else f"({text})"


def _check_name(source: FunctionSource, node: ast.AST, name: str) -> None:
    """Refuse names that mean something else in algorithms."""
    if name in _WORDS:
        source.refuse(node, f"`{name}` is a word of algorithms and cannot be a name", "choose another name")
    _check_letters(source, node, name)


def _check_letters(source: FunctionSource, node: ast.AST, name: str) -> None:
    if name in _KEYWORDS:
        source.refuse(
            node, f"`{name}` is a keyword of the language of algorithms and cannot be a name", "choose another name"
        )
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        source.refuse(node, f"`{name}` has other letters than a to z", "names have letters from a to z, digits and _")


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _loads(expression: ast.expr) -> list[ast.Name]:
    """Return the names that an expression reads, in order, those of functions within it apart."""
    found: list[ast.Name] = []
    if isinstance(expression, ast.Name) and isinstance(expression.ctx, ast.Load):
        found.append(expression)
    inner = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    if not isinstance(expression, inner):
        for child in ast.iter_child_nodes(expression):
            found += _loads(child)  # type: ignore[arg-type]
    return found


def _names_of(node: ast.AST) -> Iterator[str]:
    """Return the names that a binding binds, functions within it apart."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str() as name):
            yield name
        case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name.partition(".")[0]
        case ast.Name(id=name):
            yield name
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            for element in elements:
                yield from _names_of(element)
        case ast.Starred(value=value):
            yield from _names_of(value)
        case _:
            return


def _bindings_of(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Return every node of a function that binds names, functions within it apart."""
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            if not isinstance(node, ast.Lambda):
                yield node
            continue
        if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.alias)):
            yield node
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node
        pending.extend(ast.iter_child_nodes(node))
