"""Hooks that are there: a check for NaN, and a record of operations."""

from __future__ import annotations

from .flight_recorder import FlightRecorderHook
from .nan_check import NanCheckHook

__all__ = ["FlightRecorderHook", "NanCheckHook"]
