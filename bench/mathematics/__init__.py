"""The polynomials of the vector mathematics, and their errors.

``fit.py`` knows how a polynomial is fitted, the files named ``…_fits.py`` know what to
fit, and ``coefficients.py`` writes the result into the native backend. ``ulp.py``
measures the errors of the machine code. The fits need mpmath.
"""
