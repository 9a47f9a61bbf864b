"""For each family of anomalies.

The right steps in the right order, the witness among them, and the paragraph word for word.
"""

import dataclasses
import json
from dataclasses import dataclass

import msgspec
import pytest
from scene import NODE, Scene, steps
from scenes import SCENES

from checkers.anomaly import ANOMALIES
from checkers.schema import NEMESIS
from harness.report.narrative import cluster_state, paragraphs, story
from harness.report.narrative.sentences import phrase, thing


@dataclass(frozen=True)
class Told:
    """What is expected of a scene: seconds and labels, a star before the witness.

    And the sentences.
    """

    steps: list[str]
    words: list[str]


IN_PART = (
    "Everything that is requested in a transaction must happen, or nothing, whatever the answer to its "
    "commit."
)

EXPECTED = {
    "lost_with_its_consumer": Told(
        steps=[
            "*1.00 send p1#2",
            "*1.10 deliver p1#2",
            "*2.00 session ends",
            " 8.00 heal",
            "*9.00 browse",
            "*9.00 looked into",
            "*9.00 end",
        ],
        words=[
            (
                "Producer 1 sent p1#2 (message 2, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "a1 delivered p1#2 to session 1 at 1.100 s.",
            "Session 1 ended at 2.000 s (broker silent).",
            (
                "No consumer got p1#2 after that, and when the queues had been drained no store of any "
                "broker held it (they were read from 9.000 s on)."
            ),
            (
                "A message whose send was acknowledged must be delivered until it is acknowledged, or be in "
                "a store when everything has been healed and drained."
            ),
        ],
    ),
    "resurrected": Told(
        steps=[
            " 1.00 send p1#2",
            " 1.10 deliver p1#2",
            "*1.20 ack p1#2",
            "*9.10 has p1#2",
        ],
        words=[
            (
                "Producer 1 sent p1#2 (message 2, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "Session 1 acknowledged it, and a1 confirmed that at 1.210 s.",
            "Nevertheless a1 had p1#2 in its main store at 9.100 s.",
            (
                "A message whose acknowledgement was confirmed, or whose temporary queue has ended, must "
                "not be in any store, and no message in more than one store. A message of a queue that was "
                "deleted must not come back."
            ),
        ],
    ),
    "of a deleted queue": Told(
        steps=[
            "*1.00 send p1#2",
            " 1.50 kill of a1",
            " 1.60 stopped",
            "*2.00 delete q",
            " 2.50 create q",
            " 3.00 live",
            " 3.10 kill of a1 healed",
            "*4.00 subscribe q",
            "*4.10 deliver p1#2",
        ],
        words=[
            (
                "Producer 1 sent p1#2 (message 2, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "The deletion of queue q was requested at 2.000 s; b1 confirmed that at 2.010 s.",
            "After that: a1 was seen live at 3.000 s and kill of a1 was healed at 3.100 s.",
            "Session 1 began at 4.000 s.",
            "Nevertheless a1 (live since 3.000 s, in its 2nd life) delivered p1#2 to session 1 at 4.100 s.",
            (
                "A message whose acknowledgement was confirmed, or whose temporary queue has ended, must "
                "not be in any store, and no message in more than one store. A message of a queue that was "
                "deleted must not come back."
            ),
        ],
    ),
    "lost after a deletion": Told(
        steps=[
            " 1.00 delete q",
            "*2.00 send p1#2",
            "*9.00 browse",
            "*9.00 looked into",
            "*9.00 end",
        ],
        words=[
            (
                "Producer 1 sent p1#2 (message 2, queue q, group g) at 2.000 s; a1 (live since before the "
                "load) acknowledged it at 2.010 s."
            ),
            "Before that, a1 had confirmed a deletion of the queue at 1.010 s.",
            (
                "No consumer ever got p1#2, and when the queues had been drained no store of any broker "
                "held it (they were read from 9.000 s on)."
            ),
            (
                "A message whose send was acknowledged must be delivered until it is acknowledged, or be in "
                "a store when everything has been healed and drained."
            ),
        ],
    ),
    "copied": Told(
        steps=[
            " 1.00 send p1#2",
            "*9.10 has p1#2",
            "*9.10 looked into",
            "*9.10 has p1#2",
            "*9.10 looked into",
            "*9.60 has p1#2",
            "*9.60 looked into",
            "*9.60 has p1#2",
            "*9.60 looked into",
        ],
        words=[
            (
                "Producer 1 sent p1#2 (message 2, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            (
                "Copies of it were in the main stores of b1 at 9.100 s and c1 at 9.100 s and b1 at 9.600 "
                "s and c1 at 9.600 s: more than one copy each time the stores were read."
            ),
            (
                "A message whose acknowledgement was confirmed, or whose temporary queue has ended, must "
                "not be in any store, and no message in more than one store. A message of a queue that was "
                "deleted must not come back."
            ),
        ],
    ),
    "uncommitted": Told(
        steps=[
            " 1.00 begin t7",
            "*1.10 send p1#4",
            "*1.20 deliver p1#4",
            " 1.30 commit t7",
        ],
        words=[
            "Producer 1 began transaction 7 at 1.000 s with a1 (live since before the load).",
            "It sent p1#4 (message 4) to q.",
            "Its commit was requested at 1.300 s, and a1 answered ok at 1.310 s.",
            "But a1 delivered p1#4 to session 1 at 1.200 s, 0.100 s before the commit was requested.",
            "A message that is sent in a transaction may not be delivered before the commit is requested.",
        ],
    ),
    "not selected": Told(
        steps=[
            "*0.90 subscribe q",
            "*1.00 send p1#4",
            "*1.10 deliver p1#4",
        ],
        words=[
            (
                "Producer 1 sent p1#4 (message 4, queue q, group g) at 1.000 s; a1 (live since before "
                "the load) acknowledged it at 1.010 s."
            ),
            "Nevertheless a1 delivered p1#4 to session 1 at 1.100 s.",
            "Session 1 selects only colour = red, and p1#4 has no such property.",
            (
                "A subscription must get no message that was sent before it existed. A consumer must get "
                "no message that its selector does not match, and none from the temporary queue of "
                "another connection."
            ),
        ],
    ),
    "lost of a subscription": Told(
        steps=[
            "*0.10 subscribe alice",
            " 0.10 subscribe bob",
            " 0.50 session ends",
            "*1.00 send p1#4",
            " 1.10 deliver p1#4",
            " 2.00 kill of a1",
            " 2.10 stopped",
            " 2.30 live",
            " 2.50 subscribe alice",
            "*9.00 browse",
            "*9.00 looked into",
            "*9.00 end",
        ],
        words=[
            "Subscription alice of topic news was made at 0.100 s.",
            (
                "Producer 1 sent p1#4 (message 4, topic news, group g) at 1.000 s; a1 (live since before "
                "the load) acknowledged it at 1.010 s."
            ),
            (
                "After that: kill of a1 began at 2.000 s, a1 was seen stopped at 2.100 s and a2 was seen "
                "live at 2.300 s."
            ),
            "Subscription bob of the same topic got it: a1 delivered p1#4 to session 2 at 1.100 s.",
            (
                "No consumer of subscription alice ever got p1#4, and when the queues had been drained "
                "no store of any broker held it (they were read from 9.000 s on)."
            ),
            (
                "A message whose send was acknowledged must be delivered until it is acknowledged, or be "
                "in a store when everything has been healed and drained."
            ),
        ],
    ),
    "sent before it": Told(
        steps=[
            " 0.10 subscribe alice",
            "*1.00 send p1#4",
            " 1.20 drop alice",
            "*2.00 subscribe alice",
            "*2.10 deliver p1#4",
        ],
        words=[
            (
                "Subscription alice of topic news, which selects only colour = red or blue, was made at "
                "0.100 s, dropped at 1.210 s and made again at 2.000 s."
            ),
            (
                "Producer 1 sent p1#4 (message 4, topic news, group g) at 1.000 s; a1 (live since before "
                "the load) acknowledged it at 1.010 s."
            ),
            "Nevertheless a1 delivered p1#4 to session 2 at 2.100 s.",
            "It had certainly been sent before that subscription existed.",
            (
                "A subscription must get no message that was sent before it existed. A consumer must get "
                "no message that its selector does not match, and none from the temporary queue of "
                "another connection."
            ),
        ],
    ),
    "never ended": Told(
        steps=[
            " 1.20 begin t7",
            " 1.30 ack p1#3",
            "*1.31 send p1#4",
            " 1.60 session ends",
            "*2.00 deliver p1#4",
        ],
        words=[
            "Session 1 began transaction 7 at 1.200 s with a1 (live since before the load).",
            "It acknowledged p1#3 from q and sent p1#4 (message 4) to q.",
            "It was never ended: its connection was lost at 1.600 s (client went away).",
            "Nevertheless a1 delivered p1#4 to session 2 at 2.000 s.",
            "A message that is sent in a transaction may not be delivered before the commit is requested.",
        ],
    ),
    "torn": Told(
        steps=[
            " 1.00 send p1#3",
            "*1.10 deliver p1#3",
            " 1.20 begin t7",
            "*1.30 ack p1#3",
            "*1.40 send p1#4",
            "*1.50 commit t7",
            "*9.00 browse",
            "*9.00 looked into",
            "*9.00 end",
        ],
        words=[
            "Session 1 began transaction 7 at 1.200 s with a1 (live since before the load).",
            "It acknowledged p1#3 from q and sent p1#4 (message 4) to q.",
            "Its commit was requested at 1.500 s, and a1 answered ok at 1.510 s.",
            (
                "Part of it happened: acknowledging p1#3 (it was not delivered again, and no store had it in "
                "the end)."
            ),
            (
                "Part of it did not happen: sending p1#4 (it was never delivered, and no store had it in the "
                "end)."
            ),
            IN_PART,
        ],
    ),
    "half committed": Told(
        steps=[
            " 1.00 send p1#3",
            "*1.10 deliver p1#3",
            " 1.20 begin t7",
            "*1.30 ack p1#3",
            "*1.40 send p1#4",
            " 1.50 commit t7",
            "*1.60 subscribe q",
            "*1.70 deliver p1#3",
            "*1.80 deliver p1#4",
        ],
        words=[
            "Session 1 began transaction 7 at 1.200 s with a1 (live since before the load).",
            "It acknowledged p1#3 (message 3) from q and sent p1#4 to q.",
            "Its commit was requested at 1.500 s, and a1 answered ok at 1.510 s.",
            "Part of it happened: sending p1#4 (a1 delivered p1#4 to session 2 at 1.800 s).",
            (
                "Part of it did not happen: acknowledging p1#3 (a1 delivered p1#3 to session 2 at 1.700 "
                "s (not marked redelivered))."
            ),
            IN_PART,
        ],
    ),
    "expired": Told(
        steps=[
            "*1.00 send p1#4",
            "*2.00 subscribe q",
            "*2.10 deliver p1#4",
        ],
        words=[
            (
                "Producer 1 sent p1#4 (message 4, queue q, group g) at 1.000 s; a1 (live since before "
                "the load) acknowledged it at 1.010 s."
            ),
            "By 1.600 s it had certainly expired.",
            "Nevertheless a1 delivered p1#4 to session 1 at 2.100 s, 0.500 s later.",
            "An expired message must not be delivered.",
        ],
    ),
    "inverted": Told(
        steps=[
            "*1.00 send p1#4",
            "*1.10 send p1#6",
            "*2.00 subscribe q",
            "*2.10 deliver p1#4",
            "*2.20 deliver p1#6",
        ],
        words=[
            "priority-inversion was found.",
            (
                "Producer 1 sent p1#4 (message 4, queue q) at 1.000 s; a1 (live since before the load) "
                "acknowledged it at 1.010 s."
            ),
            "Producer 1 sent p1#6 (message 6, queue q) at 1.100 s; a1 acknowledged it at 1.110 s.",
            "a1 delivered p1#4 to session 1 at 2.100 s.",
            "a1 delivered p1#6 to session 1 at 2.200 s.",
            (
                "Of the messages that wait in a queue, the one with the highest priority must be "
                "delivered first, as far as a broker can tell."
            ),
        ],
    ),
    "early": Told(
        steps=[
            "*1.00 send p1#4",
            "*1.10 deliver p1#4",
        ],
        words=[
            (
                "Producer 1 sent p1#4 (message 4, queue q, group g) at 1.000 s; a1 (live since before "
                "the load) acknowledged it at 1.010 s."
            ),
            "It was not to be delivered before 1.500 s.",
            "Nevertheless a1 delivered p1#4 to session 1 at 1.100 s, 0.400 s too early.",
            "A delayed message must not be delivered before its time.",
        ],
    ),
    "died early": Told(
        steps=[
            "*1.00 send p1#4",
            " 1.10 deliver p1#4",
            "*9.00 has p1#4",
        ],
        words=[
            (
                "Producer 1 sent p1#4 (message 4, queue q, group g) at 1.000 s; a1 (live since before "
                "the load) acknowledged it at 1.010 s."
            ),
            "a1 delivered p1#4 to session 1 at 1.100 s.",
            "Session 1 ended at 2.000 s (broker silent).",
            "It had not been refused.",
            "Nevertheless a1 had p1#4 in its dead-letter store at 9.000 s.",
            (
                "A message may become a dead letter only when it has been refused as often as is "
                "configured, or has expired."
            ),
        ],
    ),
    "money gone": Told(
        steps=[
            "*1.00 send p1#3",
            "*1.10 deliver p1#3",
            " 1.20 begin t7",
            "*1.30 ack p1#3",
            "*1.40 send p1#4",
            "*1.50 commit t7",
            "*9.00 browse",
            "*9.00 looked into",
            "*9.00 end",
        ],
        words=[
            (
                "The accounts were given 1,200 in all; when the queues had been drained and the stores "
                "read, they held 1,130: 70 are missing."
            ),
            "Session 1 began transaction 7 at 1.200 s with a1 (live since before the load).",
            "It acknowledged p1#3 (message 3, account a7: 70) from q and sent p1#4 (account a7: 70) to q.",
            "Its commit was requested at 1.500 s, and no answer had come by 2.000 s.",
            "In the end neither the drain nor a store had p1#3, nor what was sent in its place.",
            (
                "Money is moved between accounts in transactions: whatever becomes of these, in the end "
                "there must be as much as was put in."
            ),
        ],
    ),
    "too_late": Told(
        steps=[
            " 1.00 send p1#4",
            "*2.00 session ends",
            "*2.10 deliver p1#4",
        ],
        words=[
            "Session 1 ended at 2.000 s (disconnected).",
            "Nevertheless a1 (live since before the load) delivered p1#4 to session 1 at 2.100 s.",
            "Nothing may be delivered to a session whose end was confirmed.",
        ],
    ),
    "count_fell": Told(
        steps=[
            " 1.00 send p1#4",
            "*1.10 deliver p1#4",
            " 2.00 session ends",
            "*2.10 subscribe q",
            "*2.20 deliver p1#4",
        ],
        words=[
            (
                "Producer 1 sent p1#4 (message 4, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "a1 delivered p1#4 to session 1 at 1.100 s (marked redelivered, delivery count 3).",
            "Session 1 ended at 2.000 s (broker silent).",
            (
                "Then a1 delivered p1#4 to session 2 at 2.200 s (marked redelivered, delivery count 2), "
                "1.100 s after that delivery."
            ),
            "A delivery that is certainly later must not have a lower delivery count.",
        ],
    ),
    "count_stuck": Told(
        steps=[
            " 1.00 send p1#4",
            "*1.10 deliver p1#4",
            "*2.00 session ends",
            "*2.10 subscribe q",
            "*2.20 deliver p1#4",
        ],
        words=[
            (
                "Producer 1 sent p1#4 (message 4, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "a1 delivered p1#4 to session 1 at 1.100 s (marked redelivered, delivery count 2).",
            "Session 1 ended at 2.000 s (broker silent).",
            (
                "Then a1 delivered p1#4 to session 2 at 2.200 s (marked redelivered, delivery count 2), "
                "1.100 s after that delivery."
            ),
            (
                "A broker that counts deliveries must give each a higher count than an earlier one that "
                "was given back."
            ),
        ],
    ),
    "lost": Told(
        steps=[
            " 1.70 send p1#1",
            " 1.80 deliver p1#1",
            " 1.85 no backup",
            "*1.90 send p1#2",
            " 2.00 partition isolate-live of a1",
            " 2.60 voting",
            " 3.00 live",
            " 4.00 send p1#3",
            " 4.10 deliver p1#3",
            " 5.00 partition isolate-live of a1 healed",
            " 5.50 stopped",
            " 8.00 heal",
            "*9.00 browse",
            "*9.00 looked into",
            "*9.00 end",
        ],
        words=[
            (
                "Producer 1 sent p1#2 (message 2, queue q, group g) at 1.900 s; a1 (live since before the "
                "load) acknowledged it at 1.910 s."
            ),
            (
                "a1 had no up-to-date backup then (since 1.850 s): messages that it acknowledged were stored "
                "nowhere else."
            ),
            (
                "After that: partition isolate-live of a1 began at 2.000 s, a2 was seen voting at 2.600 s, "
                "a2 was seen live at 3.000 s, partition isolate-live of a1 was healed at 5.000 s and a1 was "
                "seen stopped at 5.500 s."
            ),
            (
                "The producer's message before it in the group arrived: a1 delivered p1#1 to session 1 "
                "at 1.800 s."
            ),
            (
                "The producer's message after it in the group arrived: a2 (live since 3.000 s) delivered "
                "p1#3 to session 2 at 4.100 s."
            ),
            (
                "No consumer ever got p1#2, and when the queues had been drained no store of any broker "
                "held it (they were read from 9.000 s on)."
            ),
            (
                "A message whose send was acknowledged must be delivered until it is acknowledged, or be in "
                "a store when everything has been healed and drained."
            ),
        ],
    ),
    "stuck": Told(
        steps=[
            "*1.00 send p1#2",
            " 8.00 heal",
            "*9.00 browse",
            "*9.10 has p1#2",
            "*9.20 end",
        ],
        words=[
            (
                "Producer 1 sent p1#2 (message 2, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "No consumer ever got p1#2; a1 still held it in its main store at 9.100 s.",
            (
                "A message whose send was acknowledged must come to a consumer that acknowledges it once "
                "everything has been healed and drained."
            ),
        ],
    ),
    "phantom": Told(
        steps=[
            "*1.00 deliver p1#9",
        ],
        words=[
            "a1 (live since before the load) delivered p1#9 to session 1 at 1.000 s.",
            "No producer had ever begun to send p1#9 (message 9, queue q, group g).",
            (
                "No message may be delivered, stored or acknowledged that was never sent, and no session "
                "may settle a message that it never got."
            ),
        ],
    ),
    "corrupted": Told(
        steps=[
            "*1.00 send p1#4",
            "*1.10 deliver p1#4",
        ],
        words=[
            (
                "Producer 1 sent p1#4 (message 4, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "a1 delivered p1#4 to session 1 at 1.100 s.",
            "The checksum of its body was 00000007 when it was sent and 0000000a when it arrived.",
            "What is delivered or stored must be what was sent, in the queue and group to which it was sent.",
        ],
    ),
    "unreadable": Told(
        steps=[
            "*1.20 deliver a body that cannot be read",
        ],
        words=[
            "a1 (live since before the load) delivered a body that cannot be read to session 1 at 1.200 s.",
            "It is not known which message it was (no digest).",
            "What is delivered or stored must be what was sent, in the queue and group to which it was sent.",
        ],
    ),
    "aborted": Told(
        steps=[
            " 1.00 begin t7",
            "*1.10 send p1#4",
            "*1.20 abort t7",
            "*2.00 deliver p1#4",
        ],
        words=[
            "Producer 1 began transaction 7 at 1.000 s with a1 (live since before the load).",
            "It sent p1#4 (message 4) to q.",
            "Its roll-back was requested at 1.200 s, and a1 answered ok at 1.210 s.",
            "Nevertheless a1 delivered p1#4 to session 1 at 2.000 s.",
            (
                "A send that failed for certain, or that was rolled back, must never be delivered, nor "
                "be in a store."
            ),
        ],
    ),
    "refused": Told(
        steps=[
            " 0.90 pause of a1",
            "*1.00 send p1#4",
            " 1.60 pause of a1 healed",
            "*2.00 deliver p1#4",
        ],
        words=[
            (
                "Producer 1 sent p1#4 (message 4, queue q, group g) at 1.000 s; the send failed for certain "
                "at 1.500 s (broker silent), while pause of a1 (0.900 s to 1.600 s) was in force."
            ),
            "In between: pause of a1 was healed at 1.600 s.",
            "Nevertheless a1 (live since before the load) delivered p1#4 to session 1 at 2.000 s.",
            (
                "A send that failed for certain, or that was rolled back, must never be delivered, nor be "
                "in a store."
            ),
        ],
    ),
    "duplicate": Told(
        steps=[
            " 1.80 send p1#3",
            "*1.90 deliver p1#3",
            " 2.00 partition isolate-live of a1",
            "*2.10 ack p1#3",
            " 2.50 session ends",
            " 2.60 voting",
            " 3.00 live",
            " 3.10 subscribe q",
            "*3.20 deliver p1#3",
            " 3.30 ack p1#3",
        ],
        words=[
            (
                "Producer 1 sent p1#3 (message 3, queue q, group g) at 1.800 s; a1 (live since before the "
                "load) acknowledged it at 1.810 s."
            ),
            "a1 delivered p1#3 to session 1 at 1.900 s.",
            (
                "Session 1 acknowledged it, and a1 confirmed that at 2.110 s, while partition isolate-live "
                "of a1 (2.000 s to the end) was in force."
            ),
            "Session 1 ended at 2.500 s (broker silent).",
            (
                "In between: partition isolate-live of a1 began at 2.000 s, a2 was seen voting at 2.600 s "
                "and a2 was seen live at 3.000 s."
            ),
            (
                "Then a2 (live since 3.000 s) delivered p1#3 to session 2 at 3.200 s (marked redelivered, "
                "delivery count 2), 1.090 s after the acknowledgement was confirmed."
            ),
            (
                "A message whose acknowledgement was confirmed, or that was refused so often that it is "
                "dead, must never be delivered again, nor may one session get it twice without giving it "
                "back."
            ),
        ],
    ),
    "twice_in_one_session": Told(
        steps=[
            " 1.00 send p1#3",
            " 1.20 send p1#3",
            "*1.30 deliver p1#3",
            "*1.50 deliver p1#3",
        ],
        words=[
            (
                "Producer 1 sent p1#3 (message 3, queue q, group g) at 1.000 s; the outcome of the send "
                "was unknown at 1.010 s (connection lost); sent again, a1 (live since before the load) "
                "acknowledged it at 1.210 s."
            ),
            "a1 delivered p1#3 to session 1 at 1.300 s.",
            (
                "Then a1 delivered p1#3 to session 1 at 1.500 s (not marked redelivered), 0.200 s after "
                "that delivery."
            ),
            "Session 1 had not given it back in between.",
            (
                "A message whose acknowledgement was confirmed, or that was refused so often that it is "
                "dead, must never be delivered again, nor may one session get it twice without giving it "
                "back."
            ),
        ],
    ),
    "unflagged": Told(
        steps=[
            " 1.00 send p1#3",
            "*1.10 deliver p1#3",
            " 1.50 session ends",
            "*1.60 deliver p1#3",
        ],
        words=[
            (
                "Producer 1 sent p1#3 (message 3, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "a1 delivered p1#3 to session 1 at 1.100 s.",
            "Session 1 ended at 1.500 s (consumer left).",
            (
                "Then a1 delivered p1#3 to session 2 at 1.600 s (not marked redelivered), 0.500 s after "
                "that delivery."
            ),
            "A broker that delivers a message again must mark it as redelivered.",
        ],
    ),
    "redelivery": Told(
        steps=[
            " 1.00 send p1#3",
            "*1.10 deliver p1#3",
            " 1.50 session ends",
            "*1.60 deliver p1#3",
        ],
        words=[
            (
                "Producer 1 sent p1#3 (message 3, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "a1 delivered p1#3 to session 1 at 1.100 s.",
            "Session 1 ended at 1.500 s (broker silent).",
            (
                "Then a1 delivered p1#3 to session 2 at 1.600 s (marked redelivered, delivery count 2), "
                "0.500 s after that delivery."
            ),
            "The guarantee allows one delivery of each message.",
        ],
    ),
    "double": Told(
        steps=[
            " 0.50 subscribe q",
            " 1.00 send p1#3",
            "*1.10 deliver p1#3",
            "*1.20 subscribe q",
            "*1.30 deliver p1#3",
            "*1.40 ack p1#3",
            " 1.50 ack p1#3",
        ],
        words=[
            (
                "Producer 1 sent p1#3 (message 3, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "a1 delivered p1#3 to session 1 at 1.100 s.",
            "Then a1 delivered p1#3 to session 2 at 1.300 s (marked redelivered, delivery count 2).",
            "Session 1 still held p1#3: a1 answered that session at 1.410 s.",
            "A message may be in the hands of one session at a time.",
        ],
    ),
    "split_group": Told(
        steps=[
            " 2.00 partition isolate-live of a1",
            " 2.60 voting",
            " 3.00 live",
            " 4.00 send p1#1",
            "*4.10 deliver p1#1",
            "*4.20 send p2#5",
            "*4.30 deliver p2#5",
            "*4.40 ack p1#1",
            " 4.50 ack p2#5",
        ],
        words=[
            (
                "Producer 1 sent p1#1 (message 1, queue q, group g) at 4.000 s; a2 (live since 3.000 s) "
                "acknowledged it at 4.010 s, while partition isolate-live of a1 (2.000 s to the end) was in "
                "force."
            ),
            (
                "Producer 2 sent p2#5 (message 5, queue q, group g) at 4.200 s; a1 (live since before the "
                "load, replaced by a2 at 3.000 s) acknowledged it at 4.210 s, with partition isolate-live "
                "of a1 still in force."
            ),
            (
                "Before that: partition isolate-live of a1 began at 2.000 s, a2 was seen voting at 2.600 "
                "s and a2 was seen live at 3.000 s."
            ),
            "a2 delivered p1#1 to session 2 at 4.100 s.",
            (
                "Then a1 delivered p2#5 to session 1 at 4.300 s, with partition isolate-live of a1 still in "
                "force."
            ),
            "Session 2 still held p1#1: a2 answered that session at 4.410 s.",
            "All messages of a group belong to one session at a time.",
        ],
    ),
    "reordered": Told(
        steps=[
            "*1.00 send p1#1",
            "*1.10 send p1#2",
            "*1.20 deliver p1#2",
            "*1.30 deliver p1#1",
        ],
        words=[
            (
                "Producer 1 sent p1#1 (message 1, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "Producer 1 sent p1#2 at 1.100 s; a1 acknowledged it at 1.110 s.",
            "a1 delivered p1#2 to session 1 at 1.200 s.",
            "After that, a1 delivered p1#1 to session 1 at 1.300 s.",
            "The messages of one producer in one group must arrive in the order in which they were sent.",
        ],
    ),
    "realtime": Told(
        steps=[
            " 2.00 partition isolate-live of a1",
            " 2.60 voting",
            " 3.00 live",
            "*4.00 send p1#1",
            "*4.10 send p2#2",
            "*4.20 deliver p2#2",
            " 4.30 partition isolate-live of a1 healed",
            "*4.40 deliver p1#1",
        ],
        words=[
            (
                "Producer 1 sent p1#1 (message 1, queue q, group g) at 4.000 s; a2 (live since 3.000 s) "
                "acknowledged it at 4.010 s, while partition isolate-live of a1 (2.000 s to 4.300 s) was in "
                "force."
            ),
            (
                "Producer 2 sent p2#2 at 4.100 s; a1 (live since before the load, replaced by a2 at 3.000 "
                "s) acknowledged it at 4.110 s, with partition isolate-live of a1 still in force."
            ),
            "a1 delivered p2#2 to session 1 at 4.200 s.",
            "In between: partition isolate-live of a1 was healed at 4.300 s.",
            "After that, a2 delivered p1#1 to session 2 at 4.400 s.",
            (
                "A message whose send was certainly complete before the send of another one in its group "
                "began must be delivered before that one."
            ),
        ],
    ),
    "overtaken": Told(
        steps=[
            " 2.00 partition isolate-live of a1",
            " 2.60 voting",
            " 3.00 live",
            "*4.00 send p1#1",
            "*4.10 send p2#2",
            "*4.20 deliver p2#2",
        ],
        words=[
            (
                "Producer 1 sent p1#1 (message 1, queue q, group g) at 4.000 s; a2 (live since 3.000 s) "
                "acknowledged it at 4.010 s, while partition isolate-live of a1 (2.000 s to 4.300 s) was "
                "in force."
            ),
            (
                "Producer 2 sent p2#2 at 4.100 s; a1 (live since before the load, replaced by a2 at "
                "3.000 s) acknowledged it at 4.110 s, with partition isolate-live of a1 still in force."
            ),
            (
                "a1 delivered p2#2 to session 1 at 4.200 s; p1#1 had not been delivered by then, and never "
                "was."
            ),
            (
                "A group, or a queue where that is promised, must be a FIFO queue: a message whose send "
                "was certainly complete before the send of another one began must come before that one."
            ),
        ],
    ),
    "in_session": Told(
        steps=[
            "*1.00 send p1#1",
            " 1.10 send p1#2",
            " 1.20 deliver p1#1",
            " 1.30 session ends",
            "*1.40 deliver p1#2",
            "*1.50 deliver p1#1",
        ],
        words=[
            (
                "Producer 1 sent p1#1 (message 1, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "Producer 1 sent p1#2 at 1.100 s; a1 acknowledged it at 1.110 s.",
            "a1 delivered p1#2 to session 2 at 1.400 s.",
            "After that, a1 delivered p1#1 to session 2 at 1.500 s (marked redelivered, delivery count 2).",
            "Within one session the messages of one producer in a group must not go backwards.",
        ],
    ),
    "split_brain": Told(
        steps=[
            "*0.30 live",
            " 2.00 partition isolate-live of a1",
            " 2.60 voting",
            "*3.00 live",
            " 4.00 send p1#1",
            " 4.10 send p1#2",
            " 6.00 stopped",
            "*9.00 end",
        ],
        words=[
            (
                "What led to it: partition isolate-live of a1 began at 2.000 s, a2 was seen voting at 2.600 "
                "s and a2 was seen live at 3.000 s."
            ),
            (
                "For 2.900 s, from 3.000 s to 5.900 s, both were live for certain under node ID 01234567: "
                "a1 since before the load and a2 since 3.000 s, while partition isolate-live of a1 (2.000 s "
                "to the end) was in force."
            ),
            (
                "In that time a1 acknowledged 1 send (the first, p1#1, at 4.010 s) and a2 acknowledged 1 "
                "send (the first, p1#2, at 4.110 s): two histories, of which one must be thrown away."
            ),
            "Under one node ID at most one broker may be live at any moment.",
        ],
    ),
    "zombie": Told(
        steps=[
            "*0.30 live",
            " 2.00 partition isolate-live of a1",
            " 2.60 voting",
            "*3.00 live",
            "*4.00 send p1#3",
        ],
        words=[
            (
                "What led to it: partition isolate-live of a1 began at 2.000 s, a2 was seen voting at 2.600 "
                "s and a2 was seen live at 3.000 s."
            ),
            "From 3.000 s on a2 was certainly live in the place of a1.",
            (
                "Nevertheless, when producer 1 sent p1#3 (message 3, queue q, group g) at 4.000 s, a1 "
                "answered ok at 4.010 s, while partition isolate-live of a1 (2.000 s to the end) was in "
                "force."
            ),
            (
                "A broker that has been replaced must not answer any more, nor deliver messages that were "
                "sent since then."
            ),
        ],
    ),
    "delivered by a zombie": Told(
        steps=[
            "*0.30 live",
            " 2.00 partition isolate-live of a1",
            " 2.60 voting",
            "*3.00 live",
            "*4.00 send p1#3",
            "*4.50 deliver p1#3",
        ],
        words=[
            (
                "What led to it: partition isolate-live of a1 began at 2.000 s, a2 was seen voting at 2.600 "
                "s and a2 was seen live at 3.000 s."
            ),
            "From 3.000 s on a2 was certainly live in the place of a1.",
            (
                "Producer 1 sent p1#3 (message 3, queue q, group g) at 4.000 s; a2 (live since 3.000 s) "
                "acknowledged it at 4.010 s, while partition isolate-live of a1 (2.000 s to the end) was in "
                "force."
            ),
            (
                "Nevertheless a1 (live since before the load, replaced by a2 at 3.000 s) delivered p1#3 to "
                "session 1 at 4.500 s, with partition isolate-live of a1 still in force."
            ),
            "In all there were 2 such answers and deliveries.",
            (
                "A broker that has been replaced must not answer any more, nor deliver messages that were "
                "sent since then."
            ),
        ],
    ),
    "fenced": Told(
        steps=[
            "*0.20 live",
            " 2.00 partition isolate-live of a1",
            "*3.00 takeover",
            "*4.00 send p1#3",
        ],
        words=[
            "What led to it: partition isolate-live of a1 began at 2.000 s.",
            (
                "From 3.000 s on b1 had certainly completed the takeover of a1 (node 01234567), with "
                "number 4; a1 had number 3."
            ),
            (
                "Nevertheless, when producer 1 sent p1#3 (message 3, queue q, group g) at 4.000 s, a1 "
                "answered ok at 4.010 s, while partition isolate-live of a1 (2.000 s to the end) was in "
                "force."
            ),
            "In all there were 2 such answers and deliveries.",
            (
                "A broker that has been replaced must not answer any more, nor deliver messages that were "
                "sent since then."
            ),
        ],
    ),
    "double_takeover": Told(
        steps=[
            " 2.00 kill of a1",
            " 2.10 stopped",
            "*3.00 live",
            "*3.00 takeover",
            "*3.20 live",
            "*3.20 takeover",
            "*5.00 stopped",
        ],
        words=[
            (
                "What led to it: kill of a1 began at 2.000 s, a1 was seen stopped at 2.100 s, a2 was seen "
                "live at 3.000 s and a3 was seen live at 3.200 s."
            ),
            "From 3.000 s on a2 had certainly completed a takeover of the data of node 01234567 (number 2).",
            "From 3.200 s on a3 had certainly completed a takeover of the data of node 01234567 (number 3).",
            "Both were certainly live with these data from 3.200 s to 4.900 s: a2 had not released them.",
            (
                "The data of a broker may be taken over by one other at a time, and by a second only when "
                "the first has let go of them."
            ),
        ],
    ),
    "taken_twice": Told(
        steps=[
            "*3.00 takeover",
            "*3.20 takeover",
        ],
        words=[
            "From 3.000 s on b1 had certainly completed a takeover of the data of node 01234567 (number 4).",
            "From 3.200 s on c1 had certainly completed a takeover of the data of node 01234567 (number 4).",
            ("Both have the same number; a release between them would have given the second a higher one."),
            (
                "The data of a broker may be taken over by one other at a time, and by a second only when "
                "the first has let go of them."
            ),
        ],
    ),
    "diverged": Told(
        steps=[
            " 8.00 heal",
            " 9.00 recovered",
            "*12.00 members 01234567?",
            "*12.10 members 01234567?",
        ],
        words=[
            "The cluster had recovered at 9.000 s.",
            (
                'Asked repeatedly about members 01234567 from 10.100 s to 12.000 s, a1 answered "b1 '
                'b1:61616" and b1 did not know it.'
            ),
            ("Once the cluster has recovered and the recovery bound has passed, its brokers must agree."),
        ],
    ),
    "told otherwise": Told(
        steps=[
            " 1.00 create q",
            " 2.00 delete q",
            " 8.00 heal",
            " 9.00 recovered",
            "*12.00 queue q",
            "*12.00 queue q?",
        ],
        words=[
            "b1 (live since before the load) had confirmed the deletion of queue q at 2.010 s.",
            "The cluster had recovered at 9.000 s.",
            'Asked repeatedly about queue q from 10.000 s to 12.000 s, a1 answered "there".',
            "Once the cluster has recovered and the recovery bound has passed, its brokers must agree.",
        ],
    ),
    "unavailable": Told(
        steps=[
            " 2.00 kill of a1",
            " 2.10 stopped",
            "*2.50 send p1#2",
            "*12.00 send p1#3",
            "*24.00 send p1#5",
            " 30.00 kill of a1 healed",
            " 30.50 live",
            " 31.00 send p1#4",
        ],
        words=[
            (
                "For 21.500 s, from 2.500 s to 24.000 s, nothing that producer 1 sent was acknowledged, "
                "while kill of a1 (2.000 s to 30.000 s) was in force."
            ),
            "The clients' errors: not connected.",
            "The faults, and the recovery bound after each of them, explain this.",
            "Without a fault that explains it, operations must succeed within the bound.",
        ],
    ),
    "starved": Told(
        steps=[
            "*0.50 ok subscribe q",
            "*1.00 send p1#1",
            "*31.00 deliver p1#1",
        ],
        words=[
            (
                "Producer 1 sent p1#1 (message 1, queue q, group g) at 1.000 s; a1 (live since before the "
                "load) acknowledged it at 1.010 s."
            ),
            "Session 1 held no message and got none for 29.990 s, from 1.010 s to 31.000 s.",
            "After that, a1 delivered p1#1 to session 1 at 31.000 s.",
            "A consumer that holds no message must get the messages that wait for it within the bound.",
        ],
    ),
    "admitted": Told(
        steps=["*1.00 send p1#3"],
        words=[
            "internal-error was found.",
            "That broker's log has more about it.",
            "No broker may answer with an internal error.",
        ],
    ),
    "not_recovered": Told(
        steps=[
            " 2.00 power-loss of a1",
            " 2.10 stopped",
            " 8.00 heal",
            " 9.00 restarted",
            " 9.10 restarted",
            " 18.90 restarted",
            "*38.00 not-recovered",
        ],
        words=[
            "Every fault was healed at 8.000 s.",
            (
                "After that: a1, which had ended by itself, was started again 100 times until 18.900 s, "
                "first at 9.000 s."
            ),
            "At 38.000 s the recovery bound had passed, and operations still did not succeed.",
            "Brokers at that moment: a1 (stopped since 2.100 s), a2 (backup since before the load).",
            "When everything has been healed, operations must succeed again within the recovery bound.",
        ],
    ),
}


@pytest.fixture(scope="module")
def stories():
    return {name: make() for name, make in SCENES.items()}


@pytest.mark.parametrize("name", SCENES)
def test_the_steps_are_the_witness_and_what_explains_it_in_order(name, stories):
    assert steps(stories[name]) == EXPECTED[name].steps


@pytest.mark.parametrize("name", SCENES)
def test_the_paragraph_says_it_word_for_word(name, stories):
    assert paragraphs.paragraph(stories[name]) == " ".join(EXPECTED[name].words)


def test_every_row_of_the_witness_is_a_step_but_the_begin_of_the_load(stories):
    for told in stories.values():
        shown = {row["index"] for step in told.steps for row in step.rows}
        loads = {row["index"] for row in told.finding.witness.rows if row.get("value") == "load"}
        assert set(told.finding.witness.indexes) - loads <= shown


def test_every_anomaly_that_is_checked_has_words_and_a_scene_of_its_own(stories):
    assert {told.finding.name for told in stories.values()} >= {anomaly.name for anomaly in ANOMALIES}


def test_a_kind_without_words_of_its_own_is_told_by_its_sentence_and_its_messages():
    scene = Scene()
    scene.send(1.0, 3)
    scene.deliver(1.1, 3, 1)
    scene.disconnect(1.2, 1)
    scene.deliver(1.3, 3, 2)
    found = scene.finding("unflagged-redelivery")
    read = scene.excerpt(found)
    unknown = type(found)(
        name="of-another-day",
        severity="grave",
        count=1,
        sentence="They disagree.",
        witness=found.witness,
        details={},
    )
    text = paragraphs.paragraph(story.compose(unknown, read))
    assert text.startswith("They disagree. Producer 1 sent p1#3 (message 3, queue q, group g) at 1.000 s")
    assert text.endswith("delivered p1#3 to session 1 at 1.100 s.")


def test_a_message_delivered_without_end_makes_a_story_that_ends():
    scene = Scene()
    scene.send(1.0, 3)
    for number in range(300):
        scene.deliver(1.1 + number / 10, 3, number, count=1 + number, redelivered=number != 250)
        scene.disconnect(1.15 + number / 10, number)
    told = scene.story("unflagged-redelivery")
    assert len(told.steps) == story.STEPS_MAX
    assert told.left_out > 200
    shown = {row["index"] for step in told.steps for row in step.rows}
    assert set(told.finding.witness.indexes) <= shown
    assert len([lane for lane in told.lanes if lane.kind == "session"]) == story.LANES_MAX
    assert told.notes[0].startswith("Not drawn, for want of room: session")
    lanes = {lane.name for lane in told.lanes}
    assert all(step.source in lanes for step in told.steps)


def test_a_question_and_its_answer_are_two_steps_where_something_lies_between():
    scene = Scene()
    scene.add(1.0, 5, "invoke", "send", **scene.of(3))
    scene.deliver(1.1, 3, 1)
    scene.add(1.2, 5, "ok", "send", **scene.of(3), broker="a1")
    scene.disconnect(1.3, 1)
    scene.deliver(1.4, 3, 2)
    told = scene.story("unflagged-redelivery")
    assert [(step.label, step.source, step.target) for step in told.steps[:3]] == [
        ("send p1#3", "producer 1", "a1"),
        ("deliver p1#3", "a1", "session 1"),
        ("receipt p1#3", "a1", "producer 1"),
    ]


def test_a_fault_elsewhere_is_not_part_of_the_paragraph():
    scene = Scene()
    scene.role(0.1, "b1", "live", node_id="another")
    scene.send(1.0, 3)
    scene.deliver(1.1, 3, 1)
    scene.ack(1.2, 3, 1)
    scene.disconnect(1.3, 1)
    scene.fault(1.4, kind="kill", nodes=["b1"], target="b1")
    scene.fault(1.5, kind="pause", nodes=["a2"], target="a2")
    scene.deliver(2.0, 3, 2)
    text = paragraphs.paragraph(scene.story("duplicate"))
    assert "pause of a2 began at 1.500 s" in text
    assert "b1" not in text


def test_a_fault_of_what_all_share_concerns_everybody():
    scene = Scene()
    scene.role(0.1, "b1", "live", node_id="another")
    standing = story.Standing(scene.rows, 0)
    for ends, concerned in (
        ({"a1"}, True),
        ({"b1"}, False),
        ({"b1", "zone1"}, False),
        ({"nfs"}, True),
        (set(), True),
    ):
        scene.fault(1.0, kind="stall", nodes=sorted(ends))
        one = story.Standing(scene.rows[-2:], 0).breaks[0]
        assert standing.concerns(one, {"a1", "a2"}) is concerned


def test_messages_of_two_groups_with_one_number_are_told_apart():
    scene = Scene()
    for group, message in (("g", 10), ("h", 11)):
        scene.send(1.0, message, sequence=4, group=group)
    names = story.Names(scene.rows)
    assert [names.message(10), names.message(11)] == ["g/p1#4", "h/p1#4"]


def test_a_role_that_was_changing_is_not_claimed():
    scene = Scene()
    scene.role(2.0, "a1", "stopped", low=0.5)
    scene.role(3.0, "a1", "live", low=0.2)
    standing = story.Standing(scene.rows, 500_000_000)

    def at(second):
        return standing.as_seen("a1", round(second * 1e9))

    assert at(1.4) == "a1 (live since before the load)"
    assert at(1.6) == "a1 (turning from live to stopped between 1.500 s and 2.000 s)"
    assert at(2.1) == "a1 (stopped since 2.000 s)"
    assert at(3.1) == "a1 (live since 3.000 s, in its 2nd life)"
    assert standing.as_seen("b1", 1) == "b1"
    assert standing.as_seen(None, 1) == "a broker"


def test_the_same_rows_give_the_same_story():
    assert steps(SCENES["duplicate"]()) == steps(SCENES["duplicate"]())


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("operation send", "no send of any client succeeded"),
        ("client producer 2", "nothing that producer 2 sent was acknowledged"),
        ("broker a1", "a1 acknowledged no send"),
        ("something else", "nothing succeeded (something else)"),
    ],
)
def test_an_unavailability_says_whose(key, words, stories):
    found = stories["unavailable"].finding
    details = {**found.details, "examples": [{"key": key, "index": 1}], "excused": False}
    other = msgspec.structs.replace(found, details=details)
    text = paragraphs.paragraph(story.compose(other, Scene().excerpt(other)))
    assert text.startswith(f"For 21.500 s, from 2.500 s to 24.000 s, {words}.")
    assert "explain it." not in text.replace("that explains it", "")


def test_a_question_went_where_its_own_answer_came_from():
    """The same client asked again, elsewhere."""
    scene = Scene()
    scene.add(1.0, 5, "invoke", "send", **scene.of(3))
    scene.add(1.1, 5, "fail", "send", **scene.of(3), broker="a1", error="refused")
    scene.add(1.2, 5, "invoke", "send", **scene.of(3))
    scene.add(1.3, 5, "ok", "send", **scene.of(3), broker="a2")
    names = story.Names(scene.rows)
    assert [names.broker_asked(row) for row in scene.rows if row["type"] == "invoke"] == ["a1", "a2"]


def test_what_a_zombie_answered_was_asked_before_its_answer():
    scene = Scene()
    scene.role(2.0, "a2", "live")
    scene.transaction(1.0, "begin", 1, 5)
    scene.send(1.1, 3, transaction=1, process=5)
    scene.transaction(3.0, "commit", 1, 5)
    scene.transaction(5.0, "begin", 2, 5, "a2")
    scene.send(5.1, 4, "a2", transaction=2, process=5)
    scene.transaction(6.0, "commit", 2, 5, "a2")
    told = scene.story("zombie")
    later = tuple(row for row in scene.rows if row.get("transaction") == 2)
    text = paragraphs.paragraph(dataclasses.replace(told, rows=(*told.rows, *later)))
    assert "requested commit at 3.000 s, a1 answered ok at 3.010 s" in text


def test_the_commit_that_came_too_late_is_that_of_the_messages_transaction():
    scene = Scene()
    scene.transaction(0.9, "begin", 1, 5)
    scene.send(1.0, 3, transaction=1, process=5)
    scene.deliver(1.1, 3, 1)
    columns = {**scene.of(3), "session": 1, "transaction": 7}
    scene.add(1.2, 9, "invoke", "ack", **columns)
    scene.add(1.3, 9, "ok", "ack", **columns, broker="a1")
    scene.transaction(1.4, "commit", 7, 9)
    scene.transaction(2.0, "commit", 1, 5)
    assert "Its commit was requested at 2.000 s" in paragraphs.paragraph(scene.story("read-uncommitted"))


def test_a_session_that_refused_a_message_is_not_said_to_have_kept_it():
    scene = Scene()
    scene.send(1.0, 3)
    scene.deliver(1.1, 3, 1)
    columns = {**scene.of(3), "session": 1}
    scene.add(1.2, 9, "invoke", "nack", **columns)
    scene.add(1.3, 9, "ok", "nack", **columns, broker="a1")
    scene.deliver(1.4, 3, 1)
    text = paragraphs.paragraph(scene.story("unflagged-redelivery"))
    assert "Then a1 delivered p1#3 to session 1 at 1.400 s" in text
    assert "had not given it back" not in text


def test_a_message_beside_that_came_often_is_told_once():
    scene = Scene()
    for message in (1, 2):
        scene.send(message, message)
    for number in range(5):
        scene.deliver(3.0 + number, 1, number)
        scene.disconnect(3.5 + number, number)
    scene.end(9.0)
    text = paragraphs.paragraph(scene.story("lost", neighbours=(1,)))
    assert text.count("arrived") == 1
    assert "arrived: a1 delivered p1#1 to session 0 at 3.000 s" in text


@pytest.mark.parametrize(
    ("told", "error", "words"),
    [
        (
            {"observed": {"a1->a2": "open"}, "bit": True},
            None,
            "The fault partition of a1 is healed (a1->a2 open).",
        ),
        (
            {"observed": {"a1->a2": "lost"}, "bit": False},
            None,
            "The fault partition of a1 is to be healed, but was not seen healed (a1->a2 lost).",
        ),
        (
            {"observed": {}, "bit": False},
            "no route",
            "The fault partition of a1 is to be healed, but was not seen healed (no route).",
        ),
    ],
)
def test_a_fault_that_stayed_is_not_said_to_be_healed(told, error, words):
    scene = Scene()
    value = {"label": "partition-1", "target": "a1", "links": ["a1->a2"]}
    scene.add(1.0, NEMESIS, "invoke", "heal:partition", value=json.dumps(value))
    scene.add(1.1, NEMESIS, "info", "heal:partition", value=json.dumps({**value, **told}), error=error)
    rows = scene.rows[-2:]
    label, said = phrase(rows, story.Names(rows), story.Standing(scene.rows, 0))
    assert said == words
    assert label == f"partition of a1 {'healed' if told['bit'] else 'not healed'}"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (NODE, "members 01234567"),
        ('["","","shared1-t3"]', 'members ["","","shared1-t3"]'),
        ("destinations-q1", "members destinations-q1"),
    ],
)
def test_only_the_id_of_a_node_is_shortened(key, words):
    assert thing("members", key) == words


def test_what_happened_between_two_deliveries_is_told_between_them():
    scene = Scene()
    scene.subscribe(0.5, 1)
    scene.send(1.0, 3)
    scene.fault(1.05, "pause", nodes=["a2"])
    scene.deliver(1.1, 3, 1)
    scene.fault(1.15, "slow", nodes=["a1"])
    scene.subscribe(1.2, 2)
    scene.deliver(1.3, 3, 2, count=2)
    scene.ack(1.4, 3, 1)
    scene.ack(1.5, 3, 2)
    text = paragraphs.paragraph(scene.story("double-delivery"))
    told = ["Before that: pause of a1 began", "to session 1", "In between: slow of a1 began", "to session 2"]
    assert [text.find(words) for words in told] == sorted({text.find(words) for words in told} - {-1})


def test_a_fault_that_found_no_target_is_never_in_force():
    scene = Scene()
    about = {"label": "pause-1", "target": "live", "nodes": [], "links": []}
    scene.add(1.0, NEMESIS, "invoke", "pause", value=json.dumps(about))
    said = json.dumps({**about, "observed": {}, "bit": False})
    scene.add(1.1, NEMESIS, "info", "pause", value=said, error="no broker is live now")
    rows = scene.rows[-2:]
    standing = story.Standing(scene.rows, 0)
    _, words = phrase(rows, story.Names(rows), standing)
    assert words == "The fault pause of live found no target (no broker is live now)."
    assert standing.force(1_050_000_000) == standing.force(5_000_000_000) == ""


@pytest.mark.parametrize(("heard_s", "words", "change"), [
    (2.0, "a2 had another role for a moment, which was not seen", "a2 had another role for a moment"),
    (2.5, "a2 does not answer any more, so its role is unknown", "a2 fell silent"),
])  # fmt: skip
def test_a_role_that_was_left_and_taken_again_unseen_is_no_silence(heard_s, words, change):
    scene = Scene()
    scene.role(2.0, "a2", "unreachable", low=0.1)
    scene.role(heard_s, "a2", "backup", low=heard_s - 1.9)
    standing = story.Standing(scene.rows, 500_000_000)
    _, said = phrase(scene.rows[-2:-1], story.Names(()), standing)
    assert said == f"{words} (the change lies between 1.900 s and 2.000 s)."
    assert [told for _, told in standing.changes(["a2"], 1_500_000_000, 2_500_000_000)] == [
        change, "a2 was seen backup",
    ]  # fmt: skip


REPLIES = {"queue": "/temp-queue/r0"}


def with_a_temporary_queue(**reply):
    """One that is made and ends with its connection, and what was sent to it meanwhile."""
    scene = Scene()
    for type_, at_s in (("invoke", 0.1), ("ok", 0.2)):
        scene.add(at_s, 201, type_, "subscribe", **REPLIES, session=1, connection=4, broker="a1")
    scene.send(1.0, 2, **{**REPLIES, **reply})
    for type_, at_s in (("invoke", 1.4), ("ok", 1.5)):
        scene.add(at_s, 202, type_, "drop", **REPLIES, connection=4)
    return scene


def test_the_story_of_what_outlived_its_temporary_queue_says_when_that_ended():
    scene = with_a_temporary_queue()
    scene.phase(9.0, "browse")
    scene.stored(9.1, 2, **REPLIES)
    told = scene.story("resurrected")
    text = paragraphs.paragraph(told)
    assert "was made at 0.200 s by session 1, whose connection ended in order at 1.500 s." in text
    assert "Nevertheless a1 had p1#2 in its main store at 9.100 s." in text
    assert any("/temp-queue/r0 with it" in step.words for step in told.steps)


def test_the_story_of_what_another_connection_got_says_whose_it_was():
    scene = with_a_temporary_queue()
    scene.add(1.6, 203, "ok", "deliver", **scene.of(2, **REPLIES), session=2, connection=9, broker="a1")
    text = paragraphs.paragraph(scene.story("not-subscribed"))
    assert "That was on connection 9, which does not own the queue." in text


def test_the_story_of_a_reply_in_the_wrong_queue_tells_of_the_right_one():
    scene = with_a_temporary_queue()
    scene.deliver(1.6, 2, 2, queue="/temp-queue/r1")
    text = paragraphs.paragraph(scene.story("corrupted"))
    assert text.startswith("Temporary queue /temp-queue/r0 was made at 0.200 s by session 1")
    assert "Its queue was /temp-queue/r0 when it was sent and /temp-queue/r1 when it arrived." in text


def crossing(left, right):
    """The links between two sides, both ways; zones have none between them."""
    links = [f"{a}->{b}" for a in left for b in right if not (a[0] == b[0] == "z")]
    return [*links, *("->".join(reversed(link.split("->"))) for link in links)]


@pytest.mark.parametrize(
    ("links", "words"),
    [
        (crossing(["b2"], ["a1", "a2", "zone1"]), "b2 <-> a1, a2, zone1 lost"),
        (crossing(["zone1", "a1"], ["zone2", "a2", "b1"]), "zone1, a1 <-> a2, b1, zone2 lost"),
        (["a1->a2", "a1->b1"], "a1 -> a2, b1 lost"),
        (["a1->a2"], "a1->a2 lost"),
        (["a1->a2", "a2->b1"], "a1->a2, a2->b1 lost"),
        (crossing(["a1"], ["a2", "b1"])[:-1], "a1->a2, a1->b1, a2->a1 lost"),
        (["a1", "a2/clock"], "a1, a2/clock lost"),
    ],
)
def test_a_partition_is_told_by_its_two_sides(links, words):
    value = {"label": "f", "observed": dict.fromkeys(links, "lost")}
    row = {"index": 1, "time": 0, "process": NEMESIS, "type": "info", "f": "partition",
           "value": json.dumps(value)}  # fmt: skip
    assert cluster_state.break_of([row]).observed == words
