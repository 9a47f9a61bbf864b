"""Faults of links: partition, slow, stall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from harness.interface import Fault, NodePlan, UsageError
from harness.interface.errors import choose
from nemesis.kind import PAIR, Impact, Kind, Option, Situation, number, one_of, two_names
from nemesis.partition import SHAPES

DIRECTION = Option(
    "of one-way: what the live sends is lost (from), or what it is sent (to)", one_of("from", "to")
)
BETWEEN = Option("of link: the two brokers, any by default", two_names)
DELAY_MS_DEFAULT: Final = 200.0
JITTER_MS_DEFAULT: Final = 50.0
TOO_FEW_TO_TELL: Final = "fewer than three pairs cannot tell a cut link from a dead peer (RP4)"


class LinkKind(Kind):
    """A kind of fault of the links that a shape of partition names."""

    shapes = tuple(SHAPES)
    default_shapes = tuple(shape for shape in SHAPES if shape != "link")
    """The shapes that are drawn: "random" cuts single links as well."""
    options: ClassVar[Mapping[str, Option]] = {"pair": PAIR, "direction": DIRECTION, "between": BETWEEN}

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """Check the fault as a Kind does, and that the cluster is large enough for the shape."""
        super().validate(fault, nodes)
        if fault.shape is None:
            raise UsageError(f"needs a shape; there are {', '.join(self.shapes)}")
        lacks = SHAPES[fault.shape].lacks(nodes)
        if lacks:
            raise UsageError(f'shape "{fault.shape}" {lacks}')
        if "direction" in fault.options and fault.shape != "one-way":
            raise UsageError(f'option "direction" belongs to the shape "one-way", not to "{fault.shape}"')
        if "between" in fault.options and fault.shape != "link":
            raise UsageError(f'option "between" belongs to the shape "link", not to "{fault.shape}"')
        for name in fault.options.get("between", ()):
            choose("node", name, [node.name for node in nodes])
        pair = fault.options.get("pair")
        if pair is not None and fault.shape in ("pair-link", "isolate-backup"):
            lacks = SHAPES[fault.shape].lacks([node for node in nodes if node.pair == pair])
            if lacks:
                raise UsageError(f'shape "{fault.shape}" {lacks} (pair "{pair}")')

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """Choose the links of the shape, in order."""
        assert fault.shape is not None, "validated"
        cut = SHAPES[fault.shape].cut(situation, fault.options)
        return Impact(cut.target, fault.shape, links=tuple(sorted(cut.links)))

    def given(self, fault: Fault) -> Mapping[str, Any]:
        """Return no options: they have already chosen the links."""
        del fault
        return {}

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether at least one link shows the effect, and none is open.

        The probe of a link to a broker that is gone may say something else.
        """
        del before
        return not self.healed(observed) and "open" not in observed.values()


class Partition(LinkKind):
    """A partition of the network: brokers live and do not hear each other (AMQ 17.3.3)."""

    name = "partition"
    description = "links between brokers, and between brokers and clients, are cut"
    primitives = ("cut",)
    seen_as = "lost"
    wants_quorum = TOO_FEW_TO_TELL


class SlowLink(LinkKind):
    """A slow network, which loses nothing and delays everything (RP16)."""

    name = "slow"
    description = "links are slow: a delay, jitter, or a limited rate"
    primitives = ("slow",)
    seen_as = "slow"
    slows = lasts = mild = True  # but for a link with too little room, see ``harness.explore.swarm``
    wants_quorum = f"{TOO_FEW_TO_TELL}, and a link that is slower than their patience is a cut one"
    default_shapes = ("pair-link", "isolate-live", "isolate-backup")
    options: ClassVar[Mapping[str, Option]] = {
        **LinkKind.options,
        "delay_ms": Option(
            f"added to each way, {DELAY_MS_DEFAULT:g} by default", number(0), drawn=(20.0, 100.0, 500.0)
        ),
        "jitter_ms": Option(
            f"varies the delay, {JITTER_MS_DEFAULT:g} by default", number(0), drawn=(0.0, 50.0, 300.0)
        ),
        "rate_bytes_s": Option(
            "bytes a second at the most; unlimited by default",
            number(0, above=True),
            drawn=(50_000.0, 200_000.0, 10_000_000.0),
        ),
    }

    def given(self, fault: Fault) -> Mapping[str, Any]:
        """Return the given delay, jitter and rate; a default delay and jitter if none is given."""
        given: dict[str, Any] = {
            name: fault.options[name]
            for name in ("delay_ms", "jitter_ms", "rate_bytes_s")
            if name in fault.options
        }
        return given or {"delay_ms": DELAY_MS_DEFAULT, "jitter_ms": JITTER_MS_DEFAULT}

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """Check the fault as a LinkKind does, and that it slows something down."""
        super().validate(fault, nodes)
        if not any(self.given(fault).values()):
            raise UsageError("slows nothing: give delay_ms, jitter_ms or rate_bytes_s above 0")


class StallLink(LinkKind):
    """Links whose connections stay open while nothing passes, as with a peer that hangs."""

    name = "stall"
    description = "links hold back all data, and deliver it at the end"
    primitives = ("stall",)
    seen_as = "lost"
    wants_quorum = TOO_FEW_TO_TELL
    default_shapes = ("pair-link", "isolate-live", "isolate-backup")
