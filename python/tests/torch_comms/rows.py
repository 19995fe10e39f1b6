"""The table of torchcomms' API by row: what works, what differs, and what is not there, with the reason.

``rows.py`` writes the page ``docs/torchcomms-api.md``. A row is a name, or a pattern for names of one verdict; the row
that comes first counts. Names and parameters of the API are in ``api.json``, which ``tests/torchcomms/names.py`` writes.
"""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

API: dict[str, Any] = json.loads((Path(__file__).parent / "api.json").read_text())
PAGE = Path(__file__).parents[3] / "docs" / "torchcomms-api.md"

WORKS, DIFFERS, ABSENT = "works", "differs", "not there, because"


@dataclass(frozen=True)
class ApiRow:
    """A name, or a pattern for several: what becomes of it here."""

    name: str
    verdict: str
    note: str = ""


def row(name: str, verdict: str, note: str = "") -> ApiRow:
    return ApiRow(name, verdict, note)


HOOK_ARGUMENTS = "`PreHookArgs` and `PostHookArgs` have the fields of all operations, None where one has none"
ON_GPUS = "of tensors on GPUs all have one length, and operations go into the current stream"

ROWS = [
    # Making communicators.
    row("torchcomms.new_comm", DIFFERS, "the backend is `roundelay`, or of `register_backend`; `rank` and `size` can be passed, for ranks that are threads"),
    row("torchcomms.is_backend_built", WORKS),
    row("torchcomms.built_backends", WORKS, "`roundelay` alone"),
    row("torchcomms._is_backend_registered", ABSENT, "there is one backend"),
    row("torchcomms.register_backend", DIFFERS, "the class is one of `PythonBackend`, which `TorchCommBackend` is too"),
    row("torchcomms.TorchCommBackend*", DIFFERS, "is `PythonBackend`: what a class does not override is roundelay's"),
    row("torchcomms.get_mem_allocator", WORKS, "for `roundelay`; any tensor will do for collectives"),
    row("torchcomms._BackendWrapper*", ABSENT, "`device_mesh` makes process groups of communicators"),
    # A communicator.
    row("torchcomms.TorchComm.all_gather_p_*", WORKS, "as `all_gather_single`, which needs no preparation"),
    row("torchcomms.TorchComm.*mem_allocator", WORKS, "on GPUs; `allocate_tensor` gives memory of the host that peers map"),
    row("torchcomms.TorchComm.tensor_register", DIFFERS, "does nothing: no tensor needs registration"),
    row("torchcomms.TorchComm.tensor_deregister", DIFFERS, "does nothing"),
    row("torchcomms.TorchComm.get_backend", DIFFERS, "`roundelay`"),
    row("torchcomms.TorchComm.get_backend_impl", DIFFERS, "the native communicator: `explain`, `install`, `flight`; of a backend in Python its object"),
    row("torchcomms.TorchComm.unsafe_get_backend", DIFFERS, "as `get_backend_impl`"),
    row("torchcomms.TorchComm.is_abort_supported", WORKS, "True"),
    row("torchcomms.TorchComm.abort", DIFFERS, "ends the communicator on all ranks"),
    row("torchcomms.TorchComm.split", DIFFERS, "needs a store, which a communicator of `enable_reconfigure` has not"),
    row("torchcomms.TorchComm.new_window", WORKS, ON_GPUS),
    row("torchcomms.TorchComm.set_hints", DIFFERS, "the keys are those of [hints](hints.md)"),
    row("torchcomms.TorchComm.register_pre_hook", DIFFERS, "a function of one argument, as on torchcomms' page, will do too"),
    row("torchcomms.TorchComm.register_post_hook", DIFFERS, "a function of one argument will do too"),
    # Work, batches, windows.
    row("torchcomms.TorchWork._set_status", ABSENT, "work has its state from the operation; `status()` says it"),
    row("torchcomms.BatchSendRecv.issue", WORKS),
    row("torchcomms.TorchCommWindow.signal", DIFFERS, "the parameter is `peer_rank`, as in torchcomms' bindings; its stub has `dst_rank`"),
    row("torchcomms.TorchCommWindow.get_device_window", ABSENT, "kernels take the address of `map_remote_tensor`"),
    row("torchcomms.TorchCommWindow.*register_local_buffer", ABSENT, "puts take any tensor, so there is nothing to register"),
    row("torchcomms.TorchCommWindow.tensor_register", DIFFERS, "`owning` has no effect"),
    row("torchcomms.TorchCommWindow.map_remote_tensor", DIFFERS, "for tensors of `allocate_tensor`, or on GPUs, on the same host"),
    row("torchcomms.TorchCommWindow.put", DIFFERS, "has handed the tensor over when it returns, with `async_op=True` too"),
    # Options.
    row("torchcomms.AllGatherP*Options*", ABSENT, "hints and timeout are arguments of `all_gather_p_init` and `all_gather_p_exec`"),
    row("torchcomms.ReconfigureOptions*", ABSENT, "`reconfigure` takes arguments"),
    row("torchcomms.CommOptions.__init__", DIFFERS, "takes the fields as arguments too"),
    row("torchcomms.CommOptions.abort_process_on_timeout_or_error", DIFFERS, "has no effect: errors are raised"),
    row("torchcomms.*Options.__init__", DIFFERS, "takes the fields as arguments too"),
    row("torchcomms.TorchCommWindowAttr.__init__", DIFFERS, "takes the field as an argument too"),
    # Hooks.
    row("torchcomms.*PreHookArgs*", ABSENT, HOOK_ARGUMENTS),
    row("torchcomms.*PostHookArgs*", ABSENT, HOOK_ARGUMENTS),
    row("torchcomms.hooks.clog*", ABSENT, "`FlightRecorderHook`, and the package's own record of calls ([pytorch](pytorch.md))"),
    row("torchcomms.hooks.FlightRecorderHook.__init__", DIFFERS, "recorders are independent, whatever `isolated` says"),
    # Meshes.
    row("torchcomms.device_mesh.init_device_mesh", DIFFERS, "checks that parts fit the mesh; leaves a default group in its place"),
    row("torchcomms.device_mesh._create_torchcomm_process_group", DIFFERS, "`backend_str` has no effect"),
    # Transports.
    row("torchcomms._transport.RdmaTransport", DIFFERS, "over shared memory, RDMA or TCP ([transport](transport.md))"),
    row("torchcomms._transport.RdmaTransport.__init__", DIFFERS, "takes `name`, `timeout`, `hints` and `secret` too"),
    row("torchcomms.*", WORKS),
]

ENVIRONMENT = [
    row("TORCHCOMM_RANK", WORKS),
    row("TORCHCOMM_SIZE", WORKS),
    row("TORCHCOMM_TIMEOUT_SECONDS", WORKS),
    row("TORCHCOMM_ABORT_ON_ERROR", DIFFERS, "has no effect: errors are raised, and never end the process"),
    row("TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD", ABSENT, "the first launcher whose variables are set counts"),
    row("TORCHCOMM_STORE_PATH", ABSENT, "pass `store=`"),
    row("TORCHCOMM_FR_DUMP_TEMP_FILE", WORKS),
    row("TORCHCOMM_FR_*", ABSENT, "`FlightRecorderHook(max_entries=…)` and `dump_file` say it"),
    row("TORCHCOMM_GLOO_*", ABSENT, "the hints of [hints](hints.md) name interfaces and addresses"),
    row("TORCHCOMM_HEALTH_CHECK_*", ABSENT, "joining fails where a rank does not come in time"),
    row("TORCHCOMM_*_BOOTSTRAP_UNIQUEID_EXCHANGE_METHOD", ABSENT, "it is another backend's"),
    row("TORCHCOMM_NCCLX_*", ABSENT, "it is another backend's"),
    row("TORCHCOMMS_BACKEND_LIB_PATH_", DIFFERS, "is for torchcomms itself: the compiled backend is found by it"),
    row("TORCHCOMMS_PATCH_FOR_COMPILE", WORKS),
    row("TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT", WORKS),
    row("TORCHCOMMS_SERIALIZATION", ABSENT, "objects are serialised by `torch.save`"),
    row("TORCHCOMMS_RDMA_*", ABSENT, "registrations are counted by the library's own tracing"),
]


def row_of(name: str, rows: list[ApiRow]) -> ApiRow:
    """Return the first row that a name fits. Raises ``KeyError`` if there is none."""
    for each in rows:
        if fnmatch.fnmatchcase(name, each.name):
            return each
    raise KeyError(name)


def title_of(name: str) -> str:
    """Return the section of a name: its module, or its class."""
    parts = name.split(".")
    if parts[1] in ("device_mesh", "functional", "objcol", "_transport"):
        return ".".join(parts[:2])
    if parts[1] == "hooks":
        return "torchcomms.hooks"
    if len(parts) > 2 or parts[1][:1].isupper() or parts[1] == "_BackendWrapper":
        for ends in ("PreHookArgs", "PostHookArgs", "Options"):
            if parts[1].endswith(ends):
                return f"torchcomms: classes that end with {ends}"
        return ".".join(parts[:2])
    return "torchcomms: functions"


def _shown(name: str, title: str) -> str:
    kept = name.removeprefix(f"{title}.").removeprefix("torchcomms.")
    given = API["names"].get(name)
    return f"`{kept}`" if given is None else f"`{kept}({', '.join(given)})`"


def _lines(entries: list[tuple[str, ApiRow]]) -> list[str]:
    lines = ["| name | here | |", "|---|---|---|"]
    lines += [f"| {shown} | {each.verdict} | {each.note} |" for shown, each in entries]
    return lines


def _merged(names: list[str], title: str) -> list[tuple[str, ApiRow]]:
    """Return the rows of a section; names that one pattern with a verdict of its own covers are one row."""
    entries: list[tuple[str, ApiRow]] = []
    for name in names:
        each = row_of(name, ROWS)
        is_group = "*" in each.name and each.verdict == ABSENT
        shown = f"`{each.name.removeprefix('torchcomms.')}`" if is_group else _shown(name, title)
        if not is_group or all(before != (shown, each) for before in entries):
            entries.append((shown, each))
    return entries


def page() -> str:
    """Return the text of the page."""
    names: dict[str, Any] = API["names"]
    counts = {verdict: sum(row_of(name, ROWS).verdict == verdict for name in names) for verdict in (WORKS, DIFFERS, ABSENT)}
    lines = [
        "# torchcomms by row",
        "",
        "What becomes of each name of torchcomms' API in `roundelay.torchcomms` ([torchcomms](torchcomms.md)), and of each of",
        f"its environment variables. The names are those of torchcomms' stubs at commit `{API['commit'][:8]}`; a star stands for",
        "any letters. A test of the package compares this page with them, and with what the module has: *works* has the",
        "same parameters in the same order.",
        "",
        f"Of {len(names)} names {counts[WORKS]} work, {counts[DIFFERS]} differ, and {counts[ABSENT]} are not there.",
    ]
    sections: dict[str, list[str]] = {}
    for name in names:
        sections.setdefault(title_of(name), []).append(name)
    for title in sorted(sections, key=str.lower):
        lines += ["", f"## {title}", "", *_lines(_merged(sections[title], title))]
    lines += ["", "## Environment variables", "", *_lines([(f"`{each.name}`", each) for each in ENVIRONMENT])]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
