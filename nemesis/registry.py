"""The registry of the kinds of faults by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.interface import UsageError
from nemesis.admin import AdminTakeover, Quiesce
from nemesis.administer import Administer
from nemesis.clock import ClockRate, ClockSkew, ClockStep, ClockStrobe
from nemesis.database import DatabaseDisconnect, DatabaseRestart, DatabaseStall
from nemesis.datagram import DatagramDuplicate, DatagramLoss, DatagramReorder
from nemesis.disk import DiskCorrupt, DiskError, DiskFull, DiskSlow, DiskStall, PowerLoss
from nemesis.hook import Hook
from nemesis.kind import Kind
from nemesis.link import Partition, SlowLink, StallLink
from nemesis.near import near
from nemesis.nfs import NfsDisconnect, NfsRestart, NfsStall
from nemesis.node import CopyData, Destroy, Kill, LateStart, Leave, Pause, Reconfigure, Stop
from nemesis.restore_record import RestoreRecord
from nemesis.switch_over import SwitchOver

KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Partition(),
        Kill(),
        Pause(),
        Stop(),
        SlowLink(),
        StallLink(),
        Destroy(),
        Leave(),
        LateStart(),
        Reconfigure(),
        CopyData(),
        PowerLoss(),
        DiskSlow(),
        DiskStall(),
        DiskFull(),
        DiskError(),
        DiskCorrupt(),
        ClockSkew(),
        ClockStep(),
        ClockRate(),
        ClockStrobe(),
        DatagramLoss(),
        DatagramDuplicate(),
        DatagramReorder(),
        DatabaseStall(),
        DatabaseRestart(),
        DatabaseDisconnect(),
        NfsStall(),
        NfsDisconnect(),
        NfsRestart(),
        AdminTakeover(),
        Quiesce(),
        SwitchOver(),
        Administer(),
        RestoreRecord(),
        Hook(),
    )
}


def get(name: str) -> Kind:
    """Return a kind by its name; raises UsageError for an unknown name, with the nearest one."""
    kind = KINDS.get(name)
    if kind is None:
        raise UsageError(f'unknown nemesis "{name}": {near(name, KINDS)}')
    return kind


def unsupported(name: str, supports: Mapping[str, str]) -> str:
    """Return why an environment cannot inject a kind of fault; "" if it can.

    The reason begins with the primitive that the environment lacks, where that has another name
    than the kind. ``supports`` may also have a reason for the kind itself, by its name.
    """
    if reason := supports.get(name):
        return reason
    for primitive in get(name).primitives:
        reason = supports.get(primitive, "this environment has no such fault")
        if reason:
            return reason if primitive == name else f"{primitive}: {reason}"
    return ""
