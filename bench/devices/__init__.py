"""Programs on a GPU, beside MLX's own kernels and PyTorch's.

``queued.py`` times what the device takes, whatever the host takes. Read ``gpu.py``
first.
"""
