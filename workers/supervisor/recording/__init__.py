"""Recording what ranks report: checkpoints, logs, metrics, TensorBoard, models."""
