"""The shrinking of a failing run in the simulation.

The result has fewer faults, clients, properties and seconds, and simpler numbers; the anomaly keeps
its name.

Why: what search finds has a dozen faults of which one or two matter, and nobody reads a history of
a dozen faults. The simulation decides a simpler test in a fraction of a second, so hundreds can be
tried.

How: a test is written as a row of numbers (``harness.explore.shrink.simpler``), simplest first, and
Hypothesis' shrinker lowers each as far as the test still fails: what makes runs cheap first, then
faults by halves, then what describes the faults that are left. This is repeated on what is left
until nothing more can be lowered, so no single fault can be taken away from the end either. If two
faults or more are left, the other order is tried from the beginning: in a shorter test with fewer
clients a fault may be needed that a longer one does without. Then delta debugging takes away faults
first, the rest follows, and the smaller end counts. Every step is strictly simpler, so it ends.
Nothing is drawn at random: the shrinker begins with the choices of the run that is known to fail.
Only the pass that lowers single numbers runs; the others (deleting, sorting, lowering one number
while raising another) took twice the runs and left nothing smaller (docs/decisions/0012).

Two things are kept while shrinking: the name of the anomaly, and those bounds of
``harness.explore.swarm.beyond`` that the run kept to begin with. Without the second, a bug of a
vote between three pairs would shrink to the split brain of one pair, which the documents admit.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import TypeVar

from harness.explore import swarm
from harness.explore.shrink import delta
from harness.explore.shrink.case import Attempts, Budget, ShrinkCase, Shrunk, size
from harness.explore.shrink.simpler import Form, form
from harness.interface import InfrastructureError
from harness.run.simulate import Simulated, simulate

T = TypeVar("T")


def shrink(
    run: Simulated,
    anomaly: str,
    *,
    budget: Budget | None = None,
    tell: Callable[[str], None] | None = None,
    tried: Callable[[Budget], None] | None = None,
) -> Shrunk[Simulated]:
    """Make an invalid simulated run smaller.

    Args:
        run: what was found.
        anomaly: the name that must be among what breaks the guarantee of every smaller run.
        budget: what the shrinking may cost; a run that has begun is finished.
        tell: is called with a line about each success.
        tried: is called before each run, with what was spent so far.
    """
    assert anomaly in run.grave, f"{anomaly} is none of {sorted(run.grave)}"
    exceeded = swarm.beyond(run.spec, run.schedule)

    def find(case: ShrinkCase) -> Simulated | None:
        if tried is not None:
            tried(attempts.budget)
        repeated = simulate(case.spec, case.schedule)
        return repeated if anomaly in repeated.grave else None

    def allowed(case: ShrinkCase) -> bool:
        return swarm.beyond(case.spec, case.schedule) <= exceeded

    attempts = Attempts(
        ShrinkCase(run.spec, run.schedule), run, find, allowed=allowed, budget=budget, tell=tell
    )
    reduce(attempts)
    return attempts.ended()


def reduce(attempts: Attempts[T]) -> None:
    """Lower all choices until none can be lowered, or the budget is over.

    If more than one fault is left, also try the order in which faults are taken away first.
    """
    start, evidence = attempts.best, attempts.evidence
    _lower_all(attempts)
    small, proof = attempts.best, attempts.evidence
    if len(small.schedule.faults) > 1 and not attempts.budget.over:
        attempts.restart(start, evidence)
        delta.fewer_faults(attempts)
        _lower_all(attempts)
        if size(small) <= size(attempts.best):
            attempts.restart(small, proof)


def _lower_all(attempts: Attempts[T]) -> None:
    before = None
    while attempts.best != before and not attempts.budget.over:
        before = attempts.best
        lower(form(before), attempts)


def lower(places: Form, attempts: Attempts[T]) -> None:
    """Lower each choice of a failing case as far as it still fails, the last choice first.

    This is Hypothesis' shrinker. Its engine is called directly: the public ``find`` either does not
    shrink what it replays from a database, or shrinks it in an order that no seed decides.
    """
    # Imported only here, because importing Hypothesis takes a tenth of a second.
    import hypothesis  # noqa: PLC0415

    try:
        from hypothesis import Phase, settings  # noqa: PLC0415
        from hypothesis.internal.conjecture.data import (  # noqa: PLC0415
            ConjectureData,
            ConjectureResult,
            Status,
        )
        from hypothesis.internal.conjecture.engine import ConjectureRunner  # noqa: PLC0415
        from hypothesis.internal.conjecture.shrinker import ShrinkPass, StopShrinking  # noqa: PLC0415
        from hypothesis.internal.escalation import InterestingOrigin  # noqa: PLC0415
    except ImportError as error:
        raise InfrastructureError(
            f"Hypothesis {hypothesis.__version__} has another shrinker than jepsen-run knows ({error}): "
            "install one from 6.140 to 6.170"
        ) from error

    if not places.sizes:
        return
    fails = InterestingOrigin(AssertionError, __file__, 0, (), ())
    answers = {places.filled(places.present).key: True}

    def test(data: ConjectureData) -> None:
        case = places.filled([data.draw_integer(0, size - 1) for size in places.sizes])
        key = case.key
        if key not in answers:  # choices may be equivalent: those that describe a fault that was taken away
            answers[key] = attempts.fails(case)
        if answers[key]:
            data.mark_interesting(fails)

    runner = ConjectureRunner(
        test,
        settings=settings(database=None, deadline=None, phases=(Phase.shrink,)),
        random=random.Random(0),
        ignore_limits=True,  # the budget is the limit
    )
    failing = runner.cached_test_function(places.present)
    assert isinstance(failing, ConjectureResult)
    assert failing.status is Status.INTERESTING, "the choices of a case give that case"
    shrinker = runner.new_shrinker(failing, lambda data: data.status is Status.INTERESTING)
    shrinker.shrink_passes = [ShrinkPass(shrinker.minimize_individual_choices)]
    with contextlib.suppress(StopShrinking):
        shrinker.greedy_shrink()
