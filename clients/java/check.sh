#!/usr/bin/env bash
# Checks the Java modules: format, javac with all lints and doclint, unit tests, javadoc. It builds the driver for the conformance
# kit, the benchmark and the examples. Needs a JDK 17 or later and Maven (Debian: default-jdk-headless maven). The first run
# downloads plugins and libraries into .m2/, later ones need no network.
#
#   ./check.sh                  everything
#   ./check.sh client driver    these modules and those that they need
#   ./check.sh --format client  formats these modules, without names all, and checks nothing
set -euo pipefail
cd "$(dirname "$0")"
target=$PWD/target
mkdir -p "$target"
formatter=$target/google-java-format-1.24.0-all-deps.jar

maven() {
    # A build is short: the second compiler of the JVM costs more than it saves.
    MAVEN_OPTS="-XX:TieredStopAtLevel=1 ${MAVEN_OPTS:-}" mvn -B -ntp -T 2 -Dstyle.color=never -Dmaven.repo.local="$PWD/.m2" "$@"
}

# quietly NAME COMMAND... shows what is wrong only if a command fails.
quietly() {
    local log=$target/$1.log
    shift
    "$@" >"$log" 2>&1 && return
    grep -iE 'error|warning' "$log" | head -n 40 >&2 || true
    echo "failed: see $log" >&2
    exit 1
}

if [[ ! -f $formatter ]]; then
    quietly formatter maven -N org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
        -Dartifact=com.google.googlejavaformat:google-java-format:1.24.0:jar:all-deps -DoutputDirectory="$target"
fi
exports=()
for package in api code file parser tree util; do
    exports+=(--add-exports "jdk.compiler/com.sun.tools.javac.$package=ALL-UNNAMED")
done
action=check
if [[ ${1-} == --format ]]; then
    action=format
    shift
fi
modules=("$@")
mapfile -t sources < <(find "${modules[@]:-.}" -path '*/src/*' -name '*.java')
format() {
    java -XX:TieredStopAtLevel=1 "${exports[@]}" -jar "$formatter" --aosp "$@" "${sources[@]}"
}
if [[ $action == format ]]; then
    format --replace
    exit
fi
if ! unformatted=$(format --dry-run --set-exit-if-changed); then
    printf 'run ./check.sh --format, which changes these files:\n%s\n' "$unformatted" >&2
    exit 1
fi

# Without a network if these modules were built from the same poms before.
only=()
if ((${#modules[@]})); then
    only=(--projects "$(IFS=,; echo "${modules[*]}")" --also-make)
fi
poms=$({ echo "$*"; find . -name pom.xml -not -path '*/target/*' | sort | xargs cat; } | sha256sum | cut -d' ' -f1)
known=$target/built-$poms
offline=()
if [[ -f $known ]]; then
    offline=(--offline)
fi
quietly package maven "${offline[@]}" "${only[@]}" package
touch "$known"
grep -E '^\[(INFO|WARNING)\] Tests run: [0-9]+, Failures: 0, Errors: 0, Skipped: [0-9]+$' "$target/package.log" || true

mapfile -t documented < <(find client/src/main/java -name '*.java')
quietly javadoc javadoc -quiet -Xdoclint:all -Werror -encoding UTF-8 -d "$target/javadoc" "${documented[@]}"
