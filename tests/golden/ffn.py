import numpy as np


def linear(x, w, b, out):
    """linear[act=gelu_tanh], 512×1024 float32, 8 blocks of 64, 512.0 KiB of scratch."""
    t0 = np.empty((64, 1024), np.float32)  # 256.0 KiB
    t1 = np.empty((64, 1024), np.float32)  # 256.0 KiB
    np.matmul(x, w, out=out)
    for i0 in range(0, 512, 64):
        i1 = i0 + 64
        out_i = out[i0:i1]
        np.add(out_i, b, out=out_i)
        np.multiply(0.5, out_i, out=t0)
        np.multiply(0.044715, out_i, out=t1)
        np.multiply(t1, out_i, out=t1)
        np.multiply(t1, out_i, out=t1)
        np.add(out_i, t1, out=out_i)
        np.multiply(0.7978845608028654, out_i, out=out_i)
        np.tanh(out_i, out=out_i)
        np.add(1.0, out_i, out=out_i)
        np.multiply(t0, out_i, out=out_i)


def layer_norm(x, w, out):
    """layer_norm, 512×256 float32, 2 blocks of 256, 257.0 KiB of scratch."""
    t0 = np.empty((256, 1), np.float32)  # 1.0 KiB
    t1 = np.empty((256, 256), np.float32)  # 256.0 KiB
    for i0 in range(0, 512, 256):
        i1 = i0 + 256
        x_i = x[i0:i1]
        out_i = out[i0:i1]
        np.sum(x_i, axis=-1, keepdims=True, out=t0)
        np.divide(t0, 256, out=t0)
        np.subtract(x_i, t0, out=out_i)
        np.multiply(out_i, out_i, out=t1)
        np.sum(t1, axis=-1, keepdims=True, out=t0)
        np.divide(t0, 256, out=t0)
        np.add(t0, 1e-05, out=t0)
        np.sqrt(t0, out=t0)
        np.divide(1, t0, out=t0)
        np.multiply(out_i, t0, out=out_i)
        np.multiply(out_i, w, out=out_i)
        np.add(out_i, w, out=out_i)


def program(x, w, b, v, c):
    # x: 512×256 float32
    # w: 256×1024 float32
    # b: 1024 float32
    # v: 1024×256 float32
    # c: 256 float32
    linear_0 = np.empty((512, 1024), np.float32)  # 2.0 MiB
    linear(x, w, b, linear_0)
    linear_1 = np.empty((512, 256), np.float32)  # 512.0 KiB
    np.matmul(linear_0, v, out=linear_1)
    np.add(linear_1, c, out=linear_1)
    del linear_0
    add_2 = linear_1  # in place
    np.add(x, linear_1, out=add_2)
    layer_norm_3 = np.empty((512, 256), np.float32)  # 512.0 KiB
    layer_norm(add_2, c, layer_norm_3)
    del linear_1, add_2
    return (layer_norm_3,)
