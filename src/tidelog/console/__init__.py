"""Console: a page in the browser for any Kafka cluster, served by a process of its own.

It speaks the wire protocol, and reads `/metrics` where the brokers have it. Brokers do not know it.
"""
