"""The check that moved messages (dead letters, expired ones) keep the rights of their origin.

Why looked at before the start: a user without a right on ``secret`` reads its messages all the
same if the broker moves them to an address that the user may consume or browse. So a configuration
in which that could happen is refused, decided exactly from the patterns of its settings. Why not
asked for each message: a consumer of the dead letters would get a part of them, and a header that
says where a message came from can be written by whoever sends it.

A setting whose ``match`` is the very address to which messages are moved, without a wildcard, is an
administrator's word on that address: it may let others in than those who may read the origin, and
the start says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from broker.name_patterns import Matches, TooManyOverlapsError, overlaps
from broker.sections import AddressSettings, BrokerConfig, SecuritySettings

_DEFAULTS: Final = AddressSettings()
_WITHOUT_LOGIN: Final = ""
"""Stands for everybody in a broker without users."""
_NAMED_MAX: Final = 3
"""Names that a line lists."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """Messages of one security-setting that are moved to where others may read them.

    ``users`` are the logins that may consume or browse ``address`` and may not do so at the origin.
    ``cause`` is the property that moves messages there, ``allows`` the setting that holds for the
    address, None where none does.
    """

    origin: SecuritySettings
    address: str
    cause: str
    allows: SecuritySettings | None
    users: frozenset[str]

    @property
    def is_explicit(self) -> bool:
        """True if the setting that holds for the address names it without a wildcard."""
        return self.allows is not None and self.allows.match == self.address


def problem(config: BrokerConfig) -> str:
    """Return what leaves moved messages unprotected, in one line, "" if nothing does."""
    try:
        exposures = [exposure for exposure in _exposures(config) if not exposure.is_explicit]
    except TooManyOverlapsError:
        return (
            "security-settings and address-settings overlap in too many ways: who may read dead letters and "
            "expired messages cannot be told; use fewer patterns that have # before a word"
        )
    if not exposures:
        return ""
    first = exposures[0]
    reason = "no setting matches it" if first.allows is None else f"by that of {first.allows.match!r}"
    users = "everybody" if _WITHOUT_LOGIN in first.users else _listed(first.users)
    tables = " and for ".join(
        f'match = "{address}"'
        for address in list(dict.fromkeys(exposure.address for exposure in exposures))[:_NAMED_MAX]
    )
    return (
        f"security-settings of {first.origin.match!r}: messages are moved from there to {first.address!r} "
        f"({first.cause}), where {users} may consume or browse them without that right at their origin "
        f"({reason}): say who may, in a table [[security-settings]] for {tables}"
    )


def warnings(config: BrokerConfig) -> list[str]:
    """Return a line for each address whose own setting lets in others than its origins."""
    exposures = list(_exposures(config))
    lines = []
    for address in dict.fromkeys(exposure.address for exposure in exposures):
        of_address = [exposure for exposure in exposures if exposure.address == address]
        users = _listed(user for exposure in of_address for user in exposure.users)
        lines.append(
            f"security-settings of {address!r} let {users} consume or browse messages that are moved there, "
            f"without that right at their origin: {_listed(exposure.origin.match for exposure in of_address)}"
        )
    return lines


def _listed(names: Iterable[str]) -> str:
    """Return some of the names, and how many more there are."""
    different = sorted(set(names))
    more = len(different) - _NAMED_MAX
    return ", ".join(map(repr, different[:_NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def _exposures(config: BrokerConfig) -> Iterator[Exposure]:
    """Yield the exposures, of the least specific origin first. Raises TooManyOverlapsError."""
    if not config.security_settings:
        return
    rights, addresses = Matches(config.security_settings), Matches(config.address_settings)
    everybody = frozenset(config.acceptor.users) or frozenset({_WITHOUT_LOGIN})
    for origin, settings in _overlapping(rights.settings, addresses.settings):
        source = "by default" if settings is None else f"of address-settings {settings.match!r}"
        moves = settings or _DEFAULTS
        for cause, address in (
            ("dead-letter-address", moves.dead_letter_address),
            ("expiry-address", moves.expiry_address),
        ):
            if not address:
                continue
            allows = rights.find(address)
            consume, browse = everybody, frozenset[str]()
            if allows is not None:
                consume, browse = _logins(config, allows.consume), _logins(config, allows.browse)
            may_consume = _logins(config, origin.consume)
            users = (consume - may_consume) | (browse - may_consume - _logins(config, origin.browse))
            if users:
                yield Exposure(origin, address, f"{cause} {source}", allows, users)


def _overlapping(
    rights: Sequence[SecuritySettings], addresses: Sequence[AddressSettings]
) -> Iterator[tuple[SecuritySettings, AddressSettings | None]]:
    """Yield the settings of both kinds that hold for some name together.

    None stands for no address-setting. Both sequences are ``Matches.settings``: of those that match
    a name the last one holds.
    """
    pairs = set()
    for matching in overlaps([right.match for right in rights] + [address.match for address in addresses]):
        origin = max((number for number in matching if number < len(rights)), default=None)
        holder = max((number for number in matching if number >= len(rights)), default=None)
        if origin is not None:
            pairs.add((origin, -1 if holder is None else holder - len(rights)))
    for origin, holder in sorted(pairs):
        yield rights[origin], None if holder < 0 else addresses[holder]


def _logins(config: BrokerConfig, names: Sequence[str]) -> frozenset[str]:
    """Return the logins that roles and logins stand for."""
    return frozenset(login for name in names for login in config.acceptor.roles.get(name, (name,)))
