/* processes HOST PORT: processes that fork while connects are under way, and processes that forbid
 * themselves system calls before they connect. */
#define _GNU_SOURCE
#include "probe.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
	MANY = 150,
	LIMIT = 600, /* With it at most 75 requests wait at once. */
	FEW = 20,
	HARD = 90,
};
static struct sockaddr_in server;

static void limit_to(int soft, int hard)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = soft;
	if (hard)
		limit.rlim_max = hard;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		die("setrlimit");
}

static void start(int *fd, int count)
{
	for (int i = 0; i < count; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (connect_to(fd[i], server) != EINPROGRESS)
			die("connect");
	}
}

/* How many of the sockets are connected in time. */
static int connected(const int *fd, int count)
{
	double until = milliseconds() + 2 * PATIENCE_MS;
	int good = 0;
	for (int i = 0; i < count; i++) {
		struct pollfd entry = {.fd = fd[i], .events = POLLOUT};
		double left = until - milliseconds();
		good += poll(&entry, 1, left > 0 ? (int)left : 0) == 1 && entry.revents == POLLOUT && echoes(fd[i]);
	}
	return good;
}

/* What a process finds that `action` runs in. */
static int in_process(int (*action)(void))
{
	int way[2], found = -1;
	if (pipe(way))
		die("pipe");
	pid_t child = fork();
	if (!child) {
		found = action();
		_exit(write(way[1], &found, sizeof found) != sizeof found);
	}
	close(way[1]);
	/* The child's child may be the one that writes. */
	if (read(way[0], &found, sizeof found) != sizeof found)
		found = -1;
	close(way[0]);
	waitpid(child, NULL, 0);
	return found;
}

/* As a daemon, whose parent ends: the sockets that are connected, or whose connect has failed. That is of
 * those whose connection had come to the parent, a few at most. */
static int parent_ends(void)
{
	int fd[MANY], good, failed = 0;
	limit_to(LIMIT, 0);
	start(fd, MANY);
	if (fork())
		_exit(0);
	good = connected(fd, MANY);
	for (int i = 0; i < MANY; i++) {
		struct pollfd entry = {.fd = fd[i], .events = POLLOUT};
		failed += poll(&entry, 1, 0) == 1 && entry.revents & POLLERR;
	}
	return failed > FEW ? good : good + failed;
}

/* Descriptors that the process can't have after two forks. */
static int lacking(void)
{
	int fd[LIMIT], used = 0, got = MANY;
	pid_t child[2];
	limit_to(LIMIT, 0);
	for (int i = 0; i < LIMIT; i++)
		used += fcntl(i, F_GETFD) >= 0;
	start(fd, MANY);
	for (int i = 0; i < 2; i++)
		if (!(child[i] = fork())) {
			pause();
			_exit(0);
		}
	while (socket(AF_INET, SOCK_STREAM, 0) >= 0)
		got++;
	for (int i = 0; i < 2; i++) {
		kill(child[i], SIGKILL);
		waitpid(child[i], NULL, 0);
	}
	return LIMIT - used - got;
}

static int at_the_hard_limit(void)
{
	int fd[FEW], rest[HARD], count = 0;
	limit_to(HARD, HARD);
	start(fd, FEW);
	while ((rest[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		count++;
	for (int i = 0; i < 3; i++)
		close(rest[--count]);
	pid_t child = fork();
	if (!child) {
		/* It waits for the same connections, and leaves their data to its parent. */
		for (int i = 0; i < FEW; i++)
			await(fd[i], POLLOUT);
		_exit(0);
	}
	while (count > 0)
		close(rest[--count]);
	int good = connected(fd, FEW), starved = 0;
	/* The kernel drops a connection that comes while no descriptor is left at all: its connect fails. */
	for (int i = 0; i < FEW; i++) {
		int error = 0;
		socklen_t length = sizeof error;
		starved += !getsockopt(fd[i], SOL_SOCKET, SO_ERROR, &error, &length) && error == ENOBUFS;
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return starved > 3 ? good : good + starved;
}

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
	int found = in_process(parent_ends);
	check("150 connects of a parent that has ended", found == MANY, "%d have ended", found);
	found = in_process(lacking);
	check("the descriptors after two forks with 150 connects under way", found >= 0 && found <= 24, "%d are lacking",
	      found);
	found = in_process(at_the_hard_limit);
	check("a parent's connects after a fork at the hard limit", found == FEW, "%d of %d", found, FEW);
	struct sock_filter opens[] = {AT(nr), IS(SYS_openat, 0, 1), GIVE(SECCOMP_RET_KILL_PROCESS),
				      GIVE(SECCOMP_RET_ALLOW)};
	found = confined(opens, sizeof opens / sizeof *opens);
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
