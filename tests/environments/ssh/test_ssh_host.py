"""SshHost on real OpenSSH servers."""

import io
import socket
import tarfile
import threading

import beds
import pytest

from environments.machines.host import CommandError
from harness.interface import InfrastructureError

TOP = beds.DIRECTORY
STARTING = """
rm -f /run/sshd/port
setsid -f python3 -c "$1" "$2" </dev/null >/run/sshd/port 2>&1
while [ ! -s /run/sshd/port ]; do sleep 0.05; done
cat /run/sshd/port
"""


def contents(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {one.name.removeprefix("./"): tar.extractfile(one).read() for one in tar if one.isfile()}


@pytest.fixture
def host(bed, connect):
    host = connect(bed)
    yield host
    host.run(["rm", "-rf", TOP])


def test_what_is_put_is_fetched(host):
    files = {"a": b"1", "b/c d/e'\"$x": b"\0\xff", "empty": b""}
    host.put(f"{TOP}/some where/it's", files)
    assert contents(host.fetch(f"{TOP}/some where/it's")) == files
    assert contents(host.fetch(f"{TOP}/some where/it's/a")) == {"a": b"1"}
    modes = host.run(["find", TOP, "-printf", "%m %u %y\n"]).decode().splitlines()
    assert set(modes) == {"700 root d", "600 root f"}


def test_what_is_put_replaces_what_was_there(host):
    host.put(f"{TOP}/x", {"a": b"1", "b": b"2"})
    host.put(f"{TOP}/x", {"a": b"3"})
    assert contents(host.fetch(f"{TOP}/x")) == {"a": b"3", "b": b"2"}


def test_nothing_is_fetched_from_where_nothing_is(host):
    assert host.fetch(f"{TOP}/nothing") == b""


def test_a_big_file_goes_both_ways(host):
    big = bytes(range(256)) * 80_000
    host.put(f"{TOP}/big", {"file": big})
    assert contents(host.fetch(f"{TOP}/big"))["file"] == big


def test_a_program_gets_its_arguments_and_its_input_as_they_are(host):
    words = ["a b", "'", '"', "$HOME", "`id`", "*", "", "\\", "ä\n"]
    assert host.run(["printf", "%s|", *words]).decode() == "|".join(words) + "|"
    assert host.run(["cat"], text=b"\0" * 3_000_000) == b"\0" * 3_000_000


def test_a_program_that_writes_much_to_both_does_not_wait_for_ever(host):
    assert (
        len(host.run(["sh", "-c", "head -c 5000000 /dev/zero >&2; head -c 5000000 /dev/zero"])) == 5_000_000
    )


@pytest.mark.parametrize(
    ("script", "said", "status"),
    [
        ("echo one >&2; echo 'two words' >&2; exit 3", "two words", 3),
        ("exit 7", "it ended with status 7", 7),
        ("kill -9 $$", "Killed", 137),
    ],
)
def test_a_program_that_fails(host, script, said, status):
    with pytest.raises(CommandError) as failed:
        host.run(["sh", "-c", script])
    assert (str(failed.value), failed.value.status) == (f"{host.name}: sh: {said}", status)


def test_a_program_that_does_not_end_is_ended(host):
    with pytest.raises(InfrastructureError, match=r"^host [\d.]+: sh did not end within 1 s$"):
        host.run(["sh", "-c", "trap '' TERM; sleep 97 & wait; sleep 97"], timeout_s=1)
    assert b"sleep 97" not in host.run(["ps", "-ef"])


def test_a_port_is_reached(host):
    echo = (
        "import socket,sys\ns=socket.create_server((sys.argv[1],0)); print(s.getsockname()[1],flush=True)\n"
        "while 1:\n c,_=s.accept()\n while d:=c.recv(65536): c.sendall(d)\n c.close()"
    )
    for bound in ("127.0.0.1", host.address):
        port = int(host.run(["sh", "-c", STARTING, "sh", echo, bound]))
        address = host.reach(port)
        assert address.host == "127.0.0.1"
        assert host.reach(port) == address
        for _ in range(3):
            with socket.create_connection((address.host, address.port), 5) as connection:
                sent = bytes(range(256)) * 4000
                threading.Thread(
                    target=lambda c=connection, s=sent: (c.sendall(s), c.shutdown(socket.SHUT_WR))
                ).start()
                assert b"".join(iter(lambda c=connection: c.recv(65536), b"")) == sent


def test_a_port_on_which_nobody_listens_is_reset(host):
    address = host.reach(1)
    with (
        socket.create_connection((address.host, address.port), 5) as connection,
        pytest.raises(ConnectionResetError),
    ):
        assert connection.recv(1) == b"", "a closed connection"
        raise AssertionError("closed, not reset")


def test_many_threads_at_once(host):
    failed = []

    def work(number):
        try:
            for turn in range(2):
                text = f"{number} {turn}".encode() * 1000
                assert host.run(["cat"], text=text) == text
                host.put(f"{TOP}/{number}", {"x": text})
                assert contents(host.fetch(f"{TOP}/{number}")) == {"x": text}
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
