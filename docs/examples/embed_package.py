"""Translate with the package and without torch: pip install tiny-transformer."""

import sys

import tiny_transformer as tt

model = tt.load(sys.argv[1], backend="onnx")  # or "onnx-int8": a quarter of the disk, half the memory
for piece in model.stream(sys.argv[2]):
    print(piece, end="", flush=True)
print()
