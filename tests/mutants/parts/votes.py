"""Bugs of the quorum votes: who may be live."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Mutant
from mutants.parts.arenas import VOTES

_QUORUM: Final = "broker/cluster/quorum.py"
_TWO_LIVES: Final = frozenset({"split-brain", "lost"})

MUTANTS: Final = (
    Mutant(
        "one-pair-needs-no-vote",
        "vote",
        "Artemis: one pair needing no vote; ARTEMIS-1154",
        "the votes needed are counted from the pairs in reach: whoever is cut off is a cluster of one "
        "pair and needs none",
        _TWO_LIVES,
        VOTES,
        (
            Replacement(
                "broker/cluster/directory.py",
                "self.live_nodes_seen = max(self.live_nodes_seen, len(nodes))",
                "self.live_nodes_seen = len(nodes)",
            ),
        ),
    ),
    Mutant(
        "stale-topology-votes",
        "vote",
        "Artemis: a voter answering from a stale topology",
        "a voter that does not answer but is still in the topology counts as if it had agreed",
        _TWO_LIVES,
        VOTES,
        (
            Replacement(
                _QUORUM,
                "        except (LinkError, TimeoutError) as error:\n            count.refused[voter] = "
                'str(error) or "no answer in time"\n',
                "        except (LinkError, TimeoutError):\n            count.granted[voter] = None\n",
            ),
        ),
    ),
    Mutant(
        "health-check-overrides-the-vote",
        "vote",
        "Artemis: a health check that overrides the vote; ARTEMIS-1154",
        "a backup that lost its vote takes over all the same when its live does not answer a probe",
        _TWO_LIVES,
        VOTES,
        (
            Replacement(
                "broker/policies/replication/backup.py",
                "            section.vote_retries + 1,\n        )\n        return False\n",
                "            section.vote_retries + 1,\n        )\n"
                "        return await probe(membership, self._seams, live.connector) is None\n",
            ),
        ),
    ),
    Mutant(
        "voter-grants-twice",
        "vote",
        "own",
        "a voter agrees with both parties of one interruption",
        _TWO_LIVES,
        VOTES,
        (
            Replacement(
                _QUORUM,
                "        if grant.claimant is not None and grant.claimant != claimant:\n"
                '            return False, f"already granted to {grant.claimant}", None\n',
                "",
            ),
        ),
    ),
    Mutant(
        "refusal-counts-as-a-vote",
        "vote",
        "ARTEMIS-2702",
        "answers that refuse are counted towards the total",
        _TWO_LIVES,
        VOTES,
        (
            Replacement(
                _QUORUM,
                "        if reply.granted:\n            self.granted[voter] = None\n",
                "        if reply.granted or reply.reason:\n            self.granted[voter] = None\n",
            ),
        ),
    ),
    Mutant(
        "withdrawal-frees-the-others-vote",
        "vote",
        "own",
        "a claimant that gives up a failed round frees what the voter had granted to the other claimant",
        _TWO_LIVES,
        VOTES,
        (
            Replacement(
                _QUORUM,
                "        if grant.claimant == claimant and grant.round <= round_:\n            "
                "grant.claimant = None\n",
                "        grant.claimant = None\n",
            ),
        ),
    ),
    Mutant(
        "live-ignores-its-vote",
        "vote",
        "ARTEMIS-2702",
        "a live asks for votes and goes on whatever the answer",
        _TWO_LIVES,
        VOTES,
        (
            Replacement(
                "broker/policies/replication/live.py",
                "if section.vote_on_replication_failure and not await vote.passes():",
                "if section.vote_on_replication_failure and await vote.passes() is None:",
            ),
        ),
    ),
)
