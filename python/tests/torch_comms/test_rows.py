"""The page *torchcomms by row* says of every name of the API what ``roundelay.torchcomms`` really has."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from typing import Any

import pytest
import rows

pytest.importorskip("torch", reason="roundelay.torchcomms works on tensors of torch")

NAMES: dict[str, list[str] | None] = rows.API["names"]
MODULES = ("device_mesh", "functional", "hooks", "objcol", "_transport")


class Missing(Exception):
    """A name that the package has not."""


def found(name: str) -> Any:
    """Return what the package has by a name. Raises ``Missing`` if it has nothing."""
    parts = name.split(".")[1:]
    module = "roundelay.torchcomms"
    if parts[0] in MODULES:
        module = f"{module}.{parts.pop(0)}"
    try:
        here: Any = importlib.import_module(module)
    except ImportError:
        raise Missing(module) from None
    for at, part in enumerate(parts):
        if not hasattr(here, part):
            fields = [each.name for each in dataclasses.fields(here)] if dataclasses.is_dataclass(here) else []
            if part in fields or part in getattr(here, "__annotations__", {}):
                assert at == len(parts) - 1
                return None
            raise Missing(name)
        if part == "__init__" and "__init__" not in vars(here) and not dataclasses.is_dataclass(here):
            return here
        here = getattr(here, part)
    return here


def raises_always(here: Any) -> bool:
    return callable(here) and inspect.signature(here).return_annotation == "NoReturn"


def difference(name: str, here: Any) -> str:
    """Return how the parameters of a function differ from those of the API; empty if they do not."""
    wanted = NAMES[name]
    if wanted is None:
        return ""
    given = [each for each in inspect.signature(here).parameters.values() if each.name not in ("self", "cls")]
    names = [each.name for each in given]
    if names[: len(wanted)] != wanted:
        return f"the parameters are {names}, not {wanted}"
    needed = [each.name for each in given[len(wanted) :] if each.default is each.empty]
    return f"{needed} are needed too" if needed else ""


@pytest.mark.parametrize("name", list(NAMES))
def test_row(name: str) -> None:
    row = rows.row_of(name, rows.ROWS)
    try:
        here = found(name)
    except Missing:
        assert row.verdict == rows.ABSENT, "the row says that it is there"
        return
    if row.verdict == rows.ABSENT:
        assert raises_always(here), "the row says that it is not there, and it is"
    elif row.verdict == rows.WORKS:
        assert difference(name, here) == ""
        assert not raises_always(here), "the row says that it works, and it raises an error"


def test_the_page_is_made_of_the_table() -> None:
    assert rows.PAGE.read_text() == rows.page(), "run python/tests/torch_comms/rows.py, and commit the page"


def test_rows_are_for_names_that_exist() -> None:
    used = {rows.row_of(name, rows.ROWS).name for name in NAMES}
    assert sorted({row.name for row in rows.ROWS} - used) == []
    assert {row.verdict for row in rows.ROWS} == {rows.WORKS, rows.DIFFERS, rows.ABSENT}
    assert all(row.note for row in (*rows.ROWS, *rows.ENVIRONMENT) if row.verdict != rows.WORKS)


def test_every_variable_has_a_row() -> None:
    used = {rows.row_of(name, rows.ENVIRONMENT).name for name in rows.API["environment"]}
    assert sorted({row.name for row in rows.ENVIRONMENT} - used) == []


def test_what_is_wrong_is_found() -> None:
    assert difference("torchcomms.TorchComm.all_reduce", lambda tensor, op, async_op: None)
    assert difference("torchcomms.TorchComm.finalize", lambda more: None) == "['more'] are needed too"
    with pytest.raises(Missing):
        found("torchcomms.TorchComm.no_such_operation")
    with pytest.raises(KeyError):
        rows.row_of("TORCHCOMM_UNHEARD_OF", rows.ENVIRONMENT)
