# Simulates two hosts on one machine, for the scripts that source this file: the network namespaces
# $a and $b, joined by a virtual cable. It needs root and `ip`. All is removed when the script ends.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:-.venv/bin/python}
here=$(mktemp -d)
export PYTHONPATH=$PWD OMP_NUM_THREADS=1
# Without this, torchrun does not tell a host that comes back where the rendezvous is.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
a=regard-a-$$ b=regard-b-$$
declare -A device=([$a]=va$$ [$b]=vb$$) address=([$a]=10.77.0.1 [$b]=10.77.0.2)

# fell NAME: simulates a power failure of a host: its processes are killed
fell() { ip netns pids "$1" 2>/dev/null | xargs -r kill -9 2>/dev/null || true; }

clean() {
    for host in "$a" "$b"; do
        fell "$host"
        ip netns del "$host" 2>/dev/null || true
    done
    rm -rf "$here"
}
trap clean EXIT

for host in "$a" "$b"; do ip netns add "$host"; done
ip link add "${device[$a]}" netns "$a" type veth peer name "${device[$b]}" netns "$b"
for host in "$a" "$b"; do
    ip -n "$host" addr add "${address[$host]}/24" dev "${device[$host]}"
    ip -n "$host" link set lo up
    ip -n "$host" link set "${device[$host]}" up
done

# train HOST RUN WORDS…: starts one host's part of a run in the background; its process is $!
train() {
    local host=$1 run=$2 first=false
    shift 2
    if [ "$host" = "$a" ]; then first=true; fi
    GLOO_SOCKET_IFNAME=${device[$host]} ip netns exec "$host" "$python" -m torch.distributed.run \
        --nnodes 2 --nproc-per-node 1 --max-restarts 5 --rdzv-backend c10d \
        --rdzv-endpoint "${address[$a]}:29400" --rdzv-id "$run" --rdzv-conf "is_host=$first" \
        --local-addr "${address[$host]}" -m regard train gpt "$here/data" --out "$here/$run" \
        --quiet engine.precision=fp32 engine.compile=no "$@" >"$here/$run-$host.log" 2>&1 &
}

# complain RUN: prints the logs of the hosts and fails
complain() {
    tail -n 20 "$here/$1"-*.log >&2
    exit 1
}

"$python" -m regard prepare builtin:python-docs --out "$here/data" --vocab-size 2000 --json >/dev/null
