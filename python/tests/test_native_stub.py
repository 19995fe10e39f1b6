"""The stub of the native part says what its functions take: code that only GPUs reach is checked by the stub alone."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

from roundelay import _native

STUB = Path(_native.__file__).with_name("_native.pyi")

Parameter = tuple[str, bool]
"""The name of a parameter, and whether it may be left out."""


def stated(function: ast.FunctionDef, is_bound: bool) -> list[Parameter]:
    given = function.args
    assert given.vararg is None and given.kwarg is None and not given.kwonlyargs, function.name
    names = [argument.arg for argument in (*given.posonlyargs, *given.args)]
    needed = len(names) - len(given.defaults)
    return [(name.strip("_"), index >= needed) for index, name in enumerate(names)][1 if is_bound else 0 :]


def real(function: Any, is_bound: bool) -> list[Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    found = [(each.name.strip("_"), each.default is not inspect.Parameter.empty) for each in parameters]
    return found[1 if is_bound and found[:1] and found[0][0] == "self" else 0 :]


def differences(text: str) -> list[str]:
    """Return where a stub and the native part differ."""
    found: list[str] = []
    for node in ast.parse(text).body:
        functions: list[tuple[str, Any, ast.FunctionDef, bool]] = []
        if isinstance(node, ast.FunctionDef):
            functions.append((node.name, getattr(_native, node.name, None), node, False))
        elif isinstance(node, ast.ClassDef):
            owner = getattr(_native, node.name, None)
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            for each in methods:
                decorators = {ast.unparse(one) for one in each.decorator_list}
                name = f"{node.name}.{each.name}"
                if "property" in decorators:
                    if not hasattr(owner, each.name):
                        found.append(f"{name}: not there")
                elif not each.name.startswith("__"):
                    functions.append((name, getattr(owner, each.name, None), each, "staticmethod" not in decorators))
            public = {name for name in vars(owner) if not name.startswith("_")} if owner is not None else set()
            found += [f"{node.name}.{name}: not in the stub" for name in public - {each.name for each in methods}]
        for name, function, node_of, is_bound in functions:
            if function is None:
                found.append(f"{name}: not there")
            elif stated(node_of, is_bound) != real(function, is_bound):
                found.append(f"{name}: {stated(node_of, is_bound)} is stated, {real(function, is_bound)} is taken")
    return found


def test_the_stub_is_that_of_the_native_part() -> None:
    assert differences(STUB.read_text()) == []


def test_a_parameter_too_many_or_too_few_is_found() -> None:
    text = STUB.read_text()
    assert text.count("overlaps: bool = False,\n") == 2
    for changed in (
        text.replace("overlaps: bool = False,\n", "", 1),
        text.replace("def abort(self, why: str)", "def abort(self, why: str, twice: bool)"),
        text.replace("    def alloc(self, nbytes: int) -> Mapping: ...\n", ""),
        text.replace("def handle(self)", "def handles(self)"),
    ):
        assert changed != text and differences(changed) != []
