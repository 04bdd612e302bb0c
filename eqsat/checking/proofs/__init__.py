"""Proofs of rules: identities of real numbers in random fields, and of bits by symbols.

Knows what each op means in a field, and which facts of IEEE 754 hold. Draws nothing.
Start with ``proof.py``.
"""

from eqsat.checking.proofs.proof import prove
