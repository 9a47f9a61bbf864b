"""What the broker keeps.

The seam to a disk, the journal on it, its copy on a backup, and who may be answered when.
"""

from broker.storage.copy import JournalCopy
from broker.storage.directory import DirectoryVolume
from broker.storage.entry import ADD, DELETE, UPDATE, Operation
from broker.storage.errors import (
    JournalDamaged,
    JournalDamagedError,
    JournalError,
    JournalFailed,
    JournalFailedError,
    JournalIncomplete,
    JournalIncompleteError,
    JournalLocked,
    JournalLockedError,
)
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal, Recovered
from broker.storage.memory import MemoryVolume
from broker.storage.options import JournalOptions
from broker.storage.recovery import Record, Update
from broker.storage.snapshot import Snapshot
from broker.storage.volume import Volume, VolumeFile, VolumeLock, VolumeLockedError

__all__ = [
    "ADD",
    "DELETE",
    "UPDATE",
    "DirectoryVolume",
    "DurabilityGate",
    "Journal",
    "JournalCopy",
    "JournalDamaged",
    "JournalDamagedError",
    "JournalError",
    "JournalFailed",
    "JournalFailedError",
    "JournalIncomplete",
    "JournalIncompleteError",
    "JournalLocked",
    "JournalLockedError",
    "JournalOptions",
    "MemoryVolume",
    "Operation",
    "Record",
    "Recovered",
    "Snapshot",
    "Update",
    "Volume",
    "VolumeFile",
    "VolumeLock",
    "VolumeLockedError",
]
