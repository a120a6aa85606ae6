/* shim MODE ...: what `bench-shim` measures, with the preloaded library and
 * without. Each mode but "listen" prints one line of JSON.
 *
 *   listen COUNT            listeners on any address; prints their ports, then
 *                           accepts until its input ends
 *   storm HOST PORT...      a non-blocking connect to each port, in one thread
 *   connects HOST PORT N    N connects that wait, one after the other
 *   calls                   each call that sets something up
 *   starts PROGRAM N        N times fork, exec and wait */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX = 1024, SAMPLES = 1 << 20 };

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

__attribute__((noreturn)) static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

struct figures {
	int count;
	double samples[SAMPLES];
};

static void add(struct figures *figures, double seconds)
{
	if (figures->count < SAMPLES)
		figures->samples[figures->count++] = seconds;
}

/* In microseconds. */
static void print(const char *name, struct figures *figures, const char *end)
{
	int n = figures->count, over = 0;
	qsort(figures->samples, n, sizeof(double), by_size);
	for (int i = 0; i < n; i++)
		over += figures->samples[i] > 1e-3;
	printf("\"%s\": {\"count\": %d, \"median_us\": %.3f, \"p99_us\": %.3f, \"max_us\": %.3f, \"over_1ms\": %d}%s", name, n,
	       n ? figures->samples[n / 2] * 1e6 : 0, n ? figures->samples[(int)(n * 0.99)] * 1e6 : 0,
	       n ? figures->samples[n - 1] * 1e6 : 0, over, end);
}

static struct sockaddr_in resolve(const char *host, int port)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
	if (getaddrinfo(host, NULL, &hints, &found))
		die(host);
	struct sockaddr_in address = *(struct sockaddr_in *)found->ai_addr;
	address.sin_port = htons(port);
	freeaddrinfo(found);
	return address;
}

static int listener(int *port)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	socklen_t len = sizeof any;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (bind(fd, (struct sockaddr *)&any, sizeof any) || listen(fd, 512))
		die("listen");
	getsockname(fd, (struct sockaddr *)&any, &len);
	*port = ntohs(any.sin_port);
	return fd;
}

static int serve(int count)
{
	static struct pollfd fds[MAX + 1];
	char ignored[16];
	fds[0] = (struct pollfd){.fd = 0, .events = POLLIN};
	for (int i = 1; i <= count; i++) {
		int port;
		fds[i] = (struct pollfd){.fd = listener(&port), .events = POLLIN};
		printf("%d%c", port, i < count ? ' ' : '\n');
	}
	fflush(stdout);
	while (poll(fds, count + 1, -1) > 0) {
		if (fds[0].revents && read(0, ignored, sizeof ignored) <= 0)
			return 0;
		for (int i = 1; i <= count; i++) {
			int fd;
			/* Held as long as the other end is: never a reset. */
			if (fds[i].revents && (fd = accept(fds[i].fd, NULL, NULL)) >= 0 && count == 1)
				close(fd);
		}
	}
	return 1;
}

/* calls: how long each took. own: how long each would have taken had nobody
 * else got the processor: all of it if the thread went to sleep within (a
 * voluntary switch of context), the time it computed if not. */
static struct figures calls, own, looks, opens;

struct moment {
	double wall, computed;
	long sleeps;
};

static struct moment moment(void)
{
	struct rusage usage;
	struct timespec time;
	getrusage(RUSAGE_THREAD, &usage);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (struct moment){now(), time.tv_sec + time.tv_nsec / 1e9, usage.ru_nvcsw};
}

static void note(struct moment before)
{
	double wall = now() - before.wall;
	struct moment after = moment();
	add(&calls, wall);
	add(&own, after.sleeps != before.sleeps ? wall : after.computed - before.computed);
}

/* One call of the loop, timed. */
#define TIMED(call) ({ struct moment before = moment(); __typeof__(call) result = (call); note(before); result; })

/* How long the machine itself holds up a thread that asks for nothing. */
static void look_at_the_clock(double seconds)
{
	double end = now() + seconds, before = now();
	while (before < end) {
		double after = now();
		add(&looks, after - before);
		before = after;
	}
}

static int storm(const char *host, char **ports, int count)
{
	static int fds[MAX];
	struct sockaddr_in target = resolve(host, 0);
	struct epoll_event events[64];
	int epoll = epoll_create1(0), up = 0, failed = 0;
	double first = 0, started = now();
	for (int i = 0; i < count; i++) {
		struct epoll_event event = {.events = EPOLLOUT | EPOLLET, .data.fd = i};
		target.sin_port = htons(atoi(ports[i]));
		fds[i] = TIMED(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
		int result = TIMED(connect(fds[i], (struct sockaddr *)&target, sizeof target));
		if (result && errno != EINPROGRESS)
			die("connect");
		add(&opens, calls.samples[calls.count - 1]);
		TIMED(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event));
	}
	double issued = now() - started;
	while (up + failed < count && now() - started < 30) {
		/* Never waits inside a call: only the machine and the shim can. */
		int n = TIMED(epoll_wait(epoll, events, 64, 0));
		for (int i = 0; i < n; i++) {
			int error = 0;
			socklen_t len = sizeof error;
			TIMED(getsockopt(fds[events[i].data.fd], SOL_SOCKET, SO_ERROR, &error, &len));
			up += !error;
			failed += error != 0;
			if (!first)
				first = now() - started;
		}
	}
	double all = now() - started;
	look_at_the_clock(all);
	printf("{\"up\": %d, \"failed\": %d, \"issued_s\": %.6f, \"first_s\": %.6f, \"all_s\": %.6f, ", up, failed, issued, first, all);
	print("calls", &calls, ", ");
	print("own", &own, ", ");
	print("connect", &opens, ", ");
	print("clock", &looks, "}\n");
	return up != count;
}

static int connects(const char *host, int port, int count)
{
	struct sockaddr_in target = resolve(host, port);
	for (int i = 0; i < count; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (TIMED(connect(fd, (struct sockaddr *)&target, sizeof target)))
			die("connect");
		close(fd);
	}
	printf("{");
	print("connect", &calls, "}\n");
	return 0;
}

static double best(double (*once)(int), int count)
{
	double found = 1;
	for (int i = 0; i < 9; i++) {
		double seconds = once(count) / count;
		found = seconds < found ? seconds : found;
	}
	return found * 1e9;
}

static int a, b, epoll;
static struct sockaddr_in name;

#define CALL(id, call)                                   \
	static double id(int count)                      \
	{                                                \
		double before = now();                   \
		for (int i = 0; i < count; i++) {        \
			socklen_t len = sizeof name;     \
			int value = 1;                   \
			(void)len;                       \
			(void)value;                     \
			call;                            \
		}                                        \
		return now() - before;                   \
	}

static struct epoll_event event = {.events = EPOLLIN};
static struct utsname uts;
static char text[256];
static struct addrinfo *found;

CALL(t_getsockname, getsockname(a, (struct sockaddr *)&name, &len))
CALL(t_getpeername, getpeername(a, (struct sockaddr *)&name, &len))
CALL(t_getsockopt, len = sizeof value; getsockopt(a, SOL_SOCKET, SO_ERROR, &value, &len))
CALL(t_setsockopt, setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value))
CALL(t_dup_close, close(dup(a)))
CALL(t_dup2, dup2(a, 100))
CALL(t_fcntl, fcntl(a, F_GETFL))
CALL(t_epoll_ctl, epoll_ctl(epoll, EPOLL_CTL_MOD, a, &event))
CALL(t_ioctl, ioctl(a, FIONREAD, &value))
CALL(t_gethostname, gethostname(text, sizeof text))
CALL(t_uname, uname(&uts))
CALL(t_getaddrinfo, getaddrinfo("127.0.0.1", NULL, NULL, &found); freeaddrinfo(found))
CALL(t_socket_bind_listen_close, int fd = socket(AF_INET, SOCK_STREAM, 0);
     struct sockaddr_in any = {.sin_family = AF_INET}; bind(fd, (struct sockaddr *)&any, sizeof any); listen(fd, 1);
     close(fd))

static int all_calls(void)
{
	static const struct {
		const char *name;
		double (*once)(int);
		int count;
	} table[] = {{"getsockname", t_getsockname, 20000},
		     {"getpeername", t_getpeername, 20000},
		     {"getsockopt", t_getsockopt, 20000},
		     {"setsockopt", t_setsockopt, 20000},
		     {"dup and close", t_dup_close, 20000},
		     {"dup2", t_dup2, 20000},
		     {"fcntl", t_fcntl, 20000},
		     {"epoll_ctl", t_epoll_ctl, 20000},
		     {"ioctl", t_ioctl, 20000},
		     {"gethostname", t_gethostname, 20000},
		     {"uname", t_uname, 20000},
		     {"getaddrinfo of an address", t_getaddrinfo, 2000},
		     {"socket, bind, listen, close", t_socket_bind_listen_close, 2000}};
	int port, listening = listener(&port), count = sizeof table / sizeof *table;
	struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	a = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(a, (struct sockaddr *)&loopback, sizeof loopback) || (b = accept(listening, NULL, NULL)) < 0)
		die("connect");
	epoll = epoll_create1(0);
	epoll_ctl(epoll, EPOLL_CTL_ADD, a, &event);
	printf("{");
	for (int i = 0; i < count; i++)
		printf("\"%s\": %.1f%s", table[i].name, best(table[i].once, table[i].count), i + 1 < count ? ", " : "}\n");
	return 0;
}

static int starts(char *program, int count)
{
	double before = now();
	for (int i = 0; i < count; i++) {
		int status = 0;
		pid_t child = vfork();
		if (!child) {
			execl(program, program, NULL);
			_exit(127);
		}
		if (waitpid(child, &status, 0) != child || status)
			die(program);
	}
	printf("{\"start_us\": %.2f}\n", (now() - before) / count * 1e6);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc >= 3 && !strcmp(argv[1], "listen"))
		return serve(atoi(argv[2]));
	if (argc >= 4 && !strcmp(argv[1], "storm"))
		return storm(argv[2], argv + 3, argc - 3);
	if (argc == 5 && !strcmp(argv[1], "connects"))
		return connects(argv[2], atoi(argv[3]), atoi(argv[4]));
	if (argc == 2 && !strcmp(argv[1], "calls"))
		return all_calls();
	if (argc == 4 && !strcmp(argv[1], "starts"))
		return starts(argv[2], atoi(argv[3]));
	return 2;
}
