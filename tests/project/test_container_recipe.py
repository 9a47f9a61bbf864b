"""The container image is built from what the wheel is made of, and from nothing else."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_image_is_built_from_all_packages_of_the_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hatch = project["tool"]["hatch"]
    hooks = {hook["path"] for hook in hatch["metadata"]["hooks"].values()}
    texts = {"README.md", *project["project"]["license-files"], "pyproject.toml"}
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in lines if line.startswith("!")} == {
        *hatch["build"]["targets"]["wheel"]["packages"], *hooks, *texts,
    }  # fmt: skip
    assert "*" in lines
