#!/usr/bin/env bash
# Two hosts on one machine: network namespaces joined by a cable of their own. One run is trained by
# both through torchrun's rendezvous; one host is killed in the middle and comes back; the result
# must be, to the last bit, that of a run that nobody disturbed.
#
#   sudo scripts/two_hosts.sh [PYTHON]        needs root, `ip` and nothing else
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:-.venv/bin/python}
here=$(mktemp -d)
export PYTHONPATH=$PWD OMP_NUM_THREADS=1
# Without this, torchrun tells a host that comes back nothing of where the others meet.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
a=regard-a-$$ b=regard-b-$$
started=()

# fell NAME: a host loses power; its processes end wherever they are
fell() { ip netns pids "$1" 2>/dev/null | xargs -r kill -9 2>/dev/null || true; }

clean() {
    fell "$a"
    fell "$b"
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$here"
}
trap clean EXIT

ip netns add "$a"
ip netns add "$b"
ip link add va$$ netns "$a" type veth peer name vb$$ netns "$b"
ip -n "$a" addr add 10.77.0.1/24 dev va$$
ip -n "$b" addr add 10.77.0.2/24 dev vb$$
for host in "$a:va$$" "$b:vb$$"; do
    ip -n "${host%:*}" link set lo up
    ip -n "${host%:*}" link set "${host#*:}" up
done

data=$here/data
"$python" -m regard prepare builtin:python-docs --out "$data" --vocabulary 2000 --valid 0.01 >/dev/null

# host NAME RANK DEVICE RUN ADDRESS: one host of a run
host() {
    local first=false
    if [ "$2" = 0 ]; then first=true; fi
    GLOO_SOCKET_IFNAME=$3 ip netns exec "$1" "$python" -m torch.distributed.run \
        --nnodes 2 --nproc-per-node 1 --max-restarts 5 \
        --rdzv-backend c10d --rdzv-endpoint 10.77.0.1:29400 --rdzv-id "$4" --local-addr "$5" \
        --rdzv-conf "is_host=$first" \
        -m regard train gpt "$data" --out "$here/$4" --size tiny --steps 400 --quiet \
        batch.length=64 batch.samples=8 checkpoint.every=10 validation.every=200 \
        engine.precision=fp32 engine.compile=no >"$here/$4-$1.log" 2>&1 &
    started+=($!)
}

whole() {
    started=()
    host "$a" 0 va$$ "$1" 10.77.0.1
    host "$b" 1 vb$$ "$1" 10.77.0.2
}

finish() { for id in "${started[@]}"; do wait "$id" || return 1; done; started=(); }

echo "1. both hosts, undisturbed"
whole plain
finish || { tail -n 20 "$here"/plain-*.log; exit 1; }

echo "2. the same run; the second host dies in the middle and comes back"
whole shaken
until compgen -G "$here/shaken/checkpoints/step-000001*" >/dev/null; do
    kill -0 "${started[0]}" 2>/dev/null || { tail -n 20 "$here"/shaken-*.log; exit 1; }
    sleep 0.2
done
fell "$b"
wait "${started[1]}" 2>/dev/null || true
unset 'started[1]'
echo "   killed after $(basename "$(ls -d "$here"/shaken/checkpoints/step-* | tail -n 1)")"
sleep 3
host "$b" 1 vb$$ shaken 10.77.0.2
finish || { tail -n 30 "$here"/shaken-*.log; exit 1; }

if cmp "$here/plain/model.safetensors" "$here/shaken/model.safetensors"; then
    echo "the two models are the same to the last bit"
else
    echo "the models differ" >&2
    exit 1
fi
