"""Methods for trained models: fine-tuning, distillation, preference tuning, quantization, pruning,
augmentation by models, and probing."""
