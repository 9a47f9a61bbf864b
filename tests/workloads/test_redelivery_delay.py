"""The end of a load whose clients roll back: brokers delay what then comes again."""

import pytest

from harness.history import spec as specs
from harness.run.simulate import simulate


def of(rows, f, type):  # noqa: A002 - the history's own name for it
    return [row for row in rows if (row["f"], row["type"]) == (f, type)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("workload", ["bank", "transactions"])
def test_the_drain_goes_on_until_what_was_rolled_back_is_due(workload, seed):
    spec = {
        "policy": "standalone", "pairs": 1, "workload": workload, "time_limit_s": 4.0, "rate": 80.0,
        "producers": 2, "consumers": 3, "groups": 3, "seed": seed,
        "properties": {"*": {"address-settings.#.redelivery-delay": 9000}},
    }  # fmt: skip
    ran = simulate(specs.build(spec))
    began = {row["value"]: row["time"] for row in of(ran.rows, "phase", "info")}
    late = [row for row in of(ran.rows, "deliver", "ok") if row["time"] > began["drain"] + 4 * 10**9]
    assert late, "nothing was rolled back so late"
    assert not [row for row in of(ran.rows, "browse", "ok") if row["value"] == "main"]
    assert ran.valid is True, (ran.grave, ran.trouble)
