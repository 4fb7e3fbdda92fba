"""Preference tuning: reward models, DPO and IPO, GRPO."""
