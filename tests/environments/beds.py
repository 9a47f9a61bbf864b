"""Test beds: machines with OpenSSH servers of their own, for what is done over ssh.

Addresses outside this machine are never used. A bed's directory holds ``hosts.toml``,
``known_hosts`` and the private key ``key`` that every machine accepts for root.
"""

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path

DIRECTORY = "/var/tmp/jepsen-run"  # noqa: S108 - a disk of each machine's own
_SSHD = """
Port {port}
HostKey {directory}/host_key
PidFile /run/sshd/ours.pid
AuthorizedKeysFile {directory}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
SetEnv HOME=/var/tmp
"""
_MACHINE = """
ip link set lo up && hostname "$1" && mount -t tmpfs -o size="$2" tmpfs /var/tmp || exit 1
mount -t tmpfs -o mode=755 tmpfs /run/sshd || exit 1
exec 3<&0
/usr/sbin/sshd -f "$3/sshd_config" -E "$3/sshd.log" </dev/null
echo up
cat <&3 >/dev/null
"""
"""What the first process of a machine runs.

It ends, and with it everything on the machine, when its input does, which is when the test process
ends, however it ends.
"""


@dataclass
class Machine:
    """One machine of a bed: its ssh address, and how to do something to it without ssh."""

    address: str
    port: int
    directory: Path  # host_key.pub is in it, on this machine
    enter: list[str]  # what stands before a command that runs there
    files: str  # the same directory as the machine sees it

    def do(self, *argv, text="", check=True):
        """Run something there as root; what it wrote."""
        done = subprocess.run([*self.enter, *argv], input=text, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def sh(self, script, *arguments, check=True):
        return self.do("sh", "-c", script, "sh", *arguments, check=check)

    def begin_server(self):
        self.do("/usr/sbin/sshd", "-f", f"{self.files}/sshd_config", "-E", f"{self.files}/sshd.log")
        _await(self)

    def end_server(self):
        """SIGKILL the server; those of its sessions go on."""
        self.sh("kill -9 $(cat /run/sshd/ours.pid)")

    def end_sessions(self):
        """SIGKILL the processes of all connections; the server goes on."""
        self.sh("""kill -9 $(ps -o pid= --ppid "$(cat /run/sshd/ours.pid)") || true""")

    def cut(self):
        """Nothing from or to it gets through, and nobody is told."""
        rules = "".join(
            f"chain {hook} {{ type filter hook {hook} priority -300; policy drop; {device} lo accept; }}\n"
            for hook, device in (("input", "iif"), ("output", "oif"))
        )
        self.do("nft", "-f", "-", text=f"table inet bed_cut {{\n{rules}}}")

    def mend(self):
        self.sh("nft delete table inet bed_cut", check=False)

    def public_key(self):
        return " ".join((self.directory / "host_key.pub").read_text().split()[:2])


@dataclass
class Bed:
    """Some machines, and the files with which they are reached."""

    directory: Path
    machines: list[Machine] = field(default_factory=list)

    @property
    def hosts(self):
        return self.directory / "hosts.toml"

    @property
    def known_hosts(self):
        return self.directory / "known_hosts"

    @property
    def key(self):
        return self.directory / "key"

    def write(self, known=None):
        """Write hosts.toml and known_hosts anew."""
        self.hosts.write_text(
            'known-hosts = "known_hosts"\n'
            + "".join(
                f'\n[[host]]\naddress = "{one.address}"\nport = {one.port}\nuser = "root"\nkey = "key"\n'
                for one in self.machines
            )
        )
        self.known_hosts.write_text(
            "".join(f"{self.known_as(one)} {one.public_key()}\n" for one in self.machines)
        )

    @staticmethod
    def known_as(machine):
        return machine.address if machine.port == 22 else f"[{machine.address}]:{machine.port}"


def make_key(path, *options):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path), *options], check=True)
    return path


def _prepare(directory, count, port, files):
    """A directory for each machine with what its server needs.

    ``files`` is where the machine sees it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    make_key(directory / "key")
    prepared = []
    for number in range(1, count + 1):
        own = directory / f"machine{number}"
        own.mkdir()
        make_key(own / "host_key")
        shutil.copy(directory / "key.pub", own / "authorized_keys")
        (own / "sshd_config").write_text(_SSHD.format(port=port, directory=files or own))
        prepared.append(own)
    return prepared


@contextlib.contextmanager
def namespaces(count, directory, *, port=22, size="512m"):
    """``count`` machines as namespaces of this one: network, processes, mounts, clocks, host name.

    Their network ends in this machine's. They share its file system except for /var/tmp, a memory
    disk of ``size`` of each one's own. All of it is processes of ours and ends with this one, so
    that there is nothing to remove if it is killed.
    """
    with contextlib.ExitStack() as stack:
        Path("/run/sshd").mkdir(exist_ok=True)
        hub = stack.enter_context(_namespace("cat >/dev/null"))
        net = _join(hub)
        bed = Bed(directory)
        for number, own in enumerate(_prepare(directory, count, port, None), 1):
            first = stack.enter_context(
                _namespace(_MACHINE, f"machine{number}", size, str(own), ahead_s=1000 * number)
            )
            inside = ["nsenter", "-t", str(first), "-a", "--"]
            _ip(f"link add port{number} netns {hub} type veth peer name eth0 netns {first}")
            _ip(f"link set port{number} master bridge up", hub)
            _ip("link set eth0 up", first)
            _ip(f"addr add {net}.{10 + number}/24 dev eth0", first)
            bed.machines.append(Machine(f"{net}.{10 + number}", port, own, inside, str(own)))
        bed.write()
        for machine in bed.machines:
            _await(machine)
        yield bed


@contextlib.contextmanager
def _namespace(script, *arguments, ahead_s=0):
    """The first process of new namespaces, by its id here; its monotonic clock is ahead of ours."""
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts"]
    command += ["--time", "--monotonic", str(ahead_s)]
    process = subprocess.Popen(
        [*command, "sh", "-c", f"echo begun; {script}", "sh", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline(), "the namespaces were not made"
        yield int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def _join(hub):
    """Give the hub its bridge and a link to this machine's network.

    Returns the first three numbers of the addresses.
    """
    _ip("link set lo up", hub)
    _ip("link add bridge type bridge", hub)
    _ip("link set bridge up", hub)
    used = subprocess.run(
        ["ip", "-4", "route", "show", "table", "all"], capture_output=True, text=True, check=True
    ).stdout
    for number in range(256):
        net = f"10.219.{number}"
        link = [
            "ip",
            "link",
            "add",
            f"jrssh{number}",
            "type",
            "veth",
            "peer",
            "name",
            "outside",
            "netns",
            str(hub),
        ]
        if f"{net}." in used or subprocess.run(link, capture_output=True, check=False).returncode:
            continue  # somebody else's
        _ip("link set outside master bridge up", hub)
        _ip(f"addr add {net}.1/24 dev jrssh{number}")
        _ip(f"link set jrssh{number} up")
        return net
    raise AssertionError("no network 10.219.x.0/24 is free")


def _ip(words, process=None):
    enter = [] if process is None else ["nsenter", "-t", str(process), "-n", "--"]
    subprocess.run([*enter, "ip", *words.split()], check=True, capture_output=True)


def _await(machine):
    import socket

    until = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((machine.address, machine.port), 1).close()
        except OSError:
            assert time.monotonic() < until, f"no ssh server at {machine.address}"
            time.sleep(0.05)


_CONTAINER = """
mkdir -p /run/sshd && chmod 755 /run/sshd && useradd -m -p '*' -s /bin/sh plain || exit 1
chown -R root:root "$1" && chmod 755 "$1" || exit 1
/usr/sbin/sshd -f "$1/sshd_config" -E "$1/sshd.log"
while :; do sleep 1000 & wait; done
"""
PLAIN = "plain"
"""A user of the containers who accepts the bed's key, and is not root."""


@contextlib.contextmanager
def containers(count, directory, *, port=22, size="512m"):
    """``count`` machines as containers with OpenSSH, Python, nftables, iproute2 and sudo.

    /var/tmp is a memory disk of ``size``. They carry the labels of a run of this process, so that
    ``jepsen-run clean`` removes what a killed test left, as the next bed does.
    """
    import docker

    from environments.docker import clean
    from environments.docker.base_image import with_packages
    from environments.docker.engine import RUN_LABEL, connect, harness_of, labels
    from environments.labels import judge

    client = connect()
    for network in client.networks.list(filters={"label": RUN_LABEL}):  # only what killed tests left
        maker = harness_of(network.attrs["Labels"])
        if network.name.startswith("ssh-bed-") and judge(maker) == "dead":
            clean.remove_run(client, network.name)
    run = f"ssh-bed-{os.getpid()}-{time.monotonic_ns()}"
    bed, place = Bed(directory), "/etc/ssh-bed"
    try:
        image = with_packages(client, lambda line: None, "ssh", ("openssh-server", "sudo"))
        network = client.networks.create(run, labels=labels(run))
        for number, own in enumerate(_prepare(directory, count, port, place), 1):
            machine = client.containers.create(
                image,
                ["sh", "-c", _CONTAINER, "sh", place],
                name=f"{run}-{number}",
                hostname=f"machine{number}",
                labels=labels(run),
                network=network.name,
                cap_add=["NET_ADMIN"],
                tmpfs={"/var/tmp": f"size={size},exec"},  # noqa: S108
                init=True,
            )
            machine.put_archive("/etc", _archive(own, "ssh-bed"))
            machine.start()
            machine.reload()
            address = machine.attrs["NetworkSettings"]["Networks"][network.name]["IPAddress"]
            inside = ["docker", "exec", "-i", machine.name]
            bed.machines.append(Machine(address, port, own, inside, place))
        bed.write()
        for one in bed.machines:
            _await(one)
        yield bed
    finally:
        with contextlib.suppress(docker.errors.NotFound):
            clean.remove_run(client, run)
        client.close()


def _archive(directory, name):
    """The files of a directory as a tar archive, in a directory of that name."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(directory, name)
    return archive.getvalue()
