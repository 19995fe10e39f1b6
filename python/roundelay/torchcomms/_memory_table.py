"""Memory that peers of any transport of this process may use, by an access key of its own.

torchcomms registers memory without naming a transport, while the keys of an endpoint are its own. So each endpoint has
a table with an entry for each published memory, from which a peer reads, once, the key that this endpoint has for it.
An entry is sealed by the access key: a peer reads those of the memory that it was given, and no other.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
import threading
import zlib
from collections import deque
from dataclasses import dataclass

from torch import Tensor

from ..endpoint import Endpoint, Region
from ..errors import UsageError, WindowError

SLOTS = 1024
"""The memories that a process can have published at once."""
ENTRY_BYTES = 64
_ENTRY = struct.Struct("<4sIQQ36s4x")
_MAGIC = b"rlm1"


@dataclass(frozen=True)
class AccessKey:
    """What a peer needs to find a memory: its slot in the tables of its process, and what opens the entry there."""

    slot: int
    secret: bytes

    def __str__(self) -> str:
        return f"rlm1:{self.slot}:{self.secret.hex()}"

    @classmethod
    def parse(cls, text: str) -> AccessKey:
        """Return the access key that a text is. Raises ``UsageError`` for other texts."""
        parts = text.split(":")
        try:
            slot, secret = int(parts[1]), bytes.fromhex(parts[2])
        except (IndexError, ValueError):
            slot, secret = -1, b""
        if len(parts) != 3 or parts[0] != "rlm1" or not 0 <= slot < SLOTS or len(secret) != 16:
            raise UsageError(f"the access key {text!r} is none of RdmaMemory.to_remote_buffer(): pass on what that has")
        return cls(slot, secret)


@dataclass(frozen=True)
class MemoryEntry:
    """What an entry says: where a memory begins in its process, its bytes, and the key of its region."""

    address: int
    length: int
    key: bytes

    def seal(self, access: AccessKey, table_key: bytes) -> bytes:
        """Return the bytes of the entry in the table of that key."""
        checked = self._checksum()
        plain = _ENTRY.pack(_MAGIC, checked, self.address, self.length, self.key)
        return _mask(plain, access, table_key)

    @classmethod
    def unseal(cls, data: bytes, access: AccessKey, table_key: bytes) -> MemoryEntry:
        """Return what an entry says. Raises ``WindowError`` if it is of another memory, or of none."""
        magic, checked, address, length, key = _ENTRY.unpack(_mask(data, access, table_key))
        entry = cls(address, length, key)
        if magic != _MAGIC or checked != entry._checksum():
            raise WindowError(
                f"the peer has no memory of the access key in slot {access.slot}: it was released, or belongs to "
                "another process; have the peer keep its RdmaMemory, and pass on what to_remote_buffer() returns",
                code="RL0716",
            )
        return entry

    def _checksum(self) -> int:
        return zlib.crc32(struct.pack("<QQ36s", self.address, self.length, self.key))


def _mask(data: bytes, access: AccessKey, table_key: bytes) -> bytes:
    mask = hashlib.shake_128(access.secret + table_key).digest(ENTRY_BYTES)
    return (int.from_bytes(data, "little") ^ int.from_bytes(mask, "little")).to_bytes(ENTRY_BYTES, "little")


@dataclass(frozen=True)
class PublishedMemory:
    """A memory that is in the tables."""

    access: AccessKey
    data: Tensor
    address: int
    length: int


class MemoryTable:
    """The table of one endpoint, which its peers read by ``key``."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._entries = bytearray(SLOTS * ENTRY_BYTES)
        self._table = endpoint.register(self._entries, ("read",))
        self._regions: dict[int, Region] = {}
        self.key: bytes = self._table.key

    def add(self, memory: PublishedMemory) -> None:
        """Register a memory with the endpoint, and enter its key."""
        region = self._endpoint.register(memory.data)
        slot = memory.access.slot
        self._regions[slot] = region
        entry = MemoryEntry(memory.address, memory.length, region.key)
        self._entries[slot * ENTRY_BYTES : (slot + 1) * ENTRY_BYTES] = entry.seal(memory.access, self.key)

    def remove(self, slot: int) -> Region | None:
        """Clear an entry; return its region, which is to be revoked."""
        self._entries[slot * ENTRY_BYTES : (slot + 1) * ENTRY_BYTES] = bytes(ENTRY_BYTES)
        return self._regions.pop(slot, None)

    def close(self) -> None:
        """Close the endpoint with its regions."""
        self._endpoint.close()
        self._regions.clear()


class PublishedMemories:
    """The tables of a process and the memories in them."""

    def __init__(self) -> None:
        # Finalizers come in the middle of calls of the same thread.
        self._lock = threading.RLock()
        self._tables: list[MemoryTable] = []
        self._memories: dict[int, PublishedMemory] = {}
        self._free = deque(range(SLOTS))

    def open_table(self, endpoint: Endpoint) -> MemoryTable:
        """Return a table of an endpoint, with all memories that are published."""
        table = MemoryTable(endpoint)
        with self._lock:
            for memory in list(self._memories.values()):
                table.add(memory)
            self._tables.append(table)
        return table

    def close_table(self, table: MemoryTable) -> None:
        """Close an endpoint and forget its table."""
        with self._lock:
            if table in self._tables:
                self._tables.remove(table)
        table.close()

    def publish(self, data: Tensor) -> PublishedMemory:
        """Enter the bytes of a tensor of the CPU into all tables, those that are made later too.

        Raises ``UsageError`` if 1024 memories are published.
        """
        with self._lock:
            if not self._free:
                raise UsageError(
                    f"{SLOTS} memories of this process have remote buffers, and there can be no more: drop RdmaMemory "
                    "objects that peers no longer use, or register one tensor for several"
                )
            access = AccessKey(self._free.popleft(), secrets.token_bytes(16))
            memory = PublishedMemory(access, data, data.data_ptr(), data.numel())
            try:
                for table in list(self._tables):
                    table.add(memory)
            except BaseException:
                self.withdraw(access.slot)
                raise
            self._memories[access.slot] = memory
        return memory

    def withdraw(self, slot: int) -> None:
        """Take a memory out of all tables: when this returns, no peer reads or writes it any more."""
        with self._lock:
            self._memories.pop(slot, None)
            regions = [table.remove(slot) for table in list(self._tables)]
            self._free.append(slot)
        for region in regions:
            if region is not None:
                region.revoke()


memories = PublishedMemories()
"""Those of this process."""
