"""Thousands of crashes are expected here.

Their log lines would bury the one example that matters.
"""

import logging

import pytest

pytest.register_assert_rewrite(
    "stateful.queue_machine", "stateful.queue_model", "stateful.session_machine", "stateful.pipe"
)


@pytest.fixture(autouse=True)
def _silence():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
