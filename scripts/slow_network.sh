#!/usr/bin/env bash
# Measures the gain of local SGD on a slow network: two hosts, joined by a cable of 50 Mbit/s, train
# the same model for the same number of steps, once synchronously, and once with the weights
# averaged only every eighth step.
#
#   sudo scripts/slow_network.sh [PYTHON]     # also needs `tc`
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/hosts.sh"
rate=${RATE:-50mbit}
for host in "$a" "$b"; do
    ip netns exec "$host" tc qdisc add dev "${device[$host]}" root tbf rate "$rate" \
        burst 64kbit latency 400ms
done
words=(--size tiny --steps 200 batch.seq_len=64 batch.size=8 checkpoint.minutes=60
    validation.every=1000 optimizer.lr=0.001)

for kind in ddp local-sgd; do
    run=$kind
    train "$a" "$run" "${words[@]}" "engine.parallel=$kind" engine.sync_warmup=20
    first=$!
    train "$b" "$run" "${words[@]}" "engine.parallel=$kind" engine.sync_warmup=20
    second=$!
    { wait "$first" && wait "$second"; } || complain "$run"
done
"$python" - "$here" "$rate" <<'PYTHON'
import json, pathlib, sys

here, rate = pathlib.Path(sys.argv[1]), sys.argv[2]
print(f"two hosts, {rate} between them, 200 steps of 512 tokens:")
found = {}
for kind in ("ddp", "local-sgd"):
    facts = json.loads((here / kind / "run.json").read_text())
    found[kind] = facts["progress"]["seconds"]
    speed = facts["progress"]["tokens"] / facts["progress"]["seconds"]
    print(f"  {kind:10}{speed:8,.0f} tokens/s   {facts['valid']['bits_per_byte']:.3f} bits per byte")
print(f"  local SGD takes {found['local-sgd'] / found['ddp']:.2f} of the time")
PYTHON
