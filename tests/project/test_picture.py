"""What the README shows of a run is what that run prints, and its picture is drawn from it."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_readme_shows_what_its_command_prints():
    spec = importlib.util.spec_from_file_location("picture", DOCS / "picture.py")
    picture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(picture)
    readme, drawn = picture.made()
    why = "the run in the README came out otherwise: python docs/picture.py writes it again"
    assert readme == picture.README.read_text(encoding="utf-8"), why
    assert drawn == picture.FILE.read_text(encoding="utf-8"), why
