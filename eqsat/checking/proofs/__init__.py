"""Proofs of rules: identities of real numbers in random fields, and of bits by symbols.

Knows what each op means in a field, which facts of IEEE 754 hold, and which sizes
decide a rule. Start with ``proof.py``.
"""

from eqsat.checking.proofs.deciding_sizes import deciding
from eqsat.checking.proofs.proof import prove
