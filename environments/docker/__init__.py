"""Brokers as containers.

Two halves. On the machine of the harness: ``environment`` (the protocol's implementation),
``engine``, ``image``, ``base_image``, ``node``, ``clean``. Inside each container, from the standard
library alone: ``agent`` (PID 1), ``child``, ``firewall``, ``prober``. Both import ``control``. This
module stays empty of imports because the inner half imports it too.
"""
