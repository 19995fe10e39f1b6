"""``python -m roundelay``: the command line."""

from __future__ import annotations

import os
import sys

from roundelay._command import find
from roundelay.errors import Error


def main() -> None:
    """Become the program ``roundelay``, with the arguments of this one."""
    try:
        program = find()
    except Error as error:
        sys.exit(f"error[{error.code}]: {error}")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
