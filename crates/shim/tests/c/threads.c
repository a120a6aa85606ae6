/* threads HOST PORT: what other threads do while sockets connect: they close all numbers above the
 * program's own, again and again, and change a socket's flags. */
#define _GNU_SOURCE
#include "probe.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { SOCKETS = 200, PATIENCE_S = 60 };

static struct sockaddr_in server;
static atomic_int first, current = -1, changed = -1, is_over;

/* How many of the sockets are connected in time. */
static int connected(const int *fd)
{
	double until = milliseconds() + 2 * PATIENCE_MS;
	int good = 0;
	for (int i = 0; i < SOCKETS; i++) {
		struct pollfd entry = {.fd = fd[i], .events = POLLOUT};
		double left = until - milliseconds();
		good += poll(&entry, 1, left > 0 ? (int)left : 0) == 1 && entry.revents == POLLOUT;
	}
	return good;
}

static void *close_above(void *unused)
{
	while (!is_over)
		close_range(first, ~0U, 0);
	return unused;
}

static void closing(const char *name, int flags)
{
	int fd[SOCKETS], good = 0, error = 0, want = flags ? EINPROGRESS : 0;
	pthread_t thread;
	for (int i = 0; i < SOCKETS; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
		first = fd[i] >= first ? fd[i] + 1 : first;
	}
	is_over = 0;
	pthread_create(&thread, NULL, close_above, NULL);
	for (int i = 0; i < SOCKETS; i++) {
		int got = connect_to(fd[i], server);
		good += got == want;
		error = got != want ? got : error;
	}
	int all = connected(fd);
	is_over = 1;
	pthread_join(thread, NULL);
	check(name, good == SOCKETS && all == SOCKETS, "%d begun (error %d), %d connected", good, error, all);
	for (int i = 0; i < SOCKETS; i++)
		close(fd[i]);
}

static void *change_flags(void *unused)
{
	for (;;) {
		int fd = current;
		fcntl(fd, F_SETFL, 0);
		fcntl(fd, F_SETFL, O_NONBLOCK);
		changed = fd;
	}
	return unused;
}

/* In a process of its own: a thread that the kernel holds in connect ends with its process. */
static void changing_flags(void)
{
	int status = -1;
	pid_t child = fork();
	if (!child) {
		int fd[SOCKETS];
		pthread_t thread;
		alarm(PATIENCE_S);
		pthread_create(&thread, NULL, change_flags, NULL);
		for (int i = 0; i < SOCKETS; i++) {
			current = fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
			while (changed != fd[i])
				sched_yield();
			connect_to(fd[i], server);
		}
		_exit(connected(fd) != SOCKETS);
	}
	waitpid(child, &status, 0);
	check("connects while a thread changes the sockets' flags", status == 0, "status %x", status);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	server = resolve(argv[1], atoi(argv[2]));
	closing("connects that don't wait, while a thread closes all other numbers", SOCK_NONBLOCK);
	closing("connects that wait, while a thread closes all other numbers", 0);
	changing_flags();
	return conclude();
}
