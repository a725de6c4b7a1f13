"""Throwaway servers, brokers, proxies and workers for tests, the demo and the benchmarks.

Nothing here knows pytest. Every part is a class with start() and stop(), lives in a folder it is given,
and dies with the process that made it, even when that process is killed.
"""
