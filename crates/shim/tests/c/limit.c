/* limit: the soft limit of descriptors holds for every thread and for programs that are started,
 * whatever other threads do; and closefrom closes, also where the kernel has no close_range. */
#define _GNU_SOURCE
#include "probe.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { LIMIT = 200, OPENS = 300000, STARTS = 50 };
extern char **environ;
static atomic_int is_over;

/* As a server that accepts again and again while it has no descriptor left. */
static void *at_the_limit(void *unused)
{
	for (int fd; !is_over;)
		if ((fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0)
			close(fd);
	return unused;
}

static void soft_limit(void)
{
	struct rlimit limit;
	pthread_t thread;
	int got = 0, differ = 0, last = -1, fd;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = LIMIT;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		die("setrlimit");
	while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		last = fd;
	pthread_create(&thread, NULL, at_the_limit, NULL);
	for (int i = 0; i < OPENS; i++)
		if ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
			got++;
			close(fd);
		}
	check("no descriptor beyond the soft limit", !got, "%d", got);
	for (int i = 0; i < STARTS; i++) {
		char *arguments[] = {"sh", "-c", "test `ulimit -n` = 200", NULL};
		pid_t child;
		int status = -1;
		if (posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ))
			die("posix_spawn");
		waitpid(child, &status, 0);
		differ += status != 0;
	}
	check("programs that are started have the soft limit", !differ, "%d of %d have another", differ, STARTS);
	is_over = 1;
	pthread_join(thread, NULL);
	close(last);
}

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
	soft_limit();
	no_close_range();
	return conclude();
}
