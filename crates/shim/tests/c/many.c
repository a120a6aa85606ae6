/* many HOST PORT: more of everything than a program usually has, while connects are under
 * way: epoll instances, copies, sockets; and calls that wait, or come from fork handlers. */
#define _GNU_SOURCE
#include "probe.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { SELECTORS = 100, COPIES = 100, SOCKETS = 1000, LINGER_SECONDS = 8, FORKS = 20, LAST = 60 };

static struct sockaddr_in server;

static int tcp(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		die("socket");
	return fd;
}

static void watch(int epoll, int fd)
{
	struct epoll_event event = {.events = EPOLLOUT, .data.fd = fd};
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		die("epoll_ctl");
}

/* The one event of an instance: the descriptor, or -1. */
static int ready(int epoll)
{
	struct epoll_event event;
	return epoll_wait(epoll, &event, 1, PATIENCE_MS) == 1 && event.events == EPOLLOUT ? event.data.fd : -1;
}

/* As Java has: an instance for each thread. Every other one is told before the connect. */
static void selectors(void)
{
	int epoll[SELECTORS], fd[SELECTORS], good = 0;
	for (int i = 0; i < SELECTORS; i++) {
		epoll[i] = epoll_create1(EPOLL_CLOEXEC);
		fd[i] = tcp();
		if (i % 2)
			watch(epoll[i], fd[i]);
	}
	for (int i = 0; i < SELECTORS; i++)
		if (connect_to(fd[i], server) != EINPROGRESS)
			die("connect");
	for (int i = 0; i < SELECTORS; i += 2)
		watch(epoll[i], fd[i]);
	for (int i = 0; i < SELECTORS; i++) {
		good += ready(epoll[i]) == fd[i] && echoes(fd[i]);
		close(fd[i]);
		close(epoll[i]);
	}
	check("100 epoll instances, each with a connect", good == SELECTORS, "%d good", good);
}

/* One socket under many numbers, in many instances, some of them closed since. */
static void copies(void)
{
	int fd[COPIES], epoll[COPIES], connected = 0, heard = 0;
	fd[0] = tcp();
	for (int i = 1; i < COPIES; i++)
		fd[i] = i % 3 ? dup(fd[i - 1]) : fcntl(fd[0], F_DUPFD_CLOEXEC, 0);
	int error = connect_to(fd[COPIES / 2], server);
	for (int i = 0; i < COPIES; i++) {
		epoll[i] = epoll_create1(EPOLL_CLOEXEC);
		watch(epoll[i], fd[i]);
	}
	for (int i = 0; i < COPIES; i += 10)
		close(fd[i]);
	int spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < COPIES; i++) {
		if (i % 10 == 0)
			continue;
		struct sockaddr_in name;
		socklen_t len = sizeof name;
		heard += ready(epoll[i]) == fd[i];
		connected += !getpeername(fd[i], (struct sockaddr *)&name, &len) && name.sin_port == server.sin_port;
	}
	check("100 copies of a socket, each in an instance",
	      error == EINPROGRESS && heard == COPIES * 9 / 10 && connected == heard && echoes(fd[1]),
	      "error %d heard %d connected %d", error, heard, connected);
	struct stat stat;
	check("a number that was closed and given out again stays what it is",
	      !fstat(spare, &stat) && S_ISCHR(stat.st_mode), "mode %o", stat.st_mode);
	for (int i = 0; i < COPIES; i++)
		if (i % 10)
			close(fd[i]);
	for (int i = 0; i < COPIES; i++)
		close(epoll[i]);
	close(spare);
}

static void sockets(void)
{
	static int fd[SOCKETS];
	int epoll = epoll_create1(EPOLL_CLOEXEC), connected = 0, good = 0;
	for (int i = 0; i < SOCKETS; i++) {
		fd[i] = tcp();
		if (connect_to(fd[i], server) != EINPROGRESS)
			die("connect");
		watch(epoll, fd[i]);
	}
	/* Every tenth is given up. */
	for (int i = 0; i < SOCKETS; i += 10)
		close(fd[i]);
	struct epoll_event event;
	while (connected < SOCKETS * 9 / 10 && epoll_wait(epoll, &event, 1, 3 * PATIENCE_MS) == 1) {
		connected++;
		good += !option(event.data.fd, SOL_SOCKET, SO_ERROR) && echoes(event.data.fd);
		close(event.data.fd);
	}
	check("1000 connects at once", good == SOCKETS * 9 / 10, "%d connected, %d good", connected, good);
	close(epoll);
}

/* A connection that the kernel makes with the first data, if it may. */
static int connect_with_data(int fd, struct sockaddr_in address)
{
	if (sendto(fd, "", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&address, sizeof address) == 1)
		return 0;
	return errno == EOPNOTSUPP ? connect_to(fd, address) : errno;
}

struct closing {
	enum { CLOSE, CLOSE_RANGE, REPLACE } how;
	int fd, is_done;
};

static void *close_slowly(void *argument)
{
	struct closing *closing = argument;
	if (closing->how == CLOSE) {
		close(closing->fd);
	} else if (closing->how == CLOSE_RANGE) {
		close_range(closing->fd, closing->fd, 0);
	} else {
		int other = tcp();
		dup2(other, closing->fd);
		close(other);
	}
	closing->is_done = 1;
	return NULL;
}

/* A close that lingers stops nobody else. */
static void lingering(const char *name, int how, int (*connects)(int, struct sockaddr_in))
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger linger = {.l_onoff = 1, .l_linger = LINGER_SECONDS};
	socklen_t len = sizeof own;
	static char bytes[1 << 16];
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), slow = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&own, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&own, &len) || connects(slow, own) ||
	    setsockopt(slow, SOL_SOCKET, SO_LINGER, &linger, sizeof linger))
		die("a connection to linger");
	while (send(slow, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	struct closing closing = {.how = how, .fd = slow};
	int waiting = tcp(), fd = tcp();
	pthread_t thread;
	int error = connect_to(waiting, server);
	pthread_create(&thread, NULL, close_slowly, &closing);
	/* Until the number is closed, or stands for the other one. */
	for (int flags; (flags = fcntl(slow, F_GETFL)) >= 0 && !(flags & O_NONBLOCK);)
		usleep(1000);
	int again = connect_to(fd, server), copy = dup(fd);
	int good = await(fd, POLLOUT) == POLLOUT && echoes(copy) && await(waiting, POLLOUT) == POLLOUT && echoes(waiting);
	close(fd);
	close(copy);
	close(waiting);
	check(name, error == EINPROGRESS && again == EINPROGRESS && good && !closing.is_done,
	      "errors %d %d good %d closed %d", error, again, good, closing.is_done);
	close(listener);
	pthread_join(thread, NULL);
	if (how == REPLACE)
		close(slow);
}

static int used_in_handlers;

static void use_sockets(void)
{
	int fd = tcp(), epoll = epoll_create1(EPOLL_CLOEXEC), copy = dup(fd);
	watch(epoll, fd);
	used_in_handlers += !close(fd) && !close(copy) && !close(epoll);
}

/* Before the constructors of any library, so that fork calls it with the shim's already
 * called. */
static void register_handlers(void)
{
	pthread_atfork(use_sockets, use_sockets, use_sockets);
}
__attribute__((section(".preinit_array"), used)) static void (*const early)(void) = register_handlers;

static void fork_handlers(void)
{
	int fd = tcp(), status = -1, error = connect_to(fd, server);
	used_in_handlers = 0;
	pid_t child = fork();
	if (!child)
		_exit(await(fd, POLLOUT) == POLLOUT && used_in_handlers == 2 ? 0 : 1);
	waitpid(child, &status, 0);
	check("fork handlers that use sockets",
	      error == EINPROGRESS && status == 0 && used_in_handlers == 2 && await(fd, POLLOUT) == POLLOUT && echoes(fd),
	      "error %d status %x used %d", error, status, used_in_handlers);
	close(fd);
}

/* A child that connects right after its parent has. */
static void forks_after_connects(void)
{
	int good = 0;
	for (int i = 0; i < FORKS; i++) {
		int fd = tcp(), status = -1, error = connect_to(fd, server);
		int connected = error == EINPROGRESS && await(fd, POLLOUT) == POLLOUT;
		pid_t child = fork();
		if (!child) {
			int own = tcp(), started = connect_to(own, server);
			_exit(started == EINPROGRESS && await(own, POLLOUT) == POLLOUT && echoes(own) ? 0 : 1);
		}
		waitpid(child, &status, 0);
		good += connected && status == 0;
		close(fd);
	}
	check("children that connect after their parent", good == FORKS, "%d good", good);
}

/* The descriptors that a program may have are its own: of `most`, all but a few. */
static int few_descriptors(int most, int open)
{
	struct rlimit before, few;
	int *fd = calloc(open, sizeof *fd), good = 0;
	getrlimit(RLIMIT_NOFILE, &before);
	few = before;
	few.rlim_cur = most;
	setrlimit(RLIMIT_NOFILE, &few);
	for (int i = 0; i < open; i++) {
		fd[i] = tcp();
		if (connect_to(fd[i], server) != EINPROGRESS)
			die("connect");
	}
	for (int i = 0; i < open; i++) {
		good += await(fd[i], POLLOUT) == POLLOUT && echoes(fd[i]);
		close(fd[i]);
	}
	free(fd);
	setrlimit(RLIMIT_NOFILE, &before);
	return good;
}

/* Where the limit is the hard one, the child's. */
static int few_at_most(int most, int open)
{
	int status = -1;
	pid_t child = fork();
	if (!child) {
		struct rlimit few = {.rlim_cur = most, .rlim_max = most};
		setrlimit(RLIMIT_NOFILE, &few);
		_exit(few_descriptors(most, open) != open);
	}
	waitpid(child, &status, 0);
	return status == 0;
}

static atomic_int has_connected;

static void *use_the_last(void *unused)
{
	while (!has_connected)
		close(dup(STDERR_FILENO));
	return unused;
}

/* Connects need no descriptor, whoever takes the last one at any moment. */
static void the_last_descriptor(void)
{
	struct rlimit before, few;
	int fd[LAST], rest[300], used = 0, good = 0;
	pthread_t thread;
	getrlimit(RLIMIT_NOFILE, &before);
	few = before;
	few.rlim_cur = 300;
	setrlimit(RLIMIT_NOFILE, &few);
	for (int i = 0; i < LAST; i++) {
		fd[i] = tcp();
		/* Every other one waits in connect. */
		if (i % 2)
			fcntl(fd[i], F_SETFL, 0);
	}
	while ((rest[used] = dup(STDERR_FILENO)) >= 0)
		used++;
	close(rest[--used]);
	pthread_create(&thread, NULL, use_the_last, NULL);
	for (int i = 0; i < LAST; i++) {
		int error = connect_to(fd[i], server);
		good += error == (i % 2 ? 0 : EINPROGRESS) && await(fd[i], POLLOUT) == POLLOUT && echoes(fd[i]);
	}
	has_connected = 1;
	pthread_join(thread, NULL);
	check("60 connects while a thread takes the last descriptor", good == LAST, "%d good", good);
	for (int i = 0; i < LAST; i++)
		close(fd[i]);
	while (used > 0)
		close(rest[--used]);
	setrlimit(RLIMIT_NOFILE, &before);
}

/* Sockets whose numbers are above a limit that was lowered since. */
static void above_the_limit(void)
{
	struct rlimit before, few;
	int fd[2] = {tcp(), tcp()}, high[2], good = 0;
	getrlimit(RLIMIT_NOFILE, &before);
	few = before;
	few.rlim_cur = 300;
	for (int i = 0; i < 2; i++) {
		high[i] = fcntl(fd[i], F_DUPFD_CLOEXEC, 400);
		close(fd[i]);
	}
	setrlimit(RLIMIT_NOFILE, &few);
	for (int i = 0; i < 2; i++) {
		if (i)
			fcntl(high[i], F_SETFL, 0);
		int error = connect_to(high[i], server);
		good += error == (i ? 0 : EINPROGRESS) && await(high[i], POLLOUT) == POLLOUT && echoes(high[i]);
		close(high[i]);
	}
	struct rlimit after;
	getrlimit(RLIMIT_NOFILE, &after);
	setrlimit(RLIMIT_NOFILE, &before);
	check("connects of sockets above the limit", good == 2 && after.rlim_cur == 300, "%d good", good);
}

static void descriptors(void)
{
	int good = few_descriptors(300, 285);
	check("285 connects with 300 descriptors", good == 285, "%d good", good);
	good = few_descriptors(1024, 1000);
	check("1000 connects with 1024 descriptors", good == 1000, "%d good", good);
	check("270 connects with 300 descriptors at the most", few_at_most(300, 270), "not");
	the_last_descriptor();
	above_the_limit();
}

/* As before a program starts another, while connects are under way. */
static void closing_the_rest(void)
{
	int fd = tcp(), error = connect_to(fd, server), other = tcp();
	int closed = close_range(other + 1, ~0U, 0), again = connect_to(other, server);
	int good = await(fd, POLLOUT) == POLLOUT && echoes(fd) && await(other, POLLOUT) == POLLOUT && echoes(other);
	check("close_range of all others", error == EINPROGRESS && !closed && again == EINPROGRESS && good,
	      "errors %d %d closed %d good %d", error, again, closed, good);
	close(fd);
	close(other);
}

static void exec_of_a_fifo(void)
{
	char directory[] = "/tmp/probe.XXXXXX", path[64], *arguments[] = {"fifo", NULL}, *environment[] = {NULL};
	int status = -1;
	if (!mkdtemp(directory))
		die("mkdtemp");
	snprintf(path, sizeof path, "%s/fifo", directory);
	if (mkfifo(path, 0700))
		die("mkfifo");
	pid_t child = fork();
	if (!child) {
		alarm(PATIENCE_MS / 1000);
		execve(path, arguments, environment);
		_exit(errno == EACCES ? 0 : 1);
	}
	waitpid(child, &status, 0);
	check("exec of a FIFO", status == 0, "status %x", status);
	unlink(path);
	rmdir(directory);
}

int main(int argc, char **argv)
{
	struct rlimit limit;
	if (argc < 3)
		return 2;
	/* Of what hangs, the report would never end. */
	alarm(120);
	if (getrlimit(RLIMIT_NOFILE, &limit))
		die("getrlimit");
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	server = resolve(argv[1], atoi(argv[2]));
	fork_handlers();
	selectors();
	copies();
	sockets();
	lingering("connects and closes while another close lingers", CLOSE, connect_to);
	lingering("the same, connected with data", CLOSE, connect_with_data);
	lingering("the same of close_range", CLOSE_RANGE, connect_to);
	lingering("the same of dup2", REPLACE, connect_to);
	forks_after_connects();
	descriptors();
	closing_the_rest();
	exec_of_a_fifo();
	return conclude();
}
