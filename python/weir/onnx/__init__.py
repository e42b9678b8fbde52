"""Models in the format ONNX, and what one reads."""
