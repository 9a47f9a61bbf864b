"""The tests of ``brokerctl check-filesystem``.

They show whether a directory can be trusted with a store that several brokers share.

Why before the first start: on a file system whose locks, attributes or syncs do not hold, two
brokers become live on one journal, and the first sign of it is a destroyed store. The tests and
their names follow the file-system check of the WebSphere MQ document (basic, concurrent, lock
wait).
"""
