"""Systems of other packages: found by their entry points, and each that is wrong is one line."""

import json
import re
import sys
from pathlib import Path

import pytest

from checkers import api
from checkers.starting import Starting
from harness.commands import cli
from harness.systems import registry

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-system.md"


@pytest.fixture
def bring(monkeypatch, tmp_path):
    """Puts a package on the path as an installer would: its modules, and what it says of itself."""
    imported = set(sys.modules)

    def brought(name, modules, points):
        home = tmp_path / name
        told = home / f"{name.replace('-', '_')}-0.1.dist-info"
        told.mkdir(parents=True)
        for module, text in modules.items():
            (home / f"{module}.py").write_text(text)
        lines = [f"{point} = {value}\n" for point, value in points.items()]
        (told / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\n{''.join(lines)}")
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        monkeypatch.syspath_prepend(home)
        registry._entry_points.cache_clear()

    monkeypatch.setattr(api, "start_in_background", lambda master, wanted: Starting(master, wanted=False))
    yield brought
    registry._entry_points.cache_clear()
    for module in set(sys.modules) - imported:
        if module.startswith(("jepsen_run_", "stranger")):
            del sys.modules[module]


def page(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]


@pytest.fixture
def manual(bring):
    """The package of the manual, as it stands there."""
    import tomllib

    project = tomllib.loads(page("toml"))
    bring(
        project["project"]["name"],
        {module: page("python") for module in project["tool"]["setuptools"]["py-modules"]},
        project["project"]["entry-points"][registry.ENTRY_POINTS],
    )


def test_the_list_has_what_others_bring(manual, capsys):
    assert cli.run(["list", "--system", "brokerd", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["systems"]) == [*registry.SYSTEMS, "brokerd"]
    assert told["systems"]["brokerd"] == {"description": "brokerd, added as the manual says", "problem": ""}
    assert list(told["policies"]) == ["alone"]


@pytest.mark.cluster
def test_the_manual_can_be_followed(manual, tmp_path, capsys):
    """The command of the page, with a shorter load."""
    command = re.search(r"^jepsen-run (--system .*) --time-limit 15$", page("console"), re.MULTILINE)[1]
    words = [*command.split(), "--time-limit", "6", "--rate", "40", "--store", str(tmp_path / "store")]
    status = cli.run(words)
    out, err = capsys.readouterr()
    assert status == 0, out + err
    assert "1, of which 1 took effect" in out


SOUND = "from second_system import SecondSystem\nclass Echo(SecondSystem):\n    name = 'echo'\n"


@pytest.mark.parametrize(
    ("name", "module", "point", "complaint"),
    [
        ("own", SOUND, "stranger:Echo", "OwnSystem, stranger:Echo of stranger-p"),
        ("echo", "import nothing_of_this_name", "stranger:Echo", "cannot be imported: ModuleNotFoundError"),
        ("echo", "1 +", "stranger:Echo", "cannot be imported: SyntaxError"),
        ("echo", "", "stranger:Echo", "cannot be imported: AttributeError"),
        ("echo", "Echo = 3", "stranger:Echo", "is no class but int"),
        ("echo", "class Echo:\n    def __init__(self, a): ...", "stranger:Echo", "cannot be made without"),
        ("echo", "class Echo:\n    name = 'echo'", "stranger:Echo", "it has no summary, dialect"),
        ("oche", SOUND, "stranger:Echo", 'calls itself "echo": both names must be the same'),
    ],
)
def test_what_is_wrong_with_one_is_one_line(bring, capsys, name, module, point, complaint):
    bring("stranger-package", {"stranger": module}, {name: point})
    assert cli.run(["--system", name, "--policy", "alone"]) == 254
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f'jepsen-run: system "{name}" ')
    assert complaint in err
    assert "stranger-package" in err


def test_two_of_one_name_are_one_line_and_hide_no_other(bring, capsys):
    for number in (1, 2):
        bring(f"package-{number}", {f"stranger{number}": SOUND}, {"echo": f"stranger{number}:Echo"})
    assert cli.run(["--system", "echo", "--policy", "alone"]) == 254
    assert "is there twice (stranger" in capsys.readouterr().err
    assert cli.run(["list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["systems"]
    assert "is there twice" in told["echo"]["problem"]
    assert told["own"]["problem"] == ""


def test_a_name_that_nobody_brings_is_unknown(bring, capsys):
    bring("stranger-package", {"stranger": SOUND}, {"echo": "stranger:Echo"})
    assert cli.run(["--system", "ecko"]) == 254
    assert 'unknown system "ecko": did you mean "echo"?' in capsys.readouterr().err
