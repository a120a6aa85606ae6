/* A process that has no descriptor left. */
#include "same.h"
#include <sys/resource.h>

static int spare[256], count;

static void use_up(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = 250;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int fd; (fd = dup(0)) >= 0;)
		spare[count++] = fd;
	step("one more", dup(0));
}

static void left(void)
{
	int port = hear(), waits = tcp(0), goes_on = tcp(SOCK_NONBLOCK), after = tcp(0);
	know(port, "listener");
	use_up();
	step("connect", go(waits, at(peer, port)));
	say("%s", remote(waits));
	talk("talk", waits);
	step("connect", go(goes_on, at(peer, port)));
	say("events %s, SO_ERROR %s", events(await(goes_on, POLLOUT, PATIENCE)), named(so_error(goes_on)));
	say("%s, %s", local(goes_on), remote(goes_on));
	step("still none", dup(0));
	for (int i = 0; i < 2; i++)
		close(spare[--count]);
	step("connect", go(after, at(peer, port)));
	tell(0);
}

static void right(void)
{
	int listening = listener(any(), 8, 0);
	tell(port_of(listening));
	use_up();
	await(listening, POLLIN, PATIENCE);
	step("accept", accept(listening, NULL, NULL));
	close(spare[--count]);
	int fd = accept(listening, NULL, NULL);
	say("accept with one left: %d, %s", fd == spare[count], remote(fd)[0] == 'P' ? "PEER" : remote(fd));
	step("one more", dup(0));
	answer(fd);
	hear();
}

BEHAVIOUR(descriptor_limit);
