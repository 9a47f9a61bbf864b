"""Mount options mean what nfs(5) and 17.3.2.1 say, and what is not understood is refused."""

import pytest

from environments.ganesha import ServerOptions, configuration
from filesystems.nfs.mount import source
from filesystems.nfs.options import RECOMMENDED, MountOptionError, MountOptions, parse
from harness.interface import UsageError


def test_nothing_said_is_hard_with_three_tries_of_a_minute():
    options = parse("")
    assert options == MountOptions()
    assert (options.soft, options.try_s, options.patience_s) == (False, 60, 180)


def test_the_manuals_warning_is_five_minutes():
    options = parse(RECOMMENDED)
    assert options.patience_s == 5 * 60
    assert (options.soft, options.sync, options.intr) == (True, True, True)
    assert options.attribute_cache_s == options.lookup_cache_s == 0


def test_later_words_and_blanks_do_not_change_the_meaning():
    assert parse("nfs4, tcp ,soft,,soft") == parse("soft,vers=4.0,proto=tcp")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sfot", "did you mean 'soft'?"),
        ("bg", "known: soft, hard"),
        ("timeo", "needs a value"),
        ("timeo=0", "from 1 to 6000 (deciseconds)"),
        ("retrans=many", "from 1 to 100"),
        ("soft=1", "takes no value"),
        ("lookupcache=some", "none or positive or pos or all"),
        ("vers=3", "must be 4 or 4.0"),
        ("proto=udp", "must be tcp"),
        ("soft,hard", "'soft' and 'hard' contradict each other"),
        ("noac,actimeo=5", "'noac' and 'actimeo=5' contradict"),
        ("rsize=1024", "unknown mount option 'rsize'"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(text, says):
    with pytest.raises(MountOptionError) as refused:
        parse(text)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("text", "host", "port", "export"),
    [
        ("server:/store", "server", 2049, "/store"),
        ("10.0.0.5:2050/a/b", "10.0.0.5", 2050, "/a/b"),
        ("[fd00::5]:2050/store", "fd00::5", 2050, "/store"),
        ("server/store", "server", 2049, "/store"),
    ],
)
def test_a_source_is_a_server_and_an_export(text, host, port, export):
    found = source(text, MountOptions())
    assert (found.host, found.port, found.export) == (host, port, export)


@pytest.mark.parametrize("text", ["server", "/store", "server:99999/store", ""])
def test_what_is_no_source_is_refused(text):
    with pytest.raises(MountOptionError):
        source(text, MountOptions())


def test_a_server_is_configured_with_its_lease_and_grace(tmp_path):
    text = configuration(
        ServerOptions(directory=tmp_path, state=tmp_path / "s", port=2050, lease_s=7, grace_s=9)
    )
    for line in ("Lease_Lifetime = 7;", "Grace_Period = 9;", "NFS_Port = 2050;", f'Path = "{tmp_path}";'):
        assert line in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lease_s": 0}, "lease must be from 1 to 120"),
        ({"grace_s": 500}, "grace must be from 1 to 180"),
        ({"lease_s": 20, "grace_s": 10}, "must not be shorter than the lease"),
        ({"export": "store"}, "must be /NAME"),
        ({"export": '/a"; }'}, "must not contain quotes"),
    ],
)
def test_a_server_that_would_lie_to_its_clients_is_refused(tmp_path, change, says):
    with pytest.raises(UsageError) as refused:
        ServerOptions(directory=tmp_path, state=tmp_path, port=2050, **change)
    assert says in str(refused.value)
