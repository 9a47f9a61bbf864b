"""Policy ``ha-database`` (Sun 4.1, "High-Availability Clusters").

Brokers share one database, and each may take over from any other.
"""

from broker.policies.ha_database.policy import HaDatabasePolicy

__all__ = ["HaDatabasePolicy"]
