"""Where the elements of an array or a tensor lie."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

from roundelay._dtypes import DLPACK, FORMATS, NAMES, DType, unknown
from roundelay.errors import UsageError

if TYPE_CHECKING:
    from roundelay._native import Address, Mapping

__all__ = ["Array", "View", "is_cuda", "mapped", "owner", "view"]


class SupportsBuffer(Protocol):
    """Memory with the buffer protocol, as arrays of numpy and ``bytearray``."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


class SupportsDLPack(Protocol):
    """Memory with DLPack, as tensors."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __dlpack_device__(self, *args: Any, **kwargs: Any) -> Any: ...


Array: TypeAlias = Union[SupportsBuffer, SupportsDLPack]
"""An array, a tensor, or other memory: what has the buffer protocol or DLPack, contiguous in C's order."""

View: TypeAlias = "tuple[Address, DType, object]"
"""A buffer, the type of its elements, and what keeps it alive."""

Reader: TypeAlias = "Callable[[Any, str, bool], View]"

_addressof = ctypes.addressof
_from_buffer = ctypes.c_char.from_buffer


def view(data: object, name: str, written: bool) -> View:
    """Return where the elements of ``data`` lie, the argument that a call names ``name``.

    Raises ``UsageError`` if it is no array, has another order than C's, is of an unknown type, or is read-only but
    to be written.
    """
    reader = _READERS.get(type(data))
    if reader is None:
        reader = _READERS[type(data)] = _reader(data)
    return reader(data, name, written)


def owner(seen: View) -> object:
    """Return the array of a buffer that was looked at."""
    kept = seen[2]
    return kept[0] if type(kept) is tuple else kept


def mapped(native: Mapping, kept: object = None) -> memoryview:
    """Return the bytes of memory that is there, as ``kept`` is, as long as anything refers to the view."""
    array: Any = (ctypes.c_char * native.nbytes).from_address(native.address)
    array.kept = (native, kept)
    view = memoryview(array).cast("B")
    return view if native.writable else view.toreadonly()


def _reader(data: object) -> Reader:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(data, numpy.ndarray):
        return _numpy
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.Tensor):
        return _torch
    if hasattr(data, "__dlpack__") and not (numpy is not None and isinstance(data, numpy.generic)):
        return _dlpack
    return _buffer


def _refuse(name: str, data: Any, why: str) -> UsageError:
    shape = getattr(data, "shape", None)
    kind = type(data)
    what = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__name__}"
    if shape is not None:
        what += f" of shape {tuple(shape)}"
    if getattr(data, "dtype", None) is not None:
        what += f" and dtype {str(data.dtype).removeprefix('torch.')}"
    return UsageError(f"`{name}`, a {what}: {why}")


def _strided(name: str, data: Any, strides: object, remedy: str) -> UsageError:
    return _refuse(
        name,
        data,
        f"its elements do not lie one after the other in C's order (strides {strides}): {remedy}",
    )


# Arrays of numpy --------------------------------------------------------------------------------

_NUMPY: dict[Any, DType] = {}


def _numpy(data: Any, name: str, written: bool) -> View:
    dtype = _NUMPY.get(data.dtype)
    if dtype is None:
        dtype = _NUMPY[data.dtype] = _numpy_dtype(data, name)
    elements: int = data.size * dtype.scale
    try:
        # Refuses what is not contiguous, and what is read-only.
        return (_addressof(_from_buffer(data)), elements, dtype.native, False), dtype, data
    except (TypeError, ValueError, BufferError):
        pass
    flags = data.flags
    if not flags.c_contiguous:
        remedy = "pass a contiguous copy" if written else "pass numpy.ascontiguousarray(…)"
        raise _strided(name, data, data.strides, remedy)
    if written and not flags.writeable:
        raise _refuse(name, data, "it is read-only, and the call writes it: pass a copy")
    return (data.__array_interface__["data"][0] if elements else 0, elements, dtype.native, False), dtype, data


def _numpy_dtype(data: Any, name: str) -> DType:
    if not data.dtype.isnative:
        remedy = "pass .astype(dtype.newbyteorder('='))"
        raise _refuse(name, data, f"its elements have the bytes of another kind of machine: {remedy}")
    dtype = NAMES.get(str(data.dtype))
    if dtype is None or dtype.size != data.dtype.itemsize:
        raise _refuse(name, data, unknown(str(data.dtype)))
    return dtype


# Tensors of torch -------------------------------------------------------------------------------

_TORCH: dict[Any, DType] = {}


def _torch(data: Any, name: str, written: bool) -> View:
    dtype = _TORCH.get(data.dtype)
    if dtype is None:
        called = str(data.dtype).removeprefix("torch.")
        if called not in NAMES:
            raise _refuse(name, data, unknown(called))
        dtype = _TORCH[data.dtype] = NAMES[called]
    device = data.device.type
    if device not in ("cpu", "cuda"):
        raise _refuse(name, data, f"it is on the device {device}: pass .cpu() or .cuda()")
    if str(data.layout) != "torch.strided":
        raise _refuse(name, data, f"its layout is {data.layout}: pass .to_dense()")
    if not data.is_contiguous():
        raise _strided(name, data, tuple(data.stride()), "pass .contiguous()")
    if data.is_conj() or data.is_neg():
        raise _refuse(name, data, "its elements are conjugated or negated when read: pass .resolve_conj().resolve_neg()")
    return (data.data_ptr(), data.numel() * dtype.scale, dtype.native, device == "cuda"), dtype, data


# DLPack -----------------------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_READ_ONLY = 1
# Devices whose memory the host reads as its own, and those of CUDA.
_HOST_DEVICES = (1, 3)
_CUDA_DEVICES = (2, 13)

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.restype = ctypes.c_int
_is_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _dlpack(data: Any, name: str, written: bool) -> View:
    # Streams: the call is put into the stream in which the array's owner works (`streams.current`).
    on_gpu = data.__dlpack_device__()[0] in _CUDA_DEVICES
    options: dict[str, Any] = {"stream": -1} if on_gpu else {}
    try:
        capsule = data.__dlpack__(max_version=(1, 0), **options)
    except TypeError:
        capsule = data.__dlpack__(**options)
    except (BufferError, RuntimeError, ValueError) as error:
        raise _refuse(name, data, f"it cannot be passed by DLPack: {error}") from error
    read_only = "jax" in type(data).__module__
    if _is_capsule(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        tensor = versioned.tensor
        read_only = read_only or bool(versioned.flags & _READ_ONLY)
    else:
        tensor = _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
    if written and read_only:
        raise _refuse(name, data, "it is read-only, and the call writes it: pass a numpy array or a tensor")
    if tensor.device_type not in (*_HOST_DEVICES, *_CUDA_DEVICES):
        raise _refuse(name, data, f"it is on DLPack's device {tensor.device_type}: move it to the CPU or to CUDA")
    dtype = DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise _refuse(name, data, unknown(f"{tensor.bits} bits of DLPack's code {tensor.code}"))
    elements, next_stride = 1, 1
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    for extent in shape:
        elements *= extent
    if tensor.strides and elements:
        strides = [tensor.strides[i] for i in range(tensor.ndim)]
        for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
            if extent != 1 and stride != next_stride:
                raise _strided(name, data, tuple(strides), "pass a contiguous copy")
            next_stride *= extent
    address = (tensor.data or 0) + tensor.byte_offset if elements else 0
    return (address, elements * dtype.scale, dtype.native, tensor.device_type in _CUDA_DEVICES), dtype, (data, capsule)


# The buffer protocol ----------------------------------------------------------------------------


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None
_SIMPLE = 0


class _Held:
    """A buffer that its owner may not move or resize as long as this lives."""

    __slots__ = ("buffer",)

    def __init__(self, data: memoryview) -> None:
        self.buffer = _PyBuffer()
        _get_buffer(data, ctypes.byref(self.buffer), _SIMPLE)

    def __del__(self) -> None:
        _release_buffer(ctypes.byref(self.buffer))


def _buffer(data: Any, name: str, written: bool) -> View:
    try:
        memory = memoryview(data)
    except TypeError:
        raise _refuse(
            name, data, "it is no array: pass something with the buffer protocol or DLPack, as numpy arrays and tensors"
        ) from None
    character = memory.format.lstrip("@=<") if sys.byteorder == "little" else memory.format.lstrip("@=>")
    dtype = FORMATS.get((character, memory.itemsize))
    if dtype is None:
        raise _refuse(name, data, unknown(f"`{memory.format}` of {memory.itemsize} bytes"))
    if not memory.c_contiguous:
        raise _strided(name, data, memory.strides, "pass a contiguous copy")
    if written and memory.readonly:
        raise _refuse(name, data, "it is read-only, and the call writes it: pass a bytearray, or a copy")
    elements = memory.nbytes // dtype.size
    held = _Held(memory)
    address = held.buffer.buf or 0
    return (address, elements * dtype.scale, dtype.native, False), dtype, held


def is_cuda(data: object) -> bool:
    """Return True if ``data`` is on a GPU."""
    device = getattr(data, "__dlpack_device__", None)
    return device is not None and device()[0] in _CUDA_DEVICES


_READERS: dict[type, Reader] = {}
