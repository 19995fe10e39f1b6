"""The table of the types of elements."""

from __future__ import annotations

import numpy as np

from roundelay._dtypes import DLPACK, FORMATS, NAMES


def test_no_two_types_have_one_code_of_dlpack_or_one_character_of_buffers() -> None:
    rows = list(NAMES.values())
    assert len(DLPACK) == len(rows), "two rows have one code and size"
    assert len(FORMATS) == sum(len(dtype.formats) for dtype in rows), "two rows have one character and size"
    assert DLPACK[2, 32] is FORMATS["f", 4] is NAMES["float32"]
    assert (2, 128) not in DLPACK and ("g", 16) not in FORMATS


def test_characters_and_sizes_are_those_of_numpy() -> None:
    for name, dtype in NAMES.items():
        if dtype.formats:
            known = np.dtype(name)
            assert known.itemsize == dtype.size, name
            assert memoryview(np.zeros(1, known)).format in dtype.formats, name


def test_types_are_widened_to_such_as_have_all_operators() -> None:
    wider = {dtype.name: dtype.wider for dtype in NAMES.values() if dtype.wider is not None}
    assert wider == {"int16": "int32", "uint16": "int32"}
    assert all(NAMES[name].ops is None for name in wider.values())
