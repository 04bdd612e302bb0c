"""NPBench, a checkout of it: programs of science as their authors wrote them.

It knows how to load and to compare them, and nothing of any one of them. Start with
``run.py``.

A. N. Ziogas et al., NPBench: a benchmarking suite for high-performance NumPy, ICS 2021.
"""
