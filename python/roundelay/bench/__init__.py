"""Measures ``torch.distributed`` under several backends, by turns, in one run: ``python -m roundelay.bench``.

The same processes open a group of each backend, and every collective and training step is measured in rounds, in
which each backend has its turn; so whatever else the machine does meets all of them.
"""

from __future__ import annotations

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, and return the exit status; ``--help`` describes it."""
    from ._command import main as command

    return command(arguments)
