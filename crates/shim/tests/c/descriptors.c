/* descriptors HOST PORT: a program that has no descriptor left, or may have no further one, while
 * connects are under way. */
#define _GNU_SOURCE
#include "probe.h"
#include <pthread.h>
#include <sys/resource.h>

enum { LIMIT = 300, CONNECTS = 36 };

static struct sockaddr_in server;

/* Sets the soft limit; what it was. */
static int limited_to(int soft)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	int before = limit.rlim_cur;
	limit.rlim_cur = soft;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		die("setrlimit");
	return before;
}

static void *connect_and_wait(void *argument)
{
	return (void *)(long)connect_to((int)(long)argument, server);
}

/* The program gets all its descriptors, by whatever call, and may put a file under any number that
 * it doesn't use. */
static void numbers_of_one_s_own(void)
{
	int fd[CONNECTS], got, used = 0, more = 0, good = 0, put = 0, before = limited_to(LIMIT);
	int waiting = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char is_mine[LIMIT] = {0};
	pthread_t thread;
	void *error;
	for (int i = 0; i < LIMIT; i++)
		used += is_mine[i] = fcntl(i, F_GETFD) >= 0;
	for (int i = 0; i < CONNECTS; i++) {
		is_mine[fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)] = 2;
		if (connect_to(fd[i], server) != EINPROGRESS)
			die("connect");
	}
	pthread_create(&thread, NULL, connect_and_wait, (void *)(long)waiting);
	while ((got = more % 2 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0) {
		is_mine[got] = 2;
		more++;
	}
	int want = LIMIT - used - CONNECTS;
	check("all descriptors while 37 connects are under way", more >= want - 8, "%d of %d", more, want);
	for (int i = 0; i < LIMIT; i++)
		if (!is_mine[i] && dup2(STDERR_FILENO, i) == i) {
			is_mine[i] = 2;
			put++;
		}
	pthread_join(thread, &error);
	good += !error && echoes(waiting);
	double until = milliseconds() + 2 * PATIENCE_MS;
	for (int i = 0; i < CONNECTS; i++) {
		struct pollfd entry = {.fd = fd[i], .events = POLLOUT};
		double left = until - milliseconds();
		good += poll(&entry, 1, left > 0 ? (int)left : 0) == 1 && entry.revents == POLLOUT && echoes(fd[i]);
	}
	check("37 connects while the program takes all other numbers", good == CONNECTS + 1, "%d good, %d put", good, put);
	for (int i = 0; i < LIMIT; i++)
		if (is_mine[i] == 2)
			close(i);
	close(waiting);
	limited_to(before);
}

static void none(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), before = limited_to(0);
	int error = connect_to(fd, server);
	limited_to(before);
	check("a connect with a soft limit of 0", !error && echoes(fd), "error %d", error);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	/* Of what hangs, the report would never end. */
	alarm(60);
	server = resolve(argv[1], atoi(argv[2]));
	numbers_of_one_s_own();
	none();
	return conclude();
}
