"""A distribution on hosts: what they must have is said in one line, the rest is put there once."""

import pytest

from environments.homes import Homes
from environments.machines.remote import RemoteMachine
from harness.interface import InfrastructureError, Provision, Runtime

RUN = "jepsen-run-0-0"


@pytest.fixture
def brought(bed, connect, tmp_path):
    """Makes a machine that is to get a distribution of one program, and whatever ``more`` asks."""
    program = tmp_path / "it" / "bin" / "serve"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho served\n")
    program.chmod(0o755)
    (tmp_path / "it" / "words").write_text("words")
    host = connect(bed)

    def make(**more):
        provision = Provision(directories={"it": str(tmp_path / "it")}, **more)
        return RemoteMachine(host, "python3", RUN, "a1", "", 0, provision, Homes(provision))

    yield make
    host.run(("rm", "-rf", host.directory))


def test_it_is_put_there_once_and_can_be_run(brought):
    machine = brought()
    machine.look()
    machine.bring()
    home = machine.homes["it"]
    assert machine.run((f"{home}/bin/serve",)) == b"served\n"
    assert machine.run(("stat", "-c", "%a", f"{home}/bin/serve", f"{home}/words")) == b"700\n600\n"
    machine.run(("touch", "-d", "2001-01-01", f"{home}/words"))
    again = brought()
    again.look()
    again.bring()
    assert again.homes == machine.homes
    assert machine.run(("stat", "-c", "%y", f"{home}/words")).startswith(b"2001-01-01")


def test_what_others_keep_in_the_same_directory_stays(brought):
    machine = brought()
    machine.look()
    machine.bring()
    top = machine.root.rpartition(f"/{RUN}/")[0]
    machine.run(("mkdir", f"{top}/app-of-others"))
    machine.remove(program=True)
    assert machine.run(("ls", "-A", top)) == b"app-of-others\n"
    machine.run(("rmdir", f"{top}/app-of-others"))
    machine.remove(program=True)
    assert not machine.run(("sh", "-c", 'ls -d "$1" 2>/dev/null || true', "sh", top))


def test_a_runtime_that_is_new_enough_is_found_beside_an_old_one_on_the_path(brought):
    top = brought().root.rpartition(f"/{RUN}/")[0]
    asks = ("-c", "echo release 8")
    runtime = Runtime(program="sh", package="x", asks=asks, least=17, elsewhere=(f"{top}/jdk-*/bin/sh",))
    machine = brought(runtimes=(runtime,))
    for release in (16, 21):
        script = (
            f'mkdir -p "$1" && printf "#!/bin/sh\\necho release {release}\\n" > "$1/sh" && chmod 755 "$1/sh"'
        )
        machine.run(("sh", "-c", script, "sh", f"{top}/jdk-{release}/bin"))
    machine.look()
    assert machine._programs == [f"{top}/jdk-21/bin"]


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (
            {"runtimes": (Runtime(program="no-java", package="default-jre-headless", asks=("-version",)),)},
            "no no-java: on Debian, apt-get install default-jre-headless",
        ),
        (
            {"runtimes": (Runtime(program="sh", package="x", asks=("-c", "echo release 8"), least=17),)},
            "sh is release 8, and must be 17 or later",
        ),
        ({"memory_mb": 10**9}, "MB of memory are free, and a broker takes 1000000000"),
    ],
)
def test_what_a_host_lacks_is_one_line_and_nothing_is_put_there(brought, asked, line):
    machine = brought(**asked)
    with pytest.raises(InfrastructureError) as refused:
        machine.look()
    assert str(refused.value).startswith("host ")
    assert str(refused.value).endswith(line)
