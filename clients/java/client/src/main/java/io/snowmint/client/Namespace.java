package io.snowmint.client;

/** A namespace as requests see it. */
final class Namespace {
    final String name;
    final boolean isText;

    /** The health of the namespace at each server, guarded by the {@link ServerChoice}. */
    final Health[] health;

    /** What failed last since the last answer. */
    private Failure last;

    Namespace(String name, boolean isText, int servers) {
        this.name = name;
        this.isText = isText;
        this.health = Health.of(servers);
    }

    String path() {
        return (isText ? "/v1/ids/" : "/v1/ranges/") + name;
    }

    synchronized Failure lastFailure() {
        return last;
    }

    synchronized void noteFailure(Failure failure) {
        // A second store is what somebody has to know of, whatever else fails too.
        if (last == null
                || last.kind() != ErrorKind.ANOTHER_STORE
                || failure.kind() == ErrorKind.ANOTHER_STORE) {
            last = failure;
        }
    }

    synchronized void forgetFailure() {
        last = null;
    }

    /** Returns whether a namespace can have a name. */
    static boolean isValid(String name) {
        return !name.isEmpty() && name.length() <= 64 && name.chars().allMatch(Namespace::isValid);
    }

    private static boolean isValid(int sign) {
        return sign >= 'a' && sign <= 'z'
                || sign >= 'A' && sign <= 'Z'
                || sign >= '0' && sign <= '9'
                || "._-:".indexOf(sign) >= 0;
    }
}
