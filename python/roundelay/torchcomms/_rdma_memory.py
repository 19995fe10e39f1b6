"""Memory for transports, by torchcomms' names: tensors, views of them, and buffers that peers use."""

from __future__ import annotations

import operator
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import UnsupportedError, UsageError
from ._memory_table import PublishedMemory, memories

if TYPE_CHECKING:
    from .._native import Address

__all__ = ["RdmaMemory", "RdmaMemoryMutableView", "RdmaMemoryView", "RdmaRemoteBuffer"]


class RdmaRemoteBuffer:
    """Memory of a peer, by its address there, its bytes, and its access key. It can be pickled.

    Its holder may read and write that memory over a transport. Other addresses within the memory make other buffers:
    ``RdmaRemoteBuffer(buffer.ptr + 4096, 512, buffer.access_key)``.
    """

    __slots__ = ("access_key", "len", "ptr")

    def __init__(self, ptr: int, len: int, access_key: str) -> None:
        self.ptr = operator.index(ptr)
        self.len = operator.index(len)
        self.access_key = access_key

    def __getstate__(self) -> tuple[int, int, str]:
        return self.ptr, self.len, self.access_key

    def __reduce__(self) -> tuple[Any, tuple[int, int, str]]:
        return type(self), self.__getstate__()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, tuple[int, int, str]]:
        return self.__reduce__()

    def __repr__(self) -> str:
        return f"<RdmaRemoteBuffer: {self.len} bytes at {self.ptr:#x}>"


class _Registration:
    """The bytes of a tensor, which all ``RdmaMemory`` of these bytes share."""

    def __init__(self, data: Tensor) -> None:
        self.data = data
        self.address = data.data_ptr()
        self.length = data.numel()
        self.staged = data.device.type != "cpu"
        self._published: PublishedMemory | None = None
        self._lock = threading.Lock()

    def published(self) -> PublishedMemory:
        """Return the memory in the tables, where it is from the first call on."""
        with self._lock:
            if self._published is None:
                self._published = memories.publish(self.data)
                weakref.finalize(self, memories.withdraw, self._published.access.slot)
            return self._published


_Place = tuple[torch.device, int, int]
_registrations: weakref.WeakValueDictionary[_Place, _Registration] = weakref.WeakValueDictionary()
_mutex = threading.RLock()


class RdmaMemoryView:
    """Bytes of registered memory; it keeps the memory."""

    __slots__ = ("_length", "_memory", "_offset")

    def __init__(self, memory: RdmaMemory, offset: int, length: int) -> None:
        self._memory = memory
        self._offset = offset
        self._length = length

    def size(self) -> int:
        """Return the number of bytes."""
        return self._length

    def _place(self) -> Address:
        """Return where the bytes lie, as the native part takes it."""
        return self._memory._checked().address + self._offset, self._length, "u8", False

    def _bytes(self) -> Tensor:
        """Return the bytes as a tensor of their device."""
        return self._memory._checked().data.narrow(0, self._offset, self._length)


class RdmaMemoryMutableView(RdmaMemoryView):
    """Bytes of registered memory that may be written."""

    __slots__ = ()


class RdmaMemory:
    """The memory of a contiguous tensor, for all transports of the process.

    Peers may use it as long as this object lives; when it is gone, they no longer do. The tensor is of the CPU or of a
    GPU; that of a GPU goes by way of the host (:meth:`is_staged`), and peers cannot use it by themselves.
    """

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise UsageError(f"tensor is a {type(tensor).__name__}: give a torch.Tensor")
        if tensor.device.type not in ("cpu", "cuda"):
            raise UsageError(f"the tensor is on {tensor.device}: RdmaMemory takes those of the CPU and of CUDA")
        if not tensor.is_contiguous():
            raise UsageError(f"the tensor is not contiguous (strides {tensor.stride()}): pass tensor.contiguous()")
        if tensor.numel() == 0:
            raise UsageError("the tensor has no elements: there is nothing to register")
        data = tensor.detach().view(-1).view(torch.uint8)
        place = (data.device, data.data_ptr(), data.numel())
        with _mutex:
            found = _registrations.get(place)
            self._reused = found is not None
            if found is None:
                found = _registrations[place] = _Registration(data)
        self._registration = found
        self._tensor = tensor

    def _range(self, offset: int | None, length: int | None) -> tuple[int, int]:
        whole = self._registration.length
        first = 0 if offset is None else operator.index(offset)
        if not 0 <= first <= whole:
            raise UsageError(f"the offset {first} is outside of the {whole} bytes that are registered")
        count = whole - first if length is None else operator.index(length)
        if not 0 <= count <= whole - first:
            raise UsageError(f"{count} bytes from {first} on are outside of the {whole} bytes that are registered")
        return first, count

    def to_view(self, offset: int | None = None, length: int | None = None) -> RdmaMemoryView:
        """Return ``length`` bytes from byte ``offset`` on, all by default."""
        return RdmaMemoryView(self, *self._range(offset, length))

    def to_mutable_view(self, offset: int | None = None, length: int | None = None) -> RdmaMemoryMutableView:
        """Return bytes that may be written."""
        return RdmaMemoryMutableView(self, *self._range(offset, length))

    def to_remote_buffer(self) -> RdmaRemoteBuffer:
        """Return what peers need to read and write the memory.

        Raises ``UnsupportedError`` for memory of a GPU, ``UsageError`` if 1024 memories have remote buffers.
        """
        if self._registration.staged:
            raise UnsupportedError(
                f"the tensor is on {self._tensor.device}, and peers reach memory of hosts only: register a tensor of "
                "the CPU, and copy between the two"
            )
        found = self._registration.published()
        return RdmaRemoteBuffer(found.address, found.length, str(found.access))

    def reused_registration(self) -> bool:
        """Return True if the same bytes were registered already."""
        return self._reused

    def is_staged(self) -> bool:
        """Return True if transfers of the memory go by way of the host: that of a GPU."""
        return self._registration.staged

    def _checked(self) -> _Registration:
        """Return the registration. Raises ``UsageError`` if the tensor has other storage by now."""
        found = self._registration
        if self._tensor.data_ptr() != found.address or self._tensor.nbytes != found.length:
            raise UsageError("the tensor was resized, or has other storage, since it was registered: register it again")
        return found
