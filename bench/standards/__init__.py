"""Standards that eqsat promises, and clients of them.

Knows how to run the test suite of the array API standard and estimators of
scikit-learn, beside NumPy, the cases of ONNX, and models of transformers. Start with
``array_api.py``.
"""
