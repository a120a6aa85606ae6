/* interrupted HOST SILENT_PORT PORT: connects that wait and are kept from it,
 * by signals and by a limit. SILENT_PORT never answers (silent.c), PORT has a
 * server (server.c). */
#define _GNU_SOURCE
#include "probe.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

static struct sockaddr_in silent, server;
static volatile sig_atomic_t signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
}

static void handle(int flags)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
	sigaction(SIGALRM, &action, NULL);
}

static void timer(int first_ms, int interval_ms)
{
	struct itimerval timer = {{interval_ms / 1000, interval_ms % 1000 * 1000}, {first_ms / 1000, first_ms % 1000 * 1000}};
	setitimer(ITIMER_REAL, &timer, NULL);
}

static void limited(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct timeval limit = {.tv_usec = 200000};
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	double before = milliseconds();
	int error = connect_to(fd, silent);
	double took = milliseconds() - before;
	check("SO_SNDTIMEO ends the wait with EINPROGRESS", error == EINPROGRESS && took > 150, "error %d after %.0f ms",
	      error, took);
	error = connect_to(fd, silent);
	check("and the next one with EALREADY", error == EALREADY, "error %d", error);
	check("the socket is still blocking", !(fcntl(fd, F_GETFL) & O_NONBLOCK), "flags");
	struct pollfd entry = {.fd = fd, .events = POLLOUT};
	check("and pending", poll(&entry, 1, 50) == 0, "events %x", entry.revents);
	close(fd);

	fd = socket(AF_INET, SOCK_STREAM, 0);
	limit.tv_sec = 5;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	error = connect_to(fd, server);
	check("a limit that isn't reached", error == 0 && echoes(fd), "error %d", error);
	close(fd);
}

static void by_signal(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	handle(0);
	timer(100, 0);
	int error = connect_to(fd, silent);
	check("a signal ends the wait with EINTR", error == EINTR && signals == 1, "error %d", error);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	error = connect_to(fd, silent);
	check("and the connect goes on", error == EALREADY, "error %d", error);
	close(fd);
}

static void *connect_anyway(void *argument)
{
	*(int *)argument = connect_to(socket(AF_INET, SOCK_STREAM, 0), silent);
	return NULL;
}

static void restarted(void)
{
	pthread_t thread;
	int error = -1;
	struct timespec later;
	signals = 0;
	handle(SA_RESTART);
	pthread_create(&thread, NULL, connect_anyway, &error);
	for (int i = 0; i < 5; i++) {
		usleep(20000);
		pthread_kill(thread, SIGALRM);
	}
	clock_gettime(CLOCK_REALTIME, &later);
	later.tv_sec += 1;
	int joined = pthread_timedjoin_np(thread, NULL, &later);
	check("a handler with SA_RESTART doesn't end it", joined == ETIMEDOUT && signals >= 1, "error %d after %d signals",
	      error, (int)signals);
}

static void at_once(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	signals = 0;
	handle(SA_RESTART);
	timer(1, 1);
	int bad = 0;
	for (int i = 0; i < 50; i++) {
		close(fd);
		fd = socket(AF_INET, SOCK_STREAM, 0);
		bad += connect_to(fd, server) != 0;
	}
	timer(0, 0);
	check("connects under a rain of signals", bad == 0 && signals > 0, "%d of 50 bad, %d signals", bad, (int)signals);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	silent = resolve(argv[1], atoi(argv[2]));
	server = resolve(argv[1], atoi(argv[3]));
	limited();
	by_signal();
	at_once();
	restarted();
	return conclude();
}
