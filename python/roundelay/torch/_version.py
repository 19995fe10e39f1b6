"""The version of torch, by which the faces differ."""

from __future__ import annotations

import torch


def _number(part: str) -> int:
    return int("".join(filter(str.isdigit, part)) or 0)


_MAJOR, _MINOR = torch.__version__.split(".")[:2]
VERSION = (_number(_MAJOR), _number(_MINOR))
