"""The commands of ``brokerctl database``.

They change a shared store while no broker, or no broker that it concerns, is running (Sun 4.1,
"Managing the HA Data ClusterStore").
"""
