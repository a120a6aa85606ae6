/* processes HOST PORT: processes that forbid themselves system calls before they connect. */
#define _GNU_SOURCE
#include "probe.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct sockaddr_in server;

/* The end of a process that connects under a filter: 0 if it has connected. */
static int confined(struct sock_filter *filter, unsigned short len)
{
	int status = -1;
	pid_t child = fork();
	if (!child) {
		struct sock_fprog program = {len, filter};
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (epoll_create1(0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
			_exit(2);
		_exit(connect_to(fd, server) || !echoes(fd));
	}
	waitpid(child, &status, 0);
	return status;
}

#define AT(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define GIVE(value) BPF_STMT(BPF_RET | BPF_K, value)

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	server = resolve(argv[1], atoi(argv[2]));
	struct sock_filter opens[] = {AT(nr), IS(SYS_openat, 0, 1), GIVE(SECCOMP_RET_KILL_PROCESS),
				      GIVE(SECCOMP_RET_ALLOW)};
	int found = confined(opens, sizeof opens / sizeof *opens);
	check("a process with an epoll instance that may open no file", found == 0, "status %x", found);
	struct sock_filter commands[] = {AT(nr), IS(SYS_fcntl, 1, 0), GIVE(SECCOMP_RET_ALLOW), AT(args[1]),
					 IS(F_GETFL, 2, 0), IS(F_SETFL, 1, 0), GIVE(SECCOMP_RET_KILL_PROCESS),
					 GIVE(SECCOMP_RET_ALLOW)};
	found = confined(commands, sizeof commands / sizeof *commands);
	/* isthmus may leave it alone. Then it can't connect. */
	check("a process that may ask for flags alone goes on", WIFEXITED(found) && WEXITSTATUS(found) < 2, "status %x",
	      found);
	return conclude();
}
