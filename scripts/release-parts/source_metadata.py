#!/usr/bin/env python3
"""Print the metadata of the source archive, ``PKG-INFO``: ``source_metadata.py VERSION``."""

import re
import sys
from pathlib import Path

text = Path("python/pyproject.toml").read_text()


def one(name: str) -> str:
    found = re.search(rf'^{name} = "(.*)"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"python/pyproject.toml has no {name}")
    return found[1]


print("Metadata-Version: 2.4")
print("Name: roundelay")
print(f"Version: {sys.argv[1]}")
print(f"Summary: {one('description')}")
print(f"License-Expression: {one('license')}")
print(f"Requires-Python: {one('requires-python')}")
print("Description-Content-Type: text/markdown")
print()
print(Path("python/README.md").read_text(), end="")
