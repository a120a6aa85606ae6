/* Which processors a process may run on, and whether they are enough for all ranks that may run on them. */
#ifndef ISTHMUS_PROCESSORS_H
#define ISTHMUS_PROCESSORS_H

struct processors {
    unsigned long long set;     /* equal for equal sets of processors of one machine; 0: not known */
    int count;                  /* processors of the set */
};

/* Those of the calling thread. Network namespaces and containers of one machine share its processors. `node`
 * stands for the machine where the kernel doesn't tell machines apart. */
struct processors processors_of_thread(const char *node);

/* Fills in whether more than `count` processes have the set of each, of so many. Pure. Returns 0, or -1
 * without memory. */
int oversubscribed(const struct processors *of, int size, int *is_oversubscribed);

#endif
