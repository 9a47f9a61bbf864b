"""Policy ``multi-instance``.

It is a queue manager with an active and a standby instance on one network file system (WebSphere MQ
7.0.1).
"""

from broker.policies.multi_instance.policy import MultiInstancePolicy

__all__ = ["MultiInstancePolicy"]
