"""Frames a second through the STOMP codec on one core.

Beside what finding their ends alone costs in the same minutes.

The baseline splits the same bytes at NUL and does nothing else. Frames are what a loaded broker and
its clients exchange.

    python -m bench.codec [--seconds 1]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from stomp_protocol.codec import Parser, encode

BAR = 150_000
FRAMES = 500
BODY = b"x" * 48
KINDS = {
    "SEND": (
        {"destination": "/queue/q0", "JMSXGroupID": "g1", "persistent": "true", "receipt": "123456"},
        BODY,
    ),
    "MESSAGE": (
        {
            "subscription": "17",
            "message-id": "8f14e45f-1234567",
            "ack": "3a52-14-1.9988",
            "redelivered": "false",
            "JMSXDeliveryCount": "1",
            "destination": "/queue/q0",
            "JMSXGroupID": "g1",
        },
        BODY,
    ),
    "ACK": ({"id": "3a52-14-1.9988", "receipt": "123456"}, b""),
    "RECEIPT": ({"receipt-id": "123456"}, b""),
}


def rate(work: Callable[[], object], count: int, seconds: float) -> float:
    """The best of five: what the code costs, not what the neighbours do."""
    best = 0.0
    for _ in range(5):
        done, start = 0, time.perf_counter()
        while (span := time.perf_counter() - start) < seconds / 5:
            work()
            done += count
        best = max(best, done / span)
    return best


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--seconds", type=float, default=1.0, help="per figure")
    seconds = arguments.parse_args().seconds
    print(
        f"{'frames/s':<10}{'baseline':>12}{'parsed':>12}{'in 1 KB cuts':>14}{'encoded':>12}   bar {BAR} "
        "parsed"
    )
    for command, (headers, body) in KINDS.items():
        frame = encode(command, headers, body)
        stream = frame * FRAMES
        cuts = [stream[place : place + 1024] for place in range(0, len(stream), 1024)]
        parser = Parser()
        split = rate(lambda stream=stream: stream.split(b"\0"), FRAMES, seconds)
        parsed = rate(lambda parser=parser, stream=stream: parser.feed(stream), FRAMES, seconds)
        small = rate(lambda parser=parser, cuts=cuts: [parser.feed(cut) for cut in cuts], FRAMES, seconds)
        encoded = rate(lambda one=(command, headers, body): encode(*one), 1, seconds)
        verdict = "met" if min(parsed, small) >= BAR else "MISSED"
        print(f"{command:<10}{split:>12.0f}{parsed:>12.0f}{small:>14.0f}{encoded:>12.0f}   {verdict}")


if __name__ == "__main__":
    main()
