#!/usr/bin/env bash
# Builds a real Kubernetes API server with its etcd, kubectl and helm from the Go module proxy, for no Debian package has them.
#
# usage: kubernetes.sh FOLDER
#
# Needs Go 1.21 or later, which fetches the newer toolchain that the modules name, and 5 GB of disk for Go's caches. Takes 12 min of
# CPU the first time; a later run for the same versions builds nothing. It takes one core, at low priority.
set -euo pipefail

[[ $# == 1 ]] || { echo "usage: kubernetes.sh FOLDER" >&2; exit 2; }
kubernetes=v1.37.2 etcd=v3.7.0 helm=v3.22.0 monitors=v0.85.0
# Each library of Kubernetes is a module of its own: v1.37.2 of the programs needs v0.37.2 of the libraries.
libraries=v0.${kubernetes#v1.}
wanted="Kubernetes $kubernetes, etcd $etcd, helm $helm, PodMonitor $monitors"

mkdir -p "$1"
folder=$(cd "$1" && pwd -P)
[[ $(cat "$folder/complete" 2>/dev/null) != "$wanted" ]] || { echo "$wanted"; exit 0; }
go=$(go env GOVERSION | sed -E 's/^go1\.([0-9]+).*/\1/')
((go >= 21)) || { echo "kubernetes.sh: $(go env GOVERSION) is too old: install Go 1.21 or later" >&2; exit 2; }
export GOFLAGS="-p=1 -mod=mod -buildvcs=false -trimpath" GOMAXPROCS=1 GOWORK=off CGO_ENABLED=0
export GOTOOLCHAIN=${GOTOOLCHAIN:-auto}

# Builds programs of one module. The versions of its dependencies are those of its own go.mod, which replaces libraries by folders
# that its package lacks.
# build MODULE VERSION FLAGS PACKAGE...
build() {
    local module=$1 version=$2 flags=$3 source
    shift 3
    rm -rf "$folder/build"
    mkdir "$folder/build"
    cd "$folder/build"
    source=$(cd / && go mod download -json "$module@$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
    {
        echo "module build"
        sed -n '/^go [0-9]/p; /^godebug /p' "$source"
        echo "require $module $version"
        sed -n -E "s|^\t(k8s.io/[^ ]+) => \./staging/.*|replace \1 => \1 $libraries|p" "$source"
        sed -n '/^require (/,/^)/p' "$source" | sed -E "s| v0\.0\.0\$| $libraries|"
    } >go.mod
    nice -n 10 go build -ldflags "-s -w $flags" -o "$folder/" "$@"
}

# Without its version a server calls itself v0.0.0, and helm renders for an old cluster.
version=k8s.io/component-base/version.gitVersion
build k8s.io/kubernetes "$kubernetes" "-X $version=$kubernetes" k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl
minor=${kubernetes#v1.} minor=${minor%.*} flags="-X helm.sh/helm/v3/internal/version.version=$helm"
for package in chartutil lint/rules; do
    flags+=" -X helm.sh/helm/v3/pkg/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/$package.k8sVersionMinor=$minor"
done
build helm.sh/helm/v3 "$helm" "$flags" helm.sh/helm/v3/cmd/helm
build go.etcd.io/etcd/server/v3 "$etcd" "" go.etcd.io/etcd/server/v3
mv "$folder/server" "$folder/etcd"
# What a PodMonitor is, for the API server.
operator=$(cd / && go mod download -json "github.com/prometheus-operator/prometheus-operator@$monitors" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
install -m 644 "$operator/example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml" "$folder/podmonitors.yaml"
rm -r "$folder/build"
echo "$wanted" | tee "$folder/complete"
