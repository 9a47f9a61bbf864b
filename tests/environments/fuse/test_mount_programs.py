"""The programs that mount must run where nothing of this project is installed.

In containers, from copied modules.
"""

import subprocess
import sys

import pytest

from environments.docker.image import ROOT
from filesystems.disk import DISK_MODULES
from filesystems.nfs import CLIENT_MODULES


@pytest.mark.parametrize(
    ("program", "modules", "wants"),
    [
        ("filesystems.nfs.mount", CLIENT_MODULES, "SERVER[:PORT]/EXPORT"),
        ("filesystems.disk.mount", DISK_MODULES, "BEHIND"),
    ],
)
def test_a_mount_program_runs_on_its_copied_modules_and_the_standard_library_alone(
    tmp_path, program, modules, wants
):
    for path in modules:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes((ROOT / path).read_bytes())
    run = subprocess.run(
        [
            sys.executable,
            "-IS",
            "-c",
            (
                f"import sys; sys.path[:0] = [{str(tmp_path)!r}]\nfrom {program} import "
                "main\nsys.exit(main(['-h']))"
            ),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert wants in run.stdout
