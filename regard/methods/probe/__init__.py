"""Probing: small probes on the frozen hidden states of each layer, and statistics of attention
heads.

A probe shows what can be decoded from a layer, not what the model uses. Beside every metric stand
those of the majority class, of the embeddings (layer 0), of an untrained model, and of a control
task.
"""
