"""Policy ``ha-database`` (Sun 4.1, "High-Availability Clusters").

Brokers that share one database, each taking over from any other.
"""

from broker.policies.ha_database.policy import HaDatabasePolicy

__all__ = ["HaDatabasePolicy"]
