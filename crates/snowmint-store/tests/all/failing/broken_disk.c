// A disk that fails: while the file "$BROKEN_DISK" + name exists, calls on SQLite files return EIO.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int broken(int fd, const char *name) {
    char path[512], link[64], target[512];
    const char *prefix = getenv("BROKEN_DISK");
    if (!prefix) return 0;
    snprintf(path, sizeof path, "%s%s", prefix, name);
    if (access(path, F_OK)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length < 0) return 0;
    target[length] = 0;
    // The copy that the test reads meanwhile is on another disk.
    return !strncmp(target, prefix, strlen(prefix) - strlen("broken-")) && strstr(target, "leases.db");
}

#define CALL(result, function, name, parameters, arguments)                                  \
    result function parameters {                                                             \
        static result(*next) parameters;                                                     \
        if (!next) next = (result(*) parameters)dlsym(RTLD_NEXT, #function);                 \
        if (broken(fd, name)) return errno = EIO, -1;                                        \
        return next arguments;                                                               \
    }

CALL(int, fsync, "sync", (int fd), (fd))
CALL(int, fdatasync, "sync", (int fd), (fd))
CALL(ssize_t, write, "write", (int fd, const void *from, size_t count), (fd, from, count))
CALL(ssize_t, pwrite, "write", (int fd, const void *from, size_t count, off_t at), (fd, from, count, at))
CALL(ssize_t, pwrite64, "write", (int fd, const void *from, size_t count, off64_t at), (fd, from, count, at))
CALL(ssize_t, read, "read", (int fd, void *to, size_t count), (fd, to, count))
CALL(ssize_t, pread, "read", (int fd, void *to, size_t count, off_t at), (fd, to, count, at))
CALL(ssize_t, pread64, "read", (int fd, void *to, size_t count, off64_t at), (fd, to, count, at))
