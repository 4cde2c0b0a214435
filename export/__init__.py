"""From a model folder to TorchScript archives and ONNX graphs over the same weights file."""
