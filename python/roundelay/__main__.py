"""``python -m roundelay``: the command line."""

from __future__ import annotations

import os
import sys

from roundelay._command import find
from roundelay.errors import Error


def main() -> None:
    """Become the program ``roundelay``, with the arguments of this one; two verbs are Python's own."""
    if sys.argv[1:2] == ["torchcomms"]:
        from roundelay.torchcomms._build import main as torchcomms

        sys.exit(torchcomms(sys.argv[2:]))
    if sys.argv[1:2] == ["bench-torch"]:
        from roundelay.bench import main as bench

        sys.exit(bench(sys.argv[2:]))
    try:
        program = find()
    except Error as error:
        sys.exit(f"error[{error.code}]: {error}")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
