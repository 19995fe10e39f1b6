#!/usr/bin/env python3
"""Print the licence texts of every crate that is in what is released, for a target: ``licences.py TARGET``.

A crate that has no file with its text is named with its SPDX expression; one without either ends it with an error.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_SHIPPED = ("roundelay-cli", "roundelay-ffi", "roundelay-nccl", "roundelay-python")


def _shipped(metadata: dict) -> set[str]:
    """Return the packages on which what is released depends, but for build scripts and tests."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    open_ids = [id for id, name in names.items() if name in _SHIPPED]
    known: set[str] = set()
    while open_ids:
        package = open_ids.pop()
        if package not in known:
            known.add(package)
            for dep in nodes[package]["deps"]:
                if any(kind["kind"] is None for kind in dep["dep_kinds"]):
                    open_ids.append(dep["pkg"])
    return known


def main() -> int:
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", sys.argv[1]]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    shipped = _shipped(metadata)
    packages = [p for p in metadata["packages"] if p["id"] in shipped and p["source"] is not None]
    unsaid = []
    for package in sorted(packages, key=lambda p: (p["name"], p["version"])):
        print(f"==== {package['name']} {package['version']} ({package['license']})")
        folder = Path(package["manifest_path"]).parent
        wanted = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE")
        texts = sorted(p for p in folder.iterdir() if p.is_file() and p.name.upper().startswith(wanted))
        for path in texts:
            print(f"---- {path.name}\n{path.read_text(errors='replace').rstrip()}\n")
        if not texts and not package["license"]:
            unsaid.append(package["name"])
    if unsaid:
        print(f"no licence: {' '.join(unsaid)}", file=sys.stderr)
    return 1 if unsaid else 0


if __name__ == "__main__":
    sys.exit(main())
