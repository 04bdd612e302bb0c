"""Seconds from a function to its program and to machine code.

``models.py`` holds the functions, ``compile.py`` the clock. No model is run.
"""
