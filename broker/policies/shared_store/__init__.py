"""Policy ``shared-store``: live and backups on one store, a directory or a database.

The broker that has the live lock serves (AMQ 17.3.2).
"""

from broker.policies.shared_store.live import EXIT_FENCED, FencedError
from broker.policies.shared_store.policy import SharedStorePolicy

__all__ = ["EXIT_FENCED", "FencedError", "SharedStorePolicy"]
