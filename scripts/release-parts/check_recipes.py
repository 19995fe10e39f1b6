#!/usr/bin/env python3
"""Check the syntax of recipes: ``check_recipes.py FOLDER``. What reads them is not at hand, so their form is all."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

_INSTRUCTIONS = {"ARG", "FROM", "LABEL", "COPY", "RUN", "USER", "WORKDIR", "ENV", "ENTRYPOINT", "CMD"}


def _spack(text: str) -> None:
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    if [cls.name for cls in classes] != ["Roundelay"]:
        raise ValueError("one class `Roundelay`")
    called = {n.func.id for n in ast.walk(classes[0]) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    if missing := {"version", "depends_on", "license"} - called:
        raise ValueError(f"no {missing}")


def _conda(text: str) -> None:
    try:
        import yaml
    except ImportError:
        keys = re.findall(r"^([a-z]+):", text, re.MULTILINE)
        found = dict.fromkeys(keys)
    else:
        found = yaml.safe_load(text)
    if missing := {"package", "source", "build", "requirements", "tests", "about"} - set(found):
        raise ValueError(f"no {missing}")


def _container(text: str) -> None:
    lines = re.sub(r"\\\n", " ", text).splitlines()
    words = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    if unknown := set(words) - _INSTRUCTIONS:
        raise ValueError(f"no instructions: {unknown}")
    if "USER" not in words or words[0] not in ("ARG", "FROM"):
        raise ValueError("it begins with FROM, and does not run as root")


def main() -> int:
    folder = Path(sys.argv[1])
    wrong = 0
    for name, check in (("package.py", _spack), ("recipe.yaml", _conda), ("Containerfile", _container)):
        try:
            check((folder / name).read_text())
        except (SyntaxError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            wrong = 1
        else:
            print(f"{name}: well formed")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
