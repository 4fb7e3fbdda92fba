"""Fine-tuning: a pre-trained model learns a task."""
