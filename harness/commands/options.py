"""The options that several commands have in common.

An option with the same name means the same in every command, so it is defined once.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

import click
import msgspec

from harness.history import known as findings
from harness.history import store as stores
from harness.interface import FIELDS, OWN, TestSpec, UsageError
from harness.interface.errors import choose
from harness.report.terminal import Volume, is_quiet, is_verbose, use_volume
from harness.systems import registry as systems
from harness.systems.given import HOME

Command = TypeVar("Command", bound=Callable[..., Any])

CONTEXT: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class _Finite(click.types.FloatParamType):
    """A finite number: what ``float`` reads except "nan" and "inf".

    Those pass every bound or mean no end.
    """

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class _FiniteRange(_Finite, click.FloatRange):
    """A finite number within bounds."""

    name = "number"


class _Counted(click.IntRange):
    """The number of some things."""

    name = "integer"


NUMBER: Final = _Finite()
"""The type of every option that takes a number with a fraction."""

NOT_NEGATIVE: Final = _FiniteRange(min=0)
MORE_THAN_ZERO: Final = _FiniteRange(min=0, min_open=True)
COUNT: Final = _Counted(min=1)
COUNT_OR_NONE: Final = _Counted(min=0)

_NUMBERS: Final[Mapping[Any, Any]] = {int: int, float: NUMBER}
_SPEC_FIELDS: Final = {field.name: field for field in msgspec.structs.fields(TestSpec)}

_MASTER: Final = re.compile(r"local(\[[^\]]+\])?|local-cluster\[\d+,\d+,\d+\]|(spark|k8s)://.+|yarn")
"""The masters that Spark takes.

Spark would refuse anything else itself, after the seconds of a start and in pages of output.
"""


def listed(option: str, field: str, text: str) -> Callable[[Command], Command]:
    """Return an option that takes a comma list, as ``field``; if repeated, all lists together."""
    return click.option(option, field, multiple=True, callback=_names, help=text)


def _names(_: click.Context, __: click.Parameter, lists: tuple[str, ...]) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in ",".join(lists).split(",") if name.strip()) if lists else None


def spec_option(name: str, text: str = "", *, usual: str = "") -> Callable[[Command], Command]:
    """Return the option that gives a field of a spec; None if it is not given.

    ``text`` is printed instead of the field's meaning, ``usual`` instead of its default.
    """
    field, declared = FIELDS[name], _SPEC_FIELDS[name]
    assert field.flag is not None, f"{name} is only in files"
    usual = usual or field.usual or str(declared.default).removesuffix(".0")
    text = text or (f"{field.meaning}." if declared.default is False else f"{field.meaning} [{usual}].")
    if name == "hosts":
        return click.option(
            "--hosts", "--host", name,
            multiple=True, callback=_hosts, metavar="FILE|USER@ADDRESS", help=text,
        )  # fmt: skip
    kind = get_args(declared.type)[0]  # what Annotated describes
    if get_origin(kind) is tuple:
        return listed(field.flag, name, text)
    if kind is bool:
        return click.option(field.flag, name, is_flag=True, default=None, help=text)
    number = next((_NUMBERS[type_] for type_ in (kind, *get_args(kind)) if type_ in _NUMBERS), None)
    return click.option(field.flag, name, type=number, help=text)


def spec_options() -> Callable[[Command], Command]:
    """Return the options of all fields of a spec that have one, except its name."""

    def add_options(command: Command) -> Command:
        for name in reversed([name for name, field in FIELDS.items() if field.flag and name != "name"]):
            command = spec_option(name)(command)
        return command

    return add_options


def _hosts(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...] | None:
    return tuple(host if "@" in host else str(Path(host).resolve()) for host in value) or None


def _master(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _MASTER.fullmatch(value):
        raise click.UsageError(
            f"--spark-master is {value}: it must be spark://HOST:PORT, yarn, k8s://HOST:PORT or local[CORES]"
        )
    return value


def spark_master(
    does: str = "runs the checks", otherwise: str = "all cores of this machine"
) -> Callable[[Command], Command]:
    """Return ``--spark-master``; ``does`` is what the cluster is for."""
    return click.option("--spark-master", callback=_master, help=f"Spark cluster that {does} [{otherwise}].")


def store(keeps: str = "the results") -> Callable[[Command], Command]:
    """Return ``--store``, the directory of all results, as ``root``; ``keeps`` is what it has."""
    return click.option(
        "--store",
        "root",
        type=click.Path(path_type=Path),
        default=stores.DEFAULT,
        show_default=True,
        callback=_store,
        help=f"Directory of {keeps}.",
    )


def _store(_: click.Context, __: click.Parameter, path: Path) -> Path:
    """Raise UsageError for a path that cannot be a directory, or that cannot be written to."""
    existing = next(candidate for candidate in (path, *path.absolute().parents) if os.path.lexists(candidate))
    if not existing.is_dir():
        raise UsageError(f"--store {path}: {existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"--store {path}: this user may not write into {existing}; choose another directory")
    return path


def known(
    text: str = "Accepted findings (TOML): a run whose grave findings are all accepted counts as a success.",
) -> Callable[[Command], Command]:
    """Return ``--known``, as ``accepted``: the entries of the file."""
    path = click.Path(path_type=Path)
    return click.option("--known", "accepted", metavar="PATH", type=path, callback=_accepted, help=text)


def _accepted(
    _: click.Context, __: click.Parameter, path: Path | None
) -> tuple[findings.KnownFinding, ...] | None:
    """Return the entries of a file of accepted findings.

    Raises UsageError for an unreadable file, and for an entry that names something unknown.
    """
    if path is None:
        return None
    entries = findings.load(path)
    for number, entry in enumerate(entries, 1):
        try:
            _check_entry(entry)
        except UsageError as error:
            raise UsageError(f"--known {path}: [[finding]] {number}: {error}") from None
    return entries


def _check_entry(entry: findings.KnownFinding) -> None:
    """Raise UsageError for an unknown claim, or a policy that its system does not have.

    A system that is not on this machine is no mistake: the file may serve several machines.
    """
    if entry.claim is not None:
        from harness.claims.scenarios.registry import chosen  # noqa: PLC0415 - imports Arrow

        chosen([entry.claim])
    if entry.policy is not None and entry.system in systems.names():
        choose("policy", entry.policy, systems.get(entry.system).policies)


def as_json(text: str = "Print one JSON document on standard output.") -> Callable[[Command], Command]:
    """Return ``--json``, as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def system(default: str | None = None) -> Callable[[Command], Command]:
    """Return ``--system``, with ``default`` if it is not given, and ``--system-home``."""

    def add_options(command: Command) -> Command:
        return system_name(default)(home()(command))

    return add_options


def system_name(default: str | None = None) -> Callable[[Command], Command]:
    """Return ``--system`` alone, with ``default`` if it is not given."""
    return click.option("--system", default=default, help=f"{FIELDS['system'].meaning} [{OWN}].")


def homes() -> Callable[[Command], Command]:
    """Return ``--system-home`` for a command that compares releases, as ``homes``."""
    return click.option(
        "--system-home",
        "homes",
        type=click.Path(path_type=Path),
        multiple=True,
        callback=lambda _, __, paths: tuple(str(path.expanduser()) for path in paths),
        help="Directory of the brokers' unpacked distribution; once for each release to compare.",
    )


def home() -> Callable[[Command], Command]:
    """Return ``--system-home``, for any command that may run brokers."""
    return click.option(
        "--system-home",
        type=click.Path(path_type=Path),
        expose_value=False,
        callback=_system_home,
        help="Directory of the brokers' unpacked distribution.",
    )


def _system_home(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    del context, parameter
    if path is not None:
        os.environ[HOME] = str(path.expanduser())


def settings() -> Callable[[Command], Command]:
    """Return ``--set``, as ``settings``."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NODE:PROPERTY=VALUE",
        help='Set a broker property; NODE "*" means every node. Repeatable.',
    )


def volume() -> Callable[[Command], Command]:
    """Return ``--quiet`` and ``--verbose``; they act while the command runs, and are not passed."""
    quiet = click.option(
        "--quiet", "-q",
        is_flag=True, expose_value=False, callback=_set_volume,
        help="Print only the verdict, the findings and where the report is.",
    )  # fmt: skip
    verbose = click.option(
        "--verbose", "-v",
        is_flag=True, expose_value=False, callback=_set_volume,
        help="Print every step, every change of a broker and all rows of a finding.",
    )  # fmt: skip
    return lambda command: quiet(verbose(command))


_VOLUMES: Final = {"quiet": Volume.QUIET, "verbose": Volume.VERBOSE}


def _set_volume(context: click.Context, parameter: click.Parameter, is_given: bool) -> None:
    if not is_given or parameter.name is None:
        return
    is_contradicted = {"quiet": is_verbose, "verbose": is_quiet}
    if is_contradicted[parameter.name]():
        raise UsageError("--quiet and --verbose: give only one of them")
    context.with_resource(use_volume(_VOLUMES[parameter.name]))


EXPLORING: Final = ("root", "jobs", "spark_master", "as_json")
"""The options of a search and a sweep besides their plan and the directory to continue."""


def exploring(noun: str, more: str, does: str, otherwise: str) -> Callable[[Command], Command]:
    """Return the options of ``EXPLORING``, and ``--resume``.

    ``more`` are the options that may be given with ``--resume``; ``does`` and ``otherwise`` are
    arguments of ``spark_master``.
    """
    resume = click.option(
        "--resume",
        "store",
        type=click.Path(path_type=Path),
        help=f"Continue the {noun} in this directory; {more}.",
    )
    jobs = click.option(
        "--jobs",
        type=COUNT,
        callback=lambda _, __, value: value or cores(),
        help="Number of processes that simulate runs [one for each processor].",
    )

    def add(command: Command) -> Command:
        return resume(jobs(spark_master(does, otherwise)(store()(as_json()(command)))))

    return add


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resumed(store: Path, fields: Mapping[str, Any]) -> Path:
    """Return the directory of ``--resume``; raise UsageError if anything else is ``fields``."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in fields:
            raise UsageError(
                f"{parameter.opts[0]} cannot be changed with --resume, because the stored runs were made "
                f"without it; start a new {context.command.name}"
            )
    return store.resolve() if store.is_symlink() else store  # "latest" may point elsewhere tomorrow
