"""Augmentation by models and by files. What only changes words is in `regard.data.augment`."""
