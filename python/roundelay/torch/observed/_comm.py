"""Observation of communicators of torchcomms, by their hooks: ours, and those of torchcomms with any backend."""

from __future__ import annotations

from typing import Any

from ._entries import NO_TENSORS, WORK, Entry, sizes
from ._observer import GroupObserver

_UNSEEN = {"split", "new_window", "finalize"}
"""Operations that are not recorded: their works are other objects, or none."""


class CommHooks:
    """The hooks of one communicator."""

    def __init__(self, comm: Any, observer: GroupObserver) -> None:
        self._observer = observer
        self._begun: tuple[int, Entry | None] = (-1, None)
        observer.on_close = self._remove
        self._handles = [comm.register_pre_hook(self._before), comm.register_post_hook(self._after)]

    def _before(self, name: Any, number: int, args: Any) -> None:
        said = str(getattr(name, "name", name))
        observer = self._observer
        unfinished = self._begun[1]
        if unfinished is not None:  # The call before raised, and has moved nothing.
            observer.collectives.cancel(unfinished)
        self._begun = (-1, None)
        if said in _UNSEEN:
            if said == "finalize":
                observer.close()
            return
        tensor = getattr(args, "tensor", None)
        if tensor is None:
            tensor = getattr(args, "tensors", None)
        inputs, outputs = getattr(args, "input", tensor), getattr(args, "output", None)
        inputs = tensor if inputs is None else inputs
        if said in ("send", "recv"):
            sides = (sizes(inputs), NO_TENSORS, None) if said == "send" else (NO_TENSORS, sizes(inputs), None)
            entry = observer.begin(observer.messages, said, sides, getattr(args, "peer", -1))
        elif said == "batch_op_issue":
            # Its messages are between some of the ranks, in numbers that differ.
            entry = observer.begin(observer.messages, said, (NO_TENSORS, NO_TENSORS, None), -1)
        else:
            # The hook has no splits: those of two ranks are not compared.
            splits: Any = ([], [], (), ()) if said == "all_to_all_v_single" else None
            taken = (sizes(inputs), sizes(outputs), splits)
            entry = observer.begin(observer.collectives, said, taken, _HookOptions(args))
        self._begun = (number, entry)

    def _after(self, *given: Any) -> None:
        entry = self._begun[1]
        self._begun = (-1, None)
        work = getattr(given[-1], "work", None)
        if entry is not None and entry[WORK] is None:
            self._observer.started(entry, work)

    def _remove(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()


class _HookOptions:
    """The operator and the root of a call, by the names that options of torch have."""

    def __init__(self, args: Any) -> None:
        self.reduceOp = getattr(args, "op", None)
        self.rootRank = getattr(args, "root", None) or 0
