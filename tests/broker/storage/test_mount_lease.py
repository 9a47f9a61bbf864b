"""A live believes in its lock for no longer than the file server keeps it, wherever the kernel
knows for how long that is.
"""

import asyncio
import os
from pathlib import Path

import pytest

from broker import config, daemon
from broker.storage import mount_lease

MOUNTSTATS = r"""device proc mounted on /proc with fstype proc
device /dev/vda1 mounted on / with fstype ext4
device server:/export mounted on /mnt/store with fstype nfs4 statvers=1.1
	opts:	rw,vers=4.2,rsize=1048576,hard,proto=tcp,timeo=600,retrans=2,sec=sys
	age:	8
	caps:	caps=0x3ffbffff,wtmult=512,dtsize=1048576,bsize=0,namlen=255
	nfsv4:	bm0=0xfdffbfff,bm1=0xf9be3e,bm2=0x60800,acl=0x3,sessions,pnfs=not configured,lease_time=90,lease_expired=0
	sec:	flavor=1,pseudoflavor=1
device old:/export mounted on /mnt/old with fstype nfs statvers=1.1
	opts:	rw,vers=3,hard
device other:/export mounted on /mnt/store/with\040space with fstype nfs4 statvers=1.1
	nfsv4:	bm0=0xfdffbfff,acl=0x3,lease_time=15,lease_expired=0
device tmpfs mounted on /mnt/store/memory with fstype tmpfs
"""  # noqa: E501 - as the kernel writes it


@pytest.mark.parametrize(
    ("directory", "lease_s"),
    [
        ("/mnt/store", 90),
        ("/mnt/store/a/data", 90),
        ("/mnt/stores", None),
        ("/mnt/store/with space/data", 15),
        ("/mnt/store/memory/data", None),
        ("/mnt/old", None),
        ("/home", None),
    ],
)
def test_the_lease_is_that_of_the_mount_a_directory_is_on(directory, lease_s):
    assert mount_lease.lease_in(MOUNTSTATS, directory) == lease_s


def test_a_mount_whose_place_is_no_utf_8_hinders_nobody(tmp_path, monkeypatch):
    file = tmp_path / "mountstats"
    odd = "device server:/ mounted on /\udcff\\040\u2028 with fstype nfs4 statvers=1.1\n"
    odd += "\tnfsv4:\tlease_time=7\n"
    file.write_bytes(os.fsencode(odd))
    monkeypatch.setattr(mount_lease, "MOUNTSTATS", file)
    assert mount_lease.lease_s(Path("/\udcff \u2028/data")) == 7
    assert mount_lease.lease_s(tmp_path) is None


def test_of_a_directory_of_this_machine_nobody_knows_a_lease(tmp_path):
    assert mount_lease.lease_s(tmp_path) is None


@pytest.mark.parametrize("policy", ["shared-store", "multi-instance"])
def test_a_broker_that_would_believe_in_its_lock_for_longer_does_not_start_and_says_why(
    policy, tmp_path, monkeypatch, caplog
):
    told = tmp_path / "mountstats"
    told.write_text(
        f"device server:/export mounted on {tmp_path.resolve()} with fstype nfs4 "
        "statvers=1.1\n\tnfsv4:\tbm0=0x0,lease_time=10,lease_expired=0\n"
    )
    monkeypatch.setattr(mount_lease, "MOUNTSTATS", told)
    section = {"master": {}} if policy == "shared-store" else {"queue-manager": "QM1"}
    table = {
        "broker": {"name": "a1", "data-directory": "data"},
        "cluster": {"cluster-password": "p", "connector": "a1:1", "stomp-connector": "a1:2"},
        "ha-policy": {policy: section},
    }
    settings = config.validate(table, str(tmp_path / "broker.toml"))
    assert asyncio.run(daemon._serve_as_process(settings)) == config.EXIT_USAGE
    assert "lock-expiration is 15000: the file server of" in caplog.text
    assert "for 10 s only, so it must be at most 10000" in caplog.text
