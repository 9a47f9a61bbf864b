"""The command line: one clear line for what is wrong, and exit statuses that a nightly job can
trust.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import harness
from harness.commands import catalogue, cli
from harness.explore import plans
from harness.history import judge
from harness.history import store as stores
from harness.history.rows import MemoryRecorder
from harness.interface import Fault, InfrastructureError, Schedule, TestSpec, UsageError
from harness.report import terminal
from harness.run import reproduction, session
from harness.systems import given, runtime
from harness.systems import registry as systems
from harness.systems.artemis import distribution
from harness.systems.artemis.system import ArtemisSystem
from harness.systems.openmq.system import OpenmqSystem
from harness.systems.rabbitmq.system import RabbitmqSystem
from nemesis import registry as kinds
from nemesis import schedule as schedules

ROOT = Path(__file__).parents[2]


def run(capsys, *words):
    """(exit status, standard output, standard error) of one command line in this process."""
    status = cli.run(words)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--nemsis", "kill"], "No such option '--nemsis'. Did you mean '--nemesis'?"),
        (["chekc", "store"], 'unknown command "chekc": did you mean "check"?'),
        (["--pairs", "three"], "'three' is not a valid integer"),
        (["--pairs", "0"], "--pairs is 0: it must be at least 1"),
        (["--guarantee", "exactly-twice"], 'did you mean "exactly-once"?'),
        (
            ["--policy", "shared-store", "--compare-backups"],
            "--compare-backups: backups of system own with policy shared-store have no copies of their own",
        ),
        (
            ["--workload", "queue", "--select-by-pair"],
            "--select-by-pair: only the consumers of workload selectors select messages of queues",
        ),
        *(
            (["--workload", "selectors", "--select-by-pair", *alone], "let those of two pairs consume")
            for alone in (["--pairs", "1"], ["--consume-at", "b1,b2"])
        ),
        (
            ["--system", "rabbitmq", "--policy", "quorum-queues", "--watch-views"],
            "--watch-views: brokers of system rabbitmq do not report what they believe about the cluster",
        ),
        (
            ["--policy", "standalone", "--workload", "subscriptions", "--chain", "--share-topics"],
            "--share-topics: brokers share topics and forward replies where they are linked, and in a chain",
        ),
        *(
            (
                ["--policy", "standalone", "--workload", "queue", option],
                f"{option}: only the clients of workload",
            )
            for option in ("--share-topics", "--share-replies")
        ),
        (["--master", "a1"], "with policy replication have no master broker"),
        (
            ["--policy", "conventional", "--pairs", "2", "--master", "c1"],
            "--master c1: no node of this test has that name: a1, b1",
        ),
        (["--chain"], "--chain: brokers of system own with policy replication cannot form a chain"),
        (["--policy", "replicaton"], 'unknown policy "replicaton": did you mean "replication"?'),
        (["--policy", "nonsense"], 'unknown policy "nonsense": system own has replication, shared-store,'),
        (["--system", "onw"], 'unknown system "onw": did you mean "own"?'),
        (["search", "--system", "onw"], 'unknown system "onw": did you mean "own"?'),
        (["sweep", "--system", "onw"], 'unknown system "onw": did you mean "own"?'),
        (["list", "--system", "onw"], 'unknown system "onw": did you mean "own"?'),
        (["claims", "RP1", "--system", "onw"], 'unknown system "onw": did you mean "own"?'),
        (["--system", "classic"], "system classic has several policies: give --policy shared-store, jdbc"),
        (["sweep", "--system", "classic"], "several policies: give --policy shared-store, jdbc"),
        (["search", "--system", "classic"], "several policies: give --policy shared-store, jdbc"),
        (["search", "--time-limit", "nan"], "'--time-limit': nan is not a finite number"),
        (["search", "--time-limit", "inf"], "'--time-limit': inf is not a finite number"),
        (["search", "--shrink", "nan"], "'--shrink': nan is not a finite number"),
        (["search", "--time-limit", "-1"], "-1.0 is not in the range x>0"),
        (["--nemesis", "partiton"], 'unknown nemesis "partiton": did you mean "partition"?'),
        (["--workload", "group"], 'unknown workload "group": did you mean "groups"?'),
        (["--environment", "dokcer"], 'unknown environment "dokcer": did you mean "docker"'),
        (["search", "--time-limit", "x"], "'x' is not a valid number"),
        (["claims", "XX9"], "there are the families CL, CO, "),
        (["--set", "acceptor.connection-ttl=3"], "is not NODE:property=value"),
        (
            ["conformance", "--environment", "simulation"],
            "conformance needs real time: use local, docker or ssh",
        ),
        (["--set", "*:acceptor.conection-ttl=3"], "did you mean 'acceptor.connection-ttl'?"),
        (
            ["--set", "*:acceptor.ssl-enabled=true"],
            "acceptor.ssl-enabled wants acceptor.key-store-path",
        ),
        (
            ["--policy", "shared-store", "--set", "*:ha-policy.replication.backup-vote=reachability"],
            "ha-policy has replication and shared-store: a broker has one policy",
        ),
        (["--spec", "/nonexistent/spec.json"], "/nonexistent/spec.json cannot be read"),
        (["--schedule", "/nonexistent/s.json"], "/nonexistent/s.json cannot be read"),
        (["check"], "Missing argument 'PATH...'"),
        (["check", "/nonexistent"], "/nonexistent does not exist"),
        (["list", "surplus"], "unexpected extra argument"),
        (["--nemesis", "kill", "--shape", "pair-link"], "--shape pair-link: --nemesis kill has no shapes"),
        (["--nemesis", "partition", "--target", "live"], "--target live: --nemesis partition has no targets"),
        (["--target", "live"], "--target live: a test without --nemesis has no targets"),
        (
            ["--nemesis", "hook"],
            "hook: a command of yours runs, and another one undoes it (--attach): give the file that has it",
        ),
        (["--store", "/dev/null/store"], "--store /dev/null/store: /dev/null is not a directory"),
        (["search", "--store", "/dev/null"], "--store /dev/null: /dev/null is not a directory"),
        (["search", "--length", "-1"], "'--length': -1.0 is not in the range x>0"),
        (["search", "--nemesis", "nfs-stall"], "nfs-stall with --policy replication: no broker of this test"),
        (
            ["--policy", "standalone", "--pairs", "2", "--drain-at", "a1,d1"],
            "--drain-at d1: there is no node d1; the brokers are a1, b1",
        ),
        (
            ["--policy", "ha-database", "--workload", "queue,subscriptions", "--produce-at", "a1"],
            "--workload subscriptions: brokers of pairs do not share its topics or temporary queues; name",
        ),
        (["search", "--nemesis", "hook"], "hook: --environment simulation cannot do it: this environment"),
        (
            ["sweep", "--policy", "shared-store,replication", "--nemesis", "nfs-stall"],
            "nfs-stall with --policy replication: no broker of this test",
        ),
        (
            ["sweep", "--environment", "local", "--nemesis", "clock-skew"],
            "clock-skew: --environment local cannot do it: brokers share this machine's clock",
        ),
        (["claims", "RP1", "--environment", "dokcer"], 'unknown environment "dokcer": did you mean "docker"'),
    ],
)
def test_wrong_usage_is_one_line_and_status_254(capsys, tmp_path, words, complaint):
    status, out, err = run(capsys, *words)
    assert status == 254
    assert out == ""
    assert err.startswith("jepsen-run: ")
    assert err.count("\n") == 1
    assert complaint.replace(":", "").lower() in err.replace(":", "").lower()


@pytest.mark.parametrize("asked", ["kill", "kill,partition"])
def test_a_nemesis_beside_a_schedule_of_others_is_refused(capsys, tmp_path, asked):
    """What a schedule says is done, so a nemesis that it has not would be left out silently."""
    file = tmp_path / "schedule.json"
    schedules.save(Schedule(faults=(Fault(kind="partition", start_s=1.0),)), file)
    status, _, err = run(capsys, "--nemesis", asked, "--schedule", str(file))
    assert status == 254
    has = f"--nemesis {asked} differs from the faults of --schedule {file} (partition)"
    assert err == f"jepsen-run: {has}: omit one of the two\n"


def test_a_nemesis_beside_a_schedule_of_its_own_is_not_refused(capsys, tmp_path, monkeypatch):
    def composed(spec, schedule, file):
        raise UsageError(f"composed with {spec.nemeses}")

    monkeypatch.setattr(session, "compose", composed)
    file = tmp_path / "schedule.json"
    schedules.save(Schedule(faults=(Fault(kind="partition", start_s=1.0),)), file)
    for words in (["--nemesis", "partition"], []):
        _, _, err = run(capsys, *words, "--schedule", str(file))
        assert err == f"jepsen-run: composed with {tuple(words[1:])}\n"


def test_every_option_with_a_fraction_refuses_what_is_no_number():
    """ "nan" passes every bound, and "inf" is an end that never comes."""
    numbers = [
        (name, option)
        for name, command in cli.cli.commands.items()
        for option in command.params
        if isinstance(option.type, click.types.FloatParamType)
    ]
    assert len(numbers) > 10
    for _, option in numbers:
        for word in ("nan", "inf", "-inf"):
            with pytest.raises(click.BadParameter):
                option.type.convert(word, option, None)


def test_wrong_usage_as_a_process():
    done = subprocess.run(
        [sys.executable, "-m", "harness.commands.cli", "--frobnicate"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 254
    assert done.stderr.startswith("jepsen-run: No such option")
    assert done.stdout == ""


def test_version_and_help_are_no_errors(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = run(capsys, "--version")
    assert (status, out) == (0, f"jepsen-run {harness.__version__}\n")
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert all(command in out for command in ("test", "check", "list", "clean"))
    lines = [line for line in out.splitlines() if line.startswith("  ") and "..." in line]
    assert not lines, "each command is told in a line"
    status, out, _ = run(capsys, "test", "--help")
    assert status == 0
    assert "--nemesis" in out


def test_options_without_a_command_are_a_test(capsys, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(session, "run", lambda spec, *rest, **others: asked.append((spec, rest, others)) or 0)
    assert (
        run(
            capsys,
            "--nemesis",
            "partition, kill",
            "--policy",
            "replication",
            "--seed",
            "5",
            "--store",
            str(tmp_path),
        )[0]
        == 0
    )
    assert (
        run(
            capsys,
            "test",
            "--nemesis",
            "partition,kill",
            "--policy",
            "replication",
            "--seed",
            "5",
            "--store",
            str(tmp_path),
        )[0]
        == 0
    )
    assert asked[0] == asked[1]
    assert asked[0][0].nemeses == ("partition", "kill")
    assert asked[0][0].seed == 5


def test_without_a_seed_one_is_drawn_and_with_a_spec_it_is_kept(capsys, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(session, "run", lambda spec, *rest, **others: asked.append((spec, rest, others)) or 0)
    run(capsys)
    run(capsys)
    assert asked[0][0].seed != asked[1][0].seed
    stores.save(tmp_path, "spec.json", TestSpec(name="x", seed=77))
    run(capsys, "--spec", str(tmp_path / "spec.json"))
    assert asked[2][0].seed == 77
    run(capsys, "--spec", str(tmp_path / "spec.json"), "--seed", "78")
    assert asked[3][0].seed == 78


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UsageError("that cannot be"), 254, "jepsen-run: that cannot be\n"),
        (InfrastructureError("the machine is full"), 2, "jepsen-run: unknown: the machine is full\n"),
        (KeyboardInterrupt(), 130, "jepsen-run: interrupted\n"),
    ],
)
def test_each_kind_of_trouble_has_its_status(capsys, monkeypatch, error, status, said):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(session, "run", fail)
    ended, out, err = run(capsys, "--seed", "1")
    assert (ended, out, err.lstrip("\n")) == (status, "", said)


def test_a_bug_of_ours_is_255_and_asks_for_a_report(capsys, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(session, "run", fail)
    status, _, err = run(capsys, "--seed", "1")
    assert status == 255
    assert "ZeroDivisionError: a bug" in err
    assert "please report it" in err


def test_the_gravest_status_of_a_batch_wins():
    assert judge.gravest_status([0, 0]) == 0
    assert judge.gravest_status([0, 2, 0]) == 2
    assert judge.gravest_status([2, 255, 0]) == 255
    assert judge.gravest_status([2, 255, 1, 0]) == 1
    assert judge.gravest_status([]) == 0
    assert [judge.exit_status(valid) for valid in (True, False, None)] == [0, 1, 2]


def test_a_path_without_any_run_is_named(capsys, tmp_path):
    status, _, err = run(capsys, "check", str(tmp_path))
    assert status == 254
    assert f"{tmp_path} has no history in it" in err


def listed(capsys, *words):
    """What the list prints, its lines joined: where they break depends on the width."""
    status, text, _ = run(capsys, "list", *words)
    assert status == 0
    return " ".join(text.split())


def test_list_names_everything_that_can_be_combined(capsys):
    text = listed(capsys)
    status, document, _ = run(capsys, "list", "--json")
    assert status == 0
    table = json.loads(document)
    assert {"policies", "nemeses", "workloads", "environments"} <= set(table)
    assert "replication" in table["policies"]
    assert {"partition", "kill", "pause", "stop"} <= set(table["nemeses"])
    assert {"groups", "queue"} <= set(table["workloads"])
    assert {"local", "docker"} <= set(table["environments"])
    assert all(name in text for part in table.values() for name in part)
    for name, nemesis in table["nemeses"].items():
        assert set(nemesis["environments"]) == set(table["environments"])
        assert all(reason in text for reason in nemesis["environments"].values() if name.startswith("clock"))
    shared = [name for name, policy in table["policies"].items() if policy["shares"]]
    broken = [name for name, nemesis in table["nemeses"].items() if nemesis["disks"]]
    assert shared == ["shared-store", "ha-database", "multi-instance"]
    assert {"power-loss", "disk-full"} < set(broken)
    assert f"{', '.join(broken)}: with {', '.join(shared)} only in the simulation" in text


@pytest.mark.parametrize("columns", ["80", "44", "200"])
@pytest.mark.parametrize("system", systems.SYSTEMS)
def test_no_line_of_the_list_is_wider_than_the_terminal_except_commands(capsys, monkeypatch, columns, system):
    monkeypatch.setenv("COLUMNS", columns)
    _, text, _ = run(capsys, "list", "--system", system)
    wide = [line for line in text.splitlines() if len(line) > int(columns) and " " in line.strip()]
    assert all(line.startswith(("    mvn ", "    apt-get ", "    tar ")) for line in wide), wide
    assert "\x1b" not in text


def test_the_list_has_what_is_usable_first_and_each_command_on_a_line_of_its_own(capsys, monkeypatch):
    monkeypatch.setenv(given.HOME, "")
    monkeypatch.delenv(distribution.HOME, raising=False)
    _, text, _ = run(capsys, "list")
    lines = text.splitlines()
    last = lines.index("Not usable on this machine")
    at = next(number for number, line in enumerate(lines) if line.startswith("  --system artemis: "))
    assert lines.index("Nemeses (--nemesis NAME, or several: partition,kill)") < last < at
    lack = ArtemisSystem().lack()
    begin = lines.index(f"    {lack.commands[0]}")
    assert lines[begin : begin + len(lack.commands)] == [f"    {command}" for command in lack.commands]
    assert lines[begin + len(lack.commands)] == f"    and then give --system-home {lack.home}"


@pytest.mark.parametrize("system", systems.SYSTEMS)
def test_the_list_names_what_it_speaks_of_for_every_system(capsys, system):
    """No sentence without its name: rabbitmq has no database and shares nothing."""
    text = listed(capsys, "--system", system)
    assert not re.search(r"only with \)|with +only|with ,|not with ,", text)
    impossible = re.search(rf"No policy of {system} has what these break: ([^.]*)\.", text)
    assert ("database-stall" in (impossible[1] if impossible else "")) is (system in ("rabbitmq", "artemis"))
    assert ("only in the simulation" in text) is (system == "own")
    assert ("on a disk of its own" in text) is (system != "rabbitmq")


@pytest.mark.parametrize(
    ("system", "named", "wanting"),
    [
        ("own", [], ""),
        ("rabbitmq", ["destinations", "request-reply", "selectors"], "selectors"),
        ("openmq", ["bank", "destinations", "request-reply"], "temporary queues that clients can name"),
    ],
)
def test_the_list_names_the_workloads_that_a_system_has_not(capsys, monkeypatch, system, named, wanting):
    """As a test of it is refused; and no mark for what none of its policies has."""
    monkeypatch.setenv("COLUMNS", "120")
    _, text, _ = run(capsys, "list", "--system", system)
    lines = text.splitlines()
    lacking = [at for at, line in enumerate(lines) if f" not with {system}: its brokers have no " in line]
    assert [lines[at - 1].split()[0] for at in lacking] == named
    assert not named or lines[lacking[-1]].endswith(wanting)
    assert any(line.startswith("  reconfigure ") for line in lines) is (system == "own")


@pytest.mark.parametrize(
    ("system", "policy", "place", "why"),
    [
        ("own", "replication", "ssh", ""),
        ("artemis", "shared-store", "ssh", "the brokers share a directory"),
        ("classic", "jdbc", "ssh", "the brokers share a database"),
        ("openmq", "standalone", "local", ""),
        ("openmq", "conventional", "local", "refuse loopback addresses"),
        ("openmq", "conventional", "ssh", ""),
    ],
)
def test_the_list_says_where_a_policy_cannot_be_had(capsys, monkeypatch, system, policy, place, why):
    """As a test of it is refused there; that nobody has named a machine yet is no reason."""
    monkeypatch.setattr(runtime, "lack_of_java", lambda _: "")
    status, document, _ = run(capsys, "list", "--system", system, "--json")
    told = json.loads(document)["policies"][policy]["environments"][place]
    assert (status, bool(told), why in told) == (0, bool(why), True)
    text = listed(capsys, "--system", system)
    assert (f" not with --environment {place}: {told} " in text) is bool(why)


def test_the_list_says_what_one_policy_lacks(capsys, monkeypatch):
    monkeypatch.setattr(runtime, "lack_of_java", lambda _: "")
    monkeypatch.setattr(OpenmqSystem, "missing", lambda self: "no postgresql*.jar" if self.one_store else "")
    status, text, _ = run(capsys, "list", "--system", "openmq")
    assert status == 0
    (line,) = [line for line in text.splitlines() if "no postgresql*.jar" in line]
    assert text.splitlines()[text.splitlines().index(line) - 1].startswith("  ha-database")


@pytest.mark.parametrize(
    ("system", "policy"), [("own", "replication"), ("artemis", "replication"), ("rabbitmq", "quorum-queues")]
)
def test_a_system_with_one_policy_needs_no_word_for_it(system, policy):
    assert systems.usual_policy(system) == policy


def test_the_only_policy_is_taken_by_each_command(capsys, monkeypatch):
    """The next word that is wrong is complained of, and no policy."""
    status, _, err = run(capsys, "--system", "rabbitmq", "--set", "*:nonsense=1")
    assert (status, "nonsense" in err, "policy" in err) == (254, True, False)
    monkeypatch.setattr(RabbitmqSystem, "missing", lambda _: "")
    cells = plans.sweep_plan({"system": "rabbitmq", "environment": "local"}, 1).cells
    assert {cell.policy for cell in cells} == {"quorum-queues"}


@pytest.mark.usefixtures("equipped")
def test_a_disk_that_is_shared_breaks_only_where_the_list_says(capsys):
    words = ["--policy", "shared-store", "--nemesis", "power-loss", "--environment", "local"]
    status, _, err = run(capsys, *words)
    assert status == 254
    assert "power-loss: a1 keeps its data in a shared store" in err
    assert err.endswith("use --environment simulation\n")


def test_a_home_that_is_given_is_of_the_system_that_was_asked_for(capsys, monkeypatch):
    monkeypatch.setenv(given.HOME, "")
    text = listed(capsys, "--system", "classic", "--system-home", "/nowhere")
    assert text.count("/nowhere") == 1
    assert "--system classic: /nowhere: no lib/activemq-broker*.jar" in text


@pytest.mark.parametrize("command", [[], ["search"], ["sweep"], ["claims", "RP1"]])
def test_a_home_that_is_given_to_brokers_without_one_tests_no_others(capsys, monkeypatch, command):
    """Whoever leaves ``--system`` out believes that those in the home were tested."""
    monkeypatch.setenv(given.HOME, "")
    status, out, err = run(capsys, *command, "--system-home", "/nowhere")
    assert (status, out) == (254, "")
    assert err == (
        "jepsen-run: --system-home /nowhere: system own has no distribution: name the system "
        "with --system, or leave out --system-home\n"
    )


def test_the_list_says_why_in_the_words_of_the_environment(capsys, monkeypatch):
    supported = {primitive: "" for name in kinds.KINDS for primitive in kinds.get(name).primitives}
    lacking = {"slow": "no sch_netem: not in this kernel", "cut": "no nftables: not in this kernel"}
    monkeypatch.setattr(catalogue, "_supports", lambda place, system: {**supported, **lacking})
    for reason in lacking.values():
        assert f"not there: {reason} " in listed(capsys)


@pytest.mark.slow
def test_output_that_nobody_reads_is_no_verdict():
    """``jepsen-run check ... | head`` must never say valid or invalid by accident."""
    command = (
        f"{sys.executable} -c 'import harness.commands.cli; harness.commands.cli.main()' list; echo $? >&2"
    )
    told = subprocess.run(
        ["sh", "-c", f"({command}) | true"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert told.stderr.split()[-1] == "2", told.stderr


def read_by_nobody(tmp_path, *words):
    """Of a command whose output nobody reads after the first line: exit status, complaints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.commands.cli", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout.readline()
    process.stdout.close()
    complaints = process.stderr.read()
    return process.wait(), complaints


@pytest.mark.slow
def test_who_reads_no_further_ends_no_run_and_changes_no_verdict(tmp_path):
    ran = ("--environment", "simulation", "--pairs", "1", "--time-limit", "2", "--seed", "1")
    assert read_by_nobody(tmp_path, *ran) == (judge.UNKNOWN, "")
    store = (tmp_path / "store" / "latest").resolve()
    assert stores.load_run(store).state == "ended"
    assert (store / stores.REPORT).is_file()
    assert judge.judge(store, lambda: None).valid
    assert read_by_nobody(tmp_path, "check", str(store)) == (judge.UNKNOWN, "")


def phantom(directory, name, queue="q0"):
    """A run that is invalid."""
    recorder = MemoryRecorder(lambda: 0)
    recorder.event(1, "ok", "deliver", queue=queue, message=5, session=1, broker="a1")
    recorder.store(directory)
    stores.save(directory, stores.SPEC, TestSpec(name=name, policy="replication"))


@pytest.mark.slow
def test_that_a_run_is_invalid_does_not_depend_on_who_reads_it(tmp_path):
    phantom(tmp_path, "phantom")
    assert read_by_nobody(tmp_path, "check", str(tmp_path)) == (judge.INVALID, "")


@pytest.mark.slow
def test_output_for_which_the_disk_has_no_room_is_no_bug(tmp_path):
    with Path("/dev/full").open("w") as full:
        told = subprocess.run(
            [sys.executable, "-m", "harness.commands.cli", "list"],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False,
        )  # fmt: skip
    assert (told.returncode, told.stderr) == (judge.UNKNOWN, "")


@pytest.mark.slow
def test_a_terminal_that_lacks_a_letter_is_told_it_otherwise(tmp_path):
    phantom(tmp_path, "über")
    told = subprocess.run(
        [sys.executable, "-m", "harness.commands.cli", "check", str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
    )  # fmt: skip
    assert told.returncode == judge.INVALID
    assert "INVALID  \\xfcber: phantom (1)\n" in told.stdout
    # What is to be pasted names the interpreter, too; below the current directory it is relative.
    interpreter = Path(sys.executable).name
    assert re.search(rf"Judge    \S*{interpreter} -m harness.commands.cli check {tmp_path}\n", told.stdout)


CLEARS_THE_SCREEN = "\x1b[2J"
SETS_THE_TITLE = "\x1b]0;title\x07"
A_LINE_OF_ITS_OWN = "\nVALID  all is well\n"
OF_ONE_CHARACTER = "\x9b1m"
TURNS_THE_WRITING = "\u202e"
FORGED = f"q{CLEARS_THE_SCREEN}{SETS_THE_TITLE}{A_LINE_OF_ITS_OWN}{OF_ONE_CHARACTER}{TURNS_THE_WRITING}"


@pytest.mark.slow
@pytest.mark.parametrize("words", [["check"], ["check", "--json"]])
def test_a_name_in_a_history_cannot_act_on_the_terminal(tmp_path, words):
    phantom(tmp_path, "forged", queue=FORGED)
    told = subprocess.run(
        [sys.executable, "-m", "harness.commands.cli", *words, str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, check=False, env={**os.environ, "COLUMNS": "500"},
    )  # fmt: skip
    assert told.returncode == judge.INVALID
    for stream in (told.stdout, told.stderr):
        assert not set("\x1b\x07\x9b\u202e") & set(stream)
        assert "VALID  all is well" not in stream.splitlines()
    if words == ["check"]:
        assert r"q\x1b[2J\x1b]0;title\x07\nVALID  all is well\n\u009b1m\u202e" in told.stdout
    else:
        (finding,) = json.loads(told.stdout)["runs"][0]["verdict"]["findings"]
        assert finding["sentence"].isprintable()


def test_a_name_in_an_error_cannot_act_on_the_terminal(tmp_path):
    told = subprocess.run(
        [sys.executable, "-m", "harness.commands.cli", "check", str(tmp_path / FORGED)],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert told.returncode == judge.USAGE
    assert not set("\x1b\x07\x9b\u202e") & set(told.stdout + told.stderr)


def test_output_that_is_closed_is_no_bug(tmp_path):
    words = [sys.executable, "-m", "harness.commands.cli", "check", str(tmp_path)]
    script = f"cd {ROOT} && {shlex.join(words)} >&- 2>&-"
    assert subprocess.run(["bash", "-c", script], check=False).returncode == judge.USAGE


def simulated(tmp_path, before):
    """What a short simulated run says and ends with, in a shell that did something before."""
    words = [
        sys.executable, "-m", "harness.commands.start", "--environment", "simulation", "--pairs", "1",
        "--policy", "replication", "--time-limit", "1", "--seed", "1", "--store", str(tmp_path),
    ]  # fmt: skip
    script = f"cd {ROOT}; {before}{shlex.join(words)}"
    return subprocess.run(["bash", "-c", f"{script} <&-"], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_closed_standard_input_ends_no_run_by_a_signal(tmp_path):
    told = simulated(tmp_path, "")
    assert told.stderr == ""
    assert "VALID  replication" in told.stdout
    assert told.returncode in (judge.VALID, judge.UNKNOWN)


@pytest.mark.slow
def test_too_few_open_files_are_told_in_one_line(tmp_path):
    told = simulated(tmp_path, "ulimit -n 12; ")
    assert told.returncode == judge.UNKNOWN
    assert "a process may open 12 files here" in told.stdout + told.stderr
    assert "Traceback" not in told.stderr


def test_an_interrupt_while_the_command_line_is_imported_is_one_line(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from harness.commands import start\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'harness.commands.cli':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "start.main()\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (told.returncode, told.stderr) == (judge.INTERRUPTED, "jepsen-run: interrupted\n")


def test_a_path_that_cannot_be_one_is_an_error_of_usage(capsys):
    status, _, complaint = run(capsys, "check", "a" * 300)
    assert status == judge.USAGE
    assert "cannot be read: File name too long" in complaint


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (
            b'{"name": "t", "policy": "replication", "guarantee": "exactly-onec"}',
            'did you mean "exactly-once"?',
        ),
        (b'{"name": "\xff"}', "can't decode byte"),
    ],
)
def test_a_spec_that_no_test_can_have_is_an_error_of_usage(capsys, tmp_path, content, complaint):
    (tmp_path / stores.SPEC).write_bytes(content)
    status, _, told = run(capsys, "check", str(tmp_path))
    assert status == judge.USAGE
    assert told.startswith(f"jepsen-run: {tmp_path / stores.SPEC}: ")
    assert complaint in told
    status, _, told = run(capsys, "--spec", str(tmp_path / stores.SPEC))
    assert status == judge.USAGE
    assert complaint in told


SIMULATED = [
    "--environment", "simulation", "--policy", "replication", "--pairs", "1", "--nemesis", "partition",
    "--shape", "pair-link", "--time-limit", "8", "--rate", "20", "--seed", "1",
]  # fmt: skip


def test_quiet_prints_the_verdict_and_verbose_each_step_of_the_same_run(capsys, tmp_path):
    histories = []
    told = {}
    for volume in ("--quiet", "--verbose"):
        place = tmp_path / volume
        status, told[volume], err = run(capsys, *SIMULATED, volume, "--store", str(place))
        assert (status, err) == (1, "")
        histories.append(reproduction.load((place / "latest").resolve()).digest)
    assert histories[0] == histories[1], "printing changes no run"
    quiet = told["--quiet"].splitlines()
    assert quiet[0].startswith("INVALID  replication-partition: split-brain (1)")
    assert quiet[1].startswith("  split-brain x 1 (grave): ")
    assert quiet[-1].startswith("Report   ")
    assert not any(line.startswith(("Again", "Faults", "      #", "store:")) for line in quiet)
    verbose = told["--verbose"]
    assert re.search(r"s +#\d+ at [\d.]+ s: role info, broker a1 node_id \S+ role live", verbose)
    assert re.search(r"s +#\d+ at [\d.]+ s: partition invoke, value .*\"links\":\[\"a1->a2\"", verbose)
    assert "more rows" not in verbose


@pytest.mark.parametrize("words", [["-q", "-v"], ["check", "--verbose", "--quiet", "x"]])
def test_quiet_and_verbose_exclude_each_other(capsys, words):
    status, out, err = run(capsys, *words)
    assert (status, out) == (254, "")
    assert err == "jepsen-run: --quiet and --verbose: give only one of them\n"
    assert terminal.volume() is terminal.Volume.USUAL


def test_a_stored_run_is_judged_as_quietly(capsys, tmp_path):
    phantom(tmp_path, "phantom")
    status, out, _ = run(capsys, "check", "-q", str(tmp_path))
    lines = out.splitlines()
    assert status == 1
    assert lines[0] == "INVALID  phantom: phantom (1)"
    assert lines[-1] == f"Report   {tmp_path}/report.html"
    assert not any(line.startswith(("judging", "Judge", "      #")) for line in lines)


def test_each_command_that_judges_takes_quiet_and_verbose():
    silent = {name for name, command in cli.cli.commands.items() if "--quiet" not in options_of(command)}
    assert silent == {"list", "clean", "serve", "summary"}
    assert all(
        "--verbose" in options_of(command) for name, command in cli.cli.commands.items() if name not in silent
    )


def options_of(command):
    return {option for parameter in command.params for option in parameter.opts}
