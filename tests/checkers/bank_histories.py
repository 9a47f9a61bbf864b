"""Small histories of a bank at a correct broker: accounts, transfers in transactions, a drain."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

from checker_rows import MS, Row, o, phase
from damaged import DAMAGE, damage, edits
from hypothesis import strategies as st


def said(account: str, amount: int) -> str:
    return json.dumps({"account": account, "amount": amount})


def bank(seed: int) -> list[Row]:
    """Nothing is wrong in it; some commits are without an answer, some sessions are lost."""
    chance = random.Random(f"bank {seed}")
    rows: list[Row] = []
    balances: dict[int, tuple[str, int]] = {}
    waiting: list[int] = []
    got: dict[int, int] = {}
    session = 0

    def add(process: int, type_: str, f: str, message: int | None = None, **columns: Any) -> None:
        rows.append(o(len(rows), process, type_, f, message, **columns))

    def place(message: int) -> dict[str, Any]:
        return {"group": None, "producer": 1, "sequence": message}

    def send(account: str, amount: int, outcome: str, **inside: Any) -> int:
        message = len(balances) + 1
        balances[message] = account, amount
        columns = {**place(message), "digest": message * 7, "value": said(account, amount), **inside}
        add(1, "invoke", "send", message, **columns)
        add(1, outcome, "send", message, broker="a1", **columns)
        return message

    def begin() -> None:
        nonlocal session
        session += 1
        add(100 + session, "invoke", "subscribe", session=session)
        add(100 + session, "ok", "subscribe", session=session, broker="a1")

    def deliver(message: int) -> None:
        got[message] = got.get(message, 0) + 1
        add(100 + session, "ok", "deliver", message, **place(message), session=session, broker="a1",
            redelivered=got[message] > 1, digest=message * 7)  # fmt: skip

    def ack(message: int, **inside: Any) -> None:
        columns = {**place(message), "session": session, **inside}
        add(100 + session, "invoke", "ack", message, **columns)
        add(100 + session, "ok", "ack", message, broker="a1", **columns)

    begin()
    for number in range(chance.randint(2, 4)):
        while True:
            outcome = chance.choice(["ok", "ok", "ok", "info", "fail"])
            message = send(f"a{number}", 100, outcome)
            if outcome != "fail":
                break
        if outcome == "ok" or chance.random() < 0.7:
            waiting.append(message)
    for transaction in range(1, chance.randint(2, 6)):
        chance.shuffle(waiting)
        taken = waiting[:2]
        for message in taken:
            deliver(message)
        inside = {"transaction": transaction}
        for message in taken:
            ack(message, **inside)
        moved = chance.choice([0, 30, 70])
        made = [
            send(balances[message][0], balances[message][1] + change, "ok", **inside)
            for message, change in zip(taken, (-moved, moved) if len(taken) == 2 else (0,), strict=False)
        ]
        asked, outcome, happens = chance.choice(
            [("commit", "ok", True), ("commit", "ok", True), ("commit", "info", True),
             ("commit", "info", False), ("abort", "ok", False), ("", "", False)]
        )  # fmt: skip
        if asked:
            add(100 + session, "invoke", asked, **inside)
            add(100 + session, outcome, asked, broker="a1", **inside)
        if happens:
            waiting = [one for one in waiting if one not in taken] + made
        if not happens or chance.random() < 0.3:
            add(100 + session, "info", "disconnect", session=session, broker="a1")
            begin()
    for value in ("heal", "recovered", "drain"):
        rows.append(phase(len(rows), value))
    kept = waiting.pop() if waiting and chance.random() < 0.2 else None
    for message in waiting:
        deliver(message)
        ack(message)
    rows.append(phase(len(rows), "browse"))
    if kept is not None:
        add(-3, "ok", "browse", kept, **place(kept), queue="q", digest=kept * 7, broker="a1", value="main")
    add(-3, "ok", "browse", broker="a1")
    rows.append(phase(len(rows), "end"))
    return [{**row, "time": row["index"] * MS} for row in rows]


def damaged_banks(seeds: Iterable[int]) -> Iterator[list[Row]]:
    """Banks that lack a row at least."""
    for seed in seeds:
        chance = random.Random(seed)
        names = [*chance.choices(sorted(DAMAGE), k=chance.randint(0, 3)), "drop"]
        yield damage(bank(seed), [(name, chance.randrange(10_000)) for name in names])


banks = st.builds(lambda seed, changes: damage(bank(seed), changes), st.integers(0, 2**32), edits)
