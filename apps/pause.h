/*
 * pause.h: ranks that wait leave the processor to others, where many share one.
 *
 *   env PAUSE=SECONDS PROGRAM
 *
 * A rank that waits sleeps for so long before it looks again: where the MPI yields (Open MPI's
 * mpi_yield_when_idle), or sleeps itself, but for less (MPICH's MPIR_CVAR_CH4_PROGRESS_THROTTLE). Many
 * ranks that only yield fill a core. Ranks also ask for the shortest slice of a core, 0.1 ms (Linux
 * 6.12): otherwise one that works may keep a core for some ms from others that have just woken.
 *
 * These functions are also those of all libraries in the program. For 64-bit systems.
 */
#ifndef PAUSE_H
#define PAUSE_H

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long pause_nanoseconds;

static void ask_for_the_shortest_slice(void)
{
    /* sched_setattr(2) */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {0};
    const int is_known = syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0;
    attributes.runtime = 100000;
    if (!is_known || syscall(SYS_sched_setattr, 0, &attributes, 0) != 0)
        perror("PAUSE: a rank gets no shorter slices");
}

static __attribute__((constructor)) void read_pause(void)
{
    const char *text = getenv("PAUSE");
    if (!text)
        return;
    char *end;
    const double seconds = strtod(text, &end);
    if (end == text || *end || !(seconds > 0 && seconds < 1)) {
        fprintf(stderr, "PAUSE=%s: give seconds between 0 and 1\n", text);
        exit(2);
    }
    pause_nanoseconds = (long)(seconds * 1e9);
    /* The kernel adds 50 us otherwise. */
    prctl(PR_SET_TIMERSLACK, 1L);
    ask_for_the_shortest_slice();
}

/* The linker takes a program's own functions before the C library's. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
    const struct timespec least = {.tv_nsec = pause_nanoseconds};
    const int is_shorter = time && time->tv_sec == 0 && time->tv_nsec >= 0 && time->tv_nsec < pause_nanoseconds;
    return (int)syscall(SYS_nanosleep, is_shorter ? &least : time, left);
}

int sched_yield(void)
{
    const int before = errno;
    const struct timespec none = {0};
    if (pause_nanoseconds > 0)
        nanosleep(&none, NULL);
    else
        syscall(SYS_sched_yield);
    errno = before;
    return 0;
}

#endif
