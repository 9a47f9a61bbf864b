"""A client of a workload, which finds the live broker and records each attempt."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from harness.interface import Dialect, InfrastructureError, WorkloadContext
from harness.interface.errors import exhausted
from stomp_protocol.client.addresses import AddressList
from stomp_protocol.client.connection import ConnectError, Connection, ignore
from stomp_protocol.client.failover import FailoverConnection, State
from stomp_protocol.client.settings import Rules, Settings
from workloads.processes import Processes

BACKOFF_S: Final = (0.05, 0.2)
INTERVAL_S: Final = 0.5
Nodes = Sequence[str] | AddressList
"""The brokers that a client tries: its own, or a list that it shares with other clients."""


class Client(Protocol):
    """A client that may have a connection to send on; see ``FailoverClient``."""

    @property
    def connection(self) -> Connection | None:
        """The present connection; None: there is none."""

    @property
    def unclean_at(self) -> float | None:
        """The loop time of the latest end of a connection that the broker may not have noticed."""

    @property
    def away(self) -> bool:
        """True while it has left by its own choice: it sends nothing then."""

    async def run(self) -> None:
        """Connect, and again whenever the connection ends; returns after ``finish``."""

    async def finish(self) -> None:
        """Leave, and never connect again."""


class FailoverClient(FailoverConnection):
    """A client that keeps one connection to the live one of ``nodes``, until ``finish``.

    Each attempt is a ``connect`` operation in the history.

    Args:
        context: the context of the workload.
        zone: the client zone that it lives in.
        nodes: the brokers of which it uses one, the likeliest first.
        seed: the seed of its jitter.
        on_up: called with each new connection.
        on_down: called with the reason when the connection ended.
        store_session: the store that served the client before; None: not known.
        client_id: the client's name for itself; None: it has none.
    """

    def __init__(
        self,
        context: WorkloadContext,
        zone: str,
        nodes: Nodes,
        seed: int,
        on_up: Callable[[Connection], None] = ignore,
        on_down: Callable[[str], None] = ignore,
        store_session: str | None = None,
        client_id: str | None = None,
    ) -> None:
        dialect, spec = context.dialect, context.spec
        topics = dialect.topics
        # Clients of the drain have no list, and never give up.
        of_list = isinstance(nodes, AddressList)
        interval_s = spec.client_interval_s if of_list else None
        super().__init__(
            nodes if isinstance(nodes, AddressList) else AddressList(nodes, grows=False),
            settings_of(dialect, spec.operation_timeout_s),
            Rules(
                iterations=spec.client_iterations if of_list else 0,
                attempts=spec.client_attempts,
                interval_s=interval_s or INTERVAL_S,
                jitter_s=None if interval_s else BACKOFF_S,
                reconnect=True,
            ),
            resolve=lambda node: _place(context, zone, node),
            chance=random.Random(seed),
            feed=dialect.feed if spec.client_feed else None,
            headers={} if topics is None or client_id is None else {topics.client: client_id},
            on_up=on_up,
            on_down=on_down,
            on_state=self._record_state if spec.client_states else ignore,
            on_failure=lambda _: spec.client_handler,
            store_session=store_session,
        )
        self.zone = zone
        self._recorder = context.recorder
        self._processes = Processes(context.recorder)
        self._observer = context.recorder.next_process() if spec.client_states else -1

    async def run(self) -> None:
        """Stay connected until ``finish``, or until no broker has accepted it in its iterations."""
        with contextlib.suppress(ConnectError):
            await super().run()

    def _record_state(self, state: State) -> None:
        self._recorder.event(
            self._observer,
            "info",
            "state",
            broker=state.broker or None,
            error=state.reason or None,
            value=state.kind,
        )

    def _named(self, address: str) -> str:
        """Return the node whose address a broker has told: nodes are named by their hosts."""
        return address.partition(":")[0]

    @property
    def away(self) -> bool:
        """False: it leaves only at the end."""
        return False

    async def attempt(self, broker: str) -> Connection:
        """Connect to a broker, and record the attempt. Raises ConnectError.

        Raises InfrastructureError if this machine has run out of something that a connection needs.
        """
        record = self._recorder.event
        process = self._processes.take()
        record(process, "invoke", "connect")
        connection = None
        error = "abandoned"
        try:
            connection = await super().attempt(broker)
        except ConnectError as failure:
            if (spent := exhausted(failure)) is not None:  # says nothing about the broker
                raise InfrastructureError(f"a client could not connect: {spent}") from failure
            error = str(failure)
            raise
        finally:
            if connection is None:
                record(process, "fail", "connect", broker=broker, error=error)
            else:
                connection.number = self._recorder.next_connection()
                record(process, "ok", "connect", broker=connection.broker, connection=connection.number)
            self._processes.give(process, "ok")
        return connection


def settings_of(dialect: Dialect, operation_timeout_s: float) -> Settings:
    """Return the settings of connections to brokers that speak a dialect."""
    common = set(Settings.__struct_fields__) & set(Dialect.__struct_fields__)
    return Settings(
        operation_timeout_s=operation_timeout_s, **{name: getattr(dialect, name) for name in common}
    )


def _place(context: WorkloadContext, zone: str, node: str) -> tuple[str, int]:
    address = context.resolve(zone, node)
    return address.host, address.port
