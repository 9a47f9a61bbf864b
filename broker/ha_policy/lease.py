"""The check of the times of a lease, which sections of policies and of their stores need."""

from __future__ import annotations


def lease_problem(section: str, renew_period: int, expiration: int) -> str:
    """Return why a lease is too short for how often it is renewed; "" if it is not."""
    if expiration >= 4 * renew_period:
        return ""
    return (
        f"{section}.lock-expiration is {expiration}: it must be at least four times"
        f" lock-renew-period ({renew_period}), since half of it is all that a late renewal may take"
    )
