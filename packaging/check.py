"""Checks the manifests in packaging/ that other programs read: packaging/check.py SNOWMINT [FOLDER]

Kubernetes manifests are rendered from each kustomization and validated against the schemas of the oldest and newest supported
release; compose.yaml and Dockerfile are parsed by libraries; the variables in all of them have to be flags of `snowmint serve`
with valid values; the bill of materials fits its schema. It prints one line for each file.

With a folder that has kubectl and helm, the chart has to lint, to render the same objects as the kustomizations, and to refuse wrong
values: tests/servers/kubernetes.sh fills one.
"""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import compose_spec
import kubernetes_validate
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from dockerfile_parse import DockerfileParser

HERE = Path(__file__).parent
SNOWMINT = Path(sys.argv[1])
TOOLS = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
VERSION = re.search(r'^version = "(.*)"$', (HERE.parent / "Cargo.toml").read_text(), re.M)[1]
RELEASES = ["1.31", kubernetes_validate.latest_version()]
# Lists that kustomize merges by a key instead of replacing them.
MERGE_KEYS = {"containers": "name", "env": "name", "volumeMounts": "mountPath", "volumes": "name", "ports": "containerPort"}
# The key of ports in a Service.
SERVICE_PORT = "port"


def require(truth, text):
    if not truth:
        sys.exit(f"packaging: {text}")


# --- kustomize: the features that these manifests use; anything else is an error


def documents(path):
    return [it for it in yaml.safe_load_all(path.read_text()) if it]


def merged(base, patch):
    """A strategic merge patch."""
    if not (isinstance(base, dict) and isinstance(patch, dict)):
        return copy.deepcopy(patch)
    result = dict(base)
    for key, value in patch.items():
        if key in MERGE_KEYS and isinstance(value, list):
            by = SERVICE_PORT if key == "ports" and "containerPort" not in value[0] else MERGE_KEYS[key]
            result[key] = merged_list(base.get(key, []), value, by)
        else:
            result[key] = merged(base[key], value) if key in base else copy.deepcopy(value)
    return result


def merged_list(base, patch, key):
    result = list(base)
    for item in patch:
        at = next((at for at, it in enumerate(result) if it[key] == item[key]), None)
        if item.get("$patch") == "delete":
            require(at is not None, f"a patch deletes {item[key]}, which does not exist")
            del result[at]
        elif at is None:
            result.append(copy.deepcopy(item))
        else:
            result[at] = merged(result[at], item)
    return result


def rendered(folder):
    file = folder / "kustomization.yaml"
    (kustomization,) = documents(file)
    known = {"apiVersion", "kind", "resources", "patches", "namespace", "images", "replicas", "labels"}
    require(set(kustomization) <= known, f"{file}: {set(kustomization) - known} is not known to this check")
    objects = []
    for name in kustomization["resources"]:
        path = folder / name
        objects += rendered(path) if path.is_dir() else documents(path)
    named = lambda patch: [it for it in objects if (it["kind"], it["metadata"]["name"]) == (patch["kind"], patch["metadata"]["name"])]
    for entry in kustomization.get("patches", []):
        require(set(entry) == {"path"}, f"{file}: {entry} is not known to this check")
        for patch in documents(folder / entry["path"]):
            (target,) = named(patch)
            objects[objects.index(target)] = merged(target, patch)
    for entry in kustomization.get("labels", []):
        require(set(entry) == {"pairs", "includeTemplates"} and entry["includeTemplates"], f"{file}: {entry} is not known to this check")
        for it in objects:
            for metadata in [it["metadata"], *(it["spec"]["template"]["metadata"] for _ in containers(it))]:
                metadata["labels"] = {**metadata.get("labels", {}), **entry["pairs"]}
    if namespace := kustomization.get("namespace"):
        for it in objects:
            if it["kind"] != "Namespace":
                it["metadata"]["namespace"] = namespace
            for subject in it.get("subjects", []):
                subject["namespace"] = namespace
    for change in kustomization.get("replicas", []):
        targets = [it for it in objects if it["kind"] in ("Deployment", "StatefulSet") and it["metadata"]["name"] == change["name"]]
        require(targets, f"{file}: nothing has the name {change['name']}")
        for it in targets:
            it["spec"]["replicas"] = change["count"]
    for change in kustomization.get("images", []):
        found = [c for it in objects for c in containers(it) if c["image"].split(":")[0] == change["name"]]
        require(found, f"{file}: nothing has the image {change['name']}")
        for container in found:
            container["image"] = f"{change['newName']}:{change['newTag']}"
    return objects


def containers(it):
    return it["spec"]["template"]["spec"]["containers"] if it["kind"] in ("Deployment", "StatefulSet") else []


# --- consistency checks


def settings(variables, where):
    """Variables are flags of `serve`, and their values are valid."""
    environment = {"PATH": os.environ["PATH"], **variables}
    ran = subprocess.run([SNOWMINT, "config", "print"], env=environment, capture_output=True, text=True)
    require(ran.returncode == 0, f"{where}: {ran.stderr}")
    for name in (it for it in variables if it.startswith("SNOWMINT_")):
        key = name.removeprefix("SNOWMINT_").lower()
        require(re.search(rf"^{key} = ", ran.stdout, re.M), f"{where}: {name} is no variable of `snowmint serve`")


def check_kubernetes(folder):
    objects = rendered(folder)
    check_objects(objects, folder)
    compared = kustomized(folder, objects)
    print(f"{folder.relative_to(HERE)}: {len(objects)} objects valid in {', '.join(RELEASES)}{compared}")


def check_objects(objects, where):
    for it in objects:
        # The API server knows a PodMonitor only with the Prometheus Operator.
        for release in RELEASES if it["kind"] != "PodMonitor" else []:
            kubernetes_validate.validate(it, release, strict=True)
        if it["kind"] != "Namespace":
            told = it["metadata"]["labels"]
            names = {f"app.kubernetes.io/{name}" for name in ("name", "instance", "version")}
            require(names <= set(told), f"{where}: {it['kind']} has the recommended labels")
            require(told["app.kubernetes.io/version"] == VERSION, f"{where}: {it['kind']} names version {VERSION}")
    (workload,) = [it for it in objects if it["kind"] in ("Deployment", "StatefulSet")]
    template = workload["spec"]["template"]
    labels, pod = template["metadata"]["labels"], template["spec"]
    (container,) = pod["containers"]
    selects = lambda selector: selector.items() <= labels.items()
    require(selects(workload["spec"]["selector"]["matchLabels"]), "the workload selects its pods")
    ports = {it["name"]: it["containerPort"] for it in container["ports"]}
    for it in objects:
        if it["kind"] == "Service":
            require(selects(it["spec"]["selector"]), f"{it['metadata']['name']} selects the pods")
            require({port["targetPort"] for port in it["spec"]["ports"]} <= set(ports), "a Service names ports of the pod")
            protocols = {port["name"]: port.get("appProtocol") for port in it["spec"]["ports"]}
            secured = any(variable["name"] == "SNOWMINT_TLS_CERT" for variable in container["env"])
            wanted = ("https", "https") if secured else ("http", "kubernetes.io/h2c")
            require((protocols["http"], protocols["grpc"]) == wanted, "proxies know how clients speak")
        elif it["kind"] == "PodDisruptionBudget":
            require(selects(it["spec"]["selector"]["matchLabels"]), "the budget selects the pods")
        elif it["kind"] == "PodMonitor":
            require(selects(it["spec"]["selector"]["matchLabels"]), "the monitor selects the pods")
            require([it["port"] for it in it["spec"]["podMetricsEndpoints"]] == ["probe"], "the monitor asks the port without TLS")
        elif it["kind"] == "NetworkPolicy":
            require(selects(it["spec"]["podSelector"]["matchLabels"]), "the policy selects the pods")
            named = {port["port"] for rule in it["spec"]["ingress"] for port in rule["ports"]}
            require(named == set(ports), "the policy names each port")
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    require(all(it["port"] == "probe" for it in probes.values()), "probes ask the port without TLS")
    require(probes["readinessProbe"]["path"] == "/readyz", "readiness follows the lease")
    require(probes["livenessProbe"]["path"] == "/healthz", "liveness does not follow the store")
    mounted = {it["name"] for it in container["volumeMounts"]}
    require(mounted == {it["name"] for it in pod["volumes"]}, "each volume is mounted")
    (role,) = [it for it in objects if it["kind"] == "Role"]
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "create", "patch"]}
    require(role["rules"] == [rule], "the role has the four rights of the store")
    # Files of a Secret are missing here, and a pod's name is known only in the pod.
    variables = {it["name"]: it.get("value", "node-0") for it in container["env"]}
    settings({**image_variables(), **variables}, where)
    seconds = lambda name: int(variables[name].removesuffix("s"))
    require(pod["terminationGracePeriodSeconds"] > seconds("SNOWMINT_DRAIN_DELAY") + 5, "a pod may end its requests")


def kustomized(folder, objects):
    """Checks that kustomize, if installed, renders the same."""
    kubectl = TOOLS / "kubectl" if TOOLS else shutil.which("kubectl")
    if not kubectl:
        return ""
    ran = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True)
    require(ran.returncode == 0, ran.stderr)
    in_order = lambda them: sorted(json.dumps(unordered(it), sort_keys=True) for it in them)
    require(in_order(yaml.safe_load_all(ran.stdout)) == in_order(objects), f"{folder}: kustomize renders something else")
    return "; the same by kustomize"


def unordered(it):
    """An object whose lists with merge keys are sorted: an added item may stand first or last."""
    if isinstance(it, dict):
        return {key: sorted(map(unordered, value), key=lambda item: json.dumps(item, sort_keys=True))
                if key in MERGE_KEYS and isinstance(value, list) else unordered(value) for key, value in it.items()}
    return [unordered(item) for item in it] if isinstance(it, list) else it


# --- helm: the chart says the same as the kustomizations

CHART = HERE / "helm/snowmint"
# The values that give the objects of each kustomization.
SAME_VALUES = {
    "deployment": [],
    "statefulset": ["kind=StatefulSet"],
    "overlays/production": ["replicas=5", "image.repository=registry.example.com/snowmint"],
    "overlays/prometheus-operator": ["podMonitor.enabled=true"],
    "overlays/tls": ["tls.secretName=snowmint-tls", "tokens.secretName=snowmint-tokens"],
}
OTHER_VALUES = [
    ["store.url=postgres://mint@db/ids", "store.passwordSecret.name=database", "settings.layout=twitter", "settings.datacenter=1"],
    ["nameOverride=ids", "image.digest=sha256:" + 64 * "0", "service.type=LoadBalancer", "service.annotations.a=b"],
    ["serviceAccount.create=false", "serviceAccount.name=ids", "podDisruptionBudget.enabled=false", "podLabels.a=b", "extraEnv[0].name=A"],
    ["networkPolicy.enabled=false", "tls.secretName=a", "tokens.secretName=b", "podAnnotations.prometheus\\.io/scrape=off"],
]
# Values that are refused, each with a part of the error.
WRONG_VALUES = {
    "kind=DaemonSet": "kind",
    "replicas=-1": "replicas",
    "replica=3": "replica",
    "store.url=sqlite:ids.db": "store",
    "window=30": "window",
    "serviceAccount.create=false": "serviceAccount",
    "networkPolicy.enabled=false": "every pod of the cluster could take ids",
    "tls.secretName=a": "tls.secretName and tokens.secretName require each other",
    "drainDelay=26s": "terminationGracePeriodSeconds 30 is too short",
    "drainDelay=1m": "drainDelay",
    "networkPolicy.clients=null": "clients",
}
# Texts that YAML would read as something else, or not at all, without quotes.
TEXTS = ["true", "007", "1e3", "null", "a: b", "a #b", "*a", "'a' \"b\""]


def any_texts(text):
    """Values with a text wherever the schema allows any."""
    return {
        "fullnameOverride": text(), "nameOverride": text(), "priorityClassName": text(),
        "image": {"repository": text(), "tag": text()}, "imagePullSecrets": [{"name": text()}],
        "store": {"url": f"kubernetes:{text()}", "passwordSecret": {"name": text(), "key": text()}},
        "settings": {"layout": text(), "max_connections": 2_000_000, "rotate": True}, "extraEnv": [{"name": text(), "value": text()}],
        "tls": {"secretName": text()}, "tokens": {"secretName": text()},
        "serviceAccount": {"name": text(), "annotations": {"a": text()}}, "service": {"annotations": {"a": text()}},
        "podDisruptionBudget": {"maxUnavailable": text()}, "podMonitor": {"enabled": True, "labels": {"a": text()}},
        "podAnnotations": {"a": text()}, "podLabels": {"a": text()}, "nodeSelector": {"a": text()},
    }


def replaced(it, text):
    """An object with a text in place of each marker."""
    if isinstance(it, dict):
        return {key: replaced(value, text) for key, value in it.items()}
    if isinstance(it, list):
        return [replaced(item, text) for item in it]
    return re.sub(r"mark-\d+-", lambda _: text, it) if isinstance(it, str) else it


def check_texts():
    """Each text value arrives as it is: whatever it says, in the places where a marker is."""
    def objects(text):
        ran = helm("template", "snowmint", CHART, "--values", "-", given=json.dumps(any_texts(text)))
        require(ran.returncode == 0, f"values that are any text: {ran.stderr}")
        try:
            return [it for it in yaml.safe_load_all(ran.stdout) if it]
        except yaml.YAMLError as error:
            sys.exit(f"packaging: values of {text()!r}: {error}")
    marks = (f"mark-{number}-" for number in range(99))
    marked = objects(lambda: next(marks))
    count = int(next(marks).split("-")[1])
    found = set(re.findall(r"mark-\d+-", json.dumps(marked)))
    require(len(found) == count, f"each of {count} texts is somewhere: {sorted(found)}")
    (env,) = [containers(it)[0]["env"] for it in marked if containers(it)]
    told = {it["name"]: it.get("value") for it in env}
    require((told["SNOWMINT_MAX_CONNECTIONS"], told["SNOWMINT_ROTATE"]) == ("2000000", "true"), f"settings are texts: {told}")
    for text in TEXTS:
        for got, wanted in zip(objects(lambda: text), replaced(marked, text), strict=True):
            require(got == wanted, f"{wanted['kind']} with the values {text!r} is\n{got}\nand not\n{wanted}")


def helm(*args, given=None):
    return subprocess.run([TOOLS / "helm", *args], capture_output=True, text=True, input=given)


def chart(values, namespace="default"):
    flags = [it for value in values for it in ("--set", value)]
    return helm("template", "snowmint", CHART, "--namespace", namespace, *flags)


def check_chart():
    (told,) = documents(CHART / "Chart.yaml")
    require((told["version"], told["appVersion"]) == (VERSION, VERSION), f"Chart.yaml names version {VERSION}")
    ran = helm("lint", "--strict", CHART)
    require(ran.returncode == 0, ran.stdout + ran.stderr)
    for name, values in SAME_VALUES.items():
        ran = chart(values)
        require(ran.returncode == 0, f"{name}: {ran.stderr}")
        ours = [it for it in yaml.safe_load_all(ran.stdout) if it]
        check_objects(ours, f"chart as {name}")
        theirs = [it for it in rendered(HERE / "kubernetes" / name) if it["kind"] != "Namespace"]
        told, wanted = by_name(ours), by_name(theirs)
        require(told.keys() == wanted.keys(), f"chart as {name}: {told.keys() ^ wanted.keys()}")
        for which, object in wanted.items():
            require(told[which] == object, f"chart as {name}: {which} is\n{told[which]}\nand not\n{object}")
    for values in OTHER_VALUES:
        ran = chart(values)
        require(ran.returncode == 0, f"{values}: {ran.stderr}")
        for it in yaml.safe_load_all(ran.stdout):
            for release in RELEASES if it else []:
                kubernetes_validate.validate(it, release, strict=True)
    for value, wanted in WRONG_VALUES.items():
        ran = chart([value])
        require(ran.returncode != 0 and wanted in ran.stderr, f"{value} is refused: {ran.stderr or 'it is not'}")
    check_texts()
    folders = {file.parent for file in (HERE / "kubernetes").rglob("kustomization.yaml")} - {HERE / "kubernetes/base"}
    require(folders == {HERE / "kubernetes" / name for name in SAME_VALUES}, "the chart is compared with each kustomization")
    print(f"helm/snowmint: the same as {', '.join(SAME_VALUES)}; {len(WRONG_VALUES)} wrong values refused")


def by_name(objects):
    return {(it["kind"], it["metadata"]["name"]): in_common(it) for it in objects}


def in_common(it):
    """An object without what only helm or only kustomize says: who manages it, and where; a release selects its own pods."""
    if isinstance(it, dict):
        own = {"app.kubernetes.io/managed-by", "helm.sh/chart", "namespace"}
        selects = {"matchLabels", "selector"}
        drop = lambda key, value: {name: at for name, at in value.items() if name != "app.kubernetes.io/instance"} if key in selects else value
        return {key: in_common(drop(key, value)) for key, value in unordered(it).items() if key not in own}
    return [in_common(item) for item in it] if isinstance(it, list) else it


# --- the image and the rest


def dockerfile():
    parser = DockerfileParser(fileobj=open(HERE / "docker/Dockerfile", "rb"))
    last = max(at for at, it in enumerate(parser.structure) if it["instruction"] == "FROM")
    return parser, parser.structure[last:]


def image_variables():
    parser, _ = dockerfile()
    return {name: value for name, value in parser.envs.items() if name.startswith("SNOWMINT_")}


def check_docker():
    _, last = dockerfile()
    said = {}
    for it in last:
        said.setdefault(it["instruction"], []).append(it["value"])
    require(said["FROM"] == ["scratch"], "the image is built from nothing")
    (user,) = said["USER"]
    require(re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), "the user is a number other than 0, as runAsNonRoot asks")
    variables = image_variables()
    settings(variables, "Dockerfile")
    ports = {variables[name].rsplit(":", 1)[1] for name in ("SNOWMINT_HTTP", "SNOWMINT_RESP", "SNOWMINT_PROBE")}
    require(set(said["EXPOSE"][0].split()) == ports, "each port is exposed")
    require(said["VOLUME"] == [variables["SNOWMINT_DATA"]] == said["WORKDIR"], "the data directory is the volume")
    (health,) = said["HEALTHCHECK"]
    command = json.loads(health.split("CMD", 1)[1])
    ran = subprocess.run([SNOWMINT, *command[1:], "--help"], capture_output=True)
    require(ran.returncode == 0, f"the health check is a command: {command}")
    require(json.loads(said["ENTRYPOINT"][0]) == command[:1], "the entry point is the binary")
    print(f"docker/Dockerfile: user {user}, ports {' '.join(sorted(ports))}")


def check_compose():
    text = (HERE / "docker/compose.yaml").read_text()
    # The library does not support YAML anchors.
    compose_spec.PyCompose.from_yaml(yaml.safe_dump(yaml.safe_load(text))).validate()
    services = yaml.safe_load(text)["services"]
    for name, service in services.items():
        if name.startswith("node"):
            require(service["command"][0] == "serve", f"{name} serves")
            settings({**image_variables(), **service["environment"]}, f"compose.yaml, {name}")
            require(service["environment"]["SNOWMINT_STORE"].split("//")[1].split(":")[0] in services, "the store is a service")
            build = HERE / "docker" / service["build"]["context"]
            require((build / service["build"]["dockerfile"]).is_file(), "the Dockerfile is there")
    require("--auto-compaction-mode=periodic" in services["etcd"]["command"], "etcd compacts what renewals of leases add")
    print(f"docker/compose.yaml: {', '.join(services)}")


def check_unit():
    lines = (HERE / "systemd/snowmint.service").read_text().splitlines()
    for line in ("StartLimitIntervalSec=0", "After=network-online.target time-sync.target", "Restart=on-failure"):
        require(line in lines, f"snowmint.service: {line} is missing")
    print("systemd/snowmint.service")


def check_bill_of_materials():
    text = subprocess.check_output([sys.executable, HERE / "sbom.py"], text=True)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    require(wrong is None, f"the bill of materials: {wrong}")
    told = json.loads(text)
    names = {it["name"] for it in told["components"]}
    require({"snowmint", "snowmint-server", "tokio", "libsqlite3-sys", "ring"} <= names, "it names what is linked")
    # Used by tests only.
    require(not {"proptest", "loom", "stateright"} & names, "it names nothing else")
    require(all("licenses" in it for it in told["components"]), "each crate has a licence")
    print(f"sbom.py: {len(names)} crates")


check_docker()
check_compose()
check_unit()
check_bill_of_materials()
for file in sorted((HERE / "kubernetes").rglob("kustomization.yaml")):
    if file.parent.name != "base":
        check_kubernetes(file.parent)
if TOOLS:
    check_chart()
