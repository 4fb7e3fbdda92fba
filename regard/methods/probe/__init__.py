"""What a model's layers know: small probes on frozen states, and what its heads attend to.

A probe tells what can be decoded, not what the model uses; beside every figure stand those of the
majority, of the embeddings (layer 0), of an untrained model, and of a control task.
"""
