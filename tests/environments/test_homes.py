"""A distribution is put on other machines by its content, whole, and what can be run stays so."""

import io
import tarfile

import pytest

from environments import payload
from environments.docker import image
from environments.docker.engine import connect
from environments.homes import Homes
from harness.interface import Provision, Runtime, UsageError


def distribution(directory):
    """One with a program, a link to it, a link that leads back, and pages nobody needs."""
    (directory / "bin").mkdir(parents=True)
    (directory / "lib").mkdir()
    (directory / "docs").mkdir()
    program = directory / "bin" / "serve"
    program.write_text("#!/bin/sh\necho served\n")
    program.chmod(0o755)
    (directory / "bin" / "start").symlink_to("serve")
    (directory / "lib" / "whole").symlink_to(directory)
    (directory / "docs" / "page").write_text("page")
    return str(directory)


def homes(directory, **more):
    return Homes(Provision(directories={"it": distribution(directory)}, leave_out=("docs/*",), **more))


def test_the_same_files_are_the_same_wherever_they_are_unpacked(tmp_path):
    here, there = homes(tmp_path / "here"), homes(tmp_path / "there")
    assert set(here.files) == {"it/bin/serve", "it/bin/start"}
    assert here.executable == set(here.files)
    assert here.hash == there.hash
    program = tmp_path / "there" / "bin" / "serve"
    program.chmod(0o644)
    provision = Provision(directories={"it": str(tmp_path / "there")}, leave_out=("docs/*",))
    assert Homes(provision).hash != here.hash  # it cannot be run any more
    program.write_text("#!/bin/sh\necho other\n")
    program.chmod(0o755)
    assert Homes(provision).hash != here.hash


def test_a_directory_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=f"^{tmp_path}/none cannot be read: No such file"):
        Homes(Provision(directories={"it": f"{tmp_path}/none"}))


@pytest.mark.parametrize(("mode", "then"), [(0o644, 0o755), (0o600, 0o700)])
def test_whoever_may_read_a_program_may_run_it(mode, then):
    made = payload.archive({"a": b"", "b": b""}, mode=mode, executable={"b"})
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        assert {entry.name: entry.mode for entry in tar} == {"a": mode, "b": then}


@pytest.mark.parametrize(
    ("said", "lack"),
    [
        (None, "no erl: on Debian, apt-get install erlang-base"),
        ("Erlang/OTP 24", "erl is release 24, and must be 25 or later"),
        ("what?", "erl is of an unknown release, and must be 25 or later"),
        ("Erlang/OTP 25", ""),
    ],
)
def test_a_runtime_says_what_is_wrong_with_it(said, lack):
    erlang = Runtime(program="erl", package="erlang-base", asks=("-version",), least=25)
    assert erlang.lack(said) == lack
    assert Runtime(program="erl", package="erlang-base").lack("") == ""


@pytest.mark.docker
def test_an_image_with_a_distribution_is_built_once_and_needs_no_network(tmp_path):
    client = connect()
    told = []
    provision = Provision(directories={"it": distribution(tmp_path / "it")})
    tag = image.system_image(client, told.append, "tried", provision)
    try:
        told.clear()
        assert image.system_image(client, told.append, "tried", provision) == tag
        assert told == []
        argv = [f"{image.HOMES}/it/bin/start"]
        assert client.containers.run(tag, argv, remove=True, network_mode="none") == b"served\n"
    finally:
        client.images.remove(tag)
        for old in client.images.list(name="jepsen-run/tried-home"):
            client.images.remove(old.id)
        client.close()
