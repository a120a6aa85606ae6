/* connect_nonblocking HOST PORT CLOSED_PORT [delayed]: connects that don't
 * wait. With "delayed" a connect takes long enough (DELAY_MS) that its
 * pending state can be looked at. */
#define _GNU_SOURCE
#include "probe.h"
#include <dirent.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/wait.h>

/* Shortest time of a connect with "delayed". */
#define DELAY_MS 4

static struct sockaddr_in server, closed;
static int delayed;

static int tcp(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		die("socket");
	return fd;
}

static int so_error(int fd)
{
	return option(fd, SOL_SOCKET, SO_ERROR);
}

static int started(int error)
{
	return error == EINPROGRESS;
}

static void by_poll(const char *name, int events)
{
	int fd = tcp();
	double before = milliseconds();
	int error = connect_to(fd, server);
	double took = milliseconds() - before;
	int got = await(fd, events), pending = so_error(fd);
	check(name, started(error) && got == POLLOUT && pending == 0 && echoes(fd),
	      "error %d in %.1f ms, events %x, SO_ERROR %d", error, took, got, pending);
	check("still non-blocking and close-on-exec", fcntl(fd, F_GETFL) & O_NONBLOCK && fcntl(fd, F_GETFD) & FD_CLOEXEC,
	      "flags");
	close(fd);
}

struct sleeper {
	int fd, events, got;
};

static void *sleep_in_poll(void *argument)
{
	struct sleeper *sleeper = argument;
	sleeper->got = await(sleeper->fd, sleeper->events);
	return NULL;
}

/* A thread that asks before, and sleeps across, the moment of connection. */
static void by_sleeping_thread(void)
{
	struct sleeper sleeper = {.fd = tcp(), .events = POLLOUT};
	pthread_t thread;
	int error = connect_to(sleeper.fd, server);
	pthread_create(&thread, NULL, sleep_in_poll, &sleeper);
	pthread_join(thread, NULL);
	check("a thread asleep in poll", started(error) && sleeper.got == POLLOUT && echoes(sleeper.fd), "events %x",
	      sleeper.got);
	close(sleeper.fd);
}

static void by_select(void)
{
	int fd = tcp(), error = connect_to(fd, server);
	fd_set readable, writable, exceptional;
	struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
	FD_ZERO(&readable);
	FD_SET(fd, &readable);
	writable = exceptional = readable;
	int n = select(fd + 1, &readable, &writable, &exceptional, &patience);
	check("select", started(error) && n == 1 && FD_ISSET(fd, &writable) && so_error(fd) == 0 && echoes(fd), "n %d", n);
	close(fd);
}

static void by_epoll(const char *name, uint32_t mode, int early)
{
	int epoll = epoll_create1(0), fd = tcp();
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | mode, .data.u64 = 0xdeadbeef12345678ULL};
	struct epoll_event got[4];
	if (early && !(mode & (EPOLLET | EPOLLONESHOT)))
		/* An unconnected socket is hung up, which would use up the one event. */
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
	double before = milliseconds();
	int error = connect_to(fd, server);
	if (!early || mode & (EPOLLET | EPOLLONESHOT))
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
	int n = epoll_wait(epoll, got, 4, PATIENCE_MS);
	/* On a busy machine the call itself may begin after the delay. */
	int too_soon = delayed && milliseconds() - before < DELAY_MS;
	int data = n == 1 && got[0].data.u64 == event.data.u64, events = n == 1 ? (int)got[0].events : 0;
	int again = epoll_wait(epoll, got, 4, 20), wanted = mode & (EPOLLET | EPOLLONESHOT) ? 0 : 1;
	int pending = so_error(fd);
	event.events = EPOLLIN | mode;
	int changed = epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
	ssize_t sent = send(fd, "x\n", 2, MSG_NOSIGNAL);
	int answered = epoll_wait(epoll, got, 4, PATIENCE_MS);
	int removed = epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
	check(name,
	      started(error) && !too_soon && events == EPOLLOUT && data && again == wanted && pending == 0 && !changed &&
		      sent == 2 && answered == 1 && got[0].events == EPOLLIN && !removed,
	      "error %d too soon %d events %x data %d again %d SO_ERROR %d mod %d sent %zd answered %d del %d", error,
	      too_soon, events, data, again, pending, changed, sent, answered, removed);
	close(fd);
	close(epoll);
}

static void given_up(void)
{
	int fd = tcp(), ends[2];
	char bytes[8];
	connect_to(fd, server);
	close(fd);
	if (pipe(ends))
		die("pipe");
	int reused = ends[0] == fd || ends[1] == fd;
	usleep(100000);
	ssize_t sent = write(ends[1], "ab", 2), got = read(ends[0], bytes, sizeof bytes);
	check("closed while pending, the number used again", reused && sent == 2 && got == 2, "reused %d", reused);
	close(ends[0]);
	close(ends[1]);
}

static void numbers(void)
{
	int fd = tcp();
	connect_to(fd, server);
	int next = dup(0);
	check("the next descriptor has the next number", next == fd + 1, "%d after %d", next, fd);
	int n = 0;
	for (int number = next + 1; number < 256; number++)
		n += close(number) == 0;
	check("nothing else is open to the program", n == 0, "%d closed", n);
	check("and the connection comes", await(fd, POLLOUT) == POLLOUT && echoes(fd), "not");
	close(next);
	close(fd);
}

static void copies(void)
{
	int fd = tcp(), error = connect_to(fd, server), copy = dup(fd);
	close(fd);
	int got = await(copy, POLLOUT);
	check("a copy, the first closed", started(error) && got == POLLOUT && echoes(copy), "events %x", got);
	close(copy);
	fd = tcp();
	error = connect_to(fd, server);
	copy = dup(fd);
	got = await(copy, POLLOUT);
	check("two copies", started(error) && got == POLLOUT && echoes(copy) && echoes(fd), "events %x", got);
	close(copy);
	close(fd);
	fd = tcp();
	error = connect_to(fd, server);
	copy = dup2(fd, 100);
	got = await(100, POLLOUT);
	check("dup2", copy == 100 && got == POLLOUT && echoes(100) && echoes(fd), "events %x", got);
	close(fd);
	close(100);
}

static void forked(void)
{
	int fd = tcp(), error = connect_to(fd, server), status = -1;
	pid_t child = fork();
	if (!child)
		_exit(!(await(fd, POLLOUT) == POLLOUT && so_error(fd) == 0 && echoes(fd)));
	waitpid(child, &status, 0);
	int got = await(fd, POLLOUT);
	check("fork while pending", started(error) && status == 0 && got == POLLOUT && so_error(fd) == 0 && echoes(fd),
	      "child %x events %x", status, got);
	close(fd);

	fd = tcp();
	connect_to(fd, server);
	child = fork();
	if (!child) {
		execlp("true", "true", NULL);
		_exit(1);
	}
	waitpid(child, &status, 0);
	got = await(fd, POLLOUT);
	check("fork and exec while pending", status == 0 && got == POLLOUT && echoes(fd), "child %x events %x", status, got);
	close(fd);

	child = fork();
	if (!child) {
		connect_to(tcp(), server);
		exit(0);
	}
	double before = milliseconds();
	waitpid(child, &status, 0);
	check("exit while pending", status == 0 && milliseconds() - before < 1000, "child %x", status);
}

static void options(void)
{
	int fd = tcp();
	connect_to(fd, server);
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 77);
	int got = await(fd, POLLOUT);
	check("options set while pending",
	      got == POLLOUT && echoes(fd) && option(fd, IPPROTO_TCP, TCP_NODELAY) == 1 &&
		      option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1 && option(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 77,
	      "events %x", got);
	close(fd);
}

static void refused(void)
{
	static const char *const names[] = {"refused, by SO_ERROR", "refused, by connect", "refused, by write",
					    "refused, by read"};
	for (int way = 0; way < 4; way++) {
		char byte = 0;
		int fd = tcp(), first = connect_to(fd, closed), got = await(fd, POLLOUT | POLLIN), error = -1;
		if (way == 0)
			error = so_error(fd);
		else if (way == 1)
			error = connect_to(fd, closed);
		else if (way == 2)
			error = send(fd, &byte, 1, MSG_NOSIGNAL) < 0 ? errno : 0;
		else
			error = recv(fd, &byte, 1, 0) < 0 ? errno : 0;
		/* Over loopback the kernel may say so at once. */
		check(names[way], (started(first) && error == ECONNREFUSED) || first == ECONNREFUSED,
		      "first %d events %x then %d", first, got, error);
		close(fd);
	}
	int epoll = epoll_create1(0), fd = tcp();
	struct epoll_event event = {.events = EPOLLOUT | EPOLLET}, got = {0};
	connect_to(fd, closed);
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
	int n = epoll_wait(epoll, &got, 1, PATIENCE_MS);
	check("refused, by epoll", n == 1 && got.events & EPOLLERR && so_error(fd) == ECONNREFUSED, "events %x", got.events);
	close(epoll);
	close(fd);

	fd = tcp();
	connect_to(fd, closed);
	await(fd, POLLOUT);
	int second = connect_to(fd, server), third = connect_to(fd, server), events = await(fd, POLLOUT);
	check("the same socket connects afterwards",
	      second == ECONNREFUSED && started(third) && events == POLLOUT && so_error(fd) == 0 && echoes(fd),
	      "second %d third %d events %x", second, third, events);
	close(fd);
}

static void again(void)
{
	int fd = tcp(), first = connect_to(fd, server);
	if (delayed) {
		char byte;
		struct sockaddr_in name;
		socklen_t len = sizeof name;
		int error = connect_to(fd, server);
		check("pending: a second connect says EALREADY", error == EALREADY, "%d", error);
		error = send(fd, "x", 1, MSG_NOSIGNAL) < 0 ? errno : 0;
		check("pending: write says EAGAIN", error == EAGAIN, "%d", error);
		error = recv(fd, &byte, 1, 0) < 0 ? errno : 0;
		check("pending: read says EAGAIN", error == EAGAIN, "%d", error);
		check("pending: no error", so_error(fd) == 0, "SO_ERROR");
		error = getpeername(fd, (struct sockaddr *)&name, &len) ? errno : 0;
		check("pending: getpeername says ENOTCONN", error == ENOTCONN, "%d", error);
		check("pending: nothing to poll", poll(&(struct pollfd){.fd = fd, .events = POLLIN | POLLOUT}, 1, 0) == 0,
		      "events");
	}
	await(fd, POLLOUT);
	int second = connect_to(fd, server), third = connect_to(fd, server);
	check("connected: connect says so once, then EISCONN", started(first) && second == 0 && third == EISCONN,
	      "%d %d %d", first, second, third);
	close(fd);

	fd = tcp();
	first = connect_to(fd, server);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	second = connect_to(fd, server);
	check("made blocking, connect waits", started(first) && second == 0 && echoes(fd), "%d %d", first, second);
	close(fd);

	fd = tcp();
	connect_to(fd, server);
	struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
	int dissolved = connect(fd, &nowhere, sizeof nowhere) ? errno : 0;
	so_error(fd);
	usleep(50000);
	second = connect_to(fd, server);
	int got = await(fd, POLLOUT);
	check("dissolved and connected anew", dissolved == 0 && started(second) && got == POLLOUT && echoes(fd), "%d %d %x",
	      dissolved, second, got);
	close(fd);
}

static void many(void)
{
	enum { COUNT = 300 };
	static int fds[COUNT];
	struct rlimit limit = {4096, 4096};
	setrlimit(RLIMIT_NOFILE, &limit);
	int bad = 0;
	for (int i = 0; i < COUNT; i++) {
		fds[i] = tcp();
		bad += !started(connect_to(fds[i], server));
	}
	for (int i = 0; i < COUNT; i++)
		bad += await(fds[i], POLLOUT) != POLLOUT;
	for (int i = 0; i < COUNT; i++) {
		bad += !echoes(fds[i]);
		close(fds[i]);
	}
	check("300 at once", bad == 0, "%d bad", bad);
}

/* Connects while a poll without a deadline sleeps; whether there is a connection. */
static int polled(void)
{
	int fd = tcp(), made = 0;
	if (fd >= 0 && started(connect_to(fd, server))) {
		struct pollfd entry = {.fd = fd, .events = POLLOUT};
		made = poll(&entry, 1, -1) == 1 && entry.revents == POLLOUT && echoes(fd);
	}
	close(fd);
	return made;
}

/* Few descriptors, none of them with a high number. Then fewer than a connect needs, and one more
 * each time: what has started comes to an end, be it an error. */
static void few(void)
{
	pid_t child = fork();
	if (child == 0) {
		struct rlimit limit = {24, 24};
		int bad = 0, last = -1, made = 0;
		alarm(20);
		setrlimit(RLIMIT_NOFILE, &limit);
		for (int i = 0; i < 4; i++)
			bad += !polled();
		for (int fd; (fd = dup(0)) >= 0;)
			last = fd;
		for (int i = 0; i < 8; i++) {
			close(last - i);
			made = polled();
		}
		_exit(bad + !made);
	}
	int status = -1;
	waitpid(child, &status, 0);
	check("few descriptors", status == 0, "status %x", status);
}

static int threads(void)
{
	int n = -2;
	DIR *tasks = opendir("/proc/self/task");
	while (readdir(tasks))
		n++;
	closedir(tasks);
	return n;
}

static void no_trace(void)
{
	double until = milliseconds() + 2000;
	while (threads() != 1 && milliseconds() < until)
		usleep(1000);
	check("no thread stays behind", threads() == 1, "%d threads", threads());
	int open = 0;
	for (int fd = 3; fd < 4096; fd++)
		open += fcntl(fd, F_GETFD) >= 0;
	check("no descriptor stays behind", open == 0, "%d open", open);
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	server = resolve(argv[1], atoi(argv[2]));
	closed = resolve(argv[1], atoi(argv[3]));
	delayed = argc > 4;
	alarm(120);
	/* The caller's descriptors, so that numbers and leaks can be told. */
	for (int fd = 3; fd < 256; fd++)
		close(fd);
	by_poll("poll for writing", POLLOUT);
	by_poll("poll for both", POLLIN | POLLOUT);
	by_sleeping_thread();
	by_select();
	by_epoll("epoll, registered before", 0, 1);
	by_epoll("epoll, registered after", 0, 0);
	by_epoll("epoll, edge-triggered", EPOLLET, 0);
	by_epoll("epoll, one shot", EPOLLONESHOT, 0);
	given_up();
	numbers();
	copies();
	forked();
	options();
	refused();
	again();
	many();
	few();
	no_trace();
	return conclude();
}
