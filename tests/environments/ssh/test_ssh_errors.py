"""What goes wrong with a machine over ssh: one line each, soon, and nothing left behind."""

import io
import logging
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time

import beds
import msgspec
import pytest

from environments.machines import host as shell_host
from environments.machines.host import CommandError
from environments.ssh import host as host_module
from environments.ssh.host import SshHost
from environments.ssh.hosts import load
from harness.interface import InfrastructureError

TOP = beds.DIRECTORY


def refusal(do, *arguments, within_s=30.0):
    """The one line that came, and soon enough."""
    began = time.monotonic()
    with pytest.raises(InfrastructureError) as refused:
        do(*arguments)
    assert time.monotonic() - began < within_s
    assert "\n" not in str(refused.value)
    return str(refused.value)


def fingerprint(path):
    listed = ["ssh-keygen", "-lf", str(path)]
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()[1]


@pytest.fixture
def own(bed, tmp_path):
    """A copy of a bed's files, to be changed."""
    shutil.copytree(bed.directory, tmp_path / "bed")
    return beds.Bed(tmp_path / "bed", bed.machines)


@pytest.fixture
def machine(bed):
    """The first machine; what was cut or ended comes back."""
    machine = bed.machines[0]
    yield machine
    machine.mend()
    machine.sh(f"rm -rf {TOP} /var/tmp/fill")


def test_known_hosts_that_cannot_be_read_are_told_by_their_name(own, connect):
    own.known_hosts.unlink()
    own.known_hosts.mkdir()
    assert refusal(connect(own).run, ["true"]).endswith(f": {own.known_hosts} cannot be read: Is a directory")


def test_an_unknown_host_key_is_refused_and_can_be_accepted_as_is_said(own, machine, connect):
    own.known_hosts.write_text("")
    said = refusal(connect(own).run, ["true"])
    shown = fingerprint(machine.directory / "host_key.pub")
    accept = f"ssh-keyscan -p 22 {machine.address} >> {own.known_hosts}"
    assert said == (
        f"host {machine.address}: its ssh-ed25519 key {shown} is not known: compare the fingerprint (there: "
        f"ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub) and accept it: {accept}"
    )
    subprocess.run(["sh", "-c", accept], check=True, capture_output=True)
    assert connect(own).run(["echo", "in"]) == b"in\n"


def test_a_known_hosts_file_that_is_not_there_knows_nobody(own, machine, connect):
    own.known_hosts.unlink()
    assert "is not known" in refusal(connect(own).run, ["true"])


def test_a_changed_host_key_is_refused_with_both_fingerprints_and_the_line(own, machine, connect, tmp_path):
    beds.make_key(tmp_path / "other")
    other = " ".join((tmp_path / "other.pub").read_text().split()[:2])
    own.known_hosts.write_text(f"# mine\nelsewhere {other}\n{machine.address} {other}\n")
    shown, known = fingerprint(machine.directory / "host_key.pub"), fingerprint(tmp_path / "other.pub")
    assert refusal(connect(own).run, ["true"]) == (
        f"host {machine.address}: its ssh-ed25519 key {shown} is not the known one, {known} in "
        f"{own.known_hosts}:3: somebody may be in between; if the machine was installed anew, remove that "
        "line and accept the new key"
    )


def test_a_revoked_host_key_is_refused(own, machine, connect):
    line = own.known_hosts.read_text().splitlines()[0]
    own.known_hosts.write_text(f"{line}\n@revoked {line}\n")
    assert f"is revoked in {own.known_hosts}:2" in refusal(connect(own).run, ["true"])


def test_hashed_names_are_known(own, machine, connect):
    subprocess.run(["ssh-keygen", "-H", "-f", str(own.known_hosts)], check=True, capture_output=True)
    assert machine.address not in own.known_hosts.read_text()
    assert connect(own).run(["echo", "in"]) == b"in\n"


@pytest.mark.ssh
def test_another_port_is_known_by_itself(tmp_path, connect):
    with beds.namespaces(1, tmp_path / "bed", port=2222) as bed:
        (machine,) = bed.machines
        assert bed.known_hosts.read_text().startswith(f"[{machine.address}]:2222 ")
        assert connect(bed).run(["echo", "in"]) == b"in\n"
        subprocess.run(["ssh-keygen", "-H", "-f", str(bed.known_hosts)], check=True, capture_output=True)
        assert connect(bed).run(["echo", "in"]) == b"in\n"
        bed.known_hosts.write_text(f"{machine.address} {machine.public_key()}\n")
        said = refusal(connect(bed).run, ["true"])
        assert said.startswith(f"host {machine.address}:2222: its ssh-ed25519 key")
        assert f"ssh-keyscan -p 2222 {machine.address} >>" in said


def test_a_key_that_is_not_accepted_is_named(own, machine, connect, tmp_path):
    own.key.unlink()
    beds.make_key(own.key)
    assert refusal(connect(own).run, ["true"]) == (
        f"host {machine.address}: its sshd accepts of user root none of these keys: "
        f"{fingerprint(own.key)} ({own.key}); add the public key to ~root/.ssh/authorized_keys there, or "
        "name another key"
    )


def test_keys_without_a_name_are_those_of_the_agent_and_of_the_home_directory(
    own, machine, connect, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    said = refusal(connect(own, key="").run, ["true"])
    assert ": its sshd accepts of user root us without a key, and there is none; add" in said
    (tmp_path / ".ssh").mkdir()
    beds.make_key(tmp_path / ".ssh/id_ecdsa", "-t", "ecdsa")
    beds.make_key(tmp_path / ".ssh/id_locked", "-N", "secret")
    said = refusal(connect(own, key="").run, ["true"])
    assert (
        f"none of these keys: {fingerprint(tmp_path / '.ssh/id_ecdsa')} ({tmp_path}/.ssh/id_ecdsa); add"
        in said
    )
    shutil.copy(own.key, tmp_path / ".ssh/id_ed25519")
    assert connect(own, key="").run(["echo", "in"]) == b"in\n"
    agent = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"(SSH_\w+)=([^;]+);", agent))
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", found["SSH_AUTH_SOCK"])
        monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
        subprocess.run(["ssh-add", "-q", str(own.key)], check=True, capture_output=True)
        assert connect(own, key="").run(["echo", "in"]) == b"in\n"
    finally:
        subprocess.run(["kill", found["SSH_AGENT_PID"]], check=True)


def test_a_machine_that_cannot_be_reached(own, machine, connect, monkeypatch):
    said = refusal(connect(own, port=1).run, ["true"])
    assert said == f"host {machine.address}:1: no ssh server can be reached on port 1 (Connection refused)"
    said = refusal(connect(own, address="nowhere.invalid").run, ["true"])
    assert re.fullmatch(
        r"host nowhere.invalid: no ssh server can be reached on port 22 \(.*[Nn]ame.*\)", said
    )
    monkeypatch.setattr(host_module, "CONNECT_TIMEOUT_S", 1.0)
    machine.cut()
    said = refusal(connect(own).run, ["true"], within_s=3)
    assert said == f"host {machine.address}: no ssh server can be reached on port 22 (no answer within 1 s)"


def test_what_is_no_ssh_server(own, machine, connect):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        threading.Thread(target=answer).start()
        port = server.getsockname()[1]
        said = refusal(connect(own, address="127.0.0.1", port=port).run, ["true"])
    assert said.startswith(f"host 127.0.0.1:{port}: what listens on port {port} does not speak ssh with us (")


@pytest.mark.docker
def test_a_user_who_is_not_root_needs_sudo(container_bed, connect):
    machine = container_bed.machines[1]
    host = connect(container_bed, 1, user=beds.PLAIN)
    rule = f"{beds.PLAIN} ALL=(ALL) NOPASSWD: ALL"
    assert refusal(host.run, ["true"]) == (
        f"host {machine.address}: user plain is not root and may not use sudo without a password "
        f"(sudo: a password is required); allow it: echo '{rule}' > /etc/sudoers.d/jepsen-run there, as root"
    )
    machine.sh('echo "$1" > /etc/sudoers.d/jepsen-run', rule)
    try:
        assert host.run(["id", "-u"]) == b"0\n"
        host.put(f"{TOP}/x", {"a": b"1"})
        assert machine.do("stat", "-c", "%U %a", f"{TOP}/x/a") == "root 600\n"
        assert host.fetch(f"{TOP}/x")
        with pytest.raises(InfrastructureError, match="sleep did not end within 1 s"):
            host.run(["sleep", "98"], timeout_s=1)
        assert b"sleep 98" not in host.run(["ps", "-ef"])
    finally:
        machine.sh(f"rm -rf /etc/sudoers.d/jepsen-run {TOP}")


def test_a_full_disk_leaves_nothing_behind(own, machine, connect):
    host = connect(own)
    host.put(f"{TOP}/x", {"kept": b"1"})
    before = machine.do("find", TOP)
    machine.sh("fallocate -l $(($(df --output=avail -B1 /var/tmp | tail -1) - 1000000)) /var/tmp/fill")
    for directory in (f"{TOP}/x", f"{TOP}/new/deep"):
        said = refusal(host.put, directory, {"kept": b"2", "much": b"x" * 5_000_000})
        assert said == f"host {machine.address}: {directory} cannot be written: No space left on device"
        assert machine.do("find", TOP) == before
    assert machine.do("cat", f"{TOP}/x/kept") == "1"


def test_a_directory_of_somebody_else_is_not_written_to(own, machine, connect):
    machine.sh(f"rm -rf {TOP}; mkdir {TOP}; chown 12345 {TOP}")
    said = refusal(connect(own).put, f"{TOP}/x", {"a": b"1"})
    assert said == f"host {machine.address}: {TOP}/x cannot be written: {TOP} belongs to somebody else"


def test_what_cannot_be_read_is_said(own, machine, connect):
    said = refusal(connect(own).fetch, "/sys/bus/cpu/uevent")
    assert said.startswith(f"host {machine.address}: /sys/bus/cpu/uevent cannot be read: tar: ")


@pytest.mark.parametrize("how", ["end_sessions", "cut"])
def test_a_connection_that_is_lost_ends_what_goes_on_and_the_next_call_connects(own, machine, connect, how):
    host = connect(own)
    host.run(["true"])
    said = []
    calls = [
        threading.Thread(target=lambda: said.append(refusal(host.run, ["sleep", "25"], within_s=14)))
        for _ in range(2)
    ]
    for call in calls:
        call.start()
    time.sleep(1)
    getattr(machine, how)()
    for call in calls:
        call.join()
    assert len(said) == len(calls)
    for line in said:
        assert re.fullmatch(rf"host {machine.address}: the ssh connection was lost \(.+\)", line)
    machine.mend()
    assert host.run(["echo", "again"]) == b"again\n"


def test_what_was_half_put_when_the_connection_was_lost_is_removed(own, machine, connect):
    host = connect(own)
    host.put(f"{TOP}/x", {"kept": b"1"})
    said = []
    big = {"kept": b"2", "much": b"x" * 100_000_000}
    call = threading.Thread(target=lambda: said.append(refusal(host.put, f"{TOP}/x", big)))
    call.start()
    while ".put-" not in machine.do("find", TOP):
        time.sleep(0.01)
    machine.end_sessions()
    call.join()
    assert "the ssh connection was lost" in said[0]
    until = time.monotonic() + 10
    while ".put-" in machine.do("find", TOP):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert machine.do("cat", f"{TOP}/x/kept") == "1"


def test_a_server_that_was_killed_and_started_again(own, machine, connect):
    host = connect(own)
    host.run(["true"])
    sessions = machine.sh('ps -o pid= --ppid "$(cat /run/sshd/ours.pid)"').split()
    machine.end_server()
    try:
        assert host.run(["echo", "still"]) == b"still\n"
        machine.sh("kill -9 $*; while ps -o stat= -p $* | grep -qv Z; do sleep 0.05; done", *sessions)
        assert "on port 22 (Connection refused)" in refusal(host.run, ["true"])
    finally:
        machine.begin_server()
    assert host.run(["echo", "again"]) == b"again\n"


def test_a_port_is_reached_again_after_the_connection_was_lost(own, machine, connect):
    host = connect(own)
    address = host.reach(22)
    for _ in range(2):
        with socket.create_connection((address.host, address.port), 5) as connection:
            assert connection.recv(4) == b"SSH-"
            machine.end_sessions()
            while connection.recv(1000):
                pass  # it ends


def test_forwarding_that_is_not_allowed(own, machine, connect):
    machine.sh(
        f"cp {machine.files}/sshd_config /run/sshd/; echo AllowTcpForwarding no >> /run/sshd/sshd_config"
    )
    changed = "s/^Port 22$/Port 2200/; s/ours.pid/second.pid/"
    machine.sh(f"sed -i '{changed}' /run/sshd/sshd_config")
    machine.do("/usr/sbin/sshd", "-f", "/run/sshd/sshd_config")
    # It listens once that is there.
    machine.sh("timeout 20 sh -c 'until test -s /run/sshd/second.pid; do sleep 0.05; done'")
    own.known_hosts.write_text(f"[{machine.address}]:2200 {machine.public_key()}\n")
    try:
        said = refusal(connect(own, port=2200).reach, 22)
        assert said.endswith(
            "its sshd forwards no ports: it needs AllowTcpForwarding yes in /etc/ssh/sshd_config"
        )
    finally:
        machine.sh("kill $(cat /run/sshd/second.pid)")


def test_closing_ends_threads_and_listeners_and_paramiko_says_nothing(bed, capfd):
    inventory = load(bed.hosts)
    before = set(threading.enumerate())
    host = SshHost(inventory.hosts[0], inventory.known_hosts)
    address = host.reach(22)
    with socket.create_connection((address.host, address.port), 5) as connection:
        assert connection.recv(4) == b"SSH-"
        wrong = msgspec.structs.replace(inventory.hosts[0], user="nobody-there")
        refusal(SshHost(wrong, inventory.known_hosts).run, ["true"])
        bed.machines[0].end_sessions()
        host.run(["true"])
        host.close()
        for thread in {*threading.enumerate()} - before:
            thread.join(5)
            assert not thread.is_alive()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.host, address.port), 5)
        assert "is closed" in refusal(host.run, ["true"])
    assert capfd.readouterr() == ("", "")
    assert not logging.getLogger("paramiko").propagate


def test_an_archive_that_ends_between_two_files_is_not_taken(own, machine, connect):
    host = connect(own)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a"))
    with pytest.raises(CommandError):
        host.run(["sh", "-c", shell_host.PUT, "sh", f"{TOP}/x", TOP], text=archive.getvalue())
    assert TOP not in machine.sh(f"ls -d {TOP}", check=False)


def test_paramiko_says_nothing_on_a_terminal(own, machine):
    script = (
        "import pathlib, sys\nfrom environments.ssh.host import SshHost\n"
        "from environments.ssh.hosts import load\ninventory = load(pathlib.Path(sys.argv[1]))\n"
        "host = SshHost(inventory.hosts[0], inventory.known_hosts)\nhost.reach(1)\n"
        "print(host.run(['echo', 'in']).decode().strip())\n"
    )
    done = subprocess.run([sys.executable, "-c", script, own.hosts], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"in\n", b"")
