"""DeepSpeed's ZeRO: each rank has a part of the optimizer's state, of the gradients, or of the parameters too."""
