#!/usr/bin/env python3
"""Print what CHANGELOG.md says of a version: ``changes.py VERSION``."""

import re
import sys
from pathlib import Path

found = re.split(r"^## (.+)$", Path("CHANGELOG.md").read_text(), flags=re.MULTILINE)
sections = dict(zip(found[1::2], found[2::2]))
if sys.argv[1] not in sections:
    raise SystemExit(f"CHANGELOG.md has no version {sys.argv[1]}")
print(sections[sys.argv[1]].strip())
