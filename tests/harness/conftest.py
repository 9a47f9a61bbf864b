"""Whatever a run writes here is what the published schemas say."""

import json

import pytest
from published_schemas import strict

from harness.history import judge, store


@pytest.fixture(autouse=True)
def as_published(monkeypatch):
    """Holds each findings.json and run.json against its schema when the program has written it."""
    save, save_verdict = store.save, judge._save

    def checked(directory, name, value):
        path = save(directory, name, value)
        if name == store.RUN:
            strict("run").validate(json.loads(path.read_bytes()))
        return path

    def checked_verdict(directory, verdict):
        save_verdict(directory, verdict)
        if (path := directory / store.FINDINGS).is_file():
            strict("findings").validate(json.loads(path.read_bytes()))

    monkeypatch.setattr(store, "save", checked)
    monkeypatch.setattr(judge, "_save", checked_verdict)
