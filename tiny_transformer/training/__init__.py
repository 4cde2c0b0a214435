"""Training: from files of text to a model folder, on one CPU, one GPU or many machines."""
