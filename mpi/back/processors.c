#include "processors.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "numbering.h"

/* The kernel's identity since it was started: other namespaces have the same one. */
#define MACHINE "/proc/sys/kernel/random/boot_id"

/* FNV-1a, 64 bits. */
static unsigned long long add(unsigned long long value, const void *bytes, size_t length)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < length; i++)
        value = (value ^ byte[i]) * 1099511628211ull;
    return value;
}

static unsigned long long machine(const char *node)
{
    char id[64];
    int fd = open(MACHINE, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, id, sizeof id);
    if (fd >= 0)
        close(fd);
    const unsigned long long start = 14695981039346656037ull;
    return length > 0 ? add(start, id, (size_t)length) : add(start, node, strlen(node));
}

struct processors processors_of_thread(const char *node)
{
    static const struct processors unknown = { 0, 0 };
    cpu_set_t set[8192 / sizeof(cpu_set_t)];   /* 65,536 processors */
#ifdef SIMULATED
    /* Nothing that is simulated waits for a processor. But ranks choose as if all shared so many. */
    const char *shared = getenv("ISTHMUS_SIMULATED_PROCESSORS");
    return shared ? (struct processors){ 1, atoi(shared) } : unknown;
#endif
    memset(set, 0, sizeof set);
    if (sched_getaffinity(0, sizeof set, set) != 0)
        return unknown;
    unsigned long long number = add(machine(node), set, sizeof set);
    return (struct processors){ number ? number : 1, CPU_COUNT_S(sizeof set, set) };
}

int oversubscribed(const struct processors *of, int size, int *is_oversubscribed)
{
    struct numbering numbering;
    int *processes = calloc((size_t)size, sizeof *processes);
    if (processes == NULL || numbering_start(&numbering, size) != 0) {
        free(processes);
        return -1;
    }
    /* Until all are counted, the number of the set. */
    for (int i = 0; i < size; i++) {
        is_oversubscribed[i] = numbering_of(&numbering, (int)(of[i].set >> 32), (int)(of[i].set & 0xffffffff));
        processes[is_oversubscribed[i]]++;
    }
    for (int i = 0; i < size; i++)
        is_oversubscribed[i] = of[i].set != 0 && processes[is_oversubscribed[i]] > of[i].count;
    numbering_free(&numbering);
    free(processes);
    return 0;
}
