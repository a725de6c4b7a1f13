"""Side-by-side rates, latency, CPU and memory on a throwaway server and broker: `python -m bench --help`."""
