#!/usr/bin/env python3
"""Take what was deleted from vendored crates out of their lists of files: ``vendored.py FOLDER``."""

import json
import sys
from pathlib import Path

for path in sorted(Path(sys.argv[1]).glob("*/.cargo-checksum.json")):
    checksum = json.loads(path.read_text())
    checksum["files"] = {name: sha for name, sha in checksum["files"].items() if (path.parent / name).exists()}
    path.write_text(json.dumps(checksum, sort_keys=True))
