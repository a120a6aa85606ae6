/* Names that are resolved while the program goes on (getaddrinfo_a), and what tells that it is
 * done. */
#include "same.h"

static int way[2];

static void has_come(union sigval value)
{
	char byte = value.sival_int;
	if (write(way[1], &byte, 1) != 1)
		die("write");
}

static void show(const char *what, struct gaicb *one)
{
	while (gai_error(one) == EAI_INPROGRESS) {
		const struct gaicb *const list[] = {one};
		gai_suspend(list, 1, NULL);
	}
	int status = gai_error(one);
	say("%s: %s", what, status ? gai_strerror(status) : who(one->ar_result->ai_addr, one->ar_result->ai_addrlen));
	if (!status)
		freeaddrinfo(one->ar_result);
}

static void ask(const char *what, int mode, struct sigevent *event, int numbers_only)
{
	const struct addrinfo hints = {
		.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = numbers_only ? AI_NUMERICHOST : 0};
	struct gaicb own_one = {.ar_name = own_name, .ar_service = "80", .ar_request = &hints},
		     peers = {.ar_name = peer_name, .ar_service = "80", .ar_request = &hints},
		     loopback = {.ar_name = "127.0.0.1", .ar_service = "80", .ar_request = &hints};
	/* With the third entry, one that isn't a node's. */
	for (int count = 2; count <= 4; count++) {
		struct gaicb *list[] = {&own_one, NULL, &peers, &loopback};
		say("-- %s, %d entries", what, count);
		say("getaddrinfo_a %d", getaddrinfo_a(mode, list, count, event));
		if (event && event->sigev_notify == SIGEV_SIGNAL) {
			struct timespec patience = {.tv_sec = PATIENCE / 1000};
			siginfo_t info;
			sigset_t set;
			sigemptyset(&set);
			sigaddset(&set, event->sigev_signo);
			int came = sigtimedwait(&set, &info, &patience);
			say("signalled %d, value %d", came == event->sigev_signo, came < 0 ? -1 : info.si_value.sival_int);
		} else if (event && event->sigev_notify == SIGEV_THREAD) {
			char byte = 0;
			say("called %d, value %d", await(way[0], POLLIN, PATIENCE) && read(way[0], &byte, 1) == 1, byte);
		}
		show("own", &own_one);
		if (count > 2)
			show("peer", &peers);
		if (count > 3)
			show("loopback", &loopback);
		say("names are kept: %d", own_one.ar_name == own_name && peers.ar_name == peer_name);
	}
}

static void left(void)
{
	sigset_t set;
	struct sigevent none = {.sigev_notify = SIGEV_NONE},
			signal = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 7},
			thread = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = has_come, .sigev_value.sival_int = 8};
	know(80, "80");
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (pipe(way))
		die("pipe");
	ask("waits", GAI_WAIT, NULL, 0);
	ask("only numbers", GAI_WAIT, NULL, 1);
	ask("is told nothing", GAI_NOWAIT, &none, 0);
	ask("is signalled", GAI_NOWAIT, &signal, 0);
	ask("is called", GAI_NOWAIT, &thread, 0);
	say("another mode: %d", getaddrinfo_a(99, NULL, 0, NULL));
}

static void right(void)
{
}

BEHAVIOUR(names_later);
