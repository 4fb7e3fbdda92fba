"""Augmentation by models and by files: what goes beyond changing words (`regard.data.augment`)."""
