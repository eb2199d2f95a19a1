// Moves the wall clock of the process that preloads it by CLOCK_MOVED_BY seconds, for tests of what
// happens over a jump. The monotonic clock goes on as it does.

#define _GNU_SOURCE
#include <stdlib.h>
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
