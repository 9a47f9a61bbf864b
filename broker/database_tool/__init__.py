"""``brokerctl database``.

What is done to a shared store while no broker, or no broker that it concerns, is running (Sun 4.1,
"Managing the HA Data ClusterStore").
"""
