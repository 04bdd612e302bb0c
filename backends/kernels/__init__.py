"""The kernel language: what generated kernels are, before they are code of any machine.

A kernel is a :class:`~.language.Nest`: a grid of independent rows, and passes over the
elements of a row. Backends print it as LLVM IR, Metal or CUDA.
"""
