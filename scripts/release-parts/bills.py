"""Take what differs between builds out of bills of materials in CycloneDX: ``bills.py ROOT FILE…``.

A file is a bill, or a wheel that has some. Serial numbers and times go; the folder ROOT in which packages were built
becomes ``/roundelay``. Files are replaced in place, and a wheel's list of files follows.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import zipfile
from pathlib import Path


def normal(text: str, root: str) -> str:
    """Return a bill without what differs."""
    bill = json.loads(text.replace(f"path+file://{root}", "path+file:///roundelay"))
    bill.pop("serialNumber", None)
    bill["metadata"].pop("timestamp", None)
    return json.dumps(bill, indent=1, sort_keys=True) + "\n"


def record_line(name: str, content: bytes) -> str:
    """Return a line of a wheel's list of files."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(content)}"


def normal_wheel(path: Path, root: str) -> None:
    """Replace the bills of a wheel."""
    with zipfile.ZipFile(path) as wheel:
        entries = [(info, wheel.read(info)) for info in wheel.infolist()]
    lines: dict[str, str] = {}
    for place, (info, content) in enumerate(entries):
        if "/sboms/" in info.filename:
            content = normal(content.decode(), root).encode()
            entries[place] = (info, content)
            lines[info.filename] = record_line(info.filename, content)
    with zipfile.ZipFile(path, "w") as wheel:
        for info, content in entries:
            if info.filename.endswith(".dist-info/RECORD"):
                rows = content.decode().splitlines()
                content = "".join(f"{lines.get(row.split(',')[0], row)}\n" for row in rows).encode()
            wheel.writestr(info, content, compress_type=info.compress_type)


def main() -> None:
    """Replace what the command line names."""
    root, *files = sys.argv[1:]
    for file in map(Path, files):
        if file.suffix == ".whl":
            normal_wheel(file, root)
        else:
            file.write_text(normal(file.read_text(), root))


if __name__ == "__main__":
    main()
