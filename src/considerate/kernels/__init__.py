"""Kernels: arithmetic on arrays, compiled and in NumPy, and threads."""
