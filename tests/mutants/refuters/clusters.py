"""The refuters of the rows about clusters of brokers without backups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.changed import Replacement
from mutants.refuters.refuter import FORGETS, Refuter, begins_without, without

_BALANCING: Final = "broker/cluster/balancing.py"
_REDISTRIBUTION: Final = "broker/cluster/redistribution.py"
_CONVENTIONAL: Final = "broker/policies/conventional/policy.py"
_BRIDGE: Final = "broker/cluster/bridge.py"
_REQUESTS: Final = "        reply = await link.call(\n            m.PassRequest("
_ACKNOWLEDGES: Final = "        self._engine.acknowledge(batch)\n"
_LINK: Final = "broker/cluster/link.py"
_TLS: Final = "broker/tls.py"
_SILENT: Final = "        elif now - self.received > self.ttl_s:\n"
_NEXT: Final = "\n    async def _send_body"
_DISCOVERY: Final = "broker/cluster/discovery.py"
_CLOSES: Final = without(
    "a removed entry closes the link with its broker",
    _DISCOVERY,
    "        self._neighbours.give_up(connector)\n\n    def _look",
    "        self._neighbours.forget(connector)\n\n    def _look",
    fails="forgot",
)
_REMOVED_EARLY: Final = (
    _DISCOVERY,
    "        self._timeout_s = timeout_s\n",
    "        self._timeout_s = timeout_s / 8\n",
)
_SHARES: Final = "messages that a1 accepted were delivered by"

_FORGETS: Final = begins_without(
    FORGETS, "broker/policies/solo.py", "            node_id = self._node_id = ", broker="a broker"
)
_NEVER_WARNS: Final = (
    "brokers do not warn of a duplicate node ID",
    "broker/cluster/directory.py",
    "            not both_live\n",
    "            True\n",
)

_DELETES_EARLY: Final = Refuter(
    without="a bridge deletes messages before the other broker has confirmed them",
    fails="found lost",
    changes=(
        Replacement(_BRIDGE, _REQUESTS, _ACKNOWLEDGES + _REQUESTS),
        Replacement(_BRIDGE, _ACKNOWLEDGES + _NEXT, _NEXT),
    ),
)

REFUTERS: Final[Mapping[str, Refuter]] = {
    "CL3": without(
        "brokers do not compare the cluster-user",
        "broker/cluster/link.py",
        "user=self.terms.user",
        'user=""',
        fails="wrong user: who is listed",
    ),
    "CV10": without(
        "links are not encrypted, whatever cluster.ssl-enabled is",
        _TLS,
        "        return cls(section, config, name) if section.ssl_enabled else None\n",
        "        return None\n",
        fails="with cluster.ssl-enabled: what the bytes on the way tell",
    ),
    "CV10-strangers": without(
        "a broker asks for no certificate",
        _TLS,
        "    if server and section.wants_certificates:\n",
        "    if False:\n",
        fails="an expired certificate: who is listed",
    ),
    "CV17": without(
        "a broker with a store in a database begins with an empty store",
        "broker/policies/conventional/database.py",
        "        return inherited.journal, inherited.recovered\n",
        "        return inherited.journal, Recovered([])\n",
        fails="the restarted broker has its messages",
    ),
    "CV17-kill": without(
        "a broker with a store in a database begins with an empty store",
        "broker/policies/conventional/database.py",
        "        return inherited.journal, inherited.recovered\n",
        "        return inherited.journal, Recovered([])\n",
        fails="found lost",
    ),
    "CV17-name": without(
        "a broker does not refuse the store of another broker",
        "broker/policies/conventional/database.py",
        '            if owner not in ("", self._broker):\n',
        "            if False:\n",
        fails="one error line names the store and its broker",
    ),
    "CL4": without(*_NEVER_WARNS, fails="warnings of either broker then"),
    "CL17-data": without(*_NEVER_WARNS, fails='logged "duplicate node ID: " 0 times'),
    "CL17-forwarded": without(
        "each opening of a journal gives out the same ids",
        "broker/policies/journal.py",
        "first_id=opening.getrandbits(ID_BLOCK_BITS - 1)",
        "first_id=0",
        fails="found lost",
    ),
    "CL17-configuration": _FORGETS,
    "CV11-apart": without(
        "brokers do not compare what their clusters have in common",
        "broker/cluster/neighbours.py",
        "            if expected.get(name) != shared.get(name):\n",
        "            if False:\n",
        fails="messages were delivered by another broker",
    ),
    "CV11-together": without(
        "a broker keeps each message, whatever message-load-balancing is",
        _BALANCING,
        '        if self._mode == "OFF":\n',
        "        if True:\n",
        fails="0 messages were delivered by another broker",
    ),
    "CL5-all": without(
        "round robin stays with the first broker",
        _BALANCING,
        "candidates[tried % len(candidates)]",
        "candidates[0]",
        fails=_SHARES,
    ),
    "CL5-two": without(
        "messages go to brokers without consumers, too",
        _BALANCING,
        "elif strict or self._remote.get(name, {}).get(queue, 0):",
        "else:",
        fails=_SHARES,
    ),
    "CL5-off": without(
        "OFF forwards messages as ON_DEMAND does",
        _BALANCING,
        '        if self._mode == "OFF":\n',
        "        if False:\n",
        fails=_SHARES,
    ),
    "CL5-strict": without(
        "STRICT asks for consumers as ON_DEMAND does",
        _BALANCING,
        '        strict = self._mode == "STRICT"\n',
        "        strict = False\n",
        fails="none of stuck",
    ),
    "CL6-moved": without(
        "messages stay where they wait, whoever has consumers",
        _REDISTRIBUTION,
        "            self._begin(name, demand, has_messages=len(queue) > 0)\n",
        "            pass\n",
        fails="found stuck",
    ),
    "CL6-off": without(
        "redistribution-delay -1 is taken for 0",
        _REDISTRIBUTION,
        "redistribution_delay >= 0",
        "redistribution_delay >= -1",
        fails="none of stuck",
    ),
    "CL7-filters": without(
        "a consumer here does not prevent that messages move to another broker",
        _REDISTRIBUTION,
        " and not queue.client_consumers()",
        "",
        fails="none of stuck",
    ),
    "CL16-groups": without(
        "messages of groups move, too",
        "broker/core/queue.py",
        "        if self._redistributors:  # then nobody else consumes\n",
        "        if False:\n",
        fails="messages were delivered by another broker",
    ),
    "CL21": without(
        "messages go to any broker with consumers, whatever these want",
        _BALANCING,
        "            if selectors and not self._matches(message, selectors):\n",
        "            if False:\n",
        fails=_SHARES,
    ),
    "CL1-symmetric": _DELETES_EARLY,
    "CL1-chain": _DELETES_EARLY,
    "CL1-chain-killed": without(
        "a broker answers before it has stored the messages that it is to pass on",
        "broker/cluster/arrivals.py",
        "engine.accept_forwarded(request.sender, messages, durable, passing)\n",
        "engine.accept_forwarded(request.sender, messages, None, passing)\n        durable()\n",
        fails="found lost",
    ),
    "CL1-chain-hops": without(
        "a max-hops of 1 is taken for 3",
        "broker/cluster/routes.py",
        "        self._hops_max = membership.section.max_hops\n",
        "        self._hops_max = 3\n",
        fails="none of stuck",
    ),
    "CL1-views": without(
        "a broker keeps a link over which it hears nothing",
        _LINK,
        _SILENT,
        "        elif False:\n",
        fails="a1 knew b1 all the time after partition-1",
    ),
    "CL1-views-short": without(
        "a broker closes a link over which it hears nothing for a quarter of connection-ttl",
        _LINK,
        _SILENT,
        "        elif now - self.received > self.ttl_s / 4:\n",
        fails="a1 forgot b1 meanwhile",
    ),
    "CL2-udp": without(
        "a broker takes no new broker for an entry later than three seconds after its start",
        _DISCOVERY,
        "        if len(self._entries) >= ENTRIES_MAX:\n",
        "        if asyncio.get_running_loop().time() > self._started_s + 3:\n",
        fails="did not know",
    ),
    "CL2-file": Refuter(
        without="a broker takes a file for a sign of life that has not changed",
        fails="a1 knew b1 all the time after kill-2",
        changes=(
            Replacement("broker/cluster/file_ping.py", " if content != former.get(name) else None", ""),
            Replacement(
                _DISCOVERY,
                "        if (last.start, last.number) < (broadcast.start, broadcast.number):\n",
                "        if True:\n",
            ),
        ),
    ),
    "CL2-file-short": without(
        "an entry is removed after an eighth of refresh-timeout", *_REMOVED_EARLY, fails="forgot"
    ),
    "CL2-lost": _CLOSES,
    "CL2-lost-short": without(
        "an entry is removed after an eighth of refresh-timeout", *_REMOVED_EARLY, fails="forgot"
    ),
    "CL2-static": without(
        "a broker gives up a static connector after five attempts",
        "broker/cluster/peer.py",
        "limit = section.initial_connect_attempts if self._never_linked",
        "limit = 5 if self._never_linked",
        fails="did not know",
    ),
    "CL18-flaps": _CLOSES,
    "CL18-steady": without(
        "an entry is removed after an eighth of refresh-timeout", *_REMOVED_EARLY, fails="forgot"
    ),
    "CL12-grow": without(
        "a broker that links with another one tells nothing of the consumers that it has",
        _BALANCING,
        "            self._greeted.append(link)\n            link.send(self._all_consumers())\n",
        "            self._greeted.append(link)\n",
        fails="0 messages were delivered by another broker meanwhile",
    ),
    "CL12-off": without(
        "OFF forwards messages as ON_DEMAND does",
        _BALANCING,
        '        if self._mode == "OFF":\n',
        "        if False:\n",
        fails="messages were delivered by another broker",
    ),
    "CV6-none": without(
        "a broker is suspended until it is linked with both others",
        "broker/policies/solo.py",
        "        await live.open()\n",
        '        self.become("suspended")\n'
        "        while len([*self.membership.neighbours.linked()]) < 2:\n"
        "            await asyncio.sleep(0.1)\n"
        "        await live.open()\n",
        fails="answers and deliveries meanwhile",
    ),
    "CV6-suspended": without(
        "no broker is ever suspended",
        _CONVENTIONAL,
        "return not isinstance(self._changes, ChangeMember) or",
        "return True or",
        fails="b1 suspended after start",
    ),
    "CL1-off": without(
        "OFF forwards messages as ON_DEMAND does",
        _BALANCING,
        '        if self._mode == "OFF":\n',
        "        if False:\n",
        fails="messages were delivered by another broker",
    ),
}
