/* limit: closefrom closes, also where the kernel has no close_range. */
#define _GNU_SOURCE
#include "probe.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void no_close_range(void)
{
	struct sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
				       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
				       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
				       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	if (dup2(STDERR_FILENO, 49) != 49 || dup2(STDERR_FILENO, 55) != 55)
		die("dup2");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		die("seccomp");
	int closed = close_range(50, 60, 0) ? errno : 0;
	int is_open = fcntl(55, F_GETFD) >= 0;
	closefrom(50);
	check("closefrom without close_range",
	      closed == ENOSYS && is_open && fcntl(55, F_GETFD) < 0 && fcntl(49, F_GETFD) >= 0, "error %d open %d", closed,
	      is_open);
}

int main(void)
{
	no_close_range();
	return conclude();
}
