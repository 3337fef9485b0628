// A disk that hangs: while the file $HANG exists, writes and syncs of the logs of MariaDB and MySQL (the redo log, the binary log) and Redis
// (the append-only file) wait; while the file $HANG_SYNCS exists, only their syncs do. Loaded into a server by LD_PRELOAD.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is_log(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, "/ib_logfile") || strstr(path, "/#innodb_redo/") || strstr(path, "/binlog.") || strstr(path, "/appendonlydir/");
}

static int exists(const char *variable) {
    const char *path = getenv(variable);
    return path && !access(path, F_OK);
}

static void before_write(int fd) {
    while (exists("HANG") && is_log(fd)) usleep(20000);
}

static void before_sync(int fd) {
    while ((exists("HANG") || exists("HANG_SYNCS")) && is_log(fd)) usleep(20000);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    before_write(fd);
    return NEXT(pwrite)(fd, bytes, size, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    before_write(fd);
    return NEXT(pwrite64)(fd, bytes, size, at);
}

int fsync(int fd) {
    before_sync(fd);
    return NEXT(fsync)(fd);
}

int fdatasync(int fd) {
    before_sync(fd);
    return NEXT(fdatasync)(fd);
}
