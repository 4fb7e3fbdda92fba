"""What people do with a model: labelled data, fine-tuning, prompting, testing."""
