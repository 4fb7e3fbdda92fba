"""Learning from what people prefer: reward models, DPO and IPO, GRPO."""
