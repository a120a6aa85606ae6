/* Datagrams between programs of one node, at its own address, by every call. */
#include "same.h"

enum { MANY = 5 };

static int bound(struct sockaddr_in address, const char *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (bind(fd, (struct sockaddr *)&address, sizeof address))
		die("bind");
	know(port_of(fd), name);
	return fd;
}

static struct sockaddr_storage from;
static socklen_t from_len;

static ssize_t receive(int fd, int by_message)
{
	char bytes[16];
	struct iovec part = {bytes, sizeof bytes};
	struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1};
	from_len = sizeof from;
	if (!await(fd, POLLIN, PATIENCE))
		return -1;
	if (!by_message)
		return recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &from_len);
	ssize_t got = recvmsg(fd, &message, 0);
	from_len = message.msg_namelen;
	return got;
}

/* A question and an answer, to who has asked. */
static void ask(const char *what, int client, int server, int is_connected, int by_message)
{
	struct sockaddr_in to = at(own, port_of(server));
	struct iovec part = {"abc", 3};
	struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};
	ssize_t sent = is_connected ? send(client, "abc", 3, 0)
		       : by_message ? sendmsg(client, &message, 0)
				    : sendto(client, "abc", 3, 0, (struct sockaddr *)&to, sizeof to);
	know(port_of(client), "client");
	ssize_t got = receive(server, by_message);
	say("%s: sent %zd, came %zd from %s", what, sent, got, who(&from, from_len));
	sent = sendto(server, "re", 2, 0, (struct sockaddr *)&from, from_len);
	got = receive(client, by_message);
	say("answered %zd, came %zd from %s", sent, got, got < 0 ? "nobody" : who(&from, from_len));
	say("%s, %s", local(client), remote(client));
}

static void many(int client, int server)
{
	struct sockaddr_in to = at(own, port_of(server)), senders[MANY];
	char bytes[MANY][4];
	struct iovec parts[MANY];
	struct mmsghdr messages[MANY];
	int sent = 0, came = 0;
	memset(messages, 0, sizeof messages);
	for (int i = 0; i < MANY; i++) {
		parts[i] = (struct iovec){"abc", 3};
		messages[i].msg_hdr = (struct msghdr){.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &parts[i], .msg_iovlen = 1};
	}
	while (sent < MANY) {
		int count = sendmmsg(client, messages + sent, MANY - sent, 0);
		if (count <= 0)
			break;
		for (int i = 0; i < count; i++)
			came += messages[sent + i].msg_len == 3;
		sent += count;
	}
	say("sendmmsg: %d of 3 bytes", came);
	for (int i = 0; i < MANY; i++) {
		parts[i] = (struct iovec){bytes[i], sizeof bytes[i]};
		messages[i].msg_hdr = (struct msghdr){.msg_name = &senders[i], .msg_namelen = sizeof senders[i], .msg_iov = &parts[i], .msg_iovlen = 1};
	}
	came = 0;
	while (came < MANY && await(server, POLLIN, PATIENCE)) {
		int count = recvmmsg(server, messages, MANY - came, MSG_DONTWAIT, NULL);
		for (int i = 0; i < count; i++)
			say("from %s", who(&senders[i], messages[i].msg_hdr.msg_namelen));
		came += count > 0 ? count : MANY;
	}
}

static const struct sockaddr_in nowhere = {.sin_family = AF_UNSPEC};

/* It gets a port anew. One that was known before is drawn now and then, but not always. */
static int leave(int client)
{
	int result = go(client, outside());
	for (int tries = 0; tries < 3 && !strstr(local(client), "some"); tries++) {
		go(client, nowhere);
		result = go(client, outside());
	}
	return result;
}

static void left(void)
{
	struct sockaddr_in servers[] = {any(), own};
	for (int i = 0; i < 2; i++) {
		int server = bound(servers[i], "server");
		say("-- a server at %s", local(server));
		for (int by_message = 0; by_message < 2; by_message++) {
			int client = socket(AF_INET, SOCK_DGRAM, 0);
			ask("unbound", client, server, 0, by_message);
			close(client);
			client = socket(AF_INET, SOCK_DGRAM, 0);
			step("connect", go(client, at(own, port_of(server))));
			ask("connected", client, server, 1, by_message);
			step("dissolve", go(client, nowhere));
			say("%s, %s", local(client), remote(client));
			step("outside", leave(client));
			say("at %s", local(client));
			close(client);
			client = bound(own, "client");
			ask("bound", client, server, 0, by_message);
			close(client);
		}
		int client = socket(AF_INET, SOCK_DGRAM, 0);
		/* It has a port then. */
		sendto(client, "", 0, 0, (struct sockaddr *)&own, sizeof own);
		struct sockaddr_in to = at(own, port_of(server));
		sendto(client, "abc", 3, 0, (struct sockaddr *)&to, sizeof to);
		know(port_of(client), "client");
		receive(server, 0);
		many(client, server);
		close(client);
		close(server);
	}
	int server = bound(any(), "server"), client = socket(AF_INET6, SOCK_DGRAM, 0);
	struct sockaddr_in6 to = mapped(at(own, port_of(server)));
	ssize_t sent = sendto(client, "abc", 3, 0, (struct sockaddr *)&to, sizeof to);
	know(port_of(client), "client");
	ssize_t got = receive(server, 0);
	say("IPv6: sent %zd, came %zd from %s", sent, got, who(&from, from_len));
	sent = sendto(server, "re", 2, 0, (struct sockaddr *)&from, from_len);
	got = receive(client, 1);
	say("answered %zd, came %zd from %s", sent, got, who(&from, from_len));
	close(client);
	close(server);
}

static void right(void)
{
}

BEHAVIOUR(datagrams_own);
