#!/usr/bin/env bash
# Restarts every node while a job draws ids, and checks the ids. See README.md.
set -euo pipefail
cd "$(dirname "$0")"
namespace=${NAMESPACE:-snowmint-rollout}
kubectl() { command kubectl --namespace "$namespace" "$@"; }

kubectl create namespace "$namespace" --dry-run=client -o yaml | kubectl apply -f -
kubectl apply -k ../../packaging/kubernetes/deployment
kubectl rollout status deployment/snowmint --timeout=5m

kubectl delete job draw --ignore-not-found --cascade=foreground
kubectl apply -f draw.yaml
until [[ -n $(kubectl get pod --selector=job-name=draw -o name) ]]; do sleep 0.2; done
kubectl wait --for=condition=ready pod --selector=job-name=draw --timeout=2m
kubectl rollout restart deployment/snowmint
kubectl rollout status deployment/snowmint --timeout=5m
sleep 5
kubectl exec job/draw -- touch /tmp/stop
kubectl wait --for=condition=complete job/draw --timeout=2m

lines=$(kubectl logs job/draw)
failed=$(grep -c '^failed' <<<"$lines" || true)
ids=$(grep -E '^[0-9]+$' <<<"$lines")
duplicates=$(sort <<<"$ids" | uniq -d | wc -l)
echo "ids drawn: $(wc -l <<<"$ids"), failed requests: $failed, duplicates: $duplicates"
[[ $failed == 0 && $duplicates == 0 ]]
