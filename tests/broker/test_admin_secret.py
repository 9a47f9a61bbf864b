"""The file of the admin port's secret.

Only its owner may read it, and what is in it counts without white space.
"""

import pytest

from broker import config
from broker.admin_secret import secret_of

MAKE = r"make a secret: \(umask 077; openssl rand -hex 24 > "


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        (b"secret\n", 0o644, r"admin.secret-file: others can read .*the-secret \(mode 644\): chmod 600"),
        (b"secret\n", 0o640, r"others can read .* \(mode 640\)"),
        (b" \n", 0o600, "admin.secret-file: .* is empty; " + MAKE),
        (b"\xff\xfe", 0o600, "the-secret is empty; " + MAKE),
        (None, 0o600, "the-secret cannot be read: No such file or directory; " + MAKE),
    ],
)
def test_what_is_wrong_with_it_is_one_line(content, mode, problem, tmp_path):
    with pytest.raises(config.ConfigurationError, match=problem) as caught:
        secret_of(_with_file(tmp_path, content, mode))
    assert "\n" not in str(caught.value)


def test_it_is_read_beside_the_configuration(tmp_path):
    assert secret_of(_with_file(tmp_path, b" secret \n", 0o600)) == "secret"


def _with_file(directory, content, mode):
    path = directory / "the-secret"
    if content is not None:
        path.touch(mode=0o600)
        path.write_bytes(content)
        path.chmod(mode)
    table = {"broker": {"name": "a1"}, "admin": {"secret-file": "the-secret"}}
    return config.validate(table, str(directory / "broker.toml"))
