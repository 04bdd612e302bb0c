"""Backends: each lowers a program to something that runs."""
