"""Dead letters: when a message is given up, and what becomes of it.

``max-delivery-attempts``, ``dead-letter-address``.
"""

from __future__ import annotations

from broker.core.addresses import AddressSettings
from broker.core.message import Message
from broker.core.properties import timeless
from broker.core.queue import Queue
from stomp_protocol.versions import header_line


def is_dead(message: Message, queue: str, settings: AddressSettings, *, given_up: bool = False) -> bool:
    """Has it been refused too often, or is it ``given_up`` by its client?

    In the dead letter queue itself it stays where it is.
    """
    refused_too_often = 0 <= settings.max_delivery_attempts <= message.refusals
    return (given_up or refused_too_often) and settings.dead_letter_address != queue


def dead_letter(message: Message, queue: Queue, address: str) -> Message:
    """The same message for the dead letters.

    ``_AMQ_ORIG_QUEUE`` has the queue that it was for; of a subscription's, ``_AMQ_ORIG_ADDRESS``
    has the topic.
    """
    origin = header_line("_AMQ_ORIG_QUEUE", message.target)
    if queue.subscription is not None:
        origin = header_line("_AMQ_ORIG_QUEUE", queue.name) + header_line("_AMQ_ORIG_ADDRESS", message.target)
    dead = message.copy(address, origin)
    dead.deliveries = message.deliveries
    dead.properties = timeless(message.properties)
    return dead
