"""Kernels; importing this loads those for what is no SM90, which takes no GPU."""

from sgl_kernel.sm100 import common_ops

told = common_ops.told()
