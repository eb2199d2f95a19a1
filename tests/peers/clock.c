// Moves the wall clock of the process that preloads it by CLOCK_MOVED_BY seconds, for tests of what
// happens over a jump, and shows it the file BOOT_ID in place of the id of the machine's boot. The
// clocks that count from the boot go on as they do.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    const char *seconds = getenv("CLOCK_MOVED_BY");
    if (!failed && clock == CLOCK_REALTIME && seconds)
        now->tv_sec += atol(seconds);
    return failed;
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    const char *boot = getenv("BOOT_ID");
    if (boot && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0)
        path = boot;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
