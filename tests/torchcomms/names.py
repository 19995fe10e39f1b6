"""Writes the names of torchcomms' API, and the parameters of its functions, as JSON: facts for the page of rows.

names.py CHECKOUT >python/tests/torch_comms/api.json
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from typing import Any

STUBS = {
    "torchcomms": "_comms.pyi",
    "torchcomms.device_mesh": "device_mesh.py",
    "torchcomms.functional": "functional/__init__.py",
    "torchcomms.hooks.FlightRecorderHook": "hooks/fr/_fr.pyi",
    "torchcomms.hooks.NanCheckHook": "hooks/nan_check/nan_check.py",
    "torchcomms.hooks.clog": "hooks/clog/_clog.pyi",
    "torchcomms.objcol": "objcol.py",
    "torchcomms._transport": "transport/_transport.pyi",
}
"""Files by module; by a class where the module shows that class only."""
KEPT = ("_flatten_with_comm", "_create_torchcomm_process_group", "_is_backend_registered", "_set_status")
"""Names that begin with an underscore and that programs of torchcomms use."""


def read(checkout: str, path: str) -> str:
    command = ["git", "-C", checkout, "show", f"HEAD:comms/torchcomms/{path}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def parameters(function: ast.FunctionDef) -> list[str]:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def is_shown(name: str) -> bool:
    return name in KEPT or not name.startswith("_") or name in ("__init__", "_BackendWrapper")


def members(body: list[ast.stmt], prefix: str, found: dict[str, Any]) -> None:
    """Add the names of a module or a class: functions with their parameters, all others with None."""
    for each in body:
        if isinstance(each, ast.ClassDef) and is_shown(each.name):
            found[f"{prefix}.{each.name}"] = None
            members(each.body, f"{prefix}.{each.name}", found)
        elif isinstance(each, ast.FunctionDef) and is_shown(each.name):
            is_property = any(ast.unparse(how) == "property" for how in each.decorator_list)
            found[f"{prefix}.{each.name}"] = None if is_property else parameters(each)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and is_shown(each.target.id):
            if "." in prefix:  # The variables of a module are aliases of types.
                found[f"{prefix}.{each.target.id}"] = None
        elif isinstance(each, ast.Assign) and prefix.count(".") == 1 and prefix.split(".")[1][:1].isupper():
            for target in each.targets:
                if isinstance(target, ast.Name):
                    found[f"{prefix}.{target.id}"] = None


def main() -> None:
    checkout = sys.argv[1]
    commit = subprocess.run(
        ["git", "-C", checkout, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    found: dict[str, Any] = {}
    for module, path in STUBS.items():
        body = ast.parse(read(checkout, path)).body
        last = module.rpartition(".")[2]
        if module.startswith("torchcomms.hooks."):
            body = [each for each in body if isinstance(each, ast.ClassDef) and each.name == last]
            module = "torchcomms.hooks"
        members(body, module, found)
    for name in ("is_backend_built", "built_backends"):
        found[f"torchcomms.{name}"] = ["backend"] if name == "is_backend_built" else []
    listing = subprocess.run(
        ["git", "-C", checkout, "grep", "-hoE", '"TORCHCOMMS?_[A-Z0-9_]+"', "HEAD", "--", "comms/torchcomms"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    variables = {name for name in re.findall(r'"(\w+)"', listing) if "TEST" not in name}
    api = {"commit": commit, "names": dict(sorted(found.items())), "environment": sorted(variables)}
    print(json.dumps(api, indent=1))


if __name__ == "__main__":
    main()
