"""Compiled kernels: built once, kept on the disk, linked to one image, called without a compiler."""
