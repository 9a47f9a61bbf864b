"""The tests of ``brokerctl check-filesystem``.

They show whether a directory can be trusted with a store that several brokers share.

Why before the first start: if locks, attributes or syncs of a file system do not hold, two brokers
become live on one journal. The first sign of it is a destroyed store. The tests and their names
follow the file-system check of the WebSphere MQ document (basic, concurrent, lock wait).
"""
