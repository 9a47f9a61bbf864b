"""What brokerd sets for its whole process before it serves."""

import sys

from broker import daemon


def test_a_thread_waits_for_less_than_a_turn_of_the_loop(tmp_path, monkeypatch):
    """Else it waits for ever: each look of the loop at its sockets makes it count anew."""
    path = tmp_path / "broker.toml"
    path.write_text('[broker]\nname = "a1"\n', encoding="utf-8")
    intervals = []

    async def serve(_):
        intervals.append(sys.getswitchinterval())
        return 0

    monkeypatch.setattr(daemon, "_serve_as_process", serve)
    monkeypatch.setattr(daemon, "set_up_logging", lambda *_: None)
    before = sys.getswitchinterval()
    monkeypatch.setattr(daemon.gc, "freeze", lambda: None)
    monkeypatch.setattr(daemon.gc, "set_threshold", lambda *_: None)
    try:
        assert daemon.main(["--config", str(path)]) == 0
    finally:
        sys.setswitchinterval(before)
    assert max(intervals) <= 0.001
