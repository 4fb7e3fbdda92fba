#!/usr/bin/env bash
# Tests one run on two hosts with torchrun's rendezvous. One host is killed in the middle and comes
# back; the result must be equal, to the last bit, to that of an undisturbed run.
#
#   sudo scripts/two_hosts.sh [PYTHON]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/hosts.sh"
words=(--size tiny --steps 400 batch.seq_len=64 batch.size=8 checkpoint.every=10
    validation.every=200)

echo "1. both hosts, undisturbed"
train "$a" plain "${words[@]}"
first=$!
train "$b" plain "${words[@]}"
second=$!
{ wait "$first" && wait "$second"; } || complain plain

echo "2. the same run; the second host dies in the middle and comes back"
train "$a" shaken "${words[@]}"
first=$!
train "$b" shaken "${words[@]}"
second=$!
until compgen -G "$here/shaken/checkpoints/step-000001*" >/dev/null; do
    kill -0 "$first" 2>/dev/null || complain shaken
    sleep 0.2
done
fell "$b"
wait "$second" 2>/dev/null || true
echo "   killed after $(basename "$(ls -d "$here"/shaken/checkpoints/step-* | tail -n 1)")"
sleep 3
train "$b" shaken "${words[@]}"
second=$!
{ wait "$first" && wait "$second"; } || complain shaken

if cmp "$here/plain/model.safetensors" "$here/shaken/model.safetensors"; then
    echo "the two models are the same to the last bit"
else
    echo "the models differ" >&2
    exit 1
fi
