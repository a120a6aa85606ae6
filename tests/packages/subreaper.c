/* The emulator refuses to make a process the reaper of its descendants (PR_SET_CHILD_SUBREAPER),
 * which what supervises a job's commands asks for. Preloaded, this says that it is one. All other
 * calls go to the kernel by themselves, as the shim has functions of its own for them. */
#include <errno.h>
#include <linux/prctl.h>
#include <sys/syscall.h>

int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
    register long result __asm__("x0") = option;
    register unsigned long x1 __asm__("x1") = a, x2 __asm__("x2") = b, x3 __asm__("x3") = c, x4 __asm__("x4") = d;
    register long call __asm__("x8") = SYS_prctl;
    if (option == PR_SET_CHILD_SUBREAPER)
        return 0;
    __asm__ volatile("svc 0" : "+r"(result) : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(call) : "memory");
    if (result < 0) {
        errno = (int)-result;
        return -1;
    }
    return (int)result;
}
