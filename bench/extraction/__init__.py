"""Extraction by itself: its costs beside the optimum.

The problems come from files (``gym.py``) and from random NumPy programs
(``random_programs.py``). Read ``instances.py`` first.
"""
