"""A STOMP client that fails over to another broker: docs/how-to/fail-over-client.md has examples.

It needs asyncio and one third-party package, msgspec.
"""

from stomp_protocol.client.addresses import AddressList as AddressList
from stomp_protocol.client.client import Client as Client
from stomp_protocol.client.client import Message as Message
from stomp_protocol.client.client import Outcome as Outcome
from stomp_protocol.client.client import Subscription as Subscription
from stomp_protocol.client.connection import ConnectError as ConnectError
from stomp_protocol.client.failover import State as State
from stomp_protocol.client.settings import Rules as Rules
from stomp_protocol.client.settings import Settings as Settings
