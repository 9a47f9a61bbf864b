"""hosts.toml and --host: what is read, and one line for each thing that is wrong."""

import getpass
import socket
from pathlib import Path

import beds
import pytest

from environments.ssh.host import SshHost
from environments.ssh.hosts import HostConfig, listed, load
from harness.interface import InfrastructureError, UsageError


def written(tmp_path, text):
    (tmp_path / "hosts.toml").write_text(text)
    return tmp_path / "hosts.toml"


def refusal(tmp_path, text):
    with pytest.raises(UsageError) as refused:
        load(written(tmp_path, text))
    assert "\n" not in str(refused.value)
    return str(refused.value).removeprefix(f"{tmp_path}/")


def test_what_is_left_out_is_as_ssh_has_it(tmp_path):
    inventory = load(written(tmp_path, '[[host]]\naddress = "a.example"\n'))
    assert inventory.hosts == (HostConfig(address="a.example"),)
    (host,) = inventory.hosts
    assert (host.port, host.user, host.key, host.inner, host.clock) == (22, getpass.getuser(), "", "", False)
    assert (host.python, host.directory, host.name) == ("python3", beds.DIRECTORY, "a.example")
    assert inventory.known_hosts == Path("~/.ssh/known_hosts").expanduser()


def test_paths_are_relative_to_the_file(tmp_path):
    beds.make_key(tmp_path / "mine")
    text = 'known-hosts = "known"\n[[host]]\naddress = "a"\nport = 2222\nkey = "mine"\nclock = true\n'
    text += 'inner = "10.0.0.1"\n'
    inventory = load(written(tmp_path, text))
    assert inventory.known_hosts == tmp_path / "known"
    assert inventory.hosts[0].key == str(tmp_path / "mine")
    assert (inventory.hosts[0].name, inventory.hosts[0].inner, inventory.hosts[0].clock) == (
        "a:2222",
        "10.0.0.1",
        True,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "hosts.toml: no [[host]]: give one for each machine, with its address"),
        ('[host]\naddress = "a"', "hosts.toml: no [[host]]: give one for each machine, with its address"),
        ("x = [", "hosts.toml is not TOML: Invalid value (at end of document)"),
        (
            'known_hosts = 1\n[[host]]\naddress = "a"',
            'hosts.toml: unknown key "known_hosts": did you mean "known-hosts"?',
        ),
        (
            'known-hosts = 1\n[[host]]\naddress = "a"',
            'hosts.toml: "known-hosts": expected str, got int',
        ),
        (
            '[[host]]\naddress = "a"\nprot = 1',
            'hosts.toml: [[host]] 1: unknown key "prot": did you mean "port"?',
        ),
        ("[[host]]\nport = 1", "hosts.toml: [[host]] 1: object missing required field address"),
        ('[[host]]\naddress = "a"\nport = "x"', 'hosts.toml: [[host]] 1: "port": expected int, got str'),
        ('[[host]]\naddress = "a"\nport = 0', 'hosts.toml: [[host]] 1: "port": expected int >= 1'),
        (
            '[[host]]\naddress = "a"\n[[host]]\naddress = "a"',
            "hosts.toml: a is listed twice: each machine runs one node",
        ),
        (
            '[[host]]\naddress = "a"\n[[host]]\naddress = "b"\ninner = "a"',
            "hosts.toml: a is listed twice: each machine runs one node",
        ),
        (
            '[[host]]\naddress = "root@a"',
            'hosts.toml: [[host]] 1: "address" is "root@a": expected a name or an IP address',
        ),
        (
            '[[host]]\naddress = "a"\nuser = "-x"',
            'hosts.toml: [[host]] 1: "user" is "-x": expected the name of a user',
        ),
        (
            '[[host]]\naddress = "a"\ndirectory = "/tmp"',
            'hosts.toml: [[host]] 1: "directory" is "/tmp": expected one like /var/tmp/jepsen-run',
        ),
        (
            '[[host]]\naddress = "a"\ndirectory = "/var/tmp/../.."',
            'hosts.toml: [[host]] 1: "directory" is "/var/tmp/../..": expected one like /var/tmp/jepsen-run',
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, text, said):
    assert refusal(tmp_path, text) == said


def test_a_key_that_cannot_be_used_is_said_before_anything_is_connected_to(tmp_path):
    text = '[[host]]\naddress = "a"\nkey = "mine"'
    key = tmp_path / "mine"
    where = f"hosts.toml: [[host]] 1: the key {key}"
    assert refusal(tmp_path, text) == f"{where} cannot be read: No such file or directory"
    key.write_text("no key")
    assert refusal(tmp_path, text) == f"{where} is no private key of ssh (RSA, ECDSA or Ed25519)"
    key.unlink()
    beds.make_key(key, "-N", "secret")
    phrase = f"{where} has a pass phrase: give it to ssh-agent (ssh-add {key}) and leave the key out"
    assert refusal(tmp_path, text) == phrase
    key.unlink()
    beds.make_key(key, "-t", "rsa", "-m", "PEM", "-N", "secret")
    assert refusal(tmp_path, text) == phrase


def test_no_file(tmp_path):
    with pytest.raises(UsageError, match=r"missing.toml cannot be read: No such file or directory$"):
        load(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("a", HostConfig(address="a")),
        ("root@a", HostConfig(address="a", user="root")),
        ("root@192.0.2.11:2222", HostConfig(address="192.0.2.11", user="root", port=2222)),
        ("[2001:db8::11]", HostConfig(address="2001:db8::11")),
        ("u@[2001:db8::11]:2222", HostConfig(address="2001:db8::11", user="u", port=2222)),
    ],
)
def test_one_host_as_a_text(text, host):
    assert listed([text]).hosts == (host,)


@pytest.mark.parametrize(
    "text", ["", "root@", "root:secret@a", "a:b", "2001:db8::11", "a b", "@a", "root@a:", "-oProxyCommand=x"]
)
def test_a_text_that_is_no_host_is_refused_and_a_password_never_repeated(text):
    with pytest.raises(UsageError) as refused:
        listed([text])
    assert "--host" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_texts_that_are_refused_for_a_number_or_for_being_there_twice():
    with pytest.raises(UsageError, match=r"^--host a:70000: \"port\": expected int <= 65535$"):
        listed(["a:70000"])
    with pytest.raises(UsageError, match=r"^--host: a is listed twice: each machine runs one node$"):
        listed(["root@a", "a"])


def test_a_machine_is_reached_by_the_others_at_its_ipv4_address(monkeypatch, tmp_path):
    known = {socket.AF_INET6: "2001:db8::11", socket.AF_INET: "192.0.2.11"}

    def resolve(name, port, family=0, *_):
        return [(one, 1, 6, "", (known[one], 0)) for one in known if family in (0, one)]

    with monkeypatch.context() as both:
        both.setattr(socket, "getaddrinfo", resolve)
        assert SshHost(HostConfig(address="a.example"), tmp_path).address == "192.0.2.11"
    with pytest.raises(InfrastructureError, match=r"no IPv4 address of it is known \("):
        _ = SshHost(HostConfig(address="2001:db8::11"), tmp_path).address
    with pytest.raises(InfrastructureError, match=r"of it, whose inner address is fe80::1, is known \("):
        _ = SshHost(HostConfig(address="192.0.2.11", inner="fe80::1"), tmp_path).address
