"""``jepsen-run``: the command line.

A nightly job reads only the exit status: 0 valid, 1 invalid, 2 unknown, 254 wrong usage, 255 a bug
of jepsen-run, 130 interrupted. A command that judges several runs exits with the most serious
status of them: 1 before 255 before 254 before 2.
"""

from __future__ import annotations

import io
import os
import resource
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

import click
from click.shell_completion import CompletionItem

from harness import __version__
from harness.commands import completion, options
from harness.commands.check import check_command
from harness.commands.claims import claims_command
from harness.commands.clean import clean_command
from harness.commands.conformance import conformance_command
from harness.commands.importing import import_command
from harness.commands.list import list_command
from harness.commands.replay import replay_command
from harness.commands.search import search_command
from harness.commands.serve import serve_command
from harness.commands.shrink import shrink_command
from harness.commands.summary import summary_command
from harness.commands.sweep import sweep_command
from harness.commands.test import test_command
from harness.history import judge as judging
from harness.interface import InfrastructureError, UsageError
from harness.interface.errors import exhausted, near
from harness.report.terminal import VisibleStream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

DEFAULT_COMMAND: Final = "test"
OPEN_FILES: Final = 65_536


class _Group(click.Group):
    """A group of commands that runs ``test`` if no command is named.

    ``jepsen-run --nemesis kill`` is ``jepsen-run test --nemesis kill``.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        completes_first_word = not args and ctx.resilient_parsing
        if not completes_first_word and (
            not args or (args[0].startswith("-") and args[0] not in {"--help", "-h", "--version"})
        ):
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return commands, or options; those of ``test`` can be given without its name."""
        offered = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            default = self.commands[DEFAULT_COMMAND]
            known_names = {item.value for item in offered}
            with default.make_context(DEFAULT_COMMAND, [], parent=ctx, resilient_parsing=True) as context:
                offered += [
                    item
                    for item in default.shell_complete(context, incomplete)
                    if item.value not in known_names
                ]
        return offered

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f'unknown command "{args[0]}": {near(args[0], self.commands)}')
        return super().resolve_command(ctx, args)


def _show_version(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given and not ctx.resilient_parsing:
        click.echo(f"jepsen-run {__version__}")
        ctx.exit()


@click.group(cls=_Group, context_settings=options.CONTEXT)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Break a broker's cluster on purpose; decide if a message was lost, duplicated or reordered.

    Without a command, jepsen-run runs a test: "jepsen-run --nemesis partition --policy
    replication". "jepsen-run test --help" shows its options. The systems, policies, nemeses and
    workloads are shown by "jepsen-run list".
    """


for _command in (
    test_command,
    search_command,
    replay_command,
    sweep_command,
    claims_command,
    shrink_command,
    check_command,
    import_command,
    summary_command,
    conformance_command,
    list_command,
    serve_command,
    clean_command,
):
    completion.install(_command)
    cli.add_command(_command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status; print an error in it as one line."""
    try:
        status = cli.main(
            args=list(arguments) if arguments is not None else None,
            prog_name="jepsen-run",
            standalone_mode=False,
        )
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _complain("interrupted", judging.INTERRUPTED)
    except click.ClickException as error:
        return _complain(error.format_message(), judging.USAGE)
    except UsageError as error:
        return _complain(str(error), judging.USAGE)
    except InfrastructureError as error:
        return _complain(f"unknown: {error}", judging.UNKNOWN)
    except SystemExit as ended:
        # Completion for a shell ends with status 0. When nobody reads the output any more, click
        # exits with status 1, which here would mean "invalid".
        return judging.VALID if ended.code == 0 else judging.UNKNOWN
    except Exception as error:  # noqa: BLE001 - the last place to tell a bug from a verdict
        spent = exhausted(error)
        if spent is not None:
            return _complain(f"unknown: {spent}", judging.UNKNOWN)
        traceback.print_exc()
        return _complain(
            "internal error: this is a bug of jepsen-run and says nothing about the brokers; please "
            "report it with the lines above",
            judging.INTERNAL,
        )
    return status if isinstance(status, int) else judging.VALID


def _complain(message: str, status: int) -> int:
    print(f"jepsen-run: {message}", file=sys.stderr, flush=True)
    return status


class _Unread(io.FileIO):
    """An output that may have no reader: ``| head``, a closed terminal, a full disk.

    What cannot be written is dropped: it must not end a run.
    """

    dropped = False

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            self.dropped = True
            return memoryview(data).nbytes


def _for_any_reader(stream: TextIO | None) -> TextIO:
    """Return a standard stream that outlives its reader and can print any text.

    It shows control characters in names instead of obeying them, and writes letters that the
    encoding lacks as escapes. For a closed stream, returns one that drops its output.
    """
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    raw = io.BufferedWriter(_Unread(stream.fileno(), "w", closefd=False))
    return VisibleStream(raw, encoding=stream.encoding, errors="backslashreplace", line_buffering=True)


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    _open_standard_streams()
    _allow_many_files()
    sys.stdout, sys.stderr = _for_any_reader(sys.stdout), _for_any_reader(sys.stderr)
    status = run()
    sys.stdout.flush()
    if status == judging.VALID and _dropped(sys.stdout):
        status = judging.UNKNOWN
    sys.exit(status)


def _open_standard_streams() -> None:
    """Open closed standard streams on the null device.

    Otherwise the next file or socket that is opened gets the number of a standard stream. Code that
    writes to that stream, or closes it, would then hit that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number, which is this one


def _allow_many_files() -> None:
    """Raise the limit of open files of this process, and of those it starts, as far as it may.

    A test of a few brokers on this machine has hundreds of connections, and shells start with a
    limit of 1,024 or less.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _dropped(stream: TextIO) -> bool:
    """Return whether some output was dropped: the exit status must not report success then."""
    raw = getattr(stream.buffer, "raw", None)
    return isinstance(raw, _Unread) and raw.dropped


if __name__ == "__main__":
    main()
