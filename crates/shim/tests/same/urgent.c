/* Urgent data (MSG_OOB). */
#include "same.h"

static void left(void)
{
	int fd = left_end(0);
	step("send", send(fd, "ab", 2, 0));
	step("urgent", send(fd, "c", 1, MSG_OOB));
	step("send", send(fd, "de", 2, 0));
	shutdown(fd, SHUT_WR);
	char byte;
	recv(fd, &byte, 1, 0);
}

static void right(void)
{
	int fd = right_end(), total = 0;
	char text[16] = "", urgent = '-';
	await(fd, POLLRDHUP, PATIENCE);
	say("events %s", events(await(fd, POLLIN | POLLPRI, PATIENCE)));
	step("urgent", recv(fd, &urgent, 1, MSG_OOB));
	for (ssize_t n; (n = recv(fd, text + total, sizeof text - 1 - total, 0)) > 0; total += n)
		continue;
	say("%s, urgent %c", text, urgent);
}

BEHAVIOUR(urgent);
