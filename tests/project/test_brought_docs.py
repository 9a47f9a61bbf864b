"""The pages about histories of others: their code runs, their table is true."""

from __future__ import annotations

import json
import re
import types
from pathlib import Path

import imported_examples

from harness.commands import cli

PAGES = Path(__file__).parents[2] / "docs/how-to"


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL)


def test_what_the_page_about_python_shows_runs(capsys):
    page = types.ModuleType("page")
    for code in blocks("check-from-python.md"):
        exec(code, page.__dict__)  # noqa: S102 - our own page
    assert "duplicate 1 grave" in capsys.readouterr().out


def test_the_writer_of_the_page_writes_what_is_imported(tmp_path, capsys):
    writer, *clients = blocks("bring-your-own-history.md")
    page = types.ModuleType("page")
    exec(writer, page.__dict__)  # noqa: S102 - as above
    path = tmp_path / "history.jsonl"
    history = page.History(path)
    for process, type_, f in (("p", "invoke", "send"), ("p", "ok", "send"), ("c", "ok", "deliver")):
        history.event(process, type_, f, message="order-1", queue="orders")
    with history.request("c", "ack", message="order-1"):
        pass
    # Neither is lost: one message was never stored, and nobody knows of the other.
    for certain in (True, False):
        with history.request("p", "send", lambda _, it=certain: it, message=f"{certain}", queue="orders"):
            raise ConnectionError
    assert [json.loads(line)["type"] for line in path.read_text().splitlines()][-6:] == [
        "invoke", "ok", "invoke", "fail", "invoke", "info",
    ]  # fmt: skip
    assert cli.run(["import", str(path), "--drained", "--json", "--store", str(tmp_path / "store")]) == 0
    assert json.loads(capsys.readouterr().out)["exit-status"] == 0
    assert len(clients) == 3
    for code in clients:
        compile(code, "page", "exec")


def test_the_table_of_examples_is_what_the_tests_find():
    text = (PAGES / "bring-your-own-history.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- examples -->\n(.*?)\n<!-- /examples -->", text, re.DOTALL)
    assert shown is not None
    assert shown[1] == imported_examples.table()
