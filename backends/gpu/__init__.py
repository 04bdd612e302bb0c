"""Kernels for GPUs: one body, printed as Metal and as CUDA C++.

Nothing here needs a GPU or a library of one: the texts are made on any machine.
"""
