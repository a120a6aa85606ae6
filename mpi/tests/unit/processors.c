/* Which processes have too few processors, by a table; and what a thread may run on. */
#include "../../back/processors.h"

#include <sched.h>

#include "unit.h"

enum { PROCESSES_MAX = 8 };

/* A set is a letter, and a digit says how many processors it has: "a2a2b1". */
static void check_sets(void)
{
    static const struct {
        const char *sets, *want;
    } cases[] = {
        { "a1", "0" },
        { "a2a2", "00" },
        { "a1a1", "11" },
        { "a2a2a2", "111" },
        { "a1b1c1", "000" },                /* each is bound to its own */
        { "a2b1a2b1", "0101" },             /* two are bound to the same one */
        { "a2b2a2b2a2", "10101" },          /* one node of two is full */
        { "-0-0-0a1", "0000" },             /* not known */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct processors of[PROCESSES_MAX];
        int found[PROCESSES_MAX], size = (int)strlen(cases[i].want);
        for (int p = 0; p < size; p++) {
            char letter = cases[i].sets[2 * p];
            /* Sets that differ in one half of the number only are different, too. */
            unsigned long long set = letter == '-' ? 0 : (unsigned long long)(letter - 'a' + 1) << (letter % 2 ? 40 : 0);
            of[p] = (struct processors){ set, cases[i].sets[2 * p + 1] - '0' };
        }
        CHECK(oversubscribed(of, size, found) == 0, "memory");
        for (int p = 0; p < size; p++)
            CHECK(found[p] == cases[i].want[p] - '0', "%s: process %d: %d", cases[i].sets, p, found[p]);
    }
}

/* Bound to one processor, a thread has another set, with this one. */
static void check_own(void)
{
    cpu_set_t all, one;
    struct processors before = processors_of_thread("n1.a"), again = processors_of_thread("n1.a");
    CHECK(before.set != 0 && before.count >= 1, "%d processors", before.count);
    CHECK(before.set == again.set && before.count == again.count, "twice the same");
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "affinity");
    CHECK(before.count == CPU_COUNT(&all), "%d processors, not %d", before.count, CPU_COUNT(&all));
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "binding");
    struct processors bound = processors_of_thread("n1.a");
    CHECK(bound.count == 1 && (before.count == 1 || bound.set != before.set), "%d processors", bound.count);
}

int main(void)
{
    check_sets();
    check_own();
    return finish("processors");
}
