/* Functions that isthmus calls and glibc 2.17 doesn't have. `make dist` links them into what
 * it compiles, so that it runs with that library, too. The kernel says whether it has the
 * system call. */
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* glibc 2.27 */
HIDDEN int memfd_create(const char *name, unsigned flags) { return (int)syscall(SYS_memfd_create, name, flags); }
