"""Ways to run a model: PyTorch eager, TorchScript, ONNX Runtime."""
