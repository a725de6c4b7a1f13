"""What SQL functions ask of Kafka, answered in a process of its own: librdkafka never runs inside the server.

In: a request on stdin. Out: rows on stdout, then how it ended.
"""
