"""``brokerctl``: look at a broker, and tell it to stop or to purge a queue.

Tables for people, the admin port's JSON with ``--json``. Exit status: 0 done, 1 the broker refused,
2 nobody answers, 254 wrong usage.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from broker import change_ctl, queue_manager_ctl
from broker.admin_client import BrokerRefusedError, NobodyAnswersError, Target, ask
from broker.admin_secret import read_secret, secret_of
from broker.config import EXIT_USAGE, BrokerConfig, ConfigurationError, load
from broker.confirmation import confirmed
from broker.database_tool.command import database
from broker.filesystem_check.basic import BasicCheck
from broker.filesystem_check.calls import Calls
from broker.filesystem_check.concurrent import ConcurrentCheck
from broker.filesystem_check.lock_wait import lock_wait
from broker.filesystem_check.mounts import mount_table
from broker.journal_ctl import journal
from broker.masking import mask
from broker.policies.registry import messages_in
from broker.sections import LIMIT_BEHAVIORS, AdminSection

EXIT_REFUSED: Final = 1
EXIT_NOBODY: Final = 2
Column = str | Callable[[Mapping[str, Any]], str]
"""What a column of a table shows: a field, or what is made of all."""
NODE_ID: Final[Mapping[str, Column]] = {"NODE ID": "node-id"}
_COUNTS: Final[Mapping[str, Column]] = {"CONSUMERS": "consumers", "MESSAGES": "messages"}
_DESTINATION: Final[Mapping[str, Column]] = {
    "NAME": "name",
    "TYPE": "type",
    "STATE": "state",
    **_COUNTS,
    "UNACKNOWLEDGED": "unacknowledged",
    "BYTES": "bytes",
}
_DURABLE: Final[Mapping[str, Column]] = {
    "NAME": "name",
    "CLIENT ID": "client-id",
    "LOGIN": "login",
    "TOPIC": "topic",
    "STATE": "state",
    **_COUNTS,
    "QUEUE": "queue",
}
SECRET_FILE_VARIABLE: Final = "BROKERCTL_SECRET_FILE"  # noqa: S105 - the name of a variable


class _Target(click.ParamType):  # type: ignore[type-arg]
    """HOST:PORT, or the port alone."""

    name = "host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, separator, port = str(value).rpartition(":")
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            self.fail(f"{value!r} is not HOST:PORT with a port from 1 to 65535", param, ctx)
        return (host.strip("[]") if separator else "127.0.0.1"), int(port)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--admin",
    "target",
    type=_Target(),
    metavar="HOST:PORT",
    help="The broker's admin address  [default: 127.0.0.1:61612]",
)
@click.option(
    "--config", "path", type=click.Path(), help="Take the admin address and the secret from this broker.toml."
)
@click.option(
    "--secret-file",
    "secret_file",
    type=click.Path(path_type=Path),
    help="The file that holds the broker's admin secret  [default: that of --config, else "
    f"${SECRET_FILE_VARIABLE}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.pass_context
def command(
    context: click.Context,
    target: tuple[str, int] | None,
    path: str | None,
    secret_file: Path | None,
    as_json: bool,
) -> None:
    """Look at a broker and steer it, through its admin port."""
    config = load(path, alone=True) if path is not None else None
    if target is None:
        section = AdminSection() if config is None else config.admin
        target = ("127.0.0.1" if section.host in ("0.0.0.0", "::") else section.host), section.port
    context.obj = Target(*target, _secret(secret_file, config)), as_json


def _secret(given: Path | None, config: BrokerConfig | None) -> str | None:
    """Never from the command line or the environment itself: others can read those."""
    if given is not None:
        return read_secret(given, "--secret-file")
    if config is not None:
        return secret_of(config)
    named = os.environ.get(SECRET_FILE_VARIABLE)
    return read_secret(Path(named), SECRET_FILE_VARIABLE) if named else None


@command.command()
@click.pass_obj
def status(obj: tuple[Target, bool]) -> None:
    """Role, node ID, replication, peers, and queues with their counts."""
    answer = _asked(obj, "status")
    if answer is None:
        return
    rows = [
        ("name", answer["name"]),
        ("role", answer["role"]),
        ("node ID", answer["node-id"] or "-"),
        ("policy", f"{answer.get('policy', '-')} ({answer.get('configured', '-')})"),
        ("replicating", _replication(answer)),
    ]
    if answer.get("master-broker"):
        rows.append(("master broker", f"{answer['master-broker']}, linked: {_yes(answer['master-linked'])}"))
    if answer.get("group-name"):
        rows.append(("group", answer["group-name"]))
    rows += queue_manager_ctl.rows(answer)
    _print_table((), rows)
    if answer.get("peers"):
        print()
        _print_columns({"PEER": "name", "ROLE": "role", "LINKED": _linked, **NODE_ID}, answer["peers"])
    if answer["queues"]:
        print()
        counts = ("store", "messages", "paged", "unacknowledged", "consumers", "bytes")
        _print_columns({"QUEUE": "name", **{name.upper(): name for name in counts}}, answer["queues"])


@command.command(name="list")
@click.argument("what", type=click.Choice(["brokers", "destinations", "durables"]), default="brokers")
@click.pass_obj
def list_(obj: tuple[Target, bool], what: str) -> None:
    """The brokers of the cluster, or the destinations or durable subscriptions of this broker."""
    if what != "brokers":
        rows = _asked(obj, what, part=what)
        if rows is not None:
            _print_columns(_DESTINATION if what == "destinations" else _DURABLE, rows)
        return
    at, as_json = obj
    answer = asyncio.run(ask(at, "brokers"))
    if as_json:
        _print_json(answer["brokers"])
        return
    cluster = answer["cluster"]
    print("Listing all the brokers in the cluster that the following broker is a member of:\n")
    broker = {"host": at.host, "port": at.port, **cluster}
    _print_columns({"HOST": "host", "ADMIN PORT": "port", "BROKER": "name", "ADDRESS": "address"}, [broker])
    print()
    facts = [("Cluster ID", cluster["cluster-id"])] if cluster["cluster-id"] else []
    _print_table((), [*facts, ("Cluster Is Highly Available", str(cluster["highly-available"]))])
    print()
    columns: dict[str, Column] = {"BROKER": "name", "ROLE": "role", "GROUP": "group-name", "LINKED": _linked}
    columns |= {"ADDRESS": "connector", "STATE": _state}
    _print_columns({**columns, **NODE_ID}, answer["brokers"])


@command.command()
@click.argument("destination")
@click.pass_obj
def query(obj: tuple[Target, bool], destination: str) -> None:
    """All that this broker says of DESTINATION, a queue or /topic/NAME."""
    answer = _asked(obj, "query", destination=destination)
    if answer is not None:
        _print_table((), [*answer["destination"].items()])
        print()
        _print_table(("SETTING", "VALUE"), [*answer["settings"].items()])


@command.command()
@click.argument("destination")
@click.option("--producers", is_flag=True, help="Sends to it wait; consumers go on.")
@click.option("--consumers", is_flag=True, help="Nothing is delivered from it; producers go on.")
@click.pass_obj
def pause(obj: tuple[Target, bool], destination: str, *, producers: bool, consumers: bool) -> None:
    """Pause DESTINATION, a queue or /topic/NAME, at this broker until resume or its restart.

    Without an option it is paused for both.
    """
    chosen = [side for side, is_chosen in (("producers", producers), ("consumers", consumers)) if is_chosen]
    answer = _asked(obj, "pause", destination=destination, sides=chosen or None)
    if answer is not None:
        print(f"{destination}: {answer['state']}")


@command.command()
@click.argument("destination")
@click.pass_obj
def resume(obj: tuple[Target, bool], destination: str) -> None:
    """End the pause of DESTINATION."""
    answer = _asked(obj, "resume", destination=destination)
    if answer is not None:
        print(f"{destination}: {answer['state']}")


@command.command()
@click.argument("queue")
@click.option("--max-messages", type=int, metavar="N", help="Messages that it may have; -1: no limit.")
@click.option("--limit-behavior", type=click.Choice(LIMIT_BEHAVIORS), help="What a send without room does.")
@click.pass_obj
def update(
    obj: tuple[Target, bool], queue: str, max_messages: int | None, limit_behavior: str | None
) -> None:
    """Give QUEUE other limits at this broker, until the queue is deleted."""
    if max_messages is None and limit_behavior is None:
        raise click.UsageError("a limit is missing: --max-messages or --limit-behavior")
    limits: dict[str, Any] = {"max-messages": max_messages, "limit-behavior": limit_behavior}
    answer = _asked(obj, "update", destination=queue, **limits)
    if answer is not None:
        print(f"{queue}: {', '.join(f'{name} {value}' for name, value in answer['limits'].items())}")


@command.command()
@click.argument("queue", required=False)
@click.pass_obj
def browse(obj: tuple[Target, bool], queue: str | None) -> None:
    """Stored messages, of all queues or of QUEUE; nothing is consumed."""
    messages = _asked(obj, "browse", part="messages", queue=queue)
    columns = {name.upper(): name for name in ("store", "queue", "group", "deliveries")}
    if messages is not None:
        _print_columns({**columns, "BODY": _preview}, messages)


@command.command()
@click.option(
    "--failover/--no-failover",
    default=None,
    help="Whether the backup takes over; without it failover-on-shutdown decides.",
)
@click.pass_obj
def stop(obj: tuple[Target, bool], failover: bool | None) -> None:
    """Stop the broker cleanly."""
    if _asked(obj, "stop", failover=failover) is not None:
        print(f"the broker at {obj[0]} stops")


@command.command(name="mask")
def mask_() -> None:
    """Print a password, read from a prompt or standard input, as ENC(...) for broker.toml."""
    if sys.stdin.isatty():
        text = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        text = sys.stdin.readline().rstrip("\n")
    if not text:
        raise click.UsageError("no password was given")
    print(mask(text, os.environ))


@command.command()
@click.pass_obj
def members(obj: tuple[Target, bool]) -> None:
    """The brokers of a high-availability cluster, as the shared store knows them."""
    answer = _asked(obj, "members")
    if answer is None:
        return
    print(f"cluster {answer['cluster-id']}, asked at broker {answer['broker-id']}")
    columns = {"BROKER ID": "broker-id", "ADDRESS": "address", "STATE": "state", "MESSAGES": "messages"}
    _print_columns({**columns, "TAKEN OVER BY": "taker", "LAST TIMESTAMP": _silence}, answer["members"])


@command.command()
@click.option("--undo", is_flag=True, help="Take in clients again.")
@click.pass_obj
def quiesce(obj: tuple[Target, bool], undo: bool) -> None:
    """Take in no new clients and serve the old ones; no other broker takes over."""
    answer = _asked(obj, "unquiesce" if undo else "quiesce")
    if answer is not None and undo:
        print(f"the broker at {obj[0]} takes in clients again")
    elif answer is not None:
        print(f"the broker at {obj[0]} takes in no new clients; {answer['connections']} are connected")


@command.command()
@click.option("-n", "broker_id", required=True, metavar="ID", help="The broker to take over from.")
@click.option("-f", "force", is_flag=True, help="Ask nothing, however alive it seems.")
@click.pass_obj
def takeover(obj: tuple[Target, bool], broker_id: str, force: bool) -> int:
    """Let this broker take over from another one; for a takeover that failed."""
    at, as_json = obj
    answer = asyncio.run(ask(at, "takeover", broker_id=broker_id, force=force))
    if "confirm" in answer:
        print(answer["confirm"], file=sys.stderr)
        if not confirmed("Do you want to take over for this broker?"):
            return EXIT_REFUSED
        answer = asyncio.run(ask(at, "takeover", broker_id=broker_id, force=True))
    if as_json:
        _print_json(answer)
    else:
        print(f"{broker_id}: {answer['state']}, by {answer['taker']}")
    return 0


@command.command()
@click.argument("what", type=click.Choice(["cls"]))
@click.pass_obj
def reload(obj: tuple[Target, bool], what: str) -> int:
    """Read the list of brokers of a conventional cluster again (reload cls).

    With a cluster file, all other brokers that are linked read it, too.
    """
    del what
    answer = asyncio.run(ask(obj[0], "reload"))
    if obj[1]:
        _print_json(answer)
    else:
        print(f"the brokers of the cluster are now {', '.join(answer['brokers'])}")
    failed = {address: problem for address, problem in answer["told"].items() if problem}
    for address, problem in failed.items():
        print(f"brokerctl: {address} has not read the list: {problem}", file=sys.stderr)
    if untold := [address for address, problem in answer["told"].items() if problem is None]:
        print(
            f"brokerctl: {', '.join(untold)} was not told: it reads the list when it starts, or if you run "
            "brokerctl reload cls there",
            file=sys.stderr,
        )
    return EXIT_REFUSED if failed else 0


@command.command()
@click.argument("queue")
@click.pass_obj
def purge(obj: tuple[Target, bool], queue: str) -> None:
    """Delete the messages of QUEUE that no consumer holds."""
    answer = _asked(obj, "purge", queue=queue)
    if answer is not None:
        print(f"{answer['purged']} messages purged from {queue}")


@command.command()
@click.argument("queue")
@click.pass_obj
def create(obj: tuple[Target, bool], queue: str) -> None:
    """Make QUEUE, for brokers whose clients may not (auto-create-queues).

    In a conventional cluster with a master broker it is made at all brokers.
    """
    answer = _asked(obj, "create", queue=queue)
    if answer is not None:
        print(f"{queue} {'is made' if answer['created'] else 'was there'}")


@command.command()
@click.argument("queue")
@click.option(
    "--remove-consumers", is_flag=True, help="Even if it has consumers: their connections are closed."
)
@click.option("--remove-messages", is_flag=True, help="Even if it has messages: they are gone.")
@click.pass_obj
def delete(obj: tuple[Target, bool], queue: str, remove_consumers: bool, remove_messages: bool) -> None:
    """Delete QUEUE, which must be empty and without consumers.

    In a conventional cluster with a master broker, one that "create" made is deleted at all
    brokers, and so is a durable subscription, whose QUEUE "status" shows.
    """
    answer = _asked(
        obj, "delete", queue=queue, remove_consumers=remove_consumers, remove_messages=remove_messages
    )
    if answer is not None:
        print(f"{queue} is deleted, and {answer['purged']} messages with it")


@command.command()
@click.pass_obj
def transactions(obj: tuple[Target, bool]) -> None:
    """Transactions over several brokers that wait for their coordinator, or for participants."""
    answer = _asked(obj, "transactions")
    if answer is None:
        return
    columns: dict[str, Column] = {"PREPARED": "id", "AGE": _age, "MESSAGES": "messages"}
    _print_columns({**columns, "COORDINATOR": "coordinator", "LINKED": "linked"}, answer["prepared"])
    if answer["decided"]:
        print()
        _print_columns(
            {"COMMITTED": "id", "AGE": _age, "PARTICIPANTS": lambda one: ", ".join(one["participants"])},
            answer["decided"],
        )


@command.command(name="commit-transaction")
@click.argument("transaction", metavar="ID")
@click.pass_obj
def commit_transaction(obj: tuple[Target, bool], transaction: str) -> None:
    """Commit the prepared transaction ID, because its coordinator is gone for good."""
    _end_transaction(obj, "commit-transaction", transaction)


@command.command(name="roll-back-transaction")
@click.argument("transaction", metavar="ID")
@click.pass_obj
def roll_back_transaction(obj: tuple[Target, bool], transaction: str) -> None:
    """Roll back the prepared transaction ID, because its coordinator is gone for good."""
    _end_transaction(obj, "roll-back-transaction", transaction)


def _end_transaction(obj: tuple[Target, bool], what: str, transaction: str) -> None:
    answer = _asked(obj, what, transaction=transaction)
    if answer is not None:
        print(f"transaction {transaction} is {answer['outcome']} at this broker")


@command.command(name="check-filesystem")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "-c",
    "concurrent",
    is_flag=True,
    help="Check two hosts against each other: run it on both with the same directory.",
)
@click.option(
    "-w",
    "wait",
    is_flag=True,
    help="Take a lock and keep it until Enter, or wait for the host that has it.",
)
@click.option("-v", "verbose", is_flag=True, help="Print each system call.")
@click.pass_obj
def check_filesystem(
    obj: tuple[Target, bool], directory: Path, *, concurrent: bool, wait: bool, verbose: bool
) -> int:
    """Check whether brokers can share a store in DIRECTORY; needs no broker.

    Exit status 0: all tests passed; 1: a test failed, and is named.
    """
    if concurrent and wait:
        raise click.UsageError("-c and -w are different checks: give one")
    as_json = obj[1]

    def say(line: str) -> None:
        click.echo(line, err=as_json)

    calls = Calls(say if verbose else lambda _: None)
    if concurrent:
        results = asyncio.run(ConcurrentCheck(directory, calls, say).run())
    elif wait:
        results = asyncio.run(lock_wait(directory, calls, say, _enter))
    else:
        results = asyncio.run(BasicCheck(directory, calls, mount_table(), os.environ).run())
    failed = [result for result in results if not result.passed]
    if as_json:
        tests = [
            {
                "test": r.test,
                "passed": r.passed,
                "problem": r.problem,
                "remedy": r.remedy if r.problem else "",
            }
            for r in results
        ]
        _print_json({"directory": str(directory), "passed": not failed, "tests": tests})
        return EXIT_REFUSED if failed else 0
    for result in results:
        if verbose and result.passed:
            print(f"passed: {result.test}")
        if not result.passed:
            print(
                f"FAILED: {result.test}: {result.problem}" + (f"; {result.remedy}" if result.remedy else "")
            )
    print(
        f"{len(failed)} of {len(results)} tests on the directory failed: do not keep a shared store there."
        if failed
        else "The tests on the directory completed successfully."
    )
    return EXIT_REFUSED if failed else 0


for other in (queue_manager_ctl.display, queue_manager_ctl.end, database, journal, *change_ctl.COMMANDS):
    command.add_command(other)


def _asked(obj: tuple[Target, bool], what: str, *, part: str | None = None, **arguments: Any) -> Any:
    """The answer to a command, or a part of it; None when it was printed, as ``--json`` wants."""
    at, as_json = obj
    answer: Any = asyncio.run(ask(at, what, **arguments))
    if part is not None:
        answer = answer[part]
    if not as_json:
        return answer
    _print_json(answer)
    return None


async def _enter() -> None:
    """Return when Enter is pressed, or nobody can press it any more."""
    loop = asyncio.get_running_loop()
    pressed = asyncio.Event()
    try:
        loop.add_reader(sys.stdin, pressed.set)
    except OSError:  # a file is always ready, and cannot be waited for
        return
    await pressed.wait()
    loop.remove_reader(sys.stdin)


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script."""
    try:
        status = command.main(
            args=None if arguments is None else list(arguments), prog_name="brokerctl", standalone_mode=False
        )
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
    except (click.ClickException, ConfigurationError, NobodyAnswersError, BrokerRefusedError) as error:
        # One line, also if click lists the choices of an argument below each other.
        told = str(error) if not isinstance(error, click.ClickException) else error.format_message()
        told = told.replace("\n\t", " ")
        print(f"brokerctl: {told}", file=sys.stderr)
        if isinstance(error, NobodyAnswersError):
            return EXIT_NOBODY
        return EXIT_REFUSED if isinstance(error, BrokerRefusedError) else EXIT_USAGE
    except click.Abort:
        return EXIT_REFUSED
    else:
        return status if isinstance(status, int) else 0
    return 0


def _replication(answer: dict[str, Any]) -> str:
    place = messages_in(answer.get("policy"))
    if place and answer["role"] != "backup":
        return f"not needed: messages are in {place}"
    if answer["role"] in ("live", "suspended", "voting", "stopping"):
        if answer["replicating"]:
            return f"yes, to {answer['backup']}"
        backup = answer.get("backup")
        return (
            f"not yet: {backup} synchronizes" if backup else "no: what is acknowledged is on this disk only"
        )
    return "up to date" if answer["replicating"] else "not up to date: cannot take over"


def _linked(broker: Mapping[str, Any]) -> str:
    return _yes(broker.get("linked", True))


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _state(broker: Mapping[str, Any]) -> str:
    """Return a broker's state in the words of Open MQ: what is not linked is not known."""
    if not broker.get("linked", True):
        return "*unknown"
    return "OPERATING" if broker["role"] == "live" else str(broker["role"]).upper()


def _silence(member: Mapping[str, Any]) -> str:
    return f"{member['silence-ms'] / 1000:.0f} s ago"


def _age(transaction: Mapping[str, Any]) -> str:
    return f"{transaction['age-ms'] / 1000:.0f} s"


def _preview(message: Mapping[str, Any]) -> str:
    text = base64.b64decode(message["body"]).decode("utf-8", "replace")
    return repr(text if len(text) <= 60 else text[:57] + "...")[1:-1]


def _print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def _print_columns(columns: Mapping[str, Column], told: Sequence[Mapping[str, Any]]) -> None:
    """A table of what was told; what is not there, or empty, is a hyphen."""
    rows = [[_cell(column, one) for column in columns.values()] for one in told]
    _print_table(tuple(columns), rows)


def _cell(column: Column, one: Mapping[str, Any]) -> object:
    value = one.get(column) if isinstance(column, str) else column(one)
    return "-" if value in (None, "") else value


def _print_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    lines = [[str(cell) for cell in row] for row in ([heads, *rows] if heads else rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
